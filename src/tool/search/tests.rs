use serde_json::json;

use super::*;
use crate::session::record::ResultStatus;
use crate::tool::scene::Scene;

fn scene() -> Scene {
    Scene::new(&[
        (".gitignore", "ignored/\n"),
        (".env", "needle=secret\n"),
        (".git/config", "needle\n"),
        (".github/ci.yml", "run: needle\n"),
        ("a.txt", "one\nneedle two\nthree\n"),
        ("b/c.rs", "let needle = 1;\r\nlet Needle = 2;\r\n"),
        ("ignored/x", "needle\n"),
        ("../outside/x", "needle outside\n"),
    ])
}

const SECRET: &str = "[1 file or folder that may hold secrets was skipped]";

#[track_caller]
fn finds(scene: &Scene, arguments: &Value, expected: &[&str]) {
    assert_eq!(scene.run(&Search::new(), arguments), Outcome::ok(expected.join("\n")), "{arguments}");
}

#[test]
fn matches_come_in_the_order_of_paths() {
    let scene = scene();
    let all = [".github/ci.yml:1:run: needle", "a.txt:2:needle two", "b/c.rs:1:let needle = 1;"];
    finds(&scene, &json!({"pattern": "needle"}), &[all[0], all[1], all[2], SECRET]);
    finds(&scene, &json!({"pattern": "needle", "path": "b"}), &[all[2]]);
    finds(&scene, &json!({"pattern": "needle", "path": "a.txt"}), &[all[1]]);
    finds(&scene, &json!({"pattern": "needle", "path": "ignored"}), &["ignored/x:1:needle"]);
    finds(&scene, &json!({"pattern": "needle", "glob": "*.rs"}), &[all[2], SECRET]);
    finds(&scene, &json!({"pattern": "needle", "glob": "!*.rs"}), &[all[0], all[1], SECRET]);
    finds(&scene, &json!({"pattern": "NEEDLE =", "ignore_case": true}), &[all[2], "b/c.rs:2:let Needle = 2;", SECRET]);
    finds(&scene, &json!({"pattern": "1;$"}), &[all[2], SECRET]);
    finds(&scene, &json!({"pattern": "n.*e", "literal": true}), &["no match for \"n.*e\" in .", SECRET]);
    finds(
        &scene,
        &json!({"pattern": "needle", "path": "a.txt", "context": 1}),
        &["a.txt-1-one", "a.txt:2:needle two", "a.txt-3-three"],
    );
    let outside = format!("{}:1:needle outside", scene.path("../outside/x").display());
    finds(&scene, &json!({"pattern": "needle", "path": "../outside"}), &[&outside]);
}

#[test]
fn what_is_left_out_is_counted() {
    let mut scene = Scene::new(&[]);
    for file in 0..30 {
        scene.write(&format!("f{file:02}"), "x\n".repeat(10));
    }
    let limited = json!({"pattern": "x", "max_results": 12});
    let mut expected: Vec<String> = (1..=10).map(|line| format!("f00:{line}:x")).collect();
    expected.extend(["f01:1:x".to_owned(), "f01:2:x".to_owned()]);
    expected.push("[288 more left out at max_results; narrow it with path, glob or pattern]".to_owned());
    for _ in 0..20 {
        assert_eq!(scene.run(&Search::new(), &limited).content, expected.join("\n"));
    }
    scene.write("f00a", "x\n".repeat(5000));
    let outcome = scene.run(&Search::new(), &limited);
    assert!(outcome.content.contains("[more than 1000 more left out at max_results;"), "{}", outcome.content);

    scene.limits.result_bytes = 100;
    let outcome = scene.run(&Search::new(), &json!({"pattern": "x"}));
    assert!(outcome.content.contains("left out at the size of a result"), "{}", outcome.content);
    assert!(outcome.content.starts_with("f00:1:x\n"), "{}", outcome.content);
}

#[test]
fn context_is_broken_where_lines_are_missing() {
    let scene = Scene::new(&[("a", "x\n1\n2\n3\n4\nx\n"), ("b", "x\n")]);
    finds(&scene, &json!({"pattern": "x", "context": 1}), &["a:1:x", "a-2-1", "--", "a-5-4", "a:6:x", "--", "b:1:x"]);
    finds(
        &scene,
        &json!({"pattern": "x", "context": 1, "max_results": 1}),
        &["a:1:x", "a-2-1", "[2 more left out at max_results; narrow it with path, glob or pattern]"],
    );
}

#[test]
fn long_lines_are_cut_around_the_match() {
    let long = format!("{}needle{}\n", "\u{e9}".repeat(5000), "z".repeat(1000));
    let scene = Scene::new(&[("a", &long)]);
    let outcome = scene.run(&Search::new(), &json!({"pattern": "needle"}));
    assert!(outcome.content.len() < 600, "{}", outcome.content.len());
    assert!(outcome.content.starts_with("a:1:[9900 bytes] \u{e9}"), "{}", outcome.content);
    assert!(outcome.content.contains("needlezz"), "{}", outcome.content);
    assert!(outcome.content.ends_with("z [606 bytes]"), "{}", outcome.content);
    assert!(!outcome.content.contains('\u{fffd}'));
}

#[test]
fn binary_files_are_left_out() {
    let scene = Scene::new(&[("text", "needle\n")]);
    scene.write("blob", b"needle\n\0needle\n");
    finds(&scene, &json!({"pattern": "needle"}), &["text:1:needle", "[1 binary file was not searched: blob]"]);
    finds(&scene, &json!({"pattern": "needle", "path": "blob"}), &["[blob is a binary file, and was not searched]"]);
    scene.write("late", [b"needle\n".as_slice(), &b"x\n".repeat(1 << 20), b"\0"].concat());
    finds(
        &scene,
        &json!({"pattern": "needle", "path": "late"}),
        &["[a match before the first NUL byte of a binary file, not shown: late]"],
    );
    fs_err::remove_file(scene.path("late")).unwrap();
    for number in 0..7 {
        scene.write(&format!("more{number}"), b"\0");
    }
    finds(
        &scene,
        &json!({"pattern": "other"}),
        &[
            "no match for \"other\" in the text of . that was searched",
            "[8 binary files were not searched: blob, more0, more1, more2, more3 and 3 more]",
        ],
    );
}

#[test]
fn lines_of_any_length_are_searched() {
    let scene = Scene::new(&[("short", "needle\n")]);
    let pieces = format!(
        "[lines over {PIECE_BYTES} bytes were searched in pieces, and a match longer than {OVERLAP_BYTES} bytes may be \
         missing: long]"
    );
    // Across the border of two pieces, far behind it, and at the end.
    for at in [PIECE_BYTES - 3, 5 * PIECE_BYTES + 7, 40 * PIECE_BYTES] {
        let mut line = vec![b'x'; at];
        line.extend_from_slice(b"needle");
        line.resize(line.len().max(40 * PIECE_BYTES), b'x');
        scene.write("long", [b"first\n", line.as_slice(), b"\nneedle behind\n"].concat());
        let outcome = scene.run(&Search::new(), &json!({"pattern": "needle"}));
        let lines: Vec<&str> = outcome.content.lines().collect();
        assert_eq!(lines.len(), 4, "{}", outcome.content);
        assert!(lines[0].starts_with("long:2:[") && lines[0].contains("needle"), "{}", lines[0]);
        assert_eq!(&lines[1..], ["long:3:needle behind", "short:1:needle", &pieces]);
        let count = lines[0]["long:2:[".len()..].split(' ').next().unwrap().parse::<usize>().unwrap();
        assert_eq!(count + lines[0].find("needle").unwrap() - lines[0].find("] ").unwrap() - 2, at);
    }
    // What is only at the border of a piece is no match.
    for pattern in ["^x+y", "^needle", "first$|x$", "^xx$"] {
        let expected = if pattern.starts_with('f') { vec!["long:1:first", "long:2:"] } else { vec!["no match"] };
        let mut line = vec![b'x'; 3 * PIECE_BYTES];
        if !pattern.starts_with('f') {
            line.push(b'z');
        }
        scene.write("long", [b"first\n", line.as_slice(), b"\n"].concat());
        let outcome = scene.run(&Search::new(), &json!({"pattern": pattern, "path": "long", "context": 0}));
        for (line, expected) in outcome.content.lines().zip(expected) {
            assert!(line.starts_with(expected), "{pattern}: {line}");
        }
    }
    let around = scene.run(&Search::new(), &json!({"pattern": "first", "path": "long", "context": 20}));
    assert!(around.content.starts_with("long:1:first\nlong-2-xxx"), "{}", around.content);
    assert_eq!(around.content.lines().count(), 3, "{}", around.content);
}

#[test]
fn a_key_is_masked_before_its_line_is_cut() {
    crate::mask::register("TEST_SEARCH_KEY", "sk-search-0123456789");
    let scene = Scene::new(&[]);
    for before in 480..500 {
        scene.write("f", format!("needle{}sk-search-0123456789\n", "x".repeat(before - 6)));
        let outcome = scene.run(&Search::new(), &json!({"pattern": "needle"}));
        assert!(!outcome.content.contains("sk-"), "{before}: {}", outcome.content);
        scene.write("f", format!("sk-search-0123456789{}needle\n", "x".repeat(before - 400)));
        let outcome = scene.run(&Search::new(), &json!({"pattern": "needle$"}));
        assert!(!outcome.content.contains("0123456789") && outcome.content.contains("needle"), "{}", outcome.content);
    }
}

#[test]
fn what_cannot_be_searched_is_said_so() {
    let scene = scene();
    let huge = format!("(?:{}){{1000}}{{1000}}", "a".repeat(100));
    let long = "a".repeat(PATTERN_BYTES_MAX + 1);
    for (arguments, code, message) in [
        (json!({"pattern": "(a"}), "invalid_pattern", "unclosed group"),
        (json!({"pattern": "a\\nb"}), "invalid_pattern", "not allowed"),
        (json!({"pattern": ""}), "invalid_pattern", "empty"),
        (json!({"pattern": huge}), "invalid_pattern", "size limit"),
        (json!({"pattern": long}), "invalid_pattern", "longer than"),
        (json!({"pattern": "a", "glob": "{a"}), "invalid_pattern", "glob"),
        (json!({"pattern": "a", "path": "b.txt"}), "not_found", "there is no b.txt"),
        (json!({"pattern": "a", "paths": "b.txt"}), "invalid_arguments", "unknown field `paths`"),
    ] {
        let outcome = scene.run(&Search::new(), &arguments);
        assert_eq!(outcome.code, Some(code), "{arguments}: {}", outcome.content);
        assert!(outcome.content.contains(message), "{arguments}: {}", outcome.content);
    }
}

#[test]
fn what_was_judged_is_what_is_searched() {
    let scene = scene();
    let search = Search::new();
    let folder = json!({"pattern": "needle", "path": "b"});
    let file = json!({"pattern": "needle", "path": "a.txt"});
    let worlds = [scene.look(&search, &folder), scene.look(&search, &file)];
    scene.swap("b", "../outside");
    fs_err::remove_file(scene.path("a.txt")).unwrap();
    scene.link("a.txt", "../outside/x");
    for (arguments, world) in [(&folder, &worlds[0]), (&file, &worlds[1])] {
        let outcome = scene.run_on(&search, arguments, world);
        assert_eq!(outcome.code, Some("stale"), "{arguments}: {}", outcome.content);
        assert!(!outcome.content.contains("outside"), "{}", outcome.content);
    }
    // A link that the walk meets is not followed either.
    finds(&scene, &json!({"pattern": "outside"}), &["no match for \"outside\" in .", SECRET]);
}

#[test]
fn an_interrupt_ends_it() {
    let scene = scene();
    scene.interrupt.raise(crate::interrupt::Cause::TimeLimit);
    for path in [".", "a.txt"] {
        let outcome = scene.run(&Search::new(), &json!({"pattern": "needle", "path": path}));
        assert_eq!(outcome.status, ResultStatus::Cancelled, "{path}");
    }
}
