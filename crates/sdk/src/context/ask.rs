//! Questions of an agent that wait for the answer.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Interrupt, Part, PrincipalId, Resolution, Survives};

use super::Context;
use crate::error::AgentError;
use crate::question::Question;
use crate::typed::{from_json, schema_of};

/// The decision on a permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether the agent may do it. Always `false` after a timeout.
    pub allowed: bool,
    /// The id of the chosen option, or of the option that applied when the question timed out.
    pub option: Option<String>,
    /// Who decided; `None` if the question timed out.
    pub by: Option<PrincipalId>,
}

impl Context {
    /// Asks a question and waits in this task. The question ends with the process; to wait across restarts, return [`Outcome::suspended`](crate::Outcome::suspended).
    ///
    /// # Errors
    /// [`AgentError::run_stopped`] if the run was stopped meanwhile; `interrupt_schema_violation` if the card does not declare this question of the agent's own kind. After a schema violation the run fails with this error, even if the agent handles it.
    pub async fn ask<Q>(&self, question: Q) -> Result<Resolution, AgentError>
    where
        Q: TryInto<Interrupt, Error: Into<AgentError>> + Send,
    {
        let interrupt = question.try_into().map_err(Into::into)?;
        let interrupt = Interrupt { survives: Survives::Process, ..interrupt };
        self.shared.host.ask(interrupt).await
    }

    /// Asks whether the agent may do something.
    ///
    /// # Errors
    /// Like [`Context::ask`]; also if the question was withdrawn.
    pub async fn ask_permission(&self, question: Question) -> Result<Decision, AgentError> {
        let interrupt = Interrupt::try_from(question)?;
        let options = interrupt.options.clone();
        let (option, by) = match self.ask(interrupt).await? {
            Resolution::Answered { by, answer: Answer::Option(option), .. } => {
                (Some(option), Some(by))
            }
            // The user dismissed the question.
            Resolution::Answered { by, answer: Answer::Json(_), .. } => (None, Some(by)),
            Resolution::TimedOut { option } => (option, None),
            other => return Err(unanswered(&other)),
        };
        // An id that also names an option that rejects allows nothing.
        let mut chosen =
            options.iter().filter(|candidate| Some(&candidate.id) == option.as_ref()).peekable();
        let allows = chosen.peek().is_some() && chosen.all(|it| it.effect == Effect::Allow);
        Ok(Decision { allowed: allows && by.is_some(), option, by })
    }

    /// Asks for a message and returns its parts; the list may be empty. With an empty prompt the question shows nothing.
    ///
    /// # Errors
    /// Like [`Context::ask`]; also if the question got no answer.
    pub async fn ask_message(&self, prompt: &str) -> Result<Vec<Part>, AgentError> {
        match self.ask(Question::message(prompt)).await? {
            Resolution::Answered { answer: Answer::Message(parts), .. } => Ok(parts),
            Resolution::Answered { answer: Answer::Json(json), .. } => {
                let text = json.to_value().as_str().map(str::to_owned);
                Ok(vec![text.map_or_else(|| Part::json(&json), Part::text)])
            }
            other => Err(unanswered(&other)),
        }
    }

    /// Asks for a message and returns its text.
    pub async fn ask_text(&self, prompt: &str) -> Result<String, AgentError> {
        let parts = self.ask_message(prompt).await?;
        Ok(parts.iter().filter_map(Part::as_text).collect())
    }

    /// Asks for data of this type. The form for people is made from the type's schema. To use another schema, [`Context::ask`] a [`Question::form`].
    ///
    /// # Errors
    /// Like [`Context::ask`]; also if the question got no answer, or if the answer does not fit the type.
    pub async fn ask_form<T: DeserializeOwned + JsonSchema>(
        &self,
        prompt: &str,
    ) -> Result<T, AgentError> {
        match self.ask(Question::form(prompt, schema_of::<T>())).await? {
            Resolution::Answered { answer: Answer::Json(json), .. } => from_json(&json),
            other => Err(unanswered(&other)),
        }
    }
}

fn unanswered(resolution: &Resolution) -> AgentError {
    use trilogue_domain::Code;
    match resolution {
        Resolution::Cancelled => AgentError::run_stopped(),
        Resolution::TimedOut { .. } => {
            AgentError::new(Code::AwaitTimeout.as_str(), "no answer in time").transient()
        }
        Resolution::Withdrawn { reason } => {
            AgentError::new(reason.as_str(), "the question was withdrawn")
        }
        Resolution::Answered { .. } => {
            AgentError::new(Code::AnswerInvalid.as_str(), "the answer has another form")
        }
    }
}
