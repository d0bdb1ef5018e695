//! A call that asks back (`input_required`): what its server wants, how a person is asked for it, and how the answer goes
//! back with the server's own state.
//!
//! The state is opaque: it is kept and returned as it came. What is asked is shown; it decides nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::answer::clip;
use super::client::file_uri;
use super::schema;
use crate::call::validation::Schema;
use crate::tool::{Preview, Refusal, Waits};

/// How many fields of a question are told.
const FIELDS_TOLD_MAX: usize = 20;
/// The longest question.
const QUESTION_BYTES_MAX: usize = 16 * 1024;
/// What a server wants back is in the log and in the next request; more than this is refused.
const STATE_BYTES_MAX: usize = 512 * 1024;
/// How many choices are numbered; an answer may name any other.
const CHOICES_MAX: usize = 100;
/// How many violations are named.
const VIOLATIONS_MAX: usize = 20;

const ELICITATION: &str = "elicitation/create";
const ROOTS: &str = "roots/list";

/// What a call is sent again with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resumption {
    /// By the names that the server gave its requests.
    pub(super) responses: BTreeMap<String, Value>,
    pub(super) request_state: Option<String>,
}

/// What comes of a result that asks.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Asked {
    /// A person has to answer.
    Person(Waits),
    /// Nobody has to be asked: the call goes on at once.
    Nobody(Value),
    /// It wants what attini does not give, in words that follow `The MCP server NAME`.
    Refused(String),
}

/// Reads a result of the type `input_required`.
pub(super) fn read(result: &Value) -> Asked {
    let state = json!({
        "requests": result.get("inputRequests").cloned().unwrap_or_default(),
        "request_state": result.get("requestState").cloned().unwrap_or_default(),
    });
    if state.to_string().len() > STATE_BYTES_MAX {
        return Asked::Refused(format!("asks back with more than {STATE_BYTES_MAX} bytes"));
    }
    for request in requests(&state).into_iter().flat_map(Map::values) {
        let method = method(request);
        if method != ELICITATION && method != ROOTS {
            return Asked::Refused(format!("asks in mid-call for {}, which attini does not give", clip(method)));
        }
    }
    let form = Form::of(&state);
    if let Form::Nothing = form {
        return Asked::Nobody(state);
    }
    if let Some(Err(why)) = form.schema().map(|schema| schema::check(&schema).and_then(|()| compile(&schema).map(drop)))
    {
        return Asked::Refused(format!("asks in mid-call in a form that cannot be answered: {why}"));
    }
    let asked: Vec<String> = elicitations(&state).into_iter().map(|(_, request)| question(request)).collect();
    let mut question = asked.join("\n");
    match &form {
        Form::Nothing | Form::Text { .. } => {}
        Form::Consent { .. } => question.push_str("\n(Any answer says yes; to say no, deny it.)"),
        Form::Json { schema, .. } => {
            // Writing to a string cannot fail.
            let _ = write!(question, "\n(The answer is JSON, like {}.)", example(schema));
        }
    }
    let question = crate::tool::output::shorten(&question, QUESTION_BYTES_MAX, None).into_owned();
    Asked::Person(Waits { question, state })
}

/// What a person is shown of a call that asked.
pub(super) fn preview(asked: &Waits, round: u32) -> Preview {
    let form = Form::of(&asked.state);
    let choices = match &form {
        Form::Text { schema, name, .. } => choices(&schema["properties"][name]),
        Form::Nothing | Form::Consent { .. } | Form::Json { .. } => Vec::new(),
    };
    let schema = match form {
        Form::Json { schema, .. } => Some(schema),
        Form::Nothing | Form::Consent { .. } | Form::Text { .. } => None,
    };
    Preview::Question { question: asked.question.clone(), choices, schema, round: Some(round) }
}

/// Refuses an answer that does not fit what was asked; all that is wrong with it is named.
pub(super) fn ensure_answers(asked: &Waits, answer: &str) -> Result<(), Refusal> {
    contents(&Form::of(&asked.state), answer).map(drop).map_err(|violations| {
        let mut message = "the answer does not fit what is asked:".to_owned();
        for violation in violations.iter().take(VIOLATIONS_MAX) {
            // Writing to a string cannot fail.
            let _ = write!(message, "\n- {violation}");
        }
        Refusal::new("invalid_arguments", message)
    })
}

/// What the call goes on with. `answer`: a person's, where one was asked for it.
pub(super) fn resumption(state: &Value, answer: Option<&str>, workspace: &Path) -> Result<Resumption, Vec<String>> {
    let contents = contents(&Form::of(state), answer.unwrap_or_default())?;
    let mut responses: BTreeMap<String, Value> = contents
        .into_iter()
        .map(|(key, content)| {
            let response = match content {
                Some(content) => json!({"action": "accept", "content": content}),
                None => json!({"action": "accept"}),
            };
            (key, response)
        })
        .collect();
    for (key, request) in requests(state).into_iter().flatten() {
        if method(request) == ROOTS {
            responses.insert(key.clone(), json!({"roots": [{"uri": file_uri(workspace)}]}));
        }
    }
    let request_state = state.get("request_state").and_then(Value::as_str).map(str::to_owned);
    Ok(Resumption { responses, request_state })
}

/// How an answer is read.
enum Form {
    /// Nobody is asked.
    Nothing,
    /// The request of that name wants no more than a yes.
    Consent { key: String, has_content: bool },
    /// One property, a string: the answer is that string.
    Text { key: String, name: String, schema: Value },
    /// The answer is a JSON object. `keys`: the requests, where there are several, each with an object of its own.
    Json { key: Option<String>, keys: Vec<(String, bool)>, schema: Value },
}

impl Form {
    fn of(state: &Value) -> Self {
        let asked = elicitations(state);
        match asked.as_slice() {
            [] => Self::Nothing,
            [(key, request)] => Self::of_one(key, request),
            several => {
                let properties: Map<String, Value> = several
                    .iter()
                    .map(|(key, request)| (key.clone(), requested_schema(request).unwrap_or_else(|| json!({}))))
                    .collect();
                let keys = several.iter().map(|(key, request)| (key.clone(), requested_schema(request).is_some()));
                let required: Vec<&String> = several.iter().map(|(key, _)| key).collect();
                let schema = json!({
                    "type": "object", "properties": properties, "required": required, "additionalProperties": false,
                });
                Self::Json { key: None, keys: keys.collect(), schema }
            }
        }
    }

    fn of_one(key: &str, request: &Value) -> Self {
        let key = key.to_owned();
        let Some(schema) = requested_schema(request) else { return Self::Consent { key, has_content: false } };
        let properties = schema.get("properties").and_then(Value::as_object);
        let names: Vec<(&String, &Value)> = properties.into_iter().flatten().collect();
        match names.as_slice() {
            [] => Self::Consent { key, has_content: true },
            [(name, property)] if property.get("type").and_then(Value::as_str) == Some("string") => {
                Self::Text { key, name: (*name).clone(), schema: schema.clone() }
            }
            _ => Self::Json { key: Some(key), keys: Vec::new(), schema },
        }
    }

    fn schema(&self) -> Option<Value> {
        match self {
            Self::Nothing | Self::Consent { .. } => None,
            Self::Text { schema, .. } | Self::Json { schema, .. } => Some(schema.clone()),
        }
    }
}

/// The content for each request, `None` for one that takes none; or what is wrong with the answer.
fn contents(form: &Form, answer: &str) -> Result<Vec<(String, Option<Value>)>, Vec<String>> {
    match form {
        Form::Nothing => Ok(Vec::new()),
        Form::Consent { key, has_content } => Ok(vec![(key.clone(), has_content.then(|| json!({})))]),
        Form::Text { key, name, schema } => {
            let content = json!({name: answer});
            fit(schema, &content)?;
            Ok(vec![(key.clone(), Some(content))])
        }
        Form::Json { key, keys, schema } => {
            let content: Value = serde_json::from_str(answer.trim())
                .map_err(|error| vec![format!("it is no JSON: {error}; it would be like {}", example(schema))])?;
            if !content.is_object() {
                return Err(vec![format!("it is no JSON object; it would be like {}", example(schema))]);
            }
            fit(schema, &content)?;
            match key {
                Some(key) => Ok(vec![(key.clone(), Some(content))]),
                None => Ok(keys
                    .iter()
                    .map(|(key, has_content)| {
                        let own = content.get(key).cloned().filter(|_| *has_content);
                        (key.clone(), own)
                    })
                    .collect()),
            }
        }
    }
}

fn fit(schema: &Value, content: &Value) -> Result<(), Vec<String>> {
    let violations = compile(schema).map_err(|why| vec![why])?.check_violations(content);
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}

fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::compile(schema)
}

fn requests(state: &Value) -> Option<&Map<String, Value>> {
    state.get("requests").and_then(Value::as_object)
}

fn method(request: &Value) -> &str {
    request.get("method").and_then(Value::as_str).unwrap_or("something without a name")
}

fn elicitations(state: &Value) -> Vec<(String, &Value)> {
    let all = requests(state).into_iter().flatten();
    all.filter(|(_, request)| method(request) == ELICITATION).map(|(key, request)| (key.clone(), request)).collect()
}

/// The schema of the object that is asked for; `None` where only an address is to be visited.
fn requested_schema(request: &Value) -> Option<Value> {
    if request.pointer("/params/mode").and_then(Value::as_str) == Some("url") {
        return None;
    }
    Some(request.pointer("/params/requestedSchema").cloned().unwrap_or_else(|| json!({"type": "object"})))
}

/// The values that a property may have, as a person chooses from them.
fn choices(property: &Value) -> Vec<String> {
    let listed = property.get("enum").and_then(Value::as_array).into_iter().flatten();
    let branches = ["oneOf", "anyOf"].iter().filter_map(|keyword| property.get(keyword).and_then(Value::as_array));
    let constants = branches.flatten().filter_map(|branch| branch.get("const"));
    listed.chain(constants).filter_map(Value::as_str).take(CHOICES_MAX).map(str::to_owned).collect()
}

/// An object of the form that is asked for.
fn example(schema: &Value) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    let object: Map<String, Value> = properties
        .into_iter()
        .flatten()
        .take(FIELDS_TOLD_MAX)
        .map(|(name, property)| {
            let chosen = choices(property).into_iter().next();
            let value = match (property.get("type").and_then(Value::as_str), chosen) {
                (_, Some(choice)) => json!(choice),
                (Some("boolean"), None) => json!(true),
                (Some("integer" | "number"), None) => json!(1),
                (Some("array"), None) => json!([]),
                (Some("object"), None) => serde_json::from_str(&example(property)).unwrap_or_else(|_| json!({})),
                (_, None) => json!("..."),
            };
            (name.clone(), value)
        })
        .collect();
    Value::Object(object).to_string()
}

fn question(request: &Value) -> String {
    let mut told = request.pointer("/params/message").and_then(Value::as_str).unwrap_or("(no words)").to_owned();
    if let Some(address) = request.pointer("/params/url").and_then(Value::as_str) {
        let _ = write!(told, " ({})", clip(address));
    }
    let required = request.pointer("/params/requestedSchema/required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|required| required.iter().any(|one| one == name));
    let fields = request.pointer("/params/requestedSchema/properties").and_then(Value::as_object);
    for (name, schema) in fields.into_iter().flatten().take(FIELDS_TOLD_MAX) {
        let _ = write!(told, "\n- {}", clip(name));
        if let Some(description) = schema.get("description").or_else(|| schema.get("title")).and_then(Value::as_str) {
            let _ = write!(told, ": {}", clip(description));
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string") | None => {}
            Some(kind) => drop(write!(told, " ({})", clip(kind))),
        }
        let choices = choices(schema);
        if !choices.is_empty() {
            let _ = write!(told, " (one of {})", clip(&json!(choices).to_string()));
        }
        if required.is_some() && !is_required(name) {
            told.push_str(" (may be left out)");
        }
    }
    told
}

#[cfg(test)]
mod tests;
