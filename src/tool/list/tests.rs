use serde_json::json;

use super::*;
use crate::permission::{Access, ReadAccess};
use crate::session::record::ResultStatus;
use crate::tool::scene::Scene;
use crate::workspace::Place;

fn scene() -> Scene {
    let scene = Scene::new(&[
        (".gitignore", "target/\n*.log\n"),
        (".env", "KEY=1"),
        (".git/config", "x"),
        ("README.md", "hello\n"),
        ("build.log", "x"),
        ("src/main.rs", "fn main() {}\n"),
        ("src/tool/read.rs", "x"),
        ("src/server.pem", "x"),
        ("target/debug/attini", "x"),
        ("../outside/secret.txt", "x"),
    ]);
    scene.link("away", "../outside");
    scene
}

#[track_caller]
fn lists(scene: &Scene, arguments: &Value, expected: &[&str]) {
    let outcome = scene.run(&List::new(), arguments);
    assert_eq!(outcome, Outcome::ok(expected.join("\n")), "{arguments}");
}

#[test]
fn entries_come_sorted_with_kind_and_size() {
    let scene = scene();
    let secret = "[1 file or folder that may hold secrets was skipped]";
    let secrets = "[2 files or folders that may hold secrets were skipped]";
    lists(&scene, &json!({}), &["README.md  6 bytes", "away -> ../outside", "src/", secret]);
    lists(
        &scene,
        &json!({"hidden": true}),
        &[".gitignore  14 bytes", "README.md  6 bytes", "away -> ../outside", "src/", secret],
    );
    lists(
        &scene,
        &json!({"depth": 3}),
        &[
            "README.md  6 bytes",
            "away -> ../outside",
            "src/",
            "src/main.rs  13 bytes",
            "src/tool/",
            "src/tool/read.rs  1 byte",
            secrets,
        ],
    );
    lists(
        &scene,
        &json!({"depth": 9, "glob": "*.rs"}),
        &["src/main.rs  13 bytes", "src/tool/read.rs  1 byte", secrets],
    );
    lists(&scene, &json!({"depth": 9, "glob": "src/*.rs"}), &["src/main.rs  13 bytes", secrets]);
    lists(&scene, &json!({"path": "src", "depth": 9, "glob": "!tool"}), &["src/main.rs  13 bytes", secret]);
    lists(&scene, &json!({"path": "src/tool"}), &["src/tool/read.rs  1 byte"]);
    lists(&scene, &json!({"glob": "*.toml"}), &[".: nothing within 1 level matches *.toml", secret]);
    lists(&scene, &json!({"path": "target/debug"}), &["target/debug/attini  1 byte"]);
    lists(
        &scene,
        &json!({"path": "session:scratchpad"}),
        &["session:scratchpad: no entries, but for hidden ones and what .gitignore leaves out"],
    );
    scene.write(".attini/sessions/main/outputs/call_1.txt", "abc");
    lists(&scene, &json!({"path": "session:outputs"}), &["session:outputs/call_1.txt  3 bytes"]);
}

#[test]
fn what_is_left_out_is_counted() {
    let scene = Scene::new(&[]);
    for number in 0..7 {
        scene.write(&format!("f{number}"), "");
    }
    lists(
        &scene,
        &json!({"max_entries": 2}),
        &["f0  0 bytes", "f1  0 bytes", "[5 more left out; narrow it with path, depth or glob, or raise max_entries]"],
    );
}

#[test]
fn what_is_no_folder_is_said_so() {
    let scene = scene();
    for (path, code, message) in [
        ("README.md", "not_a_folder", "README.md is a file, not a folder; use `read` for it"),
        ("srcs", "not_found", "there is no srcs"),
        ("README.md/x", "not_a_folder", "`README.md/x` leads through a file as if it were a folder"),
    ] {
        let outcome = scene.run(&List::new(), &json!({"path": path}));
        assert_eq!((outcome.code, outcome.content.as_str()), (Some(code), message));
    }
    let missing = scene.run(&List::new(), &json!({"path": "srcs"}));
    assert_eq!(missing.detail.as_deref(), Some("the nearest existing path is src"));
    let glob = scene.run(&List::new(), &json!({"glob": "[a"}));
    assert_eq!(glob.code, Some("invalid_pattern"));
}

#[test]
fn outside_and_secret_folders_are_named_as_such() {
    let scene = scene();
    let access = |path: &str| scene.assess(&List::new(), &json!({"path": path})).map(|assessed| assessed.accesses);
    let outside = ReadAccess { path: scene.path("../outside"), place: Place::Outside, secret: false };
    assert_eq!(access("away"), Ok(vec![Access::Read(outside.clone())]));
    assert_eq!(access("../outside"), Ok(vec![Access::Read(outside)]));
    let inside = ReadAccess { path: scene.path("src"), place: Place::Workspace, secret: false };
    assert_eq!(access("src/tool/.."), Ok(vec![Access::Read(inside)]));
    let own = ReadAccess { path: std::path::PathBuf::new(), place: Place::Session, secret: false };
    assert_eq!(access("session:outputs"), Ok(vec![Access::Read(own)]));
    // Nobody is asked for what is not there, or is no folder.
    let moot =
        |path: &str| scene.assess(&List::new(), &json!({"path": path})).unwrap().moot.map(|moot| moot.refusal().code);
    assert_eq!(moot("../outside/x"), Some("not_found"));
    assert_eq!(moot("../outside/secret.txt"), Some("not_a_folder"));
    assert_eq!((moot("../outside"), moot("src/none")), (None, None));
    // Approved, it is listed by its absolute path.
    let shown = format!("{}/secret.txt  1 byte", scene.path("../outside").display());
    lists(&scene, &json!({"path": "away"}), &[&shown]);
}

#[test]
fn a_folder_that_became_a_link_is_stale() {
    let scene = scene();
    let arguments = json!({"path": "src/tool"});
    let world = scene.look(&List::new(), &arguments);
    scene.swap("src", "../outside");
    scene.write("../outside/tool/hidden.txt", "x");
    let outcome = scene.run_on(&List::new(), &arguments, &world);
    assert_eq!(outcome.code, Some("stale"), "{}", outcome.content);
    assert!(!outcome.content.contains("hidden"));
}

#[test]
fn an_interrupt_ends_it() {
    let scene = scene();
    scene.interrupt.raise(crate::interrupt::Cause::TimeLimit);
    assert_eq!(scene.run(&List::new(), &json!({})).status, ResultStatus::Cancelled);
}

#[test]
fn the_schema_refuses_unknown_arguments_and_gives_defaults() {
    let list = List::new();
    let schema = list.parameters();
    assert_eq!(schema["additionalProperties"], json!(false));
    assert_eq!(schema["properties"]["path"]["default"], json!("."));
    assert_eq!(schema["properties"]["max_entries"]["maximum"], json!(10_000));
    assert_eq!(schema.get("required"), None);
}
