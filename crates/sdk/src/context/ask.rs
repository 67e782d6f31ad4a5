//! Asking, and awaiting the answer.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Interrupt, Part, PrincipalId, Resolution, Survives};

use super::Context;
use crate::error::AgentError;
use crate::question::Question;
use crate::typed::{from_json, schema_of};

/// What was decided about a permission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether the agent may go on. Never by a time-out.
    pub allowed: bool,
    /// The id of the option that was chosen, or taken when nobody answered in time.
    pub option: Option<String>,
    /// Who decided; `None` when nobody answered in time.
    pub by: Option<PrincipalId>,
}

impl Context {
    /// Asks and waits in this task. What waits so ends with the process; to wait across restarts, return [`Outcome::suspended`](crate::Outcome::suspended).
    ///
    /// # Errors
    /// [`AgentError::stopped`] when the run was stopped meanwhile; `interrupt_schema_violation` for a question of an own kind that the card does not declare so. The run then fails with this error, whatever the agent makes of it.
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
    /// As [`Context::ask`]; a question that was withdrawn.
    pub async fn ask_permission(&self, question: Question) -> Result<Decision, AgentError> {
        let interrupt = Interrupt::try_from(question)?;
        let options = interrupt.options.clone();
        let (option, by) = match self.ask(interrupt).await? {
            Resolution::Answered { by, answer: Answer::Option(option), .. } => {
                (Some(option), Some(by))
            }
            // Somebody dismissed the question.
            Resolution::Answered { by, answer: Answer::Json(_), .. } => (None, Some(by)),
            Resolution::TimedOut { option } => (option, None),
            other => return Err(unanswered(&other)),
        };
        let chosen = options.iter().find(|candidate| Some(&candidate.id) == option.as_ref());
        let allows = chosen.is_some_and(|chosen| chosen.effect == Effect::Allow);
        Ok(Decision { allowed: allows && by.is_some(), option, by })
    }

    /// Asks for a message and gives its parts, of which there may be none. With an empty prompt the question shows nothing.
    ///
    /// # Errors
    /// As [`Context::ask`]; a question that nobody answered.
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

    /// Asks for a message and gives its text.
    pub async fn ask_text(&self, prompt: &str) -> Result<String, AgentError> {
        let parts = self.ask_message(prompt).await?;
        Ok(parts.iter().filter_map(Part::as_text).collect())
    }

    /// Asks for data of this type; the form that people see is made of its schema. For a schema of your own, [`Context::ask`] a [`Question::form`].
    ///
    /// # Errors
    /// As [`Context::ask`]; a question that nobody answered; an answer that does not fit the type.
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
        Resolution::Cancelled => AgentError::stopped(),
        Resolution::TimedOut { .. } => {
            AgentError::new(Code::AwaitTimeout.as_str(), "nobody answered in time").transient()
        }
        Resolution::Withdrawn { reason } => {
            AgentError::new(reason.as_str(), "the question was withdrawn")
        }
        Resolution::Answered { .. } => {
            AgentError::new(Code::AnswerInvalid.as_str(), "the answer has another form")
        }
    }
}
