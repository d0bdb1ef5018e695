//! `attini status`: where the session stands. Changes nothing, takes no lock, exits with 0 whatever it finds.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::opened::standing;
use crate::exit::Status;
use crate::report::event::PendingView;
use crate::report::line::{Line, Tone};
use crate::report::preview;
use crate::session::folder::SessionFolder;
use crate::session::history::{History, Standing};
use crate::session::lock::Lock;
use crate::session::log::Log;
use crate::session::pending::{Needs, PendingFile};
use crate::session::record::Usage;
use crate::turn::decisions::{ensure_fits, is_answered};

/// What a session can be found to be.
enum State {
    New,
    Locked { holder: String },
    Idle,
    Suspended(Suspended),
    Unfinished,
}

/// What a suspended turn waits for.
struct Suspended {
    pending: Vec<PendingView>,
    digest: String,
    /// Why no command would go on with this pending.json.
    conflict: Option<String>,
}

impl Suspended {
    /// How many approvals and how many answers are missing.
    fn undecided(&self) -> (usize, usize) {
        let undecided =
            |needs: Needs| self.pending.iter().filter(|view| view.needs == needs && view.decision.is_none()).count();
        (undecided(Needs::Approval), undecided(Needs::Answer))
    }
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Locked { .. } => "locked",
            Self::Idle => "idle",
            Self::Suspended(suspended) => match suspended.undecided() {
                (0, 0) => "suspended",
                (0, _) => "awaiting_answer",
                (_, _) => "awaiting_approval",
            },
            Self::Unfinished => "unfinished",
        }
    }
}

pub fn run(invocation: &Invocation) -> anyhow::Result<Status> {
    let folder = invocation.folder()?;
    let history = match &folder {
        Some(folder) => Log::read(folder)?,
        None => None,
    };
    let state = match (&folder, &history) {
        (Some(folder), Some(history)) => find_state(folder, history)?,
        (Some(folder), None) => Lock::holder(folder).map_or(State::New, |holder| State::Locked { holder }),
        (None, _) => State::New,
    };
    let history = history.unwrap_or_default();
    invocation.reporter.print(&describe(invocation, &state, &history));
    invocation.reporter.finish_command("status", Status::Completed, fields(invocation, &state, &history), None);
    Ok(Status::Completed)
}

/// The word for where a session stands, and its conversation.
pub(super) fn state_of(folder: &SessionFolder) -> anyhow::Result<Option<(&'static str, History)>> {
    let Some(history) = Log::read(folder)? else { return Ok(None) };
    let state = find_state(folder, &history)?;
    Ok(Some((state.name(), history)))
}

fn find_state(folder: &SessionFolder, history: &History) -> anyhow::Result<State> {
    if let Some(holder) = Lock::holder(folder) {
        return Ok(State::Locked { holder });
    }
    if let Some(file) = PendingFile::load(folder)?
        && !is_answered(&file, history)
    {
        let conflict = ensure_fits(&file, history).err().map(|misfit| misfit.message);
        return Ok(State::Suspended(Suspended { pending: file.waiting_views(history), digest: file.digest, conflict }));
    }
    Ok(match standing(history) {
        Standing::Finished => State::Idle,
        Standing::Unfinished => State::Unfinished,
    })
}

fn describe(invocation: &Invocation, state: &State, history: &History) -> Vec<Line> {
    let prefix = &invocation.command_prefix;
    let turn = history.turn();
    let said = match state {
        State::New => "new: no turn yet".to_owned(),
        State::Locked { holder } => format!("locked: held by {holder}"),
        State::Idle => format!("idle: turn {turn} is over"),
        State::Suspended(suspended) => match suspended.undecided() {
            (0, 0) => format!("suspended: turn {turn}, everything is decided"),
            (approvals, answers) => format!("suspended: turn {turn} waits for {}", waits_for(approvals, answers)),
        },
        State::Unfinished => match history.turn_end() {
            Some(end) => format!("unfinished: turn {turn} stopped ({})", end.status.name()),
            None => format!("unfinished: turn {turn} was broken off"),
        },
    };
    let mut lines = vec![Line::new(Tone::Heading, &format!("session {}: {said}", invocation.session))];
    if let Some(user) = history.user() {
        lines.push(Line::plain(&format!("model: {}", user.settings.model)));
        let (of_turn, of_session) = (history.spent(), history.session_usage());
        lines.push(Line::plain(&format!(
            "turn {turn}: {} rounds, {} calls, {}",
            of_turn.rounds,
            of_turn.tool_calls,
            tokens(of_turn.usage)
        )));
        lines.push(Line::plain(&format!("session: {}", tokens(of_session))));
        if let Some(round) = history.last_round() {
            lines.push(Line::plain(&format!("round {}: {}", round.assistant.round, tokens(round.assistant.usage))));
        }
        if let Some(summary) = history.summary() {
            let (turn, round) = (summary.through_turn, summary.through_round);
            lines.push(Line::plain(&format!("summarised: through round {round} of turn {turn}")));
        }
        if let Some(size) = context_tokens(history) {
            lines.push(Line::plain(&format!("context: {size} tokens at the last request")));
        }
    }
    match state {
        State::Suspended(suspended) => {
            lines.extend(broken_off(history));
            if let Some(conflict) = &suspended.conflict {
                lines.push(Line::plain(&format!("{conflict}; only a new prompt goes on from here")));
            }
            lines.push(Line::empty());
            lines.extend(preview::suspended(&suspended.pending, prefix));
            lines.push(Line::new(Tone::Dim, &format!("digest: {}", suspended.digest)));
            if suspended.pending.is_empty() {
                lines.push(Line::plain(&format!("go on: {prefix} resume")));
            }
        }
        State::Unfinished => {
            lines.extend(broken_off(history));
            lines.push(Line::plain(&format!("go on: {prefix} resume")));
        }
        State::New => lines.push(Line::plain(&format!("start: {prefix} tell PROMPT"))),
        State::Locked { .. } | State::Idle => {}
    }
    lines
}

/// The calls that a kill cut short. They wait for nothing, and have no result yet.
fn broken_off(history: &History) -> Vec<Line> {
    let started = history.open_calls().filter(|(_, progress)| progress.is_started());
    started
        .map(|(call, _)| {
            Line::plain(&format!(
                "{} was started and broken off: what came of it is unknown; it is not run again",
                call.id
            ))
        })
        .collect()
}

fn waits_for(approvals: usize, questions: usize) -> String {
    let count = |number: usize, word: &str| match number {
        1 => format!("1 {word}"),
        _ => format!("{number} {word}s"),
    };
    match (approvals, questions) {
        (approvals, 0) => count(approvals, "approval"),
        (0, questions) => count(questions, "answer"),
        (approvals, questions) => format!("{} and {}", count(approvals, "approval"), count(questions, "answer")),
    }
}

fn tokens(usage: Usage) -> String {
    format!("{} tokens in ({} cached), {} out", usage.input_tokens, usage.cached_input_tokens, usage.output_tokens)
}

/// The size of the last prompt and its reply, as the service counted them.
fn context_tokens(history: &History) -> Option<u64> {
    let usage = history.latest_round().filter(|round| !history.is_before_summary(round))?.assistant.usage;
    Some(usage.input_tokens.saturating_add(usage.output_tokens)).filter(|tokens| *tokens > 0)
}

fn fields(invocation: &Invocation, state: &State, history: &History) -> Map<String, Value> {
    let suspended = match state {
        State::Suspended(suspended) => Some(suspended),
        State::New | State::Locked { .. } | State::Idle | State::Unfinished => None,
    };
    let spent = history.spent();
    let fields = json!({
        "session": invocation.session,
        "workspace": invocation.workspace.root.shown(),
        "state": state.name(),
        "holder": match state { State::Locked { holder } => Some(holder), _ => None },
        "turn": history.turn(),
        "model": history.user().map(|user| &user.settings.model),
        "rounds": spent.rounds,
        "tool_calls": spent.tool_calls,
        "usage": spent.usage,
        "round_usage": history.last_round().map(|round| round.assistant.usage),
        "session_usage": history.session_usage(),
        "context_tokens": context_tokens(history),
        "pending": suspended.map(|suspended| suspended.pending.as_slice()).unwrap_or_default(),
        "digest": suspended.map(|suspended| &suspended.digest),
        "conflict": suspended.and_then(|suspended| suspended.conflict.as_ref()),
        "turn_end": history.turn_end().map(|end| end.status.name()),
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
