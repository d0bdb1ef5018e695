//! Which command rules match a command.
//!
//! A rule that allows is taken by the letter. A rule that denies matches whatever may turn out to be the command it
//! names, so what [`super::hidden`] finds counts as well, and in doubt it matches.

use std::collections::BTreeSet;

use super::CommandAccess;
use super::hidden::{Hidden, MayRun};
use super::script::Word;
use super::starters::{program_name, without_exe};

/// What a command rule says about the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern<'r> {
    Whole(&'r [String]),
    Beginning(&'r [String]),
}

impl<'r> Pattern<'r> {
    pub(super) fn new(args: Option<&'r Vec<String>>, args_prefix: Option<&'r Vec<String>>) -> Option<Self> {
        match (args, args_prefix) {
            (Some(words), _) => Some(Self::Whole(words)),
            (None, Some(words)) => Some(Self::Beginning(words)),
            (None, None) => None,
        }
    }

    fn fits(self, argv: &[String]) -> bool {
        match self {
            Self::Whole(words) => argv == words,
            Self::Beginning(words) => argv.starts_with(words),
        }
    }
}

/// Whether an allowing rule covers the command.
pub(super) fn allows(pattern: Pattern<'_>, background: bool, access: &CommandAccess) -> bool {
    pattern.fits(&access.argv) && why_uncovered(background, access).is_none()
}

/// Why an allowing rule whose words fit does not cover the command all the same.
pub(super) fn why_uncovered(background: bool, access: &CommandAccess) -> Option<&'static str> {
    if access.stdin {
        Some("rules do not allow a command that is given input")
    } else if !access.cwd_inside {
        Some("rules do not allow a command outside the workspace")
    } else if depends_on_folder(access) {
        Some("a rule for a program written as a relative path counts in the workspace's own folder alone")
    } else if access.background && !background {
        Some("the rule does not allow it in the background")
    } else {
        None
    }
}

/// Whether the program is another one than the same words start in the workspace's own folder.
pub(super) fn depends_on_folder(access: &CommandAccess) -> bool {
    let is_relative = |program: &String| program.contains('/') && !program.starts_with('/');
    !access.cwd_is_root && access.argv.first().is_some_and(is_relative)
}

/// Why the rule `pattern` that would allow the words does not; `None` where the words do not fit either.
pub(super) fn why_nearly(pattern: Pattern<'_>, background: bool, access: &CommandAccess) -> Option<&'static str> {
    if pattern.fits(&access.argv) { why_uncovered(background, access) } else { None }
}

/// A command as rules that deny see it.
pub(super) struct Denials(Hidden);

impl Denials {
    pub(super) fn of(access: &CommandAccess) -> Self {
        Self(Hidden::of(&access.argv, access.stdin))
    }

    pub(super) fn denied_by(&self, pattern: Pattern<'_>) -> bool {
        self.0.may_be_anything
            || self.0.commands().any(|command| may_be(&command, pattern))
            || self.0.doubtful_programs().any(|word| may_hold(&word, pattern))
    }
}

fn may_be(command: &MayRun<'_>, pattern: Pattern<'_>) -> bool {
    let (Pattern::Whole(rule) | Pattern::Beginning(rule)) = pattern;
    let Some((rule_program, rule_rest)) = rule.split_first() else {
        return matches!(pattern, Pattern::Beginning(_));
    };
    let Some((Word::Known(program), rest)) = command.words.split_first() else { return true };
    if !is_same_program(rule_program, program) {
        return false;
    }
    match pattern {
        Pattern::Whole(_) => may_be_whole(rest, command.is_open, rule_rest),
        Pattern::Beginning(_) => may_begin(rest, command.is_open, rule_rest),
    }
}

/// Whether a word that was not understood may hold the program that the rule names: it is the word, or stands behind
/// the letters of short options.
fn may_hold(word: &str, pattern: Pattern<'_>) -> bool {
    let (Pattern::Whole(rule) | Pattern::Beginning(rule)) = pattern;
    let Some(program) = rule.first() else { return true };
    is_same_program(program, word)
        || (word.starts_with('-') && !word.starts_with("--") && word.ends_with(program_name(program)))
}

/// The same name, whatever folders either is written with: one path ends in the other.
fn is_same_program(rule: &str, program: &str) -> bool {
    fn parts(text: &str) -> Vec<&str> {
        without_exe(text).split('/').filter(|part| !part.is_empty() && *part != ".").collect()
    }
    // zsh finds the program itself behind a `=`.
    let (rule_parts, program_parts) = (parts(rule), parts(program.trim_start_matches('=')));
    if rule_parts.is_empty() || program_parts.is_empty() {
        return rule == program;
    }
    rule_parts.ends_with(&program_parts) || program_parts.ends_with(&rule_parts)
}

/// Whether a word may turn out to be `rule`.
fn may_equal(word: &Word, rule: &str) -> bool {
    match word {
        Word::Known(text) => text == rule,
        Word::Unknown(beginning) | Word::Any(beginning) => rule.starts_with(beginning.as_str()),
    }
}

fn may_be_whole(words: &[Word], is_open: bool, rule: &[String]) -> bool {
    let mut rule_words = rule.iter();
    for word in words {
        match (word, rule_words.next()) {
            // It may be no word at all, or all that are left.
            (Word::Any(beginning), _) if beginning.is_empty() => return true,
            (Word::Any(_), Some(rule_word)) => return may_equal(word, rule_word),
            (Word::Known(_) | Word::Unknown(_), Some(rule_word)) if may_equal(word, rule_word) => {}
            (_, Some(_) | None) => return false,
        }
    }
    is_open || rule_words.next().is_none()
}

/// Whether the words may begin as the rule says, options of the program's own in between left aside (`git -c a=b
/// push`): a word behind an option may be its value.
fn may_begin(words: &[Word], is_open: bool, rule: &[String]) -> bool {
    let mut places = vec![(0, 0)];
    let mut seen = BTreeSet::new();
    while let Some((rule_at, at)) = places.pop() {
        if !seen.insert((rule_at, at)) {
            continue;
        }
        let Some(rule_word) = rule.get(rule_at) else { return true };
        let Some(word) = words.get(at) else {
            if is_open {
                return true;
            }
            continue;
        };
        if may_equal(word, rule_word) {
            if matches!(word, Word::Any(_)) {
                return true;
            }
            places.push((rule_at + 1, at + 1));
        }
        match word {
            Word::Known(text) if text.starts_with('-') => places.extend([(rule_at, at + 1), (rule_at, at + 2)]),
            Word::Known(text) if text.starts_with('+') => places.push((rule_at, at + 1)),
            Word::Unknown(beginning) | Word::Any(beginning) if beginning.is_empty() || beginning.starts_with('-') => {
                places.extend([(rule_at, at + 1), (rule_at, at + 2)]);
            }
            Word::Known(_) | Word::Unknown(_) | Word::Any(_) => {}
        }
    }
    false
}

#[cfg(test)]
mod tests;
