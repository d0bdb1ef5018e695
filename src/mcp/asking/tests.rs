use super::*;

fn elicitation(message: &str, schema: &Value) -> Value {
    json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
}

fn result(requests: &Value) -> Value {
    json!({"resultType": "input_required", "inputRequests": requests, "requestState": "s"})
}

#[track_caller]
fn waits(requests: &Value) -> Waits {
    match read(&result(requests)) {
        Asked::Person(waits) => waits,
        other => panic!("{other:?}"),
    }
}

fn shown(requests: &Value) -> (String, Vec<String>, Option<Value>) {
    match preview(&waits(requests), 1) {
        Preview::Question { question, choices, schema, round: Some(1) } => (question, choices, schema),
        other => panic!("{other:?}"),
    }
}

fn sent(requests: &Value, answer: &str) -> Value {
    let waits = waits(requests);
    let resumption = resumption(&waits.state, Some(answer), Path::new("/w")).unwrap();
    assert_eq!(resumption.request_state.as_deref(), Some("s"));
    json!(resumption.responses)
}

fn refused(requests: &Value, answer: &str) -> String {
    let waits = waits(requests);
    let refusal = ensure_answers(&waits, answer).unwrap_err();
    assert!(resumption(&waits.state, Some(answer), Path::new("/w")).is_err());
    refusal.message
}

#[test]
fn one_string_is_answered_as_it_is() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "minLength": 2}}});
    let requests = json!({"q": elicitation("Your name?", &schema)});
    assert_eq!(shown(&requests), ("Your name?\n- name".to_owned(), vec![], None));
    assert_eq!(sent(&requests, "{\"x\""), json!({"q": {"action": "accept", "content": {"name": "{\"x\""}}}));
    assert!(refused(&requests, "a").contains("`name`"), "{}", refused(&requests, "a"));
}

#[test]
fn one_of_several_strings_is_a_choice() {
    for property in [
        json!({"type": "string", "enum": ["x", "y"]}),
        json!({"type": "string", "oneOf": [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]}),
    ] {
        let schema = json!({"type": "object", "properties": {"branch": property}, "required": ["branch"]});
        let requests = json!({"q": elicitation("Which?", &schema)});
        let (question, choices, schema) = shown(&requests);
        assert_eq!(question, "Which?\n- branch (one of [\"x\",\"y\"])");
        assert_eq!((choices, schema), (vec!["x".to_owned(), "y".to_owned()], None));
        assert_eq!(sent(&requests, "y"), json!({"q": {"action": "accept", "content": {"branch": "y"}}}));
        refused(&requests, "z");
    }
}

#[test]
fn anything_else_is_answered_in_json() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "force": {"type": "boolean"}},
        "required": ["n"]});
    let requests = json!({"q": elicitation("How many?", &schema)});
    let (question, choices, told) = shown(&requests);
    assert_eq!(
        question,
        "How many?\n- n (integer)\n- force (boolean) (may be left out)\n(The answer is JSON, like \
         {\"n\":1,\"force\":true}.)"
    );
    assert_eq!(
        (choices, told),
        (vec![], Some(waits(&requests).state["requests"]["q"]["params"]["requestedSchema"].clone()))
    );
    assert_eq!(sent(&requests, " {\"n\": 3}\n"), json!({"q": {"action": "accept", "content": {"n": 3}}}));
    for (answer, words) in [("three", "no JSON"), ("3", "no JSON object"), ("{\"n\":\"3\",\"force\":1}", "`n`")] {
        let message = refused(&requests, answer);
        assert!(message.contains(words), "{answer}: {message}");
    }
    assert!(refused(&requests, "{\"n\":\"3\",\"force\":1}").contains("`force`"), "all violations are named");
}

#[test]
fn a_yes_needs_no_form() {
    let requests = json!({"q": elicitation("Sure?", &json!({"type": "object", "properties": {}}))});
    assert_eq!(shown(&requests).0, "Sure?\n(Any answer says yes; to say no, deny it.)");
    assert_eq!(sent(&requests, "yes"), json!({"q": {"action": "accept", "content": {}}}));
    let url = json!({"method": "elicitation/create", "params":
        {"mode": "url", "message": "Log in", "url": "https://example.org/", "elicitationId": "e"}});
    let requests = json!({"q": url});
    assert!(shown(&requests).0.starts_with("Log in (https://example.org/)\n"));
    assert_eq!(sent(&requests, "done"), json!({"q": {"action": "accept"}}));
}

#[test]
fn several_requests_are_answered_by_name() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let roots = json!({"method": "roots/list"});
    let requests = json!({"one": elicitation("A?", &schema), "r": roots, "two": elicitation("B?", &schema)});
    let (question, _, told) = shown(&requests);
    assert!(
        question.ends_with("(The answer is JSON, like {\"one\":{\"a\":\"...\"},\"two\":{\"a\":\"...\"}}.)"),
        "{question}"
    );
    assert_eq!(told.unwrap()["required"], json!(["one", "two"]));
    let accepted = |a: &str| json!({"action": "accept", "content": {"a": a}});
    let expected = json!({"one": accepted("x"), "r": {"roots": [{"uri": "file:///w"}]}, "two": accepted("y")});
    assert_eq!(sent(&requests, "{\"one\":{\"a\":\"x\"},\"two\":{\"a\":\"y\"}}"), expected);
    refused(&requests, "{\"one\":{\"a\":\"x\"}}");
}

#[test]
fn what_nobody_has_to_answer_goes_on_at_once() {
    let Asked::Nobody(state) = read(&json!({"resultType": "input_required", "requestState": "later"})) else {
        panic!()
    };
    let again = resumption(&state, None, Path::new("/w")).unwrap();
    assert_eq!(again, Resumption { responses: BTreeMap::new(), request_state: Some("later".to_owned()) });
    assert!(matches!(read(&result(&json!({"r": {"method": "roots/list"}}))), Asked::Nobody(_)));
}

#[test]
fn what_is_not_given_is_refused() {
    let big = "x".repeat(STATE_BYTES_MAX);
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}, "b": {}}});
    for (result, words) in [
        (result(&json!({"s": {"method": "sampling/createMessage", "params": {}}})), "for sampling/createMessage"),
        (json!({"resultType": "input_required", "requestState": big}), "more than"),
        (result(&json!({"q": elicitation("?", &remote)})), "cannot be answered"),
    ] {
        match read(&result) {
            Asked::Refused(why) => assert!(why.contains(words), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
