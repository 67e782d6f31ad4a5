use super::{About, Id, Invalid, Reason};
use crate::json::{scan::members, text};

/// How much of the beginning of a too long line is examined, in bytes.
pub const HEAD_BYTES: usize = 64 * 1024;

/// A line that is too long. It was skipped; reading continues after it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the message is longer than {limit} bytes")]
pub struct Oversize {
    pub limit: usize,
    /// The method, if the head of the line contains it.
    pub method: Option<String>,
    /// The session in the params, if the head contains it.
    pub session: Option<String>,
    /// The kind of message, according to its head.
    pub about: About<'static>,
}

// === impl Oversize ===

impl Oversize {
    pub(super) fn of(line: &[u8], limit: usize) -> Self {
        let head = line.get(..HEAD_BYTES.min(limit)).unwrap_or(line);
        let head = match std::str::from_utf8(head) {
            Ok(head) => head,
            Err(error) => {
                let valid = head.get(..error.valid_up_to()).unwrap_or_default();
                std::str::from_utf8(valid).unwrap_or_default()
            }
        };
        let head = head.strip_prefix('\u{feff}').unwrap_or(head);
        let (mut id, mut method, mut session, mut answers, mut end) = (None, None, None, false, 0);
        for member in members(head) {
            // A value that ends with the head may be cut off.
            if member.span.end == head.len() {
                break;
            }
            match &*member.key {
                "id" => id = Id::of(member.value).map(Id::into_owned),
                "method" => method = text::decode(member.value).map(String::from),
                "params" => session = session_in(member.value),
                "result" | "error" => answers = true,
                _ => {}
            }
            end = member.span.end;
        }
        let rest = head.get(end..).unwrap_or_default();
        let cut = cut_key(rest);
        if cut == Some("params") {
            session = session_in(cut_value(rest));
        }
        let asks = method.is_some() || cut == Some("params");
        answers |= matches!(cut, Some("result" | "error"));
        // A response to our request must never count as a request, because the peer has its own ids.
        let about = match id {
            Some(id) if answers && !asks => About::Response(id),
            Some(id) if asks && !answers => About::Request(id),
            _ => About::Nothing,
        };
        Self { limit, method, session, about }
    }

    /// Returns the invalid message for this line: its error, its reply, and our request that it would have answered.
    pub fn invalid(&self) -> Invalid<'static> {
        Invalid { reason: Reason::TooLong(self.limit), about: self.about.clone() }
    }
}

/// Returns the name of the member that is cut off here.
fn cut_key(rest: &str) -> Option<&str> {
    let name = rest.trim_start_matches([' ', '\t', '\r', ',', '{']).strip_prefix('"')?;
    name.split_once('"').map(|(name, _)| name)
}

/// Returns the available part of the value whose member is cut off here.
fn cut_value(rest: &str) -> &str {
    let value = rest.trim_start_matches([' ', '\t', '\r', ',', '{']).get(1..).unwrap_or_default();
    let value = value.split_once('"').map_or("", |(_, value)| value);
    value.trim_start_matches([' ', '\t', '\r', ':'])
}

/// Returns the session in the params, which may be cut off.
fn session_in(params: &str) -> Option<String> {
    let mut whole = members(params).filter(|member| member.span.end < params.len());
    let named = whole.find(|member| member.key == "sessionId")?;
    text::decode(named.value).map(String::from)
}
