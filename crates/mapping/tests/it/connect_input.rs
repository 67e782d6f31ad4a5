//! The input and the configuration of runs.

use serde_json::{Value, json};
use trilogue_domain::{Code, Input, Role, Timestamp};
use trilogue_mapping::connect;
use trilogue_wire::agent_connect::{Json, RunCreate, decode};

use crate::sample::{chat, full, json_of};

fn create(body: &Value) -> RunCreate {
    decode(body.to_string().as_bytes()).unwrap()
}

/// The messages that the chat agent receives: roles and texts.
fn received_messages(input: &Value) -> Result<Vec<(Role, String)>, (Code, String)> {
    let input = connect::input(&chat(), Some(json_of(input)), Timestamp::from_micros(1));
    match input.map_err(|error| (error.code(), error.violated()[0].path.clone()))? {
        Input::Messages(messages) => {
            Ok(messages.into_iter().map(|it| (it.role.clone(), it.text())).collect())
        }
        Input::Value(value) => panic!("{value:?}"),
    }
}

#[test]
fn a_chat_agent_takes_messages_a_message_or_a_string() {
    let user = |text: &str| (Role::User, text.to_owned());
    assert_eq!(received_messages(&json!("hi")), Ok(vec![user("hi")]));
    assert_eq!(received_messages(&json!({ "message": "hi" })), Ok(vec![user("hi")]));
    let both = json!({
        "messages": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }],
        "message": "c"
    });
    let said = vec![user("a"), (Role::Agent, "b".to_owned()), user("c")];
    assert_eq!(received_messages(&both), Ok(said));
    assert_eq!(received_messages(&json!({ "messages": [] })), Ok(Vec::new()));
}

#[test]
fn what_is_no_message_names_its_place() {
    for (input, place) in [
        (json!(5), "/input"),
        (json!(null), "/input"),
        (json!({}), "/input"),
        (json!([1]), "/input"),
        (json!({ "message": 5 }), "/input/message"),
        (json!({ "messages": [{ "content": "x" }] }), "/input/messages/0"),
        (json!({ "messages": [{ "role": "user", "content": 5 }] }), "/input/messages/0/content"),
        (json!({ "message": "x", "other": 1 }), "/input/other"),
    ] {
        assert_eq!(
            received_messages(&input),
            Err((Code::InvalidInput, place.to_owned())),
            "{input}"
        );
    }
    let twins = json!({ "messages": [
        { "role": "user", "content": "a", "id": "m" },
        { "role": "user", "content": "b", "id": "m" }
    ] });
    assert_eq!(
        received_messages(&twins),
        Err((Code::InvalidInput, "/input/messages/1/id".to_owned()))
    );
    let many = json!({ "messages": vec![json!({ "role": "user", "content": "a" }); 257] });
    let error = connect::input(&chat(), Some(json_of(&many)), Timestamp::default()).unwrap_err();
    assert_eq!(error.code(), Code::TooManyParts);
}

#[test]
fn any_other_agent_takes_the_value_as_it_was_written() {
    let text = r#"{"message":"hi","n":1.0}"#;
    let given = trilogue_domain::Json::parse(text).unwrap();
    let input = connect::input(&full(), Some(given), Timestamp::default());
    assert_eq!(input, Ok(Input::Value(trilogue_domain::Json::parse(text).unwrap())));
    let none = connect::input(&full(), None, Timestamp::default());
    assert_eq!(none, Ok(Input::Value(trilogue_domain::Json::null())));
}

#[test]
fn a_message_at_the_top_is_an_input_and_two_inputs_are_none() {
    let given = |body: Value| {
        let given = connect::stated_input(&create(&body));
        given.map(|it| it.map(|it| it.to_value())).map_err(|error| error.code())
    };
    assert_eq!(given(json!({})), Ok(None));
    assert_eq!(given(json!({ "input": 0 })), Ok(Some(json!(0))));
    assert_eq!(given(json!({ "message": "hi" })), Ok(Some(json!({ "message": "hi" }))));
    assert_eq!(given(json!({ "message": "hi", "input": {} })), Err(Code::InvalidInput));
    let deep = format!("{{\"input\":{}{}}}", "[".repeat(70), "]".repeat(70));
    let deep: RunCreate = decode(deep.as_bytes()).unwrap();
    assert_eq!(connect::stated_input(&deep).map_err(|error| error.code()), Err(Code::JsonTooDeep));
}

#[test]
fn a_configuration_is_written_alone_or_in_the_published_form() {
    let config = |value: Value| {
        let read = connect::config(Some(&Json::from_value(&value)));
        read.map(|it| (it.tags, it.recursion_limit, it.configurable.map(|it| it.to_value())))
            .map_err(|error| (error.code(), error.violated()[0].path.clone()))
    };
    let style = json!({ "style": "formal" });
    let alone = Ok((Vec::new(), None, Some(style.clone())));
    assert_eq!(config(style.clone()), alone);
    assert_eq!(config(json!({ "configurable": style })), alone);
    assert_eq!(config(json!({ "configurable": style, "tags": null })), alone);
    assert_eq!(config(json!({})), Ok((Vec::new(), None, None)));
    assert_eq!(config(json!("formal")), Ok((Vec::new(), None, Some(json!("formal")))));
    let all = json!({ "tags": ["a"], "recursion_limit": 3, "configurable": 5 });
    assert_eq!(config(all), Ok((vec!["a".to_owned()], Some(3), Some(json!(5)))));
    for (value, place) in [
        (json!({ "tags": ["a"], "style": "formal" }), "/config/style"),
        (json!({ "configurable": {}, "a/b": 1 }), "/config/a~1b"),
        (json!({ "tags": "a" }), "/config/tags"),
        (json!({ "tags": [5] }), "/config/tags"),
        (json!({ "recursion_limit": 1.5 }), "/config/recursion_limit"),
    ] {
        assert_eq!(config(value.clone()), Err((Code::ConfigInvalid, place.to_owned())), "{value}");
    }
    assert_eq!(connect::config(None), Ok(connect::RunConfig::default()));
}

#[test]
fn a_runs_configuration_goes_over_the_instances() {
    let merged = |instance: Option<Value>, run: Option<Value>| {
        let (instance, run) = (instance.as_ref().map(json_of), run.as_ref().map(json_of));
        connect::merged(instance.as_ref(), run.as_ref()).map(|it| it.to_value())
    };
    let instance = json!({ "a": 1, "b": { "x": 1 } });
    let run = json!({ "b": { "y": 2 }, "c": null });
    let both = json!({ "a": 1, "b": { "y": 2 }, "c": null });
    assert_eq!(merged(Some(instance.clone()), Some(run.clone())), Some(both));
    assert_eq!(merged(None, Some(run.clone())), Some(run));
    assert_eq!(merged(Some(instance.clone()), None), Some(instance.clone()));
    assert_eq!(merged(Some(instance), Some(json!("x"))), Some(json!("x")));
    assert_eq!(merged(None, None), None);
}

#[test]
fn secrets_of_a_configuration_are_not_shown() {
    let shown = |value: Value| connect::shown_config(&full(), &json_of(&value)).to_value();
    assert_eq!(shown(json!({ "style": "x", "key": "secret" })), json!({ "style": "x" }));
    assert_eq!(shown(json!("x")), json!("x"));
}
