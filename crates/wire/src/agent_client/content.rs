use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Annotations;
use super::object::{Object, object};
use super::tagged::tagged;
use crate::json::scan;
use crate::json::{Path, Read, Violation, refusal};

tagged! {
    /// Something that can be shown, in the form of the Model Context Protocol's content blocks.
    pub enum ContentBlock by "type" {
        /// Text, usually Markdown.
        Text(TextContent) = "text";
        /// An image.
        Image(ImageContent) = "image";
        /// A sound.
        Audio(AudioContent) = "audio";
        /// A reference to something that the other side can reach.
        ResourceLink(Box<ResourceLink>) = "resource_link";
        /// Something whole, in the message.
        Resource(Box<EmbeddedResource>) = "resource";
    }
}

object! {
    /// Text.
    pub struct TextContent {
        /// The text.
        text: String = "text" as required;
    } may {
        /// How it should be used or shown.
        annotations: Option<Annotations> = "annotations" as lenient;
    }
}

object! {
    /// An image.
    pub struct ImageContent {
        /// The image, as base64.
        data: String = "data" as required;
        /// Its MIME type.
        mime_type: String = "mimeType" as required;
    } may {
        /// Where it comes from.
        uri: Option<String> = "uri" as lenient;
        /// How it should be used or shown.
        annotations: Option<Annotations> = "annotations" as lenient;
    }
    check image_is_base64;
}

object! {
    /// A sound.
    pub struct AudioContent {
        /// The sound, as base64.
        data: String = "data" as required;
        /// Its MIME type.
        mime_type: String = "mimeType" as required;
    } may {
        /// How it should be used or shown.
        annotations: Option<Annotations> = "annotations" as lenient;
    }
    check audio_is_base64;
}

object! {
    /// A reference to something that the other side can reach.
    pub struct ResourceLink {
        /// Where it is.
        uri: String = "uri" as required;
        /// What it is called.
        name: String = "name" as required;
    } may {
        /// Its MIME type.
        mime_type: Option<String> = "mimeType" as lenient;
        /// What it is called towards people.
        title: Option<String> = "title" as lenient;
        /// What it is.
        description: Option<String> = "description" as lenient;
        /// Its size, in bytes.
        size: Option<i64> = "size" as lenient;
        /// How it should be used or shown.
        annotations: Option<Annotations> = "annotations" as lenient;
    }
}

object! {
    /// Something whole, in the message.
    pub struct EmbeddedResource {
        /// What it holds.
        resource: ResourceContents = "resource" as required;
    } may {
        /// How it should be used or shown.
        annotations: Option<Annotations> = "annotations" as lenient;
    }
}

/// What a resource holds. Where there is text and bytes, the text counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceContents {
    /// Text.
    Text(TextResourceContents),
    /// Bytes.
    Blob(BlobResourceContents),
}

object! {
    /// A resource of text.
    pub struct TextResourceContents {
        /// Where it comes from.
        uri: String = "uri" as required;
        /// The text.
        text: String = "text" as required;
    } may {
        /// Its MIME type.
        mime_type: Option<String> = "mimeType" as lenient;
    }
}

object! {
    /// A resource of bytes.
    pub struct BlobResourceContents {
        /// Where it comes from.
        uri: String = "uri" as required;
        /// The bytes, as base64.
        blob: String = "blob" as required;
    } may {
        /// Its MIME type.
        mime_type: Option<String> = "mimeType" as lenient;
    }
    check blob_is_base64;
}

// === impl ContentBlock ===

impl ContentBlock {
    /// A block of text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent::new(text))
    }

    /// The word for its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Text(_) => "text",
            Self::Image(_) => "image",
            Self::Audio(_) => "audio",
            Self::ResourceLink(_) => "resource_link",
            Self::Resource(_) => "resource",
            Self::Other(opaque) => &opaque.kind,
        }
    }

    /// How it should be used or shown.
    #[must_use]
    pub fn annotations(&self) -> Option<&Annotations> {
        match self {
            Self::Text(text) => text.annotations.as_ref(),
            Self::Image(image) => image.annotations.as_ref(),
            Self::Audio(audio) => audio.annotations.as_ref(),
            Self::ResourceLink(link) => link.annotations.as_ref(),
            Self::Resource(resource) => resource.annotations.as_ref(),
            Self::Other(_) => None,
        }
    }
}

impl From<&str> for ContentBlock {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

// === impl ResourceContents ===

impl ResourceContents {
    /// Where it comes from.
    #[must_use]
    pub fn uri(&self) -> &str {
        match self {
            Self::Text(text) => &text.uri,
            Self::Blob(blob) => &blob.uri,
        }
    }
}

impl From<TextResourceContents> for ResourceContents {
    fn from(text: TextResourceContents) -> Self {
        Self::Text(text)
    }
}

impl From<BlobResourceContents> for ResourceContents {
    fn from(blob: BlobResourceContents) -> Self {
        Self::Blob(blob)
    }
}

impl Read for ResourceContents {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        if !json.starts_with('{') {
            return Err(refusal("an object", json, at));
        }
        let is_text = |json: &str| json.starts_with('"');
        let has = |key| scan::member(json, key).is_some_and(|member| is_text(member.value));
        if has("text") {
            TextResourceContents::read_members(json, "", at).map(Self::Text)
        } else if has("blob") {
            BlobResourceContents::read_members(json, "", at).map(Self::Blob)
        } else {
            Err(at.violation("must have a string text or blob"))
        }
    }
}

impl serde::Serialize for ResourceContents {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(to),
            Self::Blob(blob) => blob.serialize(to),
        }
    }
}

impl schemars::JsonSchema for ResourceContents {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResourceContents".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let text = generator.subschema_for::<TextResourceContents>();
        let blob = generator.subschema_for::<BlobResourceContents>();
        schemars::json_schema!({ "anyOf": [text, blob] })
    }
}

/// What is not base64 is carried as it came, and refused only by the letter.
fn base64(content: &str, key: &str, at: &Path<'_>) -> Result<(), Violation> {
    if at.is_strict() && STANDARD.decode(content).is_err() {
        return Err(at.key(key).violation("must be base64"));
    }
    Ok(())
}

fn image_is_base64(image: &ImageContent, at: &Path<'_>) -> Result<(), Violation> {
    base64(&image.data, "data", at)
}

fn audio_is_base64(audio: &AudioContent, at: &Path<'_>) -> Result<(), Violation> {
    base64(&audio.data, "data", at)
}

fn blob_is_base64(blob: &BlobResourceContents, at: &Path<'_>) -> Result<(), Violation> {
    base64(&blob.blob, "blob", at)
}
