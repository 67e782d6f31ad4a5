//! The handshake that begins a WebSocket (RFC 6455, section 4.2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, header};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};
use trilogue_egress::WebSocket;
use trilogue_wire::native::local::SUBPROTOCOL;

use super::admission::ClientCall;
use crate::access::tickets::shown_ticket;

/// The version of the WebSocket protocol that the server speaks.
pub(super) const VERSION: &str = "13";
/// The length of the client's key, in bytes.
const KEY_BYTES: usize = 16;

/// What a client's request for a WebSocket contains.
#[derive(Debug)]
pub(super) struct Handshake {
    /// The server's answer to the client's key.
    pub(super) accept: String,
    /// Whether the client speaks the protocol of the local socket.
    pub(super) is_local_protocol: bool,
    /// The subprotocol that carries the client's ticket. A browser wants it back.
    pub(super) ticket: Option<String>,
}

// === impl Handshake ===

impl Handshake {
    /// Whether a request asks for a WebSocket. A proxy can have removed the header `Upgrade`, which is for one connection, but not the key.
    pub(super) fn is_requested(call: &ClientCall) -> bool {
        has_token(&call.headers, &header::UPGRADE, "websocket")
            || call.headers.contains_key(header::SEC_WEBSOCKET_KEY)
    }

    /// # Errors
    /// `upgrade_required` for another version of the protocol; `not_implemented` if its connection cannot become one; `invalid_request` for an invalid key.
    pub(super) fn read(call: &ClientCall) -> Result<Self> {
        let headers = &call.headers;
        let is_passed_on = has_token(headers, &header::CONNECTION, "upgrade")
            && has_token(headers, &header::UPGRADE, "websocket");
        if !call.can_upgrade || !is_passed_on {
            let message = "a WebSocket begins with a request of HTTP/1.1 and 'Connection: Upgrade'";
            return Err(Error::new(Code::NotImplemented, message)
                .hint("let a proxy pass HTTP/1.1 with both headers on"));
        }
        if call.header(&header::SEC_WEBSOCKET_VERSION) != Some(VERSION) {
            let message = "the server speaks version 13 of the WebSocket protocol only";
            return Err(
                Error::new(Code::UpgradeRequired, message).hint("send 'Sec-WebSocket-Version: 13'")
            );
        }
        let key = call.header(&header::SEC_WEBSOCKET_KEY).map(str::trim).unwrap_or_default();
        if !STANDARD.decode(key).is_ok_and(|key| key.len() == KEY_BYTES) {
            let message = "the header 'Sec-WebSocket-Key' is missing or invalid";
            return Err(
                Error::new(Code::InvalidRequest, message).hint("send 16 random bytes in base64")
            );
        }
        Ok(Self {
            accept: WebSocket::accept_key(key.as_bytes()),
            is_local_protocol: has_token(headers, &header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL),
            ticket: shown_ticket(headers).map(str::to_owned),
        })
    }
}

/// Whether a header that contains a list has this entry.
fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|entry| entry.trim().eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_that_of_the_rfc() {
        let accept = WebSocket::accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
