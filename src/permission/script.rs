//! Splits a shell's script into the simple commands that it may run.
//!
//! For rules that deny, so every doubt is settled towards "this may run": words that only the shell knows stand for any
//! word, texts of here-documents count as commands, both branches of a condition are taken. It is no shell: nothing is
//! expanded, and nothing is allowed on the strength of what it finds.

use std::iter::Peekable;
use std::str::Chars;

use super::options::{hides_programs_from_view, is_run_later};

/// A word of a command as far as it is known before it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    Known(String),
    /// One word that only the shell knows; what is known of its beginning.
    Unknown(String),
    /// Any number of words, none included; what is known of the first one's beginning.
    Any(String),
}

/// The script is larger, or nested deeper, than is looked into: it may run anything.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuch;

pub(super) const SCRIPT_BYTES_MAX: usize = 256 * 1024;
const NESTING_MAX: usize = 64;

/// The simple commands of a script, those in substitutions and functions included, in no particular order. Leading
/// assignments and the shell's own keywords are taken away.
pub(super) fn simple_commands(script: &str) -> Result<Vec<Vec<Word>>, TooMuch> {
    if script.len() > SCRIPT_BYTES_MAX {
        return Err(TooMuch);
    }
    let mut splitter = Splitter { commands: Vec::new(), nesting: 0, awaited: Vec::new() };
    splitter.commands_until(&mut script.chars().peekable(), None)?;
    Ok(splitter.commands)
}

/// Words that may stand before a command within a script, in any shell.
const KEYWORDS: [&str; 23] = [
    "!",
    "-",
    "{",
    "}",
    "if",
    "then",
    "elif",
    "else",
    "fi",
    "while",
    "until",
    "do",
    "done",
    "coproc",
    "esac",
    "in",
    "noglob",
    "nocorrect",
    "begin",
    "end",
    "and",
    "or",
    "not",
];

/// Of one command; each is another command to keep.
const OPENERS_MAX: usize = 16;

/// Words behind which a command may start although it is not the first of its line (zsh's short forms).
const OPENERS: [&str; 5] = ["{", "]]", "do", "then", "else"];

struct Splitter {
    commands: Vec<Vec<Word>>,
    nesting: usize,
    /// Here-documents whose text is still to come.
    awaited: Vec<HereDocument>,
}

struct HereDocument {
    /// The line that ends it.
    end: String,
    /// Tabs before that line do not count.
    strips_tabs: bool,
}

/// What the word that comes next is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Word,
    /// A redirection's file, no word of the command.
    Target,
    /// What ends a here-document.
    End {
        strips_tabs: bool,
    },
}

/// The word being read.
#[derive(Default)]
struct Part {
    text: String,
    /// Something was there, if only quotes.
    started: bool,
    quoted: bool,
    certainty: Certainty,
}

#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    #[default]
    Known,
    OneWord,
    AnyWords,
}

impl Part {
    fn push(&mut self, character: char) {
        self.started = true;
        // Behind the first thing that only the shell knows, the rest tells nothing.
        if self.certainty == Certainty::Known {
            self.text.push(character);
        }
    }

    fn becomes_unknown(&mut self, as_any: bool) {
        self.started = true;
        self.certainty = self.certainty.max(if as_any { Certainty::AnyWords } else { Certainty::OneWord });
    }

    fn into_word(self) -> Word {
        match self.certainty {
            Certainty::Known => Word::Known(self.text),
            Certainty::OneWord => Word::Unknown(self.text),
            Certainty::AnyWords => Word::Any(self.text),
        }
    }
}

type Characters<'s> = Peekable<Chars<'s>>;

impl Splitter {
    /// Reads commands up to the closing character of a substitution, or to the end.
    fn commands_until(&mut self, characters: &mut Characters<'_>, end: Option<char>) -> Result<(), TooMuch> {
        self.nesting += 1;
        // Whose line the text of a here-document follows, inside a substitution on that line, shells disagree.
        if self.nesting > NESTING_MAX || !self.awaited.is_empty() {
            return Err(TooMuch);
        }
        let mut words = Vec::new();
        let mut forced = Vec::new();
        let mut part = Part::default();
        let mut next = Next::Word;
        let mut open = 0_usize;
        while let Some(character) = characters.next() {
            match character {
                ')' if end == Some(')') && open == 0 => break,
                ' ' | '\t' | '\r' => self.finish_word(&mut part, &mut words, &mut next)?,
                '&' if characters.peek() == Some(&'>') => self.finish_word(&mut part, &mut words, &mut next)?,
                '\n' | ';' | '&' | '|' | '(' | ')' => {
                    open = match character {
                        '(' => open + 1,
                        ')' => open.saturating_sub(1),
                        _ => open,
                    };
                    self.finish_word(&mut part, &mut words, &mut next)?;
                    next = Next::Word;
                    self.finish_command(&mut words, &mut forced)?;
                    if character == '\n' {
                        self.here_documents(characters)?;
                    }
                }
                '<' | '>' => {
                    // `2>`: the number belongs to the redirection.
                    if part.text.chars().all(|digit| digit.is_ascii_digit())
                        && !part.quoted
                        && part.certainty == Certainty::Known
                    {
                        part = Part::default();
                    }
                    self.finish_word(&mut part, &mut words, &mut next)?;
                    next = redirection(character, characters);
                    if characters.next_if(|next| matches!(next, '|' | '!')).is_some() {
                        // `>|` is a pipe in fish, a file in other shells; `>!` a file in zsh.
                        next = Next::Word;
                        forced.push(words.len());
                    }
                }
                '#' if !part.started => while characters.next_if(|next| *next != '\n').is_some() {},
                _ => self.one_character(character, characters, &mut part)?,
            }
        }
        self.finish_word(&mut part, &mut words, &mut next)?;
        self.finish_command(&mut words, &mut forced)?;
        if end.is_some() && !self.awaited.is_empty() {
            return Err(TooMuch);
        }
        self.nesting -= 1;
        Ok(())
    }

    /// Passes over the texts of here-documents, reading the commands of the substitutions within. A program that takes
    /// such a text for commands has input that is not looked into, and that is told elsewhere.
    fn here_documents(&mut self, characters: &mut Characters<'_>) -> Result<(), TooMuch> {
        for document in std::mem::take(&mut self.awaited) {
            let mut text = String::new();
            while characters.peek().is_some() {
                let line: String = characters.by_ref().take_while(|next| *next != '\n').collect();
                let line_text = if document.strips_tabs { line.trim_start_matches('\t') } else { &line };
                if line_text == document.end {
                    break;
                }
                text.push_str(&line);
                text.push('\n');
            }
            let mut inner = text.chars().peekable();
            let mut ignored = Part::default();
            while let Some(character) = inner.next() {
                match character {
                    '\\' => drop(inner.next()),
                    '$' => self.dollar(&mut inner, &mut ignored, true)?,
                    '`' => self.backquoted(&mut inner)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn finish_word(&mut self, part: &mut Part, words: &mut Vec<Word>, next: &mut Next) -> Result<(), TooMuch> {
        if !part.started {
            return Ok(());
        }
        let word = std::mem::take(part).into_word();
        match std::mem::replace(next, Next::Word) {
            Next::Word => words.push(word),
            Next::Target => {}
            Next::End { strips_tabs } => match word {
                Word::Known(end) => self.awaited.push(HereDocument { end, strips_tabs }),
                Word::Unknown(_) | Word::Any(_) => return Err(TooMuch),
            },
        }
        Ok(())
    }

    /// Takes one character of a word, with what it opens.
    fn one_character(
        &mut self,
        character: char,
        characters: &mut Characters<'_>,
        part: &mut Part,
    ) -> Result<(), TooMuch> {
        match character {
            '\'' => {
                (part.started, part.quoted) = (true, true);
                characters.by_ref().take_while(|next| *next != '\'').for_each(|next| part.push(next));
            }
            '"' => self.double_quoted(characters, part)?,
            '\\' => match characters.next() {
                // A line that goes on.
                Some('\n') | None => {}
                Some(next) => {
                    part.quoted = true;
                    part.push(next);
                }
            },
            '$' => self.dollar(characters, part, false)?,
            '`' => {
                part.becomes_unknown(true);
                self.backquoted(characters)?;
            }
            '*' | '?' => part.becomes_unknown(true),
            // `[` and `[[` alone are programs; `{` and `}` alone keywords.
            '[' if part.text == "[" && !part.quoted && characters.peek().is_none_or(|next| next.is_whitespace()) => {
                part.push('[');
            }
            '[' | '{'
                if part.started || characters.peek().is_some_and(|next| !next.is_whitespace() && *next != '[') =>
            {
                part.becomes_unknown(true);
            }
            _ => part.push(character),
        }
        Ok(())
    }

    fn double_quoted(&mut self, characters: &mut Characters<'_>, part: &mut Part) -> Result<(), TooMuch> {
        (part.started, part.quoted) = (true, true);
        while let Some(character) = characters.next() {
            match character {
                '"' => break,
                '\\' => match characters.next() {
                    Some('\n') | None => {}
                    Some(next @ ('$' | '`' | '"' | '\\')) => part.push(next),
                    Some(next) => {
                        part.push('\\');
                        part.push(next);
                    }
                },
                '$' => self.dollar(characters, part, true)?,
                '`' => {
                    part.becomes_unknown(false);
                    self.backquoted(characters)?;
                }
                _ => part.push(character),
            }
        }
        Ok(())
    }

    /// What follows a `$`: a substitution's commands are read, everything else makes the word unknown.
    fn dollar(&mut self, characters: &mut Characters<'_>, part: &mut Part, quoted: bool) -> Result<(), TooMuch> {
        match characters.peek().copied() {
            Some('(') => {
                characters.next();
                part.becomes_unknown(!quoted);
                if characters.peek() == Some(&'(') {
                    characters.next();
                    return self.expression(characters, '(', ')', 2);
                }
                self.commands_until(characters, Some(')'))
            }
            Some('{') => {
                characters.next();
                // "${list[@]}" is as many words as the list has.
                part.becomes_unknown(true);
                self.expression(characters, '{', '}', 1)
            }
            Some('\'') if !quoted => {
                characters.next();
                part.becomes_unknown(false);
                while let Some(character) = characters.next() {
                    match character {
                        '\'' => break,
                        '\\' => drop(characters.next()),
                        _ => {}
                    }
                }
                Ok(())
            }
            Some('"') if !quoted => Ok(()),
            Some(next) if next == '_' || next.is_alphanumeric() => {
                while characters.next_if(|next| *next == '_' || next.is_alphanumeric()).is_some() {}
                part.becomes_unknown(!quoted);
                Ok(())
            }
            Some(next @ ('@' | '*' | '#' | '?' | '-' | '$' | '!')) => {
                characters.next();
                part.becomes_unknown(!quoted || next == '@');
                Ok(())
            }
            _ => {
                part.push('$');
                Ok(())
            }
        }
    }

    /// Skips arithmetic or a parameter's expansion, reading the commands of the substitutions within.
    fn expression(
        &mut self,
        characters: &mut Characters<'_>,
        open: char,
        close: char,
        depth: usize,
    ) -> Result<(), TooMuch> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(TooMuch);
        }
        let mut depth = depth;
        let mut ignored = Part::default();
        while let Some(character) = characters.next() {
            match character {
                '\\' => drop(characters.next()),
                '$' => self.dollar(characters, &mut ignored, true)?,
                '`' => self.backquoted(characters)?,
                '"' => self.double_quoted(characters, &mut ignored)?,
                // Whether it quotes here depends on what is around it, and on the shell.
                '\'' => return Err(TooMuch),
                _ if character == open => depth += 1,
                _ if character == close => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                _ => {}
            }
        }
        self.nesting -= 1;
        Ok(())
    }

    fn backquoted(&mut self, characters: &mut Characters<'_>) -> Result<(), TooMuch> {
        let mut inner = String::new();
        while let Some(character) = characters.next() {
            match character {
                '`' => break,
                '\\' => match characters.next() {
                    Some(next @ ('`' | '\\' | '$')) => inner.push(next),
                    Some(next) => inner.extend(['\\', next]),
                    None => {}
                },
                _ => inner.push(character),
            }
        }
        self.commands_until(&mut inner.chars().peekable(), None)
    }

    /// `forced` holds the places of the words behind `>|`: each is a file, or starts a command.
    fn finish_command(&mut self, words: &mut Vec<Word>, forced: &mut Vec<usize>) -> Result<(), TooMuch> {
        let words = std::mem::take(words);
        let forced = std::mem::take(forced);
        if forced.is_empty() {
            return self.add_command(&words);
        }
        let mut from = 0;
        for at in forced.iter().copied().chain([words.len()]) {
            self.add_command(&words[from..at])?;
            from = at;
        }
        let forced: std::collections::BTreeSet<usize> = forced.into_iter().collect();
        let others = words.iter().enumerate().filter(|(at, _)| !forced.contains(at)).map(|(_, word)| word.clone());
        self.add_command(&others.collect::<Vec<_>>())
    }

    fn add_command(&mut self, words: &[Word]) -> Result<(), TooMuch> {
        let mut openers = 0;
        for (index, word) in words.iter().enumerate().skip(1) {
            if matches!(word, Word::Known(text) if OPENERS.contains(&text.as_str())) {
                openers += 1;
                if openers > OPENERS_MAX {
                    return Err(TooMuch);
                }
                self.add(&words[index + 1..]);
            }
        }
        self.add(words);
        Ok(())
    }

    /// What a variable such as `PROMPT_COMMAND` is set to counts as run.
    fn add_value(&mut self, assignment: &Word) {
        let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = assignment;
        let Some((name, value)) = text.split_once('=') else { return };
        if hides_programs_from_view(name, value) {
            self.commands.push(vec![Word::Unknown(String::new())]);
        }
        if is_run_later(name) {
            let value = match assignment {
                Word::Known(_) => Word::Known(value.to_owned()),
                Word::Unknown(_) => Word::Unknown(value.to_owned()),
                Word::Any(_) => Word::Any(value.to_owned()),
            };
            self.commands.push(vec![Word::Known("eval".to_owned()), value]);
        }
    }

    fn add(&mut self, words: &[Word]) {
        let mut rest = words;
        loop {
            rest = match rest {
                [Word::Known(word), tail @ ..] if KEYWORDS.contains(&word.as_str()) => tail,
                [Word::Known(word), _, tail @ ..] if word == "function" => tail,
                [first, tail @ ..] if is_assignment(first) => {
                    self.add_value(first);
                    tail
                }
                _ => break,
            };
        }
        if !rest.is_empty() {
            self.commands.push(rest.to_vec());
        }
    }
}

/// Reads the rest of a redirection's sign; returns what the word behind it is.
fn redirection(first: char, characters: &mut Characters<'_>) -> Next {
    let mut sign = String::from(first);
    while let Some(next) = characters.next_if(|next| matches!(next, '<' | '>' | '&')) {
        sign.push(next);
    }
    match sign.as_str() {
        "<<" => Next::End { strips_tabs: characters.next_if_eq(&'-').is_some() },
        // `>&-` closes and names no file.
        "<&" | ">&" if characters.next_if_eq(&'-').is_some() => Next::Word,
        _ => Next::Target,
    }
}

/// `NAME=...`, also `NAME+=...`.
pub(super) fn is_assignment(word: &Word) -> bool {
    let (Word::Known(text) | Word::Unknown(text) | Word::Any(text)) = word;
    let Some((name, _)) = text.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands joined by ` ; `, an unknown word as `?`, any number as `...`.
    fn shown(script: &str) -> String {
        let word = |word: &Word| match word {
            Word::Known(text) => text.clone(),
            Word::Unknown(_) => "?".to_owned(),
            Word::Any(_) => "...".to_owned(),
        };
        let commands = simple_commands(script).unwrap();
        let commands: Vec<String> =
            commands.iter().map(|words| words.iter().map(word).collect::<Vec<_>>().join(" ")).collect();
        commands.join(" ; ")
    }

    #[test]
    fn commands_are_found_wherever_a_shell_starts_them() {
        for (script, expected) in [
            ("rm -rf x", "rm -rf x"),
            ("a; b && c || d | e & f\ng", "a ; b ; c ; d ; e ; f ; g"),
            ("'r'\"m\" -\\rf 'x y'", "rm -rf x y"),
            ("A=1 B=$(c) rm x", "c ; rm x"),
            ("echo $(rm x) `rm y`", "rm x ; rm y ; echo ... ..."),
            ("echo \"$(rm x)\"", "rm x ; echo ?"),
            ("echo \"`rm \\`b\\``\"", "b ; rm ... ; echo ?"),
            ("echo '$(rm x)'", "echo $(rm x)"),
            ("if a; then b; else c; fi", "a ; b ; c"),
            ("while ! a; do b; done", "a ; b"),
            ("f() { rm x; }; f", "f ; rm x ; f"),
            ("function f { rm x; }", "rm x ; rm x"),
            ("function f () { rm x; }", "rm x"),
            ("(cd x && rm y)", "cd x ; rm y"),
            ("case $a in b) rm x;; esac", "case ... in b ; rm x"),
            ("a > out 2>&1 < in", "a"),
            ("a >&2 b &> c d", "a b d"),
            ("2>err rm x", "rm x"),
            ("a >|f rm x", "a ; f rm x ; a rm x"),
            (">| f rm x", "f rm x ; rm x"),
            ("PROMPT_COMMAND='rm x'", "eval rm x"),
            ("a <(rm x)", "a ; rm x"),
            ("a # rm x\nb#c", "a ; b#c"),
            ("$X y", "... y"),
            ("\"$X\" y", "? y"),
            ("/bin/r? x", "... x"),
            ("{rm,-rf,x}", "..."),
            ("{ rm x; }", "rm x"),
            ("[ -f x ] && rm x", "[ -f x ] ; rm x"),
            ("[[ -f x ]] && rm x", "[[ -f x ]] ; rm x"),
            ("echo ${x:-$(rm x)}", "rm x ; echo ..."),
            ("echo $((1 + $(rm x)))", "rm x ; echo ..."),
            ("sh <<EOF\nrm x $(b)\nEOF\nc", "sh ; b ; c"),
            ("a <<-'E F' <<<x; b\nit's\n\tE F\nc", "a ; b ; c"),
            ("a >&- b >&1 c", "a b c"),
            ("if [[ a ]] rm x", "rm x ; [[ a ]] rm x"),
            ("if [[ $a ]]; then rm x; fi", "[[ ... ]] ; rm x"),
            ("rm \\\n  x", "rm x"),
            ("$'\\x72m' x", "? x"),
            ("a $", "a $"),
            ("\"unclosed $(rm x", "rm x ; ?"),
            ("", ""),
        ] {
            assert_eq!(shown(script), expected, "{script}");
        }
    }

    #[test]
    fn what_is_too_large_or_too_deep_is_told() {
        assert_eq!(simple_commands(&"$(".repeat(1000)), Err(TooMuch));
        assert_eq!(simple_commands(&"${".repeat(1000)), Err(TooMuch));
        assert_eq!(simple_commands(&"a do ".repeat(1000)), Err(TooMuch));
        assert_eq!(simple_commands(&"x".repeat(SCRIPT_BYTES_MAX + 1)), Err(TooMuch));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_split_without_a_panic(script in "[a-z $(){}`'\"\\\\;&|<>\n#*?=\\[\\]!]{0,80}") {
            let _ = simple_commands(&script);
        }

        #[test]
        fn a_command_behind_a_separator_is_never_missed(
            before in "[a-z =]{0,12}",
            separator in proptest::sample::select(vec![";", "&&", "||", "|", "&", "\n", "$(", "`", "("]),
        ) {
            let commands = simple_commands(&format!("{before}{separator} rm -rf x")).unwrap();
            let expected: Vec<Word> = ["rm", "-rf", "x"].map(|word| Word::Known(word.to_owned())).into();
            proptest::prop_assert!(commands.contains(&expected), "{commands:?}");
        }
    }
}
