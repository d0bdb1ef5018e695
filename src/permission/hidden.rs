//! The commands that a command may run: itself, and what wrappers, shells and their scripts hide.
//!
//! For rules that deny. It errs towards finding too much; what it gives up on counts as "anything".

use super::script::{SCRIPT_BYTES_MAX, Word, is_assignment, simple_commands};
use super::starters::{Starter, program_name, starter_of};

const COMMANDS_MAX: usize = 4096;
const DEPTH_MAX: u32 = 16;

/// Every command that is found.
#[derive(Debug)]
pub(super) struct Hidden {
    lists: Vec<Vec<Word>>,
    found: Vec<Found>,
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
        let mut hidden = Self { lists: vec![words], found: Vec::new(), may_be_anything: false };
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
        let Some(starter) = starter_of(program_name(program)) else { return };
        match starter {
            Starter::Wrapper { operands } => self.look_behind_wrapper(found, operands),
            Starter::Feeder => self.look_behind_wrapper(Found { is_open: true, ..found }, 0),
            Starter::Shell { is_posix } => self.look_into_shell(found, is_posix),
            Starter::Script => self.join_script(found),
            Starter::Find => self.look_into_find(found),
            Starter::Alias => self.look_into_aliases(found),
            // What an interpreter's program does is not looked into.
            Starter::Interpreter => {}
        }
    }

    /// The command starts at the first word that is neither option, assignment nor operand; a word behind an option may
    /// be its value or that first word, so both are taken.
    fn look_behind_wrapper(&mut self, found: Found, operands: usize) {
        let end = self.lists[found.list].len();
        // Places at which the walk stands, with the operands still to come.
        let mut places = vec![(found.start + 1, operands)];
        let mut seen = std::collections::BTreeSet::new();
        while let Some((at, operands)) = places.pop() {
            if !seen.insert((at, operands)) {
                continue;
            }
            if at >= end {
                self.may_be_anything |= found.is_open;
                continue;
            }
            match &self.lists[found.list][at] {
                Word::Known(word) if word == "--" => places.push((at + 1, operands)),
                Word::Known(word) if word.starts_with('-') && word.len() > 1 => {
                    places.push((at + 1, operands));
                    if at + 2 <= end {
                        places.push((at + 2, operands));
                    }
                    self.look_into_option(found, at);
                }
                word if is_assignment(word) => places.push((at + 1, operands)),
                Word::Known(_) | Word::Unknown(_) if operands > 0 => places.push((at + 1, operands - 1)),
                Word::Known(_) => self.add(Found { start: at, depth: found.depth + 1, ..found }),
                Word::Unknown(_) | Word::Any(_) => self.may_be_anything = true,
            }
        }
    }

    /// Options of wrappers that take a whole command line: `env -S`, `su -c`, `flock -c`, `script -c`.
    fn look_into_option(&mut self, found: Found, at: usize) {
        let words = &self.lists[found.list];
        let Word::Known(option) = &words[at] else { return };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        let is_long = name.starts_with("--");
        let takes_line = if is_long {
            matches!(name, "--split-string" | "--command" | "--session-command")
        } else {
            name.contains(['S', 'c'])
        };
        if !takes_line {
            return;
        }
        let mut scripts = Vec::new();
        match value {
            Some(value) if is_long => scripts.push(Word::Known(value.to_owned())),
            _ => {
                if !is_long && let Some((_, glued)) = option.split_once(['S', 'c']) {
                    scripts.push(Word::Known(glued.to_owned()));
                }
                scripts.extend(words.get(at + 1).cloned());
            }
        }
        // Words behind the option are added to the line.
        let within = Found { is_open: true, ..found };
        for script in &scripts {
            self.add_script(within, script);
        }
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
        let mut index = 0;
        while let Some(word) = words.get(index) {
            let Word::Known(text) = word else {
                self.may_be_anything = true;
                return;
            };
            index += 1;
            if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').unwrap_or((long, ""));
                if name.contains("command") {
                    takes_script = true;
                    self.add_script(found, &Word::Known(value.to_owned()));
                }
            } else if text.len() > 1 && text.starts_with(['-', '+']) {
                takes_script |= text.contains(['c', 'C']);
                reads_input |= text.contains('s');
                // `-o pipefail`; if it was no value after all, it was the script.
                if text.contains(['o', 'O'])
                    && let Some(value) = words.get(index)
                {
                    if takes_script {
                        self.add_script(found, value);
                    }
                    index += 1;
                }
            } else if takes_script {
                self.add_script(found, word);
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

    /// `eval` and its like join their words to a script.
    fn join_script(&mut self, found: Found) {
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
        self.look_behind_wrapper(found, 0);
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

    fn look_into_find(&mut self, found: Found) {
        let words = self.lists[found.list][found.start + 1..].to_vec();
        self.may_be_anything |= found.is_open;
        let mut rest = words.as_slice();
        while let Some((first, tail)) = rest.split_first() {
            rest = tail;
            let Word::Known(text) = first else { continue };
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
