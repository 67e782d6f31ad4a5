//! The examples and rules of the protocols' documents, as data.
//!
//! Each row has the rule (`asks`), the message that is sent, and the expected result. `default` and `strict` give the refusals on usual mounts and on mounts that enforce the documents.
#![expect(clippy::expect_used, reason = "the data lies beside this file")]

use serde_json::Value;

/// Messages of the Agent Communication Protocol, from the document on their structure.
pub fn message_structure() -> Vec<Value> {
    rows(include_str!("../documents/message_structure.json"))
}

/// Messages of the Agent Communication Protocol, from the document on their metadata.
pub fn message_metadata() -> Vec<Value> {
    rows(include_str!("../documents/message_metadata.json"))
}

/// Content blocks of the Agent Client Protocol.
pub fn content() -> Vec<Value> {
    rows(include_str!("../documents/content.json"))
}

/// Turns of the Agent Client Protocol, with the message ids of both sides. `<name>` is a placeholder for an id; the same name means the same id.
pub fn message_ids() -> Vec<Value> {
    rows(include_str!("../documents/message_ids.json"))
}

/// Flows of the Agent Connect Protocol. Each has a `name` and `steps`; its other members differ from the rows of the other documents.
pub fn agent_connect() -> Vec<Value> {
    rows(include_str!("../documents/agent_connect.json"))
}

/// The sample descriptor of the Agent Connect Protocol's document.
pub fn agent_connect_descriptor() -> Value {
    serde_json::from_str(include_str!("../documents/agent_connect_descriptor.json"))
        .expect("the data is JSON")
}

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("the data is a JSON array")
}
