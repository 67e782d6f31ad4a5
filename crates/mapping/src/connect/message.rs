//! Converts messages in both directions.
//!
//! Another role, a message's metadata and its further members, which messages of ours do not have, are in the first part's further members.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Message, MessageId, Part, Role, ThreadId, Timestamp, limits};
use trilogue_wire::agent_connect as wire;
use trilogue_wire::agent_connect::MessageContent;

use super::EXTENSION;
use super::block::{Links, TreeRoom, block, has_invalid_base64, read_block};
use super::input::invalid_input;
use crate::message_members::{FURTHER, keep, split};
use crate::repeated_id;

pub fn messages(messages: &[Message], links: &Links) -> Vec<wire::Message> {
    let mut room = TreeRoom::new();
    messages.iter().map(|it| message_within(it, links, &mut room)).collect()
}

/// Converts a message for display: one text, or blocks for other content.
pub fn message(message: &Message, links: &Links) -> wire::Message {
    message_within(message, links, &mut TreeRoom::new())
}

fn message_within(message: &Message, links: &Links, room: &mut TreeRoom) -> wire::Message {
    let mut parts = message.parts.as_slice();
    let (first, mut ours) = match parts.split_first() {
        Some((first, _)) => split(first),
        None => (None, Map::new()),
    };
    if ours.remove("empty").is_some() {
        parts = &[];
    }
    let as_blocks = ours.remove("blocks").is_some();
    let first = first.as_ref().or(parts.first());
    let shown = parts.first().and(first).into_iter().chain(parts.iter().skip(1));
    let mut blocks: Vec<wire::Block> = shown.map(|part| block(part, links, room)).collect();
    let content = match blocks.as_mut_slice() {
        [wire::Block { kind, text: Some(text), metadata: None, extra }]
            if kind == "text" && extra.is_empty() && !as_blocks =>
        {
            MessageContent::Text(std::mem::take(text))
        }
        _ => MessageContent::Blocks(blocks),
    };
    let mut metadata = match ours.remove("metadata") {
        Some(Value::Object(members)) => Some(members),
        _ => None,
    };
    let role = match ours.remove("role") {
        // The role is enough if it names the agent itself.
        Some(Value::String(kept)) if !may_be_named(&kept) => kept,
        Some(Value::String(kept)) => {
            role(&message.role, &mut metadata);
            kept
        }
        _ => role(&message.role, &mut metadata).to_owned(),
    };
    let mut extra = match ours.remove(FURTHER) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    // Of another protocol, where this one's members are further ones.
    match extra.remove("metadata") {
        Some(Value::Object(members)) if metadata.is_none() => metadata = Some(members),
        _ => {}
    }
    ["role", "content", "id"].into_iter().for_each(|name| drop(extra.remove(name)));
    wire::Message { role, content, id: Some(message.id.as_str().to_owned()), metadata, extra }
}

/// Returns the role. The protocol's clients know `user` and `assistant`; the metadata has an agent's name.
fn role(role: &Role, metadata: &mut Option<Map<String, Value>>) -> &'static str {
    match role {
        Role::User => "user",
        Role::Agent => "assistant",
        Role::NamedAgent(name) => {
            let members = metadata.get_or_insert_default();
            let ours = members.entry(EXTENSION).or_insert_with(|| json!({}));
            if let Some(ours) = ours.as_object_mut() {
                ours.insert("agent".to_owned(), Value::from(&**name));
            }
            "assistant"
        }
    }
}

/// Reads messages from the wire, sent now; `at` is the JSON Pointer of their array.
/// Errors: `invalid_input`, naming the message whose id is malformed or belongs to another one, or the content that is not base64; `too_many_parts`, `json_too_deep`.
pub fn read_messages(
    messages: Vec<wire::Message>,
    now: Timestamp,
    at: &str,
) -> Result<Vec<Message>> {
    let messages = messages.into_iter().enumerate().map(|(place, message)| {
        if let Some(content) = invalid_base64_in(&message) {
            return Err(invalid_input(&format!("{at}/{place}{content}"), NO_BASE64));
        }
        read_message(message, now, &format!("{at}/{place}"))
    });
    let messages = messages.collect::<Result<Vec<_>>>()?;
    match repeated_id(&messages) {
        None => Ok(messages),
        Some(place) => {
            Err(invalid_input(&format!("{at}/{place}/id"), "is the id of an earlier message too"))
        }
    }
}

/// The reason for refusing content that its block declares as base64.
pub(super) const NO_BASE64: &str = "is not valid base64";

/// Returns the JSON Pointer within a message to the first content that is declared as base64 but is not.
pub(super) fn invalid_base64_in(message: &wire::Message) -> Option<String> {
    let MessageContent::Blocks(blocks) = &message.content else { return None };
    let place = blocks.iter().position(has_invalid_base64)?;
    Some(format!("/content/{place}/metadata/content"))
}

pub(super) fn read_message(message: wire::Message, now: Timestamp, at: &str) -> Result<Message> {
    let id = match &message.id {
        Some(id) => MessageId::parse(id)
            .map_err(|error| invalid_input(&format!("{at}/id"), error.message()))?,
        None => MessageId::generate(),
    };
    let mut metadata = message.metadata;
    let role = read_role(&message.role, &mut metadata);
    let mut own = Map::new();
    if self::role(&role, &mut None) != message.role {
        own.insert("role".to_owned(), message.role.into());
    }
    if let Some(metadata) = metadata {
        own.insert("metadata".to_owned(), Value::Object(metadata));
    }
    if !message.extra.is_empty() {
        own.insert(FURTHER.to_owned(), Value::Object(message.extra));
    }
    let mut parts = match message.content {
        MessageContent::Text(text) => vec![Part::text(text)],
        MessageContent::Blocks(blocks) => {
            if let [wire::Block { text: Some(_), metadata: None, kind, extra }] = blocks.as_slice()
                && kind == "text"
                && extra.is_empty()
            {
                own.insert("blocks".to_owned(), true.into());
            }
            read_blocks(&blocks, at)?
        }
    };
    if !own.is_empty() {
        keep(own, &mut parts)?;
    }
    Ok(Message { id, role, parts, created_at: Some(now), completed_at: Some(now) })
}

fn read_blocks(blocks: &[wire::Block], at: &str) -> Result<Vec<Part>> {
    if blocks.len() > limits::MAX_PARTS_PER_MESSAGE {
        let most = limits::MAX_PARTS_PER_MESSAGE;
        let message = format!("{at}/content has more than {most} blocks");
        return Err(Error::new(Code::TooManyParts, message));
    }
    // The messages have no stored content, so no link is created.
    let links = Links::new(&Arc::from(""), &ThreadId::from_uuid(uuid::Uuid::nil()));
    blocks.iter().map(|it| read_block(it, &links)).collect()
}

/// Whether the metadata may name the agent for this role.
pub(super) fn may_be_named(role: &str) -> bool {
    matches!(role, "assistant" | "ai" | "agent")
}

fn read_role(role: &str, metadata: &mut Option<Map<String, Value>>) -> Role {
    match role {
        "user" | "human" => return Role::User,
        agent if may_be_named(agent) => {}
        other => return Role::from_text(other).unwrap_or(Role::User),
    }
    let Some(members) = metadata else { return Role::Agent };
    let ours = members.get_mut(EXTENSION).and_then(Value::as_object_mut);
    let Some(name) = ours.as_ref().and_then(|ours| ours.get("agent")).and_then(Value::as_str)
    else {
        return Role::Agent;
    };
    let Some(named) = Role::from_text(&format!("agent/{name}")) else { return Role::Agent };
    if let Some(ours) = ours {
        ours.remove("agent");
        if ours.is_empty() {
            members.remove(EXTENSION);
        }
    }
    if members.is_empty() {
        *metadata = None;
    }
    named
}
