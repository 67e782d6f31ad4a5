//! What providers report about the tokens of a request, read while the response streams.
//!
//! | file | what it reads |
//! |---|---|
//! | `report.rs` | the objects of each dialect |
//! | `question.rs` | streamed chats, which report usage only if they are asked for it |

mod question;
mod report;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use trilogue_wire::sse::{Decoder, Item, Limits};

use question::AnswerFilter;
pub(crate) use question::ask_for_usage;
use report::{Report, read_report};

use crate::access::Dialect;
use crate::prices::PriceTable;

/// The largest event that is read, in bytes. Longer ones pass unread. The decoder holds a line beside it.
const MAX_EVENT_BYTES: usize = 512 * 1024;
/// The largest response in one piece that is read, in bytes. Larger ones pass unread.
const MAX_WHOLE_BYTES: usize = 1024 * 1024;
/// The last events of streams. Clients end their connection behind them.
const LAST_EVENTS: [&str; 4] =
    ["message_stop", "response.completed", "response.incomplete", "response.failed"];
/// The data of the last event of a chat.
const LAST_DATA: &str = "[DONE]";
/// The longest name of a model, in bytes.
const MAX_MODEL_BYTES: usize = 256;

/// What a request to a provider has used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestUsage {
    /// The name of the key.
    pub key: String,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// The status of the response.
    pub status: u16,
    /// `None` if the provider has reported none that can be read.
    pub tokens: Option<TokenCounts>,
    /// In millionths of a dollar, by the price table. `None` if the model is not in it.
    pub cost_micros: Option<u64>,
    /// Whether the response came to its end.
    pub is_complete: bool,
}

/// Tokens, each counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenCounts {
    /// Those of the input that were not in a cache.
    pub input: u64,
    /// Those of the answer, with those of its reasoning.
    pub output: u64,
    /// Those of the input that were in a cache.
    pub cached_read: u64,
    /// Those of the input that were written to a cache.
    pub cache_write: u64,
}

/// Reads the usage of a response that passes.
#[derive(Debug)]
pub(crate) struct UsageReader {
    dialect: Dialect,
    status: StatusCode,
    form: ResponseForm,
    report: Report,
    filter: Option<AnswerFilter>,
    has_ended: bool,
}

#[derive(Debug)]
enum ResponseForm {
    Events(Box<Decoder>),
    Whole(Vec<u8>),
    /// It is too large, or not readable.
    Unread,
}

// === impl UsageReader ===

impl UsageReader {
    /// `has_asked` says that the broker has asked for the usage in the place of the client.
    pub(crate) fn new(
        dialect: Dialect,
        status: StatusCode,
        headers: &HeaderMap,
        has_asked: bool,
    ) -> Self {
        let kind = headers.get(CONTENT_TYPE).and_then(|field| field.to_str().ok());
        let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
        let form = match (dialect, is_stream) {
            (Dialect::Unknown, _) => ResponseForm::Unread,
            (_, true) => {
                let limits =
                    Limits { max_line_bytes: MAX_EVENT_BYTES, max_event_bytes: MAX_EVENT_BYTES };
                ResponseForm::Events(Box::new(Decoder::new(limits)))
            }
            (_, false) => ResponseForm::Whole(Vec::new()),
        };
        let filter = (has_asked && is_stream).then(AnswerFilter::default);
        Self { dialect, status, form, report: Report::default(), filter, has_ended: false }
    }

    /// Reads a piece of the response. Returns what the client gets.
    pub(crate) fn read(&mut self, piece: Bytes) -> Bytes {
        match &mut self.form {
            ResponseForm::Events(decoder) => {
                decoder.push(&piece);
                loop {
                    match decoder.next() {
                        Ok(Some(Item::Event { event, data, .. })) => {
                            self.has_ended |=
                                data == LAST_DATA || LAST_EVENTS.contains(&event.as_str());
                            self.report.add(read_report(self.dialect, data.as_bytes()));
                        }
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => {
                            self.form = ResponseForm::Unread;
                            break;
                        }
                    }
                }
            }
            ResponseForm::Whole(whole) if whole.len() + piece.len() <= MAX_WHOLE_BYTES => {
                whole.extend_from_slice(&piece);
            }
            ResponseForm::Whole(_) => self.form = ResponseForm::Unread,
            ResponseForm::Unread => {}
        }
        match &mut self.filter {
            Some(filter) => filter.pass(piece),
            None => piece,
        }
    }

    /// Notes the end of the response. Returns the rest of what the client gets.
    pub(crate) fn finish(&mut self) -> Bytes {
        let has_ended = std::mem::replace(&mut self.has_ended, true);
        if !has_ended && let ResponseForm::Whole(whole) = &self.form {
            self.report.add(read_report(self.dialect, whole));
        }
        self.filter.as_mut().map(AnswerFilter::finish).unwrap_or_default()
    }

    /// Returns what the request has used, as far as it was read.
    pub(crate) fn usage(self, key: &str, prices: &PriceTable) -> RequestUsage {
        let Report { model, tokens } = self.report;
        let model = model.filter(|model| !model.is_empty() && model.len() <= MAX_MODEL_BYTES);
        let cost_micros = model.as_deref().zip(tokens.as_ref());
        RequestUsage {
            key: key.to_owned(),
            cost_micros: cost_micros.and_then(|(model, tokens)| prices.cost(model, tokens)),
            model,
            status: self.status.as_u16(),
            tokens,
            is_complete: self.has_ended,
        }
    }
}
