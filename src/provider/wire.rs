//! What every format has to make valid before it is sent back: ids, names and arguments of calls, as models wrote them.
//!
//! The same history always gives the same words, and a longer one those of the shorter, whichever provider made it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{Message, Request};
use crate::session::record::ToolCall;
use crate::workspace::git::hex;

/// Longest name of a tool that services take.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// Longest id of a call that services take.
pub(super) const ID_BYTES_MAX: usize = 64;
/// Of an id that stands for one that is too long or holds other characters.
const DIGEST_ID_CHARACTERS: usize = 24;
/// Stands for the name of a call that has none.
const NAMELESS: &str = "unknown";
/// How much of its hash ends a name that stands for another one.
const HASH_DIGITS: usize = 8;
/// Follows an assistant message that would otherwise be the last, or have another right behind it.
pub(super) const GO_ON: &str = "Please go on.";

/// A name that a service takes. What had to be changed ends with a hash of the name as it was, so that names that differ
/// only in what no service takes stay apart, whatever other names there are.
pub(super) fn valid_name(name: &str) -> String {
    if name.is_empty() {
        return NAMELESS.to_owned();
    }
    if name.len() <= NAME_BYTES_MAX && name.chars().all(is_word) {
        return name.to_owned();
    }
    let kept = name.chars().take(NAME_BYTES_MAX - HASH_DIGITS - 1);
    let kept: String = kept.map(|character| if is_word(character) { character } else { '_' }).collect();
    let hash = hex(&Sha256::digest(name.as_bytes()));
    format!("{kept}_{}", &hash[..HASH_DIGITS])
}

/// Gives the calls of a reply the names that are meant, where the model repeats one that stood for another: a tool's
/// that is offered, or one that it wrote itself before.
pub(super) fn give_names_back(calls: &mut [ToolCall], request: &Request<'_>) {
    let called = request.messages.iter().filter_map(|message| match message {
        Message::Assistant(message) => Some(message.tool_calls.iter().map(|call| call.name.as_str())),
        Message::User { .. } | Message::Results(_) => None,
    });
    let offered = request.tools.iter().map(|tool| tool.name.as_str());
    let names = offered.chain(called.flatten()).filter(|name| !name.is_empty());
    let changed: BTreeMap<String, &str> =
        names.map(|name| (valid_name(name), name)).filter(|(valid, name)| valid != name).collect();
    for call in calls {
        if let Some(name) = changed.get(&call.name) {
            (*name).clone_into(&mut call.name);
        }
    }
}

/// The arguments as an object, and the text that they were read from; `None` if they are no object.
pub(super) fn object_of(arguments: &str) -> Option<(Map<String, Value>, String)> {
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(object)) => Some((object, arguments.to_owned())),
        // An object that was sent as a JSON string is what it was taken for.
        Ok(Value::String(inner)) => match serde_json::from_str::<Value>(&inner) {
            Ok(Value::Object(object)) => Some((object, inner)),
            _ => None,
        },
        _ => None,
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// What ids a service takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum IdForm {
    /// Letters, digits, `_` and `-`.
    #[default]
    Word,
    /// Nine letters and digits.
    NineCharacters,
}

impl IdForm {
    fn fits(self, id: &str) -> bool {
        match self {
            Self::Word => (1..=ID_BYTES_MAX).contains(&id.len()) && id.chars().all(is_word),
            Self::NineCharacters => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        }
    }

    fn characters(self) -> usize {
        match self {
            Self::Word => DIGEST_ID_CHARACTERS,
            Self::NineCharacters => 9,
        }
    }
}

/// Ids of the service's form in place of those that are not; the same one for the same id.
#[derive(Debug, Default)]
pub(super) struct Ids {
    form: IdForm,
    /// Each id with the one that stands for it, in the order met.
    known: Vec<(String, String)>,
    taken: BTreeSet<String>,
}

impl Ids {
    pub(super) fn new(form: IdForm) -> Self {
        Self { form, ..Self::default() }
    }

    pub(super) fn valid(&mut self, id: &str) -> String {
        if let Some((_, valid)) = self.known.iter().rev().find(|(known, _)| known == id) {
            return valid.clone();
        }
        let mut valid = id.to_owned();
        let mut rounds = 0_u32;
        while !self.form.fits(&valid) || self.taken.contains(&valid) {
            let digest = Sha256::digest(format!("{rounds} {id}"));
            valid = digest.iter().take(self.form.characters()).map(|byte| char::from(b'a' + byte % 26)).collect();
            rounds += 1;
        }
        self.taken.insert(valid.clone());
        self.known.push((id.to_owned(), valid.clone()));
        valid
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::provider::{AdvertisedTool, AssistantMessage};

    #[test]
    fn arguments_are_one_object_or_none() {
        let cases = [
            ("{\"a\": 1}", Some("{\"a\": 1}")),
            (" {} ", Some(" {} ")),
            ("\"{\\\"a\\\":1}\"", Some("{\"a\":1}")),
            ("\"text\"", None),
            ("[{}]", None),
            ("{\"a\": ", None),
            ("", None),
            ("null", None),
        ];
        for (arguments, expected) in cases {
            assert_eq!(object_of(arguments).map(|(_, text)| text).as_deref(), expected, "{arguments}");
        }
    }

    #[test]
    fn names_stay_apart_and_come_back() {
        let long = "x".repeat(80);
        let names = ["read", "read.file", "read/file", "read_file", "größe", &long, &long[..79], &long[..64]];
        let valid: Vec<String> = names.iter().map(|name| valid_name(name)).collect();
        assert_eq!(valid.iter().collect::<BTreeSet<_>>().len(), names.len(), "{valid:?}");
        assert_eq!((valid[0].as_str(), valid[3].as_str(), valid[7].as_str()), ("read", "read_file", &long[..64]));
        assert!(valid[1].starts_with("read_file_") && valid[4].starts_with("gr__e_"), "{valid:?}");

        let call =
            |name: &str| ToolCall { id: String::new(), name: name.to_owned(), arguments: String::new(), opaque: None };
        let said = AssistantMessage {
            provider: String::new(),
            model: String::new(),
            text: String::new(),
            reasoning: String::new(),
            tool_calls: vec![call("read.file"), call("read")],
            opaque: None,
        };
        let tool = AdvertisedTool { name: long.clone(), description: String::new(), parameters: Value::Null };
        let request = Request { messages: &[Message::Assistant(said)], tools: &[tool], ..Request::default() };
        let mut repeated = [valid[1].as_str(), "read", &valid[5], &valid[2], "read_file", ""].map(call);
        give_names_back(&mut repeated, &request);
        let meant: Vec<&str> = repeated.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(meant, ["read.file", "read", long.as_str(), valid[2].as_str(), "read_file", ""]);
    }

    proptest! {
        #[test]
        fn ids_are_valid_distinct_and_stable(
            ids in proptest::collection::vec("[a-z:é ]{0,3}|[a-z]{9}|x{60,70}", 1..20),
            nine in any::<bool>(),
        ) {
            let form = if nine { IdForm::NineCharacters } else { IdForm::Word };
            let map = |ids: &[String]| {
                let mut known = Ids::new(form);
                ids.iter().map(|id| known.valid(id)).collect::<Vec<_>>()
            };
            let valid = map(&ids);
            for (position, id) in valid.iter().enumerate() {
                prop_assert!(form.fits(id), "{}", id);
                for other in 0..position {
                    prop_assert_eq!(ids[other] == ids[position], valid[other] == *id);
                }
            }
            let half = ids.len() / 2;
            prop_assert_eq!(&map(&ids[..half])[..], &valid[..half]);
        }

        #[test]
        fn names_are_valid(name in "\\PC{0,80}") {
            let valid = valid_name(&name);
            prop_assert!((1..=NAME_BYTES_MAX).contains(&valid.len()) && valid.chars().all(is_word), "{}", valid);
            prop_assert_eq!(valid_name(&valid), valid);
        }
    }
}
