//! Reads the head of a connection's first request, and refuses what the HTTP reader would end without a reason.
//! Requests whose meaning depends on the reader, such as those with two lengths, never get further.

use bytes::BytesMut;
use http::StatusCode;
use httparse::Status;
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::refusal::BrokerRefusal;

/// The largest head of a request, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most fields of a head.
pub(crate) const MAX_FIELDS: usize = 128;

/// Reads until the end of the head. Returns what was read, with the beginning of what follows. `None` if the client is gone.
///
/// # Errors
/// Why the request is refused.
pub(crate) async fn read_head(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<BytesMut>, BrokerRefusal> {
    let mut read = BytesMut::with_capacity(1024);
    let mut checked = 0;
    loop {
        if !stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
            return Ok(None);
        }
        let begin = checked.max(3) - 3;
        let end = read.get(begin..).and_then(|new| memmem::find(new, b"\r\n\r\n"));
        let head_end = end.map(|end| begin + end + 4);
        let length = head_end.unwrap_or(read.len());
        if length > MAX_HEAD_BYTES {
            return Err(BrokerRefusal::head_too_large(MAX_HEAD_BYTES));
        }
        let head = read.get(..length).unwrap_or_default();
        check_lines(head, checked, head_end.is_some())?;
        if head_end.is_some() {
            check_fields(head)?;
            return Ok(Some(read));
        }
        checked = length;
    }
}

/// Checks the new bytes of a head: it is text in lines that end with CR and LF.
fn check_lines(head: &[u8], checked: usize, is_whole: bool) -> Result<(), BrokerRefusal> {
    if !head.first().is_some_and(u8::is_ascii_uppercase) {
        return Err(BrokerRefusal::invalid("the connection does not begin with a request"));
    }
    for (index, byte) in head.iter().enumerate().skip(checked.saturating_sub(1)) {
        let before = index.checked_sub(1).and_then(|index| head.get(index));
        let is_last = index + 1 == head.len() && !is_whole;
        let is_valid = match byte {
            b'\n' => before == Some(&b'\r'),
            b'\r' => is_last || head.get(index + 1) == Some(&b'\n'),
            0 => false,
            _ => true,
        };
        if !is_valid {
            return Err(BrokerRefusal::invalid(
                "a line of the request does not end with CR and LF",
            ));
        }
    }
    Ok(())
}

/// Checks the fields of a whole head.
fn check_fields(head: &[u8]) -> Result<(), BrokerRefusal> {
    if head.starts_with(b"PRI * HTTP/2.0") {
        return Err(BrokerRefusal::invalid("the proxy speaks HTTP/1.1; HTTP/2 needs a tunnel"));
    }
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(BrokerRefusal::invalid("the request has too many fields"));
        }
        Ok(Status::Partial) | Err(_) => {
            return Err(BrokerRefusal::invalid("the request is malformed"));
        }
    }
    let values = |name: &str| -> Vec<&[u8]> {
        let named = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value).collect()
    };
    let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
    if lengths.len() + codings.len() > 1 {
        return Err(BrokerRefusal::invalid("the request has two lengths"));
    }
    if lengths.iter().any(|length| !length.iter().all(u8::is_ascii_digit)) {
        return Err(BrokerRefusal::invalid("the length of the request is not a number"));
    }
    if codings.iter().any(|coding| !coding.eq_ignore_ascii_case(b"chunked")) {
        return Err(BrokerRefusal::invalid("the only transfer coding is chunked"));
    }
    if values("host").len() > 1 {
        return Err(BrokerRefusal::invalid("the request has two hosts"));
    }
    Ok(())
}

// === impl BrokerRefusal ===

impl BrokerRefusal {
    fn head_too_large(limit: usize) -> Self {
        let message = format!("the head of the request has more than {limit} bytes");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Self::new(status, "request_head_too_large", message, "send shorter fields")
    }
}
