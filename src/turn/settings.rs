//! What a turn is started with, and what an explicit option of a continuation changes of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::cli::{self, TurnOptions};
use crate::config::Config;
use crate::failure::Failure;
use crate::permission::Rule;
use crate::provider::ensure_effort;
use crate::session::record::{OnAsk, TurnSettings};
use crate::tool::Limits;
use crate::turn::prompt::{SystemParts, build_system};
use crate::workspace::Workspace;

/// The largest file that is added to the system prompt.
const INSTRUCTIONS_BYTES_MAX: u64 = 256 * 1024;
/// The largest output schema.
const SCHEMA_BYTES_MAX: u64 = 1024 * 1024;
/// At least so many adjacent reads run at a time unless configured otherwise.
const CONCURRENCY_MIN: u64 = 3;

impl TurnSettings {
    /// The settings of a new turn. `deny`: the rules of `--deny`, in the order typed.
    pub fn of_new_turn(
        model: String,
        options: &TurnOptions,
        config: &Config,
        workspace: &Workspace,
        deny: Vec<Rule>,
    ) -> anyhow::Result<Self> {
        let limits = &config.limits;
        let output_schema = options.output_schema.as_deref().map(read_schema).transpose()?;
        let mut settings = Self {
            model,
            system: String::new(),
            max_rounds: limits.rounds,
            max_tool_calls: limits.tool_calls,
            max_time_s: limits.time_s,
            max_tokens: None,
            temperature: None,
            reasoning_effort: None,
            output_schema,
            command_timeout_s: limits.command_timeout_s,
            read_only: options.read_only,
            on_ask: OnAsk::Suspend,
            deny,
            calls_per_reply: limits.calls_per_reply,
            result_bytes: limits.result_bytes,
            round_result_bytes: limits.round_result_bytes,
            output_bytes: limits.output_bytes,
            trailing_reads: config.dispatch.trailing_reads,
            concurrency: concurrency(config),
            fan_out: config.fan_out(),
            tools: BTreeMap::new(),
            deferred: String::new(),
            compact_at_tokens: limits.compact_at_tokens,
        };
        settings.take_numbers(options);
        ensure_effort(&settings.model, settings.reasoning_effort.as_deref(), config)?;
        let files = instructions(config, options, workspace)?;
        settings.system = build_system(&SystemParts {
            date: &crate::clock::today(),
            trailing_reads: settings.trailing_reads,
            files: &files,
            output_schema: settings.output_schema.as_ref(),
        });
        Ok(settings)
    }

    /// What explicit options of a continuation change. The system prompt is rebuilt only where one is about it.
    pub fn override_by(&mut self, options: &TurnOptions, config: &Config, workspace: &Workspace) -> anyhow::Result<()> {
        self.take_numbers(options);
        if let Some(model) = &options.model {
            self.model.clone_from(model);
        }
        if options.model.is_some() || options.reasoning_effort.is_some() {
            ensure_effort(&self.model, self.reasoning_effort.as_deref(), config)?;
        }
        self.read_only |= options.read_only;
        if options.system.is_some() || options.output_schema.is_some() {
            if let Some(path) = &options.output_schema {
                self.output_schema = Some(read_schema(path)?);
            }
            let files = instructions(config, options, workspace)?;
            self.system = build_system(&SystemParts {
                date: &crate::clock::today(),
                trailing_reads: self.trailing_reads,
                files: &files,
                output_schema: self.output_schema.as_ref(),
            });
        }
        Ok(())
    }

    fn take_numbers(&mut self, options: &TurnOptions) {
        self.max_rounds = options.max_rounds.unwrap_or(self.max_rounds);
        self.max_tool_calls = options.max_tool_calls.unwrap_or(self.max_tool_calls);
        self.max_time_s = options.max_time.unwrap_or(self.max_time_s);
        self.max_tokens = options.max_tokens.or(self.max_tokens);
        self.temperature = options.temperature.or(self.temperature);
        self.reasoning_effort = options.reasoning_effort.clone().or_else(|| self.reasoning_effort.take());
        self.command_timeout_s = options.command_timeout.unwrap_or(self.command_timeout_s);
        self.on_ask = match options.on_ask {
            Some(cli::OnAsk::Suspend) => OnAsk::Suspend,
            Some(cli::OnAsk::Deny) => OnAsk::Deny,
            Some(cli::OnAsk::Fail) => OnAsk::Fail,
            None => self.on_ask,
        };
    }

    /// The whole system prompt, the same bytes all turn.
    pub fn system_prompt(&self) -> Cow<'_, str> {
        if self.deferred.is_empty() {
            return Cow::Borrowed(&self.system);
        }
        Cow::Owned(format!("{}\n{}", self.system, self.deferred))
    }

    /// The bounds of a tool's work.
    pub fn tool_limits(&self) -> Limits {
        Limits {
            result_bytes: self.result_bytes,
            output_bytes: self.output_bytes,
            command_timeout: Duration::from_secs(self.command_timeout_s),
        }
    }
}

pub fn concurrency(config: &Config) -> u64 {
    if config.dispatch.concurrency > 0 {
        return config.dispatch.concurrency;
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    (cores / 2).max(CONCURRENCY_MIN)
}

/// The files that config's `instructions` and `--system` name. A file that is named and cannot be read is an error: a
/// turn without its instructions would be another turn.
fn instructions(
    config: &Config,
    options: &TurnOptions,
    workspace: &Workspace,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for name in &config.instructions {
        let path = workspace.root.path().join(name);
        let text = read_text(&path, INSTRUCTIONS_BYTES_MAX, "instructions").map_err(|error| {
            Failure::of(&error).hint("config.toml names it under `instructions`: make the file, or take its name out")
        })?;
        files.push((name.clone(), text));
    }
    if let Some(path) = &options.system {
        let text = read_text(path, INSTRUCTIONS_BYTES_MAX, "--system")?;
        files.push(("Further instructions".to_owned(), text));
    }
    Ok(files)
}

fn read_schema(path: &std::path::Path) -> anyhow::Result<Value> {
    let text = read_text(path, SCHEMA_BYTES_MAX, "--output-schema")?;
    let schema: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{} is not JSON: {error}", path.display())))?;
    crate::call::validation::Schema::compile(&schema)
        .map_err(|error| Failure::usage(format!("{} is not a JSON Schema: {error}", path.display())))?;
    Ok(schema)
}

fn read_text(path: &std::path::Path, bytes_max: u64, named_by: &str) -> anyhow::Result<String> {
    use std::io::Read;
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage(format!("{named_by}: {} cannot be read: {error}", path.display())))?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{named_by}: {} cannot be read: {error}", path.display())))?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("{named_by}: {} is larger than {bytes_max} bytes", path.display());
        return Err(Failure::usage(message).into());
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{named_by}: {} is not UTF-8", path.display())))
        .context("the turn was not started")
}
