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
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;
use trilogue_egress::{Client as Egress, ResponseBody};
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::{self, Code, ErrorObject, Incoming};
use trilogue_wire::native::local::AttachCapability;
use trilogue_wire::sse::{Decoder, Item, Limits};
use uuid::Uuid;

use super::cookies::Cookies;
use super::end::{StreamEnd, StreamEnder};
use super::pauses::Pauses;
use super::{AgentUrl, ConnectError, Connection, ConnectionEnd, ConnectionOptions, EndKind};

const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const INITIALIZE: &str = "initialize";
const UNKNOWN: &str = "is not known to the server any more";
/// The requests that end their session.
const ENDINGS: [&str; 2] = ["session/close", "session/delete"];

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
/// How long a broken stream is asked for again, if its server numbers its events and does not say how long it keeps a connection.
const UNKNOWN_GRACE: Duration = Duration::from_secs(25);
/// How long one attempt may take to a server that keeps connections.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);
/// The number before that of the first event, at a server that keeps connections.
const BEFORE_FIRST: &str = "0";
/// How long the server may take to end the connection.
const CLOSE_TIME: Duration = Duration::from_secs(2);

struct HttpConnection {
    agent: AgentUrl,
    egress: Egress,
    options: ConnectionOptions,
    id: OnceLock<HeaderValue>,
    cookies: Mutex<Cookies>,
    /// Messages for the owner.
    arrivals: mpsc::Sender<String>,
    sessions: Mutex<Sessions>,
    /// How long the server keeps the connection after lost connections of the network. Not set if it does not.
    grace: OnceLock<Duration>,
    ender: StreamEnder,
}

#[derive(Default)]
struct Sessions {
    /// What ends the streams.
    streams: HashMap<String, CancellationToken>,
    /// The sessions whose streams the server did not have yet.
    without_stream: HashSet<String>,
    /// The sessions of the agent's requests, by the id of the request.
    of_requests: HashMap<String, String>,
    /// The sessions that our requests end, by the id of the request.
    of_endings: HashMap<String, String>,
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
    let (ender, end) = StreamEnd::new();
    let connection = Arc::new(HttpConnection {
        agent: agent.clone(),
        egress,
        options: options.clone(),
        id: OnceLock::new(),
        cookies: Mutex::default(),
        arrivals,
        sessions: Mutex::default(),
        grace: OnceLock::new(),
        ender,
    });
    tokio::spawn(deliver(arrived, incoming, Arc::clone(&connection)));
    tokio::spawn(connection.run(outgoing));
    Ok(Connection { read, write, end: ConnectionEnd(EndKind::Stream(end)) })
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
            () = connection.ender.ended.cancelled() => None,
        };
        let Some(message) = message else { return };
        let line = format!("{}\n", message.replace('\n', " "));
        if to.write_all(line.as_bytes()).await.is_err() {
            return connection.end("was closed by this side".to_owned());
        }
    }
}

/// Whether a later attempt can succeed: a proxy has not reached the server, or the server is not ready.
fn is_transient(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    )
}

// === impl HttpConnection ===

impl HttpConnection {
    /// Sends lines until the connection ends, then tells the server.
    async fn run(self: Arc<Self>, outgoing: DuplexStream) {
        let mut lines = BufReader::new(outgoing).lines();
        let mut posts = JoinSet::new();
        loop {
            let line = tokio::select! {
                () = self.ender.ended.cancelled() => break,
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
            // A server that keeps connections accepts messages at once, so a late one is sent again.
            let order_time = self.grace.get().copied().unwrap_or(ORDER_TIME);
            tokio::select! {
                () = self.ender.ended.cancelled() => break,
                // Ends with an error when the post is done.
                _ = timeout(order_time, accepted) => {}
            }
        }
        // What was sent before is still delivered.
        if !self.ender.ended.is_cancelled() {
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
        self.ender.end(reason);
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
        if let (Incoming::Request(request), Some(session)) = (&message, &session)
            && ENDINGS.contains(&&*request.method)
        {
            let mut sessions = lock(&self.sessions);
            if sessions.of_endings.len() < MAX_REMEMBERED {
                let id = request.id.as_str().to_owned();
                sessions.of_endings.insert(id, session.clone());
            }
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
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if let Some(id) = id {
            // A second `initialize` keeps the connection.
            drop(self.id.set(id));
            let result = splice::get(&answer, &["result"]).and_then(AttachCapability::read);
            if let Some(attach) = result {
                let _ = self.grace.set(Duration::from_millis(attach.grace_ms));
            }
            match self.open_stream(None).await {
                Ok((StatusCode::OK, body)) => self.follow(None, body, self.ender.ended.clone()),
                Ok((status, _)) => {
                    return self.end(ConnectError::of_status(&self.agent, status.as_u16()).message);
                }
                Err(why) => return self.end(why),
            }
        }
        self.arrive(answer).await;
    }

    /// Posts a message. Returns the status of the answer.
    async fn post(&self, body: Bytes, session: Option<&str>) -> Result<StatusCode, String> {
        let Some(grace) = self.grace.get() else { return self.post_anywhere(body, session).await };
        // With the same key the server takes the message once, however often it arrives.
        let key = HeaderValue::try_from(Uuid::new_v4().to_string()).ok();
        let mut pauses = Pauses::within(*grace);
        loop {
            let why = match self.post_once(body.clone(), session, key.as_ref()).await {
                Ok(StatusCode::NOT_FOUND) => return Err(UNKNOWN.to_owned()),
                Ok(status) if !is_transient(status) => return Ok(status),
                Ok(status) => format!("cannot carry a message: the server has status {status}"),
                Err(why) => why,
            };
            if !self.pause(&mut pauses).await {
                return Err(why);
            }
        }
    }

    /// Posts a message to a server that does not keep connections.
    async fn post_anywhere(
        &self,
        body: Bytes,
        session: Option<&str>,
    ) -> Result<StatusCode, String> {
        match self.post_once(body.clone(), session, None).await? {
            // Some servers know a session only later. A refused message was not delivered, so it can be sent again.
            StatusCode::NOT_FOUND if session.is_some() => {
                match self.post_once(body, None, None).await? {
                    StatusCode::NOT_FOUND => Err(UNKNOWN.to_owned()),
                    status => Ok(status),
                }
            }
            StatusCode::NOT_FOUND => Err(UNKNOWN.to_owned()),
            status => Ok(status),
        }
    }

    async fn post_once(
        &self,
        body: Bytes,
        session: Option<&str>,
        key: Option<&HeaderValue>,
    ) -> Result<StatusCode, String> {
        let mut request = self.request(Method::POST, session, body, None)?;
        if let Some(key) = key {
            request.headers_mut().insert(IDEMPOTENCY_KEY, key.clone());
        }
        let limit = self.attempt_time();
        match timeout(limit, self.exchange(request)).await {
            Ok(answered) => answered.map(|(status, ..)| status),
            Err(_) => Err(format!("took no message for {} s", limit.as_secs())),
        }
    }

    /// Waits before the next attempt. Returns `false` at the end of the time.
    async fn pause(&self, pauses: &mut Pauses) -> bool {
        tokio::select! {
            has_next = pauses.pause() => has_next,
            () = self.ender.ended.cancelled() => false,
        }
    }

    /// How long one attempt may take.
    fn attempt_time(&self) -> Duration {
        let limit = self.options.connect_timeout;
        if self.grace.get().is_some() { limit.min(ATTEMPT_TIME) } else { limit }
    }

    async fn ensure_stream(self: &Arc<Self>, session: &str) {
        let ended = self.ender.ended.child_token();
        {
            let mut sessions = lock(&self.sessions);
            if sessions.streams.len() >= MAX_STREAMS || sessions.streams.contains_key(session) {
                return;
            }
            sessions.streams.insert(session.to_owned(), ended.clone());
        }
        match self.open_stream(Some(session)).await {
            Ok((StatusCode::OK, body)) => self.follow(Some(session.to_owned()), body, ended),
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

    /// Opens a stream for the first time.
    async fn open_stream(
        &self,
        session: Option<&str>,
    ) -> Result<(StatusCode, ResponseBody), String> {
        match self.grace.get() {
            None => self.get(session, None).await,
            Some(grace) => self.get_again(session, BEFORE_FIRST, *grace).await,
        }
    }

    /// Opens a stream after this event, also if the server still has a reader of it. Tries until the server answers.
    async fn get_again(
        &self,
        session: Option<&str>,
        after: &str,
        grace: Duration,
    ) -> Result<(StatusCode, ResponseBody), String> {
        let mut pauses = Pauses::within(grace);
        loop {
            let answered = self.get(session, Some(after)).await;
            match &answered {
                Ok((status, _)) if !is_transient(*status) => return answered,
                _ if !self.pause(&mut pauses).await => return answered,
                _ => {}
            }
        }
    }

    async fn get(
        &self,
        session: Option<&str>,
        after: Option<&str>,
    ) -> Result<(StatusCode, ResponseBody), String> {
        let request = self.request(Method::GET, session, Bytes::new(), after)?;
        let limit = self.attempt_time();
        match timeout(limit, self.exchange(request)).await {
            Ok(answered) => answered.map(|(status, _, body)| (status, body)),
            Err(_) => Err(format!("opened no stream within {} s", limit.as_secs())),
        }
    }

    /// Reads a stream in a task, until it ends or is no longer wanted.
    fn follow(
        self: &Arc<Self>,
        session: Option<String>,
        body: ResponseBody,
        ended: CancellationToken,
    ) {
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            let why = tokio::select! {
                biased;
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
        let grace = self.grace.get().copied();
        let mut last = if grace.is_some() { BEFORE_FIRST.to_owned() } else { String::new() };
        loop {
            let why = self.read_body(body, &mut last).await;
            if last.is_empty() {
                return why;
            }
            body = match self.get_again(session, &last, grace.unwrap_or(UNKNOWN_GRACE)).await {
                Ok((StatusCode::OK, body)) => body,
                Ok((status, _)) if status.is_client_error() => {
                    return format!("cannot go on: its stream has status {status}");
                }
                Ok((status, _)) => return format!("broke: its stream has status {status}"),
                Err(_) => return why,
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
        let mut closed = None;
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
                let mut sessions = lock(&self.sessions);
                let ended = sessions.of_endings.remove(response.id.as_str());
                if let Ok(result) = &response.outcome {
                    // A server forgets the stream of a session that has ended. A later load of the session needs another one.
                    closed = ended.and_then(|session| sessions.streams.remove(&session));
                    let session = splice::get_text(result.get(), &["sessionId"]);
                    opened.extend(session.map(|session| session.into_owned()));
                }
                opened.extend(sessions.without_stream.drain());
            }
            _ => {}
        }
        self.arrive(message).await;
        if let Some(stream) = closed {
            stream.cancel();
        }
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
