//! From `PROVIDER/MODEL`, the configuration and the environment to a provider that can be asked.

use std::ffi::OsStr;
use std::time::Duration;

use super::Provider;
use super::anthropic::Anthropic;
use super::catalogue::{self, Dialect};
use super::http::{Http, IDLE_SECONDS_DEFAULT};
use super::openai::OpenAi;
use super::scripted::Scripted;
use crate::config::environment::Environment;
use crate::config::{Api, Config, ProviderConfig};
use crate::failure::Failure;
use crate::http::{Variable, environment_variable};
use crate::workspace::Workspace;

/// A provider, ready to be asked.
pub struct Connected {
    pub provider: Box<dyn Provider>,
    pub provider_name: String,
    /// Without the provider's name.
    pub model_name: String,
    /// How many tokens the model takes, where it is known.
    pub context_tokens: Option<u64>,
    /// Whether the service takes a history with calls together with tools that may not be called.
    pub takes_no_choice: bool,
    /// Whether it is sent images.
    pub takes_images: bool,
    /// The environment variables that hold attini's keys, set or not, sorted: no child gets them.
    pub key_variables: Vec<String>,
}

/// What is known of a provider once the built-in table, the configuration and the environment are laid over each
/// other.
struct Resolved {
    api: Api,
    base_url: Option<String>,
    key_variable: Option<String>,
    needs_key: bool,
    context_tokens: Option<u64>,
    user_after_tool: bool,
    takes_images: bool,
    idle_limit: Duration,
    dialect: Dialect,
}

/// Makes the provider of `model` (`PROVIDER/MODEL`; the model's name may hold further slashes). Nothing is sent yet. A
/// [`Failure`] of status `usage` says what is wrong or missing.
pub fn connect(model: &str, config: &Config, workspace: &Workspace) -> anyhow::Result<Connected> {
    connect_with(model, config, workspace, &environment_variable)
}

/// As [`connect`], to ask which models there are.
pub fn connect_to_list(provider: &str, config: &Config, workspace: &Workspace) -> anyhow::Result<Connected> {
    let is_scripted = catalogue::find(provider).is_some_and(|entry| entry.api == Api::Scripted)
        || config.providers.get(provider).is_some_and(|configured| configured.api == Some(Api::Scripted));
    let model = if is_scripted { super::scripted::DEMO } else { "any" };
    connect(&format!("{provider}/{model}"), config, workspace)
}

/// How many tokens a provider's model takes, as far as configuration or the built-in table know it.
pub fn known_context_tokens(provider: &str, model: &str, config: &Config) -> Option<u64> {
    let configured = config.providers.get(provider).and_then(|configured| configured.context_tokens);
    configured.or_else(|| catalogue::find(provider)?.context_tokens_of(model))
}

pub(super) fn connect_with(
    model: &str,
    config: &Config,
    workspace: &Workspace,
    variable: Variable<'_>,
) -> anyhow::Result<Connected> {
    let Some((provider_name, model_name)) = model.split_once('/').filter(|(p, m)| !p.is_empty() && !m.is_empty())
    else {
        let failure = Failure::usage(format!("the model {model:?} is not of the form PROVIDER/MODEL"));
        return Err(failure.hint("for instance openai/gpt-5-mini, ollama/NAME or scripted/demo").into());
    };
    let resolved = resolve(provider_name, model_name, config, variable)?;
    let provider: Box<dyn Provider> = match resolved.api {
        Api::Scripted => Box::new(Scripted::load(model_name, &workspace.root)?),
        Api::OpenAi => Box::new(load_openai(provider_name, &resolved, variable)?),
        Api::Anthropic => Box::new(load_anthropic(provider_name, &resolved, variable)?),
    };
    Ok(Connected {
        provider,
        provider_name: provider_name.to_owned(),
        model_name: model_name.to_owned(),
        context_tokens: resolved.context_tokens,
        takes_no_choice: resolved.dialect.takes_no_choice,
        takes_images: resolved.takes_images,
        key_variables: key_variables(config),
    })
}

/// The names of all environment variables that hold keys of providers, built in or configured; sorted.
pub fn key_variables(config: &Config) -> Vec<String> {
    let built_in = catalogue::ENTRIES.iter().map(|entry| entry.key_variable.to_owned());
    let configured = config.providers.values().filter_map(|provider| provider.api_key_env.clone());
    let mut names: Vec<String> = built_in.chain(configured).filter(|name| !name.is_empty()).collect();
    names.sort();
    names.dedup();
    names
}

/// From now on the key of every provider that is in the environment is masked, whichever provider is asked.
pub fn register_keys(config: &Config, environment: &Environment) {
    for name in key_variables(config) {
        if let Some(value) = environment.get(&name).and_then(OsStr::to_str) {
            crate::mask::register(&name, value.trim());
        }
    }
}

/// What a person is told who named no model and has no key.
pub fn no_model_failure() -> Failure {
    Failure::usage("no model is configured, and no key of a provider is in the environment")
        .code("missing_key")
        .hint(ways_to_go_on("OPENAI_API_KEY"))
}

/// The model to use when nothing names one: that of the first built-in provider whose key is in the environment.
pub fn default_model() -> Option<String> {
    default_model_with(&environment_variable)
}

fn default_model_with(variable: Variable<'_>) -> Option<String> {
    catalogue::ENTRIES
        .iter()
        .filter(|entry| entry.needs_key && variable(entry.key_variable).is_some())
        .find_map(|entry| Some(format!("{}/{}", entry.name, entry.default_model?)))
}

fn ways_to_go_on(key_variable: &str) -> String {
    format!(
        "set {key_variable}; or use a local server (-m ollama/NAME); or see how it works without one: attini demo (it plays -m scripted/demo)"
    )
}

fn resolve(name: &str, model: &str, config: &Config, variable: Variable<'_>) -> anyhow::Result<Resolved> {
    let entry = catalogue::find(name);
    let configured = config.providers.get(name);
    if entry.is_none() && configured.is_none() {
        return Err(unknown(name, config).into());
    }
    let configured = configured.cloned().unwrap_or_default();
    let ProviderConfig { api, base_url, api_key_env, context_tokens, user_after_tool, images, idle_timeout_s } =
        configured;
    let from_environment =
        entry.map(|entry| entry.base_url_variable).filter(|name| !name.is_empty()).and_then(variable);
    let built_in_url = entry.map(|entry| entry.base_url.to_owned()).filter(|url| !url.is_empty());
    let built_in_key = entry.map(|entry| entry.key_variable.to_owned()).filter(|name| !name.is_empty());
    Ok(Resolved {
        api: api.or(entry.map(|entry| entry.api)).unwrap_or(Api::OpenAi),
        base_url: from_environment.or(base_url).or(built_in_url),
        needs_key: api_key_env.is_some() || entry.is_some_and(|entry| entry.needs_key),
        key_variable: api_key_env.or(built_in_key),
        context_tokens: context_tokens.or_else(|| entry?.context_tokens_of(model)),
        user_after_tool: user_after_tool.unwrap_or(entry.is_none_or(|entry| entry.dialect.takes_user_after_tool)),
        idle_limit: Duration::from_secs(idle_timeout_s.unwrap_or(IDLE_SECONDS_DEFAULT)),
        takes_images: images.or(entry.map(|entry| entry.takes_images)).unwrap_or(false),
        dialect: entry.map_or(Dialect::COMMON, |entry| entry.dialect),
    })
}

/// Refuses (2) an effort that no service knows. A provider of the config's own may have words of its own.
pub fn ensure_effort(model: &str, effort: Option<&str>, config: &Config) -> Result<(), Failure> {
    let provider = model.split('/').next().unwrap_or_default();
    let is_built_in = catalogue::find(provider).is_some() && !config.providers.contains_key(provider);
    match effort {
        Some(effort) if is_built_in && !catalogue::EFFORT_WORDS.contains(&effort) => {
            let words = catalogue::EFFORT_WORDS.join(", ");
            Err(Failure::usage(format!("there is no reasoning effort {effort:?}"))
                .hint(format!("--reasoning-effort takes {words}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn unknown(name: &str, config: &Config) -> Failure {
    let known = catalogue::ENTRIES.iter().map(|entry| entry.name);
    let mut known: Vec<&str> = known.chain(config.providers.keys().map(String::as_str)).collect();
    known.sort_unstable();
    known.dedup();
    let nearest = known.iter().copied().min_by_key(|other| strsim::damerau_levenshtein(name, other));
    let hint = match nearest.filter(|other| strsim::damerau_levenshtein(name, other) <= 1 + name.chars().count() / 3) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("known are {}; [providers.{name}] in config.toml adds another", known.join(", ")),
    };
    Failure::usage(format!("there is no provider named {name:?}")).code("unknown_provider").hint(hint)
}

fn load_openai(name: &str, resolved: &Resolved, variable: Variable<'_>) -> anyhow::Result<OpenAi> {
    let (base_url, key) = load_base(name, resolved, variable)?;
    Ok(OpenAi::new(
        Http::load_with(name, base_url, resolved.idle_limit, variable)?,
        super::openai::Settings {
            provider: name.to_owned(),
            url: endpoint(base_url, "/chat/completions"),
            models_url: endpoint(base_url, "/models"),
            key_variable: resolved.key_variable.clone(),
            key,
            user_after_tool: resolved.user_after_tool,
            dialect: resolved.dialect,
        },
    ))
}

fn load_anthropic(name: &str, resolved: &Resolved, variable: Variable<'_>) -> anyhow::Result<Anthropic> {
    let (base_url, key) = load_base(name, resolved, variable)?;
    Ok(Anthropic::new(
        Http::load_with(name, base_url, resolved.idle_limit, variable)?,
        super::anthropic::Settings {
            provider: name.to_owned(),
            url: endpoint(base_url, "/v1/messages"),
            models_url: endpoint(base_url, "/v1/models"),
            key_variable: resolved.key_variable.clone(),
            key,
            takes_output_schema: resolved.dialect.takes_output_schema,
        },
    ))
}

/// The address of a service's endpoint: `path` goes behind the base address's own path, and its query, if it has one,
/// stays behind both.
fn endpoint(base_url: &str, path: &str) -> String {
    let base_url = base_url.split_once('#').map_or(base_url, |(before, _)| before);
    match base_url.split_once('?') {
        Some((before, query)) => format!("{}{path}?{query}", before.trim_end_matches('/')),
        None => format!("{}{path}", base_url.trim_end_matches('/')),
    }
}

/// The base address and the key.
fn load_base<'a>(
    name: &str,
    resolved: &'a Resolved,
    variable: Variable<'_>,
) -> anyhow::Result<(&'a str, Option<String>)> {
    let Some(base_url) = &resolved.base_url else {
        let failure = Failure::usage(format!("provider {name} has no base address"));
        return Err(failure.hint(format!("set base_url in [providers.{name}]")).into());
    };
    let key = match &resolved.key_variable {
        Some(key_variable) => load_key(name, key_variable, resolved.needs_key, variable)?,
        None => None,
    };
    Ok((base_url, key))
}

fn load_key(name: &str, key_variable: &str, needed: bool, variable: Variable<'_>) -> anyhow::Result<Option<String>> {
    let Some(key) = variable(key_variable).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()) else {
        if !needed {
            return Ok(None);
        }
        let failure = Failure::usage(format!("provider {name} needs a key, and {key_variable} is not set"));
        return Err(failure.code("missing_key").hint(ways_to_go_on(key_variable)).into());
    };
    crate::mask::register(key_variable, &key);
    if !key.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
        let failure = Failure::usage(format!("the value of {key_variable} holds characters that no key has"));
        return Err(failure.hint("set it again, without line breaks or quotes").into());
    }
    Ok(Some(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Status;
    use crate::workspace::root::Root;

    fn workspace() -> (tempfile::TempDir, Workspace) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        (folder, Workspace::new(root))
    }

    type Environment = &'static [(&'static str, &'static str)];

    fn try_connect(model: &str, config: &Config, environment: &[(&str, &str)]) -> Result<Connected, Failure> {
        let (_folder, workspace) = workspace();
        let variable =
            |name: &str| environment.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        connect_with(model, config, &workspace, &variable).map_err(|error| Failure::of(&error))
    }

    #[test]
    fn what_is_wrong_or_missing_is_named() {
        let config = Config::default();
        let cases: &[(&str, Environment, &str, &str)] = &[
            ("gpt-5", &[], "usage", "PROVIDER/MODEL"),
            ("/gpt-5", &[], "usage", "PROVIDER/MODEL"),
            ("openai/", &[], "usage", "PROVIDER/MODEL"),
            ("opnai/gpt-5", &[], "unknown_provider", "did you mean openai?"),
            ("nothing-like-it/x", &[], "unknown_provider", "known are anthropic, deepseek"),
            ("openai/gpt-5", &[], "missing_key", "OPENAI_API_KEY"),
            ("openai/gpt-5", &[("OPENAI_API_KEY", " ")], "missing_key", "attini demo"),
            ("openai/gpt-5", &[("OPENAI_API_KEY", "a\nb")], "usage", "no key has"),
            ("groq/x", &[("GROQ_API_KEY", "test-key-0"), ("GROQ_BASE_URL", "nonsense")], "usage", "http://"),
            ("anthropic/claude-x", &[], "missing_key", "ANTHROPIC_API_KEY"),
            ("scripted/missing.json", &[], "usage", "missing.json"),
        ];
        for (model, environment, code, words) in cases {
            let failure = try_connect(model, &config, environment).map(|_| ()).unwrap_err();
            let all = format!("{} {}", failure.message, failure.hint.unwrap_or_default());
            assert_eq!((failure.status, failure.code.as_str()), (Status::Usage, *code), "{model}: {all}");
            assert!(all.contains(words), "{model}: {all}");
        }
    }

    #[test]
    fn built_in_and_configured_providers_are_found() {
        let mut config = Config::default();
        let local = ProviderConfig {
            base_url: Some("http://127.0.0.1:1/v1/".to_owned()),
            api_key_env: Some("LOCAL_API_KEY".to_owned()),
            context_tokens: Some(32_768),
            ..ProviderConfig::default()
        };
        config.providers.insert("local".to_owned(), local);
        let connected = try_connect("local/org/name", &config, &[("LOCAL_API_KEY", "test-key-1")]).unwrap();
        assert_eq!((connected.provider_name.as_str(), connected.model_name.as_str()), ("local", "org/name"));
        assert_eq!(connected.context_tokens, Some(32_768));
        assert!(connected.key_variables.contains(&"LOCAL_API_KEY".to_owned()));
        assert!(connected.key_variables.contains(&"OPENAI_API_KEY".to_owned()));
        assert!(!connected.key_variables.contains(&String::new()));
        let failure = try_connect("local/name", &config, &[]).map(|_| ()).unwrap_err();
        assert_eq!(failure.code, "missing_key");
        let connected = try_connect("anthropic/claude-x", &config, &[("ANTHROPIC_API_KEY", "test-key-2")]).unwrap();
        assert_eq!(connected.context_tokens, Some(200_000));
        for model in ["ollama/x", "llamacpp/x", "vllm/x", "scripted/demo"] {
            assert!(try_connect(model, &config, &[]).is_ok(), "{model}");
        }
    }

    #[test]
    fn a_path_goes_before_the_query_of_a_base_address() {
        for (base_url, expected) in [
            ("http://a", "http://a/x"),
            ("http://a/v1/", "http://a/v1/x"),
            ("http://a/v1?api-version=1", "http://a/v1/x?api-version=1"),
            ("http://a/v1/?b=c/d&e", "http://a/v1/x?b=c/d&e"),
            ("http://a?", "http://a/x?"),
            ("http://a/v1#part", "http://a/v1/x"),
            ("http://a/v1?b=c#part", "http://a/v1/x?b=c"),
        ] {
            assert_eq!(endpoint(base_url, "/x"), expected);
        }
    }

    #[test]
    fn environment_beats_config_beats_table() {
        let mut config = Config::default();
        let url = |config: &Config, environment: &[(&str, &str)]| {
            let variable =
                |name: &str| environment.iter().find(|(other, _)| *other == name).map(|(_, v)| (*v).to_owned());
            resolve("openai", "gpt-5-mini", config, &variable).unwrap().base_url.unwrap()
        };
        assert_eq!(url(&config, &[]), "https://api.openai.com/v1");
        let changed = ProviderConfig { base_url: Some("http://b".to_owned()), ..ProviderConfig::default() };
        config.providers.insert("openai".to_owned(), changed);
        assert_eq!(url(&config, &[]), "http://b");
        assert_eq!(url(&config, &[("OPENAI_BASE_URL", "http://c")]), "http://c");
    }

    #[test]
    fn the_default_model_follows_the_key() {
        let with = |names: &[&str]| default_model_with(&|name| names.contains(&name).then(|| "x".to_owned()));
        assert_eq!(with(&[]), None);
        assert_eq!(with(&["OPENAI_API_KEY"]).as_deref(), Some("openai/gpt-5-mini"));
        assert_eq!(with(&["GROQ_API_KEY"]).as_deref(), Some("groq/openai/gpt-oss-120b"));
        assert_eq!(with(&["ANTHROPIC_API_KEY", "GROQ_API_KEY"]).as_deref(), Some("anthropic/claude-sonnet-4-5"));
        assert_eq!(with(&["OLLAMA_API_KEY"]), None);
        assert_eq!(no_model_failure().status, Status::Usage);
    }
}
