//! The loop of rounds: a request, a reply on disk, its calls answered, the next request; until an ending.

use super::Turn;
use super::compaction::is_overflow;
use super::dispatch::{Dispatched, WouldAsk};
use super::images::Images;
use super::prompt::{build_messages, violations};
use crate::call::proposed::take_in;
use crate::clock;
use crate::exit::Signal;
use crate::interrupt::Cause;
use crate::mask;
use crate::provider::{Finish, Progress, ProviderError, Reply, Request};
use crate::report::event::Event;
use crate::session::pending::PendingFile;
use crate::session::record::{AssistantRecord, Record};

/// How an invocation leaves its turn.
#[derive(Debug)]
pub enum Ending {
    /// With the assistant's answer.
    Completed,
    Suspended(PendingFile),
    /// `--on-ask fail`.
    WouldAsk(WouldAsk),
    Provider(ProviderError),
    Limit(Limit),
    Interrupted(Signal),
}

/// Which limit a turn reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Rounds,
    ToolCalls,
    Time,
    /// Of the reply's length.
    Tokens,
}

impl Limit {
    /// As `turn_end` records it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rounds => "rounds",
            Self::ToolCalls => "tool_calls",
            Self::Time => "time",
            Self::Tokens => "tokens",
        }
    }
}

/// How often the model is asked again when its final text does not fit the output schema.
const SCHEMA_RETRIES_MAX: usize = 2;

impl Turn<'_> {
    /// Runs rounds until the turn ends. `pending`: the decisions to carry out first.
    pub fn go_on(&mut self, pending: Option<&PendingFile>) -> anyhow::Result<Ending> {
        if let Some(ending) = self.answer_calls(pending)? {
            return Ok(ending);
        }
        loop {
            if let Some(ending) = self.ending_before_request() {
                return Ok(ending);
            }
            if let Some(ending) = self.compact_when_long()? {
                return Ok(ending);
            }
            if let Some(ending) = self.request()? {
                return Ok(ending);
            }
            if let Some(ending) = self.answer_calls(None)? {
                return Ok(ending);
            }
            if let Some(ending) = self.ending_of_reply() {
                return Ok(ending);
            }
        }
    }

    fn answer_calls(&mut self, pending: Option<&PendingFile>) -> anyhow::Result<Option<Ending>> {
        let dispatched = self.dispatch(pending)?;
        Ok(match dispatched {
            Dispatched::Answered => {
                if pending.is_some() {
                    // What strand mode left open is repaired once, before pending.json goes.
                    self.repair(|_| false)?;
                    self.log.barrier()?;
                    PendingFile::remove(self.folder)?;
                }
                None
            }
            Dispatched::Suspended(file) => Some(Ending::Suspended(file)),
            Dispatched::WouldAsk(asked) => {
                if pending.is_some() {
                    self.repair(|_| false)?;
                    self.log.barrier()?;
                    PendingFile::remove(self.folder)?;
                }
                Some(Ending::WouldAsk(asked))
            }
            Dispatched::Interrupted => Some(self.interrupted()),
        })
    }

    /// What ends the turn before the next request goes out.
    fn ending_before_request(&self) -> Option<Ending> {
        let spent = self.spent_of_limits();
        if self.interrupt.is_raised() {
            return Some(self.interrupted());
        }
        let time_ms = self.settings.max_time_s.saturating_mul(1000);
        if time_ms > 0 && spent.elapsed_ms >= time_ms {
            return Some(Ending::Limit(Limit::Time));
        }
        if spent.tool_calls > self.settings.max_tool_calls {
            return Some(Ending::Limit(Limit::ToolCalls));
        }
        if spent.rounds >= self.settings.max_rounds {
            return Some(Ending::Limit(Limit::Rounds));
        }
        None
    }

    pub(super) fn interrupted(&self) -> Ending {
        match self.interrupt.cause() {
            Some(Cause::Signal(signal)) => Ending::Interrupted(signal),
            Some(Cause::TimeLimit | Cause::Cancelled) | None => Ending::Limit(Limit::Time),
        }
    }

    /// Asks the model and records its reply. A reply with neither text nor calls is asked for once more.
    fn request(&mut self) -> anyhow::Result<Option<Ending>> {
        self.ensure_every_call_answered();
        self.log.barrier()?;
        let round = self.history().next_round();
        let turn = self.history().turn();
        self.reporter.tell(Some(turn), &Event::RoundStarted { round });
        let (mut empty_replies, mut compacted) = (0, false);
        let reply = loop {
            let reply = match self.complete() {
                Ok(reply) => reply,
                Err(error) if error.interrupted => return Ok(Some(self.interrupted())),
                Err(error) if is_overflow(&error) && !compacted => {
                    compacted = true;
                    match self.compact_after_overflow(error)? {
                        Some(ending) => return Ok(Some(ending)),
                        None => continue,
                    }
                }
                Err(error) => return Ok(Some(Ending::Provider(error))),
            };
            let empty = reply.tool_calls.is_empty() && reply.text.trim().is_empty();
            if !empty || matches!(reply.finish, Finish::Refusal | Finish::ContentFilter | Finish::Pause) {
                break reply;
            }
            empty_replies += 1;
            if empty_replies > 1 {
                return Ok(Some(Ending::Provider(self.empty_reply())));
            }
            let event =
                Event::Retrying { attempt: 2, delay_ms: 0, reason: "the reply held neither text nor calls".to_owned() };
            self.reporter.tell(Some(turn), &event);
        };
        self.record(reply, round)?;
        Ok(None)
    }

    fn complete(&self) -> Result<Reply, ProviderError> {
        let turn = self.history().turn();
        let images = Images::of(self.folder, self.connected.takes_images);
        let messages = build_messages(self.history(), images);
        let tools = self.registry.advertised();
        let system = self.settings.system_prompt();
        let request = Request {
            model: &self.connected.model_name,
            system: &system,
            messages: &messages,
            tools: &tools,
            max_tokens: self.settings.max_tokens,
            temperature: self.settings.temperature,
            reasoning_effort: self.settings.reasoning_effort.as_deref(),
            output_schema: self.settings.output_schema.as_ref(),
            tool_choice_none: false,
            replies_before: self.history().reply_count(),
        };
        self.connected.provider.complete(&request, self.interrupt, &mut |progress| {
            let event = match progress {
                Progress::Text(text) => Event::TextDelta { text: text.to_owned() },
                Progress::Reasoning(text) => Event::ReasoningDelta { text: text.to_owned() },
                Progress::Retrying { attempt, delay_ms, reason } => {
                    Event::Retrying { attempt, delay_ms, reason: reason.to_owned() }
                }
            };
            self.reporter.tell(Some(turn), &event);
        })
    }

    fn record(&mut self, reply: Reply, round: u64) -> anyhow::Result<()> {
        if reply.finish == Finish::Unfamiliar {
            self.warn(format!("the service ended its reply with {:?}, taken as an end", reply.finish_reason));
        }
        let mut sent = reply.tool_calls;
        for call in &mut sent {
            // A masked id is no valid one, so intake makes another.
            call.id = mask::apply(&call.id).into_owned();
            call.name = mask::apply(&call.name).into_owned();
        }
        let mut tool_calls = take_in(sent, self.history(), round);
        for call in &mut tool_calls {
            call.arguments = mask::json_text(&call.arguments).into_owned();
        }
        self.log.append(&Record::Assistant(AssistantRecord {
            turn: self.history().turn(),
            round,
            at: clock::now(),
            provider: self.connected.provider_name.clone(),
            model: self.connected.model_name.clone(),
            text: mask::apply(&reply.text).into_owned(),
            reasoning: mask::apply(&reply.reasoning).into_owned(),
            tool_calls,
            finish_reason: mask::apply(&reply.finish_reason).into_owned(),
            usage: reply.usage,
            opaque: reply.opaque,
        }))?;
        Ok(())
    }

    fn empty_reply(&self) -> ProviderError {
        ProviderError {
            code: "empty_reply".to_owned(),
            message: format!("{} sent a reply with neither text nor calls, twice", self.connected.provider_name),
            hint: Some("`attini resume` asks again".to_owned()),
            retryable: true,
            interrupted: false,
        }
    }

    /// What the reply just recorded means for the turn, its calls being answered.
    fn ending_of_reply(&mut self) -> Option<Ending> {
        let round = self.history().last_round()?;
        if !round.assistant.tool_calls.is_empty() {
            return None;
        }
        let provider = &round.assistant.provider;
        let refused = |what: &str| {
            let said = if round.assistant.text.is_empty() { "" } else { "; its words are in the conversation" };
            Ending::Provider(ProviderError {
                code: what.replace(' ', "_"),
                message: format!("{provider} ended the reply with a {what}{said}"),
                hint: Some("put the request in other words with `attini tell`".to_owned()),
                retryable: false,
                interrupted: false,
            })
        };
        match Finish::of(&round.assistant.finish_reason) {
            Finish::Length => Some(Ending::Limit(Limit::Tokens)),
            Finish::Refusal => Some(refused("refusal")),
            Finish::ContentFilter => Some(refused("content filter")),
            Finish::Pause => None,
            Finish::End | Finish::Unfamiliar => {
                let found = violations(self.settings.output_schema.as_ref(), &round.assistant.text);
                if found.is_empty() {
                    return Some(Ending::Completed);
                }
                let tries = self.trailing_answers();
                if tries <= SCHEMA_RETRIES_MAX {
                    self.warn(format!("the answer does not fit the output schema: {}", found.join("; ")));
                    return None;
                }
                Some(Ending::Provider(ProviderError {
                    code: "output_schema".to_owned(),
                    message: format!("the answer does not fit the output schema: {}", found.join("; ")),
                    hint: Some("`attini resume` lets the model try again".to_owned()),
                    retryable: true,
                    interrupted: false,
                }))
            }
        }
    }

    /// How many replies in a row, up to the latest, were answers without calls.
    fn trailing_answers(&self) -> usize {
        let turn = self.history().turn();
        let rounds = self.history().rounds().rev();
        rounds.take_while(|round| round.assistant.turn == turn && round.assistant.tool_calls.is_empty()).count()
    }

    /// The invariant before every request.
    fn ensure_every_call_answered(&self) {
        let open: Vec<&str> = self.history().open_calls().map(|(call, _)| call.id.as_str()).collect();
        assert!(open.is_empty(), "calls without a result before a request: {}", open.join(", "));
    }
}
