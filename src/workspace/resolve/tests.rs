use super::*;
use crate::tool::scene::Scene;

fn scene() -> Scene {
    let scene = Scene::new(&[("src/main.rs", "x"), ("docs/guide.md", "x"), ("../outside/x", "x")]);
    scene.link("to_outside", "../outside");
    scene.link("to_docs", "docs");
    scene.link("src/up", "..");
    scene.link("dangling", "docs/new/deep");
    scene.link("dangling_out", "../outside/new");
    scene.link("circle_a", "circle_b");
    scene.link("circle_b", "circle_a");
    scene.link("itself", "itself/x");
    scene
}

#[test]
fn a_path_is_judged_by_where_it_leads() {
    use Kind::{Absent, File, Folder};
    use Place::{Outside, Workspace};
    let scene = scene();
    let inside = scene.path("src/main.rs");
    let inside = inside.to_str().unwrap();
    let cases = [
        (".", Workspace, ".", Folder),
        ("src/..", Workspace, ".", Folder),
        ("src/main.rs", Workspace, "src/main.rs", File),
        ("./src//./main.rs", Workspace, "src/main.rs", File),
        (inside, Workspace, "src/main.rs", File),
        ("../work/src/main.rs", Workspace, "src/main.rs", File),
        ("..", Outside, "../", Folder),
        ("../outside/x", Outside, "../outside/x", File),
        ("src/../../outside/x", Outside, "../outside/x", File),
        ("to_outside", Outside, "../outside", Folder),
        ("to_outside/x", Outside, "../outside/x", File),
        ("to_outside/new/deep", Outside, "../outside/new/deep", Absent),
        // `..` behind a link is the folder above its target, as the kernel has it.
        ("to_outside/../work/docs", Workspace, "docs", Folder),
        ("to_outside/../outside/y", Outside, "../outside/y", Absent),
        ("to_docs/guide.md", Workspace, "docs/guide.md", File),
        ("to_docs/new.md", Workspace, "docs/new.md", Absent),
        ("src/up/docs", Workspace, "docs", Folder),
        ("src/up/../outside", Outside, "../outside", Folder),
        ("dangling", Workspace, "docs/new/deep", Absent),
        ("dangling/er", Workspace, "docs/new/deep/er", Absent),
        ("dangling_out", Outside, "../outside/new", Absent),
        ("new/folder/file", Workspace, "new/folder/file", Absent),
        ("new/../to_outside/x", Outside, "../outside/x", File),
        ("new/../../outside", Outside, "../outside", Folder),
    ];
    for (written, place, path, kind) in cases {
        let location = scene.workspace.locate(written, Some(&scene.session)).unwrap();
        let absolute = if path == "." { scene.path("") } else { scene.path(path) };
        assert_eq!((location.place, location.kind), (place, kind), "{written}");
        assert_eq!(location.absolute, absolute.components().collect::<PathBuf>(), "{written}");
        let shown = if place == Workspace { PathBuf::from(path) } else { location.absolute.clone() };
        assert_eq!(Path::new(&location.shown), shown, "{written}");
        // What was found can be opened where it was found, without a link on the way.
        let (root, path) = scene.workspace.root_for(&location, Some(&scene.session)).unwrap();
        assert_eq!(root.metadata(&path).is_ok(), kind != Absent, "{written}");
    }
}

#[test]
fn what_leads_nowhere_is_refused() {
    let scene = scene();
    let long = "a/".repeat(PATH_BYTES_MAX);
    let long_name = "a".repeat(300);
    std::os::unix::fs::symlink(
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"caf\xe9"),
        scene.path("latin"),
    )
    .unwrap();
    for (written, code) in [
        ("", "invalid_arguments"),
        ("a\0b", "invalid_arguments"),
        (long.as_str(), "invalid_arguments"),
        (long_name.as_str(), "invalid_arguments"),
        ("circle_a", "link_loop"),
        ("circle_a/x", "link_loop"),
        ("itself", "link_loop"),
        ("src/main.rs/x", "not_a_folder"),
        ("latin", "invalid_arguments"),
    ] {
        let refusal = scene.workspace.locate(written, None).unwrap_err();
        assert_eq!(refusal.code, code, "{written:.40}: {}", refusal.message);
    }
}

#[test]
fn of_the_session_only_what_is_the_models_is_reachable() {
    let scene = scene();
    scene.write(".attini/sessions/main/outputs/call_1.txt", "x");
    scene.write(".attini/sessions/main/pending.json", "{}");
    scene.link(".attini/sessions/main/outputs/link", "../pending.json");
    scene.link(".attini/sessions/main/tasks/folder", "..");
    let locate = |written| scene.workspace.locate(written, Some(&scene.session));
    for (written, shown, kind, writable) in [
        ("session:outputs", "session:outputs", Kind::Folder, false),
        ("session:outputs/call_1.txt", "session:outputs/call_1.txt", Kind::File, false),
        ("session:./outputs//call_1.txt", "session:outputs/call_1.txt", Kind::File, false),
        ("session:conversation.jsonl", "session:conversation.jsonl", Kind::File, false),
        ("session:scratchpad/notes/a.md", "session:scratchpad/notes/a.md", Kind::Absent, true),
        ("session:scratchpad/.git/config", "session:scratchpad/.git/config", Kind::Absent, false),
    ] {
        let location = locate(written).unwrap();
        assert_eq!((location.place, location.kind), (Place::Session, kind), "{written}");
        assert_eq!(location.shown, shown);
        assert_eq!(location.never_writable.is_none(), writable, "{written}");
        let (root, path) = scene.workspace.root_for(&location, Some(&scene.session)).unwrap();
        assert_eq!(root.metadata(&path).is_ok(), kind != Kind::Absent, "{written}");
    }
    for written in [
        "session:",
        "session:.",
        "session:pending.json",
        "session:lock",
        "session:permissions.jsonl",
        "session:conversation.jsonl/x",
        "session:before/1",
        "session:../other",
        "session:outputs/../pending.json",
        "session:/etc/passwd",
        "session:outputs/link",
        "session:tasks/folder/pending.json",
    ] {
        assert_eq!(locate(written).unwrap_err().code, "outside_reach", "{written}");
    }
    assert_eq!(scene.workspace.locate("session:outputs", None).unwrap_err().code, "not_found");
}

#[test]
fn some_folders_are_never_written_to() {
    let scene = scene();
    scene.write(".git/config", "x");
    scene.write("sub/.GIT/config", "x");
    scene.write("real/hooks/x", "x");
    scene.link("linked/.git", "../real");
    for (written, writable) in [
        ("src/main.rs", true),
        (".gitignore", true),
        (".github/x", true),
        ("git/config", true),
        (".git", false),
        (".git/hooks/pre-commit", false),
        (".GIT/config", false),
        ("sub/.Git/config", false),
        ("new/.git/config", false),
        (".attini/config.toml", false),
        (".ATTINI/x", false),
        ("sub/.attini/x", false),
        ("src/up/.git/config", false),
        ("linked/.git/config", false),
        ("linked/.git/../hooks", false),
        ("../outside/.git/config", false),
        ("../outside/y", true),
        (".attini/sessions/main/scratchpad/notes.md", true),
        (".attini/sessions/main/scratchpad/.git/config", false),
        (".attini/sessions/main/conversation.jsonl", false),
        (".attini/sessions/other/scratchpad/notes.md", false),
    ] {
        let location = scene.workspace.locate(written, Some(&scene.session)).unwrap();
        assert_eq!(location.never_writable.is_none(), writable, "{written}: {:?}", location.never_writable);
    }
    let location = scene.workspace.locate(".attini/sessions/main/scratchpad/notes.md", None).unwrap();
    assert!(location.never_writable.is_some());
}

#[test]
fn attinis_own_places_are_never_written_to_under_any_name() {
    let mut scene = scene();
    for path in ["dots/permissions.jsonl", "dots/other", "state/sessions/main/scratchpad/x", "conf/attini/config.toml"]
    {
        scene.write(path, "x");
    }
    scene.link("linked_dots", "dots");
    scene.link("conf/attini/permissions.jsonl", "../../dots/permissions.jsonl");
    std::fs::hard_link(scene.path("conf/attini/config.toml"), scene.path("second_name")).unwrap();
    let places = [
        scene.path("conf/attini/config.toml"),
        scene.path("conf/attini/permissions.jsonl"),
        scene.path("linked_dots/trust.json"),
        scene.path("state"),
    ];
    scene.workspace.own_places = super::super::own_places::OwnPlaces::new(places);
    for (written, writable) in [
        ("conf/attini/config.toml", false),
        ("conf/attini/../attini/config.toml", false),
        ("conf/Attini/CONFIG.toml", false),
        ("second_name", false),
        ("conf/attini/permissions.jsonl", false),
        ("dots/permissions.jsonl", false),
        ("linked_dots/permissions.jsonl", false),
        ("dots/trust.json", false),
        ("src/up/linked_dots/trust.json", false),
        ("state", false),
        ("state/sessions/main/permissions.jsonl", false),
        ("state/sessions/new/permissions.jsonl", false),
        ("dots/other", true),
        ("conf/attini/readme", true),
        ("state_machine.rs", true),
        ("src/main.rs", true),
    ] {
        let location = scene.workspace.locate(written, Some(&scene.session)).unwrap();
        let expected = (!writable).then_some("it lies where attini keeps its own files");
        assert_eq!(location.never_writable.as_deref(), expected, "{written}");
    }
}

#[test]
fn the_folder_that_a_git_file_points_to_is_never_written_to() {
    let scene = scene();
    scene.write("../store/worktrees/w/commondir", "../..\n");
    scene.write("../store/config", "x");
    scene.write(".git", "gitdir: ../store/worktrees/w\n");
    scene.write("module/.git", "gitdir: data\n");
    scene.link("tempting", "../store");
    for (written, writable) in [
        ("../store/worktrees/w/HEAD", false),
        ("../store/config", false),
        ("../store/hooks/pre-commit", false),
        ("tempting/hooks/pre-commit", false),
        ("../storehouse", true),
        ("module/data/hooks/x", false),
        ("module/database", true),
        ("src/main.rs", true),
    ] {
        let location = scene.workspace.locate(written, None).unwrap();
        assert_eq!(location.never_writable.is_none(), writable, "{written}: {:?}", location.never_writable);
    }
}

/// A folder that git takes for a repository's own.
fn make_git_directory(scene: &Scene, path: &str) {
    scene.write(&format!("{path}/HEAD"), "ref: refs/heads/main\n");
    for name in ["objects", "refs", "hooks"] {
        fs_err::create_dir_all(scene.path(path).join(name)).unwrap();
    }
}

#[test]
fn a_git_directory_is_told_by_its_shape() {
    let scene = scene();
    for path in ["meta/g", "bare.git", "../outside/bare", ".attini/sessions/main/scratchpad/g"] {
        make_git_directory(&scene, path);
    }
    // A linked work tree in a bare repository, as some people lay them out.
    make_git_directory(&scene, "layout");
    scene.write("layout/worktrees/main/HEAD", "ref: refs/heads/main\n");
    scene.write("layout/worktrees/main/commondir", "../..\n");
    scene.write("layout/main/.git", "gitdir: ../worktrees/main\n");
    scene.write("lone/HEAD", "ref: refs/heads/main\n");
    scene.write("lone/commondir", "../meta/g\n");
    // What has some of the names alone.
    scene.write("almost/HEAD", "x");
    scene.write("almost/refs/x", "x");
    scene.write("files/HEAD", "x");
    scene.write("files/refs", "x");
    scene.write("files/objects", "x");
    scene.write("odd/.git", "gitdir: nowhere\n");
    make_git_directory(&scene, "odd2");
    scene.write("odd2/hooks/.git", "gitdir: nowhere\n");
    scene.link("to_hooks", "meta/g/hooks");
    for (written, writable) in [
        ("meta/g/hooks/pre-commit", false),
        ("meta/g/config", false),
        ("meta/g/new/deep/er", false),
        ("meta/x", true),
        ("meta/g2", true),
        ("to_hooks/pre-commit", false),
        ("bare.git/hooks/update", false),
        ("../outside/bare/hooks/update", false),
        ("../outside/x", true),
        ("layout/config", false),
        ("layout/hooks/update", false),
        ("layout/worktrees/main/HEAD", false),
        ("layout/main/src/x", true),
        ("lone/config", false),
        ("almost/x", true),
        ("files/x", true),
        ("odd/x", true),
        ("odd2/hooks/x", false),
        ("session:scratchpad/g/config", false),
        ("session:scratchpad/notes", true),
        (".attini/sessions/main/scratchpad/g/config", false),
    ] {
        let location = scene.workspace.locate(written, Some(&scene.session)).unwrap();
        assert_eq!(location.never_writable.is_none(), writable, "{written}: {:?}", location.never_writable);
    }
}

#[test]
fn a_workspace_in_a_bare_repository_is_an_ordinary_one() {
    let scene = scene();
    make_git_directory(&scene, "layout");
    scene.write("layout/worktrees/main/HEAD", "ref: refs/heads/main\n");
    scene.write("layout/worktrees/main/commondir", "../..\n");
    scene.write("layout/main/.git", "gitdir: ../worktrees/main\n");
    let workspace = Workspace::open(&scene.path("layout/main")).unwrap();
    for (written, writable) in [("src/x", true), ("../hooks/update", false), ("../worktrees/main/HEAD", false)] {
        let location = workspace.locate(written, None).unwrap();
        assert_eq!(location.never_writable.is_none(), writable, "{written}: {:?}", location.never_writable);
    }
    // One that is nothing but a repository's own folder, or lies in its depths, is none.
    for path in ["layout", "layout/hooks"] {
        let workspace = Workspace::open(&scene.path(path)).unwrap();
        assert!(workspace.locate("x", None).unwrap().never_writable.is_some(), "{path}");
    }
}

#[test]
fn names_say_what_asks() {
    let scene = scene();
    scene.write("config/.env.production", "x");
    scene.link("plain", "config/.env.production");
    scene.link(".netrc", "docs/guide.md");
    scene.link("attributes", "docs/.gitattributes");
    for (written, secret, asks) in [
        ("plain", true, false),
        (".netrc", true, false),
        ("../outside/id_rsa", true, false),
        ("src/main.rs", false, false),
        (".GitAttributes", false, true),
        ("docs/.gitmodules", false, true),
        (".envrc", true, true),
        ("attributes", false, true),
        (".gitignore", false, false),
    ] {
        let location = scene.workspace.locate(written, None).unwrap();
        assert_eq!((location.secret, location.always_asks), (secret, asks), "{written}");
    }
}
