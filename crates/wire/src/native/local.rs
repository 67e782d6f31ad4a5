//! The protocol of the server's local socket: the handshake, and the control lines between messages.
//!
//! A program connects to the server's socket, sends one [`Hello`] as a line and gets one [`HelloReply`]. Then both sides speak the
//! Agent Client Protocol, one message a line. If the hello requests numbers, the server writes a [`Control`] line after every batch of
//! messages. Messages without a control line after them may arrive again on the next connection and must not be passed on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::agent_client::splice;
use crate::json::record::record;

/// The version of this protocol.
pub const VERSION: u32 = 1;
/// The maximum length of the first line, in bytes.
pub const MAX_HELLO_BYTES: usize = 1024 * 1024;
/// The subprotocol of a WebSocket that carries this protocol, one line in each text frame. Without it, a WebSocket carries only messages, in the way of the official SDKs.
pub const SUBPROTOCOL: &str = "trilogue.local";
/// The request with which a client continues after its connection was lost.
///
/// A numbered connection continues a session of an earlier connection: the params are [`AttachParams`], the result is `{}`. As the first
/// message of a WebSocket without the subprotocol, it continues the connection of an earlier WebSocket: the params are [`ContinueParams`],
/// the result is [`ContinueResult`]. That needs [`AttachCapability`].
pub const ATTACH_METHOD: &str = "_trilogue/attach";

record! {
    /// The first line of a connection.
    pub local struct Hello {
        /// [`VERSION`].
        trilogue: u32,
        /// The requested agent.
        #[serde(flatten)]
        target: AgentTarget,
        /// Whether the client requests control lines.
        numbered: bool = default,
        /// The id of the client across connections, a UUID. With it, the server does not show a reconnected client its own prompts as those of another client.
        client?: String,
    }
}

/// The requested agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentTarget {
    /// An agent of the server.
    Attach(Attach),
    /// A command that is an agent. The server adds it to its agents.
    Wrap(WrapCommand),
}

record! {
    /// An agent of the server.
    pub local struct Attach {
        /// The name of the agent.
        agent: String,
        /// The client's working directory, if it is known before a session names one: an absolute path. A hosted agent may be started there.
        cwd?: String,
    }

    /// A command that is an agent, and its settings.
    pub local struct WrapCommand: Default {
        /// The name of the agent. Without one, the server makes a name.
        name?: String,
        /// The program and its arguments.
        command: Vec<String>,
        /// The working directory: an absolute path.
        cwd: String,
        /// The whole environment.
        env: BTreeMap<String, String> = default,
        /// The known agent that the command runs. A name from the server begins with it.
        known?: String,
        /// The authentication method to use if the agent requires one.
        auth_method?: String,
        /// The initial mode of its sessions: the first of these modes that the agent offers.
        mode: Vec<String> = default unless "Vec::is_empty",
        /// How long the agent may take to start, in milliseconds, if it needs longer than usual.
        start_timeout_ms?: u64,
    }
}

/// The response to the first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HelloReply {
    /// The connection is open; messages follow.
    Open(HelloAccepted),
    /// The connection is refused and ends.
    Refused(HelloRejected),
}

record! {
    /// The response of an open connection.
    pub local struct HelloAccepted {
        /// [`VERSION`].
        trilogue: u32,
        /// The agent's name on the server.
        agent: String,
        /// The server's version.
        version: String,
        /// The id of this server process. Another id means that the server has restarted.
        life: String,
        /// The maximum length of a line that the server accepts, in bytes without its end.
        max_line?: usize,
        /// The maximum length of a line that the server sends, in bytes without its end.
        max_sent?: usize,
    }

    /// The response of a refused connection.
    pub local struct HelloRejected {
        /// [`VERSION`].
        trilogue: u32,
        /// The reason.
        error: LocalError,
    }

    /// Why a connection is refused.
    pub local struct LocalError {
        /// The stable code.
        code: String,
        /// The message, which names its subject.
        message: String,
        /// What to do next.
        hint?: String,
    }
}

/// A line between messages for the connected program. It must not reach that program's client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// `#P SESSION NUMBER`: everything before this line belongs to the session, up to this number of its thread.
    Position {
        /// The session.
        session: Cow<'a, str>,
        /// The thread number of the last event that the client now has.
        number: u64,
    },
    /// `#.`: everything before this line may be passed on; no position changes.
    Boundary,
    /// `#I REQUEST INTERRUPT`: the next request asks for the answer to this interrupt.
    Question {
        /// The request's id, as JSON.
        request: Cow<'a, str>,
        /// The interrupt's id.
        interrupt: Cow<'a, str>,
    },
    /// `#A REQUEST`: the prompt with this id has begun a turn, which continues even if the connection breaks.
    Accepted {
        /// The request's id, as JSON.
        request: Cow<'a, str>,
    },
}

record! {
    /// The additional members that only a numbered connection may send, in the `_meta` of its messages: `{"trilogue": {…}}`.
    ///
    /// They are removed before the message is read or stored.
    pub local struct Extras: Default {
        /// On `session/prompt`: the key of the prompt. A prompt that is sent again with the same key does not run again.
        key?: String,
        /// On `session/new`: the id of the session to begin, or of the session that was begun before. A UUID.
        session?: String,
        /// On `session/load`: only events after this number of the thread are sent.
        after?: u64,
        /// On `initialize` as the first message of a WebSocket, for any client: whether another WebSocket may continue the connection.
        attach?: bool,
    }

    /// The params of [`ATTACH_METHOD`], in addition to the params that opened the session.
    #[serde(rename_all = "camelCase")]
    pub local struct AttachParams {
        /// The id of the session.
        session_id: String,
        /// The thread number of the last event that the client has.
        after: u64 = default,
        /// The same for sub-agents, by the ids of their sessions. Those of other sessions can be among them.
        after_of_children: BTreeMap<String, u64> = default,
    }

    /// What the server announces in `agentCapabilities._meta.trilogue.attach` of the result of `initialize`: the connection outlives lost
    /// connections of the network. A client over HTTP opens its streams again with `Last-Event-ID`, and repeats a message that may be
    /// lost with the same `Idempotency-Key`. A client on a WebSocket opens another one, and sends [`ATTACH_METHOD`].
    #[serde(rename_all = "camelCase")]
    pub local struct AttachCapability {
        /// The id of the connection. `None` if it does not outlive its WebSocket, because the client did not ask for that.
        connection_id?: String,
        /// How long the connection waits for its client, in milliseconds.
        grace_ms: u64,
    }

    /// The params of [`ATTACH_METHOD`] as the first message of a WebSocket.
    #[serde(rename_all = "camelCase")]
    pub local struct ContinueParams {
        /// The id of the connection.
        connection_id: String,
        /// How many messages of the server the client has received on the connection, the response to `initialize` included. Responses to this method do not count. The server sends those after them.
        received: u64,
    }

    /// The result of [`ATTACH_METHOD`] as the first message of a WebSocket.
    pub local struct ContinueResult {
        /// How many messages of the client the server has received on the connection, `initialize` included. Requests of this method do not count. The client sends those after them again.
        received: u64,
    }
}

// === impl Hello ===

impl Hello {
    pub const fn new(wish: AgentTarget, numbered: bool) -> Self {
        Self { trilogue: VERSION, target: wish, numbered, client: None }
    }
}

// === impl HelloReply ===

impl HelloReply {
    pub fn from_problem(problem: &Problem) -> Self {
        let error = LocalError {
            code: problem.code.clone(),
            message: problem.detail.clone(),
            hint: problem.hint.clone(),
        };
        Self::Refused(HelloRejected { trilogue: VERSION, error })
    }
}

// === impl Control ===

impl<'a> Control<'a> {
    /// Parses a line without its end. Returns `None` for a line that is not a control line, or that a later version added.
    pub fn parse(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix('#')?;
        if line == "." {
            return Some(Self::Boundary);
        }
        if let Some(request) = line.strip_prefix("A ") {
            return Some(Self::Accepted { request: request.into() });
        }
        let (kind, rest) = line.split_once(' ')?;
        let (first, second) = rest.rsplit_once(' ')?;
        match kind {
            "P" => Some(Self::Position { session: first.into(), number: second.parse().ok()? }),
            "I" => Some(Self::Question { request: first.into(), interrupt: second.into() }),
            _ => None,
        }
    }

    /// Returns `true` if a line is for the connected program and must not reach its client.
    pub fn is_one(line: &[u8]) -> bool {
        line.first() == Some(&b'#')
    }
}

impl fmt::Display for Control<'_> {
    /// Writes the line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position { session, number } => write!(f, "#P {session} {number}"),
            Self::Boundary => f.write_str("#."),
            Self::Question { request, interrupt } => write!(f, "#I {request} {interrupt}"),
            Self::Accepted { request } => write!(f, "#A {request}"),
        }
    }
}

// === impl AttachCapability ===

impl AttachCapability {
    const META: [&'static str; 2] = ["agentCapabilities", "_meta"];
    const NAMESPACE: [&'static str; 3] = ["agentCapabilities", "_meta", "trilogue"];
    const MEMBER: [&'static str; 4] = ["agentCapabilities", "_meta", "trilogue", "attach"];

    /// Returns the result of `initialize` with this announcement. `None` if the result has no capabilities.
    pub fn put(&self, result: &str) -> Option<String> {
        let attach = serde_json::to_string(self).ok()?;
        let is_object =
            |path: &[&str]| splice::get(result, path).is_some_and(|member| member.starts_with('{'));
        if is_object(&Self::NAMESPACE) {
            return splice::set(result, &Self::MEMBER, &attach);
        }
        let namespace = format!(r#"{{"attach":{attach}}}"#);
        if is_object(&Self::META) {
            return splice::set(result, &Self::NAMESPACE, &namespace);
        }
        splice::set(result, &Self::META, &format!(r#"{{"trilogue":{namespace}}}"#))
    }

    /// Reads the announcement in the result of `initialize`.
    pub fn read(result: &str) -> Option<Self> {
        serde_json::from_str(splice::get(result, &Self::MEMBER)?).ok()
    }
}

// === impl Extras ===

impl Extras {
    const MEMBER: [&'static str; 2] = ["_meta", "trilogue"];

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the params with these extras. The text must be a JSON object. Other members of its `_meta` stay.
    pub fn put<'a>(&self, params: &'a str) -> Cow<'a, str> {
        let Ok(extras) = serde_json::to_string(self) else { return Cow::Borrowed(params) };
        let set = match splice::get(params, &["_meta"]) {
            Some(meta) if meta.starts_with('{') => splice::set(params, &Self::MEMBER, &extras),
            _ => splice::set(params, &["_meta"], &format!(r#"{{"trilogue":{extras}}}"#)),
        };
        set.map_or(Cow::Borrowed(params), Cow::Owned)
    }

    /// Returns the params without their extras, and the extras. Invalid extras count as absent. A `_meta` without other members is removed too.
    pub fn take(params: &str) -> (Cow<'_, str>, Self) {
        let Some(found) = splice::get(params, &Self::MEMBER) else {
            return (Cow::Borrowed(params), Self::default());
        };
        let extras = serde_json::from_str(found).unwrap_or_default();
        let rest = splice::remove(params, &Self::MEMBER);
        let is_bare = splice::get(&rest, &["_meta"])
            .and_then(|meta| meta.strip_prefix('{')?.strip_suffix('}'))
            .is_some_and(|inside| inside.trim_ascii().is_empty());
        if is_bare {
            return (Cow::Owned(splice::remove(&rest, &["_meta"]).into_owned()), extras);
        }
        (rest, extras)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_read_as_they_are_written() {
        let attach = r#"{"trilogue":1,"attach":{"agent":"echo"},"numbered":true}"#;
        let hello: Hello = serde_json::from_str(attach).unwrap();
        let wish = |cwd: Option<&str>| {
            AgentTarget::Attach(Attach { agent: "echo".to_owned(), cwd: cwd.map(str::to_owned) })
        };
        assert_eq!(hello, Hello::new(wish(None), true));
        assert_eq!(serde_json::to_string(&hello).unwrap(), attach);
        let there = r#"{"trilogue":1,"attach":{"agent":"echo","cwd":"/w"},"numbered":false}"#;
        let hello: Hello = serde_json::from_str(there).unwrap();
        assert_eq!(hello, Hello::new(wish(Some("/w")), false));
        assert_eq!(serde_json::to_string(&hello).unwrap(), there);
        let wrap = r#"{"trilogue":1,"wrap":{"command":["x","--acp"],"cwd":"/w","env":{"K":"V"}}}"#;
        let hello: Hello = serde_json::from_str(wrap).unwrap();
        let AgentTarget::Wrap(command) = hello.target else { panic!("{hello:?}") };
        assert_eq!((command.name, command.command.len(), hello.numbered), (None, 2, false));
        for bad in ["{}", r#"{"trilogue":1}"#, r#"{"attach":{"agent":"x"}}"#, "[]"] {
            assert!(serde_json::from_str::<Hello>(bad).is_err(), "{bad}");
        }
        let refused = r#"{"trilogue":1,"error":{"code":"agent_not_found","message":"no"}}"#;
        let Ok(HelloReply::Refused(refused)) = serde_json::from_str(refused) else {
            panic!("{refused}")
        };
        assert_eq!(refused.error.code, "agent_not_found");
    }

    #[test]
    fn control_lines_read_as_they_are_written() {
        let session = Cow::Borrowed("s 1");
        for (control, line) in [
            (Control::Position { session, number: 7 }, "#P s 1 7"),
            (Control::Boundary, "#."),
            (Control::Question { request: "12".into(), interrupt: "i".into() }, "#I 12 i"),
            (Control::Accepted { request: r#""a b""#.into() }, r#"#A "a b""#),
        ] {
            assert_eq!(control.to_string(), line);
            assert_eq!(Control::parse(line), Some(control));
        }
        for other in ["{}", "#", "#P", "#P s", "#P s x", "#Z a b"] {
            assert_eq!(Control::parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_announcement_reads_as_it_is_written() {
        let announced = AttachCapability { connection_id: Some("c".to_owned()), grace_ms: 5 };
        let attach = r#"{"connectionId":"c","graceMs":5}"#;
        for (plain, with) in [
            ("{}", r#"{"trilogue":{"attach":ATTACH}}"#),
            (r#"{"_meta":{"x":1}}"#, r#"{"x":1,"trilogue":{"attach":ATTACH}}"#),
            (r#"{"_meta":{"trilogue":{"y":2}}}"#, r#"{"trilogue":{"y":2,"attach":ATTACH}}"#),
            (r#"{"_meta":null}"#, r#"{"trilogue":{"attach":ATTACH}}"#),
        ] {
            let plain = format!(r#"{{"agentCapabilities":{plain}}}"#);
            let with = with.replace("ATTACH", attach);
            let put = announced.put(&plain).unwrap();
            assert_eq!(put, format!(r#"{{"agentCapabilities":{{"_meta":{with}}}}}"#));
            assert_eq!(AttachCapability::read(&put), Some(announced.clone()));
            assert_eq!(AttachCapability::read(&plain), None);
        }
        assert_eq!(announced.put("{}"), None);
    }

    #[test]
    fn extras_leave_no_trace() {
        let extras = Extras { key: Some("k".to_owned()), ..Extras::default() };
        for (plain, with) in [
            (r#"{"a":1}"#, r#"{"a":1,"_meta":{"trilogue":{"key":"k"}}}"#),
            (r#"{"_meta":{"x":1}}"#, r#"{"_meta":{"x":1,"trilogue":{"key":"k"}}}"#),
        ] {
            assert_eq!(extras.put(plain), with);
            assert_eq!(Extras::take(with), (Cow::Owned(plain.to_owned()), extras.clone()));
            assert_eq!(Extras::take(plain), (Cow::Borrowed(plain), Extras::default()));
        }
        let null = extras.put(r#"{"_meta":null}"#).into_owned();
        assert_eq!(Extras::take(&null), (Cow::Owned("{}".to_owned()), extras));
        let odd = r#"{"_meta":{"trilogue":5}}"#;
        assert_eq!(Extras::take(odd), (Cow::Owned("{}".to_owned()), Extras::default()));
    }
}
