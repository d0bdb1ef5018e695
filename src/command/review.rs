//! `attini review`: a person at a terminal decides on the pending calls one by one, and the turn goes on.
//!
//! Each decision is on disk before the next call is shown, so that whatever ends the walk loses none.

mod page;

use std::collections::BTreeSet;

use super::answer::ANSWER_BYTES_MAX;
use super::approve::approve;
use super::continuation::{Ground, decide_on};
use super::invocation::Invocation;
use super::opened::{nothing_pending, open_existing};
use crate::cli::{GrantScope, ReviewArguments};
use crate::exit::Status;
use crate::failure::Failure;
use crate::interrupt::Cause;
use crate::report::line::{Line, Tone};
use crate::report::preview;
use crate::session::pending::{Needs, PendingCall, PendingFile};
use crate::terminal::{Key, Terminal, Words};
use crate::tool::Preview;
use crate::turn::decisions::{Verdict, decide};

use page::Pages;

/// The longest reason that is typed here; `attini deny --reason` takes any.
const REASON_BYTES_MAX: usize = 64 * 1024;

pub fn run(invocation: &Invocation, arguments: &ReviewArguments) -> anyhow::Result<Status> {
    let Some(terminal) = Terminal::of_process(&invocation.interrupt) else {
        return Err(Failure::usage("review needs a terminal as stdin and stderr")
            .hint("elsewhere decide with `attini approve ID`, `attini deny ID` or `attini answer ID TEXT`")
            .into());
    };
    let folder = invocation.folder()?;
    let mut opened = open_existing(invocation, folder.as_ref(), arguments.turn.wait)?;
    let Some(file) = opened.pending.take() else {
        return Err(nothing_pending(invocation, Some(opened.log.history())).into());
    };
    decide_on(invocation, opened, file, (&arguments.turn, arguments.if_digest.as_deref()), |ground, file| {
        let mut review = Review { ground, terminal, file, left: BTreeSet::new() };
        review.walk()?;
        Ok(review.file)
    })
}

/// A walk through the pending calls.
struct Review<'a> {
    ground: &'a Ground<'a>,
    terminal: Terminal<'a>,
    /// As it is on disk.
    file: PendingFile,
    /// The calls that the person leaves for later, by their place in the file.
    left: BTreeSet<usize>,
}

/// What a key comes to.
enum Step {
    /// The same call, its keys shown again.
    Stay,
    /// The next call.
    On,
    Quit,
}

impl Review<'_> {
    fn walk(&mut self) -> anyhow::Result<()> {
        while let Some(index) = self.next_undecided() {
            if matches!(self.ask(index)?, Step::Quit) {
                break;
            }
        }
        Ok(())
    }

    fn next_undecided(&self) -> Option<usize> {
        let mut calls = self.file.calls.iter().enumerate();
        calls.find(|(index, call)| call.is_undecided() && !self.left.contains(index)).map(|(index, _)| index)
    }

    /// Shows one call, and takes keys until something is decided about it.
    fn ask(&mut self, index: usize) -> anyhow::Result<Step> {
        let mut pages = Pages::of(preview::call(&self.file.calls[index].view()));
        let mut shown = pages.next(self.terminal.size());
        shown.insert(0, Line::empty());
        loop {
            let call = &self.file.calls[index];
            let mut lines = std::mem::take(&mut shown);
            lines.push(Line::new(Tone::Heading, &self.keys(call, pages.has_more())));
            let step = match self.terminal.key(|| self.ground.invocation.reporter.notice(&lines))? {
                Key::Letter(letter) => match (letter, call.needs) {
                    ('w', _) => {
                        shown = pages.whole();
                        Step::Stay
                    }
                    ('s', _) if pages.has_more() => {
                        shown = pages.next(self.terminal.size());
                        Step::Stay
                    }
                    ('a', Needs::Approval) => self.approve(index, None)?,
                    ('g', Needs::Approval) if call.grant.is_some() => self.grant(index)?,
                    ('d', _) => self.deny(index)?,
                    ('t', Needs::Answer) => self.answer(index)?,
                    ('1'..='9', Needs::Answer) if is_choice(call, letter) => {
                        self.record(index, &Verdict::Answer { text: letter.to_string() })?
                    }
                    ('n', _) => {
                        self.left.insert(index);
                        Step::On
                    }
                    ('q', _) => Step::Quit,
                    _ => Step::Stay,
                },
                Key::Resumed => {
                    pages.rewind();
                    shown = pages.next(self.terminal.size());
                    Step::Stay
                }
                Key::Other => Step::Stay,
                Key::End => Step::Quit,
                Key::Interrupted => return Err(self.interrupted().into()),
            };
            match step {
                Step::Stay => {}
                Step::On | Step::Quit => return Ok(step),
            }
        }
    }

    /// The keys that a call takes, on one line.
    fn keys(&self, call: &PendingCall, has_more: bool) -> String {
        let open: Vec<_> = self.file.undecided().map(PendingCall::operation_id).collect();
        let id = call.operation_id();
        let place = open.iter().position(|one| *one == id).unwrap_or_default() + 1;
        let mut keys: Vec<String> = Vec::new();
        match call.needs {
            Needs::Answer => {
                let choices = choices(call).len().min(9);
                match choices {
                    0 => {}
                    1 => keys.push("1 choose".to_owned()),
                    last => keys.push(format!("1-{last} choose")),
                }
                keys.push("t type an answer".to_owned());
            }
            Needs::Approval | Needs::Nothing => keys.push("a approve".to_owned()),
        }
        keys.push("d deny".to_owned());
        if call.grant.is_some() {
            keys.push("g approve and store the rule".to_owned());
        }
        if has_more {
            keys.push("s next screen".to_owned());
        }
        keys.extend(["w show whole", "n leave for later", "q quit"].map(str::to_owned));
        format!("{id}, {place} of {} undecided: {}", open.len(), keys.join(", "))
    }

    fn approve(&mut self, index: usize, scope: Option<GrantScope>) -> anyhow::Result<Step> {
        match approve(self.ground, &self.file, &[index], scope.map(|scope| (scope, None))) {
            Ok(decided) => self.store(decided),
            Err(error) => {
                let failure = Failure::of(&error);
                if failure.status != Status::Usage {
                    return Err(error);
                }
                self.ground.invocation.reporter.error(&failure);
                Ok(Step::Stay)
            }
        }
    }

    /// Shows the rule that would be stored, and asks where.
    fn grant(&mut self, index: usize) -> anyhow::Result<Step> {
        let rules = self.file.calls[index].grant.iter().flatten();
        let mut lines: Vec<Line> =
            rules.map(|rule| Line::plain(&format!("  to be stored: {}", rule.to_line()))).collect();
        let asked = "store it for: t this turn, s this session, w this workspace; any other key: not at all";
        lines.push(Line::new(Tone::Heading, asked));
        let scope = match self.terminal.key(|| self.ground.invocation.reporter.notice(&lines))? {
            Key::Letter('t') => GrantScope::Turn,
            Key::Letter('s') => GrantScope::Session,
            Key::Letter('w') => GrantScope::Workspace,
            Key::Letter(_) | Key::Other | Key::Resumed => return Ok(Step::Stay),
            Key::End => return Ok(Step::Quit),
            Key::Interrupted => return Err(self.interrupted().into()),
        };
        self.approve(index, Some(scope))
    }

    fn deny(&mut self, index: usize) -> anyhow::Result<Step> {
        let asked = "why? The model is told (empty: no reason; Ctrl-D: not denied)";
        let Some(reason) = self.words(asked, REASON_BYTES_MAX)? else { return Ok(Step::Stay) };
        let reason = Some(reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        self.record(index, &Verdict::Deny { reason })
    }

    fn answer(&mut self, index: usize) -> anyhow::Result<Step> {
        let bytes_max = usize::try_from(ANSWER_BYTES_MAX).unwrap_or(usize::MAX);
        let asked = "your answer, on one line (empty: none yet)";
        match self.words(asked, bytes_max)? {
            Some(text) if !text.trim().is_empty() => self.record(index, &Verdict::Answer { text }),
            Some(_) | None => Ok(Step::Stay),
        }
    }

    /// One line of the person's own; `None` where there is none.
    fn words(&self, asked: &str, bytes_max: usize) -> anyhow::Result<Option<String>> {
        let reporter = &self.ground.invocation.reporter;
        match self.terminal.line(bytes_max, || reporter.notice(&[Line::new(Tone::Heading, asked)]))? {
            Words::Line(line) => Ok(Some(line)),
            Words::End => Ok(None),
            Words::NotText => {
                reporter.notice(&[Line::new(Tone::Warning, "that was too long, or no UTF-8; nothing was recorded")]);
                Ok(None)
            }
            Words::Interrupted => Err(self.interrupted().into()),
        }
    }

    fn record(&mut self, index: usize, verdict: &Verdict) -> anyhow::Result<Step> {
        if let Verdict::Answer { text } = verdict
            && let Err(failure) = self.ground.ensure_answers(&self.file, index, text)
        {
            self.ground.invocation.reporter.error(&failure);
            return Ok(Step::Stay);
        }
        let mut decided = self.file.clone();
        decide(&mut decided, &[index], verdict);
        self.store(decided)
    }

    /// Puts what was decided on disk, then tells of it.
    fn store(&mut self, decided: PendingFile) -> anyhow::Result<Step> {
        if PendingFile::load(self.ground.folder)?.as_ref() != Some(&self.file) {
            return Err(Failure::conflict("pending.json was changed while it was reviewed")
                .hint("the last decision was not recorded; look again with `attini status`")
                .into());
        }
        decided.store(self.ground.folder)?;
        let before = std::mem::replace(&mut self.file, decided);
        let changed = before.calls.iter().zip(&self.file.calls).filter(|(before, now)| before.decision != now.decision);
        let lines: Vec<Line> = changed
            .filter_map(|(_, now)| Some((now.operation_id(), now.decision?)))
            .map(|(id, decision)| Line::plain(&format!("{id}: {}", preview::decided(decision))))
            .collect();
        self.ground.invocation.reporter.notice(&lines);
        Ok(Step::On)
    }

    fn interrupted(&self) -> Failure {
        let status = match self.ground.invocation.interrupt.cause() {
            Some(Cause::Signal(signal)) => Status::Interrupted(signal),
            Some(Cause::TimeLimit | Cause::Cancelled) | None => Status::Error,
        };
        Failure::new(status, "interrupted by a signal").hint("what was decided is recorded; `attini review` goes on")
    }
}

fn choices(call: &PendingCall) -> &[String] {
    match &call.preview {
        Some(Preview::Question { choices, .. }) => choices,
        _ => &[],
    }
}

/// Whether a digit is the number of one of the choices.
fn is_choice(call: &PendingCall, digit: char) -> bool {
    let number = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or_default();
    (1..=choices(call).len()).contains(&number)
}
