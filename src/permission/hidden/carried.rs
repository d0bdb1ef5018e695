//! What programs of other trades start by their options and words: `rsync -e`, `git -c alias.x=y`, `docker exec`.

use super::{Found, Hidden};
use crate::permission::carriers::{
    StartingOptions, is_read_by_git, is_run_by_git, runs_behind, starting_options, starting_options_of_git,
};
use crate::permission::options::split_for_env;
use crate::permission::script::Word;
use crate::permission::starters::program_name;

/// A value that starts a program.
enum Started {
    Line(Word),
    /// The program's name stands somewhere in it.
    Text(Word),
}

impl Hidden {
    /// `name`: the program's, as it is known.
    pub(super) fn look_into_carrier(&mut self, found: Found, name: &str) {
        self.look_behind_runner(found, name);
        match name {
            "git" => self.look_into_git(found),
            "sed" => self.look_into_sed(found),
            _ => {}
        }
        self.look_into_starting_options(found, found.start + 1, starting_options(name));
        // `tar cIf 'rm x' a b`
        let first = self.lists[found.list].get(found.start + 1);
        let is_old_style =
            matches!(first, Some(Word::Known(word)) if !word.starts_with('-') && word.contains(['I', 'F']));
        if matches!(name, "tar" | "bsdtar") && is_old_style {
            self.doubt_known(found);
        }
        if matches!(name, "make" | "bmake") {
            self.look_into_makes_shell(found);
        }
    }

    /// `docker exec`, `npx`, `git bisect run` and their like: behind these words any word may be the program.
    fn look_behind_runner(&mut self, found: Found, name: &str) {
        let tail = &self.lists[found.list][found.start + 1..];
        let is_first = |wanted: &str| {
            let mut words = wanted.split_whitespace();
            let Some(first) = words.next() else { return Some(0) };
            let at = tail.iter().position(|word| matches!(word, Word::Known(text) if text == first))?;
            let second = words.next();
            let next = tail.get(at + 1);
            let fits = second.is_none_or(|second| matches!(next, Some(Word::Known(text)) if text == second));
            fits.then_some(at + 1)
        };
        let starts = runs_behind(name).iter().filter_map(|(wanted, _)| is_first(wanted)).min();
        if let Some(at) = starts {
            self.doubt_known(Found { start: found.start + at, ..found });
        }
    }

    fn look_into_starting_options(&mut self, found: Found, from: usize, options: StartingOptions) {
        let words = self.lists[found.list].get(from..).unwrap_or_default();
        let mut started = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let next = words.get(index + 1);
            let values = |option: &'static str| value_of(option, word, next, found.is_open);
            started.extend(options.lines.iter().filter_map(|option| values(option)).map(Started::Line));
            started.extend(options.texts.iter().filter_map(|option| values(option)).map(Started::Text));
        }
        self.add_started(found, started);
    }

    fn add_started(&mut self, found: Found, started: Vec<Started>) {
        for one in started {
            if self.may_be_anything {
                return;
            }
            match one {
                // What ssh runs it runs elsewhere, but for its options.
                Started::Line(Word::Known(line)) if is_plain_ssh(&line) => self.doubt_text(Word::Known(line)),
                // More words are added to the line.
                Started::Line(line) => self.add_script(Found { is_open: true, ..found }, &line),
                Started::Text(text @ Word::Known(_)) => self.doubt_text(text),
                Started::Text(Word::Unknown(_) | Word::Any(_)) => self.may_be_anything = true,
            }
        }
    }

    fn doubt_text(&mut self, text: Word) {
        self.lists.push(vec![text]);
        self.doubts.insert(self.lists.len() - 1, 0);
    }

    /// The options before git's subcommand: settings that are run, and aliases; then what the subcommand runs.
    fn look_into_git(&mut self, found: Found) {
        let words = &self.lists[found.list];
        let mut settings = Vec::new();
        let mut at = found.start + 1;
        while let Some(Word::Known(option)) = words.get(at) {
            match option.as_str() {
                "-c" => settings.extend(words.get(at + 1).cloned()),
                // The value is a variable's.
                "--config-env" => settings.extend(words.get(at + 1).map(|word| Word::Unknown(before_equals(word)))),
                option if option.starts_with("--config-env=") => {
                    let setting = Word::Known(option["--config-env=".len()..].to_owned());
                    settings.push(Word::Unknown(before_equals(&setting)));
                }
                option if option.starts_with("--exec-path=") => self.may_be_anything = true,
                "-C" | "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source" => {}
                option if option.starts_with('-') => {
                    at += 1;
                    continue;
                }
                _ => break,
            }
            at += 2;
        }
        let mut aliases = Vec::new();
        for setting in settings {
            self.look_into_git_setting(found, setting, &mut aliases);
        }
        let subcommand = match self.lists[found.list].get(at) {
            Some(Word::Known(subcommand)) => subcommand.clone(),
            // Any alias may be meant.
            Some(Word::Unknown(_) | Word::Any(_)) => {
                self.may_be_anything |= !aliases.is_empty();
                return;
            }
            None => return,
        };
        self.look_into_starting_options(found, at + 1, starting_options_of_git(&subcommand));
        for (name, line) in aliases {
            if name.eq_ignore_ascii_case(&subcommand) {
                self.add_alias_of_git(found, at, &line);
            }
        }
    }

    /// `aliases` is added to by names and what they stand for.
    fn look_into_git_setting(&mut self, found: Found, setting: Word, aliases: &mut Vec<(String, String)>) {
        let Word::Known(text) = &setting else {
            let (Word::Known(beginning) | Word::Unknown(beginning) | Word::Any(beginning)) = &setting;
            // A key that is not known may be any.
            let is_harmless = beginning.split_once('=').is_some_and(|(key, _)| !is_run_by_git(key));
            self.may_be_anything |= !is_harmless;
            return;
        };
        if let Some((key, value)) = text.split_once('=').filter(|(key, _)| is_run_by_git(key)) {
            let small = key.to_ascii_lowercase();
            self.may_be_anything |= is_read_by_git(&small) && !matches!(value, "" | "/dev/null");
            match key.get(.."alias.".len()).filter(|_| small.starts_with("alias.")) {
                Some(section) if !value.starts_with('!') => {
                    let name = &key[section.len()..];
                    // `alias.NAME.command` says the same.
                    let name = if small.ends_with(".command") { &name[..name.len() - ".command".len()] } else { name };
                    aliases.push((name.to_owned(), value.to_owned()));
                }
                _ => {
                    let line = Word::Known(value.strip_prefix('!').unwrap_or(value).to_owned());
                    self.add_started(found, vec![Started::Line(line)]);
                }
            }
        }
        self.doubt_text(setting);
    }

    /// The alias at `at` is replaced by what it stands for; the options before it stay.
    fn add_alias_of_git(&mut self, found: Found, at: usize, line: &str) {
        let Some(inner) = split_for_env(line) else {
            self.may_be_anything = true;
            return;
        };
        let words = &self.lists[found.list];
        let mut replaced = words[found.start..at].to_vec();
        replaced.extend(inner);
        replaced.extend(words[at + 1..].iter().cloned());
        self.add_words(found, replaced);
    }

    /// `make SHELL=rm`
    fn look_into_makes_shell(&mut self, found: Found) {
        let words = &self.lists[found.list][found.start + 1..];
        let shells = words.iter().filter_map(|word| {
            let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = word;
            let value = text.strip_prefix("SHELL=").or_else(|| text.strip_prefix("SHELL:="))?;
            Some(Started::Line(like(word, value)))
        });
        let shells = shells.collect();
        self.add_started(found, shells);
    }

    /// The commands `e LINE` and `s/x/LINE/e` of a script as far as they are plain to see.
    fn look_into_sed(&mut self, found: Found) {
        let mut lines = Vec::new();
        for word in &self.lists[found.list][found.start + 1..] {
            let Word::Known(text) = word else { continue };
            let script = text.strip_prefix("--expression=").or_else(|| text.strip_prefix("-e")).unwrap_or(text);
            for part in script.split(['\n', ';', '{']) {
                let command = without_address(part.trim_start());
                if let Some(line) = command.strip_prefix('e').filter(|line| line.starts_with(char::is_whitespace)) {
                    lines.push(Started::Line(Word::Known(line.to_owned())));
                }
            }
            if runs_what_it_replaces(script) {
                lines.push(Started::Text(word.clone()));
            }
        }
        self.add_started(found, lines);
    }
}

/// The value that `word` gives to `option`, in itself or by the word behind it.
fn value_of(option: &str, word: &Word, next: Option<&Word>, is_open: bool) -> Option<Word> {
    let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = word;
    let by_next = || match next {
        Some(next) => Some(next.clone()),
        None => is_open.then(|| Word::Unknown(String::new())),
    };
    let value = if option.len() > 2 {
        // Long ones may be shortened; those behind one hyphen may be written behind two.
        let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
        let is_this = if option.starts_with("--") {
            name.len() > 3 && option.starts_with(name)
        } else {
            name == option || name.strip_prefix('-') == Some(option)
        };
        match value {
            _ if !is_this => return None,
            Some(value) => like(word, value),
            None => by_next()?,
        }
    } else {
        let letters = text.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
        let (_, glued) = letters.split_once(option.strip_prefix('-')?)?;
        if glued.is_empty() && matches!(word, Word::Known(_)) { by_next()? } else { like(word, glued) }
    };
    match (option, &value) {
        // Of tar's actions one alone runs something.
        ("--checkpoint-action", Word::Known(action)) => {
            action.strip_prefix("exec=").map(|line| Word::Known(line.to_owned()))
        }
        _ => Some(value),
    }
}

/// Whether a line is one call of `ssh` with words for itself alone.
fn is_plain_ssh(line: &str) -> bool {
    let program = line.split_whitespace().next().unwrap_or_default();
    program_name(program) == "ssh" && !line.contains(['\n', ';', '&', '|', '$', '`', '<', '>', '(', ')', '{', '}'])
}

/// A word with another text, as well known as `word` is.
fn like(word: &Word, text: &str) -> Word {
    match word {
        Word::Known(_) => Word::Known(text.to_owned()),
        Word::Unknown(_) => Word::Unknown(text.to_owned()),
        Word::Any(_) => Word::Any(text.to_owned()),
    }
}

/// The setting's key and its `=`; its value is somewhere else.
fn before_equals(word: &Word) -> String {
    let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = word;
    text.split_once('=').map_or_else(String::new, |(key, _)| format!("{key}="))
}

/// A command of sed's behind the lines it is for, as far as these are numbers or a pattern without a slash.
fn without_address(part: &str) -> &str {
    let is_number = |letter: char| letter.is_ascii_digit() || matches!(letter, '$' | ',' | '!' | '~' | '+' | ' ');
    let mut rest = part.trim_start_matches(is_number);
    // Two patterns at most, with what stands between them.
    for _ in 0..2 {
        if let Some((_, behind)) = rest.strip_prefix('/').and_then(|pattern| pattern.split_once('/')) {
            rest = behind.trim_start_matches('I').trim_start_matches(is_number);
        }
    }
    rest
}

/// Whether it ends as a `s///e` does.
fn runs_what_it_replaces(script: &str) -> bool {
    script.split(['\n', ';', '}']).any(|part| {
        let part = without_address(part.trim());
        let Some(delimiter) = part.strip_prefix('s').and_then(|rest| rest.chars().next()) else { return false };
        let Some((_, flags)) = part.rsplit_once(delimiter) else { return false };
        !delimiter.is_alphanumeric()
            && flags.contains('e')
            && flags.chars().all(|flag| flag.is_ascii_digit() || "gpeiImMw ".contains(flag))
    })
}
