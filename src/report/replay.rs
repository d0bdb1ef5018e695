//! A recorded conversation told again, by the very lines that told it live.
//!
//! Records become the events that they were told as; what an event looks like is known elsewhere. What no record holds
//! (warnings, retries, the words of an error) is not told again; in place of the previews of calls that were decided
//! since stands a line that the turn was suspended.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::event::{CallLabel, Event, PendingView};
use super::line::{Line, Tone};
use super::open_calls::OpenCalls;
use super::screen::Screen;
use super::{Reporter, Volume, preview};
use crate::session::folder::SessionFolder;
use crate::session::reading::Outlook;
use crate::session::record::{
    AssistantRecord, OperationId, OperationResultRecord, Record, ResultStatus, ToolResultRecord, TrailingReads,
    TurnEndRecord, TurnStatus, UserRecord,
};
use crate::tool::command;
use crate::turn::resume::REPAIR_REASON;

/// How much of an output is read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// Tells records one after the other.
pub struct Replay<'a> {
    reporter: Reporter,
    folder: &'a SessionFolder,
    volume: Volume,
    turn: Option<u64>,
    /// Of the turn's start: its model, and whether calls are left to the repair.
    model: String,
    strands: bool,
    calls: OpenCalls,
    standing: Standing,
    after_repair: bool,
    /// Whether the invocation at hand goes on with a suspended turn.
    continues_suspended: bool,
}

/// Where the records stand between two invocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// In an invocation that has said which turn it runs.
    Told,
    /// Behind the end of one.
    Left(TurnStatus),
    /// Repairs were told, which comes before an invocation says which turn it runs.
    Repaired,
    /// A new prompt drops what waits, which is told without a word about the turn.
    Dropping,
}

/// The fields that both kinds of results have.
struct Ended<'r> {
    id: OperationId,
    status: ResultStatus,
    code: Option<&'r str>,
    content: &'r str,
    duration_ms: u64,
    output_file: Option<&'r str>,
    title: Option<&'r str>,
}

impl<'a> Replay<'a> {
    /// `like` is the reporter of this invocation, whose options count.
    pub fn new(like: &Reporter, screen: &Screen, folder: &'a SessionFolder) -> Self {
        let (reporter, volume) = like.onto_screen(screen);
        Self {
            reporter,
            folder,
            volume,
            turn: None,
            model: String::new(),
            strands: false,
            calls: OpenCalls::default(),
            standing: Standing::Told,
            after_repair: false,
            continues_suspended: false,
        }
    }

    /// Tells of the next record. `look_ahead` says what comes behind it, up to the end of its invocation.
    pub fn tell(
        &mut self,
        record: &Record,
        look_ahead: impl FnOnce() -> anyhow::Result<Outlook>,
    ) -> anyhow::Result<()> {
        match record {
            Record::Session(_) | Record::Imported(_) | Record::Unknown => return Ok(()),
            Record::User(user) => {
                self.begin_turn(user);
                return Ok(());
            }
            Record::Notice(notice) => {
                if self.volume != Volume::Quiet {
                    self.reporter.notice(&Line::all(Tone::Dim, "notice: ", "  ", &notice.text));
                }
                return Ok(());
            }
            Record::Summary(summary) => {
                if self.volume != Volume::Quiet {
                    let (turn, round) = (summary.through_turn, summary.through_round);
                    let line = format!("older rounds were summarised, through round {round} of turn {turn}");
                    self.reporter.notice(&[Line::new(Tone::Dim, &line)]);
                }
                return Ok(());
            }
            Record::TurnEnd(end) => {
                self.end_invocation(end);
                return Ok(());
            }
            Record::Assistant(_)
            | Record::Decision(_)
            | Record::ToolStart(_)
            | Record::CallWaiting(_)
            | Record::OperationResult(_)
            | Record::ToolResult(_) => {}
        }
        self.begin_invocation(is_repair(record), look_ahead)?;
        match record {
            Record::Assistant(assistant) => self.tell_reply(assistant),
            Record::OperationResult(result) => self.tell_result(&Ended::of_operation(result)),
            Record::ToolResult(result) => {
                self.tell_result(&Ended::of_call(result));
                self.calls.remove(&result.call_id);
            }
            Record::Session(_)
            | Record::Imported(_)
            | Record::Unknown
            | Record::User(_)
            | Record::Notice(_)
            | Record::Summary(_)
            | Record::TurnEnd(_)
            | Record::Decision(_)
            | Record::ToolStart(_)
            | Record::CallWaiting(_) => {}
        }
        Ok(())
    }

    /// Ends the replay. `pending`: what the turn that was told last still waits for.
    pub fn finish(self, pending: Option<&[PendingView]>, command_prefix: &str) {
        match (self.standing, pending) {
            (Standing::Left(_), Some(pending)) if !pending.is_empty() => {
                let mut lines = vec![Line::empty()];
                lines.extend(preview::suspended(pending, command_prefix));
                self.reporter.notice(&lines);
            }
            _ => self.note_end(),
        }
    }

    /// Whether what was told last is that the turn waits for a person.
    pub fn suspended_turn(&self) -> Option<u64> {
        self.turn.filter(|_| is_suspended(self.standing))
    }

    fn begin_turn(&mut self, user: &UserRecord) {
        self.note_end();
        let mut lines = Vec::new();
        if self.turn.is_some() {
            lines.push(Line::empty());
        }
        lines.extend(Line::all(Tone::Heading, "> ", "> ", &user.text));
        self.reporter.notice(&lines);
        self.turn = Some(user.turn);
        self.model.clone_from(&user.settings.model);
        self.strands = user.settings.trailing_reads == TrailingReads::Strand;
        self.continues_suspended = false;
        self.after_repair = false;
        self.announce(None);
    }

    fn end_invocation(&mut self, end: &TurnEndRecord) {
        self.note_end();
        self.standing = Standing::Left(end.status);
        self.after_repair = false;
    }

    /// Says which turn an invocation runs, where it did: at once if it carries out decisions, else behind the repairs.
    fn begin_invocation(
        &mut self,
        is_repair: bool,
        look_ahead: impl FnOnce() -> anyhow::Result<Outlook>,
    ) -> anyhow::Result<()> {
        let begins = match self.standing {
            Standing::Left(_) => true,
            Standing::Repaired => !is_repair,
            // A kill leaves no trace but the repairs of the next invocation. What strand mode leaves open is repaired
            // by the invocation that left it.
            Standing::Told => is_repair && !self.after_repair && !self.strands,
            Standing::Dropping => false,
        };
        self.after_repair = is_repair;
        if !begins {
            return Ok(());
        }
        if matches!(self.standing, Standing::Left(_)) {
            self.continues_suspended = is_suspended(self.standing);
        }
        self.note_end();
        let outlook = look_ahead()?;
        if outlook.is_dropped {
            self.standing = Standing::Dropping;
        } else if is_repair && !self.continues_suspended {
            self.standing = Standing::Repaired;
        } else {
            self.announce(outlook.model);
        }
        Ok(())
    }

    fn announce(&mut self, model: Option<String>) {
        let model = model.unwrap_or_else(|| self.model.clone());
        self.reporter.tell(self.turn, &Event::TurnStarted { model });
        self.standing = Standing::Told;
    }

    /// Says how an invocation left the turn, where it was not with the answer.
    fn note_end(&self) {
        let Standing::Left(status) = self.standing else { return };
        let words = match status {
            TurnStatus::Completed => return,
            TurnStatus::AwaitingApproval | TurnStatus::AwaitingAnswer => "suspended until its calls were decided",
            TurnStatus::ProviderError => "stopped by an error of the model service",
            TurnStatus::LimitReached => "stopped at a limit",
            TurnStatus::Interrupted => "interrupted",
            TurnStatus::Error | TurnStatus::Unknown => "stopped by an error",
            TurnStatus::Dropped => "dropped for a new prompt",
        };
        if self.volume != Volume::Quiet {
            let turn = self.turn.map(|turn| format!("turn {turn}: ")).unwrap_or_default();
            self.reporter.notice(&[Line::new(Tone::Dim, &format!("{turn}{words}"))]);
        }
    }

    fn tell_reply(&mut self, reply: &AssistantRecord) {
        self.reporter.tell(self.turn, &Event::RoundStarted { round: reply.round });
        if !reply.reasoning.is_empty() {
            self.reporter.tell(self.turn, &Event::ReasoningDelta { text: reply.reasoning.clone() });
        }
        // As an answer is written, it ends in exactly one newline.
        let text = reply.text.trim_end_matches('\n');
        if !text.is_empty() {
            self.reporter.tell(self.turn, &Event::TextDelta { text: text.to_owned() });
            self.reporter.answer(text);
        }
        self.calls.add(&reply.tool_calls, self.volume == Volume::Verbose);
    }

    fn tell_result(&mut self, ended: &Ended<'_>) {
        let call = self.calls.get(&ended.id.call_id);
        let name = call.map_or("call", |call| call.name.as_str());
        if let Some(title) = ended.title {
            // No tool's name has a space in it.
            let (tool, summary) = title.split_once(' ').unwrap_or((title, ""));
            let arguments = call.map_or(Value::Null, |call| call.arguments(ended.id.operation));
            let label = CallLabel { id: ended.id.clone(), name: tool.to_owned() };
            let started = Event::ToolStarted { call: label, arguments, summary: summary.to_owned() };
            self.reporter.tell(self.turn, &started);
            if tool == command::NAME {
                self.tell_output(ended);
            }
        }
        let event = Event::ToolResult {
            call: CallLabel { id: ended.id.clone(), name: name.to_owned() },
            status: ended.status,
            code: ended.code.map(str::to_owned),
            content: ended.content.to_owned(),
            duration_ms: ended.duration_ms,
        };
        self.reporter.tell(self.turn, &event);
    }

    /// What a command put out, as it was shown while it came: from the file that keeps it whole, else from its result.
    fn tell_output(&self, ended: &Ended<'_>) {
        let (status_line, rest) = ended.content.split_once('\n').unwrap_or((ended.content, ""));
        let kept = ended.output_file.is_some_and(|file| self.tell_kept_output(file, status_line).is_ok());
        if kept {
            return;
        }
        let advice = rest.trim_end_matches('\n').rsplit_once('\n').map_or(rest, |(_, last)| last);
        let has_advice = ended.status != ResultStatus::Ok && advice.starts_with("next: ");
        let output = if has_advice { &rest[..rest.len() - advice.len()] } else { rest };
        if !output.is_empty() {
            self.reporter.live(output.as_bytes());
        }
    }

    fn tell_kept_output(&self, file: &str, status_line: &str) -> std::io::Result<()> {
        let mut file = self.folder.root.open_file(Path::new(file))?;
        if !file.metadata()?.is_file() {
            return Err(std::io::Error::other("it is not a regular file"));
        }
        let mut piece = vec![0; PIECE_BYTES];
        let mut is_first = true;
        loop {
            let read = file.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            let mut bytes = &piece[..read];
            // A result that was shortened for want of room is kept with its status line.
            if std::mem::take(&mut is_first)
                && let Some(rest) = bytes.strip_prefix(status_line.as_bytes())
                && let Some(rest) = rest.strip_prefix(b"\n")
            {
                bytes = rest;
            }
            self.reporter.live(bytes);
        }
    }
}

impl<'r> Ended<'r> {
    fn of_call(result: &'r ToolResultRecord) -> Self {
        Self {
            id: OperationId::whole(&result.call_id),
            status: result.status,
            code: result.code.as_deref(),
            content: &result.content,
            duration_ms: result.duration_ms,
            output_file: result.output_file.as_deref(),
            title: result.title.as_deref(),
        }
    }

    fn of_operation(result: &'r OperationResultRecord) -> Self {
        Self {
            id: OperationId { call_id: result.call_id.clone(), operation: Some(result.operation) },
            status: result.status,
            code: result.code.as_deref(),
            content: &result.content,
            duration_ms: result.duration_ms,
            output_file: result.output_file.as_deref(),
            title: result.title.as_deref(),
        }
    }
}

fn is_suspended(standing: Standing) -> bool {
    matches!(standing, Standing::Left(TurnStatus::AwaitingApproval | TurnStatus::AwaitingAnswer))
}

fn is_repair(record: &Record) -> bool {
    let reason = match record {
        Record::ToolResult(result) => result.reason.as_deref(),
        Record::OperationResult(result) => result.reason.as_deref(),
        Record::Session(_)
        | Record::User(_)
        | Record::Assistant(_)
        | Record::Decision(_)
        | Record::ToolStart(_)
        | Record::CallWaiting(_)
        | Record::TurnEnd(_)
        | Record::Notice(_)
        | Record::Summary(_)
        | Record::Imported(_)
        | Record::Unknown => None,
    };
    reason == Some(REPAIR_REASON)
}
