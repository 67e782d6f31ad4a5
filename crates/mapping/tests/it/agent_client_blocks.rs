//! Content blocks: converted to parts and back, and to the other protocols.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::{
    Citation, Code, Content, Input, Json, Message, MessageId, Part, PartMetadata, Role, Timestamp,
    Trajectory,
};
use trilogue_mapping::agent_client::{
    Citations, Extension, blocks_of, blocks_of_message, check_capabilities, fit, message_of_prompt,
    prompt_of_input,
};
use trilogue_mapping::communication::{Projection, ProjectionOptions};
use trilogue_mapping::{communication, connect, native};
use trilogue_wire::agent_client::{ContentBlock, PromptCapabilities, Rules, read};
use trilogue_wire::{agent_communication, native as wire};

use super::official::assert_valid;
use super::sample::{json_of, links};

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn blocks(values: &[Value]) -> Vec<ContentBlock> {
    let read = |value: &Value| read(value.to_string().as_bytes(), Rules::Lenient).unwrap();
    values.iter().map(read).collect()
}

fn values(blocks: &[ContentBlock]) -> Vec<Value> {
    blocks.iter().map(|block| serde_json::to_value(block).unwrap()).collect()
}

/// Every form of a block, alone and with all its optional members.
pub(crate) fn forms() -> Vec<Value> {
    let rich = [
        (
            "annotations",
            json!({ "audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z", "_meta": { "a": 1 } }),
        ),
        ("_meta", json!({ "example.com/a": { "b": [1.5, null] } })),
        ("future", json!([{ "any": "thing" }])),
    ];
    let plain = vec![
        json!({ "type": "text", "text": "" }),
        json!({ "type": "text", "text": "two\nlines \u{1f600} \u{0}" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "artifact:a%20b.png" }),
        json!({ "type": "image", "data": "not base64", "mimeType": "image/png" }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "application/pdf" }),
        json!({ "type": "image", "data": "", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }),
        json!({ "type": "audio", "data": "%%%", "mimeType": "audio/wav" }),
        json!({ "type": "resource_link", "uri": "file:///a/b.txt", "name": "b.txt" }),
        json!({ "type": "resource_link", "uri": "artifact:a", "name": "a", "mimeType": "text/plain", "title": "A", "description": "An a.", "size": 3 }),
        json!({ "type": "resource", "resource": { "uri": "file:///a.rs", "text": "fn a() {}", "mimeType": "text/x-rust" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///a.rs", "text": "" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///a", "blob": "aGk=" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///a", "blob": "a b", "mimeType": "image/png" } }),
        json!({ "type": "resource", "resource": { "uri": "artifact:a", "blob": "aGk=", "mimeType": "image/png" } }),
        json!({ "type": "resource", "resource": { "uri": "artifact:a.json", "text": "{}", "mimeType": "application/json" } }),
        json!({ "type": "resource", "resource": { "uri": "artifact:a%2f", "text": "x", "mimeType": "text/plain", "_meta": { "k": true } } }),
        json!({ "type": "resource", "resource": { "uri": "", "text": "x" } }),
    ];
    let mut all = plain.clone();
    for form in plain {
        for place in 0..rich.len() {
            let mut form = form.clone();
            for (key, value) in rich.iter().skip(place) {
                form[key] = value.clone();
            }
            all.push(form);
        }
    }
    all.push(json!({ "type": "_video", "data": [1, 2], "_meta": null }));
    all.push(json!({ "type": "hologram" }));
    all
}

fn message(forms: &[Value]) -> Message {
    message_of_prompt(&blocks(forms), id("m"))
}

#[test]
fn every_form_of_a_block_comes_back_as_it_was() {
    for form in forms() {
        let message = message(std::slice::from_ref(&form));
        assert_eq!((message.parts.len(), &message.role), (1, &Role::User));
        assert_eq!(values(&blocks_of_message(&message)), [form]);
    }
}

#[test]
fn variants_of_base64_become_bytes_and_the_standard_form() {
    for data in ["aGk", "aG\r\nk=\n"] {
        let image = json!({ "type": "image", "data": data, "mimeType": "image/png" });
        let blob = json!({ "uri": "file:///a", "blob": data, "mimeType": "image/png" });
        let blob = json!({ "type": "resource", "resource": blob });
        let message = message(&[image, blob]);
        for part in &message.parts {
            assert_eq!(part.content, Content::Bytes("hi".into()), "{data:?}");
        }
        let shown = values(&blocks_of_message(&message));
        assert_eq!(
            (&shown[0]["data"], &shown[1]["resource"]["blob"]),
            (&json!("aGk="), &json!("aGk="))
        );
    }
}

#[test]
fn plain_blocks_are_plain_parts() {
    let parts = |form: Value| message(&[form]).parts.remove(0);
    assert_eq!(parts(json!({ "type": "text", "text": "hi" })), Part::text("hi"));
    let png = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
    assert_eq!(parts(png), Part::bytes("image/png", "hi"));
    let named = json!({ "type": "resource", "resource": { "uri": "artifact:a.csv", "text": "1", "mimeType": "text/csv" } });
    assert_eq!(
        parts(named),
        Part::new("text/csv", Content::Text(Arc::from("1"))).with_name("a.csv")
    );
}

#[test]
fn a_file_is_no_part_of_what_the_user_says() {
    let file = json!({ "type": "resource", "resource": { "uri": "file:///x/notes.md?a#b", "text": "secret" } });
    let message = message(&[json!({ "type": "text", "text": "look" }), file]);
    assert_eq!(message.text(), "look");
    assert_eq!(message.parts[1].name.as_deref(), Some("notes.md"));
}

#[test]
fn what_is_not_base64_is_kept_as_it_was_received() {
    for data in ["not base64", "aGl=", "+/-_", "a"] {
        let form = json!({ "type": "image", "data": data, "mimeType": "image/png" });
        let message = message(std::slice::from_ref(&form));
        assert_eq!(message.parts[0].content, Content::Text(Arc::from(data)));
        assert_eq!(values(&blocks_of_message(&message)), [form]);
    }
}

fn shown_on_communication(message: &Message) -> Vec<Value> {
    let shown: Value = serde_json::from_slice(&json_on_communication(message)).unwrap();
    shown["parts"].as_array().unwrap().clone()
}

fn json_on_communication(message: &Message) -> bytes::Bytes {
    let mut shown = Projection::new(ProjectionOptions {
        strict: false,
        base: Arc::from(""),
        max_inline_bytes: 1 << 20,
        input: true,
    });
    let thread = trilogue_domain::ThreadId::parse("t").unwrap();
    for body in super::sample::message_bodies(message) {
        shown.push(&super::sample::event(body), &thread);
    }
    shown.messages()[0].json.clone()
}

fn through_communication(message: &Message) -> Message {
    let json = json_on_communication(message);
    // Reads the message like a server reads an agent's: a request would be refused if its data is marked as base64 and is not.
    let read: agent_communication::Message =
        agent_communication::read(&json, agent_communication::Rules::Lenient).unwrap();
    communication::read_message(read).unwrap()
}

fn through_connect(message: &Message) -> Message {
    let shown = connect::messages(std::slice::from_ref(message), &links());
    let text = serde_json::to_string(&shown).unwrap();
    let read = serde_json::from_str(&text).unwrap();
    connect::read_messages(read, Timestamp::from_micros(1), "").unwrap().remove(0)
}

fn through_native(message: &Message) -> Message {
    let shown =
        native::message::message(message, None, &trilogue_domain::ThreadId::parse("t").unwrap());
    let text = json!([{ "role": "user", "parts": serde_json::to_value(shown.parts).unwrap() }]);
    let read: wire::RunInput = serde_json::from_value(text).unwrap();
    match native::input::input(read, Timestamp::from_micros(1)).unwrap() {
        Input::Messages(mut messages) => messages.remove(0),
        Input::Value(value) => panic!("{value:?}"),
    }
}

#[test]
fn blocks_come_back_from_every_other_protocol() {
    for form in forms() {
        let message = message(std::slice::from_ref(&form));
        for (name, back) in [
            ("communication", through_communication(&message)),
            ("connect", through_connect(&message)),
            ("native", through_native(&message)),
        ] {
            assert_eq!(values(&blocks_of_message(&back)), std::slice::from_ref(&form), "{name}");
        }
    }
}

#[test]
fn a_peer_that_drops_the_extension_leaves_text_and_media() {
    let forms = [
        json!({ "type": "text", "text": "hi", "annotations": { "priority": 1 } }),
        json!({ "type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png" }),
        json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav", "_meta": {} }),
        json!({ "type": "resource", "resource": { "uri": "file:///a.txt", "text": "in it", "mimeType": "text/plain" } }),
        json!({ "type": "resource_link", "uri": "http://a/b.txt", "name": "B", "mimeType": "text/plain" }),
    ];
    let mut message = message(&forms);
    for part in &mut message.parts {
        part.extra = None;
    }
    assert_eq!(
        values(&blocks_of_message(&message)),
        [
            json!({ "type": "text", "text": "hi" }),
            json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" }),
            json!({ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }),
            json!({ "type": "resource", "resource": { "uri": "artifact:a.txt", "text": "in it", "mimeType": "text/plain" } }),
            json!({ "type": "resource_link", "uri": "http://a/b.txt", "name": "b.txt", "mimeType": "text/plain" }),
        ]
    );
}

/// Parts of other protocols, with every form of content.
fn foreign_parts() -> Vec<Part> {
    let citation = Citation {
        start_index: Some(1),
        end_index: Some(3),
        url: Some("https://a/b".to_owned()),
        title: Some("B".to_owned()),
        description: Some("About b.".to_owned()),
    };
    let step = Trajectory {
        message: Some("hm".to_owned()),
        tool_name: Some("look".to_owned()),
        tool_input: Some(json_of(&json!({ "a": 1 }))),
        tool_output: Some(json_of(&json!([2]))),
    };
    let json_part = Part::json(&json_of(&json!({ "a": [1] })));
    vec![
        Part::text("hi"),
        Part::new("text/markdown", Content::Text(Arc::from("*hi*"))),
        json_part.clone(),
        json_part.with_name("a.json"),
        Part::bytes("image/png", "hi"),
        Part::bytes("image/png", "hi").with_name("a b.png"),
        Part::bytes("audio/wav", "hi").with_name("a.wav"),
        Part::bytes("application/pdf", "hi"),
        Part::bytes("application/pdf", "hi").with_name("a/b.pdf"),
        Part::url("image/png", "https://a/b.png"),
        Part::url("image/png", "https://a/b.png").with_name("b"),
        Part::url("application/octet-stream", "https://a/"),
        Part::text("cited").with_metadata(PartMetadata::Citation(citation.clone())),
        Part::annotation(PartMetadata::Citation(citation)),
        Part::annotation(PartMetadata::Citation(Citation::default())),
        Part::annotation(PartMetadata::Trajectory(step)),
        Part::text("other").with_metadata(PartMetadata::Other(json_of(&json!({ "kind": "mood" })))),
        Part { extra: Some(json_of(&json!({ "own": { "b": 1 } }))), ..Part::text("extra") },
        Part { extra: Some(json_of(&json!({ "own": 1 }))), ..Part::bytes("image/png", "x") },
        Part::new("text/plain", Content::Empty),
    ]
}

#[test]
fn parts_of_other_protocols_come_back_where_the_extension_survives() {
    for part in foreign_parts() {
        let shown = blocks_of(std::slice::from_ref(&part), Extension::Meta);
        for block in values(&shown) {
            assert_valid("ContentBlock", &block);
        }
        let back = message_of_prompt(&blocks(&values(&shown)), id("m"));
        assert_eq!(back.parts, std::slice::from_ref(&part), "{:?}", values(&shown));
    }
}

#[test]
fn parts_of_other_protocols_are_shown_without_the_extension() {
    let shown = |part: &Part| values(&blocks_of(std::slice::from_ref(part), Extension::Off));
    for part in foreign_parts() {
        for block in shown(&part) {
            assert_valid("ContentBlock", &block);
            assert!(block.get("_meta").is_none(), "{block}");
        }
    }
    let json_part = Part::json(&json_of(&json!({ "a": 1 })));
    assert_eq!(shown(&json_part), [json!({ "type": "text", "text": "```json\n{\"a\":1}\n```" })]);
    let blob = BlobRef { hash: [7; 32], length: 9_000_000, is_text: false };
    let large = Part::new("image/png", Content::Blob(blob)).with_name("big.png");
    let uri = format!("trilogue:/blobs/{}", "07".repeat(32));
    let link = json!({ "type": "resource_link", "uri": uri, "name": "big.png", "mimeType": "image/png", "size": 9_000_000 });
    assert_eq!(shown(&large), [link]);
    let cited = Citation { url: Some("https://a/b".to_owned()), ..Citation::default() };
    let cited = Part::annotation(PartMetadata::Citation(cited));
    assert_eq!(
        shown(&cited),
        [json!({ "type": "resource_link", "uri": "https://a/b", "name": "https://a/b" })]
    );
    assert_eq!(shown(&Part::new("text/plain", Content::Empty)), [] as [Value; 0]);
}

/// The document's citation (message metadata), with members that only some peers have.
fn study() -> Value {
    json!({
        "kind": "citation", "url": "https://example.com/ai-study-2024", "title": "AI Adoption Report 2024",
        "description": "Comprehensive analysis of AI adoption trends across industries",
        "start_index": 15, "end_index": 27, "author": "A. Author", "score": 0.9,
    })
}

const STATEMENT: &str = "According to a recent study, AI adoption has increased by 40% this year.";

#[test]
fn a_citation_in_a_prompt_comes_to_the_agent() {
    let part = json!({ "content_type": "text/plain", "content": STATEMENT, "metadata": study() });
    let said = json!({ "role": "user", "parts": [part] }).to_string();
    let rules = agent_communication::Rules::Compatible;
    let read: agent_communication::Message =
        agent_communication::read(said.as_bytes(), rules).unwrap();
    let input = Input::Messages(vec![communication::read_message(read).unwrap()]);
    let text = |text: &str| json!({ "type": "text", "text": text });
    let note = "\n\nSources:\n[1] “recent study”: AI Adoption Report 2024; https://example.com/ai-study-2024; \
        Comprehensive analysis of AI adoption trends across industries; author: A. Author; score: 0.9";
    let told = values(&prompt_of_input(&input, &[], Citations::Text));
    assert_eq!(told, [text(STATEMENT), text(note)]);
    let mut cited = study();
    cited.as_object_mut().unwrap().remove("kind");
    let mut block = text(STATEMENT);
    block["_meta"] = json!({ "trilogue": { "citation": cited } });
    let told = values(&prompt_of_input(&input, &[], Citations::Meta));
    assert_eq!(told, std::slice::from_ref(&block));
    // In the other direction, the same member makes it a citation again.
    let back = message(&[block]);
    assert_eq!(through_communication(&back).parts[0].metadata, back.parts[0].metadata);
    let shown = Value::Array(shown_on_communication(&back));
    assert_eq!(shown[0]["metadata"], study());
    let connected = connect::messages(std::slice::from_ref(&back), &links());
    let connected = serde_json::to_value(connected).unwrap();
    assert_eq!(connected[0]["content"][0]["metadata"]["citation"], cited);
}

fn text_message(role: Role, text: &str) -> Message {
    Message { role, ..message(&[json!({ "type": "text", "text": text })]) }
}

#[test]
fn what_was_said_before_stands_in_front_of_the_prompt() {
    let png = json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" });
    let agent = || Role::NamedAgent(Arc::from("a"));
    let missed = [text_message(Role::User, "one"), text_message(agent(), "two")];
    let input = Input::Messages(vec![
        message(std::slice::from_ref(&png)),
        text_message(Role::User, "the prompt"),
        text_message(Role::Agent, "prefilled"),
    ]);
    let prompt = values(&prompt_of_input(&input, &missed, Citations::Text));
    let before = "Earlier in this conversation:\n\nUser: one\n\nAgent a: two\n\nUser: ";
    let after = "\n\nAgent: prefilled\n\nThe message to answer follows.";
    let text = |text: &str| json!({ "type": "text", "text": text });
    assert_eq!(prompt, [text(before), png, text(after), text("the prompt")]);
    let alone = Input::Messages(vec![text_message(Role::User, "hi")]);
    assert_eq!(values(&prompt_of_input(&alone, &[], Citations::Text)), [text("hi")]);
    assert_eq!(
        values(&prompt_of_input(&Input::Messages(Vec::new()), &[], Citations::Text)),
        [] as [Value; 0]
    );
    let value = |value: Value| {
        values(&prompt_of_input(&Input::Value(json_of(&value)), &[], Citations::Text))
    };
    assert_eq!(value(json!("hi")), [text("hi")]);
    assert_eq!(value(json!([1])), [text("```json\n[1]\n```")]);
}

#[test]
fn a_block_that_the_agent_does_not_take_is_refused_by_its_capability() {
    let caps = |image, audio, embedded_context| PromptCapabilities {
        image,
        audio,
        embedded_context,
        ..PromptCapabilities::default()
    };
    let all = blocks(&[
        json!({ "type": "text", "text": "x" }),
        json!({ "type": "resource_link", "uri": "a:b", "name": "b" }),
        json!({ "type": "image", "data": "", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "", "mimeType": "audio/wav" }),
        json!({ "type": "resource", "resource": { "uri": "a:b", "text": "" } }),
    ]);
    assert!(check_capabilities(&all, &caps(true, true, true)).is_ok());
    for (caps, name, place) in [
        (caps(false, true, true), "'image'", "block 2"),
        (caps(true, false, true), "'audio'", "block 3"),
        (caps(true, true, false), "'embeddedContext'", "block 4"),
    ] {
        let refused = check_capabilities(&all, &caps).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidInput);
        assert!(refused.hint_text().unwrap().contains(name), "{refused:?}");
        assert!(refused.message().contains(place), "{refused}");
    }
}

#[test]
fn an_embedded_resource_becomes_a_link_or_its_text_where_it_cannot_be_embedded() {
    let none = PromptCapabilities::default();
    let file = json!({ "type": "resource", "resource": { "uri": "file:///a/b.rs", "text": "x", "mimeType": "text/x-rust" }, "annotations": { "priority": 1 } });
    let ours = json!({ "type": "resource", "resource": { "uri": "artifact:b", "text": "x" } });
    let blob = json!({ "type": "resource", "resource": { "uri": "artifact:b", "blob": "aGk=" } });
    let fitted = values(&fit(blocks(&[file.clone(), ours, blob.clone()]), &none));
    let link = json!({ "type": "resource_link", "uri": "file:///a/b.rs", "name": "b.rs", "mimeType": "text/x-rust", "annotations": { "priority": 1 } });
    assert_eq!(fitted, [link, json!({ "type": "text", "text": "artifact:b:\n\nx" }), blob]);
    let caps = PromptCapabilities { embedded_context: true, ..none };
    assert_eq!(values(&fit(blocks(std::slice::from_ref(&file)), &caps)), [file]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| json!(number)),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,6}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Base64 in the standard form, or text that is base64 in no variant. Other variants change on the way; [`variants_of_base64_become_bytes_and_the_standard_form`] tests them.
fn any_data() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| STANDARD.encode(bytes)),
        ".{0,12}".prop_map(|text| format!("%{text}")),
    ]
}

fn any_block() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![
        Just("text"),
        Just("image"),
        Just("audio"),
        Just("resource_link"),
        Just("resource"),
        Just("_own")
    ];
    let extra = prop::collection::btree_map("[a-zA-Z_]{1,6}", any_json(), 0..3);
    (kind, ".{0,12}", any_data(), "[a-z]{1,5}/[a-z.+]{1,6}", any::<bool>(), extra).prop_map(
        |(kind, text, data, mime, flag, extra)| {
            let mut block = Value::Object(extra.into_iter().collect());
            let content = if flag { "blob" } else { "text" };
            for (key, value) in match kind {
                "text" => vec![("text", json!(text))],
                "image" | "audio" => vec![("data", json!(data)), ("mimeType", json!(mime))],
                "resource_link" => vec![("uri", json!(text)), ("name", json!("n"))],
                "resource" => vec![("resource", json!({ "uri": text, content: data }))],
                _ => Vec::new(),
            } {
                block[key] = value;
            }
            block["type"] = json!(kind);
            block
        },
    )
}

proptest! {
    #[test]
    fn any_block_comes_back(form in any_block()) {
        let typed = blocks(std::slice::from_ref(&form));
        // A value that does not fit counts as absent from the first read on.
        let read = values(&typed);
        let message = message_of_prompt(&typed, id("m"));
        prop_assert_eq!(values(&blocks_of_message(&message)), read);
    }
}

#[test]
fn json_is_carried_as_it_was_written() {
    let raw =
        r#"{"type":"text","text":"x","_meta":{"n":1.0,"big":12345678901234567890123,"e":1e3}}"#;
    let block: ContentBlock = read(raw.as_bytes(), Rules::Lenient).unwrap();
    let message = message_of_prompt(&[block], id("m"));
    let kept: &Json = message.parts[0].extra.as_ref().unwrap();
    assert!(kept.as_str().contains(r#"{"n":1.0,"big":12345678901234567890123,"e":1e3}"#));
    let back = serde_json::to_string(&blocks_of_message(&message)[0]).unwrap();
    assert_eq!(back, raw);
}
