//! Streamed chats of `OpenAI` report usage only to those who ask. The broker asks in the place of the client, and takes the answer out again: many clients do not expect it.

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::MAX_EVENT_BYTES;

/// The members of a request for a chat that matter here.
#[derive(Deserialize)]
struct ChatRequest {
    #[serde(default)]
    stream: Option<bool>,
    /// Also if they are `null`: a second member of the name could be refused.
    #[serde(default, rename = "stream_options", deserialize_with = "is_present")]
    has_options: bool,
}

/// An event with usage has no choices.
#[derive(Deserialize)]
struct ChatEvent {
    choices: Vec<IgnoredAny>,
    usage: Option<IgnoredAny>,
}

/// Takes the event with usage out of a stream.
#[derive(Debug, Default)]
pub(super) struct AnswerFilter {
    /// The beginning of an event.
    held: BytesMut,
    /// Whether the rest passes as it is.
    is_over: bool,
}

fn is_present<'de, D: Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

/// Returns a request for a chat with the question for usage. `None` if it needs none, or has one.
pub(crate) fn ask_for_usage(request: &[u8]) -> Option<Bytes> {
    let read: ChatRequest = serde_json::from_slice(request).ok()?;
    if read.stream != Some(true) || read.has_options {
        return None;
    }
    let begin = request.iter().position(|byte| *byte == b'{')? + 1;
    let (before, after) = request.split_at(begin);
    let question = b"\"stream_options\":{\"include_usage\":true},";
    let mut asking = Vec::with_capacity(request.len() + question.len());
    asking.extend_from_slice(before);
    asking.extend_from_slice(question);
    asking.extend_from_slice(after);
    Some(asking.into())
}

// === impl AnswerFilter ===

impl AnswerFilter {
    /// Returns the complete events up to here, without that with usage.
    pub(super) fn pass(&mut self, piece: Bytes) -> Bytes {
        if self.is_over {
            return piece;
        }
        self.held.extend_from_slice(&piece);
        let mut shown = BytesMut::new();
        while let Some(end) = event_end(&self.held) {
            let event = self.held.split_to(end);
            match is_answer(&event) {
                // The rest is the end of the stream.
                true => self.is_over = true,
                false => shown.extend_from_slice(&event),
            }
        }
        if self.is_over || self.held.len() > MAX_EVENT_BYTES {
            self.is_over = true;
            shown.extend_from_slice(&self.held.split());
        }
        shown.freeze()
    }

    /// Returns what has no end.
    pub(super) fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

/// Returns where the first event ends, behind its empty line.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let ends: [&[u8]; 2] = [b"\n\n", b"\r\n\r\n"];
    ends.iter().filter_map(|end| Some(memmem::find(bytes, end)? + end.len())).min()
}

fn is_answer(event: &[u8]) -> bool {
    let Some(data) = event.strip_prefix(b"data:") else { return false };
    let read = serde_json::from_slice::<ChatEvent>(data.trim_ascii());
    read.is_ok_and(|event| event.choices.is_empty() && event.usage.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_streamed_chat_without_a_question_gets_one() {
        let asked = ask_for_usage(br#" {"stream": true, "model": "g"}"#).unwrap();
        let asked: serde_json::Value = serde_json::from_slice(&asked).unwrap();
        let whole = serde_json::json!({
            "stream": true, "model": "g", "stream_options": { "include_usage": true },
        });
        assert_eq!(asked, whole);
        for request in [
            r#"{"model":"g"}"#,
            r#"{"stream":false}"#,
            r#"{"stream":true,"stream_options":{"include_usage":false}}"#,
            r#"{"stream":true,"stream_options":null}"#,
            "[]",
            "no JSON",
        ] {
            assert_eq!(ask_for_usage(request.as_bytes()), None, "{request}");
        }
    }

    #[test]
    fn the_answer_is_taken_out_however_the_stream_is_cut() {
        let stream = "data: {\"choices\":[{\"delta\":{}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\ndata: [DONE]\n\n";
        let expected = "data: {\"choices\":[{\"delta\":{}}],\"usage\":null}\n\ndata: [DONE]\n\n";
        for size in 1..stream.len() {
            let mut filter = AnswerFilter::default();
            let mut shown = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                shown.extend_from_slice(&filter.pass(Bytes::copy_from_slice(piece)));
            }
            shown.extend_from_slice(&filter.finish());
            assert_eq!(String::from_utf8(shown).unwrap(), expected, "{size}");
        }
    }
}
