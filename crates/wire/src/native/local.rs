//! The door of the server on the same machine: what is said first, and the lines between messages.
//!
//! A program connects to the server's socket, sends one [`Hello`] as a line and gets one [`Welcome`]. From then on the two speak the
//! Agent Client Protocol, one message a line. Where the hello asked for numbers, the server writes a [`Control`] line behind every batch of
//! messages: messages behind which none has come yet may come again on the next connection, and are not to be passed on.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Problem;
use crate::agent_client::splice;
use crate::json::record::record;

/// The version of this door.
pub const VERSION: u32 = 1;
/// The longest first line, in bytes.
pub const MAX_HELLO_BYTES: usize = 1024 * 1024;
/// The request by which a numbered connection follows a session from where another has left: [`AttachParams`], answered with `{}`.
pub const ATTACH_METHOD: &str = "_trilogue/attach";

/// The first line of whoever connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub trilogue: u32,
    /// Which agent is spoken to.
    #[serde(flatten)]
    pub wish: Wish,
    /// Whether control lines are wanted.
    #[serde(default)]
    pub numbered: bool,
    /// Names the client across connections, where it comes back after one has broken: what it prompted before is then not told to it as another's. A UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// Which agent is spoken to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// One that the server has.
    Attach(Attach),
    /// One that a command is, which the server keeps from now on.
    Wrap(WrapCommand),
}

/// An agent that the server has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attach {
    /// Its name.
    pub agent: String,
    /// Where whoever speaks to it works, as far as that is known before a session says so: an absolute path. A hosted agent may be started there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// A command that is an agent, and what it is started with.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WrapCommand {
    /// What the agent shall be called; the server makes a name where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it is started: an absolute path.
    pub cwd: String,
    /// Its environment, whole.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The known agent that it is: a name that the server makes begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
    /// The authentication method to use when it asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_method: Option<String>,
    /// The mode that its sessions begin with: the first of these that it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mode: Vec<String>,
    /// How long it may take to start, in milliseconds, where that is longer than usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
}

/// The answer to the first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Welcome {
    /// The agent is there; messages follow.
    Open(Opened),
    /// It is not; the connection ends.
    Refused(Refused),
}

record! {
    /// The agent is there.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
    pub struct Opened {
        /// [`VERSION`].
        trilogue: u32,
        /// The agent's name in the server.
        agent: String,
        /// The server's version.
        version: String,
        /// Names this life of the server: another one means that it was started anew in between.
        life: String,
        /// The longest line that it takes, in bytes without its end.
        max_line?: usize,
        /// The longest line that it means to send, in the same way.
        max_sent?: usize,
    }
}

/// The agent is not there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// [`VERSION`].
    pub trilogue: u32,
    /// Why.
    pub error: LocalError,
}

/// Why a connection is refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LocalError {
    /// The stable code.
    pub code: String,
    /// What happened, naming the subject.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A line between messages, which is for the other program and never for its client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control<'a> {
    /// `#P SESSION NUMBER`: everything before it belongs to the session up to this number of its thread.
    Position {
        /// The session.
        session: Cow<'a, str>,
        /// The thread number of the last event that the client has now.
        number: u64,
    },
    /// `#.`: what came before it may be passed on; no position changes.
    Boundary,
    /// `#I REQUEST INTERRUPT`: the request that follows asks for the answer to this interrupt.
    Question {
        /// The request's id, as JSON.
        request: Cow<'a, str>,
        /// The interrupt's id.
        interrupt: Cow<'a, str>,
    },
    /// `#A REQUEST`: the prompt of this id has begun a turn, which goes on whatever becomes of the connection.
    Accepted {
        /// The request's id, as JSON.
        request: Cow<'a, str>,
    },
}

record! {
    /// What only a numbered connection may say beside the protocol, in the `_meta` of what it sends: `{"trilogue": {…}}`.
    ///
    /// It is cut out before anything reads or keeps the message.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
    pub struct Extras {
        /// On `session/prompt`: names the prompt, so that one that is sent again is not run again.
        key?: String,
        /// On `session/new`: the id of the session to begin, or to find where it was begun before. A UUID.
        session?: String,
        /// On `session/load`: only what is behind this number of the thread is told.
        after?: u64,
    }
}

/// What [`ATTACH_METHOD`] carries, beside what the session was opened with, as it was given then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachParams {
    /// The session.
    pub session_id: String,
    /// The thread number of the last event that the client has.
    #[serde(default)]
    pub after: u64,
}

// === impl Hello ===

impl Hello {
    pub const fn new(wish: Wish, numbered: bool) -> Self {
        Self { trilogue: VERSION, wish, numbered, client: None }
    }
}

// === impl Welcome ===

impl Welcome {
    pub fn refused(problem: &Problem) -> Self {
        let error = LocalError {
            code: problem.code.clone(),
            message: problem.detail.clone(),
            hint: problem.hint.clone(),
        };
        Self::Refused(Refused { trilogue: VERSION, error })
    }
}

// === impl Control ===

impl<'a> Control<'a> {
    /// Reads a line without its end; `None` where it is no control line, or one that a later version added.
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

    /// Whether a line is for the other program and never for its client.
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

// === impl Extras ===

impl Extras {
    const MEMBER: [&'static str; 2] = ["_meta", "trilogue"];

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is carried, with these extras. The text has to be a JSON object; whatever else its `_meta` has stays.
    pub fn put<'a>(&self, params: &'a str) -> Cow<'a, str> {
        let Ok(extras) = serde_json::to_string(self) else { return Cow::Borrowed(params) };
        let set = match splice::get(params, &["_meta"]) {
            Some(meta) if meta.starts_with('{') => splice::set(params, &Self::MEMBER, &extras),
            _ => splice::set(params, &["_meta"], &format!(r#"{{"trilogue":{extras}}}"#)),
        };
        set.map_or(Cow::Borrowed(params), Cow::Owned)
    }

    /// What is carried, without its extras, and these. What does not fit counts as not said. A `_meta` that has nothing else is taken out too.
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
            Wish::Attach(Attach { agent: "echo".to_owned(), cwd: cwd.map(str::to_owned) })
        };
        assert_eq!(hello, Hello::new(wish(None), true));
        assert_eq!(serde_json::to_string(&hello).unwrap(), attach);
        let there = r#"{"trilogue":1,"attach":{"agent":"echo","cwd":"/w"},"numbered":false}"#;
        let hello: Hello = serde_json::from_str(there).unwrap();
        assert_eq!(hello, Hello::new(wish(Some("/w")), false));
        assert_eq!(serde_json::to_string(&hello).unwrap(), there);
        let wrap = r#"{"trilogue":1,"wrap":{"command":["x","--acp"],"cwd":"/w","env":{"K":"V"}}}"#;
        let hello: Hello = serde_json::from_str(wrap).unwrap();
        let Wish::Wrap(command) = hello.wish else { panic!("{hello:?}") };
        assert_eq!((command.name, command.command.len(), hello.numbered), (None, 2, false));
        for bad in ["{}", r#"{"trilogue":1}"#, r#"{"attach":{"agent":"x"}}"#, "[]"] {
            assert!(serde_json::from_str::<Hello>(bad).is_err(), "{bad}");
        }
        let refused = r#"{"trilogue":1,"error":{"code":"agent_not_found","message":"no"}}"#;
        let Ok(Welcome::Refused(refused)) = serde_json::from_str(refused) else {
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
