use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::Annotations;
use super::object::{Object, object};
use super::tagged::tagged;
use crate::json::scan;
use crate::json::schema::schema;
use crate::json::{Path, Read, Violation, refusal};

tagged! {
    /// Content in the form of the Model Context Protocol's content blocks.
    pub enum ContentBlock by "type" {
        /// Usually Markdown.
        Text(TextContent) = "text";
        Image(ImageContent) = "image";
        Audio(AudioContent) = "audio";
        ResourceLink(Box<ResourceLink>) = "resource_link";
        Resource(Box<EmbeddedResource>) = "resource";
    }
}

object! {
    pub struct TextContent {
        text: String = "text";
    } may {
        annotations: Option<Annotations> = "annotations" as kept;
    }

    pub struct ImageContent {
        /// Base64.
        data: String = "data";
        mime_type: String = "mimeType";
    } may {
        uri: Option<String> = "uri" as kept;
        annotations: Option<Annotations> = "annotations" as kept;
    }
    check image_is_base64;

    pub struct AudioContent {
        /// Base64.
        data: String = "data";
        mime_type: String = "mimeType";
    } may {
        annotations: Option<Annotations> = "annotations" as kept;
    }
    check audio_is_base64;

    pub struct ResourceLink {
        uri: String = "uri";
        name: String = "name";
    } may {
        mime_type: Option<String> = "mimeType" as kept;
        /// For people.
        title: Option<String> = "title" as kept;
        description: Option<String> = "description" as kept;
        /// In bytes.
        size: Option<i64> = "size" as kept;
        annotations: Option<Annotations> = "annotations" as kept;
    }

    pub struct EmbeddedResource {
        resource: ResourceContents = "resource";
    } may {
        annotations: Option<Annotations> = "annotations" as kept;
    }
}

/// The content of a resource. If both text and bytes are present, the text counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum ResourceContents {
    Text(TextResourceContents),
    Blob(BlobResourceContents),
}

object! {
    pub struct TextResourceContents {
        uri: String = "uri";
        text: String = "text";
    } may {
        mime_type: Option<String> = "mimeType" as kept;
    }

    pub struct BlobResourceContents {
        uri: String = "uri";
        /// Base64.
        blob: String = "blob";
    } may {
        mime_type: Option<String> = "mimeType" as kept;
    }
    check blob_is_base64;
}

// === impl ContentBlock ===

impl ContentBlock {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent::new(text))
    }

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

schema!(ResourceContents = "ResourceContents", |generator| {
    let text = generator.subschema_for::<TextResourceContents>();
    let blob = generator.subschema_for::<BlobResourceContents>();
    schemars::json_schema!({ "anyOf": [text, blob] })
});

/// Keeps text that is not base64 unchanged; only strict rules refuse it.
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
