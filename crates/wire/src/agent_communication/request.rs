use serde::Serialize;

use super::{Json, Message, RunMode, Session, Uuid};

/// Asks for a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunCreateRequest {
    /// The agent to run.
    pub agent_name: String,
    /// The session it belongs to, which the server knows or makes.
    pub session_id: Option<Uuid>,
    /// The session it belongs to, brought along: it replaces what the server knows of it.
    pub session: Option<Session>,
    /// What the agent is given; there may be none.
    pub input: Vec<Message>,
    /// How the answer is delivered.
    pub mode: RunMode,
    /// Our extension: settings of the agent for this run. Other servers do not look at it, so it is left out where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Json>,
}

/// Gives a run what it waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunResumeRequest {
    /// The run, for servers that ask for it in the body too; what a client writes here is not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Uuid>,
    /// What it waits for.
    pub await_resume: AwaitResume,
    /// How the answer is delivered.
    pub mode: RunMode,
}

/// What a run waits for: always a message. This one says what is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename = "message")]
pub struct AwaitRequest {
    /// The question.
    pub message: Message,
}

/// What a run waited for: always a message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "type", rename = "message")]
pub struct AwaitResume {
    /// The answer.
    pub message: Message,
}

// === impl RunCreateRequest ===

impl RunCreateRequest {
    /// A request without session and configuration.
    #[must_use]
    pub fn new(agent_name: impl Into<String>, input: Vec<Message>, mode: RunMode) -> Self {
        let agent_name = agent_name.into();
        Self { agent_name, session_id: None, session: None, input, mode, config: None }
    }
}
