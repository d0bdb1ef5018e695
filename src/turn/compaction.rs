//! Long conversations: older rounds are summarised by the model, between two rounds, and only over closed pairs.
//!
//! Nothing is removed from the log: a `summary` record says up to where it stands for what came before. Here is when
//! that is done, how far it reaches, and the request; what such a record carries over is the history's business.

use super::Turn;
use super::images::Images;
use super::prompt::{build_messages, build_messages_of};
use super::rounds::Ending;
use super::transcript::{SYSTEM, render_transcript};
use crate::clock;
use crate::mask;
use crate::provider::trouble::CONTEXT_OVERFLOW;
use crate::provider::{AdvertisedTool, Finish, Message, Progress, ProviderError, Reply, Request, cut};
use crate::report::event::Event;
use crate::session::history::{Entry, History, Round, Standing};
use crate::session::record::{Record, SummaryRecord, Usage};

/// What is kept of a summary.
const SUMMARY_BYTES_MAX: usize = 256 * 1024;
/// A summary as short as this is taken, even of less.
const SUMMARY_BYTES_UNQUESTIONED: usize = 8 * 1024;
/// How many bytes make a token, about.
pub const BYTES_PER_TOKEN: u64 = 4;
/// What stays as it is of a conversation that grew too long: this part of what it may be, of the most recent rounds.
const KEPT_PART: u64 = 4;
/// What a person who asks for a summary is left with of it, however much the model takes.
const KEPT_TOKENS_MAX: u64 = 16 * 1024;
/// What is sent at most where the history goes as text.
const TRANSCRIPT_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// What is sent at least, however small the model.
const TRANSCRIPT_BYTES_MIN: u64 = 8 * 1024;

/// A summary may take so many tokens, however short the turn's replies are to be.
const SUMMARY_TOKENS_MIN: u64 = 2048;

const INSTRUCTION: &str = "[Not from the user: this conversation has grown long. Everything up to here will be replaced by a summary, and you \
     will go on from that alone. Write it now, as plain text, and make no calls. Keep what the user asked for and every \
     condition they set; what was decided, and why; each file that matters, with its path and what is in it that will be \
     needed; which commands were run and what came of them; what failed; what is done, what is left to do, and the next \
     step. Quote names, paths, numbers and error messages exactly. Leave out what no longer matters.]";

/// What a summary came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub through_turn: u64,
    pub through_round: u64,
    /// Of the next request, as estimated before and after.
    pub tokens_before: u64,
    pub tokens_after: u64,
    pub usage: Usage,
}

/// What a summary leaves as it is.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// Of the most recent rounds.
    tokens: u64,
    /// Also the last round, if the model has not been sent its results.
    unseen: bool,
}

/// Why there is none.
#[derive(Debug)]
pub enum NotCompacted {
    /// There is nothing that a summary could stand for.
    Nothing,
    Interrupted,
    Failed(ProviderError),
}

/// How the model is shown what it is to summarise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it was sent before, so that what the service kept of it serves.
    Conversation,
    /// As one text without tools, cut to so many bytes.
    Text { bytes_max: u64 },
}

impl Turn<'_> {
    /// Summarises older rounds if the next request would be longer than it may be.
    pub(super) fn compact_when_long(&mut self) -> anyhow::Result<Option<Ending>> {
        let Some(limit) = self.compact_at_tokens() else { return Ok(None) };
        let tokens = self.prompt_tokens();
        if tokens <= limit {
            return Ok(None);
        }
        if self.has_failed_to_summarise {
            return Ok(None);
        }
        let kept = Kept { tokens: limit / KEPT_PART, unseen: self.has_room_for_unseen(limit) };
        let Some(count) = choose_border(self.history(), kept) else { return Ok(None) };
        // Where prompt and system prompt alone are too long, a summary of little is no help, and costs a request.
        if entries_tokens(&self.history().entries()[..count]) < limit / KEPT_PART {
            return Ok(None);
        }
        match self.compact(count, tokens, false)? {
            // It was only a precaution: the next request may well be taken as it is.
            Err(NotCompacted::Failed(error)) => {
                self.has_failed_to_summarise = true;
                self.warn(format!("older rounds are not summarised: {}", error.message));
                Ok(None)
            }
            other => Ok(other.err().map(|failure| self.ending_of(failure))),
        }
    }

    /// Summarises older rounds because the service would not take the request.
    pub(super) fn compact_after_overflow(&mut self, mut error: ProviderError) -> anyhow::Result<Option<Ending>> {
        let tokens = self.prompt_tokens();
        let known = self.compact_at_tokens().unwrap_or(tokens).min(tokens);
        let kept = Kept { tokens: known / KEPT_PART, unseen: self.has_room_for_unseen(known / 2) };
        let Some(count) = choose_border(self.history(), kept) else {
            error.hint = Some("there is nothing left to summarise; send a shorter prompt".to_owned());
            return Ok(Some(Ending::Provider(error)));
        };
        Ok(self.compact(count, tokens, true)?.err().map(|failure| self.ending_of(failure)))
    }

    /// Summarises older rounds, however long the conversation is.
    pub fn compact_now(&mut self) -> anyhow::Result<Result<Compacted, NotCompacted>> {
        let tokens = self.prompt_tokens();
        let long = entries_tokens(self.history().entries()).min(self.compact_at_tokens().unwrap_or(u64::MAX));
        let kept = (long / KEPT_PART).min(KEPT_TOKENS_MAX);
        match choose_border(self.history(), Kept { tokens: kept, unseen: false }) {
            Some(count) => self.compact(count, tokens, false),
            None => Ok(Err(NotCompacted::Nothing)),
        }
    }

    fn ending_of(&self, failure: NotCompacted) -> Ending {
        match failure {
            NotCompacted::Failed(error) => Ending::Provider(error),
            NotCompacted::Interrupted | NotCompacted::Nothing => self.interrupted(),
        }
    }

    /// The length at which older rounds are summarised; `None` where it is not known.
    fn compact_at_tokens(&self) -> Option<u64> {
        match self.settings.compact_at_tokens {
            0 => self.connected.context_tokens.map(|tokens| tokens / 4 * 3),
            tokens => Some(tokens),
        }
    }

    /// How long the next request will be, about.
    fn prompt_tokens(&self) -> u64 {
        estimate_prompt(self.history(), self.fixed_bytes())
    }

    /// Of system prompt and tools.
    fn fixed_bytes(&self) -> u64 {
        let tools: usize = self.registry.advertised().iter().map(tool_bytes).sum();
        (self.settings.system_prompt().len() + tools) as u64
    }

    /// Whether what the model has not been sent yet can stay as it is, and the next request still be so short.
    fn has_room_for_unseen(&self, tokens: u64) -> bool {
        let entries = self.history().entries();
        let unseen = &entries[entries.len() - uncoverable(self.history(), true)..];
        self.fixed_bytes() / BYTES_PER_TOKEN + entries_tokens(unseen) <= tokens
    }

    /// Has the first `count` entries summarised, and puts the summary on disk before it tells of it.
    fn compact(
        &mut self,
        count: usize,
        tokens_before: u64,
        overflows: bool,
    ) -> anyhow::Result<Result<Compacted, NotCompacted>> {
        self.log.barrier()?;
        let messages = build_messages_of(self.history(), count, Images::of(self.folder, self.connected.takes_images));
        let reply = match self.summary_of(&messages, tokens_before, overflows) {
            Ok(reply) => reply,
            Err(error) if error.interrupted => return Ok(Err(NotCompacted::Interrupted)),
            Err(error) => return Ok(Err(NotCompacted::Failed(error))),
        };
        if reply.finish == Finish::Length {
            self.warn("the summary of older rounds was cut at the limit of the reply's length");
        }
        let text = mask::apply(reply.text.trim()).into_owned();
        let replaced = entries_tokens(&self.history().entries()[..count]).saturating_mul(BYTES_PER_TOKEN);
        if text.len() > SUMMARY_BYTES_UNQUESTIONED && text.len() as u64 > replaced {
            let what = "wrote more than what the summary would stand for";
            return Ok(Err(NotCompacted::Failed(self.no_summary(what, true))));
        }
        if text.len() > SUMMARY_BYTES_MAX {
            self.warn(format!("of the summary of older rounds {SUMMARY_BYTES_MAX} of {} bytes are kept", text.len()));
        }
        let border = self.history().border(count);
        self.log.append(&Record::Summary(Box::new(SummaryRecord {
            at: clock::now(),
            text: cut(&text, SUMMARY_BYTES_MAX).to_owned(),
            provider: self.connected.provider_name.clone(),
            model: self.connected.model_name.clone(),
            usage: reply.usage,
            through_turn: border.through_turn,
            through_round: border.through_round,
            through_offset: border.through_offset,
            covered: border.covered,
        })))?;
        self.log.barrier()?;
        let compacted = Compacted {
            through_turn: border.through_turn,
            through_round: border.through_round,
            tokens_before,
            tokens_after: self.prompt_tokens(),
            usage: reply.usage,
        };
        self.reporter.tell(Some(self.history().turn()), &Event::Compacted(compacted));
        Ok(Ok(compacted))
    }

    /// Asks for a summary: of the conversation as it was sent, or, where that brings no text, of a text of it.
    fn summary_of(&self, messages: &[Message], tokens: u64, overflows: bool) -> Result<Reply, ProviderError> {
        let text = Form::Text { bytes_max: self.transcript_bytes(tokens, overflows) };
        let first = if overflows || !self.connected.takes_no_choice { text } else { Form::Conversation };
        let mut reply = self.ask_for_summary(messages, first);
        let again = match &reply {
            Ok(reply) => reply.text.trim().is_empty(),
            Err(error) => !error.interrupted && !error.retryable,
        };
        if again && first == Form::Conversation {
            reply = self.ask_for_summary(messages, Form::Text { bytes_max: self.transcript_bytes(tokens, true) });
        }
        // Who does not say how much the model takes is asked with less and less.
        let mut bytes_max = self.transcript_bytes(tokens, true);
        while reply.as_ref().is_err_and(|error| error.code == CONTEXT_OVERFLOW) && bytes_max > TRANSCRIPT_BYTES_MIN {
            bytes_max = (bytes_max / 4).max(TRANSCRIPT_BYTES_MIN);
            reply = self.ask_for_summary(messages, Form::Text { bytes_max });
        }
        let reply = reply?;
        match reply.finish {
            Finish::Refusal | Finish::ContentFilter => Err(self.no_summary("refused", false)),
            _ if reply.text.trim().is_empty() => Err(self.no_summary("sent no text", true)),
            Finish::End | Finish::Length | Finish::Pause | Finish::Unfamiliar => Ok(reply),
        }
    }

    fn no_summary(&self, what: &str, retryable: bool) -> ProviderError {
        ProviderError {
            code: "no_summary".to_owned(),
            message: format!("{} was asked to summarise older rounds, and {what}", self.connected.provider_name),
            hint: Some("nothing was changed".to_owned()),
            retryable,
            interrupted: false,
        }
    }

    /// How much text the model takes for certain. Where it refused the conversation, that is half of it at most.
    fn transcript_bytes(&self, tokens: u64, overflows: bool) -> u64 {
        let of_context = self.connected.context_tokens.map_or(u64::MAX, |context| context.saturating_mul(2));
        let of_refused = if overflows { tokens.saturating_mul(BYTES_PER_TOKEN) / 2 } else { u64::MAX };
        of_context.min(of_refused).clamp(TRANSCRIPT_BYTES_MIN, TRANSCRIPT_BYTES_MAX)
    }

    fn ask_for_summary(&self, messages: &[Message], form: Form) -> Result<Reply, ProviderError> {
        let (system, messages, tools) = match form {
            Form::Conversation => {
                let mut messages = messages.to_vec();
                messages.push(Message::User { text: INSTRUCTION.to_owned() });
                (self.settings.system_prompt(), messages, self.registry.advertised())
            }
            Form::Text { bytes_max } => {
                let transcript = render_transcript(messages, usize::try_from(bytes_max).unwrap_or(usize::MAX));
                let text = format!("{transcript}\n\n{INSTRUCTION}");
                (SYSTEM.into(), vec![Message::User { text }], Vec::new())
            }
        };
        let request = Request {
            model: &self.connected.model_name,
            system: &system,
            messages: &messages,
            tools: &tools,
            max_tokens: self.settings.max_tokens.map(|tokens| tokens.max(SUMMARY_TOKENS_MIN)),
            temperature: self.settings.temperature,
            reasoning_effort: self.settings.reasoning_effort.as_deref(),
            output_schema: None,
            tool_choice_none: true,
            replies_before: self.history().reply_count(),
        };
        let turn = self.history().turn();
        self.connected.provider.complete(&request, self.interrupt, &mut |progress| match progress {
            // Its words are no answer, so that nobody waits for them.
            Progress::Text(_) | Progress::Reasoning(_) => {}
            Progress::Retrying { attempt, delay_ms, reason } => {
                let event = Event::Retrying { attempt, delay_ms, reason: reason.to_owned() };
                self.reporter.tell(Some(turn), &event);
            }
        })
    }
}

/// Whether the service said that the request is longer than it takes.
pub(super) fn is_overflow(error: &ProviderError) -> bool {
    error.code == CONTEXT_OVERFLOW
}

/// How many of the entries to summarise, so that what is left of them has at most that many tokens; if that cannot be,
/// as many as can be. `None`: not one reply more than is summarised already.
fn choose_border(history: &History, kept: Kept) -> Option<usize> {
    let end = history.entries().len() - uncoverable(history, kept.unseen);
    let mut borders = history.borders();
    borders.retain(|count| *count <= end);
    // From behind, so that each entry is counted once.
    let (mut kept_bytes, mut counted) = (0, history.entries().len());
    let fits = |count: &usize| {
        kept_bytes += history.entries()[*count..counted].iter().map(entry_bytes).sum::<usize>();
        counted = *count;
        kept_bytes as u64 / BYTES_PER_TOKEN <= kept.tokens
    };
    let smallest = borders.iter().rev().copied().take_while(fits).last();
    smallest.or(borders.last().copied())
}

/// How many of the last entries stay in any case: a prompt without a reply, answers that are to be continued or
/// corrected, and, with `unseen`, a round whose results the model has not been sent.
fn uncoverable(history: &History, unseen: bool) -> usize {
    let is_open = history.standing(|_, _| false) == Standing::Unfinished;
    if !is_open {
        return 0;
    }
    let turn = history.turn();
    let mut rounds_with_calls = 0;
    let stays = |entry: &&Entry| match entry {
        Entry::User(user) => user.turn == turn,
        Entry::Round(round) if round.assistant.tool_calls.is_empty() => round.assistant.turn == turn,
        Entry::Round(round) => {
            rounds_with_calls += 1;
            unseen && rounds_with_calls == 1 && round.assistant.turn == turn
        }
        Entry::Notice(_) => true,
    };
    history.entries().iter().rev().take_while(stays).count()
}

/// The length of the next request: what the service counted of the last one, and an estimate of what came since; or an
/// estimate of all of it, with `fixed_bytes` of system prompt and tools.
fn estimate_prompt(history: &History, fixed_bytes: u64) -> u64 {
    let counted = history.latest_round().filter(|round| !history.is_before_summary(round));
    let Some(round) = counted.filter(|round| round.assistant.usage.input_tokens > 0) else {
        let bytes: usize = build_messages(history, Images::none()).iter().map(message_bytes).sum();
        return (fixed_bytes + bytes as u64) / BYTES_PER_TOKEN;
    };
    let usage = round.assistant.usage;
    let behind = history.entries().iter().rev().take_while(|entry| !matches!(entry, Entry::Round(_)));
    let since: usize = behind.map(entry_bytes).sum::<usize>() + results_bytes(round);
    usage.input_tokens.saturating_add(usage.output_tokens).saturating_add(since as u64 / BYTES_PER_TOKEN)
}

fn entries_tokens(entries: &[Entry]) -> u64 {
    entries.iter().map(entry_bytes).sum::<usize>() as u64 / BYTES_PER_TOKEN
}

fn entry_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::User(user) => user.text.len(),
        Entry::Notice(notice) => notice.text.len(),
        Entry::Round(round) => {
            let calls = round.assistant.tool_calls.iter();
            let calls: usize = calls.map(|call| call.name.len() + call.arguments.len()).sum();
            round.assistant.text.len() + round.assistant.reasoning.len() + calls + results_bytes(round)
        }
    }
}

fn results_bytes(round: &Round) -> usize {
    round.calls.iter().filter_map(|call| call.result.as_ref()).map(|result| result.content.len()).sum()
}

fn message_bytes(message: &Message) -> usize {
    match message {
        Message::User { text } => text.len(),
        Message::Assistant(message) => {
            let calls = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            message.text.len() + message.reasoning.len() + calls.sum::<usize>()
        }
        Message::Results(results) => results.iter().map(|result| result.content.len()).sum(),
    }
}

fn tool_bytes(tool: &AdvertisedTool) -> usize {
    tool.name.len() + tool.description.len() + tool.parameters.to_string().len()
}
