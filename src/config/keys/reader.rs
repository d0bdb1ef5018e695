//! Reads values out of a TOML document and says, with file and line, what was meant where one is wrong.

use std::ops::{Range, RangeInclusive};

use anyhow::Result;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::nearest::suggestion;
use crate::failure::Failure;

pub(super) type Table<'a> = DeTable<'a>;

pub(super) struct Reader<'a> {
    text: &'a str,
    shown: &'a str,
}

/// One key and its value, with the places of both.
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    key_at: usize,
    value: &'a DeValue<'a>,
    value_at: usize,
}

pub(super) fn text_of<'a>(bytes: &'a [u8], shown: &str) -> Result<&'a str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let line = line_of(bytes, error.valid_up_to());
            Err(Failure::usage(format!("{shown}:{line}: the text is not UTF-8")).into())
        }
    }
}

/// The number, from 1, of the line on which the byte at `offset` stands.
fn line_of(bytes: &[u8], offset: usize) -> usize {
    let before = bytes.get(..offset).unwrap_or(bytes);
    before.split(|byte| *byte == b'\n').count()
}

/// The entries of a table in the order written, so that the first error in the file is the one told.
pub(super) fn entries<'t>(table: &'t DeTable<'t>) -> Vec<Entry<'t>> {
    let mut entries: Vec<Entry<'t>> = table
        .iter()
        .map(|(key, value): (&Spanned<_>, &Spanned<_>)| Entry {
            key: key.get_ref().as_ref(),
            key_at: key.span().start,
            value: value.get_ref(),
            value_at: value.span().start,
        })
        .collect();
    entries.sort_by_key(|entry| entry.key_at);
    entries
}

fn json_of_table(table: &DeTable<'_>) -> Result<Value, String> {
    let entries = table.iter().map(|(key, value)| Ok((key.get_ref().to_string(), json_of(value.get_ref())?)));
    entries.collect::<Result<Map<String, Value>, String>>().map(Value::Object)
}

fn json_of(value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::String(text) => Ok(Value::from(text.as_ref())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::from)
            .map_err(|_| format!("the number {number}, which is too large")),
        DeValue::Float(number) => {
            let finite = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            finite.map(Value::Number).ok_or_else(|| format!("the number {number}, which JSON has not"))
        }
        DeValue::Boolean(value) => Ok(Value::from(*value)),
        DeValue::Datetime(_) => Err("a date, which JSON has not".to_owned()),
        DeValue::Array(values) => values.iter().map(|value| json_of(value.get_ref())).collect(),
        DeValue::Table(table) => json_of_table(table),
    }
}

impl Entry<'_> {
    pub(super) fn is_boolean(&self) -> bool {
        self.value.as_bool().is_some()
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, shown: &'a str) -> Self {
        Self { text, shown }
    }

    pub(super) fn parse(&self) -> Result<Table<'a>> {
        match DeTable::parse(self.text) {
            Ok(table) => Ok(table.into_inner()),
            Err(error) => {
                let at = error.span().map_or(0, |span: Range<usize>| span.start);
                Err(self.error_at(at, error.message()))
            }
        }
    }

    fn error_at(&self, offset: usize, message: &str) -> anyhow::Error {
        let line = line_of(self.text.as_bytes(), offset);
        Failure::usage(format!("{}:{line}: {message}", self.shown)).into()
    }

    pub(super) fn error(&self, entry: &Entry<'_>, message: &str) -> anyhow::Error {
        self.error_at(entry.value_at, message)
    }

    pub(super) fn error_at_key(&self, entry: &Entry<'_>, message: &str) -> anyhow::Error {
        self.error_at(entry.key_at, message)
    }

    /// `table` is empty for the top level.
    pub(super) fn unknown(&self, entry: &Entry<'_>, key: &str, table: &str, known: &[&str]) -> anyhow::Error {
        let place = if table.is_empty() { String::new() } else { format!(" in [{table}]") };
        self.error_at(entry.key_at, &format!("unknown key `{key}`{place}{}", suggestion(key, known, "keys")))
    }

    fn wrong(&self, entry: &Entry<'_>, wanted: &str) -> anyhow::Error {
        let found = match entry.value {
            DeValue::String(text) => format!("the string `{text}`"),
            DeValue::Integer(number) => format!("the number {number}"),
            DeValue::Float(number) => format!("the number {number}"),
            DeValue::Boolean(value) => format!("{value}"),
            DeValue::Datetime(_) => "a date".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        self.error(entry, &format!("`{}` is {wanted}, not {found}", entry.key))
    }

    pub(super) fn table<'t>(&self, entry: &Entry<'t>) -> Result<&'t DeTable<'t>> {
        entry.value.as_table().ok_or_else(|| self.wrong(entry, "a table"))
    }

    pub(super) fn string<'t>(&self, entry: &Entry<'t>) -> Result<&'t str> {
        entry.value.as_str().ok_or_else(|| self.wrong(entry, "a string"))
    }

    pub(super) fn boolean(&self, entry: &Entry<'_>) -> Result<bool> {
        entry.value.as_bool().ok_or_else(|| self.wrong(entry, "true or false"))
    }

    /// An array of strings, none of them empty.
    pub(super) fn texts(&self, entry: &Entry<'_>) -> Result<Vec<String>> {
        let Some(array) = entry.value.as_array() else { return Err(self.wrong(entry, "an array of strings")) };
        array
            .iter()
            .map(|element| match element.get_ref().as_str() {
                Some(text) if !text.is_empty() => Ok(text.to_owned()),
                _ => {
                    let message = format!("every element of `{}` is a string that is not empty", entry.key);
                    Err(self.error_at(element.span().start, &message))
                }
            })
            .collect()
    }

    pub(super) fn whole_number(&self, entry: &Entry<'_>, range: &RangeInclusive<u64>) -> Result<u64> {
        let number = entry
            .value
            .as_integer()
            .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|number| range.contains(number));
        number.ok_or_else(|| self.wrong(entry, &format!("a whole number from {} to {}", range.start(), range.end())))
    }

    /// A table as JSON; a date, which JSON has not, is an error.
    pub(super) fn json_object(&self, entry: &Entry<'_>) -> Result<Value> {
        let table = self.table(entry)?;
        json_of_table(table).map_err(|what| self.error(entry, &format!("`{}` holds {what}", entry.key)))
    }

    /// True, false, or one word.
    pub(super) fn switch<T>(&self, entry: &Entry<'_>, on: T, off: T, (word, other): (&str, T)) -> Result<T> {
        match (entry.value.as_bool(), entry.value.as_str()) {
            (Some(true), _) => Ok(on),
            (Some(false), _) => Ok(off),
            (None, Some(text)) if text == word => Ok(other),
            (None, _) => Err(self.wrong(entry, &format!("true, false or `{word}`"))),
        }
    }

    pub(super) fn one_of<T: Copy>(&self, entry: &Entry<'_>, choices: &[(&str, T)]) -> Result<T> {
        let names: Vec<String> = choices.iter().map(|(name, _)| format!("`{name}`")).collect();
        let wanted = format!("one of {}", names.join(", "));
        let Some(text) = entry.value.as_str() else { return Err(self.wrong(entry, &wanted)) };
        match choices.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(*value),
            None => Err(self.wrong(entry, &wanted)),
        }
    }
}
