//! Messages that grow: text, parts, and citations by character index.

use std::sync::Arc;

use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, Citation, MessageId, Part, PartMetadata, Times, Trajectory, limits};

use super::{Context, MAX_UNFINISHED};
use crate::error::AgentError;

/// A message under the author's control, from [`Context::message`]. Several messages can grow at the same time.
///
/// If you drop it without [`MessageWriter::finish`], the message is closed when the turn ends well.
#[derive(Debug)]
pub struct MessageWriter {
    context: Context,
    /// `None` once the message is finished.
    cursor: Option<Cursor>,
    id: MessageId,
}

/// The source of a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Source {
    url: Option<String>,
    title: Option<String>,
    description: Option<String>,
}

#[derive(Debug)]
pub(super) struct Cursor {
    id: MessageId,
    /// The number of characters in the message's `text/*` parts so far. Citations use this unit.
    characters: u64,
    parts: usize,
}

// === impl MessageWriter ===

impl MessageWriter {
    pub(super) fn new(context: Context, cursor: Cursor) -> Self {
        Self { context, id: cursor.id.clone(), cursor: Some(cursor) }
    }

    /// Returns the message's id.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        &self.id
    }

    /// Returns the number of characters in the message's `text/*` parts so far, including artifacts: the index of the next character.
    #[must_use]
    pub fn characters(&self) -> u64 {
        self.cursor.as_ref().map_or(0, |cursor| cursor.characters)
    }

    /// Appends text.
    pub async fn text(&mut self, text: &str) -> Result<(), AgentError> {
        match &mut self.cursor {
            Some(cursor) => cursor.text(&self.context, text).await,
            None => Ok(()),
        }
    }

    /// Appends a whole part.
    pub async fn part(&mut self, part: Part) -> Result<(), AgentError> {
        match &mut self.cursor {
            Some(cursor) => cursor.part(&self.context, part).await,
            None => Ok(()),
        }
    }

    /// Appends an artifact: a part with a name.
    pub async fn artifact(&mut self, name: &str, part: Part) -> Result<(), AgentError> {
        self.part(part.with_name(name)).await
    }

    /// Appends text and cites the source of exactly this text.
    pub async fn cite(&mut self, text: &str, source: Source) -> Result<(), AgentError> {
        match &mut self.cursor {
            Some(cursor) => cursor.cite(&self.context, text, source).await,
            None => Ok(()),
        }
    }

    /// Cites a source for a range of the message's text. The range counts characters of the `text/*` parts from 0 and excludes its end.
    pub async fn citation(
        &mut self,
        range: std::ops::Range<u64>,
        source: Source,
    ) -> Result<(), AgentError> {
        self.part(source.for_range(range)).await
    }

    /// Appends a step of the agent to the message.
    pub async fn trajectory(&mut self, step: Trajectory) -> Result<(), AgentError> {
        self.part(trajectory(step)).await
    }

    /// Completes the message.
    pub async fn finish(mut self) -> Result<(), AgentError> {
        match self.cursor.take() {
            Some(cursor) => cursor.complete(&self.context).await,
            None => Ok(()),
        }
    }
}

impl Drop for MessageWriter {
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            let mut unfinished = self.context.unfinished();
            if unfinished.messages.len() < MAX_UNFINISHED {
                unfinished.messages.push(cursor.id);
            }
        }
    }
}

// === impl Cursor ===

impl Cursor {
    /// Begins a message. Set `times` if its times differ from the log's times.
    pub(super) async fn open(context: &Context, times: Option<Times>) -> Result<Self, AgentError> {
        let id = MessageId::generate();
        let (message, role) = (id.clone(), context.shared.role.clone());
        context.emit(Body::Message(MessageEvent::Started { message, role, times })).await?;
        context.set_last_message(id.clone());
        Ok(Self { id, characters: 0, parts: 0 })
    }

    pub(super) async fn text(&mut self, context: &Context, text: &str) -> Result<(), AgentError> {
        for piece in pieces(text) {
            let (message, text) = (self.id.clone(), Arc::from(piece));
            context.emit(Body::Message(MessageEvent::Delta { message, text })).await?;
            self.characters += characters(piece);
        }
        Ok(())
    }

    pub(super) async fn part(&mut self, context: &Context, part: Part) -> Result<(), AgentError> {
        if self.parts == limits::MAX_PARTS_PER_MESSAGE {
            return Err(trilogue_domain::Error::new(
                trilogue_domain::Code::TooManyParts,
                format!("the message '{}' has {} parts already", self.id, self.parts),
            )
            .hint("begin another message")
            .into());
        }
        // Artifacts count too: the citation index covers all text parts.
        let said = part.as_text().map_or(0, characters);
        let message = self.id.clone();
        context.emit(Body::Message(MessageEvent::Part { message, part })).await?;
        self.parts += 1;
        self.characters += said;
        Ok(())
    }

    pub(super) async fn cite(
        &mut self,
        context: &Context,
        text: &str,
        source: Source,
    ) -> Result<(), AgentError> {
        let start = self.characters;
        self.text(context, text).await?;
        self.part(context, source.for_range(start..self.characters)).await
    }

    pub(super) async fn complete(self, context: &Context) -> Result<(), AgentError> {
        context.emit(Body::Message(MessageEvent::Completed { message: self.id })).await
    }
}

// === impl Source ===

impl Source {
    /// Returns a source with a URL.
    #[must_use]
    pub fn url(url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Returns a source with a title and no URL.
    #[must_use]
    pub fn titled(title: impl Into<String>) -> Self {
        Self::default().title(title)
    }

    /// Sets the title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// Sets the description or snippet.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    fn for_range(self, range: std::ops::Range<u64>) -> Part {
        Part::annotation(PartMetadata::Citation(Citation {
            start_index: i64::try_from(range.start).ok(),
            end_index: i64::try_from(range.end).ok(),
            url: self.url,
            title: self.title,
            description: self.description,
        }))
    }
}

pub(super) fn trajectory(step: Trajectory) -> Part {
    Part::annotation(PartMetadata::Trajectory(step))
}

/// Splits text into pieces that fit one event, at character boundaries.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(limits::INLINE_CONTENT_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, after) = rest.split_at_checked(end)?;
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn characters(text: &str) -> u64 {
    // The character count of text in memory fits 64 bits.
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters_and_loses_nothing() {
        for text in ["", "short", &"ä€𝄞".repeat(limits::INLINE_CONTENT_BYTES / 4)] {
            let cut: Vec<_> = pieces(text).collect();
            assert_eq!(cut.concat(), text);
            assert!(cut.iter().all(|piece| piece.len() <= limits::INLINE_CONTENT_BYTES));
        }
    }
}
