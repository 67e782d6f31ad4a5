//! A builder for the questions of an agent.

use std::time::Duration;

use serde::Serialize;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Interrupt, InterruptKind, Part};

use crate::error::AgentError;
use crate::typed::{IntoSchema, to_json};

/// Builds an [`Interrupt`] for [`Context::ask`](crate::Context::ask) or [`Outcome::suspended`](crate::Outcome::suspended). The function decides whether the question survives a restart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    interrupt: Interrupt,
    /// Why the payload is not valid JSON. Asking the question returns this error.
    invalid: Option<AgentError>,
}

// === impl Question ===

impl Question {
    /// Asks whether the agent may do something. Without other options it offers `allow` and `reject`, each for this once.
    #[must_use]
    pub fn permission(prompt: impl AsRef<str>) -> Self {
        Self::of(InterruptKind::Permission).prompt(prompt)
    }

    /// Asks for a message, which may have no parts. With an empty prompt the question shows nothing.
    #[must_use]
    pub fn message(prompt: impl AsRef<str>) -> Self {
        Self::of(InterruptKind::Message).prompt(prompt)
    }

    /// Asks for JSON that fits this schema: a JSON Schema, or the schema of a type from [`schema_of`](crate::schema_of).
    #[must_use]
    pub fn form(prompt: impl AsRef<str>, schema: impl IntoSchema) -> Self {
        Self::of(InterruptKind::Form).prompt(prompt).schema(schema)
    }

    /// Asks the user to visit a URL. The answer is `true` if the user did, and `false` if the user declined in words.
    #[must_use]
    pub fn url(prompt: impl AsRef<str>, url: &str) -> Self {
        Self::of(InterruptKind::Url).prompt(prompt).payload(serde_json::json!({ "url": url }))
    }

    /// Asks a question of the agent's own kind. The card must declare the kind.
    #[must_use]
    pub fn custom(kind: &str) -> Self {
        Self::of(InterruptKind::Custom(kind.to_owned()))
    }

    fn of(kind: InterruptKind) -> Self {
        Self { invalid: None, interrupt: Interrupt::new(kind) }
    }

    /// Adds text for people. Empty text adds nothing.
    #[must_use]
    pub fn prompt(self, text: impl AsRef<str>) -> Self {
        match text.as_ref() {
            "" => self,
            text => self.prompt_part(Part::text(text)),
        }
    }

    /// Adds a part to the prompt for people.
    #[must_use]
    pub fn prompt_part(mut self, part: Part) -> Self {
        self.interrupt.prompt.push(part);
        self
    }

    /// Sets the question as data for programs. The resolution of a permission keeps the digest of this payload.
    #[must_use]
    pub fn payload(mut self, payload: impl Serialize) -> Self {
        match to_json(&payload) {
            Ok(payload) => self.interrupt.payload = payload,
            Err(error) => self.invalid = Some(error),
        }
        self
    }

    /// Sets the schema of the answer.
    #[must_use]
    pub fn schema(mut self, schema: impl IntoSchema) -> Self {
        self.interrupt.schema = Some(schema.read());
        self
    }

    /// Adds an option to a permission, for this once.
    #[must_use]
    pub fn option(self, id: &str, name: &str, effect: Effect) -> Self {
        self.choice(id, name, effect, false)
    }

    /// Adds an option to a permission. The decision also holds for later calls.
    #[must_use]
    pub fn option_always(self, id: &str, name: &str, effect: Effect) -> Self {
        self.choice(id, name, effect, true)
    }

    /// Sets how long the question waits while no client that may answer is connected. The default is the server's.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.interrupt.patience = Some(patience);
        self
    }

    fn choice(mut self, id: &str, name: &str, effect: Effect, always: bool) -> Self {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.interrupt.options.push(PermissionOption { id, name, effect, always });
        self
    }
}

impl TryFrom<Question> for Interrupt {
    type Error = AgentError;

    fn try_from(question: Question) -> Result<Self, AgentError> {
        if let Some(error) = question.invalid {
            return Err(error);
        }
        let bare = question.interrupt.kind == InterruptKind::Permission
            && question.interrupt.options.is_empty();
        if bare {
            return Ok(question
                .option("allow", "Allow", Effect::Allow)
                .option("reject", "Reject", Effect::Reject)
                .interrupt);
        }
        Ok(question.interrupt)
    }
}
