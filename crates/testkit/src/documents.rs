//! The examples and rules of the protocols' documents, as data.
//!
//! Each row says what the document `asks`, what is sent, and what comes of it. `default` and `strict` say what is refused, on usual mounts and on those that enforce the documents.
#![expect(clippy::expect_used, reason = "the data lies beside this file")]

use serde_json::Value;

/// Messages of the Agent Communication Protocol, by the document on their structure.
pub fn message_structure() -> Vec<Value> {
    rows(include_str!("../documents/message_structure.json"))
}

/// Messages of the Agent Communication Protocol, by the document on their metadata.
pub fn message_metadata() -> Vec<Value> {
    rows(include_str!("../documents/message_metadata.json"))
}

/// Content blocks of the Agent Client Protocol.
pub fn content() -> Vec<Value> {
    rows(include_str!("../documents/content.json"))
}

/// Turns of the Agent Client Protocol, with the message ids of both sides. `<name>` stands for an id, the same one under one name.
pub fn message_ids() -> Vec<Value> {
    rows(include_str!("../documents/message_ids.json"))
}

/// Flows of the Agent Connect Protocol: each has a `name` and `steps`, and has other members than the rows of the other documents.
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
