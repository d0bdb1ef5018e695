//! `attini answer`: a person's answer to a question, and the turn goes on.

use super::continuation::{all_decided, decide_on};
use super::invocation::Invocation;
use super::opened::{nothing_pending, open_existing};
use super::stdin::{self, Input};
use crate::cli::AnswerArguments;
use crate::exit::Status;
use crate::failure::Failure;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::session::record::OperationId;
use crate::tool::Preview;
use crate::turn::decisions::{Verdict, decide, select};

/// The longest answer.
pub(super) const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

pub fn run(invocation: &Invocation, arguments: &AnswerArguments) -> anyhow::Result<Status> {
    let text = read_answer(arguments)?;
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else {
        return Err(nothing_pending(invocation, Some(opened.log.history())).into());
    };
    decide_on(invocation, opened, file, (&arguments.turn, arguments.if_digest.as_deref()), |ground, file| {
        let index = question(&file, arguments.id.as_deref(), &text)?;
        if arguments.text != "-" {
            ensure_a_choice(&file.calls[index], &text)?;
        }
        ground.ensure_answers(&file, index, &text)?;
        let mut decided = file.clone();
        decide(&mut decided, &[index], &Verdict::Answer { text });
        ground.store(&file, decided)
    })
}

fn read_answer(arguments: &AnswerArguments) -> anyhow::Result<String> {
    const INPUT: Input = Input {
        what: "the answer",
        bytes_max: ANSWER_BYTES_MAX,
        too_long_hint: "put the text into a file of the workspace and answer with its name",
    };
    let text = if arguments.text == "-" { stdin::read(&INPUT)? } else { arguments.text.clone() };
    INPUT.ensure_fits(&text)?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(Failure::usage("the answer is empty")
            .hint("to give none, deny the question: `attini deny ID`")
            .into());
    }
    Ok(text.to_owned())
}

/// The one question that is answered, by its place in the file.
fn question(file: &PendingFile, id: Option<&str>, text: &str) -> Result<usize, Failure> {
    let verdict = Verdict::Answer { text: text.to_owned() };
    let ids: Vec<String> = id.map(str::to_owned).into_iter().collect();
    if let (None, Some(forgotten)) = (id, named(file, text)) {
        return Err(Failure::usage(format!("the answer to {forgotten} is missing"))
            .hint(format!("`attini answer {forgotten} TEXT`")));
    }
    match select(file, &ids, &verdict)?.as_slice() {
        [index] => Ok(*index),
        [] if file.undecided().next().is_none() => Err(all_decided()),
        [] => Err(Failure::new(Status::NothingPending, "no question is open")
            .hint("what is pending waits for `attini approve` or `attini deny`")),
        several => {
            let open: Vec<String> = several.iter().map(|index| file.calls[*index].operation_id().to_string()).collect();
            Err(Failure::usage(format!("an answer is for one question, and {} are open", open.len()))
                .hint(format!("name it: `attini answer ID TEXT`; open are {}", open.join(", "))))
        }
    }
}

/// Refuses a number that is none of the choices' numbers, which was hardly meant as an answer in words.
fn ensure_a_choice(call: &PendingCall, text: &str) -> Result<(), Failure> {
    let Some(Preview::Question { choices, .. }) = &call.preview else { return Ok(()) };
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_there = text.parse().is_ok_and(|number: usize| (1..=choices.len()).contains(&number));
    if choices.is_empty() || !is_number || is_there || choices.iter().any(|choice| choice == text) {
        return Ok(());
    }
    Err(Failure::usage(format!("there is no choice {text}: the choices are 1 to {}", choices.len()))
        .hint("an answer that is a number all the same can come from stdin: `attini answer ID -`"))
}

/// The pending call whose ID somebody typed who forgot to type an answer.
fn named(file: &PendingFile, text: &str) -> Option<OperationId> {
    let wanted = OperationId::parse(text);
    let waits = |call: &&PendingCall| call.needs != Needs::Nothing;
    let mut calls = file.calls.iter().filter(waits).map(PendingCall::operation_id);
    calls.find(|id| *id == wanted || (wanted.operation.is_none() && id.call_id == wanted.call_id)).map(|_| wanted)
}
