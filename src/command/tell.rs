//! `attini tell`: a new turn.

use std::io::Read;

use super::invocation::Invocation;
use super::opened::{Equipment, complete_finished, conclude, forget_turn_rules, open, run, standing, user_record};
use crate::cli::{TellArguments, TurnOptions};
use crate::clock;
use crate::config::Config;
use crate::exit::Status;
use crate::failure::Failure;
use crate::provider;
use crate::session::history::{History, Standing};
use crate::session::log::Log;
use crate::session::pending::PendingFile;
use crate::session::record::{FORMAT, Record, SessionRecord, TurnSettings};

/// The largest prompt, stdin included.
const PROMPT_BYTES_MAX: u64 = 1024 * 1024;

pub fn run_command(invocation: &Invocation, arguments: &TellArguments) -> anyhow::Result<Status> {
    let prompt = read_prompt(arguments)?;
    tell(invocation, &prompt, &arguments.turn)
}

/// Starts a turn with this prompt. `demo` does the same.
pub fn tell(invocation: &Invocation, prompt: &str, options: &TurnOptions) -> anyhow::Result<Status> {
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let mut folder = invocation.folder()?;
    let mut opened = match &folder {
        Some(folder) => Some(open(invocation, folder, options)?),
        None => None,
    };
    let history = opened.as_ref().and_then(|opened| opened.log.as_ref()).map(Log::history);
    let settings = new_settings(invocation, options, &config, history)?;
    let turn_number = history.map_or(0, History::turn) + 1;
    let equipment = Equipment::of(invocation, folder.as_ref(), turn_number, &[], settings, &config, &trust)?;
    // From here on nothing is wrong with the command line, and things may be changed.
    invocation.interrupt.end_in_order();
    if folder.is_none() {
        folder = Some(invocation.state().open_or_create(&invocation.session)?);
    }
    let Some(folder) = &folder else { return Err(Failure::persistence("there is no session folder").into()) };
    let mut opened = match opened.take() {
        Some(opened) => opened,
        None => open(invocation, folder, options)?,
    };
    let turn = match opened.log.take() {
        None => {
            let session = session_record();
            let user = user_record(1, prompt, &equipment.settings);
            let log = Log::create(folder, &[session, user])?;
            equipment.into_turn(invocation, folder, log)
        }
        Some(mut log) => {
            complete_finished(&mut log)?;
            let number = log.history().turn() + 1;
            let user = user_record(number, prompt, &equipment.settings);
            let mut turn = equipment.into_turn(invocation, folder, log);
            match &opened.pending {
                Some(file) if standing(turn.history()) == Standing::Unfinished => turn.drop_pending(file)?,
                // A file that came from elsewhere: the turn it would belong to is over.
                Some(_) => {
                    turn.repair(|_| false)?;
                    turn.log.barrier()?;
                    PendingFile::remove(folder)?;
                }
                None => turn.repair(|_| false)?,
            }
            turn.log.append(&user)?;
            forget_turn_rules(invocation, folder, number - 1);
            turn.elapsed_before_ms = 0;
            turn
        }
    };
    Ok(conclude(invocation, folder, &run(turn, None)))
}

fn session_record() -> Record {
    Record::Session(SessionRecord {
        format: FORMAT,
        id: crate::session::new_id(),
        at: clock::now(),
        attini: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// The model by precedence: option, environment, what the session used last, config, the default for a key that is there.
fn new_settings(
    invocation: &Invocation,
    options: &TurnOptions,
    config: &Config,
    history: Option<&History>,
) -> anyhow::Result<TurnSettings> {
    let used_last = || history.and_then(model_used_last);
    let model = match (&options.model, invocation.environment.text("ATTINI_MODEL")?) {
        (Some(model), _) => model.clone(),
        (None, Some(model)) => model.to_owned(),
        (None, None) => used_last()
            .or_else(|| config.model.clone())
            .or_else(provider::default_model)
            .ok_or_else(provider::no_model_failure)?,
    };
    let deny = invocation.rule_options.iter().filter(|rule| !rule.allows()).cloned().collect();
    TurnSettings::of_new_turn(model, options, config, &invocation.workspace, deny)
}

/// What was asked last, by a continuation with an option of its own too; or was to be asked, where no reply came.
fn model_used_last(history: &History) -> Option<String> {
    let user = history.user()?;
    let reply = history.latest_round().map(|round| &round.assistant).filter(|reply| reply.turn == user.turn);
    Some(reply.map_or_else(|| user.settings.model.clone(), |reply| format!("{}/{}", reply.provider, reply.model)))
}

/// The prompt from the command line, from stdin, or from both.
fn read_prompt(arguments: &TellArguments) -> anyhow::Result<String> {
    let prompt = match arguments.prompt.as_deref() {
        None | Some("-") => read_stdin()?,
        Some(prompt) if arguments.stdin => {
            let data = read_stdin()?;
            format!("{prompt}\n\n<stdin>\n{}\n</stdin>", data.trim_end_matches('\n'))
        }
        Some(prompt) => prompt.to_owned(),
    };
    if prompt.len() as u64 > PROMPT_BYTES_MAX {
        return Err(too_long().into());
    }
    if prompt.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty").hint("say what is to be done: `attini tell PROMPT`").into());
    }
    Ok(prompt)
}

fn read_stdin() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .take(PROMPT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("stdin cannot be read: {error}")))?;
    if bytes.len() as u64 > PROMPT_BYTES_MAX {
        return Err(too_long().into());
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is not UTF-8 text").into())
}

fn too_long() -> Failure {
    Failure::usage(format!("the prompt is longer than {PROMPT_BYTES_MAX} bytes"))
        .hint("put the text into a file of the workspace and let the model read it")
}
