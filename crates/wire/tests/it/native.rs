use serde_json::json;
use trilogue_wire::native::{
    AnswerCreate, Event, EventBody, Json, PartMetadata, RunCreate, RunInput, ThreadPatch,
};

fn read_run(value: &serde_json::Value) -> Result<RunCreate, String> {
    serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())
}

#[test]
fn the_first_character_chooses_the_form_of_an_input() {
    let input = |value| read_run(&json!({"agent": "a", "input": value})).map(|run| run.input);
    assert_eq!(input(json!("hi")), Ok(RunInput::Text("hi".to_owned())));
    assert!(matches!(input(json!([{"parts": [{"content": "x"}]}])), Ok(RunInput::Messages(_))));
    assert!(matches!(input(json!({"message": 1})), Ok(RunInput::Value(_))));
    assert!(matches!(input(json!(null)), Ok(RunInput::Value(_))));
    let error = input(json!([{"parts": [{"contents": "x"}]}])).unwrap_err();
    assert!(error.contains("unknown field `contents`"), "{error}");
}

#[test]
fn an_unknown_member_is_named() {
    let error = read_run(&json!({"agent": "a", "input": "x", "thread": "t"})).unwrap_err();
    assert!(error.contains("unknown field `thread`"), "{error}");
}

#[test]
fn null_is_a_value_where_a_value_is_asked_for() {
    let answer: AnswerCreate = serde_json::from_str(r#"{"value":null}"#).unwrap();
    assert_eq!(answer.value, Some(Json::null()));
    let patch: ThreadPatch = serde_json::from_str(r#"{"values":null}"#).unwrap();
    assert_eq!(patch.values, Some(Json::null()));
    assert_eq!(serde_json::from_str::<AnswerCreate>("{}").unwrap().value, None);
}

#[test]
fn metadata_keeps_json_as_written_and_refuses_a_mixture() {
    let text = r#"{"kind":"trajectory","tool_input":{"b":1.50,"a":12345678901234567890123}}"#;
    let metadata: PartMetadata = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&metadata).unwrap(), text);
    for bad in [
        r#"{"kind":"citation","tool_name":"x"}"#,
        r#"{"kind":"other"}"#,
        r#"{"kind":"other","value":1,"url":"x"}"#,
        r#"{"kind":"citation","uri":"x"}"#,
        r#"{"kind":"new"}"#,
    ] {
        assert!(serde_json::from_str::<PartMetadata>(bad).is_err(), "{bad}");
    }
}

#[test]
fn events_read_back_with_json_as_written() {
    for text in [
        r#"{"id":"3","number":12,"run_number":3,"run_id":"r","at":"2025-11-21T00:00:00.000120Z","type":"message.delta","message_id":"m","text":"hi"}"#,
        r#"{"id":"1","number":1,"at":"t","type":"state.custom","kind":"k","data":{"z":1.0,"a":[12345678901234567890123]}}"#,
        r#"{"id":"1","number":1,"at":"t","type":"opaque","original":{"dialect":"probe","version":1,"value":{"b":2,"a":1}}}"#,
        r#"{"id":"1","number":1,"at":"t","type":"run.ended","outcome":{"status":"failed","error":{"code":"x","message":"m","transient":true,"data":{"q":0.10}}}}"#,
        r#"{"id":"1","number":1,"at":"t","type":"run.created","agent":"a","input":null}"#,
    ] {
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
        assert!(EventBody::TYPES.contains(&event.body.name()));
    }
}

#[test]
fn a_type_of_a_newer_server_is_no_error() {
    let text = r#"{"id":"1","number":1,"at":"t","type":"run.paused","whatever":{}}"#;
    let event: Event = serde_json::from_str(text).unwrap();
    assert_eq!(event.body, EventBody::Unknown("run.paused".to_owned()));
}

#[test]
fn the_schema_names_every_type() {
    let schema = serde_json::to_string(&schemars::schema_for!(Event)).unwrap();
    for name in EventBody::TYPES {
        assert!(schema.contains(&format!("\"{name}\"")), "{name}");
    }
}
