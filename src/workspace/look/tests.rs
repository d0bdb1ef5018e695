use std::process::Command;

use super::*;
use crate::tool::scene::Scene;

fn git(scene: &Scene, arguments: &[&str]) {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(scene.path(""))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn each_file_is_looked_at_once_and_judged() {
    let mut scene = Scene::new(&[
        ("tracked", "old\n"),
        ("changed", "old\n"),
        ("ours", "by attini\n"),
        ("ours_changed", "by a person\n"),
        ("../outside/x", "x"),
    ]);
    git(&scene, &["init", "-q"]);
    git(&scene, &["add", "tracked", "changed"]);
    scene.write("changed", "new\n");
    scene.link("alias", "tracked");
    scene.written.insert("ours".to_owned(), sha256_hex(b"by attini\n"));
    scene.written.insert("ours_changed".to_owned(), sha256_hex(b"by attini\n"));
    let mut world = World::default();
    let written = [
        "tracked",
        "alias",
        "changed",
        "ours",
        "ours_changed",
        "new",
        "../outside/x",
        "session:scratchpad/n",
        ".",
        "\0",
    ];
    gather(&written, &scene.surroundings(), &mut world);
    let cases: [(&str, Option<&str>, Result<&str, &str>); 7] = [
        ("tracked", Some("old\n"), Ok("git has these bytes")),
        ("changed", Some("new\n"), Err("its bytes differ from those in git's index")),
        ("ours", Some("by attini\n"), Ok("attini wrote these bytes earlier in this session")),
        ("ours_changed", Some("by a person\n"), Err("it is not tracked by git")),
        ("new", None, Err("there is no such file yet")),
        ("../outside/x", Some("x"), Err("it is outside the workspace")),
        (".attini/sessions/main/scratchpad/n", None, Err("there is no such file yet")),
    ];
    for (path, text, revertible) in &cases {
        let state = &world.files[&scene.path(path)];
        assert_eq!(state.bytes.as_deref(), text.map(str::as_bytes), "{path}");
        assert_eq!(state.sha256, text.map(|text| sha256_hex(text.as_bytes())), "{path}");
        assert_eq!(state.revertible.as_ref().map(String::as_str).map_err(String::as_str), *revertible, "{path}");
    }
    assert_eq!(world.files.len(), cases.len());
    assert_eq!(world.locations.len(), written.len());
    assert_eq!(world.locations["alias"].as_ref().unwrap().shown, "tracked");
    assert_eq!(world.locations["."].as_ref().unwrap().kind, Kind::Folder);
    assert_eq!(world.locations["\0"].as_ref().unwrap_err().code, "invalid_arguments");

    let location = scene.workspace.locate("tracked", None).unwrap();
    let state = look_at_file(&location, &scene.surroundings()).unwrap();
    assert_eq!(&state, &world.files[&scene.path("tracked")]);
}

#[test]
fn facts_that_are_gathered_stay_and_what_changed_is_refused() {
    let scene = Scene::new(&[("a/x", "1"), ("../outside/x", "2")]);
    let mut world = World::default();
    gather(&["a/x"], &scene.surroundings(), &mut world);
    scene.write("a/x", "3");
    gather(&["a/x", "a/../a/x"], &scene.surroundings(), &mut world);
    assert_eq!(world.files[&scene.path("a/x")].bytes.as_deref(), Some(b"1".as_slice()));

    let mut world = World::default();
    let located = scene.workspace.locate("a/x", None);
    world.locations.insert("a/x".to_owned(), located);
    scene.swap("a", "../outside");
    gather(&["a/x"], &scene.surroundings(), &mut world);
    assert_eq!(world.locations["a/x"].as_ref().unwrap_err().code, "stale");
    assert!(world.files.is_empty());
}

#[test]
fn a_file_beyond_the_limit_is_refused() {
    let scene = Scene::new(&[("large", "")]);
    fs_err::OpenOptions::new().write(true).open(scene.path("large")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
    let mut world = World::default();
    gather(&["large"], &scene.surroundings(), &mut world);
    assert_eq!(world.locations["large"].as_ref().unwrap_err().code, "too_large");
}
