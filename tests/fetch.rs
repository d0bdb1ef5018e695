//! Pages in a turn: whose word it takes to fetch one, what the model gets, and what is kept.

use std::time::Instant;

use serde_json::json;

use crate::support::{Case, Pages, SLOW, reply};

#[test]
fn a_host_without_a_rule_asks_and_its_page_is_kept() {
    let pages = Pages::start();
    let url = pages.url("/page");
    let call = || reply().call("fetch", json!({"url": url}));
    let case = Case::new().script([call()]);
    let outcome = case.run(["--output", "json", "tell", "go"]).exit(10).json();
    let pending = &outcome["pending"][0];
    assert_eq!(pending["summary"], json!(url));
    assert_eq!(pending["preview"], json!({"kind": "fetch", "url": url}));
    assert_eq!(pending["grant"], json!([{"type": "fetch", "allow": true, "host": "127.0.0.1"}]));
    assert_eq!(pages.requests(), 0);
    case.server().script([reply().text("done")]);
    case.run(["approve", "--grant", "session"]).exit(0).stdout("done\n");
    let told = case.server().last_request().result("call_1");
    assert!(told.ends_with("text/html, 41 bytes]\n# Page\n\nIt says **this**"), "{told}");
    assert_eq!(pages.requests(), 1);
    assert_eq!(std::fs::read_dir(case.path(".attini/cache/pages")).unwrap().count(), 1);
    case.server().script([call(), reply().call("fetch", json!({"url": url, "refresh": true})), reply().text("again")]);
    case.run(["tell", "once more"]).exit(0);
    assert_eq!(pages.requests(), 2, "one from the cache, one from the server");
}

#[test]
fn a_redirect_to_a_host_that_would_ask_is_not_followed() {
    let pages = Pages::start();
    let rule = json!({"type": "fetch", "allow": true, "host": "127.0.0.1"});
    let calls = reply().call("fetch", json!({"url": pages.url("/away")}));
    let case = Case::new().rules([rule]).script([calls, reply().text("done")]);
    case.run(["tell", "go"]).exit(0);
    assert_eq!(case.outcome_of("call_1").1, "redirect_refused");
    let told = case.server().last_request().result("call_1");
    assert!(told.contains("http://elsewhere.test/secret") && told.contains(r#""host":"elsewhere.test""#), "{told}");
    assert_eq!(pages.requests(), 1);
}

/// Six waits under a limit of three cost two of them, and the results come in the order of the calls.
#[test]
fn pages_of_one_reply_are_fetched_together_as_many_as_the_limit_says() {
    let pages = Pages::start();
    let calls = (1..=6)
        .fold(reply(), |reply, number| reply.call("fetch", json!({"url": pages.url(&format!("/slow/{number}"))})));
    let case = Case::new()
        .config("[dispatch]\nconcurrency = 3\n")
        .rules([json!({"type": "fetch", "allow": true, "host": "127.0.0.1"})])
        .script([calls, reply().text("done")]);
    let begun = Instant::now();
    case.run(["tell", "go"]).exit(0);
    let wall = begun.elapsed();
    println!("six reads of {} ms under a limit of 3: {} ms", SLOW.as_millis(), wall.as_millis());
    // One after the other they would take six; what is left is for a loaded machine.
    assert!(wall >= 2 * SLOW && wall < 4 * SLOW, "{wall:?}");
    assert_eq!(pages.most_at_once(), 3);
    let results = case.records().into_iter().filter(|record| record["type"] == "tool_result");
    let order: Vec<_> = results.map(|record| record["call_id"].clone()).collect();
    assert_eq!(order, ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6"]);
}
