//! Cards from Rust types: their schemas, their rules, and an agent's own errors.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trilogue_sdk::prelude::*;
use trilogue_sdk::{AgentCard, Code, InputKind};

#[derive(Deserialize, Serialize, JsonSchema)]
struct Person {
    name: String,
    /// The people below this one.
    #[serde(default)]
    reports: Vec<Person>,
    address: Option<Address>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Address {
    city: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    street: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Team {
    lead: Person,
    office: Address,
}

#[derive(Serialize, JsonSchema)]
struct Head {
    count: u32,
    #[serde(default)]
    note: String,
}

#[derive(Deserialize, Serialize, JsonSchema, Default)]
struct Style {
    #[serde(default)]
    formal: bool,
}

fn card() -> AgentCard {
    Card::typed::<Team, Head>("counter", "Counts heads.")
        .id("3F1E2549-5799-4321-91AE-2A4881D55526")
        .url("https://example.org/counter")
        .config(schema_of::<Style>())
        .state(schema_of::<Person>())
        .interrupt("is_this_right", schema_of::<Person>(), schema_of::<bool>())
        .update(schema_of::<Head>())
        .error_with_data("too_many", "There are too many.", true, schema_of::<Head>())
        .error("nobody", "There is nobody.", false)
        .build()
        .unwrap()
}

fn json_value(json: &Option<Json>) -> Value {
    json.as_ref().map(Json::to_value).unwrap()
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value) {
                ("$ref", Value::String(target)) => vec![target.clone()],
                _ => references(value),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn schemas_of_types_are_closed() {
    let card = card();
    let InputKind::Schema(input) = &card.input else { panic!("{:?}", card.input) };
    let mut schemas = vec![input.to_value(), json_value(&card.output_schema)];
    schemas.extend([json_value(&card.config_schema), json_value(&card.state_schema)]);
    schemas.push(json_value(&card.update_schema));
    for declared in &card.interrupts {
        schemas.extend([declared.payload_schema.to_value(), declared.answer_schema.to_value()]);
    }
    let mut seen = 0;
    for schema in &schemas {
        assert_eq!(schema.get("$schema"), None, "{schema}");
        for reference in references(schema) {
            let pointer = reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference}"));
            assert!(schema.pointer(pointer).is_some(), "{reference} in {schema}");
            seen += 1;
        }
    }
    assert!(seen >= 4, "a test without references tests nothing: {seen}");
    assert_eq!(schemas[0]["$defs"].as_object().unwrap().len(), 2);
    assert_eq!(schemas[0]["required"], json!(["lead", "office"]));
}

#[test]
fn what_is_read_may_leave_out_what_is_written() {
    let card = card();
    assert_eq!(json_value(&card.output_schema)["required"], json!(["count", "note"]));
    let state = json_value(&card.state_schema);
    assert_eq!(state["required"], json!(["name"]));
    assert_eq!(state["properties"]["reports"]["description"], "The people below this one.");
    let payload = card.interrupts[0].payload_schema.to_value();
    assert_eq!(payload["required"], json!(["name", "reports", "address"]));
    assert_eq!(card.interrupts[0].answer_schema.to_value()["type"], "boolean");
}

#[test]
fn errors_are_numbered_in_order_and_ids_have_one_spelling() {
    let card = card();
    let errors: Vec<_> = card
        .errors
        .iter()
        .map(|error| (error.code.as_str(), error.number, error.transient))
        .collect();
    assert_eq!(errors, [("too_many", 10_000, true), ("nobody", 10_001, false)]);
    let schema = card.errors[0].data_schema.as_ref().map(Json::to_value).unwrap();
    assert_eq!(schema["properties"]["count"]["type"], "integer");
    assert_eq!(card.errors[1].data_schema, None);
    assert_eq!(card.id.as_deref(), Some("3f1e2549-5799-4321-91ae-2a4881d55526"));
    assert_eq!(card.url.as_deref(), Some("https://example.org/counter"));
}

#[test]
fn abilities_are_as_told() {
    let of = |card: Card| card.build().unwrap().abilities;
    let plain = of(Card::chat("a", ""));
    assert!(plain.threads && plain.callbacks);
    assert_eq!((plain.streams_values, plain.streams_updates), (None, None));
    let bare = of(Card::chat("a", "").without_threads().without_callbacks().streams(false, false));
    assert!(!bare.threads && !bare.callbacks);
    assert_eq!((bare.streams_values, bare.streams_updates), (Some(false), Some(false)));
    let told = of(Card::chat("a", "").streams(true, true));
    assert_eq!((told.streams_values, told.streams_updates), (Some(true), Some(true)));
    let schema = of(Card::chat("a", "").update(json!({})));
    assert_eq!((schema.streams_values, schema.streams_updates), (None, Some(true)));
}

#[test]
fn cards_that_contradict_themselves_are_refused() {
    let chat = || Card::chat("a", "");
    let any = || json!(true);
    for (card, code, named) in [
        (chat().id("seven"), Code::InvalidId, "seven"),
        (chat().error("Two Words", "", false), Code::InvalidRequest, "Two Words"),
        (chat().error("run_ended", "", false), Code::InvalidRequest, "run_ended"),
        (chat().error("x", "", false).error("x", "", true), Code::InvalidRequest, "twice"),
        (chat().interrupt("form", any(), any()), Code::InvalidRequest, "form"),
        (
            chat().interrupt("x", any(), any()).interrupt("x", any(), any()),
            Code::InvalidRequest,
            "twice",
        ),
        (chat().without_threads().state(any()), Code::InvalidRequest, "state schema"),
        (chat().streams(true, false).update(any()), Code::InvalidRequest, "streams none"),
        (
            (0..257).fold(chat(), |card, n| card.error(format!("e{n}"), "", false)),
            Code::InvalidRequest,
            "256",
        ),
    ] {
        let error = card.build().unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(named), "{error}");
    }
}

#[derive(Serialize, JsonSchema)]
struct Quota {
    mails_a_day: u32,
}

impl AgentFault for Quota {
    const CODE: &'static str = "quota_used_up";
    const DESCRIPTION: &'static str = "No more mails may be sent today.";
    const TRANSIENT: bool = true;
}

#[derive(Serialize, JsonSchema)]
struct Broken;

impl AgentFault for Broken {
    const CODE: &'static str = "broken";
    const DESCRIPTION: &'static str = "It is broken.";

    fn message(&self) -> String {
        "it fell down".to_owned()
    }
}

#[test]
fn a_fault_is_declared_and_returned_by_its_type() {
    fn send(sent: u32) -> Result<(), Quota> {
        if sent < 5 { Ok(()) } else { Err(Quota { mails_a_day: 5 }) }
    }
    fn run(sent: u32) -> Result<(), AgentError> {
        send(sent)?;
        Err(Broken.into())
    }
    let error = run(5).unwrap_err();
    assert_eq!((error.code(), error.is_transient()), ("quota_used_up", true));
    assert_eq!(error.message(), "No more mails may be sent today.");
    assert_eq!(error.data().map(Json::to_value), Some(json!({ "mails_a_day": 5 })));
    let error = run(0).unwrap_err();
    assert_eq!((error.code(), error.message()), ("broken", "it fell down"));
    assert_eq!((error.is_transient(), error.data()), (false, None));

    let card = Card::chat("mailer", "").fault::<Quota>().fault::<Broken>().build().unwrap();
    let declared = card.errors.first().unwrap();
    assert_eq!((declared.code.as_str(), declared.transient), ("quota_used_up", true));
    assert!(declared.data_schema.is_some());
    assert_eq!(card.errors[1].data_schema, None);
}

#[test]
fn values_become_json_and_come_back() {
    let style = to_json(&Style { formal: true }).unwrap();
    assert_eq!(style.as_str(), r#"{"formal":true}"#);
    assert!(from_json::<Style>(&style).unwrap().formal);
    let error = from_json::<Style>(&Json::from_value(&json!({ "formal": 5 }))).map(drop);
    assert_eq!(error.unwrap_err().code(), "agent_failed");
    let mut deep = json!(0);
    for _ in 0..1_000 {
        deep = json!([deep]);
    }
    assert_eq!(to_json(&deep).unwrap_err().code(), "json_too_deep");
}
