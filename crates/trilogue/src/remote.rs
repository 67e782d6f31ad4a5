//! The server that a command talks to: its address, its token, and the way there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::stream;
use trilogue::token_file;
use trilogue_domain::Code;
use trilogue_egress::{Client as Egress, Options as EgressOptions, Policy};
use trilogue_sdk::async_trait;
use trilogue_sdk::client::{
    Client, ClientError, Method, Options, Request, Response, Transport, TransportError,
};
use url::{Host, Url};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::print;

/// Opens a client for the server and token that the command line names.
///
/// # Errors
/// When the address is malformed, or the token file of that address cannot be used.
pub(crate) fn open(globals: &Globals) -> Result<Client> {
    let url =
        Url::parse(&globals.url).map_err(|error| bad_url(&globals.url, &error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(bad_url(
            &globals.url,
            "it must begin with http:// or https:// and name a host",
        ));
    }
    // An empty variable is one that is not set.
    let given = globals.token.as_ref().filter(|token| !token.is_empty());
    let token = match given {
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err(Stop::usage("the token holds a character that no token has"));
        }
        Some(token) => Some(token.clone()),
        None => token_of(&url)?,
    };
    if token.is_some() && url.scheme() == "http" && loopback(&url).is_empty() {
        print::note("warning: the token travels unencrypted; use an https:// address");
    }
    let base = format!("{}/api/v1", url.path().trim_end_matches('/'));
    let options = EgressOptions {
        // Streams have no end of their own; the server keeps them alive with comments.
        total_timeout: None,
        // The client bounds what it reads into memory; backups and exports go to a file or a pipe.
        max_response_bytes: u64::MAX,
        ..EgressOptions::default()
    };
    let egress = Egress::new(anywhere(), options)
        .map_err(|error| Stop::failed(format!("the HTTP client cannot be set up: {error}")))?;
    let transport = Wire { egress, url, token, streaming: AtomicBool::new(false) };
    Ok(Client::new(Arc::new(transport), Options { base, ..Options::default() }))
}

/// Carries requests to the server.
#[derive(Debug)]
struct Wire {
    egress: Egress,
    url: Url,
    token: Option<String>,
    /// Whether a stream was opened before: the next one resumes it.
    streaming: AtomicBool,
}

/// The user chose the address, so no address is refused.
fn anywhere() -> Policy {
    let allow = ["0.0.0.0/0", "::/0"].iter().filter_map(|block| block.parse().ok()).collect();
    Policy { allow }
}

/// The token that the server on this address left for this user.
fn token_of(url: &Url) -> Result<Option<String>> {
    let Some(port) = url.port_or_known_default() else { return Ok(None) };
    let Ok(state) = token_file::state_dir() else { return Ok(None) };
    for ip in loopback(url) {
        match token_file::find(&state, SocketAddr::new(ip, port)) {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => {
                return Err(Stop::new(
                    Exit::Denied,
                    format!("the token file cannot be used: {error}"),
                )
                .hint("make it private with chmod 600, or give a token with --token"));
            }
        }
    }
    Ok(None)
}

/// The loopback addresses that a URL's host stands for; none for any other host.
fn loopback(url: &Url) -> Vec<IpAddr> {
    match url.host() {
        Some(Host::Ipv4(ip)) if ip.is_loopback() => vec![ip.into()],
        Some(Host::Ipv6(ip)) if ip.is_loopback() => vec![ip.into()],
        Some(Host::Domain("localhost")) => {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        }
        _ => Vec::new(),
    }
}

fn bad_url(url: &str, why: &str) -> Stop {
    Stop::usage(format!("the server's address `{url}` cannot be used: {why}"))
        .hint("give one such as http://127.0.0.1:7878 with --url or TRILOGUE_URL")
}

// === impl Wire ===

#[async_trait]
impl Transport for Wire {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.mention_resumption(&request);
        let mut address = self.url.clone();
        address.set_path("");
        address.set_query(None);
        address.set_fragment(None);
        let uri = format!("{}{}", address.as_str().trim_end_matches('/'), request.path);
        let mut sent = http::Request::builder().method(request.method.as_str()).uri(uri);
        for (name, value) in &request.headers {
            sent = sent.header(*name, value);
        }
        if let Some(token) = &self.token {
            sent = sent.header("authorization", format!("Bearer {token}"));
        }
        let sent = sent.body(request.body).map_err(|error| self.unreached(&error.to_string()))?;
        let (status, headers, body) =
            self.egress.send(sent).await.map_err(|error| match error {
                trilogue_egress::Error::Failed { reason, .. } => self.unreached(&reason),
                error => self.unreached(&error.to_string()),
            })?;
        let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
        Ok(Response {
            status: status.as_u16(),
            content_type: content_type.map(str::to_owned),
            body: Box::pin(stream::try_unfold(body, |mut body| async move {
                let piece: Option<Bytes> = body.next().await.map_err(|error| {
                    TransportError::new(format!("the answer broke off: {error}"))
                })?;
                Ok(piece.map(|piece| (piece, body)))
            })),
        })
    }
}

impl Wire {
    fn unreached(&self, why: &str) -> TransportError {
        let url = self.url.as_str().trim_end_matches('/');
        TransportError::new(format!("no server answers at {url}: {why}"))
            .hint("start one with `trilogue demo` or `trilogue serve --config FILE`, or name another with --url")
    }

    /// Says that a stream broke and goes on, and from where.
    fn mention_resumption(&self, request: &Request) {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.as_str())
        };
        if header("accept") != Some("text/event-stream") {
            return;
        }
        let before = self.streaming.swap(true, Ordering::Relaxed);
        // A stream begins with the request that creates its run, or is asked for; a second question is a resumption.
        if before && request.method == Method::Get {
            match header("last-event-id") {
                Some(id) => print::note(&format!("the stream broke; resuming after event {id}")),
                None => print::note("the stream broke; beginning again"),
            }
        }
    }
}

// === impl Stop ===

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Problem(problem) => match Code::from_text(&problem.code) {
                Some(code) => Exit::of(code),
                None => by_status(problem.status),
            },
            ClientError::Transport(_) => Exit::Unreachable,
            ClientError::Unexpected(_) => Exit::Failed,
        };
        let mut stop = Self::new(exit, error.to_string());
        if let Some(hint) = error.hint() {
            stop = stop.hint(hint.to_owned());
        } else if exit == Exit::Denied {
            stop = stop.hint("give a token with --token or TRILOGUE_TOKEN; the server's own one lies in the state folder of the user who runs it");
        }
        stop
    }
}

/// For a code of a newer server.
fn by_status(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::Denied,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        400..=499 => Exit::Usage,
        _ => Exit::Failed,
    }
}
