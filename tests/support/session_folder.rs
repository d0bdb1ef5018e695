//! What must hold of a session's folder on disk: modes, names, the files that records name, and the log itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::log::check_log;

/// All violations in one session's folder. A folder without a log is no session. `planted_lines`: see [`check_log`].
pub(crate) fn check_session_folder(folder: &Path, planted_lines: usize) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(log) = fs::read(folder.join("conversation.jsonl")) else { return found };
    check_mode(folder, 0o700, &mut found);
    check_files(folder, &mut found);
    for name in ["outputs", "before"] {
        check_files(&folder.join(name), &mut found);
    }
    let Ok(log) = String::from_utf8(log) else {
        found.push("conversation.jsonl is not UTF-8".to_owned());
        return found;
    };
    let pending = match fs::read(folder.join("pending.json")) {
        Err(_) => None,
        Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
            Ok(pending) => Some(pending),
            Err(error) => {
                found.push(format!("pending.json: {error}"));
                None
            }
        },
    };
    found.extend(check_log(&log, planted_lines, pending.as_ref()));
    for record in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let attachments = record["attachments"].as_array().into_iter().flatten().map(|attachment| &attachment["file"]);
        for file in attachments.chain([&record["output_file"]]).filter_map(Value::as_str) {
            if !file.starts_with("outputs/") || !folder.join(file).is_file() {
                found.push(format!("a record names {file:?}, which is no file of the session"));
            }
        }
    }
    found
}

fn check_files(folder: &Path, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        check_mode(&path, if is_file { 0o600 } else { 0o700 }, found);
        if entry.file_name().to_string_lossy().starts_with(".tmp") {
            found.push(format!("{} was left behind", path.display()));
        }
    }
}

fn check_mode(path: &Path, expected: u32, found: &mut Vec<String>) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_symlink() => found.push(format!("{} is a link", path.display())),
        Ok(metadata) => {
            let mode = metadata.permissions().mode() & 0o7777;
            if mode != expected {
                found.push(format!("{} has mode {mode:o} instead of {expected:o}", path.display()));
            }
        }
        Err(error) => found.push(format!("{}: {error}", path.display())),
    }
}
