//! `attini ask`: a question about the session, answered by the model without tools. Nothing is locked or kept.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::opened::Equipment;
use super::tell::{ensure_prompt, prompt_or_stdin};
use crate::cli::{AskArguments, TurnOptions};
use crate::exit::Status;
use crate::failure::Failure;
use crate::mask;
use crate::provider::{Finish, Message, Progress, ProviderError, Reply, Request, ResultMessage};
use crate::report::event::Event;
use crate::session::folder::SessionFolder;
use crate::session::history::History;
use crate::session::log::Log;
use crate::session::record::TurnSettings;
use crate::turn::compaction::BYTES_PER_TOKEN;
use crate::turn::images::Images;
use crate::turn::prompt::build_messages;
use crate::turn::transcript::{SYSTEM, render_transcript};

/// In place of the results of calls that have none yet.
const NO_RESULT: &str = "(There is no result yet.)";
/// What is sent of the conversation where it goes as text, and nothing is known of what the model takes.
const TRANSCRIPT_BYTES_MAX: u64 = 1024 * 1024;

pub fn run(invocation: &Invocation, arguments: &AskArguments) -> anyhow::Result<Status> {
    let question = prompt_or_stdin(arguments.question.as_deref())?;
    ensure_prompt(&question)?;
    let session = &invocation.session;
    let none = || Failure::new(Status::NothingPending, format!("the session {session} does not exist"));
    let folder = invocation.folder()?.ok_or_else(none)?;
    let history = Log::read(&folder)?.ok_or_else(none)?;
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let mut settings: TurnSettings = history.user().map(|user| user.settings.clone()).unwrap_or_default();
    let options = TurnOptions { model: arguments.model.clone(), ..TurnOptions::default() };
    settings.override_by(&options, &config, &invocation.workspace)?;
    let deny = settings.deny.clone();
    let equipment = Equipment::of(invocation, Some(&folder), history.turn(), &deny, settings, &config, &trust)?;
    invocation.interrupt.end_in_order();
    let reply = answer(invocation, &equipment, &folder, &history, &mask::apply(&question));
    let Equipment { connected, servers, .. } = equipment;
    servers.end();
    let reply = reply.map_err(|error| Failure::of_provider(error, &invocation.interrupt))?;
    ensure_answered(&reply, &connected.provider_name)?;
    if reply.finish == Finish::Length {
        invocation.reporter.warning("the answer was cut at the limit of the reply's length");
    }
    let usage = reply.usage;
    invocation.reporter.answer(&reply.text);
    invocation.reporter.remark(&format!(
        "{} tokens in ({} cached), {} out",
        usage.input_tokens, usage.cached_input_tokens, usage.output_tokens
    ));
    let fields = json!({
        "session": session,
        "model": format!("{}/{}", connected.provider_name, connected.model_name),
        "text": mask::apply(&reply.text),
        "finish_reason": reply.finish_reason,
        "usage": usage,
    });
    let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
    invocation.reporter.finish_command("ask", Status::Completed, fields, None);
    Ok(Status::Completed)
}

/// Asks with the conversation as it was sent before; as a text where the service does not take that, or answered with
/// nothing but calls.
fn answer(
    invocation: &Invocation,
    equipment: &Equipment,
    folder: &SessionFolder,
    history: &History,
    question: &str,
) -> Result<Reply, ProviderError> {
    let connected = &equipment.connected;
    let messages = whole_messages(history, Images::of(folder, connected.takes_images));
    if connected.takes_no_choice {
        let mut messages = messages.clone();
        let text = format!(
            "[A question on the side. Answer it from what you know, in plain text; make no calls.]\n\n{question}"
        );
        messages.push(Message::User { text });
        let tools = equipment.registry.advertised();
        let system = equipment.settings.system_prompt();
        let request = Request { system: &system, messages: &messages, tools: &tools, ..request(equipment, history) };
        let reply = complete(invocation, equipment, &request);
        let has_text = reply.as_ref().is_ok_and(|reply| !reply.text.trim().is_empty());
        if has_text || reply.as_ref().is_err_and(|error| error.interrupted || error.retryable) {
            return reply;
        }
    }
    let bytes = connected.context_tokens.map_or(TRANSCRIPT_BYTES_MAX, |tokens| tokens * BYTES_PER_TOKEN / 2);
    let transcript = render_transcript(&messages, usize::try_from(bytes).unwrap_or(usize::MAX));
    let messages = [Message::User { text: format!("{transcript}\n\n# Question\n{question}") }];
    let request = Request { system: SYSTEM, messages: &messages, tools: &[], ..request(equipment, history) };
    complete(invocation, equipment, &request)
}

/// What every form of the request has.
fn request<'a>(equipment: &'a Equipment, history: &History) -> Request<'a> {
    let settings = &equipment.settings;
    Request {
        model: &equipment.connected.model_name,
        max_tokens: settings.max_tokens,
        temperature: settings.temperature,
        reasoning_effort: settings.reasoning_effort.as_deref(),
        output_schema: None,
        tool_choice_none: true,
        replies_before: history.reply_count(),
        ..Request::default()
    }
}

fn complete(invocation: &Invocation, equipment: &Equipment, request: &Request<'_>) -> Result<Reply, ProviderError> {
    equipment.connected.provider.complete(request, &invocation.interrupt, &mut |progress| {
        // The answer is shown once it is whole: until then it may turn out to be asked for again.
        if let Progress::Retrying { attempt, delay_ms, reason } = progress {
            let event = Event::Retrying { attempt, delay_ms, reason: reason.to_owned() };
            invocation.reporter.tell(None, &event);
        }
    })
}

/// The conversation in which every call has a result, if only one that says that there is none yet.
fn whole_messages(history: &History, images: Images<'_>) -> Vec<Message> {
    let mut messages = Vec::new();
    for message in build_messages(history, images) {
        match message {
            Message::Assistant(assistant) => {
                let results = assistant.tool_calls.iter().map(|call| ResultMessage {
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    content: NO_RESULT.to_owned(),
                    is_error: false,
                    images: Vec::new(),
                });
                let results: Vec<ResultMessage> = results.collect();
                messages.push(Message::Assistant(assistant));
                if !results.is_empty() {
                    messages.push(Message::Results(results));
                }
            }
            Message::Results(recorded) => {
                let Some(Message::Results(results)) = messages.last_mut() else { continue };
                for result in results {
                    if let Some(known) = recorded.iter().find(|known| known.call_id == result.call_id) {
                        result.clone_from(known);
                    }
                }
            }
            Message::User { text } => messages.push(Message::User { text }),
        }
    }
    messages
}

fn ensure_answered(reply: &Reply, provider: &str) -> Result<(), Failure> {
    let failed = |what: &str| Err(Failure::new(Status::ProviderError, format!("{provider} {what}")));
    match reply.finish {
        Finish::Refusal => failed("refused to answer"),
        Finish::ContentFilter => failed("filtered its answer"),
        _ if reply.text.trim().is_empty() => failed("sent no text"),
        Finish::End | Finish::Length | Finish::Pause | Finish::Unfamiliar => Ok(()),
    }
}
