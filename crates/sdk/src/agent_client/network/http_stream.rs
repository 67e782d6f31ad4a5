//! The transport over HTTP: messages are posted, and arrive as server-sent events.
//!
//! Servers differ in which headers they want and on which stream they send a message. So every message about a session names it in a header,
//! also a response; a post that the server does not find is repeated once without the header; and a message is taken on any stream.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_egress::{Client as Egress, ResponseBody};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, Code, ErrorObject, Incoming};
use trilogue_wire::sse::{Decoder, Item, Limits};

use super::cookies::Cookies;
use super::{AgentUrl, ConnectError, Connection, ConnectionEnd, ConnectionOptions, EndKind};

const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const INITIALIZE: &str = "initialize";

/// The size of the pipes between a connection and its owner, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// The most messages that wait for the owner to read them. Streams are not read further then.
const MAX_ARRIVALS: usize = 64;
/// How long the next message waits for the acceptance of the one before, to keep their order.
const ORDER_TIME: Duration = Duration::from_secs(2);
/// The most posts that wait for their acceptance.
const MAX_POSTS: usize = 256;
/// The most streams of sessions.
const MAX_STREAMS: usize = 1_024;
/// The most requests of the agent whose sessions are remembered until they are answered.
const MAX_REMEMBERED: usize = 4_096;
/// How often a broken stream is asked for again, if its server numbers its events.
const MAX_ATTEMPTS: u32 = 8;
/// The first pause before that. It doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long the server may take to end the connection.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Reports why a connection over HTTP ended, and ends it.
#[derive(Clone, Debug)]
pub(super) struct HttpEnd {
    reason: watch::Receiver<Option<String>>,
    ended: CancellationToken,
}

struct HttpConnection {
    agent: AgentUrl,
    egress: Egress,
    options: ConnectionOptions,
    id: OnceLock<HeaderValue>,
    cookies: Mutex<Cookies>,
    /// Messages for the owner.
    arrivals: mpsc::Sender<String>,
    sessions: Mutex<Sessions>,
    reason: watch::Sender<Option<String>>,
    /// Cancelled with the connection.
    ended: CancellationToken,
}

#[derive(Default)]
struct Sessions {
    streams: HashSet<String>,
    /// The sessions whose streams the server did not have yet.
    without_stream: HashSet<String>,
    /// The sessions of the agent's requests, by the id of the request.
    of_requests: HashMap<String, String>,
}

/// Makes a connection. The server is reached with the first message.
pub(super) fn connect(
    agent: &AgentUrl,
    options: &ConnectionOptions,
) -> Result<Connection, ConnectError> {
    let egress = agent.egress()?.clone();
    let (read, incoming) = duplex(PIPE_BYTES);
    let (write, outgoing) = duplex(PIPE_BYTES);
    let (arrivals, arrived) = mpsc::channel(MAX_ARRIVALS);
    let (sender, reason) = watch::channel(None);
    let ended = CancellationToken::new();
    let end = HttpEnd { reason, ended: ended.clone() };
    let connection = Arc::new(HttpConnection {
        agent: agent.clone(),
        egress,
        options: options.clone(),
        id: OnceLock::new(),
        cookies: Mutex::default(),
        arrivals,
        sessions: Mutex::default(),
        reason: sender,
        ended,
    });
    tokio::spawn(deliver(arrived, incoming, Arc::clone(&connection)));
    tokio::spawn(connection.run(outgoing));
    Ok(Connection { read, write, end: ConnectionEnd(EndKind::Http(end)) })
}

/// Writes messages for the owner as lines, until the connection ends.
async fn deliver(
    mut arrived: mpsc::Receiver<String>,
    mut to: DuplexStream,
    connection: Arc<HttpConnection>,
) {
    loop {
        let message = tokio::select! {
            biased;
            message = arrived.recv() => message,
            () = connection.ended.cancelled() => None,
        };
        let Some(message) = message else { return };
        let line = format!("{}\n", message.replace('\n', " "));
        if to.write_all(line.as_bytes()).await.is_err() {
            return connection.end("was closed by this side".to_owned());
        }
    }
}

// === impl HttpConnection ===

impl HttpConnection {
    /// Sends lines until the connection ends, then tells the server.
    async fn run(self: Arc<Self>, outgoing: DuplexStream) {
        let mut lines = BufReader::new(outgoing).lines();
        let mut posts = JoinSet::new();
        loop {
            let line = tokio::select! {
                () = self.ended.cancelled() => break,
                line = lines.next_line() => line,
            };
            let Ok(Some(line)) = line else { break };
            while posts.try_join_next().is_some() {}
            if posts.len() >= MAX_POSTS {
                posts.join_next().await;
            }
            let connection = Arc::clone(&self);
            let (done, accepted) = tokio::sync::oneshot::channel::<()>();
            posts.spawn(async move {
                connection.send(line).await;
                drop(done);
            });
            tokio::select! {
                () = self.ended.cancelled() => break,
                // Ends with an error when the post is done.
                _ = timeout(ORDER_TIME, accepted) => {}
            }
        }
        // What was sent before is still delivered.
        if !self.ended.is_cancelled() {
            drop(timeout(CLOSE_TIME, posts.join_all()).await);
        }
        self.end("was closed by this side".to_owned());
        if self.id.get().is_some()
            && let Ok(request) = self.request(Method::DELETE, None, Bytes::new(), None)
        {
            // A server that is gone needs no farewell.
            drop(timeout(CLOSE_TIME, self.egress.send(request)).await);
        }
    }

    fn end(&self, reason: String) {
        self.reason.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(reason);
            is_first
        });
        self.ended.cancel();
    }

    /// Sends one message. A request that the server does not accept is answered here.
    async fn send(self: &Arc<Self>, line: String) {
        let Ok(message) = jsonrpc::parse_within(line.as_bytes(), usize::MAX) else { return };
        let session_of = |params: Option<&serde_json::value::RawValue>| {
            params
                .and_then(|it| splice::get_text(it.get(), &["sessionId"]))
                .map(|it| it.into_owned())
        };
        let (id, session) = match &message {
            Incoming::Request(request) if request.method == INITIALIZE => {
                return self.initialize(line.clone()).await;
            }
            Incoming::Request(request) => {
                (Some(request.id.clone().into_owned()), session_of(request.params))
            }
            Incoming::Notification(notification) => (None, session_of(notification.params)),
            Incoming::Response(response) => {
                (None, lock(&self.sessions).of_requests.remove(response.id.as_str()))
            }
        };
        if id.is_some()
            && let Some(session) = &session
        {
            // Before the message, so that nothing about it is missed.
            self.ensure_stream(session).await;
        }
        let body = Bytes::from(line.clone());
        let refused = match self.post(body, session.as_deref()).await {
            Ok(status) if status.is_success() => return,
            Ok(status) => format!("the server refused the message with status {status}"),
            Err(why) => return self.end(why),
        };
        let Some(id) = id else { return self.end(refused) };
        let mut answer = Vec::new();
        let error = ErrorObject::new(Code::INTERNAL_ERROR, refused);
        jsonrpc::write_error(&mut answer, &id, &error);
        self.arrive(String::from_utf8_lossy(&answer).trim_end().to_owned()).await;
    }

    async fn initialize(self: &Arc<Self>, line: String) {
        let opened = async {
            let request = self.request(Method::POST, None, Bytes::from(line), None)?;
            let (status, headers, mut body) = self.exchange(request).await?;
            if status != StatusCode::OK {
                return Err(ConnectError::of_status(&self.agent, status.as_u16()).message);
            }
            let mut answer = Vec::new();
            while let Some(piece) = body.next().await.map_err(|error| error.to_string())? {
                answer.extend_from_slice(&piece);
                if answer.len() > self.options.max_message_bytes {
                    return Err("the answer to `initialize` is too large".to_owned());
                }
            }
            Ok((headers.get(CONNECTION_ID).cloned(), answer))
        };
        let (id, answer) = match timeout(self.options.connect_timeout, opened).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(why)) => return self.end(format!("could not be opened: {why}")),
            Err(_) => {
                return self.end("could not be opened: the server did not answer".to_owned());
            }
        };
        if let Some(id) = id {
            // A second `initialize` keeps the connection.
            drop(self.id.set(id));
            match self.get(None, None).await {
                Ok((StatusCode::OK, body)) => self.follow(None, body),
                Ok((status, _)) => {
                    return self.end(ConnectError::of_status(&self.agent, status.as_u16()).message);
                }
                Err(why) => return self.end(why),
            }
        }
        self.arrive(String::from_utf8_lossy(&answer).into_owned()).await;
    }

    /// Posts a message. Returns the status of the answer.
    async fn post(&self, body: Bytes, session: Option<&str>) -> Result<StatusCode, String> {
        match self.post_once(body.clone(), session).await? {
            // Some servers know a session only later. A refused message was not delivered, so it can be sent again.
            StatusCode::NOT_FOUND if session.is_some() => match self.post_once(body, None).await? {
                StatusCode::NOT_FOUND => Err("is not known to the server any more".to_owned()),
                status => Ok(status),
            },
            StatusCode::NOT_FOUND => Err("is not known to the server any more".to_owned()),
            status => Ok(status),
        }
    }

    async fn post_once(&self, body: Bytes, session: Option<&str>) -> Result<StatusCode, String> {
        let request = self.request(Method::POST, session, body, None)?;
        let limit = self.options.connect_timeout;
        match timeout(limit, self.exchange(request)).await {
            Ok(answered) => answered.map(|(status, ..)| status),
            Err(_) => Err(format!("took no message for {} s", limit.as_secs())),
        }
    }

    async fn ensure_stream(self: &Arc<Self>, session: &str) {
        {
            let mut sessions = lock(&self.sessions);
            if sessions.streams.len() >= MAX_STREAMS || !sessions.streams.insert(session.to_owned())
            {
                return;
            }
        }
        match self.get(Some(session), None).await {
            Ok((StatusCode::OK, body)) => self.follow(Some(session.to_owned()), body),
            Ok(_) => {
                // Its messages come on another stream, or its stream can be had later.
                let mut sessions = lock(&self.sessions);
                sessions.streams.remove(session);
                if sessions.without_stream.len() < MAX_STREAMS {
                    sessions.without_stream.insert(session.to_owned());
                }
            }
            Err(why) => self.end(why),
        }
    }

    async fn get(
        &self,
        session: Option<&str>,
        after: Option<&str>,
    ) -> Result<(StatusCode, ResponseBody), String> {
        let request = self.request(Method::GET, session, Bytes::new(), after)?;
        let limit = self.options.connect_timeout;
        match timeout(limit, self.exchange(request)).await {
            Ok(answered) => answered.map(|(status, _, body)| (status, body)),
            Err(_) => Err(format!("opened no stream within {} s", limit.as_secs())),
        }
    }

    /// Reads a stream in a task.
    fn follow(self: &Arc<Self>, session: Option<String>, body: ResponseBody) {
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let ended = connection.ended.clone();
            let why = tokio::select! {
                () = ended.cancelled() => return,
                why = connection.read_stream(session.as_deref(), body) => why,
            };
            connection.end(why);
        });
    }

    /// Reads a stream, and asks for it again after its last event if the server numbers events. Returns why it cannot be read further.
    async fn read_stream(
        self: &Arc<Self>,
        session: Option<&str>,
        mut body: ResponseBody,
    ) -> String {
        let mut last = String::new();
        loop {
            let mut why = self.read_body(body, &mut last).await;
            if last.is_empty() {
                return why;
            }
            let mut pause = FIRST_PAUSE;
            let mut attempt = 0;
            body = loop {
                if attempt == MAX_ATTEMPTS {
                    return why;
                }
                attempt += 1;
                sleep(pause).await;
                pause *= 2;
                match self.get(session, Some(&last)).await {
                    Ok((StatusCode::OK, body)) => break body,
                    Ok((status, _)) if status.is_client_error() => {
                        return format!("cannot go on: its stream has status {status}");
                    }
                    Ok((status, _)) => why = format!("broke: its stream has status {status}"),
                    Err(error) => why = error,
                }
            };
        }
    }

    async fn read_body(self: &Arc<Self>, mut body: ResponseBody, last: &mut String) -> String {
        let most = self.options.max_message_bytes;
        let limits = Limits { max_line_bytes: most + 64, max_event_bytes: most };
        let mut decoder = Decoder::new(limits);
        loop {
            match body.next().await {
                Ok(Some(piece)) => decoder.push(&piece),
                Ok(None) => return "ended: its stream was closed by the server".to_owned(),
                Err(error) => return format!("broke: {error}"),
            }
            loop {
                match decoder.next() {
                    Ok(Some(Item::Event { id, data, .. })) => {
                        self.take(data).await;
                        *last = id;
                    }
                    Ok(Some(Item::Retry(_) | Item::Comment(_))) => {}
                    Ok(None) => break,
                    Err(error) => return format!("was ended here: {error}"),
                }
            }
        }
    }

    /// Takes a message of the agent.
    async fn take(self: &Arc<Self>, message: String) {
        let mut opened = Vec::new();
        match jsonrpc::parse_within(message.as_bytes(), usize::MAX) {
            Ok(Incoming::Request(request)) => {
                let params = request.params.map_or("", |params| params.get());
                if let Some(session) = splice::get_text(params, &["sessionId"]) {
                    let mut sessions = lock(&self.sessions);
                    if sessions.of_requests.len() < MAX_REMEMBERED {
                        let id = request.id.as_str().to_owned();
                        sessions.of_requests.insert(id, session.into_owned());
                    }
                }
            }
            Ok(Incoming::Response(response)) => {
                if let Ok(result) = &response.outcome {
                    let session = splice::get_text(result.get(), &["sessionId"]);
                    opened.extend(session.map(|session| session.into_owned()));
                }
                opened.extend(lock(&self.sessions).without_stream.drain());
            }
            _ => {}
        }
        self.arrive(message).await;
        for session in opened {
            let connection = Arc::clone(self);
            tokio::spawn(async move { connection.ensure_stream(&session).await });
        }
    }

    /// Hands a message to the owner. Waits until there is room.
    async fn arrive(&self, message: String) {
        // Fails if the owner reads no more; then the connection ends.
        drop(self.arrivals.send(message).await);
    }

    fn request(
        &self,
        method: Method,
        session: Option<&str>,
        body: Bytes,
        after: Option<&str>,
    ) -> Result<http::Request<Bytes>, String> {
        let is_stream = method == Method::GET;
        let mut request = self.agent.request(method).map_err(|error| error.message)?;
        request = request.header(ACCEPT, if is_stream { EVENT_STREAM } else { JSON });
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, JSON);
        }
        if let Some(id) = self.id.get() {
            request = request.header(CONNECTION_ID, id);
        }
        if let Some(session) = session {
            request = request.header(SESSION_ID, session);
        }
        if let Some(after) = after {
            request = request.header(LAST_EVENT_ID, after);
        }
        if let Some(cookies) = lock(&self.cookies).header() {
            request = request.header(COOKIE, cookies);
        }
        request.body(body).map_err(|error| format!("cannot carry the message: {error}"))
    }

    async fn exchange(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<(StatusCode, HeaderMap, ResponseBody), String> {
        let sent = self.egress.send(request).await;
        let (status, headers, body) =
            sent.map_err(|error| ConnectError::of(&self.agent, &error).message)?;
        lock(&self.cookies).take(&headers);
        Ok((status, headers, body))
    }
}

// === impl HttpEnd ===

impl HttpEnd {
    pub(super) fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    pub(super) async fn wait(&self) -> String {
        let mut reason = self.reason.clone();
        let ended = reason.wait_for(Option::is_some).await;
        ended.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    pub(super) fn abort(&self) {
        self.ended.cancel();
    }
}
