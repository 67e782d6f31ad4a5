//! Converts parts to blocks, and back.
//!
//! A block has a type, a text and metadata. The rest of a part is in the metadata: `name`, `content_type`, `content` in base64, `content_url`, `citation`, `trajectory`, and the part's further members.
//! A block whose content names no encoding is text or base64, depending on its content type: it is kept next to its content.
//! Any other block that cannot be restored from its part is kept whole.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::utf8_percent_encode;
use serde_json::{Map, Value, json};
use trilogue_domain::content::{BlobRef, is_text_type};
use trilogue_domain::error::Result;
use trilogue_domain::{Content, Json, Part, PartMetadata, ThreadId, Trajectory};
use trilogue_wire::agent_connect::Block;

use super::EXTENSION;
use crate::citation;
use crate::message_members::MESSAGE;
use crate::native::hex;
use crate::native::message::PATH_SEGMENT;
use trilogue_wire::encoded_bytes::decode_base64;
use trilogue_wire::json::{DEFAULT_MAX_TREE_BYTES, MAX_TREE_FACTOR, tree_bytes};

/// The default MIME type of text.
const PLAIN: &str = "text/plain";
/// The names in a block's metadata for members of the part: further members of a part with these names are under [`EXTENSION`].
const RESERVED: [&str; 7] = [
    "name",
    "content_type",
    "content",
    "content_encoding",
    "content_url",
    "citation",
    "trajectory",
];
/// The location of the content in a block that is kept next to its content: a JSON Pointer.
const CONTENT_PLACE: &str = "content_in";
/// The type of a block that only carries metadata.
const ANNOTATION: &str = "annotation";

#[derive(Clone, Debug)]
pub struct Links {
    base: Arc<str>,
    thread: Arc<str>,
}

/// What is left of the memory that blocks which are kept as JSON in a string may need as trees, together.
#[derive(Debug)]
pub(super) struct TreeRoom {
    /// In bytes, beyond a small multiple of their texts.
    left: usize,
}

// === impl TreeRoom ===

impl TreeRoom {
    pub(super) fn new() -> Self {
        Self { left: DEFAULT_MAX_TREE_BYTES }
    }

    /// Takes the room of this text. Returns `false` if it does not fit.
    fn take(&mut self, text: &str) -> bool {
        let free = text.len().saturating_mul(MAX_TREE_FACTOR);
        let left = self.left.checked_sub(tree_bytes(text.as_bytes()).saturating_sub(free));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

// === impl Links ===

impl Links {
    /// Creates links to the content of a thread; `base` is an absolute address with the mount's prefix, without a slash at its end.
    pub fn new(base: &Arc<str>, thread: &ThreadId) -> Self {
        let thread = utf8_percent_encode(thread.as_str(), PATH_SEGMENT).to_string();
        Self { base: Arc::clone(base), thread: thread.into() }
    }

    fn blob(&self, blob: &BlobRef) -> String {
        format!("{}/threads/{}/blobs/{}", self.base, self.thread, hex(&blob.hash))
    }
}

/// Converts a part for display. `room` is that of all blocks which are in memory together.
pub(super) fn block(part: &Part, links: &Links, room: &mut TreeRoom) -> Block {
    let mut metadata: Map<String, Value> =
        serde_json::from_str(&citation::extra_without(part)).unwrap_or_default();
    if let Some(kept) = original_block(part, &metadata, links, room) {
        return kept;
    }
    if metadata.keys().any(|key| RESERVED.contains(&key.as_str())) {
        let extra = Value::Object(std::mem::take(&mut metadata));
        metadata.insert(EXTENSION.to_owned(), json!({ "extra": extra }));
    }
    let mut set = |key: &str, value: Value| drop(metadata.insert(key.to_owned(), value));
    let mut text = None;
    match &part.content {
        Content::Empty => {}
        Content::Text(content) => text = Some(content.to_string()),
        Content::Bytes(bytes) => {
            set("content", STANDARD.encode(bytes).into());
            set("content_encoding", "base64".into());
        }
        Content::Url(url) => set("content_url", Value::from(&**url)),
        Content::Blob(blob) => set("content_url", links.blob(blob).into()),
    }
    if *part.content_type != *PLAIN {
        set("content_type", Value::from(&*part.content_type));
    }
    if let Some(name) = &part.name {
        set("name", Value::from(&**name));
    }
    match &part.metadata {
        None => {}
        Some(PartMetadata::Citation(_)) => {
            set("citation", Value::Object(citation::whole(part).unwrap_or_default()));
        }
        Some(PartMetadata::Trajectory(it)) => {
            let mut step = trajectory(it);
            if let Some(members) = step.as_object_mut() {
                members.extend(citation::shown_further(part));
            }
            set("trajectory", step);
        }
        Some(PartMetadata::Other(other)) => {
            let ours = metadata.entry(EXTENSION).or_insert_with(|| json!({}));
            if let Some(ours) = ours.as_object_mut() {
                ours.insert("metadata".to_owned(), other.to_value());
            }
        }
    }
    let metadata = (!metadata.is_empty()).then_some(metadata);
    Block { kind: kind(part).to_owned(), text, metadata, extra: Map::new() }
}

fn kind(part: &Part) -> &'static str {
    let media = || match part.content_type.split('/').next().unwrap_or_default() {
        "image" => Some("image"),
        "audio" => Some("audio"),
        "video" => Some("video"),
        _ => None,
    };
    match part.content {
        Content::Text(_) => "text",
        Content::Empty => ANNOTATION,
        Content::Url(_) => media().unwrap_or("link"),
        Content::Bytes(_) | Content::Blob(_) => media().unwrap_or("file"),
    }
}

/// Returns the original block of a part, if it was kept.
fn original_block(
    part: &Part,
    extra: &Map<String, Value>,
    links: &Links,
    room: &mut TreeRoom,
) -> Option<Block> {
    let ours = extra.get(EXTENSION)?;
    let block = ours.get("block")?;
    if let Some(place) = ours.get(CONTENT_PLACE).and_then(Value::as_str) {
        let mut block = block.clone();
        let members = block.pointer_mut(place)?.as_object_mut()?;
        let (key, value) = match &part.content {
            Content::Text(text) => ("content", Value::from(&**text)),
            Content::Bytes(bytes) => ("content", STANDARD.encode(bytes).into()),
            Content::Blob(blob) => ("content_url", links.blob(blob).into()),
            Content::Url(_) | Content::Empty => return None,
        };
        members.insert(key.to_owned(), value);
        return serde_json::from_value(block).ok();
    }
    match block {
        Value::Bool(true) => match &part.content {
            // It is shown as text instead: a part of another protocol can say that it is a block.
            Content::Text(text) if !room.take(text) => None,
            Content::Text(text) => serde_json::from_str(text).ok(),
            _ => None,
        },
        whole => serde_json::from_value(whole.clone()).ok(),
    }
}

/// Converts a block to a part; fails with `json_too_deep`.
pub(super) fn read_block(block: &Block, links: &Links) -> Result<Part> {
    if let (Block { metadata: None, .. }, Some(text), "text", true) =
        (block, &block.text, block.kind.as_str(), block.extra.is_empty())
    {
        return Ok(Part::text(text.as_str()));
    }
    let block = in_standard_form(block);
    let block = block.as_ref();
    let read = read(block)?;
    if self::block(&read, links, &mut TreeRoom::new()) == *block
        && !touches_ours(block.metadata.as_ref())
    {
        return Ok(read);
    }
    match read_unencoded(block)? {
        Some(part) => Ok(part),
        None => whole(block),
    }
}

/// Converts a block with a content and a content type, in its metadata or next to it, but without an encoding.
/// The content is text, or bytes in base64, depending on the content type. `None` for another block.
fn read_unencoded(block: &Block) -> Result<Option<Part>> {
    if block.text.is_some() || block.kind == "text" || touches_ours(block.metadata.as_ref()) {
        return Ok(None);
    }
    let mut kept = serde_json::to_value(block).unwrap_or(Value::Null);
    let says = |place: &&str| {
        let text = |key: &str| kept.pointer(place).is_some_and(|it| it[key].is_string());
        text("content") && text("content_type") && !text("content_encoding")
    };
    let Some(place) = ["/metadata", ""].into_iter().find(says) else { return Ok(None) };
    let Some(members) = kept.pointer_mut(place).and_then(Value::as_object_mut) else {
        return Ok(None);
    };
    let name = members.get("name").and_then(Value::as_str).map(Arc::from);
    let content_type = members.get("content_type").and_then(Value::as_str).unwrap_or(PLAIN);
    let content_type: Arc<str> = content_type.into();
    let Some(Value::String(content)) = members.remove("content") else { return Ok(None) };
    let content = match (is_text_type(&content_type), STANDARD.decode(&content)) {
        (true, _) => Content::Text(content.into()),
        (false, Ok(bytes)) => Content::Bytes(bytes.into()),
        (false, Err(_)) => return Ok(None),
    };
    let extra = json!({ EXTENSION: { "block": kept, CONTENT_PLACE: place } });
    let extra = Some(Json::parse(extra.to_string())?);
    Ok(Some(Part { content_type, content, name, metadata: None, extra }))
}

/// Returns the content of a block that declares it as base64.
fn encoded_content(block: &Block) -> Option<&str> {
    let text = |key: &str| block.metadata.as_ref().and_then(|it| it.get(key)?.as_str());
    let is_base64 = block.kind != "text" && text("content_encoding") == Some("base64");
    text("content").filter(|_| is_base64)
}

/// Whether a block declares its content as base64 although it is not base64.
pub(super) fn has_invalid_base64(block: &Block) -> bool {
    encoded_content(block).is_some_and(|content| decode_base64(content).is_none())
}

/// Returns a block whose content is another form of base64 in the standard form.
fn in_standard_form(block: &Block) -> Cow<'_, Block> {
    let content = encoded_content(block);
    let bytes = content.and_then(decode_base64);
    match bytes.map(|bytes| STANDARD.encode(bytes)) {
        Some(standard) if content != Some(standard.as_str()) => {
            let mut block = block.clone();
            if let Some(metadata) = &mut block.metadata {
                metadata.insert("content".to_owned(), standard.into());
            }
            Cow::Owned(block)
        }
        _ => Cow::Borrowed(block),
    }
}

/// Whether metadata has a message's own members, or is the empty object that remains without them. Members restored from `extra` may have these names.
fn touches_ours(metadata: Option<&Map<String, Value>>) -> bool {
    let Some(ours) = metadata.and_then(|members| members.get(EXTENSION)) else { return false };
    let Some(ours) = ours.as_object() else { return true };
    let extra = ours.get("extra").and_then(Value::as_object);
    ours.is_empty() || ours.contains_key(MESSAGE) || touches_ours(extra)
}

/// Converts a block that is kept whole: its text stays text, any other is JSON.
fn whole(block: &Block) -> Result<Part> {
    let value = serde_json::to_value(block).unwrap_or(Value::Null);
    let (mut part, kept) = match (&block.text, block.kind.as_str()) {
        (Some(text), "text") => (Part::text(text.as_str()), value),
        _ => (Part::json(&Json::parse(value.to_string())?), Value::Bool(true)),
    };
    part.extra = Some(Json::parse(json!({ EXTENSION: { "block": kept } }).to_string())?);
    Ok(part)
}

/// Converts those members of a block that parts have too.
fn read(block: &Block) -> Result<Part> {
    let mut rest = block.metadata.clone().unwrap_or_default();
    let mut take = |key: &str| match rest.get(key) {
        Some(Value::String(_)) => match rest.remove(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let content_type = take("content_type").unwrap_or_else(|| PLAIN.to_owned());
    let name = take("name");
    let content = if block.kind == "text" {
        block.text.as_deref().map_or(Content::Empty, |text| Content::Text(Arc::from(text)))
    } else if let Some(url) = take("content_url") {
        Content::Url(Arc::from(url))
    } else if let Some(text) = take("content") {
        take("content_encoding");
        decode_base64(&text).map_or(Content::Empty, |bytes| Content::Bytes(bytes.into()))
    } else {
        Content::Empty
    };
    let cited = match rest.get("citation") {
        Some(Value::Object(cited)) => Some(cited.clone()),
        _ => None,
    };
    let further = match rest.get("trajectory") {
        Some(Value::Object(step)) if cited.is_none() => citation::further_of_step(step),
        _ => Map::new(),
    };
    let metadata = if cited.is_some() { None } else { read_metadata(&mut rest)? };
    rest.retain(|key, _| cited.is_none() || key != "citation");
    if let Some(Value::Object(extra)) = take_ours(&mut rest, "extra") {
        rest.extend(extra);
    }
    let extra =
        if rest.is_empty() { None } else { Some(Json::parse(Value::Object(rest).to_string())?) };
    let name = name.map(Arc::from);
    let mut part = Part { content_type: content_type.into(), content, name, metadata, extra };
    match cited {
        Some(cited) => citation::set(&mut part, &cited),
        None => citation::keep(&mut part, further),
    }
    Ok(part)
}

fn read_metadata(rest: &mut Map<String, Value>) -> Result<Option<PartMetadata>> {
    if let Some(Value::Object(step)) = rest.get("trajectory") {
        let read = read_trajectory(step)?;
        rest.remove("trajectory");
        return Ok(Some(PartMetadata::Trajectory(read)));
    }
    let Some(other) = take_ours(rest, "metadata") else { return Ok(None) };
    Json::parse(other.to_string()).map(|other| Some(PartMetadata::Other(other)))
}

/// Removes a member from the extension; removes an empty extension.
fn take_ours(members: &mut Map<String, Value>, key: &str) -> Option<Value> {
    let ours = members.get_mut(EXTENSION)?.as_object_mut()?;
    let taken = ours.remove(key)?;
    if ours.is_empty() {
        members.remove(EXTENSION);
    }
    Some(taken)
}

fn trajectory(step: &Trajectory) -> Value {
    let Trajectory { message, tool_name, tool_input, tool_output } = step;
    with([
        ("message", message.clone().map(Value::from)),
        ("tool_name", tool_name.clone().map(Value::from)),
        ("tool_input", tool_input.as_ref().map(Json::to_value)),
        ("tool_output", tool_output.as_ref().map(Json::to_value)),
    ])
}

fn read_trajectory(step: &Map<String, Value>) -> Result<Trajectory> {
    let text = |key: &str| step.get(key).and_then(Value::as_str).map(str::to_owned);
    let json = |key: &str| step.get(key).map(|value| Json::parse(value.to_string())).transpose();
    Ok(Trajectory {
        message: text("message"),
        tool_name: text("tool_name"),
        tool_input: json("tool_input")?,
        tool_output: json("tool_output")?,
    })
}

/// Returns an object of the present members.
fn with<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let there = members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(there.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of small objects needs 90 times its text.
    #[test]
    fn a_text_of_many_small_values_is_shown_as_text() {
        let links = Links::new(&"http://here/connect".into(), &ThreadId::parse("t").unwrap());
        let part = |count: usize| {
            let list = vec!["{\"a\":0}"; count].join(",");
            let text = format!("{{\"type\":\"x\",\"a\":[{list}]}}");
            Part {
                extra: Some(Json::parse(r#"{"trilogue":{"block":true}}"#).unwrap()),
                ..Part::new("application/json", Content::Text(text.into()))
            }
        };
        assert_eq!(block(&part(10), &links, &mut TreeRoom::new()).kind, "x");
        let large = part(100_000);
        let Content::Text(text) = &large.content else { panic!("{large:?}") };
        let mut shown = None;
        let show = || shown = Some(block(&large, &links, &mut TreeRoom::new()));
        let bytes = allocation_counter::measure(show);
        assert_eq!(shown.unwrap().text.as_deref(), Some(&**text));
        assert!(bytes.bytes_max < 4 * text.len() as u64, "{bytes:?}");
    }

    #[test]
    fn blocks_of_small_values_share_their_room() {
        let links = Links::new(&"http://here/connect".into(), &ThreadId::parse("t").unwrap());
        let list = vec!["{\"a\":0}"; 20_000].join(",");
        let text = format!("{{\"type\":\"x\",\"a\":[{list}]}}");
        let part = Part {
            extra: Some(Json::parse(r#"{"trilogue":{"block":true}}"#).unwrap()),
            ..Part::new("application/json", Content::Text(text.into()))
        };
        let mut room = TreeRoom::new();
        let kinds: Vec<String> = (0..3).map(|_| block(&part, &links, &mut room).kind).collect();
        // Each list alone fits. The second one is shown as text.
        assert_eq!(kinds, ["x", "text", "text"]);
        let plain = block(&Part::text("words"), &links, &mut room);
        assert_eq!(plain, Block::text("words"));
    }
}
