use std::collections::HashMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use trilogue_wire::agent_client::splice::{put_message_id, put_session, remove, set};
use trilogue_wire::agent_client::{
    AgentNotification, AgentRequest, ClientNotification, ClientRequest, METHODS, Rules,
};
use trilogue_wire::jsonrpc::{Incoming, parse};

use super::agent_client_samples::{Sample, all};
use super::agent_client_schema::{definition, unstable};

/// Optional members of content. Their invalid values are passed on unchanged, except under the strict rules.
const KEPT: [&str; 6] = ["annotations", "size", "mimeType", "title", "description", "uri"];

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(all);
static SCHEMAS: LazyLock<Option<HashMap<&str, Validator>>> = LazyLock::new(|| {
    let official = unstable()?;
    Some(SAMPLES.iter().map(|sample| (sample.name, definition(&official, sample.name))).collect())
});

/// Generates any JSON, often with words of the protocol.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        "[a-z]{0,4}",
        prop::sample::select(vec![
            "text",
            "image",
            "_meta",
            "type",
            "sessionId",
            "agent_message_chunk",
            "tool_call",
            "content"
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        let members = prop::collection::vec((word.clone(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            members.prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                places(
                    value,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                places(value, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// Returns `true` if the protocol names the members of an object, so that others are unknown members.
fn is_named(pointer: &str, parent: Option<&Value>) -> bool {
    let last = pointer.rsplit('/').next().unwrap_or_default();
    let free = ["_meta", "rawInput", "rawOutput", "properties"];
    let is_free = pointer.split('/').any(|step| free[..3].contains(&step)) || last == free[3];
    // The content of a filled form, and variables by name.
    let is_map = parent.is_some_and(|parent| {
        (last == "content" && parent.get("action").is_some())
            || (last == "env" && parent.get("env").is_some_and(Value::is_object))
    });
    !is_free && !is_map
}

fn read_every_way(method: &str, params: Option<&RawValue>) {
    for rules in [Rules::Lenient, Rules::Strict] {
        let _ = AgentRequest::read(method, params, rules).map_err(|refusal| refusal.error());
        let _ = ClientRequest::read(method, params, rules);
        let _ = AgentNotification::read(method, params, rules);
        let _ = ClientNotification::read(method, params, rules);
    }
}

proptest! {
    #[test]
    fn unknown_members_survive_in_every_object(
        sample in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in any_json(),
    ) {
        let sample = &SAMPLES[sample.index(SAMPLES.len())];
        let mut found = Vec::new();
        places(&sample.json, "", &mut found);
        found.retain(|pointer| {
            let parent = pointer.rsplit_once('/').and_then(|(parent, _)| sample.json.pointer(parent));
            sample.json.pointer(pointer).is_some_and(Value::is_object) && is_named(pointer, parent)
        });
        let mut json = sample.json.clone();
        let object = json.pointer_mut(&found[place.index(found.len())]).unwrap();
        object.as_object_mut().unwrap().insert("x_unknown".to_owned(), value);
        let (again, _) = (sample.pass)(json.to_string().as_bytes(), Rules::Strict).unwrap();
        prop_assert_eq!(again, json);
    }

    #[test]
    fn whatever_is_understood_is_written_as_the_schema_wants_it(
        sample in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        value in any_json(),
    ) {
        let sample = &SAMPLES[sample.index(SAMPLES.len())];
        let mut found = Vec::new();
        places(&sample.json, "", &mut found);
        let mut json = sample.json.clone();
        let pointer = &found[place.index(found.len())];
        let is_optional = pointer.split('/').any(|step| KEPT.contains(&step));
        *json.pointer_mut(pointer).unwrap() = value;
        for rules in [Rules::Lenient, Rules::Strict] {
            let Ok((written, shown)) = (sample.pass)(json.to_string().as_bytes(), rules) else { continue };
            // Unknown values are passed on unchanged, and addresses and ids can have any value.
            let is_fraction = written.get("requestId").is_some_and(Value::is_f64);
            if shown.contains("Other(") || written.get("url").is_some() || is_fraction {
                continue;
            }
            let is_kept = is_optional && matches!(rules, Rules::Lenient);
            if let Some(schemas) = &*SCHEMAS && !is_kept {
                let kept = schemas[sample.name].validate(&written);
                prop_assert!(kept.is_ok(), "{}: {:?} in {}", sample.name, kept, written);
            }
            // Reading the output again gives the same value.
            let (again, _) = (sample.pass)(written.to_string().as_bytes(), rules).unwrap();
            prop_assert_eq!(again, written);
        }
    }

    #[test]
    fn no_json_makes_anything_panic(method in 0..METHODS.len(), value in any_json(), more in any_json()) {
        let line = json!({ "jsonrpc": "2.0", "id": more, "method": METHODS[method].name, "params": value });
        let text = line.to_string();
        if let Ok(Incoming::Request(request)) = parse(text.as_bytes()) {
            read_every_way(&request.method, request.params);
            read_every_way("_own", request.params);
        }
        let _ = parse(value.to_string().as_bytes()).map_err(|invalid| invalid.reply());
    }

    #[test]
    fn no_text_makes_splicing_panic(text in "[\\[\\]{}:,\"a \\\\sessionIdupdate1]{0,60}") {
        let _ = (put_session(&text, "s"), put_message_id(&text, "m"));
        let _ = (remove(&text, &["a"]), set(&text, &["a", "s"], "1"), remove(&text, &["update", "a"]));
        let _ = parse(text.as_bytes());
    }

    #[test]
    fn splicing_is_what_setting_and_removing_are(
        value in any_json(), other in any_json(), deep in any::<bool>(),
    ) {
        let path: &[&str] = if deep { &["content", "type"] } else { &["type"] };
        let text = value.to_string();
        let mut expected = value;
        let parent = if deep { expected.get_mut("content") } else { Some(&mut expected) };
        match parent.and_then(Value::as_object_mut) {
            Some(object) => {
                object.insert("type".to_owned(), other.clone());
                let spliced = set(&text, path, &other.to_string()).unwrap();
                prop_assert_eq!(serde_json::from_str::<Value>(&spliced).unwrap(), expected.clone());
                let parent = if deep { &mut expected["content"] } else { &mut expected };
                parent.as_object_mut().unwrap().remove("type");
                let removed = remove(&spliced, path);
                prop_assert_eq!(serde_json::from_str::<Value>(&removed).unwrap(), expected);
            }
            None => prop_assert_eq!(set(&text, path, "1"), None),
        }
    }
}
