//! The diffs against the real `git apply`.

use proptest::prelude::*;

use super::*;

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> (bool, String) {
    let mut child = Command::new("git")
        .args(["-c", "core.autocrlf=false"])
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn git_takes_the_diffs() {
    let long: Vec<String> = (1..=60).map(|number| format!("line {number}\n")).collect();
    let long = long.concat();
    let files: &[(&str, &[u8])] = &[
        ("a", b"1\n2\n3\n4\n5\n"),
        ("long", long.as_bytes()),
        ("crlf", b"1\r\n2\r\n3\r\n"),
        ("open", b"1\nlast"),
        ("empty", b""),
        ("nul", b"1\n\0\n3\n"),
        ("ret", b"a\rb\nc\n"),
        ("a name/with \"quotes\"\t\\and täb", b"1\n2\n"),
        ("binary", b"\0\xff\n"),
    ];
    let odd = "a name/with \"quotes\"\t\\and täb";
    let cases: Vec<Value> = vec![
        json!([{"path": "a", "before": "3", "after": "drei"}]),
        json!([{"path": "a", "before": "1\n", "after": ""}, {"path": "a", "before": "5\n", "after": "5\n6\n"}]),
        json!([{"path": "long", "before": "line 3\n", "after": "x\n"}, {"path": "long", "before": "line 50\n", "after": ""}]),
        json!([{"path": "crlf", "before": "2\n", "after": "2\n2a\n"}]),
        json!([{"path": "open", "before": "last", "after": "final"}]),
        json!([{"path": "open", "before": "last", "after": "last\n"}]),
        json!([{"path": "a", "before": "5\n", "after": "5"}]),
        json!([{"path": "empty", "content": "no longer\n"}]),
        json!([{"path": "open", "content": ""}]),
        json!([{"path": "n/e/w", "content": "1\n2\n"}, {"path": "open new", "content": "1"}]),
        json!([{"path": "new and empty", "content": ""}]),
        json!([{"path": "new\nempty", "content": ""}]),
        json!([{"path": "a", "delete": true}, {"path": "open", "delete": true}, {"path": "empty", "delete": true}]),
        json!([{"path": "a", "move_to": "n/b"}]),
        json!([{"path": "binary", "move_to": "n/binary"}]),
        json!([{"path": "a", "before": "3", "after": "33"}, {"path": "a", "move_to": "with space"}]),
        json!([{"path": "a", "move_to": "m"}, {"path": "a", "content": "new\n"}]),
        json!([{"path": "a", "move_to": "t"}, {"path": "long", "move_to": "a"}, {"path": "t", "move_to": "long"}]),
        json!([{"path": odd, "before": "1", "after": "eins"}]),
        json!([{"path": odd, "move_to": "plain"}, {"path": "plain", "before": "1", "after": "eins"}]),
        json!([{"path": odd, "delete": true}, {"path": "Ünï", "content": "x"}]),
        json!([{"path": "nul", "before": "3", "after": "4"}, {"path": "ret", "before": "c", "after": "d"}]),
        json!([{"path": "a", "content": "diff --git a/x b/x\n--- a/x\n@@ -1 +1 @@\n"}]),
    ];
    for list in cases {
        let case = Case::new(files);
        fs_err::set_permissions(case.path("a"), Permissions::from_mode(0o755)).unwrap();
        assert!(git(&case.path(""), &["init", "-q"], b"").0);
        let arguments = edits(&list);
        let assessment = case.assess(&arguments).unwrap();
        let Preview::Patch { diff, .. } = &assessment.preview else { panic!("{list}") };
        let (taken, complaint) = git(&case.path(""), &["apply", "--check"], diff.as_bytes());
        assert!(taken, "{list}: {complaint}\n{diff}");
        // What git makes of it is what the tool makes of it.
        let other = Case::new(files);
        assert_eq!(other.run(&arguments).status, ResultStatus::Ok);
        assert!(git(&case.path(""), &["apply"], diff.as_bytes()).0, "{list}");
        let is_file = |path: &str| !path.starts_with(".git/") && !path.ends_with('/');
        let kept = |case: &Case| case.tree().into_iter().filter(|(path, _)| is_file(path)).collect::<BTreeMap<_, _>>();
        assert_eq!(kept(&case), kept(&other), "{list}");
        let sections = diff::parts(diff);
        assert_eq!(sections.concat(), *diff);
        assert!(sections.iter().all(|section| section.starts_with("diff --git ")), "{diff}");
        let sources = assessment.files.iter().filter(|file| file.change == Change::Move && file.sha256_after.is_none());
        assert_eq!(sections.len(), assessment.files.len() - sources.count());
    }
}

#[test]
fn what_is_no_text_is_exact_for_git_and_shown_as_far_as_it_can_be() {
    let of = |before: &[u8], after: &[u8]| {
        let (before, after) = (Some(before), Some(after));
        let part = diff::Part { path: "f", before, after, moved_from: None, executable: [false; 2] };
        (diff::readable(&part, None), diff::exact(&part))
    };
    let (readable, exact) = of(b"\0\xff", b"x");
    assert_eq!(readable, "diff --git a/f b/f\nBinary files a/f and b/f differ\n");
    let no_end = b"\\ No newline at end of file\n";
    let expected: [&[u8]; 5] =
        [b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\0\xff\n", no_end, b"+x\n", no_end, b""];
    assert_eq!(exact, expected.concat());
    let (readable, exact) = of(b"\xe9t\xe9\n", b"x\n");
    assert_eq!(
        readable,
        "diff --git a/f b/f\nFor reading: bytes that are no UTF-8 are shown as \\xNN. `attini diff` has them as they \
         are.\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\\xe9t\\xe9\n+x\n"
    );
    assert_eq!(exact, b"diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\xe9t\xe9\n+x\n");
}

/// Edits of a few files, many of which do not fit what the files are by then.
fn any_edit() -> impl Strategy<Value = Value> {
    let path = || prop::sample::select(vec!["a", "b", "run", "latin", "n/new", "m"]);
    let text =
        || prop::sample::select(vec!["", "1\n2\n3\n", "1\nzwei\n3\n", "x", "x\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n"]);
    let passage = || prop::sample::select(vec!["1\n", "2", "3\n", "x", "zwei"]);
    prop_oneof![
        2 => (path(), passage(), passage()).prop_map(|(path, before, after)| json!({"path": path, "before": before, "after": after})),
        2 => (path(), text()).prop_map(|(path, content)| json!({"path": path, "content": content})),
        1 => path().prop_map(|path| json!({"path": path, "delete": true})),
        3 => (path(), path()).prop_map(|(path, move_to)| json!({"path": path, "move_to": move_to})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn git_makes_of_a_stack_what_running_it_makes(
        stack in prop::collection::vec(prop::collection::vec(any_edit(), 1..4), 1..8),
    ) {
        let files: &[(&str, &[u8])] =
            &[("a", b"1\n2\n3\n"), ("b", b"x"), ("run", b"#!/bin/sh\n1\n"), ("latin", b"caf\xe9\n2\n\0")];
        let new = || {
            let case = Case::new(files);
            fs_err::set_permissions(case.path("run"), Permissions::from_mode(0o755)).unwrap();
            case
        };
        let (shown, run) = (new(), new());
        // What does not fit is refused, and nothing stands on it.
        let all: Vec<Value> = stack.into_iter().map(|list| edits(&Value::from(list))).collect();
        let all: Vec<&Value> = all.iter().collect();
        let stack = net::Stack::look(&all, &shown.surroundings());
        let good: Vec<usize> = (0..all.len()).filter(|index| stack.files(*index).is_some()).collect();
        let parts = stack.net(&good);
        let diff = parts.iter().map(|part| part.bytes.as_slice()).collect::<Vec<_>>().concat();
        for index in &good {
            let outcome = run.run(all[*index]);
            prop_assert_eq!(outcome.status, ResultStatus::Ok, "{}", outcome.content);
        }
        if !diff.is_empty() {
            let (taken, complaint) = git(&shown.path(""), &["apply", "--whitespace=nowarn"], &diff);
            prop_assert!(taken, "{}\n{}", complaint, String::from_utf8_lossy(&diff));
        }
        let kept = |case: &Case| {
            let files = case.tree().into_iter().filter(|(path, _)| !path.ends_with('/'));
            let executes = |path: &str| fs_err::metadata(case.path(path)).unwrap().mode() & 0o100 != 0;
            files.map(|(path, bytes)| (executes(&path), path, bytes)).collect::<Vec<_>>()
        };
        prop_assert_eq!(kept(&shown), kept(&run), "{}", String::from_utf8_lossy(&diff));
    }
}
