use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::super::check;
use super::super::{ContentEncoding, Extra, Json, MessagePart, Metadata};
use super::given::Given;
use super::leaf::{Text, refuse};
use super::members::refuse_twins;
use super::raw::Raw;
use super::{At, Read, Violation, quoted, read_at};

/// A part as it was sent.
#[derive(Debug, Default)]
pub struct Draft {
    name: Given<Text>,
    content_type: Given<Text>,
    content: Given<Text>,
    content_encoding: Given<Text>,
    content_url: Given<Text>,
    metadata: Given<Raw>,
    extra: Vec<(String, Json)>,
}

#[derive(serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Key {
    Name,
    ContentType,
    Content,
    ContentEncoding,
    ContentUrl,
    Metadata,
    Other(String),
}

// === impl MessagePart ===

impl Read for MessagePart {
    type Draft = Draft;
    fn finish(draft: Draft, at: &At<'_>) -> Result<Self, Violation> {
        if at.is_strict() && !matches!(draft.content_type, Given::Value(_)) {
            return Err(at.key("content_type").violation("is missing; every part has a MIME type"));
        }
        let text = |given: Given<Text>| given.optional().map(|text| text.0);
        let mut part = Self {
            name: text(draft.name),
            content_type: text(draft.content_type)
                .unwrap_or_else(|| check::DEFAULT_CONTENT_TYPE.to_owned()),
            content: text(draft.content),
            content_encoding: encoding(draft.content_encoding, &at.key("content_encoding"))?,
            content_url: text(draft.content_url),
            metadata: match draft.metadata {
                Given::Value(raw) => Some(read_at::<Metadata>(raw.bytes(), &at.key("metadata"))?),
                Given::Absent | Given::Null => None,
            },
            extra: Extra(draft.extra),
        };
        check::part(&mut part, at)?;
        Ok(part)
    }
}

fn encoding(given: Given<Text>, at: &At<'_>) -> Result<ContentEncoding, Violation> {
    match given {
        Given::Absent | Given::Null => Ok(ContentEncoding::Plain),
        Given::Value(Text(text)) => match text.as_str() {
            "plain" => Ok(ContentEncoding::Plain),
            "base64" => Ok(ContentEncoding::Base64),
            _ => {
                Err(at.violation(format!("must be \"plain\" or \"base64\", not {}", quoted(&text))))
            }
        },
    }
}

// === impl Draft ===

impl<'de> Deserialize<'de> for Draft {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Draft;

    refuse!("an object": null boolean number string array);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Draft, A::Error> {
        let mut draft = Draft::default();
        while let Some(key) = map.next_key()? {
            match key {
                Key::Name => once(&mut draft.name, "name", &mut map)?,
                Key::ContentType => once(&mut draft.content_type, "content_type", &mut map)?,
                Key::Content => once(&mut draft.content, "content", &mut map)?,
                Key::ContentEncoding => {
                    once(&mut draft.content_encoding, "content_encoding", &mut map)?;
                }
                Key::ContentUrl => once(&mut draft.content_url, "content_url", &mut map)?,
                Key::Metadata => once(&mut draft.metadata, "metadata", &mut map)?,
                Key::Other(name) => draft.extra.push((name, map.next_value::<Raw>()?.0)),
            }
        }
        refuse_twins(&draft.extra, |(name, _)| name)?;
        Ok(draft)
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    member: &mut Given<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if !matches!(member, Given::Absent) {
        return Err(A::Error::duplicate_field(name));
    }
    *member = map.next_value()?;
    Ok(())
}
