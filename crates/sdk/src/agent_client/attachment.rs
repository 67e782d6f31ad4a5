use std::path::Path;
use std::string::FromUtf8Error;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use trilogue_wire::agent_client::{
    Annotations, AudioContent, BlobResourceContents, ContentBlock, EmbeddedResource, ImageContent,
    PromptCapabilities, ResourceContents, ResourceLink, TextContent, TextResourceContents,
};

use super::Error;
use crate::content_type;

/// The maximum size of a file to attach, in bytes.
pub const MAX_ATTACHED_BYTES: u64 = 8 * 1024 * 1024;

/// The characters that are escaped in the path of a URI.
const PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The content of a prompt, in the order in which the agent reads it.
///
/// Files are sent in the form that the agent supports: images and sounds as their own blocks, other files embedded in the message if the agent advertises `embeddedContext`, and otherwise as links.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prompt {
    items: Vec<PromptItem>,
    /// The message's id; `None` for a new one.
    pub(super) message_id: Option<String>,
}

/// A file with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    uri: String,
    name: String,
    mime_type: Option<String>,
    content: AttachmentContent,
    annotations: Option<Annotations>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PromptItem {
    Block(ContentBlock),
    Attachment(Attachment),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AttachmentContent {
    Text(String),
    Bytes(Vec<u8>),
}

// === impl Prompt ===

impl Prompt {
    /// Returns an empty prompt.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.block(ContentBlock::text(text))
    }

    /// Adds a link to a resource that the agent can reach.
    #[must_use]
    pub fn link(self, uri: impl Into<String>, name: impl Into<String>) -> Self {
        self.block(ContentBlock::ResourceLink(Box::new(ResourceLink::new(uri, name))))
    }

    /// Adds a file.
    #[must_use]
    pub fn attach(mut self, attachment: Attachment) -> Self {
        self.items.push(PromptItem::Attachment(attachment));
        self
    }

    /// Adds a content block unchanged.
    #[must_use]
    pub fn block(mut self, block: ContentBlock) -> Self {
        self.items.push(PromptItem::Block(block));
        self
    }

    /// Sets the message's id: a UUID that no other message of the session has.
    #[must_use]
    pub fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into());
        self
    }

    /// Returns the blocks for an agent with these capabilities.
    ///
    /// # Errors
    /// [`Error::Lacks`] with the name of the capability, if the agent does not support a block.
    pub fn for_agent(&self, takes: &PromptCapabilities) -> Result<Vec<ContentBlock>, Error> {
        let fitted = self.items.iter().map(|item| match item {
            PromptItem::Block(block) => block.clone(),
            PromptItem::Attachment(attachment) => attachment.block(takes.embedded_context),
        });
        let blocks: Vec<_> = fitted.collect();
        for (place, block) in blocks.iter().enumerate() {
            let (has, capability) = match block {
                ContentBlock::Text(_) | ContentBlock::ResourceLink(_) => continue,
                ContentBlock::Image(_) => (takes.image, "promptCapabilities.image"),
                ContentBlock::Audio(_) => (takes.audio, "promptCapabilities.audio"),
                ContentBlock::Resource(_) => {
                    (takes.embedded_context, "promptCapabilities.embeddedContext")
                }
                ContentBlock::Other(_) => {
                    let kind = block.kind();
                    return Err(Error::Invalid(format!(
                        "block {place} of the prompt is of the kind '{}', which the protocol does not know",
                        kind.escape_debug()
                    )));
                }
            };
            if !has {
                let what = format!("block {place} of the prompt ({})", block.kind());
                return Err(Error::Lacks { capability, what });
            }
        }
        Ok(blocks)
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

impl From<Vec<ContentBlock>> for Prompt {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        Self { items: blocks.into_iter().map(PromptItem::Block).collect(), message_id: None }
    }
}

// === impl Attachment ===

impl Attachment {
    /// Returns an attachment with the text at this URI.
    #[must_use]
    pub fn text(uri: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of(uri.into(), AttachmentContent::Text(text.into()))
    }

    /// Returns an attachment with the bytes at this URI.
    #[must_use]
    pub fn bytes(uri: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self::of(uri.into(), AttachmentContent::Bytes(bytes.into()))
    }

    /// Reads a file of at most [`MAX_ATTACHED_BYTES`]. Its name and its first bytes decide its type: see [`content_type::of_file`].
    ///
    /// # Errors
    /// [`Error::File`].
    pub async fn read(path: impl AsRef<Path> + Send) -> Result<Self, Error> {
        let path = path.as_ref();
        let failed = |error| Error::File { path: path.display().to_string(), error };
        let path = std::path::absolute(path).map_err(failed)?;
        let length = tokio::fs::metadata(&path).await.map_err(failed)?.len();
        if length > MAX_ATTACHED_BYTES {
            let message =
                format!("it has {length} bytes; at most {MAX_ATTACHED_BYTES} are attached");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message)));
        }
        let bytes = tokio::fs::read(&path).await.map_err(failed)?;
        let uri = file_uri(&path.to_string_lossy());
        let kind = content_type::of_file(&path, &bytes);
        let text = match content_type::is_text(kind) {
            true => String::from_utf8(bytes).map_err(FromUtf8Error::into_bytes),
            false => Err(bytes),
        };
        let attachment = match text {
            Ok(text) => Self::text(uri, text),
            Err(bytes) => Self::bytes(uri, bytes),
        };
        Ok(attachment.mime_type(kind))
    }

    /// Sets the content type.
    #[must_use]
    pub fn mime_type(mut self, mime_type: impl Into<String>) -> Self {
        self.mime_type = Some(mime_type.into());
        self
    }

    /// Sets the annotations: the audience and the priority.
    #[must_use]
    pub fn annotated(mut self, annotations: Annotations) -> Self {
        self.annotations = Some(annotations);
        self
    }

    fn of(uri: String, content: AttachmentContent) -> Self {
        let path = uri.split(['?', '#']).next().unwrap_or_default();
        let last = path.rsplit('/').find(|segment| !segment.is_empty()).unwrap_or(path);
        let name = percent_encoding::percent_decode_str(last).decode_utf8_lossy().into_owned();
        Self { uri, name, mime_type: None, content, annotations: None }
    }

    /// Returns the content block of this attachment. `embedded` selects embedding instead of a link, if the content allows it.
    fn block(&self, embedded: bool) -> ContentBlock {
        let kind = self.mime_type.as_deref().unwrap_or_default();
        match &self.content {
            AttachmentContent::Bytes(bytes) if content_type::media(kind) == Some("image") => {
                let mut image = ImageContent::new(STANDARD.encode(bytes), kind);
                image.uri = Some(self.uri.clone());
                image.annotations.clone_from(&self.annotations);
                ContentBlock::Image(image)
            }
            AttachmentContent::Bytes(bytes) if content_type::media(kind) == Some("audio") => {
                let mut audio = AudioContent::new(STANDARD.encode(bytes), kind);
                audio.annotations.clone_from(&self.annotations);
                ContentBlock::Audio(audio)
            }
            content if embedded => self.resource(content),
            content => self.as_link(content),
        }
    }

    fn resource(&self, content: &AttachmentContent) -> ContentBlock {
        let (uri, mime_type) = (&*self.uri, self.mime_type.clone());
        let contents = match content {
            AttachmentContent::Text(text) => {
                let text = TextResourceContents::new(uri, &**text);
                ResourceContents::Text(TextResourceContents { mime_type, ..text })
            }
            AttachmentContent::Bytes(bytes) => {
                let blob = BlobResourceContents::new(uri, STANDARD.encode(bytes));
                ResourceContents::Blob(BlobResourceContents { mime_type, ..blob })
            }
        };
        let mut resource = EmbeddedResource::new(contents);
        resource.annotations.clone_from(&self.annotations);
        ContentBlock::Resource(Box::new(resource))
    }

    fn as_link(&self, content: &AttachmentContent) -> ContentBlock {
        let length = match content {
            AttachmentContent::Text(text) => text.len(),
            AttachmentContent::Bytes(bytes) => bytes.len(),
        };
        let mut link = ResourceLink::new(&*self.uri, &*self.name);
        link.mime_type.clone_from(&self.mime_type);
        link.size = i64::try_from(length).ok();
        link.annotations.clone_from(&self.annotations);
        ContentBlock::ResourceLink(Box::new(link))
    }
}

/// Returns the URI of a file with this absolute path.
pub(super) fn file_uri(path: &str) -> String {
    format!("file://{}", utf8_percent_encode(path, PATH))
}

impl From<TextContent> for Prompt {
    fn from(text: TextContent) -> Self {
        Self::new().block(ContentBlock::Text(text))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ALL: [bool; 3] = [true; 3];

    fn takes([image, audio, embedded_context]: [bool; 3]) -> PromptCapabilities {
        PromptCapabilities { image, audio, embedded_context, ..PromptCapabilities::new() }
    }

    fn sent_block(attachment: Attachment, can: [bool; 3]) -> Result<Value, String> {
        let blocks = Prompt::new().attach(attachment).for_agent(&takes(can));
        blocks
            .map(|blocks| serde_json::to_value(&blocks[0]).unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_is_inside_the_message_where_the_agent_takes_that_and_else_a_link() {
        let file = || Attachment::text("file:///a%20b.md", "hi").mime_type("text/markdown");
        let inside = json!({ "type": "resource", "resource": {
            "uri": "file:///a%20b.md", "text": "hi", "mimeType": "text/markdown" } });
        assert_eq!(sent_block(file(), ALL), Ok(inside));
        let link = json!({ "type": "resource_link", "uri": "file:///a%20b.md", "name": "a b.md",
            "mimeType": "text/markdown", "size": 2 });
        assert_eq!(sent_block(file(), [true, true, false]), Ok(link));
        let blob = sent_block(Attachment::bytes("file:///x", [0xff]), ALL).unwrap();
        assert_eq!(blob["resource"]["blob"], "/w==");
    }

    #[test]
    fn images_and_sounds_are_their_blocks_or_refused_with_the_capability() {
        let image = || Attachment::bytes("file:///a.png", [1]).mime_type("image/png");
        assert_eq!(
            sent_block(image(), ALL).unwrap(),
            json!({ "type": "image", "data": "AQ==", "mimeType": "image/png", "uri": "file:///a.png" })
        );
        let refused = sent_block(image(), [false, true, true]).unwrap_err();
        assert!(refused.contains("promptCapabilities.image"), "{refused}");
        let sound = Attachment::bytes("file:///a.wav", [1]).mime_type("audio/wav");
        let refused = sent_block(sound, [true, false, true]).unwrap_err();
        assert!(refused.contains("promptCapabilities.audio"), "{refused}");
    }

    #[tokio::test]
    async fn a_file_is_read_with_its_address_and_kind() {
        let here = std::env::temp_dir().join(format!("a b {}.MD", std::process::id()));
        std::fs::write(&here, "grüße").unwrap();
        let read = Attachment::read(&here).await;
        std::fs::remove_file(&here).unwrap();
        let sent = sent_block(read.unwrap(), ALL).unwrap();
        let resource = &sent["resource"];
        assert_eq!(
            (&resource["text"], &resource["mimeType"]),
            (&json!("grüße"), &json!("text/markdown"))
        );
        let uri = resource["uri"].as_str().unwrap();
        assert!(uri.starts_with("file:///") && uri.contains("/a%20b%20"), "{uri}");
        assert!(Attachment::read("/nonexistent/file").await.is_err());
    }
}
