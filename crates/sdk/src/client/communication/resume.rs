use trilogue_wire::agent_communication::{
    AwaitResume, Message, MessagePart, RunMode, RunResumeRequest, Uuid,
};

use super::Client;
use crate::client::call::RequestBuilder;
use crate::client::{ClientError, Method};

/// The answer to a run that awaits one: a message, made from a text, a part, parts, or a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resume {
    /// The message.
    pub message: Message,
    /// The id of the question, as a Trilogue server names it; `None` for the question that was last shown.
    pub interrupt: Option<String>,
}

// === impl Resume ===

impl Resume {
    /// Answers only the question with this id.
    #[must_use]
    pub fn for_interrupt(mut self, interrupt: impl Into<String>) -> Self {
        self.interrupt = Some(interrupt.into());
        self
    }

    pub(super) fn call(
        self,
        client: &Client,
        run: Uuid,
        mode: RunMode,
    ) -> Result<RequestBuilder, ClientError> {
        let await_resume = AwaitResume { message: self.message };
        let request = RunResumeRequest { run_id: Some(run), await_resume, mode };
        let call = client.call(Method::Post, &["runs", &run.to_string()]).json(&request)?;
        Ok(match self.interrupt {
            Some(interrupt) => call.header("interrupt-id", interrupt),
            None => call,
        })
    }
}

impl From<Message> for Resume {
    fn from(message: Message) -> Self {
        Self { message, interrupt: None }
    }
}

impl From<Vec<MessagePart>> for Resume {
    fn from(parts: Vec<MessagePart>) -> Self {
        Self::from(Message::user(parts))
    }
}

impl From<MessagePart> for Resume {
    fn from(part: MessagePart) -> Self {
        Self::from(vec![part])
    }
}

impl From<&str> for Resume {
    fn from(text: &str) -> Self {
        Self::from(Message::text(text))
    }
}

impl From<String> for Resume {
    fn from(text: String) -> Self {
        Self::from(MessagePart::text(text))
    }
}
