//! The rules for descriptors, and the files that contain them.

use serde_json::{Value, json};
use trilogue_wire::agent_connect::{Descriptor, Manifest, decode};

fn sample() -> Value {
    json!({
        "metadata": { "ref": { "name": "org.example.a", "version": "1.0.0" }, "description": "A." },
        "specs": {
            "capabilities": { "threads": true, "interrupts": true, "callbacks": true, "streaming": { "values": true, "custom": true } },
            "input": { "type": "integer" },
            "output": { "$defs": { "X": {} }, "$ref": "#/$defs/X" },
            "config": {},
            "thread_state": { "type": "object" },
            "custom_streaming_update": { "type": "object" },
            "interrupts": [{ "interrupt_type": "i", "interrupt_payload": {}, "resume_payload": true }],
            "errors": [{ "code": "quota", "errcode": 10_000, "description": "Too much.", "transient": true, "schema": {} }]
        }
    })
}

/// Changes the sample and returns its violations: paths and messages.
fn broken(change: impl FnOnce(&mut Value)) -> Vec<(String, String)> {
    let mut value = sample();
    change(&mut value);
    let descriptor: Descriptor = decode(value.to_string().as_bytes()).unwrap();
    descriptor.check().into_iter().map(|found| (found.path, found.message)).collect()
}

fn only(change: impl FnOnce(&mut Value)) -> (String, String) {
    let mut found = broken(change);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn a_descriptor_that_keeps_the_rules_passes() {
    assert_eq!(broken(|_| {}), []);
    // An unknown word, and a whole number as input.
    assert_eq!(broken(|it| it["specs"]["capabilities"]["streaming"]["result"] = json!(true)), []);
}

#[test]
fn each_rule_says_what_it_wants_where() {
    let capability = |name: &'static str, value: Value| {
        only(move |it| it["specs"]["capabilities"][name] = value)
    };
    let said = capability("threads", json!(false));
    assert_eq!(said.0, "/specs/thread_state");
    assert_eq!(said.1, "Cannot define `thread_state` if `capabilities.threads` is `false`");
    let said = capability("interrupts", json!(false));
    assert_eq!(said.0, "/specs/interrupts");
    assert_eq!(said.1, "Interrupts defined with `spec.capabilities.interrupts=false`");
    for none in [json!([]), Value::Null] {
        let said = only(|it| it["specs"]["interrupts"] = none);
        let text = "Missing interrupt definitions with `spec.capabilities.interrupts=true`";
        assert_eq!(said.1, text);
    }
    for off in [Value::Null, json!({ "custom": false }), json!({ "values": true })] {
        let said = capability("streaming", off);
        assert_eq!(said.0, "/specs/custom_streaming_update");
        let text =
            "custom_streaming_update defined with `spec.capabilities.streaming.custom=false`";
        assert_eq!(said.1, text);
    }
    let said = only(|it| it["specs"]["custom_streaming_update"] = Value::Null);
    let text = "Missing custom_streaming_update definitions with `spec.capabilities.streaming.custom=true`";
    assert_eq!(said.1, text);
}

#[test]
fn names_are_there_and_nothing_is_declared_twice() {
    assert_eq!(only(|it| it["metadata"]["ref"]["name"] = json!(" ")).0, "/metadata/ref/name");
    assert_eq!(only(|it| it["metadata"]["ref"]["version"] = json!("")).0, "/metadata/ref/version");
    assert_eq!(only(|it| it["metadata"]["description"] = json!("")).0, "/metadata/description");
    assert_eq!(
        only(|it| drop(it["metadata"].as_object_mut().unwrap().remove("description"))).0,
        "/metadata/description"
    );
    let twice = |list: &'static str| {
        broken(move |it| {
            let first = it["specs"][list][0].clone();
            it["specs"][list].as_array_mut().unwrap().push(first);
        })
    };
    assert_eq!(twice("interrupts")[0].0, "/specs/interrupts/1/interrupt_type");
    let places: Vec<String> = twice("errors").into_iter().map(|found| found.0).collect();
    assert_eq!(places, ["/specs/errors/1/code", "/specs/errors/1/errcode"]);
    assert_eq!(
        only(|it| it["specs"]["errors"][0]["errcode"] = json!(9_999)).0,
        "/specs/errors/0/errcode"
    );
}

#[test]
fn schemas_are_schemas_and_refer_to_nothing_outside() {
    for (place, schema) in [
        ("/specs/input", json!("x")),
        ("/specs/thread_state", json!([])),
        ("/specs/interrupts/0/resume_payload", json!(5)),
        ("/specs/errors/0/schema", json!("x")),
    ] {
        let found = only(|it| *it.pointer_mut(place).unwrap() = schema);
        assert_eq!(found.0, place);
    }
    let remote = json!({ "anyOf": [{ "$ref": "https://example.com/schema.json" }] });
    let found = only(|it| it["specs"]["config"] = remote);
    assert_eq!(found.0, "/specs/config/anyOf/0/$ref");
}

#[test]
fn a_descriptor_stays_as_it_was_written() {
    let text = " {\"specs\": {\"config\":{},\"own\":1.0,\"output\":{},\"input\":{},\"capabilities\":{}},\"metadata\":{\"ref\":{\"version\":\"1\",\"name\":\"a\"},\"x\":[]}} ";
    let manifest = Manifest::read(text.as_bytes()).unwrap();
    assert_eq!(manifest.written.as_str().trim(), text.trim());
    assert_eq!(manifest.descriptor.metadata.reference.name, "a");
}

#[test]
fn an_older_manifest_holds_a_descriptor() {
    let mut manifest = sample();
    manifest["deployments"] = json!([{
        "type": "remote_service",
        "protocol": { "type": "ACP", "url": "https://example.com/acp" }
    }, { "type": "source_code" }]);
    let read = Manifest::read(manifest.to_string().as_bytes()).unwrap();
    assert_eq!(read.written.to_value(), sample());
}

#[test]
fn an_agent_record_holds_its_manifest_as_an_extension() {
    let specs = sample()["specs"].clone();
    let record = |name: &str| {
        json!({
            "name": "org.example.a",
            "version": "1.0.0",
            "description": "A.",
            "locators": [{ "type": "source-code", "url": "https://example.com/a.git" }],
            "extensions": [
                { "name": "other", "data": {} },
                { "name": name, "version": "1", "data": {
                    "acp": specs,
                    "deployment": { "deployment_options": [{ "type": "remote_service" }] }
                } }
            ]
        })
    };
    for name in [
        "schema.oasf.agntcy.org/features/runtime/manifest",
        "oasf.agntcy.org/feature/runtime/manifest",
    ] {
        let read = Manifest::read(record(name).to_string().as_bytes()).unwrap();
        let mut wanted = sample();
        wanted["metadata"]["ref"]["url"] = json!("https://example.com/a.git");
        assert_eq!(read.written.to_value(), wanted);
        assert_eq!(read.descriptor.check(), []);
    }
    let odd = Manifest::read(record("unknown").to_string().as_bytes()).unwrap_err();
    assert_eq!(odd.path, "/extensions/0/data/acp");
}

#[test]
fn a_file_of_no_known_form_says_which_there_are() {
    let odd = Manifest::read(b"{}").unwrap_err();
    assert!(odd.message.contains("specs") && odd.message.contains("extensions"), "{odd}");
    let half = Manifest::read(br#"{"specs":{}}"#).unwrap_err();
    assert!(!half.is_malformed());
    assert!(Manifest::read(b"x").unwrap_err().is_malformed());
}
