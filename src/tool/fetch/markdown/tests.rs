use proptest::prelude::*;

use super::*;
use crate::exit::Signal;
use crate::interrupt::Cause;

#[track_caller]
fn markdown(html: &str) -> String {
    let base = Url::parse("https://a.org/docs/page?q=1").unwrap();
    of(html, &base, &Interrupt::default()).unwrap()
}

#[test]
fn elements_become_what_markdown_has_for_them() {
    let cases: &[(&str, &str)] = &[
        ("", ""),
        ("plain", "plain"),
        ("<p>one\n  two</p><p>three</p>", "one two\n\nthree"),
        ("a<br>b<br><br>c", "a\nb\n\nc"),
        ("<div>a</div><div>b</div>", "a\n\nb"),
        ("<h1>One</h1>text<h3>Th<b>re</b>e</h3>", "# One\n\ntext\n\n### Th**re**e"),
        ("<h2><div>a</div><p>b</p></h2>c", "## a b\n\nc"),
        ("x <b>bold </b>y <em> it</em>", "x **bold** y *it*"),
        ("<b><i>x</i></b><b></b><i> </i>", "***x***"),
        ("<b>a<b>b</b>c</b>", "**abc**"),
        ("<b><p>a</p><p>b</p></b>", "**a**\n\n**b**"),
        ("<i>a<b>b</i>c</b>", "*a**b*****c**"),
        ("10<sup>6</sup> m<sup>2</sup>", "10^6 m^2"),
        ("<del>old</del> new", "~~old~~ new"),
        ("AT&amp;T &lt;x&gt; &nbsp; caf&eacute; &#x41;", "AT&T \\<x> café A"),
        ("a<hr>b", "a\n\n- - -\n\nb"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n> \n> b\n\nc"),
        ("<blockquote>a<blockquote>b</blockquote></blockquote>", "> a\n> \n> > b"),
        ("<dl><dt>t<dd>one<dd>two<dt>u<dd>three</dl>x", "t\n: one\n: two\n\nu\n: three\n\nx"),
        ("<details><summary>s</summary>b</details>", "s\n\nb"),
        (
            "# no heading<p>1. no item<p>- no item<p>&gt; no quote",
            "\\# no heading\n\n1\\. no item\n\n\\- no item\n\n\\> no quote",
        ),
        ("snake_case * 2 __init__", "snake_case \\* 2 \\_\\_init\\_\\_"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn lists_keep_their_depth_and_numbers() {
    let cases: &[(&str, &str)] = &[
        ("<ul><li>a<li>b</ul>c", "- a\n- b\n\nc"),
        ("<p>x</p><ul>\n<li>a</li>\n<li>b</li>\n</ul>", "x\n\n- a\n- b"),
        ("<ol start=9><li>a<li>b</ol>", "9.  a\n10. b"),
        ("<ol start=x><li>a</ol>", "1. a"),
        ("<ul><li>a<ul><li>b<ol><li>c</ol><li>d</ul><li>e</ul>", "- a\n  - b\n    1. c\n  - d\n- e"),
        ("<ul><li><p>a</p><p>b</p><li>c</ul>", "- a\n\n  b\n\n- c"),
        ("<ul><li><ul><li>x</ul></ul>", "- - x"),
        ("<ul><li><blockquote>q</blockquote></ul>", "- > q"),
        ("<ul><li>a<pre>x\n\ny</pre></ul>", "- a\n\n  ```\n  x\n\n  y\n  ```"),
        ("<ul><li></li><li>b</ul>", "- b"),
        ("<li>stray", "- stray"),
        ("<ul>loose<li>a</ul></ul></li>b", "loose\n- a\n\nb"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn code_stays_as_it_is() {
    let cases: &[(&str, &str)] = &[
        ("run <code>cargo  test</code>.", "run `cargo test`."),
        ("<code>a`b</code>", "``a`b``"),
        ("<code>`a</code>", "`` `a ``"),
        ("<code><a href=/x>Vec</a>&lt;<b>T</b>&gt;</code> x", "`Vec<T>` x"),
        ("<a href=/x><code>f</code></a>", "[`f`](https://a.org/x)"),
        ("<b>x <code>y</b>z</code>", "**x `y`**z"),
        ("<code>open<p>next", "`open`\n\nnext"),
        ("<pre>\n  a &lt; b\n\n# c\n</pre>d", "```\n  a < b\n\n# c\n```\n\nd"),
        ("<pre><code class='x language-rust'>fn <span>f</span>()</code></pre>", "```rust\nfn f()\n```"),
        ("<pre class=lang-sh>a<br>b</pre>", "```sh\na\nb\n```"),
        ("<pre class='language-a`b'>x</pre>", "```\nx\n```"),
        ("<pre>a\n```\nb</pre>", "````\na\n```\nb\n````"),
        ("<pre><div>a</div><div>b</div></pre>", "```\na\nb\n```"),
        ("<pre> \n </pre>x", "x"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn links_are_absolute_and_pictures_named() {
    let cases: &[(&str, &str)] = &[
        ("<a href=next>n</a>", "[n](https://a.org/docs/next)"),
        ("<a href='/a b?x=(1)'>n</a>", "[n](https://a.org/a%20b?x=%281%29)"),
        ("<a href='//b.org'>b</a> <a href='mailto:x@b.org'>m</a>", "[b](https://b.org/) [m](mailto:x@b.org)"),
        ("<a href='#here'>h</a><a href='javascript:x()'>j</a><a href=''>e</a>", "hje"),
        ("<a name=x></a>t", "t"),
        ("<a href=x><h3>T</h3><p>d</p></a>", "### [T](https://a.org/docs/x)\n\n[d](https://a.org/docs/x)"),
        ("<a href=x>a<a href=y>b</a>", "[a](https://a.org/docs/x)[b](https://a.org/docs/y)"),
        ("<a href=x aria-label='The  name'><svg><path/></svg></a>", "[The name](https://a.org/docs/x)"),
        ("<img src=i.png alt='a  b'><img src=j.png>", "![a b](https://a.org/docs/i.png)"),
        ("<img src='data:image/png;base64,AAAA' alt=d>", "d"),
        ("<a href=x><img src=i.png alt=i></a>", "[![i](https://a.org/docs/i.png)](https://a.org/docs/x)"),
        ("<base href=/other/><a href=x>n</a><base href=/third/>", "[n](https://a.org/other/x)"),
        ("<base href='file:///etc/'><a href=x>n</a>", "[n](https://a.org/docs/x)"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn tables_keep_every_cell() {
    let cases: &[(&str, &str)] = &[
        (
            "<table><thead><tr><th>a<th>b</thead><tr><td>1<td>2|3<tr><td>4</table>x",
            "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |\n| 4 |\n\nx",
        ),
        ("<table><tr><th>k<td>v<tr><th>l<td>w</table>", "|  |  |\n| --- | --- |\n| k | v |\n| l | w |"),
        ("<table><tr><th>k<th>l<tr><td>v<br>v<td><p>w</p><p>x</p></table>", "| k | l |\n| --- | --- |\n| v v | w x |"),
        ("<table><caption>c</caption><tr><td>a<td>b</table>", "c\n\n|  |  |\n| --- | --- |\n| a | b |"),
        ("<table><tr><td><h2>t</h2><td><ul><li>a</ul></table>", "## t\n\n- a"),
        ("<table><tr><td>only<tr><td>column</table>", "only\n\ncolumn"),
        ("<table><tr><td class=n><pre>1\n2</pre><td><pre>a\nb</pre></table>", "```\n1\n2\n```\n\n```\na\nb\n```"),
        ("<table><tr><td><table><tr><th>a<th>b<tr><td>1<td>2</table></table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ("<table>before<tr>loose<td>a<td>b<tr><td><ul><li>c</ul></table></b>", "before\n\nloose\n\na\n\nb\n\n- c"),
        ("<table><tr>loose<td>a<td>b</tr>behind</table>", "|  |  |\n| --- | --- |\n| loose | a | b behind |"),
        (
            "<table><tr><td>a</td></tr></td><td>b<td>c</tr></table></table>d",
            "|  |  |\n| --- | --- |\n| a |\n| b | c |\n\nd",
        ),
        ("<b><table><tr><td>a<td>b</table></b>", "|  |  |\n| --- | --- |\n| a | b |"),
        ("<td>stray<td>cells", "stray\ncells"),
        ("<table><tr><td>open", "open"),
        ("<table></table>x", "x"),
        ("<blockquote><table><tr><td>a<td>b</table></blockquote>", "> |  |  |\n> | --- | --- |\n> | a | b |"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn what_is_not_for_readers_is_dropped() {
    let cases: &[(&str, &str)] = &[
        ("a<script>if (a < b) '</p>'</script>b<style>p > a {}</style>c", "abc"),
        ("<script/>var</script>x", "x"),
        ("<!-- <p>no</p> -->x<template><p>no<template>no</template>no</template>y", "xy"),
        ("<svg><title>no</title><script/>no<svg></svg>no</svg>yes", "yes"),
        ("<iframe src=x><p>no</p></iframe><noscript>without scripts</noscript>", "without scripts"),
        ("<textarea><b>x</b></textarea>", "\\<b>x\\</b>"),
        ("a\0b", "ab"),
        // They stand for something between the two steps.
        ("a\u{fdd0}b<table><tr><td>\u{fdd1}\u{fdd3}c<td>d</table>", "ab\n\n|  |  |\n| --- | --- |\n| c | d |"),
        ("<img src=x alt='a\u{fdd2}b'> <code>c\u{fdd0}d</code>", "![ab](https://a.org/docs/x) `cd`"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
}

#[test]
fn the_title_comes_first_and_once() {
    let cases: &[(&str, &str)] = &[
        ("<title> The\n title &amp; all</title><p>x", "# The title & all\n\nx"),
        ("<title>T</title><h1>T</h1><p>x", "# T\n\nx"),
        ("<title>T</title><h1>Two</h1>", "# T\n\n# Two"),
        ("<title>T</title>", "# T"),
        ("<title></title>x", "x"),
    ];
    for (html, expected) in cases {
        assert_eq!(markdown(html), *expected, "{html}");
    }
    assert_eq!(markdown(&format!("<title>{}</title>", "t".repeat(9999))).len(), TITLE_CHARACTERS_MAX + 2);
}

/// Each of these is slow, deep or large to a converter that builds a tree, or pads what it writes.
#[test]
fn bombs_go_off_quietly() {
    let many = 10_000;
    let bombs: Vec<(&str, String)> = vec![
        ("divs", "<div>".repeat(100_000)),
        ("closed divs", format!("{}x{}", "<div>".repeat(many), "</div>".repeat(many))),
        ("bold", format!("{}x", "<b>".repeat(many))),
        ("links", "<a href=x>y".repeat(many)),
        ("bold and italic", "<b>x<i>y</b>z</i>".repeat(many)),
        ("quotes", "<blockquote>x\n".repeat(many)),
        ("lists", "<ul><li>x".repeat(many)),
        ("empty lists", "<ol><li>".repeat(many)),
        ("definitions", "<dl><dd>x".repeat(many)),
        ("tables", "<table><tr><td>x".repeat(many)),
        ("closed tables", format!("{}x{}", "<table><tr><td>".repeat(many), "</table>".repeat(many))),
        ("cells", format!("<table><tr>{}", "<td>x".repeat(many))),
        ("a wide cell", format!("<table><tr><th>{}{}", "x".repeat(1 << 20), "<tr><td>x<td>y".repeat(many))),
        ("siblings", "<b>x</b>".repeat(many)),
        ("end tags", "</p></b></table></ul>".repeat(many)),
        ("code", "<code>`".repeat(many)),
        ("backticks", format!("<pre>{}", "`".repeat(1 << 20))),
        ("codes", "<code>x</code>".repeat(many)),
        ("runs of backticks", format!("<code>{}", (1..3000).map(|run| "`".repeat(run) + "a").collect::<String>())),
        ("marks within each other", "<b><i><s><sup>x</b></i></s></sup>".repeat(many)),
        ("descriptions", "<dd>x<dt>y".repeat(many)),
        ("empty cells", format!("<table><tr>{}", "<td>".repeat(many))),
        ("svgs", "<svg>".repeat(many)),
        ("entities", "&amp;".repeat(many)),
        ("open entity", format!("&{}", "a".repeat(1 << 20))),
        ("lines in quotes", format!("{}<pre>{}", "<blockquote>".repeat(100), "\n.".repeat(many))),
        ("headings", "<h1>x<table>".repeat(many)),
    ];
    for (name, html) in bombs {
        let begun = Instant::now();
        let text = markdown(&html);
        assert!(text.len() < 8 * html.len() + 16 * 1024 * 1024, "{name}: {} bytes", text.len());
        assert!(begun.elapsed() < Duration::from_secs(WORK_SECONDS_MAX + 5), "{name}: {:?}", begun.elapsed());
    }
}

/// The converter calls itself for each element that is open; a thread has 2 MiB, and this is half of it.
#[test]
fn the_deepest_page_fits_a_stack() {
    const STACK_BYTES: usize = 1024 * 1024;
    let work = || {
        for piece in
            ["<blockquote>", "<ul><li>", "<ol><li>", "<dl><dd>", "<table><tr><td>", "<ul><li><dl><dd><table><th>"]
        {
            let marks = "<a href=x><b><i><s><sup>";
            for html in [format!("{}{marks}end", piece.repeat(1000)), format!("{}<pre>end", piece.repeat(1000))] {
                assert!(markdown(&html).contains("end"), "{html}");
            }
        }
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_large_page_is_converted_in_stretches_and_stays_whole() {
    let paragraphs: String = (0..20_000).map(|number| format!("<p>number {number}</p>")).collect();
    let expected = (0..20_000).map(|number| format!("number {number}")).collect::<Vec<_>>().join("\n\n");
    assert!(markdown(&paragraphs) == expected, "paragraphs");

    let line = "0123456789abcde\n";
    let html = format!("<ul><li>x<pre class=lang-sh>{}</pre></ul>", line.repeat(5 * 1024 * 1024 / line.len()));
    let text = markdown(&html);
    // A stretch may end within a line.
    for character in ['0', 'e'] {
        assert_eq!(text.matches(character).count(), 5 * 1024 * 1024 / line.len(), "{character}");
    }
    assert_eq!(text.matches("```sh").count(), 2);
}

#[test]
fn a_page_that_takes_too_long_is_cut_where_that_is_said() {
    let base = Url::parse("https://a.org/").unwrap();
    let attributes = (0..200_000).map(|number| number.to_string()).collect::<Vec<_>>().join(" a");
    let html = format!("<p>before</p><p{attributes}>after");
    let text = within(&html, &base, &Interrupt::default(), Duration::from_millis(200)).unwrap();
    assert!(text.starts_with("before\n\n[the rest of the page is left out"), "{text}");
}

#[test]
fn an_interrupt_ends_it() {
    let interrupt = Interrupt::default();
    interrupt.raise(Cause::Signal(Signal::Interrupt));
    assert_eq!(of("<p>x", &Url::parse("https://a.org/").unwrap(), &interrupt), None);
}

fn soup() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "table",
            "tr",
            "td",
            "th",
            "thead",
            "caption",
            "ul",
            "ol",
            "li",
            "dl",
            "dt",
            "dd",
            "p",
            "div",
            "h1",
            "h2",
            "a href=x",
            "a",
            "b",
            "i",
            "code",
            "pre",
            "blockquote",
            "br",
            "hr",
            "sup",
            "svg",
            "template",
            "title",
            "script",
            "img alt=x src=y",
            "textarea",
        ])
        .prop_map(|name| format!("<{name}>")),
        prop::sample::select(vec![
            "table",
            "tr",
            "td",
            "thead",
            "ul",
            "li",
            "dl",
            "dd",
            "p",
            "h1",
            "a",
            "b",
            "i",
            "code",
            "pre",
            "blockquote",
            "svg",
            "template",
            "title",
            "script",
            "br",
            "caption",
        ])
        .prop_map(|name| format!("</{name}>")),
        prop::sample::select(vec!["word", " ", "\n", "`", "|", "&lt;", "&", "<", "é", "1.", "#", "]]>"])
            .prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn nothing_that_is_shown_gets_lost_or_panics(soup in soup(), text in "[a-z]{1,8}") {
        // Behind the soup everything that could swallow text is closed.
        let closers = "</script></title></textarea></svg></template>".repeat(30);
        let html = format!("{soup}{closers}<p>{text}!</p>");
        let shown = markdown(&html);
        let end = format!("{text}!");
        prop_assert!(shown.contains(&end), "{html}\n{shown}");
    }

    #[test]
    fn any_text_is_taken(html in "\\PC{0,200}") {
        markdown(&html);
    }
}
