//! What a run does to the files, whatever comes between, and what is left of one that was killed.

use super::*;

#[test]
fn modes_and_links_are_kept() {
    let case = Case::new(&[("tool.sh", b"#!/bin/sh\nexit 1\n"), ("d/real", b"1\n")]);
    fs_err::set_permissions(case.path("tool.sh"), Permissions::from_mode(0o751)).unwrap();
    symlink("d/real", case.path("link")).unwrap();
    let arguments = edits(&json!([
        {"path": "tool.sh", "before": "exit 1", "after": "exit 0"},
        {"path": "tool.sh", "move_to": "bin/tool"},
        {"path": "link", "before": "1", "after": "2"},
        {"path": "d/real", "before": "2", "after": "3"},
        {"path": "plain", "content": "x"},
    ]));
    let assessment = case.assess(&arguments).unwrap();
    assert_eq!(assessment.summary, "tool.sh, bin/tool, d/real, plain");
    assert_eq!(case.run(&arguments).status, ResultStatus::Ok);
    let mode = |path: &str| case.path(path).metadata().unwrap().mode() & 0o7777;
    assert_eq!(mode("bin/tool"), 0o751);
    fs_err::write(case.path("reference"), "").unwrap();
    assert_eq!(mode("plain"), mode("reference"), "as the umask says");
    assert!(case.path("link").is_symlink());
    assert_eq!(case.read("d/real").unwrap(), b"3\n");
}

#[test]
fn names_of_one_file_are_known() {
    let case = Case::new(&[("a", b"1\n2\n"), ("c", b"x\n")]);
    fs_err::hard_link(case.path("a"), case.path("b")).unwrap();
    let both = edits(&json!([
        {"path": "a", "before": "1", "after": "one"},
        {"path": "b", "before": "2", "after": "two"},
    ]));
    let refusal = case.assess(&both).unwrap_err();
    assert_eq!(refusal.message, "edit 2: b and a are two names of one file; edit it by one of them");
    let note = "a: it is one of 2 names of a file (hard links); the others keep what it held";
    let one = edits(&json!([{"path": "a", "before": "1", "after": "one"}, {"path": "c", "content": "y\n"}]));
    let Preview::Patch { why, .. } = case.assess(&one).unwrap().preview else { panic!("it is a patch") };
    assert!(why.ends_with(note), "{why}");
    let outcome = case.run(&one);
    assert!(outcome.content.starts_with(&format!("2 files changed\n[{note}]\n\n")), "{}", outcome.content);
    assert_eq!((case.read("a").unwrap(), case.read("b").unwrap()), (b"one\n2\n".to_vec(), b"1\n2\n".to_vec()));
    // They are two files now.
    assert_eq!(case.run(&edits(&json!([{"path": "a", "content": "p"}, {"path": "b", "content": "q"}]))).code, None);
}

#[test]
fn extended_attributes_are_kept() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let case = Case::new(&[("a", b"1\n"), ("b", b"1\n")]);
    let mut value = [0; 64];
    // Version 2, then the owner, user 7, the group, the mask and the others.
    let list: Vec<u8> = [(1, 6, u32::MAX), (2, 0, 7), (4, 4, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)]
        .iter()
        .flat_map(|(tag, rights, number): &(u16, u16, u32)| {
            [tag.to_le_bytes().as_slice(), &rights.to_le_bytes(), &number.to_le_bytes()].concat()
        })
        .collect();
    let wanted = [
        ("system.posix_acl_access", [2_u32.to_le_bytes().as_slice(), &list].concat()),
        ("user.note", b"kept".to_vec()),
    ];
    for (name, value) in &wanted {
        for file in ["a", "b"] {
            if setxattr(case.path(file), *name, value, XattrFlags::empty()) == Err(rustix::io::Errno::OPNOTSUPP) {
                return;
            }
        }
    }
    let arguments = edits(&json!([{"path": "a", "before": "1", "after": "2"}, {"path": "b", "move_to": "d/c"}]));
    assert_eq!(case.run(&arguments).status, ResultStatus::Ok);
    for file in ["a", "d/c"] {
        for (name, expected) in &wanted {
            let length = getxattr(case.path(file), *name, value.as_mut_slice()).unwrap();
            assert_eq!(&value[..length], expected, "{file} {name}");
        }
    }
}

#[test]
fn what_changed_since_is_stale() {
    type Change = fn(&Case);
    let cases: [(&str, Change); 6] = [
        ("edited", |case| fs_err::write(case.path("b"), "other\n").unwrap()),
        ("removed", |case| fs_err::remove_file(case.path("b")).unwrap()),
        ("taken by a folder", |case| {
            fs_err::remove_file(case.path("b")).unwrap();
            fs_err::create_dir(case.path("b")).unwrap();
        }),
        ("taken by a link to the same content", |case| {
            fs_err::rename(case.path("b"), case.path("c")).unwrap();
            symlink("c", case.path("b")).unwrap();
        }),
        ("a new file that came to be", |case| fs_err::write(case.path("new"), "theirs").unwrap()),
        ("an unrelated part of it", |case| fs_err::write(case.path("a"), "1\nmore\n").unwrap()),
    ];
    for (name, change) in cases {
        let case = Case::new(&[("a", b"1\n"), ("b", b"1\n")]);
        let arguments = edits(&json!([
            {"path": "a", "before": "1", "after": "2"},
            {"path": "b", "before": "1", "after": "2"},
            {"path": "new", "content": "x"},
        ]));
        let files = case.assess(&arguments).unwrap().files;
        change(&case);
        let before = case.tree();
        let outcome = case.run_as(&arguments, &files);
        assert_eq!((outcome.status, outcome.code), (ResultStatus::Error, Some("stale")), "{name}: {}", outcome.content);
        assert_eq!(case.tree(), before, "{name}");
        assert!(case.session.root.entries(Path::new("before")).is_err(), "{name}: nothing was kept");
    }
    let case = Case::new(&[("a", b"1\n")]);
    let outcome = case.run_as(&edits(&json!([{"path": "a", "content": "2"}])), &[]);
    assert_eq!(outcome.code, Some("stale"), "what nobody was shown is not written");
}

#[test]
fn what_files_held_is_kept_for_undo() {
    let case = Case::new(&[("a", b"\xff\r\n1"), ("b", b"gone\n")]);
    fs_err::set_permissions(case.path("a"), Permissions::from_mode(0o755)).unwrap();
    let arguments = edits(&json!([
        {"path": "a", "before": "1", "after": "2"}, {"path": "n", "content": "new"}, {"path": "b", "delete": true},
    ]));
    let files = case.assess(&arguments).unwrap().files;
    assert_eq!(case.run(&arguments).status, ResultStatus::Ok);
    assert_eq!(case.session.root.entries(Path::new("before")).unwrap(), ["call_1.0", "call_1.2", "call_1.json"]);
    let mode = case.session.root.metadata(Path::new("before/call_1.0")).unwrap().st_mode & 0o777;
    assert_eq!(mode, 0o600);
    let images = before::load(&case.session, "call_1").unwrap().unwrap();
    let found: Vec<_> = images.iter().map(|image| (image.mode, image.bytes.as_deref())).collect();
    assert_eq!(found[..2], [(Some(0o755), Some(&b"\xff\r\n1"[..])), (None, None)]);
    assert_eq!(images.iter().map(|image| image.planned.clone()).collect::<Vec<_>>(), files);
    // Put back, everything is as it was.
    let put_back = |image: &before::Image| FileWrite {
        path: image.planned.path.clone(),
        before: case.read(&image.planned.path).map(Arc::from),
        after: image.bytes.clone(),
        attributes: image.mode.map(write::Attributes::of_mode),
    };
    let writes: Vec<FileWrite> = images.iter().map(put_back).collect();
    write::write_all(&Places::open(&case.workspace).unwrap(), &writes).unwrap();
    assert_eq!(
        case.tree(),
        BTreeMap::from([("a".to_owned(), b"\xff\r\n1".to_vec()), ("b".to_owned(), b"gone\n".to_vec())])
    );
    assert_eq!(before::load(&case.session, "call_9").unwrap().map(|images| images.len()), None);
    case.session.root.replace(Path::new("before/call_1.0"), b"else", 0o600).unwrap();
    assert!(before::load(&case.session, "call_1").unwrap_err().to_string().contains("the image of a"));
}

#[test]
fn no_image_no_change() {
    let case = Case::new(&[("a", b"1\n")]);
    // The folder's name is taken by a file.
    case.session.root.replace(Path::new("before"), b"", 0o600).unwrap();
    let outcome = case.run(&edits(&json!([{"path": "a", "content": "2"}])));
    assert_eq!(outcome.code, Some("io_error"));
    assert_eq!(case.tree(), tree(&[("a", "1\n")]));
}

fn file_write(path: &str, before: Option<&str>, after: Option<&str>) -> FileWrite {
    let bytes = |text: Option<&str>| text.map(|text| Arc::from(text.as_bytes()));
    FileWrite { path: path.to_owned(), before: bytes(before), after: bytes(after), attributes: None }
}

#[test]
fn a_failure_half_way_leaves_every_file_as_it_was() {
    let cases = [
        ("the target became a folder", file_write("folder", Some("1"), Some("2"))),
        ("a folder stands where a file is to be", file_write("folder", None, Some("2"))),
        ("the file to remove is gone", file_write("nothing", Some("1"), None)),
        ("a file stands where a folder is needed", file_write("a/x", None, Some("2"))),
        ("the file holds something else", file_write("c", Some("2"), Some("3"))),
        ("the file to write appeared", file_write("c", None, Some("2"))),
    ];
    for (name, failing) in cases {
        let case = Case::new(&[("a", b"1"), ("b", b"1"), ("c", b"1"), ("folder/inner", b"")]);
        fs_err::set_permissions(case.path("a"), Permissions::from_mode(0o640)).unwrap();
        let before = case.tree();
        let writes = [
            file_write("a", Some("1"), Some("2")),
            file_write("b", Some("1"), None),
            file_write("new/deep/file", None, Some("2")),
            failing,
        ];
        let failure = write::write_all(&Places::open(&case.workspace).unwrap(), &writes).unwrap_err();
        assert!(matches!(failure, Failure::Unchanged(_)), "{name}: {failure:?}");
        assert_eq!(case.tree(), before, "{name}");
        assert_eq!(case.path("a").metadata().unwrap().mode() & 0o777, 0o640, "{name}");
    }
}

#[test]
fn a_swap_in_the_middle_of_the_renames_is_rolled_back_too() {
    let case = Case::new(&[("a", b"1"), ("d/b", b"1"), ("elsewhere/b", b"theirs")]);
    let writes = [file_write("a", Some("1"), Some("2")), file_write("d/b", Some("1"), Some("2"))];
    let failure = write::write_watched(&Places::open(&case.workspace).unwrap(), &writes, &mut |index| {
        if index == 1 {
            fs_err::rename(case.path("d"), case.path("old"))?;
            symlink("elsewhere", case.path("d"))?;
        }
        Ok(())
    });
    assert!(matches!(failure, Err(Failure::Unchanged(_))), "{failure:?}");
    assert_eq!(case.read("a").unwrap(), b"1");
    assert_eq!(case.read("elsewhere/b").unwrap(), b"theirs", "the link was not followed");
}

#[test]
fn a_roll_back_that_fails_says_what_each_file_is() {
    let case = Case::new(&[("a", b"1"), ("d/b", b"1"), ("c", b"1")]);
    let writes = [
        file_write("a", Some("1"), Some("2")),
        file_write("d/b", Some("1"), Some("2")),
        file_write("c", Some("1"), Some("2")),
    ];
    let failure = write::write_watched(&Places::open(&case.workspace).unwrap(), &writes, &mut |index| {
        if index == 2 {
            fs_err::remove_dir_all(case.path("d"))?;
            return Err(std::io::Error::other("no more"));
        }
        Ok(())
    });
    let Err(Failure::Unknown(reason, states)) = failure else { panic!("{failure:?}") };
    assert!(reason.contains("c could not be changed: no more; and d/b could not be put back"), "{reason}");
    let expected = [("a", State::AsBefore), ("d/b", State::Other), ("c", State::AsBefore)];
    assert_eq!(states, expected.map(|(path, state)| (path.to_owned(), state)));
}

#[test]
fn a_killed_patch_is_told_by_its_files() {
    let case = Case::new(&[("a", b"1"), ("b", b"1")]);
    let list = json!([{"path": "a", "content": "2"}, {"path": "b", "delete": true}, {"path": "n/m", "content": "2"}]);
    let files = case.assess(&edits(&list)).unwrap().files;
    assert_eq!(recover(&files, &case.workspace).unwrap(), Recovery::AllBefore);
    fs_err::write(case.path("a"), "2").unwrap();
    fs_err::write(case.path("b"), "else").unwrap();
    let expected = [("a", State::AsAfter), ("b", State::Other), ("n/m", State::AsBefore)];
    let expected = expected.map(|(path, state)| (path.to_owned(), state)).to_vec();
    assert_eq!(recover(&files, &case.workspace).unwrap(), Recovery::Mixture(expected));
    fs_err::remove_file(case.path("b")).unwrap();
    fs_err::create_dir(case.path("n")).unwrap();
    fs_err::write(case.path("n/m"), "2").unwrap();
    assert_eq!(recover(&files, &case.workspace).unwrap(), Recovery::AllAfter);
}

#[test]
fn left_over_temporary_files_are_removed() {
    let case = Case::new(&[("a", b"1"), ("d/b", b"1"), ("other/c", b"1")]);
    let left = |folder: &str, rest: &str| format!("{folder}{TEMPORARY_PREFIX}{rest}");
    // The highest id that Linux allows is 4194304, so that no process has this one; its parent lives.
    let own = left("d/", &format!("{}-7", std::process::id()));
    let live = left("", &format!("{}-7-0", std::os::unix::process::parent_id()));
    let dead = [left("", "4999999-7-0"), left("", "4999999-7"), own];
    let names = ["what", "4999999", "4999999-", "4999999-7-0-1", "4999999-seven", "x-7-0"].map(|rest| left("", rest));
    let kept: Vec<String> =
        [live, left("other/", "4999999-7-0"), "d/.attini".to_owned()].into_iter().chain(names).collect();
    for path in dead.iter().chain(&kept) {
        fs_err::write(case.path(path), "half").unwrap();
    }
    let list = json!([{"path": "a", "content": "2"}, {"path": "d/b", "content": "2"}, {"path": "x/y", "content": "2"}]);
    let files = case.assess(&edits(&list)).unwrap().files;
    let removed = clean_temporary_files(&files, &case.workspace).unwrap();
    assert_eq!(removed.len(), dead.len());
    assert!(dead.iter().all(|path| !case.path(path).exists()));
    assert!(kept.iter().all(|path| case.path(path).exists()));
}

#[test]
fn outside_and_secret_files_are_written_but_secrets_not_told() {
    let case = Case::new(&[(".env", b"KEY=hidden\nPORT=1\n")]);
    let outside = case.folder.path().canonicalize().unwrap().join("outside");
    let arguments = edits(&json!([
        {"path": ".env", "before": "PORT=1", "after": "PORT=2"},
        {"path": outside.to_str().unwrap(), "content": "x\n"},
    ]));
    let Preview::Patch { diff, .. } = case.assess(&arguments).unwrap().preview else { panic!("a patch") };
    assert!(diff.contains(" KEY=hidden\n-PORT=1\n+PORT=2\n"), "the person sees it: {diff}");
    let outcome = case.run(&arguments);
    assert_eq!(outcome.status, ResultStatus::Ok, "{}", outcome.content);
    assert!(!outcome.content.contains("hidden") && outcome.content.contains("are not shown"), "{}", outcome.content);
    assert_eq!(case.read(".env").unwrap(), b"KEY=hidden\nPORT=2\n");
    assert_eq!(fs_err::read(outside).unwrap(), b"x\n");
    let outcome = case.run(&edits(&json!([{"path": ".env", "move_to": "m"}, {"path": ".env", "content": "X=1\n"}])));
    assert_eq!(outcome.status, ResultStatus::Ok, "{}", outcome.content);
    assert!(!outcome.content.contains("hidden"), "{}", outcome.content);
}
