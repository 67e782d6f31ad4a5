//! Fetches the messages and states that a client's history refers to on other servers.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, StatusCode, Uri, header};
use trilogue_domain::error::Result;
use trilogue_domain::port::{Fetch, Fetched};
use trilogue_domain::{Code, Error, Json, Message};
use trilogue_egress::{Client, Error as EgressError};
use trilogue_mapping::communication as mapping;
use trilogue_wire::agent_communication::{Rules, read};
use trilogue_wire::json::{DEFAULT_MAX_TREE_BYTES, is_too_complex};

const MAX_MESSAGE_BYTES: usize = 1024 * 1024;
const MAX_STATE_BYTES: usize = 16 * 1024 * 1024;
/// The time limit for one address.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Fetches messages and states from servers of the Agent Communication Protocol, if the client may reach them.
#[derive(Clone, Debug)]
pub struct HistoryFetch {
    client: Client,
}

// === impl HistoryFetch ===

impl HistoryFetch {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn get(&self, address: &str, most: usize) -> Result<Bytes> {
        let uri: Uri = address.parse().map_err(|_| {
            Error::new(Code::EgressRefused, "an address of the history is malformed")
        })?;
        let host = uri.host().unwrap_or_default().to_owned();
        match tokio::time::timeout(TIME_LIMIT, self.exchange(uri, &host, most)).await {
            Ok(done) => done,
            Err(_) => {
                Err(unreadable(&host, &format!("did not answer within {} s", TIME_LIMIT.as_secs())))
            }
        }
    }

    async fn exchange(&self, uri: Uri, host: &str, most: usize) -> Result<Bytes> {
        let request = Request::get(uri)
            .header(header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.1"))
            .body(Bytes::new())
            .map_err(|_| {
                Error::new(Code::EgressRefused, "an address of the history is malformed")
            })?;
        let (status, _, mut body) = self.client.send(request).await.map_err(peer_error)?;
        if status != StatusCode::OK {
            return Err(unreadable(host, &format!("answered with the status {}", status.as_u16())));
        }
        let mut whole = BytesMut::new();
        while let Some(piece) = body.next().await.map_err(peer_error)? {
            if whole.len() + piece.len() > most {
                return Err(unreadable(host, &format!("sends more than {most} bytes")));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }
}

impl Fetch for HistoryFetch {
    fn message<'a>(&'a self, address: &'a str) -> Fetched<'a, Message> {
        Box::pin(async move {
            let bytes = self.get(address, MAX_MESSAGE_BYTES).await?;
            if is_too_complex(&bytes, DEFAULT_MAX_TREE_BYTES) {
                return Err(too_complex(address));
            }
            // Do not repeat the peer's response: it may contain others' data.
            let no_message = |_| unreadable(&host_of(address), "sends an invalid message");
            mapping::read_message(read(&bytes, Rules::Lenient).map_err(no_message)?)
                .map_err(|_| unreadable(&host_of(address), "sends an invalid message"))
        })
    }

    fn state<'a>(&'a self, address: &'a str) -> Fetched<'a, Json> {
        Box::pin(async move {
            let bytes = self.get(address, MAX_STATE_BYTES).await?;
            if let Ok(json) = Json::parse(bytes.clone()) {
                let is_too_complex = is_too_complex(json.as_bytes(), DEFAULT_MAX_TREE_BYTES);
                return if is_too_complex { Err(too_complex(address)) } else { Ok(json) };
            }
            match std::str::from_utf8(&bytes) {
                Ok(text) => Ok(Json::from_value(&serde_json::Value::from(text))),
                Err(_) => Err(unreadable(
                    &host_of(address),
                    "sends a state that is neither JSON nor UTF-8",
                )),
            }
        })
    }
}

fn host_of(address: &str) -> String {
    let uri: Option<Uri> = address.parse().ok();
    uri.and_then(|uri| uri.host().map(str::to_owned)).unwrap_or_default()
}

fn too_complex(address: &str) -> Error {
    unreadable(&host_of(address), "sends JSON of too many values for its length")
}

fn unreadable(host: &str, why: &str) -> Error {
    Error::new(Code::PeerUnavailable, format!("'{host}' {why}"))
}

/// Returns the error for the client, which must not learn the names in the server's network.
fn peer_error(error: EgressError) -> Error {
    let error = error.conceal();
    let code = Code::from_text(error.code()).unwrap_or(Code::PeerUnavailable);
    let published = Error::new(code, error.to_string());
    match error.hint() {
        Some(hint) => published.hint(hint),
        None => published,
    }
}
