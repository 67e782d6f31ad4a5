//! Prompts that answer a question in words: how they are known when they come again.

use serde_json::json;
use sha2::{Digest, Sha256};
use trilogue_domain::error::Result;
use trilogue_domain::event::{Event, StateEvent};
use trilogue_domain::{Answer, Body, Content, InterruptId, Json, MessageId};
use trilogue_mapping::native::hex;
use trilogue_store::Range;

use super::link::Link;
use super::session::Session;

/// The kind of the event that keeps what such a prompt is known by.
const KIND: &str = "answer_message";
/// How much of a log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// A message that answers a question, as the log notes it before the answer, which may still come too late. In older logs it is the only trace of the message's id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) interrupt: InterruptId,
    pub(super) message: MessageId,
    /// What tells its answer from another one.
    pub(super) words: Option<String>,
    /// The key of its prompt and the digest of what that carried, where the client gave it one.
    pub(super) key: Option<(String, String)>,
    /// The client that said it, where it comes back after a connection has broken.
    pub(super) client: Option<String>,
}

// === impl Said ===

impl Said {
    /// The event that keeps it.
    pub(super) fn body(&self) -> Body {
        let mut data = json!({
            "interrupt": self.interrupt.as_str(),
            "message": self.message.as_str(),
            "words": self.words,
        });
        if let Some((key, digest)) = &self.key {
            data["key"] = key.as_str().into();
            data["digest"] = digest.as_str().into();
        }
        if let Some(client) = &self.client {
            data["client"] = client.as_str().into();
        }
        Body::State(StateEvent::Custom { kind: KIND.to_owned(), data: Json::from_value(&data) })
    }

    /// What such an event keeps. `None` where it is another one.
    pub(super) fn read(event: &Event) -> Option<Self> {
        let Body::State(StateEvent::Custom { kind, data }) = &event.body else { return None };
        if kind != KIND || event.original.is_some() {
            return None;
        }
        let data = data.to_value();
        let text = |key: &str| data.get(key)?.as_str();
        let owned = |key: &str| text(key).map(str::to_owned);
        Some(Self {
            interrupt: InterruptId::parse(text("interrupt")?).ok()?,
            message: MessageId::parse(text("message")?).ok()?,
            words: owned("words"),
            key: owned("key").zip(owned("digest")),
            client: owned("client"),
        })
    }

    /// Whether this may be what the question was answered with.
    pub(super) fn is(&self, answer: &Answer) -> bool {
        self.words.as_ref().is_none_or(|known| *known == words(answer))
    }
}

/// What tells an answer from another one.
pub(super) fn words(answer: &Answer) -> String {
    let mut digest = Sha256::new();
    match answer {
        Answer::Option(option) => digest.update(option),
        Answer::Json(json) => digest.update(json.to_value().to_string()),
        // What else it carries may be stored apart.
        Answer::Message(parts) => {
            for part in parts {
                if let Content::Text(text) = &part.content {
                    digest.update(text.as_bytes());
                }
            }
        }
    }
    hex(&digest.finalize())
}

/// Everything of that kind with a key in a session's log, oldest first.
///
/// # Errors
/// What reading can fail with.
pub(super) async fn keyed(link: &Link, session: &Session) -> Result<Vec<Said>> {
    let (mut found, mut after) = (Vec::new(), 0);
    let kind = memchr::memmem::Finder::new(KIND);
    loop {
        let range = Range { run: None, after, max_bytes: READ_BYTES };
        let frames = link.read().frames(&session.thread, range).await?;
        let Some(last) = frames.last().map(|frame| frame.last()) else { return Ok(found) };
        for frame in frames.iter().filter(|frame| kind.find(frame.bytes()).is_some()) {
            let said = frame.events()?.iter().filter_map(Said::read);
            found.extend(said.filter(|said| said.key.is_some()));
        }
        after = last;
    }
}
