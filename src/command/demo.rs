//! `attini demo`: a throw-away workspace in which the built-in scripted model plays a first turn.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context;

use super::invocation::Invocation;
use super::tell;
use crate::cli::{Parsed, TurnOptions};
use crate::config::environment::Environment;
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::report::line::{Line, Tone};
use crate::report::shell_quote;
use crate::workspace::git;

const PROMPT: &str = "The greeting is misspelt. Find it, mend it, and run the test.";
const MODEL: &str = "scripted/demo";

/// What the workspace holds.
const FILES: [(&str, &str); 3] = [
    ("README.md", include_str!("../../fixtures/demo/README.md")),
    ("greet.sh", include_str!("../../fixtures/demo/greet.sh")),
    ("test.sh", include_str!("../../fixtures/demo/test.sh")),
];

/// Makes the workspace, then runs the turn in it.
pub fn run(parsed: Parsed, environment: Environment, interrupt: Interrupt) -> anyhow::Result<Status> {
    let folder = match &parsed.global.workspace {
        Some(named) => make_named(named)?,
        None => make_temporary()?,
    };
    fill(&folder)?;
    let mut parsed = parsed;
    parsed.global.workspace = Some(folder.clone());
    let invocation = Invocation::new(&parsed, environment, interrupt)?;
    let shown = folder.display().to_string();
    invocation.reporter.notice(&[
        Line::new(Tone::Dim, &format!("a throw-away workspace: {shown}")),
        Line::new(Tone::Dim, &format!("the scripted model is told: {PROMPT}")),
        Line::empty(),
    ]);
    let options = TurnOptions { model: Some(MODEL.to_owned()), ..TurnOptions::default() };
    let status = tell::tell(&invocation, PROMPT, &options)?;
    if status == Status::AwaitingApproval {
        let typed = shell_quote(["git", "-C", &shown, "diff"]);
        invocation.reporter.notice(&[
            Line::empty(),
            Line::new(Tone::Heading, "What you see here:"),
            Line::plain("The patch ran unasked, for git can give back the file as it was. See what it changed:"),
            Line::plain(&format!("  {typed}")),
            Line::plain("A program runs only with your consent, so the turn was written down and attini exited (10)."),
            Line::plain("Approve it with the first of the commands above, and the turn ends with the answer."),
        ]);
    }
    Ok(status)
}

fn make_temporary() -> anyhow::Result<PathBuf> {
    let folder = tempfile::Builder::new()
        .prefix("attini-demo-")
        .disable_cleanup(true)
        .tempdir()
        .context("a folder for the demo cannot be made")?;
    Ok(folder.path().to_owned())
}

/// `-C DIR`: made if it is missing, refused if anything is in it.
fn make_named(folder: &Path) -> anyhow::Result<PathBuf> {
    fs_err::create_dir_all(folder)?;
    if fs_err::read_dir(folder)?.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty", folder.display()))
            .hint("name a new folder, or leave -C out")
            .into());
    }
    Ok(fs_err::canonicalize(folder)?)
}

fn fill(folder: &Path) -> anyhow::Result<()> {
    for (name, text) in FILES {
        fs_err::write(folder.join(name), text)?;
    }
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "--all"],
        &["-c", "user.name=attini demo", "-c", "user.email=demo@localhost", "commit", "--quiet", "--message=Greet"],
    ] {
        run_git(folder, arguments)?;
    }
    Ok(())
}

/// Runs git by its own defaults: no hooks, no signing, no templates of the user's.
fn run_git(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let no_git = |why: String| Failure::new(Status::Error, why).hint("the demo needs git");
    let mut command = git::program().ok_or_else(|| no_git("there is no git in the PATH".to_owned()))?;
    let output = command
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "init.templateDir="])
        .args(arguments)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env_remove("GIT_DIR")
        .env_remove("GIT_WORK_TREE")
        .env_remove("GIT_INDEX_FILE")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| no_git(format!("git cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Failure::new(Status::Error, format!("git {} failed: {words}", arguments.join(" "))).into())
}
