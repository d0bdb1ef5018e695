//! `attini models`: what a provider offers.

use serde_json::{Map, Value, json};

use super::invocation::Invocation;
use super::tell::choose_model;
use crate::cli::ModelsArguments;
use crate::config::Config;
use crate::exit::Status;
use crate::failure::Failure;
use crate::provider::{self, Progress};
use crate::report::event::Event;
use crate::report::line::{Line, Tone};
use crate::session::log::Log;

pub fn run(invocation: &Invocation, arguments: &ModelsArguments) -> anyhow::Result<Status> {
    let trust = invocation.trust()?;
    let config = invocation.trusted_config(&trust)?.config;
    let provider = match &arguments.provider {
        Some(provider) => provider.clone(),
        None => provider_in_use(invocation, &config)?,
    };
    let connected = provider::connect_to_list(&provider, &config, &invocation.workspace)?;
    invocation.interrupt.end_in_order();
    let listed = connected.provider.models(&invocation.interrupt, &mut |progress| {
        if let Progress::Retrying { attempt, delay_ms, reason } = progress {
            let event = Event::Retrying { attempt, delay_ms, reason: reason.to_owned() };
            invocation.reporter.tell(None, &event);
        }
    });
    let models = listed.map_err(|error| Failure::of_provider(error, &invocation.interrupt))?;
    let width = models.iter().map(|model| provider.len() + 1 + model.id.chars().count()).max().unwrap_or_default();
    let mut lines = Vec::new();
    let mut listed = Vec::new();
    for model in &models {
        let name = format!("{provider}/{}", model.id);
        let context = model.context_tokens.or_else(|| provider::known_context_tokens(&provider, &model.id, &config));
        let tokens = context.map(|tokens| format!("{tokens} tokens"));
        let more: Vec<&str> = tokens.iter().chain(&model.name).map(String::as_str).collect();
        lines.push(Line::plain(format!("{name:width$}  {}", more.join("  ")).trim_end()));
        listed.push(json!({"model": name, "name": model.name, "context_tokens": context}));
    }
    invocation.reporter.print(&lines);
    if models.is_empty() {
        invocation.reporter.notice(&[Line::new(Tone::Plain, &format!("{provider} offers no models"))]);
    }
    let mut fields = Map::new();
    fields.insert("provider".to_owned(), Value::from(provider));
    fields.insert("models".to_owned(), Value::from(listed));
    invocation.reporter.finish_command("models", Status::Completed, fields, None);
    Ok(Status::Completed)
}

/// The provider that the next turn would use.
fn provider_in_use(invocation: &Invocation, config: &Config) -> anyhow::Result<String> {
    let history = match invocation.folder()? {
        Some(folder) => Log::read(&folder)?,
        None => None,
    };
    let model = choose_model(invocation, None, config, history.as_ref())?;
    Ok(model.split_once('/').map_or(model.clone(), |(provider, _)| provider.to_owned()))
}
