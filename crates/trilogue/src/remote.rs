//! The server that a command talks to: its address, its token, and the way there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use trilogue::token_file;
use trilogue_domain::Code;
use trilogue_sdk::client::{
    Client, ClientError, HttpTransport, Method, Options, Refusal, Request, Response, Transport,
    TransportError,
};
use trilogue_sdk::connect::{self, AgentSearchRequest};
use trilogue_sdk::{async_trait, communication};
use url::{Host, Url};

use crate::arguments::Globals;
use crate::attach;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::{print, safe};

/// The status of a request whose token is missing or unknown.
const UNAUTHENTICATED: u16 = 401;
/// The name of an agent that is asked for only to hear in which protocol the server answers.
const PROBED_AGENT: &str = "trilogue";

/// Opens a client for the server and token that the command line names.
///
/// # Errors
/// When the address is malformed, or the token file of that address cannot be used.
pub(crate) fn open(globals: &Globals) -> Result<Client> {
    Ok(Server::find(globals)?.native())
}

/// A server, and the way there.
#[derive(Debug)]
pub(crate) struct Server {
    wire: Arc<Wire>,
    /// The path of its address, without a slash at the end.
    path: String,
}

/// Which protocol a server is spoken to in.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Protocol {
    /// The server's own where it is one of ours, else the protocol that is served at the address.
    #[default]
    Auto,
    /// Our own, below `/api/v1`.
    Native,
    /// The Agent Communication Protocol, at the address itself.
    Communication,
    /// The Agent Connect Protocol, at the address itself.
    Connect,
}

// === impl Server ===

impl Server {
    /// Finds the way to the server that the command line names.
    ///
    /// # Errors
    /// As [`open`].
    pub(crate) fn find(globals: &Globals) -> Result<Self> {
        let named = globals.server();
        let url = Url::parse(&named).map_err(|error| bad_url(&named, &error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(bad_url(&named, "it must begin with http:// or https:// and name a host"));
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
        let http = HttpTransport::to(&named).map_err(|error| Stop::failed(error.to_string()))?;
        let path = http.path().to_owned();
        let (streaming, listing) = (AtomicBool::new(false), AtomicBool::new(false));
        let wire = Wire { http, url, token, streaming, listing };
        Ok(Self { wire: Arc::new(wire), path })
    }

    /// Whether it is on this machine, so that the paths of files mean something to its agents.
    pub(crate) fn is_here(&self) -> bool {
        attach::is_here(&self.wire.url)
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
        let transport = Keyed { wire: Arc::clone(&self.wire), bearer: AtomicBool::new(false) };
        connect::Client::new(Arc::new(transport), Options::at(&self.path))
    }

    /// The protocol that the server speaks, asked for where the command line leaves it open and names another server than the usual one.
    pub(crate) async fn protocol(&self, globals: &Globals, wanted: Protocol) -> Protocol {
        match wanted {
            Protocol::Auto if !globals.is_elsewhere() => return Protocol::Native,
            Protocol::Auto => {}
            named => return named,
        }
        let communicates = match self.communication().ping().await {
            Ok(()) => true,
            // A token may be missing: that is said in the words of the protocol that is spoken there.
            Err(ClientError::Refused(refusal)) => {
                !refusal.is_foreign() && is_there(refusal.status.unwrap_or_default())
            }
            Err(_) => false,
        };
        // A server of ours may have several at one address.
        match self.native().status().await {
            Ok(_) | Err(ClientError::Problem(_)) => return Protocol::Native,
            Err(_) if communicates => return Protocol::Communication,
            Err(_) => {}
        }
        let nobody = AgentSearchRequest {
            name: Some(PROBED_AGENT.to_owned()),
            ..AgentSearchRequest::default()
        };
        match self.connect().search_agents(&nobody).await {
            Ok(_) => Protocol::Connect,
            Err(ClientError::Fault(fault)) if !fault.is_foreign() && is_there(fault.status) => {
                Protocol::Connect
            }
            Err(_) => Protocol::Native,
        }
    }

    /// The path of an address on this server and below its path; `None` for any other.
    pub(crate) fn path_of(&self, address: &str) -> Option<String> {
        let address = Url::parse(address).ok()?;
        let below = address.path().strip_prefix(&self.path)?.starts_with('/');
        let query = address.query().map(|query| format!("?{query}")).unwrap_or_default();
        (below && address.origin() == self.wire.url.origin())
            .then(|| format!("{}{query}", address.path()))
    }

    /// The stream stopped behind a question, and what comes then is asked for: nothing broke that would have to be said.
    pub(crate) fn wait_on(&self) {
        self.wire.streaming.store(false, Ordering::Relaxed);
        self.wire.listing.store(true, Ordering::Relaxed);
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::<Wire>::clone(&self.wire)
    }
}

/// Whether a refusal with this status is one of a path that is there.
fn is_there(status: u16) -> bool {
    !matches!(status, 404 | 405)
}

/// Carries requests in the way of the Agent Connect Protocol's clients: with the token as `x-api-key`, or as others do where a server or an agent takes only that.
#[derive(Debug)]
struct Keyed {
    wire: Arc<Wire>,
    /// Whether `x-api-key` was refused where `Authorization` was not.
    bearer: AtomicBool,
}

/// How the token travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Bearer,
    ApiKey,
}

/// Carries requests to the server.
#[derive(Debug)]
struct Wire {
    http: HttpTransport,
    url: Url,
    token: Option<String>,
    /// Whether a stream was opened before: the next one resumes it.
    streaming: AtomicBool,
    /// Whether a stream whose server gives no ids is known to be over: the server is asked for the rest again and again, and that is said once.
    listing: AtomicBool,
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
        self.exchange(request, Scheme::Bearer).await
    }
}

impl Wire {
    /// Sends one request, with the token in this way.
    async fn exchange(&self, request: Request, scheme: Scheme) -> Result<Response, TransportError> {
        let http = self.http.clone();
        let http = match (&self.token, scheme) {
            (Some(token), Scheme::Bearer) => http.token(token),
            (Some(token), Scheme::ApiKey) => http.api_key(token),
            (None, _) => http,
        };
        let hint = "start one with `trilogue demo` or `trilogue serve --config FILE`, or name another with --url";
        let response = http.send(request).await.map_err(|error| error.hint(hint))?;
        if let Some(warning) = &response.warning {
            print::note(&format!("warning: {}", safe::line(said(warning))));
        }
        Ok(response)
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
        // A stream begins with the request that creates or resumes its run, or is asked for; a second question is a resumption.
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

/// The words of a warning, without its number and its agent.
fn said(warning: &str) -> &str {
    let quoted = warning.split_once('"').and_then(|(_, rest)| rest.rsplit_once('"'));
    quoted.map_or(warning, |(words, _)| words)
}

// === impl Keyed ===

#[async_trait]
impl Transport for Keyed {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        self.wire.mention_resumption(&request);
        if self.wire.token.is_none() || self.bearer.load(Ordering::Relaxed) {
            return self.wire.exchange(request, Scheme::Bearer).await;
        }
        let response = self.wire.exchange(request.clone(), Scheme::ApiKey).await?;
        if response.status != UNAUTHENTICATED {
            return Ok(response);
        }
        let again = self.wire.exchange(request, Scheme::Bearer).await?;
        self.bearer.store(again.status != UNAUTHENTICATED, Ordering::Relaxed);
        Ok(again)
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
            ClientError::Fault(fault) => match fault.code.as_deref().and_then(Code::from_text) {
                Some(code) => Exit::of(code),
                None => by_status(fault.status),
            },
            ClientError::Refused(refusal) => by_refusal(refusal, error.code().unwrap_or_default()),
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

/// For an error of the Agent Communication Protocol, with its code or our reason.
fn by_refusal(refusal: &Refusal, code: &str) -> Exit {
    match (Code::from_text(code), refusal.status) {
        (Some(code), _) => Exit::of(code),
        // The protocol has this one for what the state of a run forbids.
        (None, Some(403)) => Exit::Conflict,
        (None, Some(status)) => by_status(status),
        (None, None) => Exit::Failed,
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
