//! Agents, their descriptors, and agents' cards from descriptors.

use std::sync::Arc;

use serde_json::{Value, json};
use trilogue_domain::{Abilities, AgentCard, Code, InputKind};
use trilogue_mapping::connect;
use trilogue_wire::agent_connect::{Descriptor, StreamMode, StreamModes, decode};

use crate::published::{assert_valid, document, file, fits};
use crate::sample::{chat, full, json_of};

fn descriptor(card: &AgentCard) -> Value {
    connect::descriptor(card).to_value()
}

#[test]
fn an_id_is_the_agents_own_or_made_of_its_name_for_good() {
    assert_eq!(connect::agent_id(&full()), "3f1e2549-5799-4321-91ae-2a4881d55526");
    assert_eq!(connect::agent_id(&chat()), "25db0625-60ab-5f5c-a90a-2cfaf8fd9250");
}

#[test]
fn agents_are_listed_by_the_published_schema() {
    let document = document();
    for card in [chat(), full()] {
        let agent = serde_json::to_value(connect::agent(&card)).unwrap();
        assert_valid(document.as_ref(), "Agent", &agent);
        assert_eq!(agent["id"], agent["agent_id"]);
        assert_eq!(agent["metadata"]["ref"]["name"], connect::name(&card));
    }
    let agent = serde_json::to_value(connect::agent(&chat())).unwrap();
    assert_eq!(
        agent["metadata"],
        json!({ "ref": { "name": "echo", "version": "1.0.0" }, "description": "Says it again." })
    );
}

#[test]
fn made_descriptors_keep_the_published_schema_and_the_rules() {
    let document = document();
    let mut quiet = full();
    quiet.abilities = Abilities { threads: false, callbacks: false, ..Abilities::default() };
    quiet.interrupts.clear();
    for card in [chat(), full(), quiet] {
        let made = descriptor(&card);
        assert_valid(document.as_ref(), "AgentACPDescriptor", &made);
        let read: Descriptor = decode(made.to_string().as_bytes()).unwrap();
        assert_eq!(read.check(), [], "{made}");
    }
}

#[test]
fn a_made_descriptor_says_no_more_than_the_card() {
    let made = descriptor(&chat());
    let specs = made["specs"].as_object().unwrap();
    let members: Vec<&str> = specs.keys().map(String::as_str).collect();
    assert_eq!(members, ["capabilities", "config", "input", "output", "thread_state"]);
    let capabilities = json!({ "threads": true, "interrupts": false, "callbacks": true });
    assert_eq!(specs["capabilities"], capabilities);
    let made = descriptor(&full());
    let streaming = json!({ "values": true, "custom": true });
    assert_eq!(made["specs"]["capabilities"]["streaming"], streaming);
    assert_eq!(made["specs"]["errors"][0]["errcode"], 10_001);
    assert_eq!(made["specs"]["interrupts"][0]["interrupt_type"], "approval");
}

#[test]
fn a_chat_agent_says_how_it_takes_messages() {
    let made = descriptor(&chat());
    let schema = |name: &str| made["specs"][name].clone();
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": "hi" }] });
    fits(&schema("input"), &json!({ "messages": [message] }));
    fits(&schema("input"), &json!({ "message": "hi" }));
    fits(&schema("output"), &json!({ "messages": [message], "message": "hi" }));
    fits(&schema("thread_state"), &json!({ "messages": [message] }));
    assert!(!jsonschema::is_valid(&schema("input"), &json!({})));
}

#[test]
fn a_written_descriptor_over_a_card_is_served_member_for_member() {
    let Some(published) = file("mailcomposer.json") else { return };
    let text = serde_json::to_string_pretty(&published).unwrap();
    let file = trilogue_domain::Json::parse(text.clone()).unwrap();
    let card = connect::card(&file, full()).unwrap();
    assert_eq!(connect::descriptor(&card).as_str(), text);
    // The card has all data of the file: the descriptor that is made from it is equal.
    assert_eq!(descriptor(&AgentCard { descriptor: None, ..card.clone() }), published);
    assert_eq!(card.name.as_str(), "full");
    assert_eq!(card.abilities.streams_values, None);
    assert_eq!(card.errors, []);
    let schemas = connect::schemas(&card);
    assert_eq!(schemas.input_schema.to_value(), published["specs"]["input"]);
    assert_eq!(schemas.state_schema.unwrap().to_value(), published["specs"]["thread_state"]);
}

#[test]
fn a_card_comes_back_from_its_own_descriptor() {
    let made = connect::descriptor(&full());
    let again = connect::card(&made, full()).unwrap();
    assert_eq!(AgentCard { descriptor: None, ..again }, full());
    let talks = connect::card(&connect::descriptor(&chat()), chat()).unwrap();
    assert_eq!(talks.input, InputKind::Chat);
    assert!(!connect::is_configurable(&talks));
}

#[test]
fn a_descriptor_that_breaks_the_rules_is_refused_by_rule_and_place() {
    let mut made = descriptor(&full());
    made["specs"]["capabilities"]["threads"] = json!(false);
    let error = connect::card(&json_of(&made), full()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    let rule =
        "/specs/thread_state: Cannot define `thread_state` if `capabilities.threads` is `false`";
    assert!(error.message().contains(rule), "{error}");
    assert_eq!(error.violated()[0].path, "/specs/thread_state");
    let error = connect::card(&json_of(&json!({})), full()).unwrap_err();
    assert!(error.hint_text().is_some());
}

#[test]
fn capabilities_show_what_the_server_adds() {
    let shown = |card: &AgentCard| serde_json::to_value(connect::capabilities(card)).unwrap();
    let plain = shown(&chat());
    assert_eq!(plain["streaming"], json!({ "values": true, "custom": false }));
    assert_eq!(plain["protocol"], "acp-connect");
    assert_eq!(plain["configurations"], false);
    let all = shown(&full());
    assert_eq!(all["streaming"], json!({ "values": true, "custom": true }));
    assert_eq!((&all["configurations"], &all["errors"]), (&json!(true), &json!(true)));
}

#[test]
fn streams_show_what_was_asked_for_or_the_output() {
    let of = |modes: &[StreamMode]| StreamModes::new(modes.iter().copied());
    let modes = |card: &AgentCard, asked: Option<&StreamModes>| {
        connect::modes(card, asked)
            .map(|(modes, missing)| (modes.values, modes.updates, missing))
            .map_err(|error| error.code())
    };
    let unsupported = Err(Code::StreamModeNotSupported);
    let (values, custom) = (StreamMode::Values, StreamMode::Custom);
    assert_eq!(modes(&full(), Some(&of(&[values, custom]))), Ok((true, true, None)));
    assert_eq!(modes(&full(), None), Ok((true, false, None)));
    assert_eq!(modes(&chat(), None), Ok((true, false, None)));
    assert_eq!(modes(&chat(), Some(&of(&[]))), Ok((true, false, None)));
    // Of several requested modes, the agent streams those that it supports.
    assert_eq!(modes(&chat(), Some(&of(&[values, custom]))), Ok((true, false, Some(custom))));
    assert_eq!(modes(&chat(), Some(&of(&[custom]))), unsupported);
    let mut only_custom = full();
    only_custom.abilities.streams_values = Some(false);
    assert_eq!(modes(&only_custom, None), Ok((false, true, None)));
    assert_eq!(modes(&only_custom, Some(&of(&[values]))), unsupported);
    only_custom.abilities.streams_updates = None;
    assert_eq!(modes(&only_custom, None), unsupported);
}

#[test]
fn errors_of_an_agents_own_are_listed_apart_from_the_protocols() {
    let own = serde_json::to_value(connect::errors(&full())).unwrap();
    assert_eq!(
        own["errors"],
        json!([{
            "code": "quota",
            "errcode": 10_001,
            "description": "Too much.",
            "transient": true,
            "schema": { "type": "object" }
        }])
    );
    let all = connect::definitions();
    assert!(all.iter().all(|known| known.errcode < 10_000 && known.http_status.is_some()));
    assert!(all.iter().any(|known| known.code == "thread_busy" && known.transient));
    for known in all {
        if let Some(schema) = &known.schema {
            assert!(jsonschema::meta::is_valid(&schema.to_value()), "{}", known.code);
        }
    }
    let named: Arc<str> = Arc::from(connect::definition("thread_exists").code);
    assert_eq!(&*named, "thread_exists");
}
