use super::{Code, ErrorObject, Id};

/// A line that is not a valid message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Invalid<'a> {
    pub reason: Reason,
    pub about: About<'a>,
}

/// The kind of message that an invalid line would have been.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum About<'a> {
    Request(Id<'a>),
    Notification,
    /// The response to this request that we sent. No other response follows.
    Response(Id<'a>),
    /// A message with this id that may be a request or a response.
    Unclear(Id<'a>),
    Nothing,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reason {
    #[error("the line is empty")]
    Blank,
    #[error("the line is not UTF-8")]
    NotUtf8,
    #[error("the line is not JSON")]
    NotJson,
    /// Arrays and objects are nested more than this many levels.
    #[error("the message is nested more than {0} levels deep")]
    TooDeep(usize),
    /// The parsed JSON would need far more memory than its text.
    #[error("the message has too many JSON values for its length")]
    TooComplex,
    /// The message is longer than this many bytes.
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
    #[error("the message is not an object")]
    NotAnObject,
    #[error("batches are not supported")]
    Batch,
    #[error("jsonrpc must be \"2.0\"")]
    BadVersion,
    /// The `id` is not a number, string or `null`, or is too long.
    #[error("id must be a number, a string or null, of at most 1024 bytes")]
    BadId,
    #[error("method is missing")]
    NoMethod,
    #[error("method must be a string")]
    BadMethod,
    #[error("params must be an object")]
    BadParams,
    #[error("the message is a call and a response at once")]
    CallAndResponse,
    #[error("the response has a result and an error")]
    ResultAndError,
}

// === impl Reason ===

impl Reason {
    /// Returns the reason as a short stable word, for example for a metric's label.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blank => "blank",
            Self::NotUtf8 => "not_utf8",
            Self::NotJson => "not_json",
            Self::TooDeep(_) => "too_deep",
            Self::TooComplex => "too_complex",
            Self::TooLong(_) => "too_long",
            Self::NotAnObject => "not_an_object",
            Self::Batch => "batch",
            Self::BadVersion => "bad_version",
            Self::BadId => "bad_id",
            Self::NoMethod => "no_method",
            Self::BadMethod => "bad_method",
            Self::BadParams => "bad_params",
            Self::CallAndResponse => "call_and_response",
            Self::ResultAndError => "result_and_error",
        }
    }

    pub const fn code(self) -> Code {
        match self {
            Self::Blank | Self::NotUtf8 | Self::NotJson | Self::TooDeep(_) => Code::PARSE_ERROR,
            Self::BadParams => Code::INVALID_PARAMS,
            _ => Code::INVALID_REQUEST,
        }
    }
}

// === impl Invalid ===

impl<'a> Invalid<'a> {
    pub(super) const fn nameless(reason: Reason) -> Self {
        Self { reason, about: About::Nothing }
    }

    pub fn error(&self) -> ErrorObject {
        let code = self.reason.code();
        ErrorObject::new(code, format!("{}: {}", code.text(), self.reason))
    }

    /// Returns the id and the error to send back. `None` if no reply is allowed: for blank lines, notifications and responses.
    pub fn reply(&self) -> Option<(Id<'a>, ErrorObject)> {
        let id = match &self.about {
            About::Request(id) => id.clone(),
            About::Unclear(_) => Id::NULL,
            About::Nothing if self.reason != Reason::Blank => Id::NULL,
            About::Nothing | About::Notification | About::Response(_) => return None,
        };
        Some((id, self.error()))
    }

    /// Returns our request that this invalid response ends. No other response follows.
    pub const fn answers(&self) -> Option<&Id<'a>> {
        match &self.about {
            About::Response(id) => Some(id),
            _ => None,
        }
    }

    /// Returns our request that may get no other response. The caller must check it.
    pub const fn may_answer(&self) -> Option<&Id<'a>> {
        match &self.about {
            About::Response(id) | About::Unclear(id) => Some(id),
            _ => None,
        }
    }

    pub fn into_owned(self) -> Invalid<'static> {
        let about = match self.about {
            About::Request(id) => About::Request(id.into_owned()),
            About::Response(id) => About::Response(id.into_owned()),
            About::Unclear(id) => About::Unclear(id.into_owned()),
            About::Notification => About::Notification,
            About::Nothing => About::Nothing,
        };
        Invalid { reason: self.reason, about }
    }
}
