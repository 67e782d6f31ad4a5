//! Opens a WebSocket.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use url::Url;

use super::{WebSocket, WebSocketOptions, WebSocketRole};
use crate::client::{Client, to_error};
use crate::error::Error;

/// The largest body of a refusal that is kept, in bytes.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;
/// How long the body of a refusal may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    /// Opens a WebSocket, and returns the headers of the response too. The request has the address, which may begin with `ws`, `wss`, `http`
    /// or `https`, and headers of the caller, such as `authorization` or `sec-websocket-protocol`.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::NotUpgraded`] if the server answers with another status than 101. A redirect is such an answer.
    pub async fn open_websocket(
        &self,
        request: Request<()>,
        options: &WebSocketOptions,
    ) -> Result<(HeaderMap, WebSocket), Error> {
        let (head, ()) = request.into_parts();
        let url = http_url(&head.uri.to_string())?;
        self.resolver.policy.check_url(&url)?;
        let host = url.host_str().unwrap_or_default().to_owned();
        let limit = options.handshake_timeout;
        let opening = self.upgrade(url, head.headers, &host, options);
        tokio::time::timeout(limit, opening).await.unwrap_or(Err(Error::TimedOut {
            host,
            limit,
            is_unreached: false,
        }))
    }

    async fn upgrade(
        &self,
        url: Url,
        mut headers: HeaderMap,
        host: &str,
        options: &WebSocketOptions,
    ) -> Result<(HeaderMap, WebSocket), Error> {
        let broken = |reason: &str| Error::Failed {
            host: host.to_owned(),
            reason: reason.to_owned(),
            is_unreached: false,
        };
        let protocols = headers.get(SEC_WEBSOCKET_PROTOCOL).cloned();
        let key = generate_key();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let value = HeaderValue::from_str(&key).map_err(|error| broken(&error.to_string()))?;
        headers.insert(SEC_WEBSOCKET_KEY, value);
        let to_error = |error: reqwest::Error| to_error(&error, host, &self.options);
        let response =
            self.upgrading()?.get(url).headers(headers).send().await.map_err(to_error)?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let body = refusal_body(response).await;
            let (host, status) = (host.to_owned(), status.as_u16());
            return Err(Error::NotUpgraded { host, status, body });
        }
        let headers = response.headers().clone();
        check_response(&headers, &key, protocols.as_ref()).map_err(broken)?;
        let connection = response.upgrade().await.map_err(to_error)?;
        Ok((headers, WebSocket::start(connection, WebSocketRole::Client, options).await))
    }
}

/// Reads the beginning of the body of a refusal.
async fn refusal_body(mut response: reqwest::Response) -> Bytes {
    let mut body = BytesMut::new();
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece);
            if body.len() >= MAX_REFUSAL_BYTES {
                return;
            }
        }
    };
    // The status alone is worth more than no answer.
    let _ = tokio::time::timeout(REFUSAL_TIMEOUT, reading).await;
    body.truncate(MAX_REFUSAL_BYTES);
    body.freeze()
}

/// Returns the address with the scheme of HTTP that belongs to it.
fn http_url(address: &str) -> Result<Url, Error> {
    let bad = |why: &str| Error::BadUrl(format!("the address is malformed: {why}"));
    let address = match address.split_once(':') {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => format!("http:{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => format!("https:{rest}"),
        _ => address.to_owned(),
    };
    Url::parse(&address).map_err(|error| bad(&error.to_string()))
}

/// Checks what the server answered, so that no other protocol is taken for a WebSocket.
fn check_response(
    headers: &HeaderMap,
    key: &str,
    protocols: Option<&HeaderValue>,
) -> Result<(), &'static str> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !text(UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err("it changed to another protocol than WebSocket");
    }
    if text(SEC_WEBSOCKET_ACCEPT) != WebSocket::accept_key(key.as_bytes()) {
        return Err("its answer to the handshake of the WebSocket is wrong");
    }
    if headers.contains_key(SEC_WEBSOCKET_EXTENSIONS) {
        return Err("it chose an extension of WebSocket that was not offered");
    }
    let chosen = text(SEC_WEBSOCKET_PROTOCOL);
    let offered = protocols.and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !chosen.is_empty() && !offered.split(',').any(|one| one.trim() == chosen) {
        return Err("it chose a subprotocol of WebSocket that was not offered");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_scheme_of_http() {
        for (given, expected) in [
            ("ws://a.example/x", "http://a.example/x"),
            ("WSS://a.example/x", "https://a.example/x"),
            ("https://a.example:8443/x?y", "https://a.example:8443/x?y"),
        ] {
            assert_eq!(http_url(given).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn a_response_that_does_not_fit_the_request_is_refused() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let good = [
            ("upgrade", "WebSocket"),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("sec-websocket-protocol", "two"),
        ];
        let check = |pairs: &[(&'static str, &'static str)], offered: &'static str| {
            let headers = pairs.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let offered = HeaderValue::from_static(offered);
            check_response(&headers.collect(), key, Some(&offered)).is_ok()
        };
        assert!(check(&good, "one, two"));
        assert!(check(&good[..2], "one"));
        assert!(!check(&good, "one"));
        assert!(!check(&good[1..], "two"));
        assert!(!check(&[good[0], ("sec-websocket-accept", "other")], ""));
        let mut extended = good.to_vec();
        extended.push(("sec-websocket-extensions", "permessage-deflate"));
        assert!(!check(&extended, "two"));
    }
}
