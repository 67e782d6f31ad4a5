//! Messages, converted and back.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    Citation, Content, Message, Part, PartMetadata, Role, Timestamp, Trajectory,
};
use trilogue_mapping::connect;
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::MessageContent;

use crate::published::{assert_valid, document};
use crate::sample::{json_of, links, message_id};

fn read(messages: Vec<wire::Message>) -> Vec<Message> {
    connect::read_messages(messages, Timestamp::from_micros(1), "/messages").unwrap()
}

fn again(message: Value) -> Value {
    let message: wire::Message = serde_json::from_value(message).unwrap();
    let read = read(vec![message]).remove(0);
    serde_json::to_value(connect::message(&read, &links())).unwrap()
}

fn render_message(role: Role, parts: Vec<Part>) -> Value {
    let said = Message { id: message_id("m"), role, parts, created_at: None, completed_at: None };
    serde_json::to_value(connect::message(&said, &links())).unwrap()
}

#[test]
fn one_text_is_a_string_and_more_is_blocks() {
    let document = document();
    let plain = render_message(Role::Agent, vec![Part::text("hi")]);
    assert_eq!(plain, json!({ "role": "assistant", "content": "hi", "id": "m" }));
    let two = render_message(Role::User, vec![Part::text("a"), Part::text("b")]);
    let blocks = json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }]);
    assert_eq!(two, json!({ "role": "user", "content": blocks, "id": "m" }));
    assert_valid(document.as_ref(), "Message", &plain);
    assert_valid(document.as_ref(), "Message", &two);
}

#[test]
fn what_a_part_has_beyond_its_text_stands_in_the_metadata() {
    let document = document();
    let citation =
        Citation { start_index: Some(0), title: Some("T".to_owned()), ..Citation::default() };
    let step = Trajectory {
        tool_name: Some("t".to_owned()),
        tool_output: Some(json_of(&json!(5))),
        ..Trajectory::default()
    };
    let blob = Content::Blob(BlobRef { hash: [7; 32], length: 9, is_text: false });
    let cases = vec![
        (
            Part::bytes("image/png", "x").with_name("a.png"),
            json!({ "type": "image", "metadata": { "content": "eA==", "content_encoding": "base64", "content_type": "image/png", "name": "a.png" } }),
        ),
        (
            Part::url("text/html", "https://example.com/"),
            json!({ "type": "link", "metadata": { "content_url": "https://example.com/", "content_type": "text/html" } }),
        ),
        (
            Part::json(&json_of(&json!({ "a": 1 }))),
            json!({ "type": "text", "text": "{\"a\":1}", "metadata": { "content_type": "application/json" } }),
        ),
        (
            Part::text("x").with_metadata(PartMetadata::Citation(citation)),
            json!({ "type": "text", "text": "x", "metadata": { "citation": { "start_index": 0, "title": "T" } } }),
        ),
        (
            Part::annotation(PartMetadata::Trajectory(step)),
            json!({ "type": "annotation", "metadata": { "trajectory": { "tool_name": "t", "tool_output": 5 } } }),
        ),
        (
            Part::text("x").with_metadata(PartMetadata::Other(json_of(&json!({ "kind": "mood" })))),
            json!({ "type": "text", "text": "x", "metadata": { "trilogue": { "metadata": { "kind": "mood" } } } }),
        ),
        (
            Part { extra: Some(json_of(&json!({ "size": 3 }))), ..Part::text("x") },
            json!({ "type": "text", "text": "x", "metadata": { "size": 3 } }),
        ),
        (
            Part::new("application/pdf", blob),
            json!({ "type": "file", "metadata": { "content_type": "application/pdf", "content_url": format!("http://h/connect/threads/11111111-1111-4111-8111-111111111111/blobs/{}", "07".repeat(32)) } }),
        ),
    ];
    for (part, wanted) in cases {
        let message = render_message(Role::Agent, vec![part.clone()]);
        assert_eq!(message["content"], json!([wanted]), "{part:?}");
        assert_valid(document.as_ref(), "Message", &message);
        if matches!(part.content, Content::Blob(_)) {
            continue;
        }
        let wire: wire::Message = serde_json::from_value(message).unwrap();
        assert_eq!(read(vec![wire])[0].parts, [part]);
    }
}

#[test]
fn roles_that_we_have_no_word_for_come_back() {
    for (role, ours) in [
        ("user", Role::User),
        ("human", Role::User),
        ("system", Role::User),
        ("tool", Role::User),
        ("assistant", Role::Agent),
        ("ai", Role::Agent),
        ("agent", Role::Agent),
        ("agent/x", Role::NamedAgent(Arc::from("x"))),
    ] {
        let message: wire::Message = wire::Message::text(role, "hi");
        let read = read(vec![message]).remove(0);
        assert_eq!(read.role, ours, "{role}");
        assert_eq!(read.text(), "hi");
        assert_eq!(connect::message(&read, &links()).role, role);
    }
    let named = render_message(Role::NamedAgent(Arc::from("bob")), vec![Part::text("hi")]);
    assert_eq!(named["role"], "assistant");
    assert_eq!(named["metadata"], json!({ "trilogue": { "agent": "bob" } }));
    let wire: wire::Message = serde_json::from_value(named.clone()).unwrap();
    assert_eq!(read(vec![wire])[0].role, Role::NamedAgent(Arc::from("bob")));
    assert_eq!(again(named.clone()), named);
}

#[test]
fn blocks_that_we_have_no_word_for_come_back_whole() {
    for block in [
        json!({ "type": "image_url", "image_url": { "url": "https://example.com/a.png" } }),
        json!({ "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } }),
        json!({ "type": "text" }),
        json!({ "type": "image", "metadata": { "content": "%%%" } }),
        json!({ "type": "file", "text": "odd", "metadata": {} }),
        json!({ "type": "text", "text": "x", "metadata": { "citation": 5 } }),
        json!({ "type": "text", "text": "x", "metadata": { "trilogue": { "block": true } } }),
    ] {
        let message = json!({ "role": "user", "content": [block], "id": "m" });
        assert_eq!(again(message.clone()), message);
    }
    let texts = json!({ "role": "user", "content": [{ "type": "text", "text": "seen", "x": 1 }] });
    let wire: wire::Message = serde_json::from_value(texts).unwrap();
    assert_eq!(read(vec![wire])[0].text(), "seen");
    // A block that claims to be base64 must be valid base64.
    let block =
        json!({ "type": "image", "metadata": { "content": "%%%", "content_encoding": "base64" } });
    let wrong = json!({ "role": "user", "content": [block], "id": "m" });
    let wire: wire::Message = serde_json::from_value(wrong).unwrap();
    assert!(connect::read_messages(vec![wire], Timestamp::default(), "/messages").is_err());
}

/// Without an encoding, the content type decides: a model gets an image, not the image's text.
#[test]
fn content_without_an_encoding_is_what_its_type_says() {
    let image = Content::Bytes("x".into());
    for (block, content_type, content) in [
        (
            json!({ "type": "image", "metadata": { "content": "eA==", "content_type": "image/png", "size": 1 } }),
            "image/png",
            image.clone(),
        ),
        (
            json!({ "type": "image", "content": "eA==", "content_type": "image/png" }),
            "image/png",
            image.clone(),
        ),
        (
            json!({ "type": "file", "metadata": { "content": "eA==", "content_type": "application/pdf", "name": "a.pdf" } }),
            "application/pdf",
            image,
        ),
        (
            json!({ "type": "file", "metadata": { "content": "a,b", "content_type": "text/csv; charset=utf-8" } }),
            "text/csv; charset=utf-8",
            Content::Text("a,b".into()),
        ),
    ] {
        let message = json!({ "role": "user", "content": [block], "id": "m" });
        let wire: wire::Message = serde_json::from_value(message.clone()).unwrap();
        let part = read(vec![wire]).remove(0).parts.remove(0);
        assert_eq!((&*part.content_type, &part.content), (content_type, &content), "{block}");
        assert_eq!(part.name.is_some(), block.pointer("/metadata/name").is_some());
        assert_eq!(again(message.clone()), message);
        // Large content is stored outside the log, and linked.
        let blob = Content::Blob(BlobRef { hash: [7; 32], length: 9, is_text: false });
        let linked = render_message(Role::Agent, vec![Part { content: blob, ..part }]);
        let place =
            if block.get("metadata").is_some() { "/content/0/metadata" } else { "/content/0" };
        let members = linked.pointer(place).unwrap();
        assert!(members["content_url"].as_str().unwrap().ends_with(&"07".repeat(32)), "{linked}");
        assert!(members.get("content").is_none(), "{linked}");
    }
}

#[test]
fn nothing_and_nothing_are_told_apart() {
    for content in [json!(""), json!([]), json!([{ "type": "text", "text": "" }])] {
        let message = json!({ "role": "system", "content": content, "id": "m", "metadata": {} });
        assert_eq!(again(message.clone()), message);
        let message = json!({ "role": "user", "content": content, "id": "m" });
        assert_eq!(again(message.clone()), message);
    }
}

#[test]
fn an_extension_in_a_block_stays() {
    let inner = json!({ "name": 5, "trilogue": { "message": {} } });
    for ours in [json!({}), json!({ "message": {} }), json!({ "extra": inner }), json!(1)] {
        let block = json!({ "type": "annotation", "metadata": { "trilogue": ours } });
        let message = json!({ "role": "user", "content": [block], "id": "m", "metadata": {} });
        assert_eq!(again(message.clone()), message);
    }
}

#[test]
fn the_name_of_an_agent_stays_whatever_its_role_is_called() {
    for role in ["assistant", "ai", "agent"] {
        for name in ["a", "", "not a name"] {
            let metadata = json!({ "trilogue": { "agent": name } });
            let message = json!({ "role": role, "content": "", "id": "m", "metadata": metadata });
            assert_eq!(again(message.clone()), message);
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé\u{2028}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            any_object(inner).prop_map(Value::Object),
        ]
    })
}

/// An object whose members may have the names that the conversion reads.
fn any_object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key = prop_oneof![
        "[a-z]{1,3}",
        prop::sample::select(vec![
            "trilogue",
            "name",
            "content",
            "content_type",
            "content_url",
            "content_encoding",
            "citation",
            "trajectory",
            "block",
            "message",
            "metadata",
            "agent",
            "role",
            "empty",
            "blocks",
            "url",
        ])
        .prop_map(str::to_owned),
    ];
    prop::collection::btree_map(key, value, 0..4).prop_map(|members| members.into_iter().collect())
}

fn any_block() -> impl Strategy<Value = wire::Block> {
    let kind = prop::sample::select(vec![
        "text",
        "image",
        "audio",
        "file",
        "link",
        "annotation",
        "custom",
    ]);
    let metadata = prop::option::of(any_object(any_json()));
    let text = prop::option::of("[a-zé]{0,5}");
    let extra = prop_oneof![
        Just(Map::new()),
        "[x-z]{2}".prop_map(|key| {
            let mut members = Map::new();
            members.insert(key, json!(1));
            members
        })
    ];
    (kind, text, metadata, extra).prop_map(|(kind, text, metadata, extra)| wire::Block {
        kind: kind.to_owned(),
        text,
        metadata,
        extra,
    })
}

fn any_message() -> impl Strategy<Value = wire::Message> {
    let role = prop::sample::select(vec!["user", "assistant", "system", "ai", "agent/a", "tool"]);
    let content = prop_oneof![
        ".{0,8}".prop_map(MessageContent::Text),
        prop::collection::vec(any_block(), 0..4).prop_map(MessageContent::Blocks),
    ];
    let extra = prop::collection::btree_map("x_[a-z]{0,3}", any_json(), 0..3);
    (role, content, prop::option::of(any_object(any_json())), extra).prop_map(
        |(role, content, metadata, extra)| wire::Message {
            role: role.to_owned(),
            content,
            id: Some("m".to_owned()),
            metadata,
            extra: extra.into_iter().collect(),
        },
    )
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was_sent(message in any_message()) {
        let read = read(vec![message.clone()]).remove(0);
        let shown = connect::message(&read, &links());
        prop_assert_eq!(&shown, &message);
        // The additional data for a message does not grow on each round trip.
        let again = connect::read_messages(vec![shown], Timestamp::from_micros(1), "").unwrap().remove(0);
        prop_assert_eq!(again, read);
    }
}

fn any_part() -> impl Strategy<Value = Part> {
    let content_type = prop::sample::select(vec![
        "text/plain",
        "text/html",
        "application/json",
        "image/png",
        "audio/wav",
        "",
    ]);
    let content = prop_oneof![
        Just(Content::Empty),
        "[a-zé]{0,5}".prop_map(|text| Content::Text(Arc::from(text))),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(|bytes| Content::Bytes(bytes.into())),
        "[a-z]{0,5}".prop_map(|url| Content::Url(Arc::from(url))),
    ];
    let text = || prop::option::of("[a-z]{0,3}");
    let citation = (any::<Option<i64>>(), text(), text()).prop_map(|(start_index, url, title)| {
        PartMetadata::Citation(Citation { start_index, url, title, ..Citation::default() })
    });
    let json = || prop::option::of(any_json().prop_map(|value| json_of(&value)));
    let step = (text(), json(), json()).prop_map(|(message, tool_input, tool_output)| {
        PartMetadata::Trajectory(Trajectory { message, tool_name: None, tool_input, tool_output })
    });
    let other = any_json().prop_map(|value| PartMetadata::Other(json_of(&value)));
    let metadata = prop::option::of(prop_oneof![citation, step, other]);
    let extra = any_object(any_json()).prop_map(|mut members| {
        // Only Trilogue itself writes this member.
        members.remove("trilogue");
        (!members.is_empty()).then(|| json_of(&Value::Object(members)))
    });
    let name = prop::option::of("[a-z]{0,3}".prop_map(Arc::from));
    (content_type, content, name, metadata, extra).prop_map(
        |(content_type, content, name, metadata, extra)| Part {
            content_type: Arc::from(content_type),
            content,
            name,
            metadata,
            extra,
        },
    )
}

proptest! {
    #[test]
    fn every_part_of_another_face_comes_through(parts in prop::collection::vec(any_part(), 1..3)) {
        let said = Message { id: message_id("m"), ..Message::new(Role::Agent, parts.clone(), None) };
        let shown = connect::message(&said, &links());
        let text = serde_json::to_vec(&shown).unwrap();
        let back = read(vec![trilogue_wire::agent_connect::decode(&text).unwrap()]).remove(0);
        prop_assert_eq!(back.parts, parts);
    }
}
