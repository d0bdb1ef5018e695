//! `attini tell`: a new turn.

use std::collections::HashSet;

use super::invocation::Invocation;
use super::opened::{Equipment, complete_finished, conclude, forget_turn_rules, open, run, standing, user_record};
use super::stdin::{self, Input};
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

/// The prompt, stdin included.
const PROMPT: Input = Input {
    what: "the prompt",
    bytes_max: 1024 * 1024,
    too_long_hint: "put the text into a file of the workspace and let the model read it",
};
/// What the block of `--stdin` is called.
const FENCE: &str = "stdin";

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
        Some(folder) => Some(open(invocation, folder, options.wait)?),
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
        None => open(invocation, folder, options.wait)?,
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
    let result = run(turn, None, |result| conclude(invocation, folder, result));
    Ok(Status::of_result(&result))
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
    let model = choose_model(invocation, options.model.as_deref(), config, history)?;
    let deny = invocation.rule_options.iter().filter(|rule| !rule.allows()).cloned().collect();
    TurnSettings::of_new_turn(model, options, config, &invocation.workspace, deny)
}

/// The model of a new turn. `option`: what the command line names.
pub fn choose_model(
    invocation: &Invocation,
    option: Option<&str>,
    config: &Config,
    history: Option<&History>,
) -> anyhow::Result<String> {
    let used_last = || history.and_then(model_used_last);
    Ok(match (option, invocation.environment.text("ATTINI_MODEL")?) {
        (Some(model), _) | (None, Some(model)) => model.to_owned(),
        (None, None) => used_last()
            .or_else(|| config.model.clone())
            .or_else(provider::default_model)
            .ok_or_else(provider::no_model_failure)?,
    })
}

/// The model of the latest reply. One that never answered was not used: it may be misspelt, or out of reach.
fn model_used_last(history: &History) -> Option<String> {
    let reply = history.latest_round().map(|round| (&round.assistant.provider, &round.assistant.model));
    // Where a summary covers all replies, the model that wrote it is the one that answered last.
    let last = reply.or(history.summary().map(|summary| (&summary.provider, &summary.model)));
    last.map(|(provider, model)| format!("{provider}/{model}"))
}

/// The prompt from the command line, from stdin, or from both.
fn read_prompt(arguments: &TellArguments) -> anyhow::Result<String> {
    let prompt = match arguments.prompt.as_deref() {
        Some(prompt) if arguments.stdin && prompt != "-" => {
            let data = stdin::read(&PROMPT)?;
            let fence = fence(&data);
            format!("{prompt}\n\n<{fence}>\n{}\n</{fence}>", data.trim_end_matches('\n'))
        }
        prompt => prompt_or_stdin(prompt)?,
    };
    ensure_prompt(&prompt)?;
    Ok(prompt)
}

/// The words themselves; none, or `-`: all of stdin.
pub fn prompt_or_stdin(prompt: Option<&str>) -> anyhow::Result<String> {
    match prompt {
        None | Some("-") => Ok(stdin::read(&PROMPT)?),
        Some(prompt) => Ok(prompt.to_owned()),
    }
}

/// Refuses a prompt that is too long or says nothing.
pub fn ensure_prompt(prompt: &str) -> anyhow::Result<()> {
    PROMPT.ensure_fits(prompt)?;
    if prompt.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty").hint("say what is to be done: `attini tell PROMPT`").into());
    }
    Ok(())
}

/// What the data's block is called: a name that the data itself does not hold, whatever the case of its letters, so that
/// nothing in it can pass for the block's end.
fn fence(data: &str) -> String {
    let data = data.to_ascii_lowercase();
    if !data.contains(FENCE) {
        return FENCE.to_owned();
    }
    let taken: HashSet<u64> = data
        .match_indices(FENCE)
        .filter_map(|(index, _)| {
            let number = data[index + FENCE.len()..].strip_prefix('-')?;
            let digits = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
            number[..digits].parse().ok()
        })
        .collect();
    let free = (1..=u64::MAX).find(|number| !taken.contains(number)).unwrap_or_default();
    format!("{FENCE}-{free}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_called_what_its_data_does_not_hold() {
        for (data, expected) in [
            ("", "stdin"),
            ("plain </std in>", "stdin"),
            ("a</stdin>b", "stdin-1"),
            ("</STDIN> </Stdin-1 >", "stdin-2"),
            ("stdin-2 stdin-1 stdin-4", "stdin-3"),
            ("stdin-10", "stdin-1"),
            ("stdin-99999999999999999999999", "stdin-1"),
            ("stdin-stdin-1", "stdin-2"),
            ("stdin-\u{fc}1", "stdin-1"),
        ] {
            assert_eq!(fence(data), expected, "{data}");
        }
    }

    proptest! {
        #[test]
        fn data_never_ends_its_own_block(pieces in prop::collection::vec("(?i:</?stdin)(-[0-9]{1,2})?>?|[a-z ]{0,3}", 0..40)) {
            let data = pieces.concat();
            let fence = fence(&data);
            let lower = data.to_ascii_lowercase();
            let closes = |tag: String| lower.match_indices(&tag).any(|(at, _)| !lower[at + tag.len()..].starts_with(|c: char| c.is_ascii_digit() || c == '-'));
            prop_assert!(!closes(format!("/{fence}")), "{fence} in {data}");
        }
    }
}
