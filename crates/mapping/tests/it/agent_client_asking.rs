//! Permissions and questions, in both directions.

use serde_json::{Value, json};
use trilogue_domain::interrupt::{Effect, NO_OPTION, PermissionOption};
use trilogue_domain::{
    Answer, Code, Interrupt, InterruptId, InterruptKind, Json, MessageId, Part, PrincipalId,
    Resolution, Survives,
};
use trilogue_mapping::agent_client::{
    ClientQuestion, ToolSubject, answer_of_elicitation, answer_of_permission, answer_of_prompt,
    client_question, elicitation_outcome, interrupt_of_elicitation, interrupt_of_permission,
    message_of_prompt, permission_outcome, subject,
};
use trilogue_mapping::connect;
use trilogue_wire::agent_client::{
    ClientCapabilities, ContentBlock, CreateElicitationRequest, CreateElicitationResponse, Read,
    RequestPermissionRequest, RequestPermissionResponse, Rules, read, splice,
};

use super::official::assert_valid;
use super::sample::{THREAD, interrupt, json_of, links, parsed};

pub(crate) fn read_as<T: Read>(value: &Value) -> T {
    read(value.to_string().as_bytes(), Rules::Lenient).unwrap()
}

fn client(value: &Value) -> ClientCapabilities {
    read_as(value)
}

fn forms() -> ClientCapabilities {
    client(&json!({ "elicitation": { "form": {}, "url": {} } }))
}

fn id() -> InterruptId {
    InterruptId::parse("i").unwrap()
}

pub(crate) fn answer_resolution(answer: Answer) -> Resolution {
    let by = PrincipalId::parse("p").unwrap();
    Resolution::Answered { by, answer, digest: String::new(), extra: None }
}

/// A permission request of an agent, with every allowed member and some that are not allowed.
fn permission_request() -> Value {
    json!({
        "sessionId": "sess-0",
        "toolCall": {
            "toolCallId": "c", "title": "Write a.txt", "name": "write", "kind": "edit", "own": 1,
            "locations": [{ "path": "/a.txt", "line": 1 }, { "path": "/b.txt" }],
            "content": [
                { "type": "content", "content": { "type": "text", "text": "in full" } },
                { "type": "diff", "path": "/a.txt", "newText": "x" },
                { "type": "diff", "path": "/c.txt", "newText": "y" },
            ],
        },
        "options": [
            { "optionId": "always", "name": "Always", "kind": "allow_always" },
            { "optionId": "once", "name": "Once", "kind": "allow_once" },
            { "optionId": "no", "name": "No", "kind": "reject_once", "_meta": { "x": 1 } },
        ],
        "own": true,
    })
}

fn permission() -> (RequestPermissionRequest, Interrupt) {
    let sent = permission_request();
    let (raw, _) =
        splice::cut_session(&sent.to_string()).map(|(raw, id)| (raw, id.into_owned())).unwrap();
    let read = read_as(&sent);
    let interrupt = interrupt_of_permission(&read, &raw, id());
    (read, interrupt)
}

fn question_params(asking: &ClientQuestion) -> Value {
    match asking {
        ClientQuestion::Permission(params) => {
            assert_valid("RequestPermissionRequest", &parsed(params));
            parsed(params)
        }
        ClientQuestion::Elicitation(params) => {
            assert_valid("CreateElicitationRequest", &parsed(params));
            parsed(params)
        }
        ClientQuestion::Text(text) => json!(text),
    }
}

#[test]
fn a_permission_goes_through_as_it_came() {
    let (_, interrupt) = permission();
    assert_eq!(interrupt.kind, InterruptKind::Permission);
    assert_eq!(interrupt.prompt, [Part::text("Write a.txt"), Part::text("in full")]);
    let options: Vec<_> =
        interrupt.options.iter().map(|it| (it.id.as_str(), it.effect, it.always)).collect();
    assert_eq!(
        options,
        [
            ("always", Effect::Allow, true),
            ("once", Effect::Allow, false),
            ("no", Effect::Reject, false)
        ]
    );
    for caps in [ClientCapabilities::new(), forms()] {
        let mut expected = permission_request();
        expected["sessionId"] = json!(THREAD);
        let asking = client_question(&interrupt, THREAD, &caps);
        assert!(matches!(asking, ClientQuestion::Permission(_)));
        assert_eq!(question_params(&asking), expected);
    }
}

#[test]
fn a_request_without_its_session_goes_through_too() {
    let (read, _) = permission();
    let sent = permission_request().to_string();
    let raw = splice::remove(&sent, &["sessionId"]);
    let interrupt = interrupt_of_permission(&read, &raw, id());
    let mut expected = permission_request();
    expected["sessionId"] = json!(THREAD);
    assert_eq!(question_params(&client_question(&interrupt, THREAD, &forms())), expected);
}

#[test]
fn rules_see_the_tool_and_its_files() {
    let (read, _) = permission();
    let seen = subject(&read);
    assert_eq!((seen.kind.as_deref(), seen.name.as_deref()), (Some("edit"), Some("write")));
    assert_eq!(seen.paths, ["/a.txt", "/b.txt", "/c.txt"]);
    assert!(!seen.runs_command && !seen.is_partial);
    let bare =
        read_as(&json!({ "sessionId": "s", "toolCall": { "toolCallId": "c" }, "options": [] }));
    assert_eq!(subject(&bare), ToolSubject::default());
}

#[test]
fn whatever_chooses_nothing_that_was_offered_allows_nothing() {
    let (_, interrupt) = permission();
    let option = |id: &str| Some(Answer::Option(id.to_owned()));
    let answer = |value: Value| {
        answer_of_permission(
            &interrupt,
            &read_as::<RequestPermissionResponse>(&json!({ "outcome": value })),
        )
    };
    assert_eq!(answer(json!({ "outcome": "selected", "optionId": "once" })), option("once"));
    // A hosted agent gets no choice.
    let nothing = Some(Answer::Json(Json::null()));
    for unchosen in [
        json!({ "outcome": "selected", "optionId": "other" }),
        json!({ "outcome": "cancelled" }),
        json!({ "outcome": "approved", "optionId": "once" }),
    ] {
        assert_eq!(answer(unchosen.clone()), nothing, "{unchosen}");
    }
    assert!(interrupt.check(&Answer::Json(Json::null())).is_ok());
    assert!(interrupt.check(&Answer::Json(json_of(&json!(false)))).is_err());
    // For a native agent this call alone is rejected.
    let native = Interrupt { payload: Json::null(), ..interrupt.clone() };
    let cancelled = RequestPermissionResponse::cancelled();
    assert_eq!(answer_of_permission(&native, &cancelled), option("no"));
    let mut forever = native.clone();
    forever.options.iter_mut().for_each(|option| option.always = true);
    assert_eq!(answer_of_permission(&forever, &cancelled), None);
    let mut allowing = native;
    allowing.options.retain(|option| option.effect == Effect::Allow);
    assert_eq!(answer_of_permission(&allowing, &cancelled), None);
    assert_eq!(answer_of_permission(&allowing, &RequestPermissionResponse::selected("no")), None);
}

#[test]
fn an_id_of_options_with_both_effects_is_never_sent() {
    let (read, mut interrupt) = permission();
    let twin = PermissionOption::once("no", "Allow", Effect::Allow);
    interrupt.options.push(twin);
    assert_eq!(interrupt.reject_option(), None);
    for resolution in [
        answer_resolution(Answer::Option("no".to_owned())),
        Resolution::TimedOut { option: Some("no".to_owned()) },
    ] {
        let told = permission_outcome(&interrupt, &resolution);
        assert_eq!(read.chosen(&told).map(|option| &option.option_id), None, "{resolution:?}");
    }
    let told =
        permission_outcome(&interrupt, &answer_resolution(Answer::Option("once".to_owned())));
    assert!(read.chosen(&told).is_some(), "the other options are as they were");
}

#[test]
fn a_permission_without_options_is_answered_with_none() {
    let (_, mut interrupt) = permission();
    interrupt.options.clear();
    let none = Answer::Option(NO_OPTION.to_owned());
    assert!(interrupt.check(&none).is_ok());
    let hint = interrupt.check(&Answer::Option("x".to_owned())).unwrap_err();
    assert!(hint.hint_text().is_some_and(|hint| hint.contains(NO_OPTION)), "{hint:?}");
    let said = |text: &str| message_of_prompt(&[ContentBlock::text(text)], MessageId::generate());
    for words in ["none", "no", "None"] {
        let message = said(words);
        assert_eq!(answer_of_prompt(&interrupt, &message), Some(none.clone()), "{words}");
    }
    assert_eq!(answer_of_prompt(&interrupt, &said("yes")), None);
    // A question that survives a restart accepts only its options.
    interrupt.survives = Survives::Restart;
    assert!(interrupt.check(&none).is_err());
}

#[test]
fn a_hosted_agent_is_told_what_was_chosen_and_else_that_nobody_did() {
    let (read, interrupt) = permission();
    let told = |resolution: &Resolution| {
        let told = permission_outcome(&interrupt, resolution);
        let value = serde_json::to_value(&told).unwrap();
        assert_valid("RequestPermissionResponse", &value);
        read.chosen(&told).map(|option| option.option_id.clone())
    };
    assert_eq!(
        told(&answer_resolution(Answer::Option("once".to_owned()))).as_deref(),
        Some("once")
    );
    assert_eq!(
        told(&Resolution::TimedOut { option: Some("no".to_owned()) }).as_deref(),
        Some("no")
    );
    for nobody in [
        Resolution::TimedOut { option: None },
        Resolution::TimedOut { option: Some("once".to_owned()) },
        answer_resolution(Answer::Json(Json::null())),
        Resolution::Cancelled,
        Resolution::Withdrawn { reason: Code::AgentLost },
        answer_resolution(Answer::Option("other".to_owned())),
        answer_resolution(Answer::Option(NO_OPTION.to_owned())),
        answer_resolution(Answer::Json(json_of(&json!({ "option": "once" })))),
    ] {
        assert_eq!(told(&nobody), None, "{nobody:?}");
    }
}

#[test]
fn a_native_permission_is_a_request_of_this_protocol() {
    let mut native = interrupt(
        "i",
        InterruptKind::Permission,
        &json!({ "tool": "rm", "kind": "delete", "path": "/a" }),
    );
    native.prompt = vec![Part::text("Delete it?\nFor good."), Part::bytes("image/png", "hi")];
    let params = question_params(&client_question(&native, THREAD, &ClientCapabilities::new()));
    assert_eq!(
        params,
        json!({
            "sessionId": THREAD,
            "toolCall": {
                "toolCallId": "i", "title": "Delete it?", "name": "rm", "kind": "delete", "status": "pending",
                "content": [
                    { "type": "content", "content": { "type": "text", "text": "Delete it?\nFor good." } },
                    { "type": "content", "content": { "type": "image", "data": "aGk=", "mimeType": "image/png" } },
                    { "type": "content", "content": { "type": "text", "text": "```json\n{\"kind\":\"delete\",\"path\":\"/a\",\"tool\":\"rm\"}\n```" } },
                ],
                "rawInput": { "tool": "rm", "kind": "delete", "path": "/a" },
            },
            "options": [{ "optionId": "once", "name": "Just now", "kind": "allow_once" }],
        })
    );
    native.options.clear();
    assert!(matches!(client_question(&native, THREAD, &forms()), ClientQuestion::Text(_)));
}

#[test]
fn an_editor_gets_all_of_what_a_native_agent_asks_for() {
    let command = format!("ls; {}rm -rf ~\u{202e}", "echo ".repeat(2_000));
    let long = format!("Run this: {command}");
    let mut native = interrupt("i", InterruptKind::Permission, &json!({ "command": command }));
    native.prompt = vec![Part::text(long.as_str())];
    let params = question_params(&client_question(&native, THREAD, &ClientCapabilities::new()));
    let call = &params["toolCall"];
    let title = call["title"].as_str().unwrap();
    assert!(title.starts_with("Run this: ls; ") && title.ends_with(" more characters)"), "{title}");
    assert!(title.chars().count() < 250, "{title}");
    let text = |place: usize| call["content"][place]["content"]["text"].as_str().unwrap();
    assert_eq!(text(0), long.replace('\u{202e}', "\\u{202e}"));
    assert_eq!(
        text(1),
        format!("```json\n{{\"command\":\"{}\"}}\n```", command.replace('\u{202e}', "\\u202e"))
    );
    assert_eq!(call["rawInput"]["command"], command);

    // In a form or a text, the question contains the data too, not only the words.
    native.kind = InterruptKind::Form;
    native.options.clear();
    native.schema = Some(Json::from_value(
        &json!({ "type": "object", "required": ["why"], "properties": { "why": { "type": "string" } } }),
    ));
    let form = question_params(&client_question(&native, THREAD, &forms()));
    let words = question_params(&client_question(&native, THREAD, &ClientCapabilities::new()));
    for shown in [&form["message"], &words] {
        let shown = shown.as_str().unwrap();
        assert!(shown.contains(text(0)) && shown.contains(text(1)), "{shown}");
    }
}

pub(crate) fn form_request() -> Value {
    json!({
        "mode": "form", "sessionId": "sess-0", "toolCallId": "c", "message": "Who?", "own": 1,
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string", "minLength": 1 } }, "required": ["name"], "x": 1 },
    })
}

pub(crate) fn elicitation(sent: &Value) -> Interrupt {
    let text = sent.to_string();
    let (raw, _) = splice::cut_session(&text).unwrap();
    interrupt_of_elicitation(&read_as::<CreateElicitationRequest>(sent), &raw, id())
}

fn action(value: &Value) -> CreateElicitationResponse {
    read_as(value)
}

/// The agent's result after a client has answered like this.
fn through(interrupt: &Interrupt, response: &Value) -> Value {
    let answer = answer_of_elicitation(interrupt, &action(response)).unwrap();
    interrupt.check(&answer).unwrap();
    let told =
        serde_json::to_value(elicitation_outcome(interrupt, &answer_resolution(answer))).unwrap();
    assert_valid("CreateElicitationResponse", &told);
    told
}

#[test]
fn a_form_goes_through_as_it_came_and_so_does_its_answer() {
    let interrupt = elicitation(&form_request());
    assert_eq!(
        (&interrupt.kind, interrupt.prompt.as_slice()),
        (&InterruptKind::Form, [Part::text("Who?")].as_slice())
    );
    assert_eq!(interrupt.schema.as_ref().unwrap().to_value(), form_request()["requestedSchema"]);
    let mut expected = form_request();
    expected["sessionId"] = json!(THREAD);
    let asking = client_question(&interrupt, THREAD, &forms());
    assert!(matches!(asking, ClientQuestion::Elicitation(_)));
    assert_eq!(question_params(&asking), expected);
    for response in [
        json!({ "action": "accept", "content": { "name": "Bob", "age": 5, "sure": true, "of": ["a", "b"], "n": 1.5 } }),
        json!({ "action": "accept", "content": {} }),
        json!({ "action": "decline" }),
        json!({ "action": "cancel" }),
    ] {
        assert_eq!(through(&interrupt, &response), response);
    }
    assert_eq!(
        through(&interrupt, &json!({ "action": "accept" })),
        json!({ "action": "accept", "content": {} })
    );
    assert_eq!(through(&interrupt, &json!({ "action": "later" })), json!({ "action": "cancel" }));
}

#[test]
fn an_address_goes_through_as_it_came_and_so_does_its_answer() {
    let sent = json!({ "mode": "url", "sessionId": "sess-0", "message": "Log in", "elicitationId": "e", "url": "https://a/b" });
    let interrupt = elicitation(&sent);
    assert_eq!(interrupt.kind, InterruptKind::Url);
    let mut expected = sent;
    expected["sessionId"] = json!(THREAD);
    assert_eq!(question_params(&client_question(&interrupt, THREAD, &forms())), expected);
    for response in ["accept", "decline", "cancel"].map(|action| json!({ "action": action })) {
        assert_eq!(through(&interrupt, &response), response);
    }
    let ClientQuestion::Text(text) =
        client_question(&interrupt, THREAD, &client(&json!({ "elicitation": { "form": {} } })))
    else {
        panic!()
    };
    let fits = "Answer `yes` when that is done. Any other answer declines.";
    assert_eq!(text, format!("Log in\nhttps://a/b\n\n{fits}"));
}

#[test]
fn an_agent_is_told_nothing_where_nobody_answered() {
    let interrupt = elicitation(&form_request());
    for nobody in [
        Resolution::Cancelled,
        Resolution::TimedOut { option: None },
        Resolution::Withdrawn { reason: Code::AgentLost },
        answer_resolution(Answer::Message(vec![Part::text("Bob")])),
    ] {
        let told = elicitation_outcome(&interrupt, &nobody);
        assert!(matches!(told, CreateElicitationResponse::Cancel(_)), "{nobody:?}");
    }
    let odd = answer_resolution(Answer::Json(json_of(&json!({ "deep": { "x": 1 } }))));
    assert!(matches!(elicitation_outcome(&interrupt, &odd), CreateElicitationResponse::Decline(_)));
}

#[test]
fn a_question_of_another_side_does_not_keep_that_sides_request() {
    let mut sent = form_request();
    sent["requestId"] = json!(5);
    let shown = question_params(&client_question(&elicitation(&sent), THREAD, &forms()));
    assert_eq!((shown.get("requestId"), &shown["sessionId"]), (None, &json!(THREAD)));
}

pub(crate) fn own(schema: Option<Value>) -> Interrupt {
    let mut own =
        interrupt("i", InterruptKind::Custom("pick".to_owned()), &json!({ "of": [1, 2] }));
    own.prompt = vec![Part::text("Which?")];
    own.schema = schema.map(|schema| json_of(&schema));
    own
}

#[test]
fn an_agents_own_question_is_a_form_where_that_can_be_shown() {
    let flat = json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1 }, "s": { "type": "string", "enum": ["a", "b"] }, "m": { "type": "array", "items": { "type": "string", "enum": ["x"] } } }, "required": ["n"] });
    let interrupt = own(Some(flat.clone()));
    let shown = question_params(&client_question(&interrupt, THREAD, &forms()));
    assert_eq!(shown["mode"], "form");
    assert_eq!(shown["message"], "Which?\n\n```json\n{\"of\":[1,2]}\n```");
    assert_eq!(shown["requestedSchema"], flat);
    let accepted = action(&json!({ "action": "accept", "content": { "n": 2 } }));
    assert_eq!(
        answer_of_elicitation(&interrupt, &accepted),
        Some(Answer::Json(json_of(&json!({ "n": 2 }))))
    );
    for nothing in [json!({ "action": "decline" }), json!({ "action": "cancel" })] {
        assert_eq!(answer_of_elicitation(&interrupt, &action(&nothing)), None);
    }
    let one = own(Some(json!({ "type": "string", "maxLength": 5 })));
    let shown = question_params(&client_question(&one, THREAD, &forms()));
    assert_eq!(
        shown["requestedSchema"]["properties"]["answer"],
        json!({ "type": "string", "maxLength": 5 })
    );
    let accepted = action(&json!({ "action": "accept", "content": { "answer": "hi" } }));
    assert_eq!(answer_of_elicitation(&one, &accepted), Some(Answer::Json(json_of(&json!("hi")))));
}

#[test]
fn one_of_a_few_values_is_asked_for_as_a_permission() {
    let none = ClientCapabilities::new();
    let boolean = json!({ "type": "boolean" });
    for (schema, chosen, expected) in [
        (boolean.clone(), "true", json!(true)),
        (boolean.clone(), "false", json!(false)),
        (json!({ "enum": ["a", 5, null] }), "5", json!(5)),
        (json!({ "oneOf": [{ "const": "a", "title": "A" }] }), "a", json!("a")),
        (
            json!({ "type": "object", "properties": { "ok": boolean } }),
            "true",
            json!({ "ok": true }),
        ),
        (
            json!({ "type": "object", "properties": { "ok": boolean, "why": { "type": "string" } }, "required": ["ok"] }),
            "false",
            json!({ "ok": false }),
        ),
    ] {
        let interrupt = own(Some(schema.clone()));
        let asking = client_question(&interrupt, THREAD, &none);
        assert!(matches!(asking, ClientQuestion::Permission(_)), "{schema}");
        let shown = question_params(&asking);
        assert_eq!(shown["toolCall"]["title"], "Which?");
        let offered =
            shown["options"].as_array().unwrap().iter().any(|option| option["optionId"] == chosen);
        assert!(offered, "{shown}");
        let answer = answer_of_permission(&interrupt, &RequestPermissionResponse::selected(chosen));
        assert_eq!(answer, Some(Answer::Json(json_of(&expected))));
        assert_eq!(
            answer_of_permission(&interrupt, &RequestPermissionResponse::selected("other")),
            None
        );
        assert_eq!(answer_of_permission(&interrupt, &RequestPermissionResponse::cancelled()), None);
    }
    let yes_no = question_params(&client_question(&own(Some(boolean)), THREAD, &none));
    let kinds: Vec<_> = yes_no["options"]
        .as_array()
        .unwrap()
        .iter()
        .map(|option| option["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["allow_once", "reject_once"]);
}

#[test]
fn everything_else_is_asked_in_words_and_answered_by_the_next_prompt() {
    let nested = json!({ "type": "object", "properties": { "a": { "type": "object" }, "b": { "type": "null" } } });
    let said = |text: &str| message_of_prompt(&[ContentBlock::text(text)], MessageId::generate());
    let interrupt_of_nested = own(Some(nested));
    let ClientQuestion::Text(text) = client_question(&interrupt_of_nested, THREAD, &forms()) else {
        panic!()
    };
    assert!(text.starts_with("Which?\n\n```json\n{\"of\":[1,2]}\n```"), "{text}");
    assert!(text.contains("Answer with JSON that fits this schema"), "{text}");
    let value = Answer::Json(json_of(&json!({ "a": {} })));
    assert_eq!(answer_of_prompt(&interrupt_of_nested, &said("{\"a\":{}}")), Some(value));
    assert_eq!(answer_of_prompt(&interrupt_of_nested, &said("perhaps")), None);

    let mut awaits = interrupt("i", InterruptKind::Message, &json!(null));
    awaits.prompt = vec![Part::text("Who?")];
    assert_eq!(client_question(&awaits, THREAD, &forms()), ClientQuestion::Text("Who?".to_owned()));
    assert_eq!(
        answer_of_prompt(&awaits, &said("Bob")),
        Some(Answer::Message(vec![Part::text("Bob")]))
    );

    let mut asks = interrupt("i", InterruptKind::Permission, &json!(null));
    assert_eq!(answer_of_prompt(&asks, &said("yes")), Some(Answer::Option("once".to_owned())));
    asks.options.clear();
    assert_eq!(
        client_question(&asks, THREAD, &forms()),
        ClientQuestion::Text("The agent asks for permission.".to_owned())
    );
    let plain = own(None);
    assert_eq!(
        answer_of_prompt(&plain, &said("free")),
        Some(Answer::Json(json_of(&json!("free"))))
    );
}

#[test]
fn a_native_address_is_visited_where_that_can_be_shown() {
    let mut visit = interrupt("i", InterruptKind::Url, &json!({ "url": "https://a/b" }));
    visit.prompt = vec![Part::text("Log in")];
    let shown = question_params(&client_question(&visit, THREAD, &forms()));
    assert_eq!(
        shown,
        json!({ "mode": "url", "message": "Log in", "elicitationId": "i", "url": "https://a/b", "sessionId": THREAD })
    );
    let accepted = answer_of_elicitation(&visit, &action(&json!({ "action": "accept" })));
    assert_eq!(accepted, Some(Answer::Json(json_of(&json!(true)))));
    assert_eq!(answer_of_elicitation(&visit, &action(&json!({ "action": "decline" }))), None);
}

#[test]
fn the_connect_protocol_shows_a_permissions_tool_call() {
    let (_, interrupt) = permission();
    let shown = connect::interrupt(&interrupt, &links());
    let payload = shown.interrupt_payload.unwrap().to_value();
    assert_eq!(payload["tool_call"], permission_request()["toolCall"]);
    assert_eq!(
        payload["options"][1],
        json!({ "option_id": "once", "name": "Once", "kind": "allow_once" })
    );
}

#[test]
fn the_connect_protocol_shows_all_of_a_long_command() {
    let command = format!("ls; {}rm -rf ~", "echo ".repeat(20_000));
    let mut native = interrupt("i", InterruptKind::Permission, &json!({ "command": command }));
    native.prompt = vec![Part::text(command.as_str())];
    let shown = connect::interrupt(&native, &links());
    let payload = shown.interrupt_payload.unwrap().to_value();
    assert_eq!(payload["message"], command);
    assert_eq!(payload["tool_call"]["command"], command);
}
