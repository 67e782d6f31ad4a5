//! The ends of runs, agents' descriptions of themselves, and their options.

use serde_json::{Value, json};
use trilogue_domain::{
    Abilities, AgentCard, Code, Error, Failure, InterruptId, Outcome, SystemPromptAbility,
    Violation,
};
use trilogue_mapping::agent_client::{
    config_options, error_object, failure_of, for_client, initialize_result, prompt_result,
    session_error, set_config_option,
};
use trilogue_wire::agent_client::{
    ClientCapabilities, InitializeResponse, Rules, SetSessionConfigOptionRequest, read,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::official::assert_valid;
use super::sample::{chat, json_of, parsed};

fn result(outcome: &Outcome, result: Option<&str>, id: Option<&str>) -> Value {
    let result = parsed(&prompt_result(outcome, result, id).unwrap());
    assert_valid("PromptResponse", &result);
    result
}

fn prompt_error(outcome: &Outcome) -> Value {
    error_json(&prompt_result(outcome, None, Some("u")).unwrap_err())
}

fn error_json(error: &ErrorObject) -> Value {
    let error = serde_json::to_value(error).unwrap();
    assert_valid("Error", &error);
    error
}

#[test]
fn the_reason_in_an_agent_s_data_is_part_of_its_failure() {
    for (data, message) in [
        (json!("no key"), "Internal error: no key"),
        (json!({ "details": "no key" }), "Internal error: no key"),
        (json!({ "error": { "message": "no key", "code": 5 } }), "Internal error: no key"),
        (json!({ "details": "Internal error" }), "Internal error"),
        (json!({ "details": "  " }), "Internal error"),
        (json!([1]), "Internal error"),
    ] {
        let failure = failure_of(-32603, "Internal error", Some(&json_of(&data)));
        assert_eq!(failure.message, message, "{data}");
    }
}

#[test]
fn a_turn_ends_with_the_agents_own_result_and_our_id() {
    let done = Outcome::Completed;
    let own = r#"{"stopReason":"max_tokens","usage":{"totalTokens":5},"userMessageId":"theirs"}"#;
    assert_eq!(
        result(&done, Some(own), Some("u")),
        json!({ "stopReason": "max_tokens", "usage": { "totalTokens": 5 }, "userMessageId": "u" })
    );
    assert_eq!(
        result(&done, Some(own), None),
        json!({ "stopReason": "max_tokens", "usage": { "totalTokens": 5 } })
    );
    assert_eq!(
        result(&done, None, Some("u \"x\"")),
        json!({ "stopReason": "end_turn", "userMessageId": "u \"x\"" })
    );
    assert_eq!(result(&done, None, None), json!({ "stopReason": "end_turn" }));
}

#[test]
fn a_stop_reason_is_always_one_that_clients_know() {
    let cancelled = Outcome::Cancelled { reason: Some(Code::RunSuperseded) };
    for own in ["null", "[]", "", "{}", r#"{"stopReason":5}"#, r#"{"stopReason":"paused"}"#] {
        assert_eq!(result(&Outcome::Completed, Some(own), None)["stopReason"], "end_turn", "{own}");
        assert_eq!(result(&cancelled, Some(own), None)["stopReason"], "cancelled", "{own}");
    }
    let own = r#"{"stopReason":"end_turn"}"#;
    assert_eq!(
        result(&cancelled, Some(own), Some("u")),
        json!({ "stopReason": "cancelled", "userMessageId": "u" })
    );
    let refusal = r#"{"stopReason":"refusal"}"#;
    assert_eq!(result(&Outcome::Completed, Some(refusal), None)["stopReason"], "refusal");
}

#[test]
fn an_agents_error_comes_out_as_it_went_in() {
    for (code, kept) in [
        (-32602, "invalid_input"),
        (-32002, "not_found"),
        (-32000, "unauthenticated"),
        (-32603, "agent_failed"),
        (7, "agent_failed"),
    ] {
        for data in [None, Some(json!({ "a": [1.5] })), Some(json!("text"))] {
            let failure = failure_of(code, "why \"so\"", data.as_ref().map(json_of).as_ref());
            let message = match &data {
                Some(Value::String(reason)) => format!("why \"so\": {reason}"),
                _ => "why \"so\"".to_owned(),
            };
            assert_eq!(
                (failure.code.as_str(), failure.message.as_str(), failure.transient),
                (kept, message.as_str(), false)
            );
            let mut expected = json!({ "code": code, "message": "why \"so\"" });
            if let Some(data) = data {
                expected["data"] = data;
            }
            assert_eq!(prompt_error(&Outcome::Failed(failure)), expected);
        }
    }
}

#[test]
fn other_failures_say_our_code_and_whether_they_pass() {
    let lost = prompt_error(&Outcome::Failed(Failure::of(Code::AgentLost, "gone")));
    assert_eq!(
        lost,
        json!({ "code": -32603, "message": "gone", "data": { "code": "agent_lost", "transient": true } })
    );
    let own = Failure {
        code: "quota".to_owned(),
        data: Some(json_of(&json!({ "left": 0 }))),
        ..Failure::of(Code::AgentFailed, "no")
    };
    assert_eq!(
        prompt_error(&Outcome::Failed(own))["data"],
        json!({ "code": "quota", "transient": false, "details": { "left": 0 } })
    );
    let late = prompt_error(&Outcome::TimedOut { reason: Code::AwaitTimeout });
    assert_eq!((&late["code"], &late["data"]["code"]), (&json!(-32603), &json!("await_timeout")));
}

#[test]
fn every_code_of_ours_has_a_number_of_theirs() {
    for code in Code::ALL {
        let error = error_json(&error_object(&Error::new(*code, "why")));
        let mut data = json!({ "code": code.as_str() });
        if code.is_transient() {
            data["transient"] = json!(true);
        }
        assert_eq!((&error["message"], &error["data"]), (&json!("why"), &data));
        assert!(
            [-32600, -32601, -32602, -32603, -32000, -32002]
                .iter()
                .any(|number| error["code"] == *number),
            "{error}"
        );
    }
    let number = |code| error_json(&error_object(&Error::new(code, "why")))["code"].clone();
    for (code, expected) in [
        (Code::InvalidInput, -32602),
        (Code::ThreadNotFound, -32002),
        (Code::Unauthenticated, -32000),
        (Code::ThreadBusy, -32600),
        (Code::Internal, -32603),
        (Code::ShuttingDown, -32603),
    ] {
        assert_eq!(number(code), expected, "{code:?}");
    }
}

#[test]
fn a_refusal_says_what_to_do_where_it_does_not_fit_and_which_session_is_lost() {
    let violation = Violation { path: "/a".to_owned(), message: "is odd".to_owned() };
    let error = Error::new(Code::InvalidInput, "no").hint("do so").violations(vec![violation]);
    let data = json!({ "code": "invalid_input", "hint": "do so", "violations": [{ "path": "/a", "message": "is odd" }] });
    assert_eq!(error_json(&session_error(&error, "s"))["data"], data);
    let pending =
        Error::new(Code::InterruptMismatch, "no").pending(InterruptId::parse("i").unwrap());
    assert_eq!(error_json(&error_object(&pending))["data"]["interruptId"], "i");
    for code in [Code::ThreadNotFound, Code::InvalidId] {
        let lost = error_json(&session_error(&Error::new(code, "no"), "s"));
        assert_eq!((&lost["code"], &lost["data"]["sessionId"]), (&json!(-32002), &json!("s")));
    }
}

fn initialized(card: &AgentCard, hosted: Option<&Value>) -> Value {
    let hosted = hosted.map(|hosted| {
        read::<InitializeResponse>(hosted.to_string().as_bytes(), Rules::Lenient).unwrap()
    });
    let answer = serde_json::to_value(initialize_result(card, hosted.as_ref())).unwrap();
    assert_valid("InitializeResponse", &answer);
    answer
}

#[test]
fn a_native_agent_takes_what_its_content_types_say() {
    let prompts = |types: &[&str]| {
        let card = AgentCard {
            input_content_types: types.iter().map(|it| (*it).to_owned()).collect(),
            ..chat()
        };
        initialized(&card, None)["agentCapabilities"]["promptCapabilities"].clone()
    };
    assert_eq!(prompts(&[]), json!({ "image": true, "audio": true, "embeddedContext": true }));
    assert_eq!(prompts(&["*/*"]), json!({ "image": true, "audio": true, "embeddedContext": true }));
    assert_eq!(
        prompts(&["text/plain", "IMAGE/png"]),
        json!({ "image": true, "embeddedContext": true })
    );
    assert_eq!(prompts(&["text/plain"]), json!({ "embeddedContext": true }));
    let answer = initialized(&AgentCard { title: Some("Echo".to_owned()), ..chat() }, None);
    assert_eq!(answer["agentInfo"], json!({ "name": "echo", "version": "1.0.0", "title": "Echo" }));
    assert_eq!(answer["protocolVersion"], 1);
    assert_eq!(answer["agentCapabilities"]["loadSession"], true);
    assert_eq!(answer["agentCapabilities"]["sessionCapabilities"], ours(&json!({})));
    let with = |ability| AgentCard {
        abilities: Abilities { system_prompt: Some(ability), ..Abilities::default() },
        ..chat()
    };
    for (ability, declared) in [
        (SystemPromptAbility::Append, json!({})),
        (SystemPromptAbility::AppendOrOverride, json!({ "mode": { "override": {} } })),
    ] {
        let answer = initialized(&with(ability), None);
        let session = &answer["agentCapabilities"]["sessionCapabilities"];
        assert_eq!(session["systemPrompt"], declared);
    }
}

/// The session capabilities of every agent, with further ones.
fn ours(further: &Value) -> Value {
    let names =
        ["list", "delete", "resume", "close", "fork", "status", "title", "archive", "options"];
    let mut all: serde_json::Map<_, _> =
        names.into_iter().map(|name| (name.to_owned(), json!({}))).collect();
    all.extend(further.as_object().unwrap().clone());
    all.into()
}

#[test]
fn a_hosted_agent_says_what_it_can_and_we_what_we_can_for_it() {
    let hosted = json!({
        "protocolVersion": 1,
        "agentCapabilities": {
            "promptCapabilities": { "image": true },
            // What a client could not use here is not passed on.
            "mcpCapabilities": { "http": true, "acp": true, "later": {} },
            "sessionCapabilities": {
                "additionalDirectories": {}, "systemPrompt": { "mode": { "override": {} } }, "later": {},
            },
            "auth": { "logout": {}, "status": {}, "later": {} },
            "providers": {},
            "later": true,
            "_meta": { "own": 1 },
        },
        "authMethods": [
            { "id": "key", "name": "Key" },
            { "type": "terminal", "id": "login", "name": "Log in" },
            { "type": "carrier-pigeon", "id": "p", "name": "P" },
        ],
        "agentInfo": { "name": "theirs", "version": "9" },
    });
    let answer = initialized(&chat(), Some(&hosted));
    let caps = &answer["agentCapabilities"];
    assert_eq!(caps["promptCapabilities"], json!({ "image": true }));
    assert_eq!(
        (&caps["loadSession"], &caps["mcpCapabilities"]),
        (&json!(true), &json!({ "http": true }))
    );
    let further =
        json!({ "additionalDirectories": {}, "systemPrompt": { "mode": { "override": {} } } });
    assert_eq!(caps["sessionCapabilities"], ours(&further));
    assert_eq!(caps["auth"], json!({ "logout": {}, "status": {} }));
    assert_eq!((&caps["_meta"], &caps["providers"]), (&json!({ "own": 1 }), &json!({})));
    assert_eq!(caps.get("later"), None);
    assert_eq!(answer["authMethods"], json!([{ "id": "key", "name": "Key" }]));
    assert_eq!(answer["agentInfo"], json!({ "name": "theirs", "version": "9" }));
    let bare = initialized(&chat(), Some(&json!({ "protocolVersion": 1 })));
    assert_eq!(bare["agentInfo"]["name"], "echo");
    assert_eq!(bare["agentCapabilities"].get("promptCapabilities"), None);
}

fn configured() -> AgentCard {
    let schema = json!({ "properties": {
        "style": { "title": "Style", "description": "How.", "enum": ["short", "long"], "default": "long" },
        "level": { "oneOf": [{ "const": 1, "title": "One" }, { "const": 2, "description": "Two." }] },
        "loud": { "type": "boolean" },
        "key": { "type": "string", "enum": ["a"], "writeOnly": true },
        "free": { "type": "string" },
    } });
    AgentCard { config_schema: Some(json_of(&schema)), ..chat() }
}

#[test]
fn choices_and_truth_values_of_the_configuration_are_options() {
    let options = |config: Option<Value>| {
        let options = config_options(&configured(), config.as_ref().map(json_of).as_ref());
        let mut options = serde_json::to_value(options).unwrap().as_array().unwrap().clone();
        for option in &options {
            assert_valid("SessionConfigOption", option);
        }
        options.sort_by_key(|option| option["id"].as_str().unwrap().to_owned());
        options
    };
    let now = options(None);
    assert_eq!(
        now,
        [
            json!({ "type": "select", "id": "level", "name": "level", "currentValue": "1", "options": [
            { "value": "1", "name": "One" }, { "value": "2", "name": "2", "description": "Two." },
        ] }),
            json!({ "type": "boolean", "id": "loud", "name": "loud", "currentValue": false }),
            json!({ "type": "select", "id": "style", "name": "Style", "description": "How.", "currentValue": "long", "options": [
            { "value": "short", "name": "short" }, { "value": "long", "name": "long" },
        ] }),
        ]
    );
    let set = options(Some(json!({ "level": 2, "loud": true, "style": "short" })));
    let current: Vec<_> = set.iter().map(|option| option["currentValue"].clone()).collect();
    assert_eq!(current, [json!("2"), json!(true), json!("short")]);
    assert!(config_options(&chat(), None).is_empty());
}

#[test]
fn truth_values_are_shown_to_clients_that_can_set_them() {
    let shown = |client: Value| {
        let client: ClientCapabilities =
            read(client.to_string().as_bytes(), Rules::Lenient).unwrap();
        for_client(config_options(&configured(), None), &client).len()
    };
    assert_eq!(shown(json!({})), 2);
    assert_eq!(shown(json!({ "session": { "configOptions": {} } })), 2);
    assert_eq!(shown(json!({ "session": { "configOptions": { "boolean": {} } } })), 3);
}

#[test]
fn an_option_is_set_where_the_agent_has_it_and_takes_the_value() {
    let set = |id: &str, value: &str| {
        let request = SetSessionConfigOptionRequest::new("s", id, value);
        let config = json_of(&json!({ "style": "long", "other": 1 }));
        set_config_option(&configured(), Some(&config), &request)
            .map(|config| config.to_value())
            .map_err(|error| error.code())
    };
    assert_eq!(set("style", "short"), Ok(json!({ "style": "short", "other": 1 })));
    assert_eq!(set("level", "2"), Ok(json!({ "style": "long", "other": 1, "level": 2 })));
    for (id, value) in
        [("style", "other"), ("key", "a"), ("free", "x"), ("none", "x"), ("loud", "true")]
    {
        assert_eq!(set(id, value), Err(Code::ConfigInvalid), "{id}");
    }
    let loud = SetSessionConfigOptionRequest::boolean("s", "loud", true);
    assert_eq!(
        set_config_option(&configured(), None, &loud).unwrap().to_value(),
        json!({ "loud": true })
    );
    let odd = SetSessionConfigOptionRequest::boolean("s", "style", true);
    assert!(set_config_option(&configured(), None, &odd).is_err());
}
