//! Any bytes as a permissions.jsonl: a rule that is read is written and read again as the same; adding one keeps every
//! byte that was there, adds it once, and taking it away again leaves what was there. What does not parse stays.

#![no_main]

use std::sync::LazyLock;

use attini::config::environment::Environment;
use attini::config::trust::Trust;
use attini::permission::file::parse;
use attini::permission::{Rule, RulesFile};
use attini::session::record::Scope;
use attini_fuzz::Place;
use libfuzzer_sys::fuzz_target;

const NAME: &str = "permissions.jsonl";
static PLACE: LazyLock<Place> = LazyLock::new(Place::new);

fuzz_target!(|bytes: &[u8]| {
    let parsed = parse(bytes, NAME, Scope::User);
    PLACE.clear();
    PLACE.write(NAME, bytes);
    let folder = PLACE.path("");
    let file = RulesFile::user(&folder);
    let mut trust = Trust::load(&Environment::default()).expect("nothing is recorded");
    let rule = Rule::Tool { allow: false, name: "fuzzed".to_owned(), turn: None };
    let added = file.add(std::slice::from_ref(&rule), &mut trust);
    let after = PLACE.read(NAME).expect("the file stays");
    let Ok(rules) = parsed else {
        assert!(added.is_err(), "a rule was added to a file that does not parse");
        assert_eq!(after, bytes, "a file that does not parse was changed");
        return;
    };
    for rule in &rules {
        assert_eq!(Rule::parse(&rule.to_line()).as_ref(), Ok(rule), "written, it reads as another");
    }
    added.expect("a rule can be added to a file that parses");
    assert!(after.starts_with(bytes), "a byte that was there is gone");
    let expected: Vec<Rule> =
        if rules.contains(&rule) { rules.clone() } else { rules.iter().cloned().chain([rule.clone()]).collect() };
    assert_eq!(parse(&after, NAME, Scope::User).expect("it still parses"), expected);
    file.add(std::slice::from_ref(&rule), &mut trust).expect("a rule can be added again");
    assert_eq!(PLACE.read(NAME).as_deref(), Some(&after[..]), "the same rule was added twice");
    if !rules.contains(&rule) {
        file.remove(std::slice::from_ref(&rule), &mut trust).expect("a rule can be taken away");
        let left = PLACE.read(NAME).expect("the file stays");
        assert!(left.starts_with(bytes), "taking a rule away took more");
        assert_eq!(parse(&left, NAME, Scope::User).expect("it still parses"), rules);
    }
});
