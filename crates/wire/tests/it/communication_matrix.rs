//! The server's responses to bodies that official clients send, and to bodies that they do not send.

use serde_json::{Value, json};
use trilogue_wire::agent_communication::{
    MAX_DEPTH, MAX_QUOTED_BYTES, Message, MessagePart, Rules, RunCreateRequest, RunMode,
    RunResumeRequest, Session, read,
};

use crate::communication::{SERVER_RULES, read_value, request, request_part, written};

fn create(body: &str, rules: Rules) -> Result<RunCreateRequest, String> {
    read(body.as_bytes(), rules).map_err(|violation| violation.to_string())
}

#[test]
fn bodies_that_are_no_request_are_refused() {
    let rows = [
        ("", "the body must be a JSON object, but it is empty"),
        (" \n", "the body must be a JSON object, but it is empty"),
        ("{", "the body is not valid JSON: EOF while parsing an object at line 1 column 1"),
        ("nope", "the body is not valid JSON: expected ident at line 1 column 2"),
        ("{} {}", "the body is not valid JSON: trailing characters at line 1 column 4"),
        ("[]", "the body must be an object, not an array"),
        (r#"["echo",null,null,[],"sync",null]"#, "the body must be an object, not an array"),
        ("\"x\"", "the body must be an object, not a string"),
        ("5", "the body must be an object, not a number"),
        ("true", "the body must be an object, not a boolean"),
        ("null", "the body must be an object, not null"),
        (r#"{"input":[]}"#, "agent_name is missing"),
        (r#"{"agent_name":null,"input":[]}"#, "agent_name must not be null"),
        (r#"{"agent_name":7,"input":[]}"#, "agent_name must be a string, not a number"),
        (r#"{"agent_name":"echo"}"#, "input is missing"),
        (r#"{"agent_name":"echo","input":null}"#, "input must not be null"),
        (r#"{"agent_name":"echo","input":"hi"}"#, "input must be an array, not a string"),
        (r#"{"agent_name":"echo","input":{}}"#, "input must be an array, not an object"),
        (r#"{"agent_name":"echo","input":["hi"]}"#, "input[0] must be an object, not a string"),
        (r#"{"agent_name":"echo","input":[{"role":"user"}]}"#, "input[0].parts is missing"),
        (
            r#"{"agent_name":"echo","input":[{"role":"user","parts":null}]}"#,
            "input[0].parts must not be null",
        ),
        (
            r#"{"agent_name":"echo","input":[{"role":"user","parts":["x"]}]}"#,
            "input[0].parts[0] must be an object, not a string",
        ),
        (
            r#"{"agent_name":"echo","input":[],"agent_name":"x"}"#,
            "the body has the member \"agent_name\" twice",
        ),
        (
            r#"{"agent_name":"echo","input":[],"mode":"turbo"}"#,
            "mode must be \"sync\", \"async\" or \"stream\", not \"turbo\"",
        ),
        (
            r#"{"agent_name":"echo","input":[],"mode":null}"#,
            "mode must not be null; it may be left out",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session_id":"abc"}"#,
            "session_id must be a UUID, not \"abc\"",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session_id":7}"#,
            "session_id must be a string, not a number",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":[]}"#,
            "session must be an object, not an array",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":{"history":["ftp://h/x"]}}"#,
            "session.history[0] must be a valid absolute http or https URL, not \"ftp://h/x\"",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":{"history":null}}"#,
            "session.history must not be null; it may be left out",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":{"history":["http://h/",5]}}"#,
            "session.history[1] must be a string, not a number",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":{"state":"/x"}}"#,
            "session.state must be a valid absolute http or https URL, not \"/x\"",
        ),
        (
            r#"{"agent_name":"echo","input":[],"session":{"id":"x"}}"#,
            "session.id must be a UUID, not \"x\"",
        ),
    ];
    for rules in SERVER_RULES {
        for (body, violation) in rows {
            assert_eq!(create(body, rules), Err(violation.to_owned()), "{body}");
        }
    }
}

#[test]
fn bodies_that_official_clients_send_are_taken() {
    let rows = [
        r#"{"agent_name":"echo","input":[]}"#,
        r#"{"agent_name":"echo","input":[{"role":"user","parts":[]}]}"#,
        r#"{"agent_name":"echo","input":[{"role":"user","parts":[{"content_type":"text/plain","content":"IQ","content_encoding":"base64"}]}]}"#,
        r#"{"agent_name":"echo","input":[{"role":"user","parts":[{"content_type":"text/plain","metadata":{"kind":"citation"}}]}]}"#,
        r#"{"agent_name":"echo","input":[{"role":"user","parts":[{"content_type":"text/plain","content_url":"data:text/plain,x"}]}]}"#,
        r#"{"agent_name":"a","session_id":null,"session":null,"input":[{"role":"user","parts":[{"name":null,"content_type":"text/plain","content":"hi","content_encoding":"plain","content_url":null,"metadata":null}],"created_at":"2026-11-20T23:50:09.133102Z","completed_at":"2026-11-20T23:50:09.133111Z"}],"mode":"sync"}"#,
    ];
    for body in rows {
        assert_eq!(create(body, Rules::Compatible).map(drop), Ok(()), "{body}");
    }
    assert!(create(rows[0], Rules::Strict).is_ok(), "no message, no broken rule");
    assert!(
        create(rows[5], Rules::Strict).is_ok(),
        "what the Python client sends keeps the letter"
    );
}

#[test]
fn content_is_a_string() {
    for rules in SERVER_RULES {
        for (content, what) in [
            (json!(123), "a number"),
            (json!({"a": 1}), "an object"),
            (json!([1]), "an array"),
            (json!(true), "a boolean"),
        ] {
            let part = json!({"content_type": "application/json", "content": content});
            let violation = request_part(&part, rules).unwrap_err();
            assert_eq!(
                violation.to_string(),
                format!("input[0].parts[0].content must be a string, not {what}")
            );
        }
    }
}

#[test]
fn unknown_members_are_kept_in_messages_and_parts_unless_the_rules_are_strict() {
    let part = r#"{"content_type":"text/plain","content":"x","zeta":{"b":1.50, "a":[ 1, 2 ]},"alpha":"a b","x_trilogue":null}"#;
    let body = format!(
        r#"{{"agent_name":"echo","input":[{{"role":"user","parts":[{part}],"more":1}}],"more":1}}"#
    );
    let request = create(&body, Rules::Compatible).unwrap();
    assert_eq!(
        written(|out| request.input[0].write(out)),
        r#"{"role":"user","parts":[{"name":null,"content_type":"text/plain","content":"x","content_encoding":"plain","content_url":null,"metadata":null,"zeta":{"b":1.50,"a":[1,2]},"alpha":"a b","x_trilogue":null}],"more":1}"#
    );
    let violation = create(&body, Rules::Strict).unwrap_err();
    assert_eq!(violation, "input[0].more is not a member of a message of the protocol");
    let body = body.replace(r#"],"more":1}]"#, r#"]}]"#);
    let request = create(&body, Rules::Strict).unwrap();
    assert_eq!(request.input[0].parts[0].extra.iter().count(), 3);
}

#[test]
fn a_member_given_twice_is_refused() {
    let parts = [
        (r#"{"content":"a","content":"b"}"#, "\"content\""),
        (r#"{"metadata":null,"metadata":null}"#, "\"metadata\""),
        (r#"{"x":1,"y":2,"x":3}"#, "\"x\""),
    ];
    for (part, member) in parts {
        let violation = read::<MessagePart>(part.as_bytes(), Rules::Compatible).unwrap_err();
        assert_eq!(violation.to_string(), format!("the body has the member {member} twice"));
    }
    let twice = r#"{"metadata":{"kind":"citation","url":"a","url":"b"}}"#;
    let violation = read::<MessagePart>(twice.as_bytes(), Rules::Compatible).unwrap_err();
    assert_eq!(violation.to_string(), "metadata has the member \"url\" twice");
}

#[test]
fn a_session_without_id_gets_a_new_one() {
    let session = |value: &Value| read_value::<Session>(value, Rules::Compatible).unwrap();
    let (one, other) = (session(&json!({})), session(&json!({})));
    assert_ne!(one.id, other.id);
    assert_eq!((one.history, one.state), (Vec::new(), None));
    let full = session(
        &json!({"id": "2a4496e1-b907-4b65-9cec-2ae5658024fe", "history": ["HTTP://H/a"], "state": "https://h"}),
    );
    assert_eq!(full.history, ["http://h/a"]);
    assert_eq!(full.state.as_deref(), Some("https://h/"));
}

#[test]
fn a_configuration_may_be_any_json_and_is_kept_as_written() {
    let config = |text: &str| {
        create(&format!(r#"{{"agent_name":"a","input":[],"config":{text}}}"#), Rules::Strict)
            .unwrap()
            .config
    };
    assert_eq!(config(r#"{ "t": 0.10, "s": "a b" }"#).unwrap().as_str(), r#"{"t":0.10,"s":"a b"}"#);
    assert_eq!(config("[]").unwrap().as_str(), "[]");
    assert_eq!(config("null"), None);
}

#[test]
fn an_answer_is_a_message() {
    let resume = |value: Value, rules| {
        read_value::<RunResumeRequest>(&value, rules).map_err(|violation| violation.to_string())
    };
    let message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": "Bob"}]});
    for rules in SERVER_RULES {
        let read = resume(json!({"await_resume": {"type": "message", "message": message}, "mode": "stream", "run_id": 7}), rules).unwrap();
        assert_eq!((read.mode, read.run_id), (RunMode::Stream, None));
        assert_eq!(read.await_resume.message.plain_text(), "Bob");
        let read = resume(json!({"await_resume": {"message": message}}), rules).unwrap();
        assert_eq!(read.mode, RunMode::Sync);
        let rows = [
            (json!({}), "await_resume is missing"),
            (json!({"await_resume": null}), "await_resume must not be null"),
            (json!({"await_resume": {}}), "await_resume.message is missing"),
            (
                json!({"await_resume": {"type": "other", "message": message}}),
                "await_resume.type must be \"message\", not \"other\"",
            ),
            (
                json!({"await_resume": {"type": null, "message": message}}),
                "await_resume.type must not be null; it may be left out",
            ),
            (
                json!({"await_resume": {"message": {"role": "x", "parts": []}}}),
                "await_resume.message.role must be \"user\", \"agent\" or \"agent/NAME\" with letters, digits, _ and - in NAME, not \"x\"",
            ),
            (
                json!({"await_resume": {"message": {"role": "user", "parts": [{"content": 5}]}}}),
                "await_resume.message.parts[0].content must be a string, not a number",
            ),
            (
                json!({"await_resume": {"message": message}, "mode": "x"}),
                "mode must be \"sync\", \"async\" or \"stream\", not \"x\"",
            ),
        ];
        for (body, violation) in rows {
            assert_eq!(resume(body, rules), Err(violation.to_owned()));
        }
    }
    for rules in SERVER_RULES {
        let violation =
            resume(json!({"await_resume": {"message": {"parts": []}}}), rules).unwrap_err();
        assert_eq!(violation, "await_resume.message.role is missing; every message has a role");
    }
}

#[test]
fn a_violation_repeats_little_of_what_was_sent_and_hides_nothing_in_it() {
    let long = "\u{2028}\u{1b}[2J".repeat(10_000);
    let parts = [
        json!({"content_type": long, "content": "x"}),
        json!({"content_type": "a/b", "content": "x", "content_encoding": long}),
        json!({"content_type": "a/b", "content_url": long}),
        json!({"content_type": "a/b", "content": long, "content_encoding": "base64"}),
        json!({"content_type": "a/b", "content": "", "metadata": {"kind": long}}),
        json!({"content_type": "a/b", "content": "", "metadata": {"kind": "citation", "start_index": long}}),
        json!({"content_type": "a/b", "content": "", "metadata": {"kind": "trajectory", "tool_input": long}}),
        json!({"content_type": 1, long.as_str(): 1}),
    ];
    let mut violations: Vec<_> =
        parts.iter().map(|part| request_part(part, Rules::Strict).unwrap_err()).collect();
    violations.push(request(&json!({"role": long, "parts": []}), Rules::Strict).unwrap_err());
    violations.push(
        request(&json!({"role": "user", "parts": [], "created_at": long}), Rules::Strict)
            .unwrap_err(),
    );
    let deep = format!(r#"{{"{}":{}}}"#, "k".repeat(10_000), "[".repeat(200) + &"]".repeat(200));
    violations.push(read::<MessagePart>(deep.as_bytes(), Rules::Strict).unwrap_err());
    let twins = format!(r#"{{"{0}":1,"{0}":1}}"#, "k".repeat(10_000));
    violations.push(read::<MessagePart>(twins.as_bytes(), Rules::Strict).unwrap_err());
    for violation in violations {
        let text = violation.to_string();
        assert!(text.len() < 200 + 6 * MAX_QUOTED_BYTES, "{text}");
        assert!(!text.contains(['\u{2028}', '\u{1b}', '\n']), "{text}");
    }
}

#[test]
fn json_that_is_carried_may_not_be_too_deep() {
    let typed = r#""content_type":"text/plain","content":"""#;
    let part =
        |depth: usize| format!(r#"{{{typed},"extra":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(read::<MessagePart>(part(MAX_DEPTH).as_bytes(), Rules::Compatible).is_ok());
    let violation =
        read::<MessagePart>(part(MAX_DEPTH + 1).as_bytes(), Rules::Compatible).unwrap_err();
    assert_eq!(
        violation.to_string(),
        "extra must not have more than 100 arrays and objects in each other"
    );
    let brackets = "[".repeat(500);
    let brackets_in_text = format!(r#"{{{typed},"extra":"{brackets}\"{brackets}"}}"#);
    assert!(read::<MessagePart>(brackets_in_text.as_bytes(), Rules::Compatible).is_ok());
    let tool = format!(
        r#"{{"metadata":{{"kind":"trajectory","tool_input":{{"a":{}{}}}}}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    let violation = read::<MessagePart>(tool.as_bytes(), Rules::Compatible).unwrap_err();
    assert_eq!(violation.path, "metadata");
}

#[test]
fn a_violation_can_be_put_under_an_outer_field() {
    let violation = read::<Message>(br#"{"parts":[5]}"#, Rules::Lenient).unwrap_err();
    assert_eq!(violation.clone().under("history[3]").path, "history[3].parts[0]");
    assert_eq!(violation.under("").path, "parts[0]");
}
