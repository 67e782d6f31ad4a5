//! What an output says in words, and in what pieces.

use serde_json::{Map, Value};
use trilogue_sdk::connect::Message;
use trilogue_wire::agent_connect::{Block, MessageContent};
use trilogue_wire::native::{Citation, ContentEncoding, Json, Part, PartMetadata, Trajectory};

/// What text is where nothing else is said.
const PLAIN: &str = "text/plain";
/// The words for who is asked, not who answers.
const ASKING: [&str; 3] = ["user", "human", "system"];

/// A message of the agent.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Said(pub(super) Vec<Piece>);

/// A piece of a message.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Piece {
    /// Text, which may grow as long as nothing comes behind it.
    Text(String),
    /// Anything else, whole.
    Part(Box<Part>),
}

/// A message in any of the forms that servers have for it.
#[derive(serde::Deserialize)]
struct Loose {
    #[serde(default, alias = "type")]
    role: Option<String>,
    content: MessageContent,
}

/// The messages of the agent in an output: those that stand beside it, else those in it, else its text. Where the output is final, a text is one only under the name `message` or as the whole.
pub(super) fn of(messages: Option<Vec<Message>>, values: &Value, is_last: bool) -> Vec<Said> {
    if let Some(messages) = messages.filter(|messages| !messages.is_empty()) {
        return answers(messages.into_iter().map(|it| (it.role, it.content)));
    }
    if let Some(Value::Array(messages)) = values.get("messages") {
        let read = |value: &Value| serde_json::from_value::<Loose>(value.clone()).ok();
        let loose = messages.iter().filter_map(read);
        return answers(loose.map(|it| (it.role.unwrap_or_default(), it.content)));
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
    text.map(|text| Said(vec![Piece::Text(text.clone())])).into_iter().collect()
}

/// What stands behind the last message that is no answer: an output may repeat the whole conversation.
fn answers(messages: impl Iterator<Item = (String, MessageContent)>) -> Vec<Said> {
    let mut said = Vec::new();
    for (role, content) in messages {
        if ASKING.contains(&role.as_str()) {
            said.clear();
        } else {
            said.push(pieces(content));
        }
    }
    said
}

fn pieces(content: MessageContent) -> Said {
    match content {
        MessageContent::Text(text) => Said(vec![Piece::Text(text)]),
        MessageContent::Blocks(blocks) => Said(blocks.into_iter().map(piece).collect()),
    }
}

fn piece(block: Block) -> Piece {
    match block {
        Block { kind, text: Some(text), metadata: None, extra }
            if kind == "text" && extra.is_empty() =>
        {
            Piece::Text(text)
        }
        block => Piece::Part(Box::new(part(block))),
    }
}

/// A block with more than text. What it has beyond its text stands in its metadata; one without anything that is known there is shown as it is.
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
        metadata: about(&metadata),
        extra: None,
    }
}

fn about(metadata: &Map<String, Value>) -> Option<PartMetadata> {
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
