//! The agent's messages in an output.

use serde_json::{Map, Value};
use trilogue_sdk::client::connect::Message;
use trilogue_wire::agent_connect::{Block, MessageContent};
use trilogue_wire::native::{Citation, ContentEncoding, Json, Part, PartMetadata, Trajectory};

/// The content type of text without one.
const PLAIN: &str = "text/plain";
/// The roles of all participants except the agent.
const OTHER_ROLES: [&str; 3] = ["user", "human", "system"];

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct AgentMessage(pub(super) Vec<MessagePiece>);

#[derive(Clone, PartialEq, Debug)]
pub(super) enum MessagePiece {
    /// Text, which may grow until another block follows.
    Text(String),
    Part(Box<Part>),
}

/// A message in any of the forms that servers have for it.
#[derive(serde::Deserialize)]
struct AnyMessage {
    #[serde(default, alias = "type")]
    role: Option<String>,
    content: MessageContent,
}

/// Returns the agent's messages in an output: the update's own messages, otherwise those in the values, otherwise the values' text. In the final output a text
/// counts only as the whole value or under the name `message`.
pub(super) fn agent_messages(
    messages: Option<Vec<Message>>,
    values: &Value,
    is_last: bool,
) -> Vec<AgentMessage> {
    if let Some(messages) = messages.filter(|messages| !messages.is_empty()) {
        return answers(messages.into_iter().map(|it| (it.role, it.content)));
    }
    if let Some(Value::Array(messages)) = values.get("messages") {
        let read = |value: &Value| serde_json::from_value::<AnyMessage>(value.clone()).ok();
        let messages = messages.iter().filter_map(read);
        return answers(messages.map(|it| (it.role.unwrap_or_default(), it.content)));
    }
    let text = match values {
        Value::String(text) => Some(text),
        Value::Object(members) if members.len() == 1 => {
            let known = |name: &String| !is_last || name == "message";
            match members.iter().next() {
                Some((name, Value::String(text))) if known(name) => Some(text),
                _ => None,
            }
        }
        _ => None,
    };
    text.map(|text| AgentMessage(vec![MessagePiece::Text(text.clone())])).into_iter().collect()
}

/// Returns the messages after the last one of another role: an output may repeat the whole conversation.
fn answers(messages: impl Iterator<Item = (String, MessageContent)>) -> Vec<AgentMessage> {
    let mut answers = Vec::new();
    for (role, content) in messages {
        if OTHER_ROLES.contains(&role.as_str()) {
            answers.clear();
        } else {
            answers.push(pieces(content));
        }
    }
    answers
}

fn pieces(content: MessageContent) -> AgentMessage {
    match content {
        MessageContent::Text(text) => AgentMessage(vec![MessagePiece::Text(text)]),
        MessageContent::Blocks(blocks) => AgentMessage(blocks.into_iter().map(piece).collect()),
    }
}

fn piece(block: Block) -> MessagePiece {
    match block {
        Block { kind, text: Some(text), metadata: None, extra }
            if kind == "text" && extra.is_empty() =>
        {
            MessagePiece::Text(text)
        }
        block => MessagePiece::Part(Box::new(part(block))),
    }
}

/// A block with more than text, which its metadata holds. A block whose metadata has no known member is shown as JSON.
fn part(block: Block) -> Part {
    let known = ["content_type", "content", "content_url", "name", "citation", "trajectory"];
    let metadata = block.metadata.clone().unwrap_or_default();
    if block.kind != "text" && !known.iter().any(|name| metadata.contains_key(*name)) {
        return Part {
            content_type: "application/json".to_owned(),
            content: serde_json::to_string(&block).ok(),
            ..Part::default()
        };
    }
    let text = |name: &str| metadata.get(name).and_then(Value::as_str).map(str::to_owned);
    let coded = text("content").filter(|_| block.text.is_none());
    Part {
        content_type: text("content_type").unwrap_or_else(|| PLAIN.to_owned()),
        content_encoding: coded.is_some().then_some(ContentEncoding::Base64),
        content: block.text.or(coded),
        content_url: text("content_url"),
        blob: None,
        name: text("name"),
        metadata: part_metadata(&metadata),
        extra: None,
    }
}

fn part_metadata(metadata: &Map<String, Value>) -> Option<PartMetadata> {
    let member = |name: &str, of: &Value| of.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(citation) = metadata.get("citation") {
        return Some(PartMetadata::Citation(Citation {
            start_index: citation.get("start_index").and_then(Value::as_i64),
            end_index: citation.get("end_index").and_then(Value::as_i64),
            url: member("url", citation),
            title: member("title", citation),
            description: member("description", citation),
        }));
    }
    let step = metadata.get("trajectory")?;
    Some(PartMetadata::Trajectory(Trajectory {
        message: member("message", step),
        tool_name: member("tool_name", step),
        tool_input: step.get("tool_input").map(Json::from_value),
        tool_output: step.get("tool_output").map(Json::from_value),
    }))
}
