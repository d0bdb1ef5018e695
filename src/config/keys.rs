//! The keys of `config.toml`: what each takes, and what a wrong one meant.
//!
//! One file is laid over what is set already; which files there are and whether they may count is decided in
//! [`super::layers`] and [`super::trust`].

mod own_tool;
mod reader;

use std::ops::RangeInclusive;

use anyhow::Result;

use self::reader::{Reader, Table};
use super::nearest::suggestion;
use super::{Api, Config, Defer, FanOutConfig, LimitsConfig, McpConfig, ProviderConfig, Run, ToolConfig};
use crate::session::record::{OnError, TrailingReads};

/// A larger config file is refused.
pub const CONFIG_BYTES_MAX: u64 = 1024 * 1024;

/// The longest name of an MCP server: the names of its tools begin with it.
const SERVER_NAME_BYTES_MAX: usize = 32;

const COUNT_MAX: u64 = 1_000_000;
const SECONDS_MAX: u64 = 366 * 24 * 60 * 60;
/// No whole answer is waited for any longer.
const IDLE_SECONDS_MAX: u64 = 3600;
const TOKENS_MAX: u64 = 1_000_000_000;
const RESULT_BYTES_MIN: u64 = 1024;
const RESULT_BYTES_MAX: u64 = 64 * 1024 * 1024;
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024 * 1024 * 1024;
const CONCURRENCY_MAX: u64 = 1024;

const TOP_KEYS: [&str; 8] = ["model", "instructions", "providers", "limits", "dispatch", "environment", "tools", "mcp"];
const PROVIDER_KEYS: [&str; 7] =
    ["api", "base_url", "api_key_env", "context_tokens", "user_after_tool", "images", "idle_timeout_s"];
const DISPATCH_KEYS: [&str; 2] = ["concurrency", "trailing_reads"];
const ENVIRONMENT_KEYS: [&str; 1] = ["pass"];
const TOOL_KEYS: [&str; 3] = ["run", "concurrent", "fan_out"];
const FAN_OUT_KEYS: [&str; 4] = ["enabled", "concurrency", "on_error", "max_operations"];
const MCP_KEYS: [&str; 5] = ["command", "env", "start_timeout_s", "timeout_s", "defer"];

const APIS: [(&str, Api); 3] = [("openai", Api::OpenAi), ("anthropic", Api::Anthropic), ("scripted", Api::Scripted)];
const RUNS: [(&str, Run); 3] = [("allow", Run::Allow), ("ask", Run::Ask), ("deny", Run::Deny)];
const TRAILING_READS: [(&str, TrailingReads); 2] = [("carry", TrailingReads::Carry), ("strand", TrailingReads::Strand)];

const ON_ERROR: [(&str, OnError); 2] = [("continue", OnError::Continue), ("stop", OnError::Stop)];

/// The most that `max_operations` may be.
const OPERATIONS_LIMIT: u64 = 1024;

type LimitField = fn(&mut LimitsConfig) -> &mut u64;

/// Each limit: its key, where it goes, and the range it may have.
const LIMITS: [(&str, LimitField, RangeInclusive<u64>); 9] = [
    ("rounds", |limits| &mut limits.rounds, 1..=COUNT_MAX),
    ("tool_calls", |limits| &mut limits.tool_calls, 1..=COUNT_MAX),
    ("calls_per_reply", |limits| &mut limits.calls_per_reply, 1..=COUNT_MAX),
    ("time_s", |limits| &mut limits.time_s, 0..=SECONDS_MAX),
    ("command_timeout_s", |limits| &mut limits.command_timeout_s, 1..=SECONDS_MAX),
    ("result_bytes", |limits| &mut limits.result_bytes, RESULT_BYTES_MIN..=RESULT_BYTES_MAX),
    ("round_result_bytes", |limits| &mut limits.round_result_bytes, RESULT_BYTES_MIN..=RESULT_BYTES_MAX),
    ("output_bytes", |limits| &mut limits.output_bytes, RESULT_BYTES_MIN..=OUTPUT_BYTES_MAX),
    ("compact_at_tokens", |limits| &mut limits.compact_at_tokens, 0..=TOKENS_MAX),
];

/// Lays the keys of one file over `config`: tables key by key, arrays as a whole. `shown` names the file in errors,
/// which are `FILE:LINE: ...` with exit code 2; `config` is then to be thrown away.
pub fn apply(config: &mut Config, bytes: &[u8], shown: &str) -> Result<()> {
    let text = reader::text_of(bytes, shown)?;
    let reader = Reader::new(text, shown);
    let table = reader.parse()?;
    for entry in reader::entries(&table) {
        match entry.key {
            "model" => config.model = Some(read_model(&reader, &entry)?),
            "instructions" => config.instructions = reader.texts(&entry)?,
            "providers" => {
                for provider in reader::entries(reader.table(&entry)?) {
                    ensure_name(&reader, &provider, "provider")?;
                    let into = config.providers.entry(provider.key.to_owned()).or_default();
                    apply_provider(into, &reader, &provider)?;
                }
            }
            "limits" => apply_limits(&mut config.limits, &reader, reader.table(&entry)?)?,
            "dispatch" => apply_dispatch(config, &reader, reader.table(&entry)?)?,
            "environment" => apply_environment(config, &reader, reader.table(&entry)?)?,
            "tools" => {
                for tool in reader::entries(reader.table(&entry)?) {
                    ensure_name(&reader, &tool, "tool")?;
                    apply_tool(config.tools.entry(tool.key.to_owned()).or_default(), &reader, &tool)?;
                }
            }
            "mcp" => {
                for server in reader::entries(reader.table(&entry)?) {
                    ensure_server_name(&reader, &server)?;
                    apply_mcp(config.mcp.entry(server.key.to_owned()).or_default(), &reader, &server)?;
                }
            }
            unknown => return Err(reader.unknown(&entry, unknown, "", &TOP_KEYS)),
        }
    }
    Ok(())
}

fn apply_provider(provider: &mut ProviderConfig, reader: &Reader<'_>, within: &reader::Entry<'_>) -> Result<()> {
    for entry in reader::entries(reader.table(within)?) {
        match entry.key {
            "api" => provider.api = Some(reader.one_of(&entry, &APIS)?),
            "base_url" => provider.base_url = Some(read_base_url(reader, &entry)?),
            "api_key_env" => provider.api_key_env = Some(read_variable_name(reader, &entry, reader.string(&entry)?)?),
            "context_tokens" => provider.context_tokens = Some(reader.whole_number(&entry, &(1..=TOKENS_MAX))?),
            "user_after_tool" => provider.user_after_tool = Some(reader.boolean(&entry)?),
            "images" => provider.images = Some(reader.boolean(&entry)?),
            "idle_timeout_s" => provider.idle_timeout_s = Some(reader.whole_number(&entry, &(1..=IDLE_SECONDS_MAX))?),
            unknown => {
                return Err(reader.unknown(&entry, unknown, &format!("providers.{}", within.key), &PROVIDER_KEYS));
            }
        }
    }
    Ok(())
}

fn apply_limits(limits: &mut LimitsConfig, reader: &Reader<'_>, table: &Table<'_>) -> Result<()> {
    for entry in reader::entries(table) {
        let Some((_, field, range)) = LIMITS.iter().find(|(key, _, _)| *key == entry.key) else {
            return Err(reader.unknown(&entry, entry.key, "limits", &LIMITS.map(|(key, _, _)| key)));
        };
        *field(limits) = reader.whole_number(&entry, range)?;
    }
    Ok(())
}

fn apply_dispatch(config: &mut Config, reader: &Reader<'_>, table: &Table<'_>) -> Result<()> {
    for entry in reader::entries(table) {
        match entry.key {
            "concurrency" => config.dispatch.concurrency = reader.whole_number(&entry, &(0..=CONCURRENCY_MAX))?,
            "trailing_reads" => config.dispatch.trailing_reads = reader.one_of(&entry, &TRAILING_READS)?,
            unknown => return Err(reader.unknown(&entry, unknown, "dispatch", &DISPATCH_KEYS)),
        }
    }
    Ok(())
}

fn apply_environment(config: &mut Config, reader: &Reader<'_>, table: &Table<'_>) -> Result<()> {
    for entry in reader::entries(table) {
        match entry.key {
            "pass" => {
                config.environment_pass = reader
                    .texts(&entry)?
                    .into_iter()
                    .map(|name| read_variable_name(reader, &entry, &name))
                    .collect::<Result<_>>()?;
            }
            unknown => return Err(reader.unknown(&entry, unknown, "environment", &ENVIRONMENT_KEYS)),
        }
    }
    Ok(())
}

fn tool_keys() -> Vec<&'static str> {
    TOOL_KEYS.into_iter().chain(own_tool::KEYS).collect()
}

fn apply_tool(tool: &mut ToolConfig, reader: &Reader<'_>, within: &reader::Entry<'_>) -> Result<()> {
    for entry in reader::entries(reader.table(within)?) {
        match entry.key {
            "run" => tool.run = Some(reader.one_of(&entry, &RUNS)?),
            "concurrent" => tool.concurrent = Some(reader.boolean(&entry)?),
            "fan_out" => apply_fan_out(&mut tool.fan_out, reader, &entry, within.key)?,
            _ if own_tool::apply(tool, reader, &entry)? => {}
            unknown => return Err(reader.unknown(&entry, unknown, &format!("tools.{}", within.key), &tool_keys())),
        }
    }
    own_tool::ensure_sound(tool, reader, within)
}

/// `true`, `false`, or a table; a table without `enabled` switches it on.
fn apply_fan_out(
    fan_out: &mut FanOutConfig,
    reader: &Reader<'_>,
    within: &reader::Entry<'_>,
    tool: &str,
) -> Result<()> {
    if within.is_boolean() {
        fan_out.enabled = Some(reader.boolean(within)?);
        return Ok(());
    }
    fan_out.enabled = Some(true);
    for entry in reader::entries(reader.table(within)?) {
        match entry.key {
            "enabled" => fan_out.enabled = Some(reader.boolean(&entry)?),
            "concurrency" => fan_out.concurrency = Some(reader.whole_number(&entry, &(0..=CONCURRENCY_MAX))?),
            "on_error" => fan_out.on_error = Some(reader.one_of(&entry, &ON_ERROR)?),
            "max_operations" => {
                fan_out.max_operations = Some(reader.whole_number(&entry, &(1..=OPERATIONS_LIMIT))?);
            }
            unknown => {
                return Err(reader.unknown(&entry, unknown, &format!("tools.{tool}.fan_out"), &FAN_OUT_KEYS));
            }
        }
    }
    Ok(())
}

/// Every key there is, with the tables it stands in: `limits.rounds`, `providers.NAME.api`.
pub fn names() -> Vec<String> {
    let tables: [(&str, Vec<&str>); 7] = [
        ("limits.", LIMITS.map(|(key, _, _)| key).to_vec()),
        ("dispatch.", DISPATCH_KEYS.to_vec()),
        ("environment.", ENVIRONMENT_KEYS.to_vec()),
        ("providers.NAME.", PROVIDER_KEYS.to_vec()),
        ("tools.NAME.", tool_keys()),
        ("tools.NAME.fan_out.", FAN_OUT_KEYS.to_vec()),
        ("mcp.NAME.", MCP_KEYS.to_vec()),
    ];
    let is_table = |key: &&str| tables.iter().any(|(table, _)| table.split('.').next() == Some(*key));
    let plain = TOP_KEYS.into_iter().filter(|key| !is_table(key)).map(str::to_owned);
    let within = tables.iter().flat_map(|(table, keys)| keys.iter().map(move |key| format!("{table}{key}")));
    plain.chain(within).collect()
}

fn apply_mcp(server: &mut McpConfig, reader: &Reader<'_>, within: &reader::Entry<'_>) -> Result<()> {
    for entry in reader::entries(reader.table(within)?) {
        match entry.key {
            "command" => server.command = reader.texts(&entry)?,
            "env" => {
                for variable in reader::entries(reader.table(&entry)?) {
                    let name = read_variable_key(reader, &entry, &variable)?;
                    server.env.insert(name, reader.string(&variable)?.to_owned());
                }
            }
            "start_timeout_s" => server.start_timeout_s = reader.whole_number(&entry, &(1..=SECONDS_MAX))?,
            "timeout_s" => server.timeout_s = reader.whole_number(&entry, &(1..=SECONDS_MAX))?,
            "defer" => server.defer = reader.switch(&entry, Defer::Always, Defer::Never, ("auto", Defer::Auto))?,
            unknown => return Err(reader.unknown(&entry, unknown, &format!("mcp.{}", within.key), &MCP_KEYS)),
        }
    }
    if server.command.is_empty() {
        let message =
            format!("[mcp.{}] has no `command`: the program that is the server, and its arguments", within.key);
        return Err(reader.error_at_key(within, &message));
    }
    Ok(())
}

/// The names of a server's tools are made of its own.
fn ensure_server_name(reader: &Reader<'_>, entry: &reader::Entry<'_>) -> Result<()> {
    let fits = !entry.key.is_empty()
        && entry.key.len() <= SERVER_NAME_BYTES_MAX
        && entry.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if fits {
        return Ok(());
    }
    let message = format!(
        "`{}` is no name of an MCP server: letters, digits, `_` and `-`, at most {SERVER_NAME_BYTES_MAX}",
        entry.key
    );
    Err(reader.error_at_key(entry, &message))
}

/// Names of providers and tools stand in `PROVIDER/MODEL`, in messages and on the wire.
fn ensure_name(reader: &Reader<'_>, entry: &reader::Entry<'_>, what: &str) -> Result<()> {
    let fits = !entry.key.is_empty()
        && entry.key.len() <= 64
        && entry.key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if fits {
        return Ok(());
    }
    let message = format!("`{}` is no name of a {what}: letters, digits, `_`, `-` and `.`, at most 64", entry.key);
    Err(reader.error_at_key(entry, &message))
}

fn read_model(reader: &Reader<'_>, entry: &reader::Entry<'_>) -> Result<String> {
    let text = reader.string(entry)?;
    match text.split_once('/') {
        Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(text.to_owned()),
        _ => {
            Err(reader.error(entry, &format!("`model` is `PROVIDER/MODEL`, such as `openai/gpt-5-mini`, not `{text}`")))
        }
    }
}

fn read_base_url(reader: &Reader<'_>, entry: &reader::Entry<'_>) -> Result<String> {
    let text = reader.string(entry)?;
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
    let plain = !text.contains(|character: char| character.is_whitespace() || character.is_control());
    match rest {
        Some(rest) if plain && !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':']) => Ok(text.to_owned()),
        _ => Err(reader.error(entry, &format!("`base_url` is an http:// or https:// address, not `{text}`"))),
    }
}

fn read_variable_name(reader: &Reader<'_>, entry: &reader::Entry<'_>, name: &str) -> Result<String> {
    if is_variable_name(name) {
        return Ok(name.to_owned());
    }
    Err(reader.error(entry, &no_variable_name(entry.key, name)))
}

/// The name of a variable where it is the key of a table.
fn read_variable_key(reader: &Reader<'_>, table: &reader::Entry<'_>, entry: &reader::Entry<'_>) -> Result<String> {
    if is_variable_name(entry.key) {
        return Ok(entry.key.to_owned());
    }
    Err(reader.error_at_key(entry, &no_variable_name(table.key, entry.key)))
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn no_variable_name(key: &str, name: &str) -> String {
    format!("`{key}` takes names of environment variables, and `{name}` is none")
}

/// What is said of a tool that the config names and nobody knows.
pub(super) fn unknown_tool(name: &str, known: &[&str]) -> String {
    format!("[tools.{name}]: there is no tool of that name{}", suggestion(name, known, "tools"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::OwnToolConfig;
    use crate::exit::Status;
    use crate::failure::Failure;

    fn parse(text: &str) -> Result<Config> {
        let mut config = Config::default();
        apply(&mut config, text.as_bytes(), "c.toml")?;
        Ok(config)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "every key there is, and what it comes to")]
    fn every_key_is_read() {
        let config = parse(
            r#"
            model = "openai/gpt-5-mini"
            instructions = ["AGENTS.md"]
            [providers.local]
            api = "openai"
            base_url = "http://127.0.0.1:8080/v1"
            api_key_env = "LOCAL_API_KEY"
            context_tokens = 32_768
            user_after_tool = true
            images = true
            idle_timeout_s = 60
            [limits]
            rounds = 1
            tool_calls = 2
            calls_per_reply = 3
            time_s = 4
            command_timeout_s = 5
            result_bytes = 0x1000
            round_result_bytes = 8192
            output_bytes = 16384
            compact_at_tokens = 6
            [dispatch]
            concurrency = 7
            trailing_reads = "strand"
            [environment]
            pass = ["GH_TOKEN"]
            [tools.read]
            run = "ask"
            fan_out = true
            [tools.fs__delete_file]
            run = "allow"
            concurrent = true
            [tools.fs__delete_file.fan_out]
            concurrency = 1
            on_error = "stop"
            max_operations = 8
            [tools.lint]
            description = "Lint one file"
            command = ["npm", "run", "lint", "--", "{file}"]
            parameters = { type = "object", properties = { file = { type = "string", maxLength = 0x50 }, x = { enum = [1.5, true] } } }
            [mcp.fs]
            command = ["npx", "server", "."]
            env = { LOG_LEVEL = "error", EMPTY = "" }
            start_timeout_s = 8
            timeout_s = 9
            defer = true
            [mcp.other]
            command = ["other"]
            "#,
        )
        .unwrap();
        let expected = Config {
            model: Some("openai/gpt-5-mini".to_owned()),
            instructions: vec!["AGENTS.md".to_owned()],
            providers: [(
                "local".to_owned(),
                ProviderConfig {
                    api: Some(Api::OpenAi),
                    base_url: Some("http://127.0.0.1:8080/v1".to_owned()),
                    api_key_env: Some("LOCAL_API_KEY".to_owned()),
                    context_tokens: Some(32768),
                    user_after_tool: Some(true),
                    images: Some(true),
                    idle_timeout_s: Some(60),
                },
            )]
            .into(),
            limits: LimitsConfig {
                rounds: 1,
                tool_calls: 2,
                calls_per_reply: 3,
                time_s: 4,
                command_timeout_s: 5,
                result_bytes: 4096,
                round_result_bytes: 8192,
                output_bytes: 16384,
                compact_at_tokens: 6,
            },
            dispatch: crate::config::DispatchConfig { concurrency: 7, trailing_reads: TrailingReads::Strand },
            environment_pass: vec!["GH_TOKEN".to_owned()],
            tools: [
                (
                    "read".to_owned(),
                    ToolConfig {
                        run: Some(Run::Ask),
                        concurrent: None,
                        fan_out: FanOutConfig { enabled: Some(true), ..FanOutConfig::default() },
                        own: None,
                    },
                ),
                (
                    "lint".to_owned(),
                    ToolConfig {
                        own: Some(OwnToolConfig {
                            command: ["npm", "run", "lint", "--", "{file}"].map(str::to_owned).into(),
                            description: Some("Lint one file".to_owned()),
                            parameters: Some(json!({"type": "object", "properties": {
                                "file": {"type": "string", "maxLength": 80}, "x": {"enum": [1.5, true]}}})),
                        }),
                        ..ToolConfig::default()
                    },
                ),
                (
                    "fs__delete_file".to_owned(),
                    ToolConfig {
                        run: Some(Run::Allow),
                        concurrent: Some(true),
                        fan_out: FanOutConfig {
                            enabled: Some(true),
                            concurrency: Some(1),
                            on_error: Some(OnError::Stop),
                            max_operations: Some(8),
                        },
                        own: None,
                    },
                ),
            ]
            .into(),
            mcp: [
                (
                    "fs".to_owned(),
                    McpConfig {
                        command: ["npx", "server", "."].map(str::to_owned).into(),
                        env: [("LOG_LEVEL", "error"), ("EMPTY", "")].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
                        start_timeout_s: 8,
                        timeout_s: 9,
                        defer: Defer::Always,
                    },
                ),
                ("other".to_owned(), McpConfig { command: vec!["other".to_owned()], ..McpConfig::default() }),
            ]
            .into(),
        };
        assert_eq!(config, expected);
        assert_eq!(parse("# nothing but a comment\n").unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, expected) in [
            ("\nmodle = \"a/b\"", "c.toml:2: unknown key `modle`; did you mean `model`?"),
            ("[limits]\nround = 1", "c.toml:2: unknown key `round` in [limits]; did you mean `rounds`?"),
            (
                "[dispatch]\nzzz = 1",
                "c.toml:2: unknown key `zzz` in [dispatch]; the keys are concurrency, trailing_reads",
            ),
            (
                "[providers.x]\nurl = 1\napi = 2",
                "c.toml:2: unknown key `url` in [providers.x]; the keys are api, \
              base_url, api_key_env, context_tokens, user_after_tool, images, idle_timeout_s",
            ),
            ("[tools.x]\nrum = 1", "c.toml:2: unknown key `rum` in [tools.x]; did you mean `run`?"),
            ("[environment]\nPass = []", "c.toml:2: unknown key `Pass` in [environment]; did you mean `pass`?"),
            ("limits = 3", "c.toml:1: `limits` is a table, not the number 3"),
            ("tools.read = true", "c.toml:1: `read` is a table, not true"),
            ("[limits]\nrounds = 0", "c.toml:2: `rounds` is a whole number from 1 to 1000000, not the number 0"),
            ("[limits]\nrounds = -1", "c.toml:2: `rounds` is a whole number from 1 to 1000000, not the number -1"),
            ("[limits]\nrounds = 1.5", "c.toml:2: `rounds` is a whole number from 1 to 1000000, not the number 1.5"),
            (
                "[limits]\nresult_bytes = \"1k\"",
                "c.toml:2: `result_bytes` is a whole number from 1024 to 67108864, not the string `1k`",
            ),
            ("[tools.x]\nrun = \"never\"", "c.toml:2: `run` is one of `allow`, `ask`, `deny`, not the string `never`"),
            ("[tools.x]\nconcurrent = \"no\"", "c.toml:2: `concurrent` is true or false, not the string `no`"),
            ("[tools.x]\nfan_out = 1", "c.toml:2: `fan_out` is a table, not the number 1"),
            (
                "[tools.x.fan_out]\non_eror = \"stop\"",
                "c.toml:2: unknown key `on_eror` in [tools.x.fan_out]; did you mean `on_error`?",
            ),
            (
                "[tools.x.fan_out]\nmax_operations = 0",
                "c.toml:2: `max_operations` is a whole number from 1 to 1024, not the number 0",
            ),
            ("instructions = \"A\"", "c.toml:1: `instructions` is an array of strings, not the string `A`"),
            ("instructions = [\"A\",\n 1]", "c.toml:2: every element of `instructions` is a string that is not empty"),
            ("model = \"gpt\"", "c.toml:1: `model` is `PROVIDER/MODEL`, such as `openai/gpt-5-mini`, not `gpt`"),
            (
                "[providers.x]\nbase_url = \"ftp://x\"",
                "c.toml:2: `base_url` is an http:// or https:// address, not `ftp://x`",
            ),
            (
                "[environment]\npass = [\"A=B\"]",
                "c.toml:2: `pass` takes names of environment variables, and `A=B` is none",
            ),
            (
                "[mcp.x]\nargs = []",
                "c.toml:2: unknown key `args` in [mcp.x]; the keys are command, env, start_timeout_s, timeout_s, defer",
            ),
            (
                "\n[mcp.x]\ntimeout_s = 3",
                "c.toml:2: [mcp.x] has no `command`: the program that is the server, and its arguments",
            ),
            (
                "[mcp.x]\ncommand = []",
                "c.toml:1: [mcp.x] has no `command`: the program that is the server, and its arguments",
            ),
            ("[mcp.x]\ncommand = \"npx\"", "c.toml:2: `command` is an array of strings, not the string `npx`"),
            (
                "[mcp.x]\ncommand = [\"a\"]\nenv = { A-B = \"1\" }",
                "c.toml:3: `env` takes names of environment variables, and `A-B` is none",
            ),
            ("[mcp.x]\nenv = { A = 1 }", "c.toml:2: `A` is a string, not the number 1"),
            (
                "[mcp.x]\nstart_timeout_s = 0",
                "c.toml:2: `start_timeout_s` is a whole number from 1 to 31622400, not the number 0",
            ),
            ("[mcp.x]\ndefer = \"yes\"", "c.toml:2: `defer` is true, false or `auto`, not the string `yes`"),
            (
                "[mcp.\"a b\"]\n",
                "c.toml:1: `a b` is no name of an MCP server: letters, digits, `_` and `-`, at most 32",
            ),
            (
                "[providers.\"a/b\"]\napi = \"openai\"",
                "c.toml:1: `a/b` is no name of a provider: letters, digits, `_`, `-` and `.`, at most 64",
            ),
        ] {
            let failure = Failure::of(&parse(text).unwrap_err());
            assert_eq!((failure.message.as_str(), failure.status), (expected, Status::Usage), "{text}");
        }
    }

    #[test]
    fn a_tool_of_ones_own_that_could_not_work_is_refused() {
        for (text, expected) in [
            ("[tools.x]\ndescription = \"X\"", "[tools.x] has no `command`: the program to run, and its arguments"),
            ("[tools.x]\ncommand = []", "[tools.x] has no `command`: the program to run, and its arguments"),
            (
                "[tools.read]\ncommand = [\"a\"]",
                "[tools.read] is a built-in tool; a tool of your own needs another name",
            ),
            (
                "[tools.run_tool]\ncommand = [\"a\"]",
                "[tools.run_tool] is a built-in tool; a tool of your own needs another name",
            ),
            (
                "[tools.\"a.b\"]\ncommand = [\"a\"]",
                "`a.b` is no name of a tool of your own: letters, digits, `_` and `-`, at most 64",
            ),
            (
                "[tools.x]\ncommand = [\"{a}\"]\nparameters = { properties = { a = {} } }",
                "[tools.x]: the first word of `command` is the program, which no argument chooses",
            ),
            (
                "[tools.x]\ncommand = [\"a\", \"--b={b}\"]\nparameters = { properties = { a = {}, c = {} } }",
                "[tools.x]: `command` has {b}, and no parameter is named so; its parameters are a, c; {{b}} is the text itself",
            ),
            (
                "[tools.x]\ncommand = [\"a\", \"{b}\"]",
                "[tools.x]: `command` has {b}, and no parameter is named so; {{b}} is the text itself",
            ),
            (
                "[tools.x]\ncommand = [\"a\"]\nparameters = { type = \"array\" }",
                "[tools.x]: `parameters` is the schema of an object, `type = \"object\"`",
            ),
            (
                "[tools.x]\ncommand = [\"a\"]\nparameters = { properties = 1 }",
                "[tools.x]: the `properties` of `parameters` are a table",
            ),
        ] {
            let failure = Failure::of(&parse(text).unwrap_err());
            assert_eq!((failure.message, failure.status), (format!("c.toml:1: {expected}"), Status::Usage), "{text}");
        }
        let text = "[tools.x]\ncommand = [\"a\"]\nparameters = { required = [2026-11-30] }";
        assert_eq!(
            Failure::of(&parse(text).unwrap_err()).message,
            "c.toml:3: `parameters` holds a date, which JSON has not"
        );
        let text = "[tools.x]\ncommand = [\"a\"]\nparameters = { properties = { a = { type = \"text\" } } }";
        let message = Failure::of(&parse(text).unwrap_err()).message;
        assert!(message.starts_with("c.toml:1: [tools.x]: `parameters` is no JSON Schema: "), "{message}");
        parse("[tools.x]\ncommand = [\"awk\", \"{print $1}\", \"{{b}}\", \"{}\"]").unwrap();
    }

    #[test]
    fn toml_errors_have_their_line() {
        for (text, line) in [("model = \"a/b\"\nmodel = \"c/d\"", 2), ("\n\nmodel = ", 3), ("[limits\n", 1)] {
            let failure = Failure::of(&parse(text).unwrap_err());
            assert!(failure.message.starts_with(&format!("c.toml:{line}: ")), "{}", failure.message);
            assert_eq!(failure.status, Status::Usage);
        }
        let mut config = Config::default();
        let failure = Failure::of(&apply(&mut config, b"\n\xff", "c.toml").unwrap_err());
        assert_eq!(failure.message, "c.toml:2: the text is not UTF-8");
    }
}
