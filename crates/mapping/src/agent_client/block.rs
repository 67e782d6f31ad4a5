//! Parts as content blocks, and back.
//!
//! Both directions work on the text of the JSON, so that unknown members of a block are preserved exactly.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::{Content, Json, Part};
use trilogue_wire::agent_client::splice::{self, decode, members};

use super::{EXTENSION, PART_EXTENSION, PROTOCOL};
use crate::citation;
use crate::native;
use crate::native::message::PATH_SEGMENT;
use crate::shape::is_json;
use trilogue_wire::encoded_bytes::decode_base64;

const PLAIN: &str = "text/plain";
/// The default MIME type of bytes and links.
const UNKNOWN: &str = "application/octet-stream";
/// The prefix of a named part's address; its name follows, percent-encoded.
const ARTIFACT: &str = "artifact:";
/// The prefix of a stored blob's address; the thread, if it is known, and the content's hash follow.
const BLOB: &str = "trilogue:/";
/// The member of our `_meta` with the citation of a chunk or a block.
const CITATION: &str = "citation";
/// The name in the address of an unnamed artifact.
const UNNAMED: &str = "part";

/// Whether blocks carry the rest of a part under `_meta`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Extension {
    /// No: some peers cannot take it.
    #[default]
    Off,
    Meta,
}

/// The members of a block, unchanged.
#[derive(Default)]
struct Block<'a> {
    kind: Option<Cow<'a, str>>,
    text: Option<&'a str>,
    data: Option<&'a str>,
    mime_type: Option<&'a str>,
    uri: Option<&'a str>,
    name: Option<&'a str>,
    resource: Option<&'a str>,
    meta: Option<&'a str>,
    has_more: bool,
}

/// Converts a block to a part. `None` if a required member of its kind is missing.
///
/// Members without a counterpart are kept in the part's `extra`, unless they are nested too deep.
pub(super) fn part_of(raw: &str) -> Option<Part> {
    let block = Block::of(raw);
    if let Some(part) = block.meta.and_then(|meta| carried(meta, &block)) {
        return Some(part);
    }
    let mut part = match block.kind.as_deref()? {
        "text" => block.text_part(raw)?,
        "image" | "audio" => block.media(raw)?,
        "resource_link" => block.link(raw)?,
        "resource" => block.resource(raw)?,
        _ => whole(raw),
    };
    if let Some(cited) = block.meta.and_then(citation_in) {
        cite(&mut part, &cited);
    }
    Some(part)
}

/// Returns the citation that an agent or a client attached in `_meta`.
pub(super) fn citation_in(meta: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(splice::get(meta, &[EXTENSION, CITATION])?) {
        Ok(Value::Object(cited)) => Some(cited),
        _ => None,
    }
}

/// Attaches a citation. Empty text counts as no content: then the part has only the citation.
pub(super) fn cite(part: &mut Part, cited: &Map<String, Value>) {
    citation::set(part, cited);
    if matches!(&part.content, Content::Text(text) if text.is_empty()) {
        part.content = Content::Empty;
    }
}

// === impl Block ===

impl<'a> Block<'a> {
    fn of(raw: &'a str) -> Self {
        let mut block = Self::default();
        for member in members(raw) {
            let place = match &*member.key {
                "type" => {
                    block.kind = decode(member.value);
                    continue;
                }
                "text" => &mut block.text,
                "data" => &mut block.data,
                "mimeType" => &mut block.mime_type,
                "uri" => &mut block.uri,
                "name" => &mut block.name,
                "resource" => &mut block.resource,
                "_meta" => &mut block.meta,
                _ => {
                    block.has_more = true;
                    continue;
                }
            };
            *place = Some(member.value);
        }
        block
    }

    fn is_only(&self, known: [Option<&str>; 5]) -> bool {
        !self.has_more && known.iter().all(Option::is_none)
    }

    fn text_part(&self, raw: &str) -> Option<Part> {
        let text = decode(self.text?)?;
        let mut part = Part::text(&*text);
        let others = [self.data, self.mime_type, self.uri, self.name, self.meta];
        if !self.is_only(others) || self.resource.is_some() {
            part.extra = block_extra(&splice::remove(raw, &["text"]));
        }
        Some(part)
    }

    fn media(&self, raw: &str) -> Option<Part> {
        let (data, mime_type) = (decode(self.data?)?, decode(self.mime_type?)?);
        let (content, is_base64) = content_of(&data);
        let mut part = Part::new(&*mime_type, content);
        let is_image = self.kind.as_deref() == Some("image");
        let uri = self.uri.and_then(decode);
        part.name = uri.as_deref().filter(|_| is_image).and_then(artifact_name);
        let kind = if is_image { "image/" } else { "audio/" };
        let is_as_written = part.name.is_some() || self.uri.is_none();
        let others = [self.text, self.name, self.resource, self.meta, None];
        let says_all = self.is_only(others) && is_as_written && is_base64;
        if !says_all || !mime_type.starts_with(kind) {
            part.extra = block_extra(&splice::remove(raw, &["data"]));
        }
        Some(part)
    }

    fn link(&self, raw: &str) -> Option<Part> {
        let uri = decode(self.uri?)?;
        decode(self.name?)?;
        let mime_type = self.mime_type.and_then(decode).unwrap_or(Cow::Borrowed(UNKNOWN));
        let mut part = Part::url(&*mime_type, &*uri);
        part.name = artifact_name(&uri);
        part.extra = block_extra(&splice::remove(raw, &["uri"]));
        Some(part)
    }

    fn resource(&self, raw: &str) -> Option<Part> {
        let inner = Self::of(self.resource?);
        let uri = decode(inner.uri?)?;
        let mime_type = inner.mime_type.and_then(decode);
        let text = inner.text.and_then(decode);
        let (content, key, is_base64) = match text {
            Some(text) => (Content::Text(Arc::from(&*text)), "text", true),
            None => {
                let blob = members(self.resource?).filter(|member| member.key == "blob").last()?;
                let (content, is_base64) = content_of(&decode(blob.value)?);
                (content, "blob", is_base64)
            }
        };
        let usual = if key == "text" { PLAIN } else { UNKNOWN };
        let mut part = Part::new(mime_type.as_deref().unwrap_or(usual), content);
        let artifact = artifact_name(&uri);
        let says_all = artifact.is_some()
            && mime_type.is_some()
            && is_base64
            && !is_media(&part)
            && members(self.resource?).count() == 3
            && members(raw).count() == 2;
        part.name = Some(artifact.unwrap_or_else(|| Arc::from(file_name(&uri))));
        let rest = splice::remove(raw, &["resource", key]);
        if !is_base64 {
            part.extra = extra(&format!("\"content\":\"blob\",\"block\":{rest}"));
        } else if !says_all {
            part.extra = block_extra(&rest);
        }
        Some(part)
    }
}

/// Decodes base64; returns invalid base64 unchanged.
fn content_of(data: &str) -> (Content, bool) {
    match decode_base64(data) {
        Some(bytes) => (Content::Bytes(Bytes::from(bytes)), true),
        None => (Content::Text(Arc::from(data)), false),
    }
}

/// Whether the content came in a block's base64 member but is not base64.
pub(crate) fn is_invalid_base64(part: &Part) -> bool {
    let (Content::Text(_), Some(extra)) = (&part.content, &part.extra) else { return false };
    splice::get(extra.as_str(), &[PART_EXTENSION]).is_some_and(marks_invalid_base64)
}

/// Whether our member of a part's `extra` marks its content as invalid base64.
pub(crate) fn marks_invalid_base64(ours: &str) -> bool {
    if splice::get_text(ours, &["protocol"]).as_deref() != Some(PROTOCOL) {
        return false;
    }
    let kind = splice::get_text(ours, &["block", "type"]);
    let is_blob = splice::get(ours, &["content"]).is_some();
    is_blob || matches!(kind.as_deref(), Some("image" | "audio"))
}

pub(super) fn whole(raw: &str) -> Part {
    Part {
        extra: block_extra("true"),
        ..Part::new("application/json", Content::Text(Arc::from(raw)))
    }
}

/// Returns the `extra` of a part that keeps a block without its content, or `true` if the content is the block.
fn block_extra(block: &str) -> Option<Json> {
    extra(&format!("\"block\":{block}"))
}

/// Returns the `extra` of a part with these members under the extension key.
pub(super) fn extra(members: &str) -> Option<Json> {
    let protocol = format!("\"protocol\":\"{PROTOCOL}\"");
    Json::parse_mended(format!("{{\"{PART_EXTENSION}\":{{{protocol},{members}}}}}")).ok()
}

/// Returns the part in the `_meta` of one of our blocks.
fn carried(meta: &str, block: &Block<'_>) -> Option<Part> {
    let part = splice::get(meta, &[EXTENSION, "part"])?;
    let read = serde_json::from_str(part).ok()?;
    let mut part = native::input::parts(vec![read]).ok()?.pop()?;
    if part.content == Content::Empty {
        part.content = match (block.text, block.data, block.uri, block.resource) {
            _ if splice::get(meta, &[EXTENSION, "empty"]).is_some() => Content::Empty,
            (Some(text), ..) => Content::Text(Arc::from(&*decode(text)?)),
            (_, Some(data), ..) => content_of(&decode(data)?).0,
            (_, _, _, Some(resource)) => {
                let member = |key| splice::get_text(resource, &[key]);
                match member("text") {
                    Some(text) => Content::Text(Arc::from(&*text)),
                    None => content_of(&member("blob")?).0,
                }
            }
            (_, _, Some(uri), _) => Content::Url(Arc::from(&*decode(uri)?)),
            _ => Content::Empty,
        };
    }
    Some(part)
}

/// Adds a part to `out` as a block: its original block, if it came from this protocol. Returns `false` and adds nothing if no block can show the part.
pub(super) fn push_block(
    part: &Part,
    extension: Extension,
    thread: &str,
    out: &mut String,
) -> bool {
    if let Some(block) = original_block(part) {
        out.push_str(&block);
        return true;
    }
    let Some(block) = plain_block(part, thread) else {
        if extension == Extension::Off {
            return false;
        }
        out.push_str(&with_meta("{\"type\":\"text\",\"text\":\"\"}", part, true));
        return true;
    };
    if extension == Extension::Off || part_of(&block).as_ref() == Some(part) {
        out.push_str(&block);
    } else {
        let is_same = part_of(&block).is_some_and(|read| read.content == part.content);
        out.push_str(&with_meta(&block, part, !is_same));
    }
    true
}

/// Returns the block with its part under `_meta`, without what the block already contains.
fn with_meta(block: &str, part: &Part, with_content: bool) -> String {
    let carried = match with_content {
        true => Cow::Borrowed(part),
        false => Cow::Owned(Part { content: Content::Empty, ..part.clone() }),
    };
    // A stored blob becomes a link in the block.
    let thread = trilogue_domain::ThreadId::from_uuid(uuid::Uuid::nil());
    let wire = native::message::part(&carried, &thread);
    let wire = serde_json::to_string(&wire).unwrap_or_default();
    let wire = splice::remove(&wire, &["blob"]);
    let is_empty = with_content && part.content == Content::Empty;
    let empty = if is_empty { ",\"empty\":true" } else { "" };
    let meta = format!("{{\"{EXTENSION}\":{{\"part\":{wire}{empty}}}}}");
    splice::set(block, &["_meta"], &meta).unwrap_or_else(|| block.to_owned())
}

fn original_block(part: &Part) -> Option<String> {
    let extra = part.extra.as_ref()?.as_str();
    let ours = splice::get(extra, &[PART_EXTENSION])?;
    if splice::get_text(ours, &["protocol"])? != PROTOCOL {
        return None;
    }
    let block = splice::get(ours, &["block"])?;
    let base64;
    let content = match &part.content {
        Content::Text(text) => &**text,
        Content::Url(url) => &**url,
        Content::Bytes(bytes) => {
            base64 = STANDARD.encode(bytes);
            &base64
        }
        Content::Empty | Content::Blob(_) => return None,
    };
    if block == "true" {
        return Some(content.to_owned());
    }
    let kind = splice::get_text(block, &["type"])?;
    match &*kind {
        "text" => splice::set_text(block, &["text"], content),
        "image" | "audio" => splice::set_text(block, &["data"], content),
        "resource_link" => splice::set_text(block, &["uri"], content),
        "resource" => {
            let is_blob = splice::get(ours, &["content"]).is_some();
            let is_text = matches!(part.content, Content::Text(_)) && !is_blob;
            let key = if is_text { "text" } else { "blob" };
            splice::set_text(block, &["resource", key], content)
        }
        _ => None,
    }
}

/// Returns the block of a part that did not come as one. `None` if no block can show it.
fn plain_block(part: &Part, thread: &str) -> Option<String> {
    let name = part.name.as_deref();
    let uri = || artifact(name.unwrap_or(UNNAMED));
    let block = match &part.content {
        Content::Text(text) if name.is_some() => {
            format!(
                "{{\"type\":\"resource\",\"resource\":{{\"uri\":{},\"mimeType\":{},\"text\":{}}}}}",
                quoted(&uri()),
                quoted(&part.content_type),
                quoted(text)
            )
        }
        Content::Text(text) if is_json(&part.content_type) => text_block(&fenced(text)),
        Content::Text(text) => text_block(text),
        Content::Bytes(bytes) => bytes_block(part, &STANDARD.encode(bytes), &uri()),
        Content::Url(url) => link_block(url, name.unwrap_or_else(|| file_name(url)), part, None),
        Content::Blob(blob) => {
            let hash = native::hex(&blob.hash);
            let url = match thread {
                "" => format!("{BLOB}blobs/{hash}"),
                thread => {
                    let thread = utf8_percent_encode(thread, PATH_SEGMENT);
                    format!("{BLOB}threads/{thread}/blobs/{hash}")
                }
            };
            link_block(&url, name.unwrap_or(&hash), part, Some(blob))
        }
        Content::Empty => source_block(&citation::whole(part)?)?,
    };
    Some(block)
}

/// Returns the source of a citation: a link, or its text if it has no address. `None` if it names nothing.
fn source_block(cited: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| cited.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let Some(url) = text("url") else {
        return Some(text_block(&format!(" [{}]", citation::in_words(cited)?)));
    };
    let mut block = link_of(url, text("title").unwrap_or(url));
    if let Some(description) = text("description") {
        push_member(&mut block, "description", &quoted(description));
    }
    block.push('}');
    Some(block)
}

/// Returns a part's citation as a separate block, with all its members under `_meta`. `None` if the part has no citation.
pub(super) fn citation_block(part: &Part) -> Option<String> {
    let cited = citation::whole(part)?;
    let block = source_block(&cited).unwrap_or_else(|| text_block(""));
    Some(with_citation(&block, &cited))
}

/// Returns a block with a citation under its `_meta`.
pub(super) fn with_citation(block: &str, cited: &Map<String, Value>) -> String {
    let ours = json!({ CITATION: cited });
    let has_meta = splice::get(block, &["_meta"]).is_some_and(|meta| meta.starts_with('{'));
    let set = match has_meta {
        true => splice::set(block, &["_meta", EXTENSION], &ours.to_string()),
        false => splice::set(block, &["_meta"], &json!({ EXTENSION: ours }).to_string()),
    };
    set.unwrap_or_else(|| block.to_owned())
}

fn bytes_block(part: &Part, base64: &str, uri: &str) -> String {
    let mime_type = quoted(&part.content_type);
    // Base64 needs no escapes.
    let media =
        |kind| format!("{{\"type\":\"{kind}\",\"data\":\"{base64}\",\"mimeType\":{mime_type}");
    if part.content_type.starts_with("image/") {
        let mut block = media("image");
        if part.name.is_some() {
            push_member(&mut block, "uri", &quoted(uri));
        }
        block.push('}');
        return block;
    }
    if part.content_type.starts_with("audio/") && part.name.is_none() {
        return media("audio") + "}";
    }
    let uri = quoted(uri);
    format!(
        "{{\"type\":\"resource\",\"resource\":{{\"uri\":{uri},\"mimeType\":{mime_type},\"blob\":\"{base64}\"}}}}"
    )
}

fn link_block(url: &str, name: &str, part: &Part, blob: Option<&BlobRef>) -> String {
    let mut block = link_of(url, name);
    if *part.content_type != *UNKNOWN {
        push_member(&mut block, "mimeType", &quoted(&part.content_type));
    }
    if let Some(blob) = blob {
        push_member(&mut block, "size", &blob.length.to_string());
    }
    block.push('}');
    block
}

/// Returns a link without its closing brace. A link needs a name.
fn link_of(url: &str, name: &str) -> String {
    let name = if name.is_empty() { url } else { name };
    format!("{{\"type\":\"resource_link\",\"uri\":{},\"name\":{}", quoted(url), quoted(name))
}

fn push_member(object: &mut String, key: &str, value: &str) {
    object.push_str(",\"");
    object.push_str(key);
    object.push_str("\":");
    object.push_str(value);
}

pub(super) fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quoted(text))
}

/// Returns JSON in a fenced code block, for people and models.
pub(super) fn fenced(json: &str) -> String {
    format!("```json\n{json}\n```")
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

fn is_media(part: &Part) -> bool {
    let is_sound = part.content_type.starts_with("audio/") && part.name.is_none();
    matches!(part.content, Content::Bytes(_))
        && (part.content_type.starts_with("image/") || is_sound)
}

fn artifact(name: &str) -> String {
    format!("{ARTIFACT}{}", utf8_percent_encode(name, PATH_SEGMENT))
}

/// Returns the name in the address of an artifact, if encoding it results in the same address.
fn artifact_name(uri: &str) -> Option<Arc<str>> {
    let name = percent_decode_str(uri.strip_prefix(ARTIFACT)?).decode_utf8().ok()?;
    (!name.is_empty() && artifact(&name) == uri).then(|| Arc::from(&*name))
}

/// Returns the last non-empty segment of an address.
pub(super) fn file_name(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or(uri);
    path.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or(uri)
}
