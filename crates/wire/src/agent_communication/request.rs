use serde::Serialize;

use super::object::object;
use super::{Json, Message, RunMode, Session, Uuid};
use crate::json::member::{absent_or, defaulted, optional, required};
use crate::json::object::find_members;
use crate::json::{Path, Read, Violation, quoted};

object! {
    pub struct RunCreateRequest {
        agent_name: String = required;
        /// A session. The server creates it if it is unknown.
        session_id: Option<Uuid> = optional;
        /// A session with its history. It replaces the server's version.
        session: Option<Session> = optional;
        input: Vec<Message> = required;
        mode: RunMode = defaulted;
        /// The agent's configuration for this run, a Trilogue extension. An absent configuration is left out, because other servers ignore it.
        #[serde(skip_serializing_if = "Option::is_none")]
        config: Option<Json> = optional;
    }

    pub struct RunResumeRequest {
        /// The run, for servers that require it in the body too. It is not read, because the path names the run.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<Uuid> = unread;
        await_resume: AwaitResume = required;
        mode: RunMode = defaulted;
    }
}

/// The question of a run that waits: always a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename = "message")]
pub struct AwaitRequest {
    pub message: Message,
}

/// The answer to an [`AwaitRequest`]: always a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename = "message")]
pub struct AwaitResume {
    pub message: Message,
}

// === impl RunCreateRequest ===

impl RunCreateRequest {
    pub fn new(agent_name: impl Into<String>, input: Vec<Message>, mode: RunMode) -> Self {
        let agent_name = agent_name.into();
        Self { agent_name, session_id: None, session: None, input, mode, config: None }
    }
}

// === impl RunResumeRequest ===

#[expect(clippy::unnecessary_wraps, reason = "a mode of a member")]
fn unread<T>(_: Option<&str>, _: &Path<'_>) -> Result<Option<T>, Violation> {
    Ok(None)
}

// === impl AwaitRequest ===

impl Read for AwaitRequest {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        awaited(json, at).map(|message| Self { message })
    }
}

// === impl AwaitResume ===

impl Read for AwaitResume {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        awaited(json, at).map(|message| Self { message })
    }
}

fn awaited(json: &str, at: &Path<'_>) -> Result<Message, Violation> {
    find_members!(json, at, { kind = "type", message = "message", } else _member => {});
    let kind_at = at.key("type");
    let kind = absent_or(kind, &kind_at, || "message".to_owned())?;
    if kind != "message" {
        return Err(kind_at.violation(format!("must be \"message\", not {}", quoted(&kind))));
    }
    required(message, &at.key("message"))
}
