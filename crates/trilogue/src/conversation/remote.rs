//! The server that a command talks to: its address, its token, and the way there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use trilogue::local::{TRUST_AUTHORITY, login_file, token_file};
use trilogue_domain::Code;
use trilogue_egress::certificate_hint;
use trilogue_mapping::linked_conversation;
use trilogue_sdk::async_trait;
use trilogue_sdk::client::communication;
use trilogue_sdk::client::connect::{self, AgentSearchRequest};
use trilogue_sdk::client::{
    Client, ClientError, HttpTransport, Method, Options, Refusal, Request, Response, Transport,
    TransportError,
};
use trilogue_wire::native::Part;
use url::{Host, Url};

use crate::command::globals::Globals;
use crate::command::port_owner::PortOwner;
use crate::conversation::attach;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

const UNAUTHENTICATED: u16 = 401;
const START_HINT: &str = "start one with `trilogue demo` or `trilogue serve --config FILE`, or pass another address with --url";
/// The agent that is searched for only to learn the server's protocol.
const PROBED_AGENT: &str = "trilogue";

/// Opens a client for the server and token that the command line names.
pub(crate) fn open(globals: &Globals) -> Result<Client> {
    Ok(RemoteServer::find(globals)?.native())
}

/// A server, and the way there.
#[derive(Clone, Debug)]
pub(crate) struct RemoteServer {
    http: Arc<CliTransport>,
    /// The path of its address, without a slash at the end.
    path: String,
}

/// The protocol in which a server is called.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ServerProtocol {
    /// The native protocol on a Trilogue server, else the one that is served at the address.
    #[default]
    Auto,
    /// Trilogue's own, below `/api/v1`.
    Native,
    /// The Agent Communication Protocol, at the address itself.
    Communication,
    /// The Agent Connect Protocol, at the address itself.
    Connect,
}

// === impl RemoteServer ===

impl RemoteServer {
    /// The server that the command line names.
    pub(crate) fn find(globals: &Globals) -> Result<Self> {
        let named = globals.server();
        let url = Url::parse(&named).map_err(|error| bad_url(&named, &error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(bad_url(&named, "it must begin with http:// or https:// and name a host"));
        }
        // An empty variable counts as unset.
        let token = globals.token.as_ref().filter(|token| !token.is_empty());
        let token = match token {
            Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Err(CliError::usage(
                    "the token contains a character that tokens never have",
                ));
            }
            Some(token) => Some(SentToken { text: token.clone(), saved_at: Vec::new() }),
            None => token_of(&url)?,
        };
        if token.is_some() && url.scheme() == "http" && loopback(&url).is_empty() {
            print::note("warning: the token is sent unencrypted; use an https:// address");
        }
        let http =
            HttpTransport::to(&named).map_err(|error| CliError::failure(error.to_string()))?;
        let path = http.path().to_owned();
        let (streaming, listing) = (AtomicBool::new(false), AtomicBool::new(false));
        let http = CliTransport { http, url, token, streaming, listing };
        Ok(Self { http: Arc::new(http), path })
    }

    /// Whether its agents can read local paths.
    pub(crate) fn is_local(&self) -> bool {
        attach::is_local(&self.http.url)
    }

    /// Its address, and the token for a connection that this program opens itself. A saved token is only for the server that it was saved for.
    pub(crate) fn for_connection(&self) -> Result<(String, Option<String>)> {
        self.http.check_listener().map_err(|error| {
            let refused = CliError::new(ExitStatus::Unreachable, error.to_string());
            match error.hint {
                Some(hint) => refused.hint(hint),
                None => refused,
            }
        })?;
        let token = self.http.token.as_ref().map(|token| token.text.clone());
        Ok((self.http.url.as_str().trim_end_matches('/').to_owned(), token))
    }

    /// A client of our own protocol.
    pub(crate) fn native(&self) -> Client {
        Client::new(self.transport(), Options::at(&format!("{}/api/v1", self.path)))
    }

    /// A client of the Agent Communication Protocol.
    pub(crate) fn communication(&self) -> communication::Client {
        communication::Client::new(self.transport(), Options::at(&self.path))
    }

    /// A client of the Agent Connect Protocol.
    pub(crate) fn connect(&self) -> connect::Client {
        let transport =
            ApiKeyTransport { http: Arc::clone(&self.http), bearer: AtomicBool::new(false) };
        connect::Client::new(Arc::new(transport), Options::at(&self.path))
    }

    /// Returns the server's protocol: the wanted one, otherwise the native one on the default server, otherwise the first to which
    /// the server responds.
    pub(crate) async fn protocol(
        &self,
        globals: &Globals,
        wanted: ServerProtocol,
    ) -> ServerProtocol {
        match wanted {
            ServerProtocol::Auto if !globals.is_elsewhere() => return ServerProtocol::Native,
            ServerProtocol::Auto => {}
            named => return named,
        }
        let communicates = match self.communication().ping().await {
            Ok(()) => true,
            // A missing token is refused in the protocol that is served there.
            Err(ClientError::Refused(refusal)) => {
                !refusal.is_foreign() && is_existing_path(refusal.status.unwrap_or_default())
            }
            Err(_) => false,
        };
        // A Trilogue server may serve several protocols at one address. It refuses this to no token that can do anything with it, and so writes no audit line.
        match self.native().caller().await {
            Ok(_) | Err(ClientError::Problem(_)) => return ServerProtocol::Native,
            Err(_) if communicates => return ServerProtocol::Communication,
            Err(_) => {}
        }
        let nobody = AgentSearchRequest {
            name: Some(PROBED_AGENT.to_owned()),
            ..AgentSearchRequest::default()
        };
        match self.connect().search_agents(&nobody).await {
            Ok(_) => ServerProtocol::Connect,
            Err(ClientError::Fault(fault))
                if !fault.is_foreign() && is_existing_path(fault.status) =>
            {
                ServerProtocol::Connect
            }
            Err(_) => ServerProtocol::Native,
        }
    }

    /// Returns the path of a part's content on this server, below its base path; `None` if the content is elsewhere.
    pub(crate) fn path_of(&self, part: &Part) -> Option<String> {
        let address = Url::parse(part.content_url.as_deref()?).ok()?;
        linked_conversation(address.path().strip_prefix(&self.path)?)?;
        let is_here = address.origin() == self.http.url.origin() && address.query().is_none();
        is_here.then(|| address.path().to_owned())
    }

    /// Announces that the next stream continues after a question, so that it causes no warning about a broken stream.
    pub(crate) fn expect_new_stream(&self) {
        self.http.streaming.store(false, Ordering::Relaxed);
        self.http.listing.store(true, Ordering::Relaxed);
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::<CliTransport>::clone(&self.http)
    }
}

/// Whether a refusal with this status comes from an existing path.
fn is_existing_path(status: u16) -> bool {
    !matches!(status, 404 | 405)
}

/// Sends the token as `x-api-key`, like clients of the Agent Connect Protocol, or as a bearer token if a server accepts only that.
#[derive(Debug)]
struct ApiKeyTransport {
    http: Arc<CliTransport>,
    /// Whether the server refused `x-api-key` and accepted `Authorization`.
    bearer: AtomicBool,
}

/// How the token is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenHeader {
    Bearer,
    ApiKey,
}

/// The token that requests carry.
#[derive(Debug)]
struct SentToken {
    text: String,
    /// The loopback addresses at which the server that saved it must listen; none for a token that the user gave.
    saved_at: Vec<SocketAddr>,
}

/// Sends requests to the server.
#[derive(Debug)]
struct CliTransport {
    http: HttpTransport,
    url: Url,
    token: Option<SentToken>,
    /// Whether a stream was opened before, which the next one resumes.
    streaming: AtomicBool,
    /// Whether the user knows that the rest of a stream without ids is polled for: that is reported once.
    listing: AtomicBool,
}

/// The token that the server at this address wrote for this user, or that the user saved for it with `trilogue login`.
fn token_of(url: &Url) -> Result<Option<SentToken>> {
    let Some(port) = url.port_or_known_default() else { return Ok(None) };
    let Ok(state) = token_file::state_dir() else { return Ok(None) };
    let unusable = |error: std::io::Error| {
        CliError::new(ExitStatus::Denied, format!("cannot use the token file: {error}"))
            .hint("make it private with chmod 600, or pass a token with --token")
    };
    let addresses: Vec<_> = loopback(url).into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    for address in &addresses {
        if let Some(text) = token_file::find(&state, *address).map_err(unusable)? {
            return Ok(Some(SentToken { text, saved_at: addresses }));
        }
    }
    let saved = login_file::find(&state, url).map_err(unusable)?;
    Ok(saved.map(|text| SentToken { text, saved_at: addresses }))
}

/// The loopback addresses of a URL's host; empty for any other host.
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

fn bad_url(url: &str, why: &str) -> CliError {
    CliError::usage(format!("cannot use the server address `{url}`: {why}"))
        .hint("pass one such as http://127.0.0.1:7878 with --url or TRILOGUE_URL")
}

// === impl CliTransport ===

#[async_trait]
impl Transport for CliTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.report_resumption(&request);
        self.exchange(request, TokenHeader::Bearer).await
    }
}

impl CliTransport {
    async fn exchange(
        &self,
        request: Request,
        header: TokenHeader,
    ) -> Result<Response, TransportError> {
        let http = self.http.clone();
        let http = match (&self.token, header) {
            (Some(token), TokenHeader::Bearer) => http.token(&token.text),
            (Some(token), TokenHeader::ApiKey) => http.api_key(&token.text),
            (None, _) => http,
        };
        self.check_listener()?;
        let response = http.send(request).await.map_err(|error| self.explain(error))?;
        if let Some(warning) = &response.warning {
            print::note(&format!("warning: {}", safe::line(warning_text(warning))));
        }
        Ok(response)
    }

    /// Adds a hint for the user to the error of a failed connection.
    fn explain(&self, error: TransportError) -> TransportError {
        let url = safe::visible(self.url.as_str().trim_end_matches('/'));
        // The TLS library's error for bytes of another protocol.
        let text = error.to_string();
        let is_plain = text.contains("InvalidContentType");
        let untrusted = certificate_hint(&text, TRUST_AUTHORITY);
        match url.strip_prefix("https://") {
            Some(rest) if is_plain => TransportError::new(format!(
                "the server at {url} speaks plain HTTP, so it cannot be reached with https://"
            ))
            .hint(format!(
                "use http://{rest}, or the address of the TLS proxy in front of the server"
            )),
            // Something listens there, so starting a server does not help.
            _ => error.hint(untrusted.as_deref().unwrap_or(START_HINT)),
        }
    }

    /// Refuses to send a saved token to a process that is not this user's server.
    fn check_listener(&self) -> Result<(), TransportError> {
        let Some(token) = self.token.as_ref().filter(|it| !it.saved_at.is_empty()) else {
            return Ok(());
        };
        let url = self.url.as_str().trim_end_matches('/');
        let error = match PortOwner::of(&token.saved_at) {
            PortOwner::Trusted => return Ok(()),
            PortOwner::Nobody => {
                return Err(TransportError::new(format!(
                    "no server answers at {url}: nothing listens there"
                ))
                .hint(START_HINT));
            }
            PortOwner::Other(user) => format!(
                "the program that listens at {url} belongs to another user (number {user}): your saved token was not sent"
            ),
            PortOwner::Unknown => format!(
                "this system does not say whose program listens at {url}: your saved token was not sent"
            ),
        };
        Err(TransportError::new(error).hint(
            "start your own server, or pass the token with TRILOGUE_TOKEN if you trust that program",
        ))
    }

    /// Reports that a broken stream is resumed, and the position.
    fn report_resumption(&self, request: &Request) {
        let header = |name: &str| {
            let found = request.headers.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.as_str())
        };
        if header("accept") != Some("text/event-stream") {
            return;
        }
        let before = self.streaming.swap(true, Ordering::Relaxed);
        // A POST creates or resumes a run and so begins a stream; a GET after another stream resumes that one.
        if request.method != Method::Get {
            self.listing.store(false, Ordering::Relaxed);
        } else if before {
            match header("last-event-id") {
                Some(id) => {
                    let id = safe::visible(id);
                    print::note(&format!("the stream broke; resuming after event {id}"));
                }
                None if self.listing.swap(true, Ordering::Relaxed) => {}
                None => print::note("the stream broke; asking for the rest"),
            }
        }
    }
}

/// The text of a `Warning` header, without its code and agent.
fn warning_text(warning: &str) -> &str {
    let quoted = warning.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    quoted.map_or(warning, |(text, _)| text)
}

// === impl ApiKeyTransport ===

#[async_trait]
impl Transport for ApiKeyTransport {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.http.report_resumption(&request);
        if self.http.token.is_none() || self.bearer.load(Ordering::Relaxed) {
            return self.http.exchange(request, TokenHeader::Bearer).await;
        }
        let response = self.http.exchange(request.clone(), TokenHeader::ApiKey).await?;
        if response.status != UNAUTHENTICATED {
            return Ok(response);
        }
        let again = self.http.exchange(request, TokenHeader::Bearer).await?;
        self.bearer.store(again.status != UNAUTHENTICATED, Ordering::Relaxed);
        Ok(again)
    }
}

// === impl CliError ===

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let exit = match &error {
            ClientError::Problem(problem) => match Code::from_text(&problem.code) {
                Some(code) => ExitStatus::of(code),
                None => by_status(problem.status),
            },
            ClientError::Fault(fault) => match fault.code.as_deref().and_then(Code::from_text) {
                Some(code) => ExitStatus::of(code),
                None => by_status(fault.status),
            },
            ClientError::Refused(refusal) => by_refusal(refusal, error.code().unwrap_or_default()),
            ClientError::Transport(_) => ExitStatus::Unreachable,
            ClientError::Unexpected(_) => ExitStatus::Failed,
        };
        let mut converted = Self::new(exit, error.to_string());
        let code = error.code().and_then(Code::from_text);
        if let Some(hint) = error.hint() {
            converted = converted.hint(hint.to_owned());
        } else if let Some(hint) = code.and_then(where_to_look) {
            converted = converted.hint(hint);
        } else if exit == ExitStatus::Denied {
            converted = converted.hint("pass a token with --token or TRILOGUE_TOKEN; the server keeps its own in the state folder of the user who runs it");
        }
        converted
    }
}

/// Returns the command that lists the kind of resource that was not found.
const fn where_to_look(missing: Code) -> Option<&'static str> {
    match missing {
        Code::ThreadNotFound => Some("list the threads with `trilogue threads`"),
        Code::RunNotFound => Some("list the runs with `trilogue runs`"),
        Code::InterruptNotFound => Some("list the open questions with `trilogue inbox`"),
        _ => None,
    }
}

/// For an error of the Agent Communication Protocol.
fn by_refusal(refusal: &Refusal, code: &str) -> ExitStatus {
    match (Code::from_text(code), refusal.status) {
        (Some(code), _) => ExitStatus::of(code),
        // The protocol has this status for everything that the state of a run forbids.
        (None, Some(403)) => ExitStatus::Conflict,
        (None, Some(status)) => by_status(status),
        (None, None) => ExitStatus::Failed,
    }
}

/// Maps an unknown code, such as one of a newer server.
fn by_status(status: u16) -> ExitStatus {
    match status {
        401 | 403 => ExitStatus::Denied,
        404 => ExitStatus::NotFound,
        409 => ExitStatus::Conflict,
        400..=499 => ExitStatus::Usage,
        _ => ExitStatus::Failed,
    }
}
