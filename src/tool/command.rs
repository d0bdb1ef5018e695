//! `command`: runs a program, without a shell.
//!
//! [`execute`] is the part that every tool which is a program shares: from its start to an outcome in words.

use std::sync::atomic::Ordering;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::permission::{Access, CommandAccess};
use crate::session::record::ResultStatus;
use crate::tool::output::{Kept, Output};
use crate::tool::{Assessment, Effect, Outcome, Overlay, Preview, Refusal, Surroundings, Tool, Work, schema};
use crate::workspace::child::{self, Ended, How, Program};
use crate::workspace::root::Root;
use crate::workspace::{Kind, Location, Place, Workspace, World, environment, look};

pub const NAME: &str = "command";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The program and its arguments, one word each. A program with a slash is a path relative to cwd.
    #[schemars(length(min = 1))]
    argv: Vec<String>,
    /// The folder to start in, relative to the workspace.
    #[serde(default = "workspace_root")]
    cwd: String,
    /// Text for its standard input; without it, standard input is closed.
    stdin: Option<String>,
}

fn workspace_root() -> String {
    ".".to_owned()
}

impl Arguments {
    fn parse(arguments: &Value) -> Result<Self, Refusal> {
        Self::deserialize(arguments).map_err(|error| Refusal::new("invalid_arguments", error.to_string()))
    }

    fn ensure_runnable(&self) -> Result<(), Refusal> {
        let refuse = |message: &str| Err(Refusal::new("invalid_arguments", message));
        match self.argv.first() {
            None => return refuse("argv is empty: its first word is the program to run"),
            Some(program) if program.is_empty() => return refuse("the first word of argv, the program, is empty"),
            Some(_) => {}
        }
        ensure_no_nul(&self.argv)
    }
}

/// Refuses words that no program can be given.
pub fn ensure_no_nul(argv: &[String]) -> Result<(), Refusal> {
    match argv.iter().position(|word| word.contains('\0')) {
        Some(place) => Err(Refusal::new(
            "invalid_arguments",
            format!("argv[{place}] holds a NUL byte, which no argument can; use stdin for binary data"),
        )),
        None => Ok(()),
    }
}

pub struct Command {
    parameters: Value,
}

impl Command {
    pub fn new() -> Self {
        Self { parameters: schema::of::<Arguments>() }
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::new()
    }
}

impl Tool for Command {
    fn name(&self) -> &'static str {
        NAME
    }

    fn description(&self) -> &'static str {
        include_str!("command.md")
    }

    fn parameters(&self) -> &Value {
        &self.parameters
    }

    fn effect(&self) -> Effect {
        Effect::SideEffect
    }

    fn look(&self, arguments: &Value, surroundings: &Surroundings<'_>, world: &mut World) {
        // Arguments that do not parse are refused by `assess`, which needs no facts for that.
        if let Ok(arguments) = Arguments::parse(arguments) {
            look::gather(&[&arguments.cwd], surroundings, world);
        }
    }

    fn assess(&self, arguments: &Value, world: &World, _overlay: &Overlay) -> Result<Assessment, Refusal> {
        let arguments = Arguments::parse(arguments)?;
        arguments.ensure_runnable()?;
        let location = folder_in(world, &arguments.cwd)?;
        let summary = shlex::try_join(arguments.argv.iter().map(String::as_str))
            .map_err(|error| Refusal::new("invalid_arguments", error.to_string()))?;
        let access = CommandAccess {
            argv: arguments.argv.clone(),
            stdin: arguments.stdin.is_some(),
            background: false,
            cwd_inside: location.place == Place::Workspace,
            cwd_is_root: location.place == Place::Workspace && location.shown == ".",
        };
        let preview = Preview::Command {
            argv: arguments.argv,
            cwd: location.shown.clone(),
            stdin: arguments.stdin,
            background: false,
        };
        let accesses = vec![Access::Command(access)];
        Ok(Assessment { summary, accesses, preview, files: Vec::new(), after: Overlay::new(), moot: None })
    }

    fn run(&self, work: &Work<'_>) -> Outcome {
        match prepare(work) {
            Ok((arguments, folder)) => {
                let program = Program {
                    argv: &arguments.argv,
                    folder: &folder,
                    stdin: arguments.stdin.as_deref().map(str::as_bytes),
                    environment: &environment::for_commands(work.surroundings.withheld_variables),
                    timeout: Some(work.surroundings.limits.command_timeout),
                };
                execute(&program, work)
            }
            Err(refusal) => refusal.into(),
        }
    }
}

fn folder_in<'w>(world: &'w World, cwd: &str) -> Result<&'w Location, Refusal> {
    let Some(location) = world.locations.get(cwd) else {
        return Err(Refusal::new("not_found", format!("cwd: nothing is known of {cwd}")));
    };
    let location = location.as_ref().map_err(Clone::clone)?;
    match location.kind {
        Kind::Folder => Ok(location),
        Kind::Absent => Err(Refusal::new("not_found", format!("cwd: there is no folder {}", location.shown))),
        Kind::File | Kind::Other => {
            Err(Refusal::new("not_a_folder", format!("cwd: {} is not a folder", location.shown)))
        }
    }
}

fn prepare(work: &Work<'_>) -> Result<(Arguments, Root), Refusal> {
    let arguments = Arguments::parse(work.arguments)?;
    arguments.ensure_runnable()?;
    let location = folder_in(work.world, &arguments.cwd)?;
    let folder = open(location, work.surroundings).map_err(|error| {
        Refusal::new("stale", format!("cwd: {} is no longer the folder that it was: {error}", location.shown))
    })?;
    Ok((arguments, folder))
}

/// Opens the folder that was judged; a link that was put in its way since makes it fail.
fn open(location: &Location, surroundings: &Surroundings<'_>) -> std::io::Result<Root> {
    let Workspace { root, .. } = surroundings.workspace;
    match (location.place, surroundings.session) {
        (Place::Workspace, _) => root.folder(&location.path),
        (Place::Session, Some(session)) => session.root.folder(&location.path),
        (Place::Session | Place::Outside, _) => {
            let top = std::path::Path::new("/");
            Root::open(top)?.folder(location.absolute.strip_prefix(top).unwrap_or(&location.absolute))
        }
    }
}

/// Runs the program and tells how it ended. The content is one line about that, then the output.
pub fn execute(program: &Program<'_>, work: &Work<'_>) -> Outcome {
    if work.interrupt.is_raised() {
        let content = "not started: attini was interrupted before";
        return Outcome { status: ResultStatus::Cancelled, ..Outcome::error("cancelled", content) };
    }
    let surroundings = work.surroundings;
    let mut output = Output::new(surroundings.session, work.label, surroundings.limits, work.live);
    let ended = child::run(program, work.interrupt, &mut |piece| {
        work.output_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        output.push(piece);
    });
    match ended {
        Ok(ended) => outcome(&ended, program.timeout, output.finish()),
        Err(error) => {
            let name = program.argv.first().map_or("", String::as_str);
            let outcome = Outcome::error("spawn_failed", format!("cannot start {name}: {error}; nothing was run"));
            Outcome { detail: Some(advice(&error, name, program.folder)), ..outcome }
        }
    }
}

/// What to do about a program that could not be started.
fn advice(error: &std::io::Error, name: &str, folder: &Root) -> String {
    use rustix::io::Errno;
    // What a name without a slash led to is found on PATH, and is not looked for again.
    let path = std::path::Path::new(name);
    let found = name.contains('/').then(|| std::fs::metadata(folder.path().join(path)).ok()).flatten();
    let is_folder = found.as_ref().is_some_and(std::fs::Metadata::is_dir);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::TOOBIG) => "give less as arguments, for example through `stdin` or a file".to_owned(),
        Some(Errno::ACCESS) if is_folder => format!("{name} is a folder, not a program"),
        Some(Errno::ACCESS) => {
            format!("{name} may not be executed; give it to its interpreter (`sh {name}`), or set its mode")
        }
        Some(Errno::NOEXEC) => {
            format!("{name} is no program, and has no `#!` line; give it to its interpreter (`sh {name}`)")
        }
        Some(Errno::NOENT | Errno::NOTDIR) if found.is_some() => {
            format!("{name} is there, but the interpreter that its `#!` line names is not")
        }
        Some(Errno::NOENT | Errno::NOTDIR) => "check that the program exists and is spelt right".to_owned(),
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            "the system has no room for another process now; try again later".to_owned()
        }
        Some(_) | None if name.contains('\0') || error.kind() == std::io::ErrorKind::InvalidInput => {
            "an argument holds a NUL character, which no program can take".to_owned()
        }
        Some(_) | None => "look at the cause that is named".to_owned(),
    }
}

fn outcome(ended: &Ended, timeout: Option<Duration>, kept: Kept) -> Outcome {
    let (status, code) = match ended.how {
        How::Exited(0) => (ResultStatus::Ok, None),
        How::Exited(_) => (ResultStatus::Error, Some("exit_nonzero")),
        How::Signalled(_) => (ResultStatus::Error, Some("signal")),
        How::TimedOut => (ResultStatus::Error, Some("timeout")),
        How::Interrupted => (ResultStatus::Unknown, Some("interrupted")),
        How::Lost => (ResultStatus::Unknown, Some("status_lost")),
    };
    let mut content = status_line(ended, timeout);
    if kept.text.is_empty() {
        content.push_str(", no output");
    }
    if kept.is_replaced {
        content.push_str(" (bytes that are no text are shown as \u{fffd})");
    }
    if !kept.text.is_empty() {
        content.push('\n');
        content.push_str(&kept.text);
    }
    Outcome { status, code, output_file: kept.output_file, ..Outcome::ok(content) }
}

fn status_line(ended: &Ended, timeout: Option<Duration>) -> String {
    let elapsed = seconds(ended.elapsed);
    match ended.how {
        How::Exited(code) => format!("exit code {code}"),
        How::Signalled(number) => match signal_hook::low_level::signal_name(number) {
            Some(name) => format!("ended by signal {number} ({name})"),
            None => format!("ended by signal {number}"),
        },
        // The limit and not the time it took, which holds the stopping as well.
        How::TimedOut => format!(
            "timed out after {} s and was stopped with its process group; it may have taken effect",
            seconds(timeout.unwrap_or(ended.elapsed))
        ),
        How::Interrupted => format!(
            "interrupted after {elapsed} s and stopped with its process group; it may have taken effect, and what it \
             detached may still run"
        ),
        How::Lost => "ended, but its exit status is not known; it may have taken effect".to_owned(),
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        whole if time.subsec_nanos() == 0 => whole.to_string(),
        0..10 => format!("{:.1}", time.as_secs_f64()),
        more => more.to_string(),
    }
}

#[cfg(test)]
mod tests;
