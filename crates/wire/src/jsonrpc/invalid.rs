use super::{Code, ErrorObject, Id};

/// A line that is no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Invalid<'a> {
    /// What is wrong with it.
    pub reason: Reason,
    /// What it would have been.
    pub about: About<'a>,
}

/// What a line would have been if nothing were wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum About<'a> {
    /// A request, whose sender waits.
    Request(Id<'a>),
    /// A notification.
    Notification,
    /// The response to this request of ours, which gets no other.
    Response(Id<'a>),
    /// It has this id, and nobody can say whether it asks or answers.
    Unclear(Id<'a>),
    /// Nobody can say.
    Nothing,
}

/// Why a line is no message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Reason {
    /// There is nothing in it.
    #[error("the line is empty")]
    Blank,
    /// It is not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// It is not JSON.
    #[error("the line is not JSON")]
    NotJson,
    /// Its arrays and objects lie more than this many levels deep in each other.
    #[error("the message is nested more than {0} levels deep")]
    TooDeep(usize),
    /// It is longer than this many bytes.
    #[error("the message is longer than {0} bytes")]
    TooLong(usize),
    /// It is JSON, but no object.
    #[error("the message is not an object")]
    NotAnObject,
    /// It is an array of messages.
    #[error("batches are not supported")]
    Batch,
    /// Its `jsonrpc` is not `"2.0"`.
    #[error("jsonrpc must be \"2.0\"")]
    BadVersion,
    /// Its `id` is no number, string or `null`, or too long.
    #[error("id must be a number, a string or null, of at most 1024 bytes")]
    BadId,
    /// It is neither a call nor a response.
    #[error("method is missing")]
    NoMethod,
    /// Its `method` is not a string.
    #[error("method must be a string")]
    BadMethod,
    /// Its `params` are neither an object nor an array.
    #[error("params must be an object")]
    BadParams,
    /// It has a `method` and a `result` or an `error`.
    #[error("the message is a call and a response at once")]
    CallAndResponse,
    /// It has a `result` and an `error`.
    #[error("the response has a result and an error")]
    ResultAndError,
}

// === impl Reason ===

impl Reason {
    /// The error that a line of this kind is answered with.
    #[must_use]
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
    /// A line of which nothing is known but what is wrong with it.
    pub(super) const fn nameless(reason: Reason) -> Self {
        Self { reason, about: About::Nothing }
    }

    /// The error: its code's text, what is wrong, and nothing of the line.
    #[must_use]
    pub fn error(&self) -> ErrorObject {
        let code = self.reason.code();
        ErrorObject::new(code, format!("{}: {}", code.text(), self.reason))
    }

    /// What to send back: the id and the error. `None` where nothing may be sent: for blank lines, notifications and responses.
    #[must_use]
    pub fn reply(&self) -> Option<(Id<'a>, ErrorObject)> {
        let id = match &self.about {
            About::Request(id) => id.clone(),
            About::Unclear(_) => Id::NULL,
            About::Nothing if self.reason != Reason::Blank => Id::NULL,
            About::Nothing | About::Notification | About::Response(_) => return None,
        };
        Some((id, self.error()))
    }

    /// The request of ours that gets no other answer than this one.
    #[must_use]
    pub const fn answers(&self) -> Option<&Id<'a>> {
        match &self.about {
            About::Response(id) => Some(id),
            _ => None,
        }
    }

    /// The request of ours that may get no other answer than this one: whoever waits for it knows.
    #[must_use]
    pub const fn may_answer(&self) -> Option<&Id<'a>> {
        match &self.about {
            About::Response(id) | About::Unclear(id) => Some(id),
            _ => None,
        }
    }

    /// The same, to be kept.
    #[must_use]
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
