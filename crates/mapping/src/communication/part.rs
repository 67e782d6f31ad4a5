use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, Citation, Content, Part, PartMetadata, Trajectory};
use trilogue_wire::agent_communication::{
    CitationMetadata, ContentEncoding, Extra, Json, MessagePart, Metadata, Rules,
    TrajectoryMetadata,
};

use super::EXTENSION;
use super::input::inside;
use crate::agent_client::{is_invalid_base64, marks_invalid_base64};
use crate::citation;
use crate::native::{json as to_wire, read_json};
use trilogue_wire::encoded_bytes::decode_base64;

/// Marks a part whose content was declared as base64 but is not base64; the last member of its extra.
const ENCODED: &str = r#""x_trilogue":{"content_encoding":"base64"}"#;

/// The protocol's declared members: members of a part's `extra` with these names are not shown.
const DECLARED: &[&str] =
    &["name", "content_type", "content", "content_encoding", "content_url", "metadata"];

/// Reads a message's parts; `under` is the message's location, with a dot at its end. Fails with `json_too_deep`, naming part and field.
pub(super) fn read_parts(parts: Vec<MessagePart>, under: fmt::Arguments<'_>) -> Result<Vec<Part>> {
    let parts = parts.into_iter().enumerate();
    parts.map(|(place, part)| read_part(part, format_args!("{under}parts[{place}]"))).collect()
}

/// Reads a part from the wire. Unknown members stay in `extra`, in their order.
fn read_part(part: MessagePart, at: fmt::Arguments<'_>) -> Result<Part> {
    let is_base64 = part.content_encoding == ContentEncoding::Base64;
    let (content, is_kept) = match (part.content, part.content_url) {
        (Some(text), _) if is_base64 => match decode_base64(&text) {
            Some(bytes) => (Content::Bytes(bytes.into()), true),
            None => (Content::Text(Arc::from(text)), false),
        },
        (Some(text), _) => (Content::Text(Arc::from(text)), true),
        (None, Some(url)) => (Content::Url(Arc::from(url)), !is_base64),
        (None, None) => (Content::Empty, !is_base64),
    };
    let is_marked = |ours: &Json| marks_invalid_base64(ours.as_str());
    let is_kept = is_kept || part.extra.get(EXTENSION).is_some_and(is_marked);
    let further = match &part.metadata {
        Some(Metadata::Citation(citation)) if is_kept => further_members(&citation.extra, at)?,
        Some(Metadata::Trajectory(step)) if is_kept => further_members(&step.extra, at)?,
        _ => Map::new(),
    };
    let mut read = Part {
        content_type: Arc::from(part.content_type),
        content,
        name: part.name.map(Arc::from),
        metadata: part.metadata.map(|metadata| read_metadata(metadata, at)).transpose()?,
        extra: read_extra(&part.extra, is_kept, at)?,
    };
    citation::keep(&mut read, further);
    Ok(read)
}

/// Returns the undeclared members of a citation or trajectory.
fn further_members(extra: &Extra, at: fmt::Arguments<'_>) -> Result<Map<String, Value>> {
    let read = |(name, value): (&str, &Json)| -> Result<(String, Value)> {
        // This nesting is as deep as the member will be in `extra`.
        let deep = trilogue_domain::Json::parse(format!("[[[{}]]]", value.as_str()));
        deep.map_err(|error| inside(&error, format_args!("{at}.metadata")))?;
        Ok((name.to_owned(), value.to_value()))
    };
    extra.iter().map(read).collect()
}

fn read_extra(
    extra: &Extra,
    is_kept: bool,
    at: fmt::Arguments<'_>,
) -> Result<Option<trilogue_domain::Json>> {
    let mut text = String::new();
    // Only this server may write `ENCODED`.
    let is_ours = |value: &Json| !is_kept || value.to_value() == encoded();
    for (key, value) in extra.iter().filter(|(key, value)| *key != EXTENSION || !is_ours(value)) {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(&Value::from(key).to_string());
        text.push(':');
        text.push_str(value.as_str());
    }
    if !is_kept {
        text.push(if text.is_empty() { '{' } else { ',' });
        text.push_str(ENCODED);
    }
    if text.is_empty() {
        return Ok(None);
    }
    text.push('}');
    let read = trilogue_domain::Json::parse(text).map(Some);
    read.map_err(|error| {
        let is_bad =
            |value: &Json| trilogue_domain::Json::parse(format!("[{}]", value.as_str())).is_err();
        let bad = extra.iter().find(|(_, value)| is_bad(value));
        // The sender's name can have any length and any characters.
        let name: String = bad.map_or("", |(name, _)| name).chars().take(64).collect();
        inside(&error, format_args!("{at}.{}", name.escape_debug()))
    })
}

fn read_metadata(metadata: Metadata, at: fmt::Arguments<'_>) -> Result<PartMetadata> {
    let read = |value, field: &str| {
        read_json(value).map_err(|error| inside(&error, format_args!("{at}.metadata{field}")))
    };
    Ok(match metadata {
        Metadata::Citation(citation) => PartMetadata::Citation(Citation {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url,
            title: citation.title,
            description: citation.description,
        }),
        Metadata::Trajectory(step) => PartMetadata::Trajectory(Trajectory {
            message: step.message,
            tool_name: step.tool_name,
            tool_input: step.tool_input.map(|value| read(value, ".tool_input")).transpose()?,
            tool_output: step.tool_output.map(|value| read(value, ".tool_output")).transpose()?,
        }),
        Metadata::Other(other) => PartMetadata::Other(read(other, "")?),
    })
}

/// Writes a part for clients. Missing content becomes a link; `strict` fills in what the documents require.
pub(super) fn write_part(
    part: &Part,
    strict: bool,
    link: impl Fn(&BlobRef) -> String,
    out: &mut Vec<u8>,
) {
    write_part_with(part, Map::new(), strict, link, out);
}

/// Like [`write_part`], with these members under the extension key.
pub(super) fn write_part_with(
    part: &Part,
    mut ours: Map<String, Value>,
    strict: bool,
    link: impl Fn(&BlobRef) -> String,
    out: &mut Vec<u8>,
) {
    let extra = citation::extra_without(part);
    let (extra, is_kept) = shown_extra(&extra);
    let mut wire = MessagePart {
        name: part.name.as_deref().map(str::to_owned),
        content_type: part.content_type.to_string(),
        metadata: part.metadata.as_ref().and_then(|it| metadata(it, part)),
        ..MessagePart::default()
    };
    match &part.content {
        Content::Empty => wire.content = strict.then(String::new),
        Content::Text(text) => wire.content = Some(text.to_string()),
        Content::Bytes(bytes) => {
            wire.content = Some(STANDARD.encode(bytes));
            wire.content_encoding = ContentEncoding::Base64;
        }
        Content::Url(url) if is_address(url) => wire.content_url = Some(url.to_string()),
        // The official clients fail on an invalid address.
        Content::Url(url) => {
            wire.content = strict.then(String::new);
            ours.insert("content_url".to_owned(), Value::from(&**url));
        }
        Content::Blob(blob) => wire.content_url = Some(link(blob)),
    }
    if !is_kept || is_invalid_base64(part) {
        wire.content_encoding = ContentEncoding::Base64;
    }
    if wire.content_type.is_empty() {
        "text/plain".clone_into(&mut wire.content_type);
    }
    // The official clients parse two kinds of metadata and fail on any other.
    if let Some(PartMetadata::Other(other)) = &part.metadata {
        ours.insert("metadata".to_owned(), other.to_value());
    }
    wire.write(out);
    append_members(with_ours(extra, ours).as_bytes(), out);
}

fn is_address(url: &str) -> bool {
    MessagePart::url("text/plain", url).check(Rules::Compatible).is_ok()
}

fn encoded() -> Value {
    json!({ "content_encoding": "base64" })
}

/// Returns members without duplicates. They keep their order and spelling unless one of them must be removed or extended.
fn with_ours(extra: &str, ours: Map<String, Value>) -> Cow<'_, str> {
    if extra.is_empty() && ours.is_empty() {
        return Cow::Borrowed(extra);
    }
    let mut members: Map<String, Value> =
        serde_json::from_str(&format!("{{{extra}}}")).unwrap_or_default();
    let is_declared = DECLARED.iter().any(|name| members.contains_key(*name));
    if !is_declared && ours.is_empty() {
        return Cow::Borrowed(extra);
    }
    if !is_declared && !members.contains_key(EXTENSION) {
        let ours = Value::Object(ours);
        let comma = if extra.is_empty() { "" } else { "," };
        return Cow::Owned(format!("{extra}{comma}{}:{ours}", Value::from(EXTENSION)));
    }
    members.retain(|name, _| !DECLARED.contains(&name.as_str()));
    if !ours.is_empty() {
        match members.get_mut(EXTENSION).and_then(Value::as_object_mut) {
            Some(extension) => extension.extend(ours),
            None => drop(members.insert(EXTENSION.to_owned(), Value::Object(ours))),
        }
    }
    let text = Value::Object(members).to_string();
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    Cow::Owned(inner.unwrap_or_default().to_owned())
}

/// Returns the members of `extra` without their braces, and whether the content has its declared encoding.
fn shown_extra(extra: &str) -> (&str, bool) {
    let inner = extra.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.unwrap_or_default().trim();
    // Match the whole member, not the end of a name with a quote in it.
    let rest = inner.strip_suffix(ENCODED).map(str::trim_end);
    match rest.map(|rest| (rest, rest.strip_suffix(','))) {
        Some(("", _)) => ("", false),
        Some((_, Some(rest))) => (rest, false),
        _ => (inner, true),
    }
}

/// Whether an event is a part whose content was declared as base64 but is not base64.
pub fn has_invalid_base64(body: &Body) -> bool {
    matches!(body, Body::Message(MessageEvent::Part { part, .. }) if is_undecoded(part))
}

/// Whether a part's content was declared as base64 but is not base64.
pub(super) fn is_undecoded(part: &Part) -> bool {
    let (Content::Text(_), Some(extra)) = (&part.content, &part.extra) else { return false };
    !shown_extra(extra.as_str()).1 || is_invalid_base64(part)
}

/// Adds members without braces to an object that already has members.
pub(super) fn append_members(members: impl AsRef<[u8]>, object: &mut Vec<u8>) {
    let members = members.as_ref();
    if !members.is_empty() && object.last() == Some(&b'}') {
        object.pop();
        object.push(b',');
        object.extend_from_slice(members);
        object.push(b'}');
    }
}

fn metadata(metadata: &PartMetadata, part: &Part) -> Option<Metadata> {
    match metadata {
        PartMetadata::Citation(citation) => Some(Metadata::Citation(CitationMetadata {
            start_index: citation.start_index,
            end_index: citation.end_index,
            url: citation.url.clone(),
            title: citation.title.clone(),
            description: citation.description.clone(),
            extra: further_of(part),
        })),
        PartMetadata::Trajectory(step) => Some(Metadata::Trajectory(TrajectoryMetadata {
            message: step.message.clone(),
            tool_name: step.tool_name.clone(),
            tool_input: step.tool_input.as_ref().map(object),
            tool_output: step.tool_output.as_ref().map(object),
            extra: further_of(part),
        })),
        PartMetadata::Other(_) => None,
    }
}

/// Returns the further members of a part's citation or trajectory.
fn further_of(part: &Part) -> Extra {
    let mut extra = Extra::new();
    for (name, value) in citation::shown_further(part) {
        extra.set(name, Json::from_value(&value));
    }
    extra
}

/// Returns a tool's input or output as an object, the only form that the protocol accepts.
fn object(value: &trilogue_domain::Json) -> Json {
    if value.is_object() {
        return to_wire(value);
    }
    Json::parse(format!("{{\"value\":{}}}", value.as_str())).unwrap_or_else(|_| Json::null())
}

#[cfg(test)]
mod tests {
    use trilogue_wire::agent_communication::{Message, read};

    use super::*;

    /// Reads a part and writes it again.
    fn again(part: &str, strict: bool) -> String {
        let text = format!(r#"{{"role":"user","parts":[{part}]}}"#);
        let message: Message = read(text.as_bytes(), Rules::Lenient).unwrap();
        let part = read_parts(message.parts, format_args!("")).unwrap().remove(0);
        let mut out = Vec::new();
        write_part(&part, strict, |_| String::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn whole(members: &str, rest: &str) -> String {
        format!(r#"{{"name":null,"content_type":"text/plain",{members},"metadata":null{rest}}}"#)
    }

    #[test]
    fn every_way_of_delivery_comes_back_as_it_was_sent() {
        for (sent, shown) in [
            (
                r#""content":"hi""#,
                r#""content":"hi","content_encoding":"plain","content_url":null"#,
            ),
            (r#""content":"""#, r#""content":"","content_encoding":"plain","content_url":null"#),
            (
                r#""content":"aGk=","content_encoding":"base64""#,
                r#""content":"aGk=","content_encoding":"base64","content_url":null"#,
            ),
            (
                r#""content_url":"https://example.com/a""#,
                r#""content":null,"content_encoding":"plain","content_url":"https://example.com/a""#,
            ),
            (r#""name":null"#, r#""content":null,"content_encoding":"plain","content_url":null"#),
        ] {
            assert_eq!(again(&format!("{{{sent}}}"), false), whole(shown, ""), "{sent}");
        }
    }

    #[test]
    fn base64_that_is_none_comes_back_byte_for_byte() {
        for content in ["%%%", "a", "aGl=", "+/-_"] {
            let sent =
                format!(r#"{{"content":"{content}","content_encoding":"base64","b":1,"a":[2]}}"#);
            let shown =
                format!(r#""content":"{content}","content_encoding":"base64","content_url":null"#);
            assert_eq!(again(&sent, false), whole(&shown, r#","b":1,"a":[2]"#), "{content}");
        }
    }

    #[test]
    fn variants_of_base64_come_back_in_the_standard_form() {
        for (content, standard) in [("aGk", "aGk="), ("aG\\r\\nk=\\n", "aGk="), ("-_8", "+/8=")] {
            let sent = format!(r#"{{"content":"{content}","content_encoding":"base64"}}"#);
            let shown =
                format!(r#""content":"{standard}","content_encoding":"base64","content_url":null"#);
            assert_eq!(again(&sent, false), whole(&shown, ""), "{content}");
        }
    }

    #[test]
    fn a_citation_keeps_its_further_members() {
        let citation = r#"{"kind":"citation","start_index":null,"end_index":null,"url":"https://a/","title":null,"description":"D","author":"A. B.","score":0.5}"#;
        let sent =
            format!(r#"{{"content":"x","metadata":{citation},"z":1,"x_trilogue":{{"y":2}}}}"#);
        let shown = again(&sent, false);
        let tail = format!(r#""metadata":{citation},"z":1,"x_trilogue":{{"y":2}}}}"#);
        assert!(shown.ends_with(&tail), "{shown}");
    }

    #[test]
    fn a_trajectory_keeps_its_further_members() {
        let step = r#"{"kind":"trajectory","message":null,"tool_name":"search","tool_input":{"q":1},"tool_output":null,"duration_ms":12,"own":{"a":[1.5]}}"#;
        let sent = format!(r#"{{"content":"x","metadata":{step},"z":1,"x_trilogue":{{"y":2}}}}"#);
        let shown = again(&sent, false);
        let tail = format!(r#""metadata":{step},"z":1,"x_trilogue":{{"y":2}}}}"#);
        assert!(shown.ends_with(&tail), "{shown}");
    }

    #[test]
    fn unknown_members_keep_their_order_and_their_spelling() {
        let shown = again(r#"{"content":"x","z":1.0,"a":{"c":1,"b":2}}"#, false);
        assert!(shown.ends_with(r#""metadata":null,"z":1.0,"a":{"c":1,"b":2}}"#), "{shown}");
    }

    #[test]
    fn no_member_stands_twice() {
        let extra = json!({ "content": "other", "z": 1, "x_trilogue": { "kept": 1 } });
        let part = Part {
            extra: Some(trilogue_domain::Json::from_value(&extra)),
            ..Part::text("said").with_metadata(PartMetadata::Other(trilogue_domain::Json::null()))
        };
        let mut ours = Map::new();
        ours.insert("interrupt_id".to_owned(), Value::from("i"));
        let mut out = Vec::new();
        write_part_with(&part, ours, false, |_| String::new(), &mut out);
        let text = String::from_utf8(out).unwrap();
        for name in ["\"content\"", "\"x_trilogue\""] {
            assert_eq!(text.matches(name).count(), 1, "{text}");
        }
        let shown: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&shown["content"], &shown["z"]), (&json!("said"), &json!(1)));
        let extension = json!({ "interrupt_id": "i", "kept": 1, "metadata": null });
        assert_eq!(shown[EXTENSION], extension);
    }

    #[test]
    fn nobody_else_says_that_plain_content_is_base64() {
        let sent = r#"{"content":"x","x_trilogue":{"content_encoding":"base64"}}"#;
        let shown = r#""content":"x","content_encoding":"plain","content_url":null"#;
        assert_eq!(again(sent, false), whole(shown, ""));
    }

    #[test]
    fn a_name_that_ends_like_ours_is_another_name() {
        let sent = r#"{"content":"x","a\"x_trilogue":{"content_encoding":"base64"}}"#;
        let shown = r#""content":"x","content_encoding":"plain","content_url":null"#;
        let rest = r#","a\"x_trilogue":{"content_encoding":"base64"}"#;
        assert_eq!(again(sent, false), whole(shown, rest));
    }

    #[test]
    fn an_address_that_clients_refuse_stands_under_the_extension_key() {
        let shown = |url: &str| {
            let mut out = Vec::new();
            let part = Part { content: Content::Url(Arc::from(url)), ..Part::text("") };
            write_part(&part, false, |_| String::new(), &mut out);
            serde_json::from_slice::<Value>(&out).unwrap()
        };
        assert_eq!(shown("data:,x")["content_url"], "data:,x");
        let relative = shown("a/b.png");
        assert_eq!(relative["content_url"], Value::Null);
        assert_eq!(relative[EXTENSION], json!({ "content_url": "a/b.png" }));
    }

    #[test]
    fn a_strict_mount_shows_a_part_that_only_carries_metadata_with_empty_content() {
        let part = r#"{"metadata":{"kind":"trajectory","message":"hm"}}"#;
        assert!(again(part, true).contains(r#""content":"","#));
        assert!(again(part, false).contains(r#""content":null,"#));
    }

    #[test]
    fn metadata_of_a_kind_that_clients_refuse_stands_under_the_extension_key() {
        let other = trilogue_domain::Json::from_value(&json!({ "kind": "mood" }));
        let part = Part::text("x").with_metadata(PartMetadata::Other(other));
        let mut out = Vec::new();
        write_part(&part, false, |_| String::new(), &mut out);
        let shown: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(shown["metadata"], Value::Null);
        assert_eq!(shown[EXTENSION]["metadata"]["kind"], "mood");
    }

    #[test]
    fn tools_take_and_give_objects() {
        let text = trilogue_domain::Json::from_value(&json!("sunny"));
        let step = Trajectory { tool_output: Some(text), ..Trajectory::default() };
        let mut out = Vec::new();
        let part = Part::annotation(PartMetadata::Trajectory(step));
        write_part(&part, false, |_| String::new(), &mut out);
        let shown: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(shown["metadata"]["tool_output"], json!({ "value": "sunny" }));
    }
}
