//! What a patch is to become, what it asks for, and what is refused, with nothing written.

use proptest::prelude::*;

use super::*;

/// A file of the plan: path, change, whether it is there before and after.
type Planned = (&'static str, Change, bool, bool);
/// A name, the edits, the plan, and all files and folders afterwards.
type Row = (&'static str, Value, Vec<Planned>, Vec<(&'static str, &'static str)>);

#[test]
fn the_schema_is_one_plain_object() {
    let patch = Patch::new();
    let item = &patch.parameters()["properties"]["edits"]["items"];
    assert_eq!(item["type"], "object");
    assert_eq!(item["required"], json!(["path"]));
    assert_eq!(item["additionalProperties"], json!(false));
    assert_eq!(item["properties"]["delete"]["type"], "boolean");
    let text = patch.parameters().to_string();
    for word in ["anyOf", "oneOf", "$ref", "null"] {
        assert!(!text.contains(word), "{text}");
    }
    jsonschema::validator_for(patch.parameters()).unwrap();
}

#[test]
fn edits_apply_in_order_and_the_plan_is_their_sum() {
    use Change::{Add, Delete, Move, Update};
    let cases: Vec<Row> = vec![
        (
            "several edits to one file, named three ways",
            json!([
                {"path": "a", "before": "one", "after": "two"},
                {"path": "./a", "before": "two", "after": "three"},
                {"path": "d/../a", "before": "three", "after": "four"},
            ]),
            vec![("a", Update, true, true)],
            vec![("a", "four\n"), ("b", "bee\n"), ("d/", ""), ("d/c", "sea\n")],
        ),
        (
            "created with its folders, then edited",
            json!([{"path": "x/y/z", "content": "1\n"}, {"path": "x/y/z", "before": "1", "after": "2"}]),
            vec![("x/y/z", Add, false, true)],
            vec![
                ("a", "one\n"),
                ("b", "bee\n"),
                ("d/", ""),
                ("d/c", "sea\n"),
                ("x/", ""),
                ("x/y/", ""),
                ("x/y/z", "2\n"),
            ],
        ),
        (
            "deleted and replaced",
            json!([{"path": "b", "delete": true}, {"path": "a", "content": "new"}]),
            vec![("b", Delete, true, false), ("a", Update, true, true)],
            vec![("a", "new"), ("d/", ""), ("d/c", "sea\n")],
        ),
        (
            "edited and moved",
            json!([{"path": "a", "before": "one", "after": "1"}, {"path": "a", "move_to": "d/e"}]),
            vec![("a", Move, true, false), ("d/e", Move, false, true)],
            vec![("b", "bee\n"), ("d/", ""), ("d/c", "sea\n"), ("d/e", "1\n")],
        ),
        (
            "moved twice is moved once",
            json!([{"path": "a", "move_to": "m"}, {"path": "m", "move_to": "n"}]),
            vec![("a", Move, true, false), ("n", Move, false, true)],
            vec![("b", "bee\n"), ("d/", ""), ("d/c", "sea\n"), ("n", "one\n")],
        ),
        (
            "moved, and something new in its place",
            json!([{"path": "a", "move_to": "m"}, {"path": "a", "content": "new"}]),
            vec![("a", Update, true, true), ("m", Add, false, true)],
            vec![("a", "new"), ("b", "bee\n"), ("d/", ""), ("d/c", "sea\n"), ("m", "one\n")],
        ),
        (
            "two names swapped",
            json!([{"path": "a", "move_to": "t"}, {"path": "b", "move_to": "a"}, {"path": "t", "move_to": "b"}]),
            vec![("a", Update, true, true), ("b", Update, true, true)],
            vec![("a", "bee\n"), ("b", "one\n"), ("d/", ""), ("d/c", "sea\n")],
        ),
        (
            "a file without net change is no part of it",
            json!([{"path": "a", "content": "one\n"}, {"path": "b", "content": "B"}]),
            vec![("b", Update, true, true)],
            vec![("a", "one\n"), ("b", "B"), ("d/", ""), ("d/c", "sea\n")],
        ),
    ];
    for (name, list, expected, after) in cases {
        let case = Case::new(&[("a", b"one\n"), ("b", b"bee\n"), ("d/c", b"sea\n")]);
        let arguments = edits(&list);
        let assessment = case.assess(&arguments).expect(name);
        assert_eq!(plan(&assessment.files), expected, "{name}");
        let names: Vec<&str> = expected.iter().map(|file| file.0).collect();
        assert_eq!(assessment.summary, names.join(", "), "{name}");
        let outcome = case.run(&arguments);
        assert_eq!(outcome.status, ResultStatus::Ok, "{name}: {}", outcome.content);
        assert_eq!(case.tree(), tree(&after), "{name}");
        let Preview::Patch { diff, files, .. } = &assessment.preview else { panic!("{name}") };
        assert!(outcome.content.ends_with(diff.as_str()), "{name}");
        assert_eq!(files, &assessment.files, "{name}");
    }
}

#[test]
fn refusals_name_the_edit_and_write_nothing() {
    let cases: Vec<(&str, Value, &str)> = vec![
        (
            "patch_mismatch",
            json!([{"path": "a", "before": "x", "after": "y"}]),
            "edit 1: `before` occurs 2 times in a, on lines 1, 3;",
        ),
        (
            "patch_mismatch",
            json!([{"path": "a", "before": "middel", "after": "y"}]),
            "the nearest is line 2:\n2: middle",
        ),
        ("patch_mismatch", json!([{"path": "bytes", "before": "qqqq", "after": "y"}]), "the file is not UTF-8 text"),
        (
            "patch_mismatch",
            json!([{"path": "a", "before": "middle", "after": "centre"}, {"path": "a", "before": "middle", "after": ""}]),
            "edit 2: `before` does not occur in a, as the edits before this one leave it",
        ),
        (
            "patch_mismatch",
            json!([{"path": ".env", "before": "KEY=secre", "after": ""}, {"path": ".env", "before": "KEY=secret2", "after": ""}]),
            "may not be shown unasked",
        ),
        (
            "patch_mismatch",
            json!([{"path": ".env", "move_to": "open"}, {"path": "open", "before": "KEY=secre2", "after": ""}]),
            "may not be shown unasked",
        ),
        ("not_found", json!([{"path": "nothing", "delete": true}]), "edit 1: there is no file nothing"),
        ("not_found", json!([{"path": "nothing", "before": "x", "after": "y"}]), "there is no file nothing"),
        ("not_found", json!([{"path": "nothing", "move_to": "b"}]), "there is no file nothing"),
        ("is_a_folder", json!([{"path": "d", "delete": true}]), "edit 1: d is a folder"),
        ("is_a_folder", json!([{"path": "d", "content": "x"}]), "d is a folder"),
        ("is_a_folder", json!([{"path": "a", "move_to": "d"}]), "d is a folder"),
        ("exists", json!([{"path": "a", "move_to": "d/c"}]), "edit 1: d/c exists already"),
        ("invalid_arguments", json!([{"path": "a", "move_to": "./a"}]), "name the same file"),
        (
            "invalid_arguments",
            json!([{"path": "a", "delete": true}, {"path": "./a", "before": "m", "after": "n"}]),
            "edit 2: a is gone by then, because edit 1 deletes it",
        ),
        (
            "invalid_arguments",
            json!([{"path": "a", "move_to": "m"}, {"path": "a", "delete": true}]),
            "edit 2: a is gone by then, because edit 1 moves it to m",
        ),
        ("no_change", json!([{"path": "d/c", "content": "sea\n"}]), "leave every file as it is"),
        (
            "no_change",
            json!([{"path": "a", "move_to": "m"}, {"path": "m", "move_to": "a"}]),
            "leave every file as it is",
        ),
        ("no_change", json!([{"path": "new", "content": "x"}, {"path": "new", "delete": true}]), "leave every file"),
        ("not_a_folder", json!([{"path": "n", "content": "x"}, {"path": "n/m", "content": "x"}]), "which is a file"),
        ("too_large", json!([{"path": "n", "content": "x".repeat(FILE_BYTES_MAX + 1)}]), "at most 16777216"),
    ];
    let case =
        Case::new(&[("a", b"x\nmiddle\nx\n"), ("d/c", b"sea\n"), ("bytes", b"\xff\xfe\n"), (".env", b"KEY=secret\n")]);
    for (code, list, expected) in cases {
        let refusal = case.assess(&edits(&list)).expect_err(expected);
        assert_eq!(refusal.code, code, "{expected}: {}", refusal.message);
        assert!(refusal.message.contains(expected), "{} lacks {expected}", refusal.message);
        assert!(!refusal.message.contains("secret\n") && refusal.detail.is_none_or(|detail| !detail.contains("KEY")));
    }
    let detail = |list: Value| case.assess(&edits(&list)).unwrap_err().detail;
    assert_eq!(
        detail(json!([{"path": "a", "before": "middel", "after": ""}])).as_deref(),
        Some("the nearest text is on line 2 of a")
    );
    assert_eq!(
        detail(json!([{"path": "d/cc", "delete": true}, {"path": "d/c", "delete": true}])).as_deref(),
        Some("the nearest name is d/c")
    );
}

#[test]
fn what_asks_and_why() {
    let case = Case::new(&[("mine", b"1\n"), ("theirs", b"1\n"), (".gitattributes", b""), (".git/config", b"1\n")]);
    let case = Case { written: BTreeMap::from([("mine".to_owned(), apply::sha256_of(b"1\n"))]), ..case };
    let outside = case.folder.path().canonicalize().unwrap().join("outside");
    fs_err::write(&outside, "1\n").unwrap();
    let outside = outside.to_str().unwrap();
    let cases = [
        (json!([{"path": "mine", "before": "1", "after": "2"}]), String::new(), true),
        (json!([{"path": "mine", "delete": true}]), String::new(), true),
        (json!([{"path": "mine", "move_to": "new"}]), "new: it is a new file".to_owned(), true),
        (json!([{"path": "theirs", "content": "2"}]), "theirs: THEIRS".to_owned(), true),
        (
            json!([{"path": ".gitattributes", "content": "2"}]),
            ".gitattributes: writing it always asks".to_owned(),
            false,
        ),
        (json!([{"path": ".git/config", "content": "2"}]), ".git/config: NEVER".to_owned(), false),
        (json!([{"path": outside, "content": "2"}]), format!("{outside}: it is outside the workspace"), true),
        (
            json!([{"path": "theirs", "content": "2"}, {"path": "a", "content": "2"}, {"path": "mine", "content": "3"}]),
            "theirs: THEIRS; a: it is a new file".to_owned(),
            true,
        ),
    ];
    for (list, expected, may_be_granted) in cases {
        let assessment = case.assess(&edits(&list)).unwrap();
        let Preview::Patch { why, .. } = &assessment.preview else { panic!("{list}") };
        // The facts' own words, whatever they are.
        let fact = |path: &str| case.world(&edits(&json!([{ "path": path }])));
        let theirs = fact("theirs").files[&case.path("theirs")].revertible.clone().unwrap_err();
        let never = fact(".git/config").locations[".git/config"].clone().unwrap().never_writable.unwrap();
        assert_eq!(why, &expected.replace("THEIRS", &theirs).replace("NEVER", &never));
        let root = case.path("a").parent().unwrap().to_owned();
        let question = crate::permission::Question {
            tool: "patch",
            effect: crate::tool::Effect::SideEffect,
            accesses: &assessment.accesses,
            run: None,
        };
        let grant = crate::permission::grant::suggest(&question, &root);
        let rule =
            |file: &PlannedFile| crate::permission::Rule::Write { allow: true, path: file.path.clone(), turn: None };
        assert_eq!(grant, may_be_granted.then(|| assessment.files.iter().map(rule).collect()), "{list}");
    }
}

#[test]
fn patches_of_one_reply_stack() {
    let case = Case::new(&[("a", b"1\n"), ("b", b"1\n")]);
    let case = Case { written: BTreeMap::from([("a".to_owned(), apply::sha256_of(b"1\n"))]), ..case };
    let first = edits(&json!([{"path": "a", "before": "1", "after": "2"}, {"path": "n", "content": "new\n"}]));
    let second = edits(&json!([{"path": "a", "before": "2", "after": "3"}]));
    let third = edits(&json!([{"path": "n", "before": "new", "after": "newer"}, {"path": "b", "delete": true}]));
    let first = assess(&first, &case.world(&first), &Overlay::new()).unwrap();
    let mut overlay = first.after.clone();
    let second = assess(&second, &case.world(&second), &overlay).unwrap();
    assert_eq!(second.files[0].sha256_before, first.files[0].sha256_after);
    assert!(matches!(&second.accesses[0], Access::Write(write) if write.revertible.is_some()));
    overlay.extend(second.after.clone());
    let third_assessment = assess(&third, &case.world(&third), &overlay).unwrap();
    assert_eq!(plan(&third_assessment.files), [("n", Change::Update, true, true), ("b", Change::Delete, true, false)]);
    let Access::Write(write) = &third_assessment.accesses[0] else { panic!("a write") };
    assert_eq!((&write.revertible, write.why.as_str()), (&None, "an earlier patch of the same reply makes it"));
    assert!(is_stacked_on(&second.files, &first.files) && is_stacked_on(&third_assessment.files, &first.files));
    assert!(!is_stacked_on(&third_assessment.files, &second.files));
    overlay.extend(third_assessment.after);
    // Content that an earlier patch left may come from anywhere, and nobody has approved that patch yet.
    let missed = edits(&json!([{"path": "a", "before": "33", "after": "4"}]));
    let refusal = assess(&missed, &case.world(&missed), &overlay).unwrap_err();
    assert_eq!((refusal.code, refusal.detail), ("patch_mismatch", None));
    assert!(refusal.message.contains("may not be shown unasked"), "{}", refusal.message);
    let gone = edits(&json!([{"path": "b", "before": "1", "after": "2"}]));
    assert_eq!(assess(&gone, &case.world(&gone), &overlay).unwrap_err().code, "not_found");
    let inside = edits(&json!([{"path": "n/x", "content": "1"}]));
    assert_eq!(assess(&inside, &case.world(&inside), &overlay).unwrap_err().code, "not_a_folder");
}

#[test]
fn every_violation_is_told_by_its_edit() {
    let case = Case::new(&[("a", b"one\ntwo\n"), ("b", b"1\n")]);
    let refusal = case
        .assess(&edits(&json!([
            {"path": "a", "before": "none", "after": "x"},
            {"path": "b", "content": "x", "delete": true},
            {"path": "b", "before": "1", "after": "2"},
            {"path": "gone", "delete": true},
            {"path": "a", "before": "neither", "after": "x"},
        ])))
        .unwrap_err();
    let lines: Vec<&str> = refusal.message.lines().filter(|line| line.contains("edit ")).collect();
    let begins =
        ["edit 1: `before` does not", "edit 2 (b) has content, delete", "edit 4: there is no", "edit 5: `before`"];
    assert_eq!(lines.len(), begins.len(), "{}", refusal.message);
    for (line, begin) in lines.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line} does not begin with {begin}");
    }
    assert!(refusal.message.contains("(edit 1 on the same file fails, too)"), "{}", refusal.message);
    assert_eq!(refusal.code, "invalid_arguments");
    let one_code = json!([{"path": "a", "before": "none", "after": "x"}, {"path": "b", "before": "2", "after": "x"}]);
    assert_eq!(case.assess(&edits(&one_code)).unwrap_err().code, "patch_mismatch");
    let many: Vec<Value> = (0..30).map(|number| json!({"path": format!("n{number}"), "delete": true})).collect();
    let refusal = case.assess(&edits(&json!(many))).unwrap_err();
    assert!(refusal.message.ends_with("edit 20: there is no file n19\nand 10 more"), "{}", refusal.message);
}

#[test]
fn a_file_in_the_place_of_a_folder_is_told_by_its_edit() {
    let case = Case::new(&[("file", b"1\n")]);
    for (list, expected) in [
        (
            json!([{"path": "ab", "content": "1"}, {"path": "ab/c", "content": "2"}]),
            "edit 2: ab/c would lie in ab, which is a file by then",
        ),
        (json!([{"path": "file/x", "content": "2"}]), "edit 1: `file/x` leads through a file as if it were a folder"),
    ] {
        let refusal = case.assess(&edits(&list)).unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), ("not_a_folder", expected));
    }
}

#[test]
fn text_of_other_encodings_is_not_torn() {
    let wide: Vec<u8> = "\u{feff}alpha beta".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let case = Case::new(&[("wide", &wide), ("latin", b"caf\xe9 one\n"), ("plain", b"x\n")]);
    let refusal = case.assess(&edits(&json!([{"path": "wide", "before": "b", "after": "bb"}]))).unwrap_err();
    assert_eq!(refusal.code, "wrong_encoding");
    assert!(refusal.message.starts_with("edit 1: wide is UTF-16 text"), "{}", refusal.message);
    let outcome = case.run(&edits(&json!([
        {"path": "wide", "content": "alpha\n"},
        {"path": "latin", "before": "one", "after": "\u{e9}"},
        {"path": "plain", "before": "x", "after": "\u{e9}"},
    ])));
    let head: Vec<&str> = outcome.content.lines().take(4).collect();
    let expected = [
        "3 files changed",
        "[wide: it was UTF-16 text, and is UTF-8 now]",
        "[latin: it is not UTF-8, but the new text is, so that it holds two encodings]",
        "",
    ];
    assert_eq!(head, expected);
}

#[test]
fn a_file_that_is_not_read_is_not_taken_for_absent() {
    let case = Case::new(&[("a", b"1\n")]);
    let arguments = edits(&json!([{"path": "a", "content": "2"}]));
    let mut world = case.world(&arguments);
    for state in world.files.values_mut() {
        *state = FileState {
            bytes: None,
            sha256: None,
            mode: 0,
            identity: None,
            links: 0,
            revertible: Err("it is too large".to_owned()),
        };
    }
    assert_eq!(assess(&arguments, &world, &Overlay::new()).unwrap_err().code, "io_error");
}

fn file_named(name: &str) -> Location {
    Location {
        place: Place::Workspace,
        shown: name.to_owned(),
        path: PathBuf::from(name),
        absolute: Path::new("/work").join(name),
        kind: Kind::File,
        secret: false,
        never_writable: None,
        always_asks: false,
    }
}

proptest! {
    /// The reference: lines with ends and bytes of their own, each replaced by itself, whatever the order of the edits
    /// and however their line ends were written.
    #[test]
    fn several_edits_change_their_lines_alone(
        lines in prop::collection::vec((any::<bool>(), any::<bool>(), prop::collection::vec(0x80_u8.., 0..3)), 1..8),
        order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
        asked_with_crlf in any::<bool>(),
        ends_open in any::<bool>(),
        has_mark in any::<bool>(),
    ) {
        let text = |word: &dyn Fn(usize) -> String| {
            let mut text = if has_mark { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
            for (number, (_, crlf, noise)) in lines.iter().enumerate() {
                text.extend_from_slice(noise);
                text.extend_from_slice(word(number).as_bytes());
                if number + 1 < lines.len() || !ends_open {
                    text.extend_from_slice(if *crlf { b"\r\n" } else { b"\n" });
                }
            }
            text
        };
        let is_edited = |number: usize| number < lines.len() && lines[number].0;
        let before = text(&|number| format!("<line {number}>"));
        let expected = text(&|number| format!("<{} {number}>", if is_edited(number) { "changed" } else { "line" }));
        let mut list = Vec::new();
        for number in order.into_iter().filter(|number| is_edited(*number)) {
            let has_end = number + 1 < lines.len() || !ends_open;
            let end = match (has_end, asked_with_crlf) { (false, _) => "", (true, true) => "\r\n", (true, false) => "\n" };
            let path = if number % 2 == 0 { "f" } else { "./f" };
            list.push(json!({
                "path": path, "before": format!("<line {number}>{end}"), "after": format!("<changed {number}>{end}"),
            }));
        }
        prop_assume!(!list.is_empty());
        let mut world = World::default();
        for name in ["f", "./f"] {
            world.locations.insert(name.to_owned(), Ok(file_named("f")));
        }
        let state = FileState {
            sha256: Some(apply::sha256_of(&before)),
            bytes: Some(Arc::from(before)),
            mode: 0o644,
            identity: None,
            links: 1,
            revertible: Ok("git has it".to_owned()),
        };
        world.files.insert(PathBuf::from("/work/f"), state);
        let found = assess(&edits(&json!(list)), &world, &Overlay::new()).expect("the edits fit");
        let left = LeftFile { bytes: Arc::from(expected), executable: false };
        prop_assert_eq!(found.after.get(Path::new("/work/f")), Some(&Some(left)));
    }
}
