use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Content, Error, Input, Json, Message, MessageId, Part, Role};
use trilogue_wire::agent_client::{
    ContentBlock, EmbeddedResource, PromptCapabilities, ResourceContents, ResourceLink, Rules,
    TextContent, read_checked,
};

use super::block::{self, Extension, citation_block, fenced, part_of, push_block, with_citation};
use crate::{citation, shape};

const CONTEXT: &str = "Earlier in this conversation:\n\n";
/// The first block of a prompt whose context omits earlier messages.
pub const HISTORY_CUT: &str = "The first messages of this conversation are left out here, because all of them are too long.\n\n";
/// The shortest prefix of these texts by which a title is recognised, in bytes.
const MIN_PRIMING_BYTES: usize = 10;
const CONTEXT_END: &str = "The message to answer follows.";

/// Converts a prompt to the user's message. The caller sets the times.
pub fn message_of_prompt(blocks: &[ContentBlock], id: MessageId) -> Message {
    let parts = blocks.iter().map(part_of_block).collect();
    Message { id, role: Role::User, parts, created_at: None, completed_at: None }
}

/// Converts a block to a part that can be converted back to the same block.
pub fn part_of_block(block: &ContentBlock) -> Part {
    let raw = serde_json::to_string(block).unwrap_or_default();
    part_of(&raw).unwrap_or_else(|| block::whole(&raw))
}

/// Converts a message to blocks: its original ones, if it came from this protocol.
pub fn blocks_of_message(message: &Message) -> Vec<ContentBlock> {
    blocks_of(&message.parts, Extension::Off)
}

/// Converts an answer to blocks, for clients that see it as a message.
pub fn blocks_of_answer(answer: &Answer) -> Vec<ContentBlock> {
    let text = match answer {
        Answer::Message(parts) => return blocks_of(parts, Extension::Off),
        Answer::Json(value) => match value.to_value() {
            serde_json::Value::String(text) => text,
            _ => value.as_str().to_owned(),
        },
        Answer::Option(option) => option.clone(),
    };
    vec![ContentBlock::Text(TextContent::new(text))]
}

/// Converts parts to blocks. With the extension every part is preserved; without it, parts that no block can show are left out.
pub fn blocks_of(parts: &[Part], extension: Extension) -> Vec<ContentBlock> {
    let mut raw = String::new();
    let blocks = parts.iter().filter_map(|part| {
        raw.clear();
        // The stored content belongs to no thread here.
        push_block(part, extension, "", &mut raw)
            .then(|| read_checked(&raw, Rules::Lenient).ok())?
    });
    blocks.collect()
}

/// How a hosted agent gets the citations of a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Citations {
    /// As text after the message.
    #[default]
    Text,
    /// Under `_meta` of the blocks that they belong to.
    Meta,
}

/// Returns the prompt for an input: the last message of the user. Earlier messages, in `missed` and in the input, precede it as context.
pub fn prompt_of_input(
    input: &Input,
    missed: &[Message],
    citations: Citations,
) -> Vec<ContentBlock> {
    let messages = match input {
        Input::Messages(messages) => messages.as_slice(),
        Input::Value(value) => {
            let mut blocks = context(missed.iter(), citations);
            blocks.push(ContentBlock::text(in_words(value)));
            return blocks;
        }
    };
    let last = messages.iter().rposition(|message| message.role.is_user());
    let last = last.or_else(|| messages.len().checked_sub(1));
    let before = messages.iter().enumerate().filter(|(place, _)| Some(*place) != last);
    let before = before.map(|(_, message)| message);
    let mut blocks = context(missed.iter().chain(before), citations);
    if let Some(prompt) = last.and_then(|place| messages.get(place)) {
        blocks.extend(cited_blocks(&prompt.parts, citations));
    }
    blocks
}

/// Converts parts to blocks for an agent, with their citations.
fn cited_blocks(parts: &[Part], citations: Citations) -> Vec<ContentBlock> {
    let mut blocks = Vec::new();
    for part in parts {
        let Some(cited) = citation::whole(part) else {
            blocks.extend(blocks_of(std::slice::from_ref(part), Extension::Off));
            continue;
        };
        let raw = match (citations, part.content == Content::Empty) {
            (Citations::Text, true) => None,
            (Citations::Meta, true) => citation_block(part),
            (_, false) => {
                let mut raw = String::new();
                let is_shown = push_block(part, Extension::Off, "", &mut raw);
                is_shown.then(|| match citations {
                    Citations::Text => raw,
                    Citations::Meta => with_citation(&raw, &cited),
                })
            }
        };
        blocks.extend(raw.and_then(|raw| read_checked(&raw, Rules::Lenient).ok()));
    }
    let notes = match citations {
        Citations::Text => citation::footnotes(parts),
        Citations::Meta => None,
    };
    blocks.extend(notes.map(ContentBlock::text));
    blocks
}

/// Whether a title was derived from the text that this server puts before a prompt. The agent may have shortened it or enclosed it in marks.
pub(super) fn is_priming_text(title: &str) -> bool {
    let is_mark = |letter: char| !letter.is_alphanumeric();
    let title = title.trim_matches(is_mark);
    let shortest = title.len() >= MIN_PRIMING_BYTES;
    [CONTEXT, HISTORY_CUT].into_iter().any(|priming| {
        let priming = priming.trim_matches(is_mark);
        title.contains(priming) || shortest && priming.starts_with(title)
    })
}

/// Returns a value for people and models: its text if it has one, otherwise its JSON.
pub(super) fn in_words(value: &Json) -> String {
    let parts = shape::output(value);
    match parts.first() {
        Some(Part { content: trilogue_domain::Content::Text(text), content_type, .. })
            if content_type.starts_with("text/") =>
        {
            text.to_string()
        }
        _ => fenced(value.as_str()),
    }
}

/// Returns messages as a prompt's context: their text as one block, interrupted by other content.
fn context<'a>(
    messages: impl Iterator<Item = &'a Message>,
    citations: Citations,
) -> Vec<ContentBlock> {
    let (mut blocks, mut text) = (Vec::new(), String::new());
    for message in messages {
        if blocks.is_empty() && text.is_empty() {
            text.push_str(CONTEXT);
        }
        match &message.role {
            Role::User => text.push_str("User: "),
            Role::Agent => text.push_str("Agent: "),
            Role::NamedAgent(name) => {
                text.push_str("Agent ");
                text.push_str(name);
                text.push_str(": ");
            }
        }
        for block in cited_blocks(&message.parts, citations) {
            match block {
                ContentBlock::Text(said) if citations == Citations::Text || said.meta.is_none() => {
                    text.push_str(&said.text);
                }
                other => {
                    blocks.push(ContentBlock::text(std::mem::take(&mut text)));
                    blocks.push(other);
                }
            }
        }
        text.push_str("\n\n");
    }
    if !text.is_empty() {
        text.push_str(CONTEXT_END);
        blocks.push(ContentBlock::text(text));
    }
    blocks
}

/// Checks that the agent accepts all of these blocks; fails with `invalid_input`, naming the block and the missing capability.
pub fn check_capabilities(blocks: &[ContentBlock], caps: &PromptCapabilities) -> Result<()> {
    let lacks = |block: &ContentBlock| match block {
        ContentBlock::Image(_) => (!caps.image).then_some("image"),
        ContentBlock::Audio(_) => (!caps.audio).then_some("audio"),
        ContentBlock::Resource(_) => (!caps.embedded_context).then_some("embeddedContext"),
        ContentBlock::Text(_) | ContentBlock::ResourceLink(_) | ContentBlock::Other(_) => None,
    };
    for (place, block) in blocks.iter().enumerate() {
        let Some(capability) = lacks(block) else { continue };
        let kind = block.kind();
        let message = format!(
            "the prompt's block {place} is of the type '{kind}', which the agent does not take"
        );
        let hint = match capability {
            "embeddedContext" => {
                "its prompt capabilities lack 'embeddedContext': send a link to the resource, or its text".to_owned()
            }
            _ => format!("its prompt capabilities lack '{capability}': leave the block out, or send a link"),
        };
        return Err(Error::new(Code::InvalidInput, message).hint(hint));
    }
    Ok(())
}

/// Converts blocks to a form that the agent accepts: without `embeddedContext` an embedded resource becomes a link if it can be reached, otherwise its text. Other blocks stay, and [`check_capabilities`] refuses them.
pub fn fit(blocks: Vec<ContentBlock>, caps: &PromptCapabilities) -> Vec<ContentBlock> {
    if caps.embedded_context {
        return blocks;
    }
    let fitted = blocks.into_iter().map(|block| match block {
        ContentBlock::Resource(resource) => fit_resource(*resource),
        other => other,
    });
    fitted.collect()
}

fn fit_resource(resource: EmbeddedResource) -> ContentBlock {
    let uri = resource.resource.uri();
    let is_address = ["file:", "http:", "https:"].iter().any(|scheme| uri.starts_with(scheme));
    if is_address {
        let mut link = ResourceLink::new(uri, block::file_name(uri));
        link.mime_type = match &resource.resource {
            ResourceContents::Text(text) => text.mime_type.clone(),
            ResourceContents::Blob(blob) => blob.mime_type.clone(),
        };
        link.annotations = resource.annotations;
        return ContentBlock::ResourceLink(Box::new(link));
    }
    match resource.resource {
        ResourceContents::Text(text) => {
            ContentBlock::text(format!("{}:\n\n{}", text.uri, text.text))
        }
        contents @ ResourceContents::Blob(_) => {
            ContentBlock::Resource(Box::new(EmbeddedResource { resource: contents, ..resource }))
        }
    }
}
