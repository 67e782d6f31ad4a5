//! The parsed values of messages from clients and servers, and the errors for invalid ones.

use serde_json::json;
use trilogue_wire::agent_connect::{
    AgentSearchRequest, CallbackEvent, Capabilities, Message, MessageContent, Run, RunCreate,
    RunSearchRequest, RunStatus, StreamMode, Thread, ThreadCreate, ThreadPatch,
    ThreadSearchRequest, Time, Violation, decode, decode_list, decode_or_empty,
};

fn create(body: &str) -> Result<RunCreate, Violation> {
    decode(body.as_bytes())
}

fn refusal_of(body: &str) -> (String, String) {
    let violation = create(body).unwrap_err();
    assert!(!violation.is_malformed(), "{violation}");
    (violation.path, violation.message)
}

#[test]
fn a_member_that_is_null_counts_as_absent() {
    let names = [
        "agent_id",
        "input",
        "message",
        "metadata",
        "config",
        "configuration_id",
        "webhook",
        "callback",
        "stream_mode",
        "stream_subgraphs",
        "on_disconnect",
        "multitask_strategy",
        "after_seconds",
        "on_completion",
        "if_not_exists",
    ];
    for name in names {
        assert_eq!(create(&format!("{{\"{name}\":null}}")), Ok(RunCreate::default()), "{name}");
    }
    assert_eq!(serde_json::to_string(&RunCreate::default()).unwrap(), "{}");
    let nothing = br#"{"threads":false,"interrupts":null,"callbacks":null,"streaming":null}"#;
    assert_eq!(decode::<Capabilities>(nothing), Ok(Capabilities::default()));
}

#[test]
fn unknown_members_are_ignored_and_unknown_words_name_their_place() {
    assert_eq!(create(r#"{"assistant_id":"x","streaming":true}"#), Ok(RunCreate::default()));
    let (path, message) = refusal_of(r#"{"multitask_strategy":"foo"}"#);
    assert_eq!(path, "/multitask_strategy");
    assert!(message.contains("foo") && message.contains("enqueue"), "{message}");
    let (path, message) = refusal_of(r#"{"stream_mode":["values","foo"]}"#);
    assert_eq!(path, "/stream_mode/1");
    assert!(message.contains("foo") && message.contains("custom"), "{message}");
    assert_eq!(refusal_of(r#"{"callback":{"url":"x","events":["foo"]}}"#).0, "/callback/events/0");
    let status: Violation = decode::<RunSearchRequest>(br#"{"status":"running"}"#).unwrap_err();
    assert_eq!(status.path, "/status");
}

#[test]
fn wrong_types_name_their_place_and_texts_that_are_no_json_say_so() {
    for (body, place) in [
        ("[]", ""),
        (r#"{"agent_id":5}"#, "/agent_id"),
        (r#"{"metadata":[]}"#, "/metadata"),
        (r#"{"after_seconds":-1}"#, "/after_seconds"),
        (r#"{"after_seconds":31536001}"#, "/after_seconds"),
        (r#"{"after_seconds":1.5}"#, "/after_seconds"),
        (r#"{"after_seconds":"1"}"#, "/after_seconds"),
        (r#"{"stream_mode":5}"#, "/stream_mode"),
        (r#"{"callback":{"events":[]}}"#, "/callback"),
    ] {
        assert_eq!(refusal_of(body).0, place, "{body}");
    }
    for body in ["", "{", "{} x", "nul", "{\"input\":{]}"] {
        assert!(create(body).unwrap_err().is_malformed(), "{body}");
    }
    assert_eq!(decode_or_empty::<RunCreate>(b" \n"), Ok(RunCreate::default()));
    assert!(decode_or_empty::<RunCreate>(b"x").is_err());
}

#[test]
fn stream_modes_come_as_a_word_or_as_several() {
    let modes = |body: &str| create(body).unwrap().stream_mode.map(|it| it.as_slice().to_vec());
    assert_eq!(modes(r#"{"stream_mode":"custom"}"#), Some(vec![StreamMode::Custom]));
    let both = Some(vec![StreamMode::Custom, StreamMode::Values]);
    assert_eq!(modes(r#"{"stream_mode":["custom","values","custom"]}"#), both);
    assert_eq!(modes(r#"{"stream_mode":[]}"#), Some(Vec::new()));
    assert_eq!(modes("{}"), None);
}

#[test]
fn callbacks_come_as_an_address_or_as_an_object() {
    let callback = |body: &str| create(body).unwrap().callback.unwrap();
    let plain = callback(r#"{"callback":"http://x/callme"}"#);
    assert_eq!((plain.url.as_str(), plain.events), ("http://x/callme", None));
    let full =
        callback(r#"{"callback":{"url":"http://x/","events":["status","custom"],"more":1}}"#);
    assert_eq!(full.events, Some(vec![CallbackEvent::Status, CallbackEvent::Custom]));
}

#[test]
fn numbers_have_bounds() {
    let search = |body: &str| decode::<AgentSearchRequest>(body.as_bytes());
    assert!(search(r#"{"limit":1,"offset":0}"#).is_ok());
    assert_eq!(search(r#"{"limit":1000}"#).unwrap().limit.unwrap().get(), 1_000);
    for body in [r#"{"limit":0}"#, r#"{"limit":1001}"#, r#"{"limit":true}"#, r#"{"limit":"5"}"#] {
        assert_eq!(search(body).unwrap_err().path, "/limit", "{body}");
    }
    assert_eq!(search(r#"{"offset":-1}"#).unwrap_err().path, "/offset");
    assert!("11".parse::<trilogue_wire::agent_connect::Limit>().is_ok());
    assert!("0".parse::<trilogue_wire::agent_connect::Limit>().is_err());
    assert!("".parse::<trilogue_wire::agent_connect::Offset>().is_err());
}

#[test]
fn json_is_carried_as_it_was_written() {
    let request = create(r#"{"input":{"b":1.0,"a":[ 1 ]},"metadata":{"z":1e3}}"#).unwrap();
    assert_eq!(request.input.unwrap().as_str(), r#"{"b":1.0,"a":[ 1 ]}"#);
    assert_eq!(request.metadata.unwrap().as_str(), r#"{"z":1e3}"#);
}

#[test]
fn times_may_lack_an_offset_and_are_written_in_one_form() {
    for (text, shown) in [
        ("2026-11-20T23:53:06.156959", "2026-11-20T23:53:06.156959Z"),
        ("2026-11-20T23:53:06", "2026-11-20T23:53:06.000000Z"),
        ("2026-11-20T23:53:06+01:00", "2026-11-20T22:53:06.000000Z"),
        ("2026-11-20T23:53:06.5Z", "2026-11-20T23:53:06.500000Z"),
        ("2026-11-20T23:53:06.1234567Z", "2026-11-20T23:53:06.123456Z"),
    ] {
        assert_eq!(Time::parse(text).unwrap().to_string(), shown, "{text}");
    }
    for text in ["", "soon", "1763683200", "2026-11-20T23:53:06[Europe/Berlin]"] {
        assert_eq!(Time::parse(text), None, "{text}");
    }
    let far = Time::from_micros(i64::MAX).to_string();
    assert!(far.starts_with("9999-"), "{far}");
}

#[test]
fn what_the_reference_server_answers_is_understood() {
    let run = br#"{"run_id":"35acf935","thread_id":null,"agent_id":"3f1e","created_at":"2026-11-20T23:53:06.156959",
        "updated_at":"2026-11-20T23:53:06.156959","status":"pending","creation":{"config":{"tags":null}}}"#;
    let run: Run = decode(run).unwrap();
    assert_eq!((run.status, run.thread_id), (RunStatus::Pending, None));
    let thread =
        br#"{"thread_id":"1","created_at":"2026-11-20T23:53:06","updated_at":"2026-11-20T23:53:06",
        "metadata":null,"status":"idle","values":null,"messages":null}"#;
    let thread: Thread = decode(thread).unwrap();
    assert_eq!((thread.values, thread.metadata.as_str()), (None, "{}"));
}

#[test]
fn messages_are_a_text_or_blocks() {
    let message = |body: &str| decode::<Message>(body.as_bytes());
    let plain = message(r#"{"role":"user","content":"hi","id":null}"#).unwrap();
    assert_eq!(plain, Message::text("user", "hi"));
    let text = r#"{"role":"user","content":[{"type":"text","text":"a","x":1},{"type":"text","text":"b"},{"type":"image"}]}"#;
    let blocks = message(text).unwrap();
    assert_eq!(blocks.content.to_text(), "ab");
    let MessageContent::Blocks(items) = &blocks.content else { panic!("{blocks:?}") };
    assert_eq!(items[0].extra.get("x"), Some(&json!(1)));
    let written: serde_json::Value = serde_json::to_value(&blocks).unwrap();
    assert_eq!(written, serde_json::from_str::<serde_json::Value>(text).unwrap());
    assert_eq!(message(r#"{"role":"user","content":5}"#).unwrap_err().path, "/content");
    assert!(message(r#"["user","hi"]"#).is_err());
    let list = br#"[{"role":"user","content":"hi"},["user","hi"]]"#;
    assert_eq!(decode_list::<Message>(list).unwrap_err().path, "/1");
    let patch = decode::<ThreadPatch>(br#"{"checkpoint":["x"]}"#);
    assert_eq!(patch.unwrap_err().path, "/checkpoint");
    assert!(message(r#"{"content":"hi"}"#).unwrap_err().message.contains("role"));
}

#[test]
fn requests_that_need_nothing_may_be_empty() {
    assert_eq!(decode_or_empty::<ThreadCreate>(b""), Ok(ThreadCreate::default()));
    assert_eq!(decode_or_empty::<ThreadSearchRequest>(b"{}"), Ok(ThreadSearchRequest::default()));
}

#[test]
fn refusals_are_worded_for_those_who_send_json() {
    let long = format!(r#"{{"on_disconnect":"{}"}}"#, "x".repeat(100_000));
    let cut = format!("must be `cancel` or `continue`, not \"{}…\"", "x".repeat(64));
    let cases = [
        (r#"{"agent_id":5}"#, "/agent_id", "must be a string, not the number 5"),
        (r#"{"agent_id":{}}"#, "/agent_id", "must be a string, not an object"),
        (r#"{"agent_id":[]}"#, "/agent_id", "must be a string, not an array"),
        (r#"{"agent_id":true}"#, "/agent_id", "must be a string, not true"),
        (
            r#"{"after_seconds":1.5}"#,
            "/after_seconds",
            "must be a whole number, not the number 1.5",
        ),
        (
            r#"{"after_seconds":"1"}"#,
            "/after_seconds",
            "must be a whole number, not the string \"1\"",
        ),
        (
            r#"{"stream_subgraphs":0}"#,
            "/stream_subgraphs",
            "must be true or false, not the number 0",
        ),
        (r#"{"on_disconnect":5}"#, "/on_disconnect", "must be a string, not the number 5"),
        (
            r#"{"on_disconnect":{"cancel":null}}"#,
            "/on_disconnect",
            "must be a string, not an object",
        ),
        (r#"{"stream_mode":[null]}"#, "/stream_mode/0", "must be a string, not null"),
        (
            r#"{"callback":{"url":"x","events":5}}"#,
            "/callback/events",
            "must be an array, not the number 5",
        ),
        (r#"{"callback":{}}"#, "/callback", "lacks the member `url`"),
        (r#"{"agent_id":"a","agent_id":"b"}"#, "", "has the member `agent_id` twice"),
        (long.as_str(), "/on_disconnect", cut.as_str()),
        ("5", "", "must be an object, not the number 5"),
        ("null", "", "must be an object, not null"),
        ("[]", "", "must be an object, not an array"),
    ];
    for (body, path, message) in cases {
        let body_start: String = body.chars().take(80).collect();
        assert_eq!(refusal_of(body), (path.to_owned(), message.to_owned()), "{body_start}");
    }
}

#[test]
fn half_of_a_character_is_malformed_wherever_it_stands() {
    for text in [r"\ud83e", r"\udd80", r"\ud83e\n\udd80", r"\udd80\ud83e", r"\\\ud83e", r"\uD83Ex"]
    {
        for body in [
            format!(r#"{{"metadata":{{"a":"{text}"}}}}"#),
            format!(r#"{{"input":["{text}"]}}"#),
            format!(r#"{{"input":{{"{text}":1}}}}"#),
            format!(r#"{{"nobody reads this":"{text}"}}"#),
        ] {
            let violation = create(&body).unwrap_err();
            assert!(violation.is_malformed(), "{body}: {violation}");
        }
    }
    for text in [r"\ud83e\udd80", r"\\ud83e", r"\u00e9", "🦀", r"\uD83E\uDD80\\"] {
        let body = format!(r#"{{"metadata":{{"a":"{text}"}}}}"#);
        assert!(create(&body).is_ok(), "{body}");
    }
}
