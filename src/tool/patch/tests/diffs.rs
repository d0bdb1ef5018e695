//! The diffs against the real `git apply`.

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
fn what_is_no_text_is_shown_as_far_as_it_can_be() {
    let of = |before: &[u8], after: &[u8]| {
        let (before, after) = (Some(before), Some(after));
        diff::of(&diff::Part { path: "f", before, after, moved_from: None, executable: false, withheld: None })
    };
    assert_eq!(of(b"\0\xff", b"x"), "diff --git a/f b/f\nBinary files a/f and b/f differ\n");
    assert_eq!(
        of(b"\xe9t\xe9\n", b"x\n"),
        "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-\u{fffd}t\u{fffd}\n+x\n"
    );
}
