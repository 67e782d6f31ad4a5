//! The OpenAPI document of one agent.

use serde_json::{Value, json};
use trilogue_domain::{Abilities, AgentCard};
use trilogue_mapping::connect::{self, Security};

use crate::published::document;
use crate::sample::{chat, full, json_of};

fn of(document: &Value, card: &AgentCard) -> Value {
    let security = Security {
        schemes: json!({ "bearer": { "type": "http", "scheme": "bearer" } }),
        requirements: json!([{ "bearer": [] }]),
    };
    connect::openapi(document.clone(), card, &security)
}

fn schema<'a>(document: &'a Value, name: &str) -> &'a Value {
    &document["components"]["schemas"][name]
}

fn paths(document: &Value) -> Vec<&str> {
    document["paths"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn resolves(document: &Value, value: &Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(to) if key == "$ref" => {
                        let pointer = to.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{to} leads nowhere");
                    }
                    other => resolves(document, other),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| resolves(document, item)),
        _ => {}
    }
}

#[test]
fn the_agents_schemas_stand_in_place_of_the_general_ones() {
    let Some(document) = document() else { return };
    let own = of(&document, &full());
    resolves(&own, &own);
    assert_eq!(own["info"]["title"], "org.example.full");
    let reference = &schema(&own, "InputSchema")["properties"]["message"]["$ref"];
    assert_eq!(reference, "#/components/schemas/InputSchema/$defs/Text");
    assert_eq!(schema(&own, "StreamUpdateSchema")["required"], json!(["progress"]));
    let branch = &schema(&own, "InterruptPayloadSchema")["oneOf"][0];
    assert_eq!(
        *branch,
        json!({
            "type": "object",
            "properties": { "approval": { "$ref": "#/components/schemas/approvalInterruptPayload" } },
            "required": ["approval"],
            "additionalProperties": false
        })
    );
    let answer =
        schema(&own, "ResumePayloadSchema")["oneOf"][0]["properties"]["approval"]["$ref"].clone();
    assert_eq!(answer, "#/components/schemas/approvalResumePayload");
    assert_eq!(paths(&own), paths(&document));
    let id = "3f1e2549-5799-4321-91ae-2a4881d55526";
    assert_eq!(schema(&own, "RunCreate")["properties"]["agent_id"]["default"], id);
    let parameters = &own["paths"]["/agents/{agent_id}"]["get"]["parameters"];
    let named = parameters.as_array().unwrap().iter().find(|it| it["name"] == "agent_id").unwrap();
    assert_eq!(named["schema"]["default"], id);
    assert_eq!(own["security"], json!([{ "bearer": [] }]));
    assert_eq!(own["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
}

#[test]
fn what_the_agent_does_not_do_is_gone() {
    let Some(document) = document() else { return };
    let mut card = chat();
    card.abilities = Abilities {
        threads: false,
        callbacks: false,
        streams_values: Some(false),
        streams_updates: None,
        system_prompt: None,
    };
    let own = of(&document, &card);
    resolves(&own, &own);
    let left = paths(&own);
    assert!(
        left.iter().all(|path| !path.contains("threads") && !path.ends_with("/stream")),
        "{left:?}"
    );
    assert!(left.contains(&"/runs/{run_id}/wait"));
    assert_eq!(own["paths"]["/runs/{run_id}"].get("post"), None);
    let properties = schema(&own, "RunCreate")["properties"].as_object().unwrap();
    assert!(!properties.contains_key("webhook") && !properties.contains_key("stream_mode"));
    let output = schema(&own, "RunOutput");
    assert_eq!(output["oneOf"].as_array().unwrap().len(), 2);
    assert_eq!(output["discriminator"]["mapping"].get("interrupt"), None);
    let tags: Vec<&str> =
        own["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    assert_eq!(tags, ["Agents", "Stateless Runs"]);
}

#[test]
fn one_mode_is_the_only_one() {
    let Some(document) = document() else { return };
    let own = of(&document, &chat());
    assert_eq!(schema(&own, "StreamingMode")["enum"], json!(["values"]));
    let data = &schema(&own, "RunOutputStream")["properties"]["data"];
    assert_eq!(data["oneOf"].as_array().unwrap().len(), 2);
    let mut silent = chat();
    silent.abilities.streams_values = Some(false);
    assert!(!paths(&of(&document, &silent)).contains(&"/runs/stream"));
    assert!(paths(&own).contains(&"/runs/stream"));
}

#[test]
fn names_of_interrupts_become_names_of_components() {
    let Some(document) = document() else { return };
    let mut card = full();
    card.interrupts[0].kind = "send mail/now".to_owned();
    card.interrupts[0].payload_schema = json_of(
        &json!({ "$defs": { "A": {} }, "properties": { "a": { "$ref": "#/$defs/A" }, "self": { "$ref": "#" } } }),
    );
    let own = of(&document, &card);
    resolves(&own, &own);
    let payload = schema(&own, "send_mail_nowInterruptPayload");
    let itself = "#/components/schemas/send_mail_nowInterruptPayload";
    assert_eq!(payload["properties"]["self"]["$ref"], itself);
    let asked = &schema(&own, "InterruptPayloadSchema")["oneOf"][0]["required"];
    assert_eq!(*asked, json!(["send mail/now"]));
}
