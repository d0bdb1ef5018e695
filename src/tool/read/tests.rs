use serde_json::json;

use super::*;
use crate::permission::{Access, ReadAccess};
use crate::session::record::ResultStatus;
use crate::tool::Preview;
use crate::tool::scene::Scene;
use crate::workspace::Place;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n0123";

#[track_caller]
fn reads(scene: &Scene, arguments: &Value, expected: &str) {
    assert_eq!(scene.run(&Read::new(), arguments), Outcome::ok(expected), "{arguments}");
}

#[test]
fn text_is_numbered_and_the_rest_is_named() {
    let scene = Scene::new(&[("src/a.rs", "one\ntwo\nthree\n"), ("empty", "")]);
    reads(&scene, &json!({"path": "src/a.rs"}), "src/a.rs: 3 lines\n1\tone\n2\ttwo\n3\tthree");
    reads(
        &scene,
        &json!({"path": "./src/../src/a.rs", "start_line": 2, "end_line": 2}),
        "src/a.rs: 3 lines, 2-2 shown\n2\ttwo",
    );
    reads(&scene, &json!({"path": "empty"}), "empty: the file is empty");
    reads(&scene, &json!({"path": "session:conversation.jsonl"}), "session:conversation.jsonl: 1 line\n1\t{}");
    scene.write("blob", b"ab\0c");
    reads(&scene, &json!({"path": "blob"}), "blob: a binary file, 4 bytes; it is not shown as text");
}

#[test]
fn a_file_of_any_size_shows_what_fits_a_result() {
    let mut scene = Scene::new(&[]);
    scene.limits.result_bytes = 4096;
    let mut text = (1..=200_000).map(|number| format!("line {number}")).collect::<Vec<_>>().join("\n");
    text.push('\n');
    scene.write("long", &text);
    let outcome = scene.run(&Read::new(), &json!({"path": "long"}));
    assert!(outcome.content.len() <= 4096, "{}", outcome.content.len());
    assert!(outcome.content.starts_with("long: 200000 lines, 1-"), "{}", outcome.content);
    let next = outcome.content.rsplit_once("go on with start_line ").unwrap().1.trim_end_matches(']');
    let next: u64 = next.parse().unwrap();
    let rest = scene.run(&Read::new(), &json!({"path": "long", "start_line": next}));
    assert!(rest.content.contains(&format!("\n{next}\tline {next}\n")), "{}", rest.content);
    assert!(outcome.content.contains(&format!("\n{}\tline {}\n", next - 1, next - 1)));
}

#[test]
fn what_cannot_be_read_is_said_so() {
    let scene = Scene::new(&[("src/main.rs", "a\n")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scene.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    for (arguments, code, message) in [
        (json!({"path": "src"}), "not_a_file", "src is a folder; use `list` for it"),
        (json!({"path": "pipe"}), "not_a_file", "pipe is a device, socket or pipe"),
        (json!({"path": "main.rs"}), "not_found", "there is no main.rs"),
        (json!({"path": ""}), "invalid_arguments", "the path is empty; the workspace itself is `.`"),
        (
            json!({"path": "src/main.rs", "start_line": 3}),
            "invalid_arguments",
            "start_line 3 is beyond the end: src/main.rs has 1 line",
        ),
        (
            json!({"path": "src/main.rs", "start_line": 3, "end_line": 2}),
            "invalid_arguments",
            "end_line 2 is before start_line 3",
        ),
    ] {
        let outcome = scene.run(&Read::new(), &arguments);
        assert_eq!((outcome.code, outcome.content.as_str()), (Some(code), message));
        assert_eq!(outcome.status, ResultStatus::Error);
    }
    let missing = scene.run(&Read::new(), &json!({"path": "main.rs"}));
    assert_eq!(missing.detail.as_deref(), Some("the nearest existing path is src/main.rs"));
}

#[test]
fn images_are_attached_where_there_is_a_session() {
    let scene = Scene::new(&[]);
    scene.write("logo", PNG);
    let outcome = scene.run(&Read::new(), &json!({"path": "logo"}));
    assert_eq!(outcome.content, "logo: image/png, 12 bytes, attached");
    let attachment = Attachment { media_type: "image/png".to_owned(), file: "outputs/call_1.png".to_owned() };
    assert_eq!(outcome.attachments, [attachment]);
    assert_eq!(fs_err::read(scene.session.root.path().join("outputs/call_1.png")).unwrap(), PNG);

    let mut large = PNG.to_vec();
    large.resize(usize::try_from(IMAGE_BYTES_MAX).unwrap() + 1, 7);
    scene.write("large", large);
    let outcome = scene.run(&Read::new(), &json!({"path": "large"}));
    assert_eq!(outcome.content, "large: image/png, larger than the 5242880 bytes that can be attached");
    assert_eq!(outcome.attachments, []);
}

#[test]
fn outside_and_secrets_are_named_as_such() {
    let scene = Scene::new(&[(".env", "KEY=1"), ("../outside/x", "x"), ("a", "a")]);
    scene.link("innocent.txt", ".env");
    scene.link("out.txt", "../outside/x");
    let read = Read::new();
    let cases = [
        ("a", "a", Place::Workspace, false, "it lies in the workspace"),
        (".env", ".env", Place::Workspace, true, "it is named like a file that holds secrets"),
        ("innocent.txt", ".env", Place::Workspace, true, "it is named like a file that holds secrets"),
        ("out.txt", "../outside/x", Place::Outside, false, "it is outside the workspace"),
        ("../outside/x", "../outside/x", Place::Outside, false, "it is outside the workspace"),
    ];
    for (written, leads_to, place, secret, why) in cases {
        let assessed = scene.assess(&read, &json!({"path": written})).unwrap();
        let access = ReadAccess { path: scene.path(leads_to), place, secret };
        assert_eq!(assessed.accesses, [Access::Read(access)], "{written}");
        assert!(matches!(&assessed.preview, Preview::Read { why: said, .. } if said == why), "{written}");
    }
    let moot = |path: &str| scene.assess(&read, &json!({"path": path})).unwrap().moot.map(|moot| moot.refusal().code);
    assert_eq!(moot("../outside/none"), Some("not_found"));
    assert_eq!(moot(".env.none"), Some("not_found"));
    assert_eq!(moot("none"), None, "a call before it may still make it");
    // A patch before it in the same reply makes the file.
    let arguments = json!({"path": ".env.none"});
    let left = crate::tool::LeftFile { bytes: b"x".as_slice().into(), executable: false };
    let overlay = Overlay::from([(scene.path(".env.none"), Some(left))]);
    assert!(read.assess(&arguments, &scene.look(&read, &arguments), &overlay).is_ok());
}

#[test]
fn what_was_judged_is_what_is_read() {
    let scene = Scene::new(&[("src/deep/a", "inside\n"), ("b", "inside\n"), ("../outside/deep/a", "outside\n")]);
    let read = Read::new();
    let folder = json!({"path": "src/deep/a"});
    let file = json!({"path": "b"});
    let later = json!({"path": "later"});
    let worlds = [scene.look(&read, &folder), scene.look(&read, &file), scene.look(&read, &later)];
    scene.swap("src", "../outside");
    fs_err::remove_file(scene.path("b")).unwrap();
    scene.link("b", "../outside/deep/a");
    scene.write("later", "made since\n");
    for (arguments, world) in [(&folder, &worlds[0]), (&file, &worlds[1])] {
        let outcome = scene.run_on(&read, arguments, world);
        assert_eq!(outcome.code, Some("stale"), "{arguments}: {}", outcome.content);
        assert!(!outcome.content.contains("outside"));
    }
    assert_eq!(scene.run_on(&read, &later, &worlds[2]), Outcome::ok("later: 1 line\n1\tmade since"));
    fs_err::remove_file(scene.path("b")).unwrap();
    fs_err::create_dir(scene.path("b")).unwrap();
    assert_eq!(scene.run_on(&read, &file, &worlds[1]).code, Some("stale"));
}

#[test]
fn a_key_is_masked_before_its_line_is_cut() {
    crate::mask::register("TEST_READ_KEY", "sk-read-0123456789");
    let scene = Scene::new(&[]);
    for before in super::lines::LINE_BYTES_MAX - 25..super::lines::LINE_BYTES_MAX {
        scene.write("f", format!("{}sk-read-0123456789\nsecond\n", "x".repeat(before)));
        let outcome = scene.run(&Read::new(), &json!({"path": "f"}));
        assert!(!outcome.content.contains("sk-"), "{before}");
    }
    // At the border of what is read at a time.
    scene.write("f", format!("{}\nsk-read-0123456789\n", "x".repeat(CHUNK_BYTES - 10)));
    let outcome = scene.run(&Read::new(), &json!({"path": "f", "start_line": 2}));
    assert_eq!(outcome.content, "f: 2 lines, 2-2 shown\n2\t[TEST_READ_KEY masked]");
}

#[test]
fn numbers_that_no_argument_holds_are_refused_by_their_places() {
    let schema = crate::call::validation::Schema::compile(Read::new().parameters()).unwrap();
    for number in [json!(1e23), json!(18_446_744_073_709_551_616.0), json!(u64::MAX)] {
        let arguments = json!({"path": "a", "start_line": number, "end_line": number});
        let violations = schema.check_violations(&arguments);
        let mut places: Vec<&str> = violations.iter().filter_map(|one| one.split(':').next()).collect();
        places.sort_unstable();
        assert_eq!(places, ["`end_line`", "`start_line`"], "{violations:?}");
    }
    let largest = json!({"path": "a", "start_line": (1_u64 << 53) - 1});
    assert!(schema.check_violations(&largest).is_empty() && target::arguments::<Arguments>(&largest).is_ok());
}
