//! The commands that a command may run: itself, and what wrappers, shells and their scripts hide.
//!
//! For rules that deny. It errs towards finding too much; what it gives up on counts as "anything".

mod carried;

use std::collections::{BTreeMap, BTreeSet};

use super::options::{
    has_grammar, hides_programs_from_view, is_run_later, is_shell_flag, is_understood, is_understood_by_shell,
    may_be_long_line_option, possible_programs, split_for_env,
};
use super::script::{SCRIPT_BYTES_MAX, Word, is_assignment, simple_commands};
use super::starters::{Starter, known_name, program_name, reads_on, starter_of};

const COMMANDS_MAX: usize = 4096;
const DEPTH_MAX: u32 = 16;

/// Every command that is found.
#[derive(Debug)]
pub(super) struct Hidden {
    lists: Vec<Vec<Word>>,
    found: Vec<Found>,
    /// From which word on a list was not understood: any word there may be a program.
    doubts: BTreeMap<usize, usize>,
    /// It may run something that is not among those found.
    pub(super) may_be_anything: bool,
}

/// A command as the end of one of the word lists.
#[derive(Debug, Clone, Copy)]
struct Found {
    list: usize,
    start: usize,
    /// More words may follow when it runs (`xargs`).
    is_open: bool,
    /// It may be given input, in which a shell finds a script that nobody sees here.
    has_input: bool,
    depth: u32,
}

/// One command that may run.
pub(super) struct MayRun<'h> {
    pub(super) words: &'h [Word],
    pub(super) is_open: bool,
}

impl Hidden {
    /// `has_input`: the program is given input.
    pub(super) fn of(argv: &[String], has_input: bool) -> Self {
        let words = argv.iter().cloned().map(Word::Known).collect();
        let mut hidden =
            Self { lists: vec![words], found: Vec::new(), doubts: BTreeMap::new(), may_be_anything: false };
        hidden.add(Found { list: 0, start: 0, is_open: false, has_input, depth: 0 });
        let mut next = 0;
        // Once it may be anything, more makes no difference.
        while !hidden.may_be_anything
            && let Some(found) = hidden.found.get(next).copied()
        {
            hidden.look_into(found);
            next += 1;
        }
        hidden
    }

    pub(super) fn commands(&self) -> impl Iterator<Item = MayRun<'_>> {
        self.found.iter().map(|found| MayRun { words: &self.lists[found.list][found.start..], is_open: found.is_open })
    }

    /// The words that may be programs where the options before them were not understood.
    pub(super) fn doubtful_programs(&self) -> impl Iterator<Item = String> {
        let words = self.doubts.iter().flat_map(|(list, start)| &self.lists[*list][*start..]);
        words.flat_map(|word| {
            let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = word;
            possible_programs(text)
        })
    }

    /// What stands behind the program's name was not understood.
    fn doubt(&mut self, found: Found) {
        let start = found.start + 1;
        let words = &self.lists[found.list][start..];
        self.may_be_anything |= words.iter().any(|word| !matches!(word, Word::Known(_)));
        self.doubt_known(found);
    }

    /// The same, where words that only the shell knows are let pass.
    fn doubt_known(&mut self, found: Found) {
        let start = self.doubts.entry(found.list).or_insert(found.start + 1);
        *start = (*start).min(found.start + 1);
    }

    fn add(&mut self, command: Found) {
        if self.found.len() >= COMMANDS_MAX || command.depth > DEPTH_MAX {
            self.may_be_anything = true;
            return;
        }
        match self.lists[command.list].get(command.start) {
            Some(Word::Known(_)) => self.found.push(command),
            // A program that only the shell knows.
            Some(Word::Unknown(_) | Word::Any(_)) => self.may_be_anything = true,
            None => self.may_be_anything |= command.is_open,
        }
    }

    /// Adds a command of which `within` is made.
    fn add_words(&mut self, within: Found, words: Vec<Word>) {
        self.lists.push(words);
        self.add(Found { list: self.lists.len() - 1, start: 0, depth: within.depth + 1, ..within });
    }

    /// Adds the commands of a script that `within` runs. In a script, any command may be fed by a pipe.
    fn add_script(&mut self, within: Found, script: &Word) {
        let Word::Known(script) = script else {
            self.may_be_anything = true;
            return;
        };
        match simple_commands(script) {
            Ok(commands) => {
                let within = Found { has_input: true, ..within };
                for words in commands {
                    if self.may_be_anything {
                        return;
                    }
                    self.add_words(within, words);
                }
            }
            Err(_) => self.may_be_anything = true,
        }
    }

    fn look_into(&mut self, found: Found) {
        let Some(Word::Known(program)) = self.lists[found.list].get(found.start) else { return };
        let first = Word::Known(program.clone());
        let name = known_name(program_name(program)).to_owned();
        // A command that was meant for a shell, as `["A=b", "rm"]`.
        if is_assignment(&first) {
            self.look_into_value(found, found.start);
            self.add(Found { start: found.start + 1, depth: found.depth + 1, ..found });
        }
        let Some(starter) = starter_of(&name) else { return self.look_into_carrier(found, &name) };
        match starter {
            Starter::Wrapper { operands } => self.look_behind_wrapper(found, &name, operands),
            Starter::Feeder => self.look_behind_wrapper(Found { is_open: true, ..found }, &name, 0),
            Starter::Shell { is_posix } => self.look_into_shell(found, is_posix),
            Starter::Script => self.join_script(found, &name),
            Starter::Callback => {
                self.join_script(found, &name);
                self.doubt(found);
            }
            Starter::Find => self.look_into_find(found),
            Starter::Alias => self.look_into_aliases(found),
            Starter::Declaration => self.look_into_declarations(found),
            // A program in its words is no shell's; that a denied word stands there has to do.
            Starter::Interpreter => {
                let first = self.lists[found.list].get(found.start + 1);
                if reads_on(&name) || matches!(first, Some(Word::Known(word)) if word.starts_with('-')) {
                    self.doubt_known(found);
                }
            }
        }
    }

    /// The command starts at the first word that is neither option, assignment nor operand; a word behind an option may
    /// be its value or that first word, so both are taken.
    fn look_behind_wrapper(&mut self, found: Found, name: &str, operands: usize) {
        if !has_grammar(name) {
            self.doubt(found);
        }
        self.walk(found, name, operands);
    }

    fn walk(&mut self, found: Found, name: &str, operands: usize) {
        let end = self.lists[found.list].len();
        // Places at which the walk stands, with the operands still to come.
        let mut places = vec![(found.start + 1, operands)];
        let mut seen = BTreeSet::new();
        while let Some((at, operands)) = places.pop() {
            if !seen.insert((at, operands)) {
                continue;
            }
            if at >= end {
                self.may_be_anything |= found.is_open;
                continue;
            }
            let starts = Found { start: at, depth: found.depth + 1, ..found };
            match &self.lists[found.list][at] {
                // A hyphen alone is an option of `env`.
                Word::Known(word) if word == "--" || word == "-" => places.push((at + 1, operands)),
                Word::Known(word) if word.starts_with('-') => {
                    places.push((at + 1, operands));
                    if at + 2 <= end {
                        places.push((at + 2, operands));
                    }
                    if !is_understood(name, word) {
                        self.doubt(found);
                        self.look_into_option(found, name, at);
                    }
                }
                word if is_assignment(word) => {
                    places.push((at + 1, operands));
                    self.look_into_value(found, at);
                }
                // To `env` anything with a `=` is an assignment, whatever its name.
                Word::Known(word) if word.contains('=') => {
                    places.push((at + 1, operands));
                    self.look_into_value(found, at);
                    self.add(starts);
                }
                Word::Known(_) => {
                    if operands > 0 {
                        places.push((at + 1, operands - 1));
                    }
                    self.add(starts);
                }
                Word::Unknown(_) if operands > 0 => places.push((at + 1, operands - 1)),
                Word::Unknown(_) | Word::Any(_) => self.may_be_anything = true,
            }
        }
    }

    /// A variable that programs run: `EDITOR=rm`, `BASH_ENV=x`, a function that is passed on.
    fn look_into_value(&mut self, found: Found, at: usize) {
        let Word::Known(text) = &self.lists[found.list][at] else { return };
        let Some((name, value)) = text.split_once('=') else { return };
        self.may_be_anything |= hides_programs_from_view(name, value);
        if is_run_later(name) || name.starts_with("BASH_FUNC_") || name.starts_with("GIT_") {
            let value = Word::Known(value.to_owned());
            self.add_script(Found { is_open: true, ..found }, &value);
        }
    }

    /// Options of wrappers that take a whole command line: `env -S`, `su -c`, `flock -c`, `script -c`.
    fn look_into_option(&mut self, found: Found, program: &str, at: usize) {
        let words = &self.lists[found.list];
        let Word::Known(option) = &words[at] else { return };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        let is_long = name.starts_with("--");
        let takes_line = if is_long { may_be_long_line_option(name) } else { name.contains(['S', 'c']) };
        if !takes_line {
            return;
        }
        // Each with the place of the words that follow it.
        let mut lines = Vec::new();
        match value {
            Some(value) if is_long => lines.push((value.to_owned(), at + 1)),
            _ => {
                if !is_long && let Some((_, glued)) = option.split_once(['S', 'c']) {
                    lines.push((glued.to_owned(), at + 1));
                }
                if let Some(Word::Known(next)) = words.get(at + 1) {
                    lines.push((next.clone(), at + 2));
                }
            }
        }
        for (line, rest) in lines {
            if program == "env" {
                self.add_env_line(found, &line, rest);
            } else {
                // Words behind the option are added to the line.
                self.add_script(Found { is_open: true, ..found }, &Word::Known(line));
            }
        }
    }

    /// `env` reads the words of the line as its own, options first.
    fn add_env_line(&mut self, found: Found, line: &str, rest: usize) {
        let Some(inner) = split_for_env(line) else {
            self.may_be_anything = true;
            return;
        };
        if inner.is_empty() {
            return;
        }
        let mut words = vec![Word::Known("env".to_owned())];
        words.extend(inner);
        words.extend(self.lists[found.list].get(rest..).unwrap_or_default().iter().cloned());
        self.add_words(found, words);
    }

    fn look_into_shell(&mut self, found: Found, is_posix: bool) {
        // What `xargs` puts into a script is not seen.
        self.may_be_anything |= found.is_open;
        let is_quoting = |word: &Word| matches!(word, Word::Known(text) if text.contains(['\'', '"', '\\', '`']));
        if !is_posix && self.lists[found.list][found.start..].iter().any(is_quoting) {
            self.may_be_anything = true;
        }
        let mut reads_input = false;
        let words = self.lists[found.list][found.start + 1..].to_vec();
        let mut takes_script = false;
        // Others than POSIX shells may add the words behind a script to it.
        let within = Found { is_open: !is_posix, ..found };
        let mut index = 0;
        while let Some(word) = words.get(index) {
            let Word::Known(text) = word else {
                self.may_be_anything = true;
                return;
            };
            index += 1;
            if text == "-" {
                continue;
            }
            if let Some(long) = text.strip_prefix("--") {
                if !is_shell_flag(long) {
                    return self.look_at_every_word(found, &words[index - 1..]);
                }
            } else if text.starts_with(['-', '+']) {
                if !is_understood_by_shell(text, is_posix) {
                    return self.look_at_every_word(found, &words[index - 1..]);
                }
                takes_script |= text.contains(['c', 'C']);
                reads_input |= text.contains('s');
                // `-o pipefail`; if it was no value after all, it was the script.
                if text.ends_with(['o', 'O'])
                    && let Some(value) = words.get(index)
                {
                    if takes_script {
                        self.add_script(within, value);
                    }
                    index += 1;
                }
            } else if takes_script {
                self.add_script(within, word);
                return;
            } else {
                // A script in a file: the file is the command.
                // `/dev/stdin` and its like are no files.
                self.may_be_anything |=
                    (reads_input && found.has_input) || text.starts_with("/dev/") || text.starts_with("/proc/");
                self.add_words(found, words[index - 1..].to_vec());
                return;
            }
        }
        self.may_be_anything |= found.has_input && !takes_script;
    }

    /// The options of a shell were not understood: each word may be its script, or the value of an option.
    fn look_at_every_word(&mut self, found: Found, words: &[Word]) {
        self.doubt(found);
        self.may_be_anything |= found.has_input;
        let within = Found { is_open: true, ..found };
        for word in words {
            let Word::Known(text) = word else { continue };
            self.add_script(within, word);
            // `--command=rm x`
            if let Some((_, value)) = text.split_once('=').filter(|_| text.starts_with('-')) {
                self.add_script(within, &Word::Known(value.to_owned()));
            }
        }
    }

    /// `eval` and its like join their words to a script.
    fn join_script(&mut self, found: Found, name: &str) {
        let words = &self.lists[found.list][found.start + 1..];
        let mut script = String::new();
        let mut is_known = !found.is_open;
        let mut scripts = Vec::new();
        for word in words {
            match word {
                Word::Known(text) => {
                    script.push_str(text);
                    script.push(' ');
                    scripts.push(word.clone());
                }
                Word::Unknown(_) | Word::Any(_) => is_known = false,
            }
        }
        let comes_by_input = scripts.is_empty() && found.has_input;
        self.may_be_anything |= !is_known || comes_by_input || script.len() > SCRIPT_BYTES_MAX;
        self.add_script(found, &Word::Known(script));
        // Options come before the line (`watch -n 1 'rm x'`), and each word may be a line of its own (`parallel`).
        let within = Found { is_open: true, ..found };
        for script in &scripts {
            self.add_script(within, script);
        }
        let has_options = self.lists[found.list][found.start + 1..]
            .iter()
            .any(|word| matches!(word, Word::Known(text) if text.starts_with('-') && text.len() > 1 && text != "--"));
        if has_options {
            self.doubt(found);
        }
        self.walk(found, name, 0);
    }

    /// `alias x=rm`: the line may run, with more words behind it.
    fn look_into_aliases(&mut self, found: Found) {
        let within = Found { is_open: true, ..found };
        let words = self.lists[found.list][found.start + 1..].to_vec();
        for word in &words {
            match word {
                Word::Known(text) => {
                    if let Some((_, line)) = text.split_once('=') {
                        self.add_script(within, &Word::Known(line.to_owned()));
                    }
                }
                Word::Unknown(_) | Word::Any(_) => self.may_be_anything = true,
            }
        }
    }

    /// `export EDITOR='rm x'`: what a variable that programs run is set to.
    fn look_into_declarations(&mut self, found: Found) {
        for at in found.start + 1..self.lists[found.list].len() {
            self.look_into_value(found, at);
        }
    }

    fn look_into_find(&mut self, found: Found) {
        let words = self.lists[found.list][found.start + 1..].to_vec();
        self.may_be_anything |= found.is_open;
        let mut rest = words.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            rest = tail;
            let Word::Known(text) = first else { continue };
            // `fd` also takes the program behind the same word's letter, or behind a `=`.
            if text.starts_with("--exec=") || text.starts_with("--exec-batch=") || is_glued(text) {
                self.doubt(found);
            }
            if !matches!(
                text.as_str(),
                "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
            ) {
                continue;
            }
            let ends = |word: &Word| matches!(word, Word::Known(text) if text == ";" || text == "+");
            let end = tail.iter().position(ends).unwrap_or(tail.len());
            let command = tail[..end].iter().map(|word| match word {
                Word::Known(text) if text.contains('{') => Word::Unknown(String::new()),
                _ => word.clone(),
            });
            let command = command.collect();
            self.add_words(found, command);
        }
    }
}

/// Whether a word may be short options with the program of `fd -x` behind them.
fn is_glued(word: &str) -> bool {
    word.starts_with('-')
        && !word.starts_with("--")
        && word.len() > 2
        && word.contains(['x', 'X'])
        && !word.contains("exec")
}
