//! What an agent asks, built step by step.

use std::time::Duration;

use serde::Serialize;
use trilogue_domain::interrupt::{Effect, PermissionOption};
use trilogue_domain::{Interrupt, InterruptKind, Part};

use crate::error::AgentError;
use crate::typed::{IntoSchema, to_json};

/// Builds an [`Interrupt`] for [`Context::ask`](crate::Context::ask) or [`Outcome::suspended`](crate::Outcome::suspended); those two decide what it survives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    interrupt: Interrupt,
    /// Why its payload is no JSON; said where it is asked.
    invalid: Option<AgentError>,
}

// === impl Question ===

impl Question {
    /// Whether the agent may do something. Without options of its own it offers `allow` and `reject`, once.
    #[must_use]
    pub fn permission(prompt: impl AsRef<str>) -> Self {
        Self::of(InterruptKind::Permission).prompt(prompt)
    }

    /// A question that is answered with a message, which may have no parts. An empty prompt is none: the question shows nothing.
    #[must_use]
    pub fn message(prompt: impl AsRef<str>) -> Self {
        Self::of(InterruptKind::Message).prompt(prompt)
    }

    /// A question that is answered with JSON which fits this schema: a JSON Schema, or [`schema_of`](crate::schema_of) a type.
    #[must_use]
    pub fn form(prompt: impl AsRef<str>, schema: impl IntoSchema) -> Self {
        Self::of(InterruptKind::Form).prompt(prompt).schema(schema)
    }

    /// Asks the user to visit an address. The answer is `true` where that is done, and `false` where it is declined in words.
    #[must_use]
    pub fn url(prompt: impl AsRef<str>, url: &str) -> Self {
        Self::of(InterruptKind::Url).prompt(prompt).payload(serde_json::json!({ "url": url }))
    }

    /// A question of the agent's own kind, one that its card declares.
    #[must_use]
    pub fn custom(kind: &str) -> Self {
        Self::of(InterruptKind::Custom(kind.to_owned()))
    }

    fn of(kind: InterruptKind) -> Self {
        Self { invalid: None, interrupt: Interrupt::new(kind) }
    }

    /// What people read. An empty text adds nothing.
    #[must_use]
    pub fn prompt(self, text: impl AsRef<str>) -> Self {
        match text.as_ref() {
            "" => self,
            text => self.prompt_part(Part::text(text)),
        }
    }

    /// One more part of what people see.
    #[must_use]
    pub fn prompt_part(mut self, part: Part) -> Self {
        self.interrupt.prompt.push(part);
        self
    }

    /// The question as data: what programs read, and what a permission's resolution keeps the digest of.
    #[must_use]
    pub fn payload(mut self, payload: impl Serialize) -> Self {
        match to_json(&payload) {
            Ok(payload) => self.interrupt.payload = payload,
            Err(error) => self.invalid = Some(error),
        }
        self
    }

    /// The schema of the answer.
    #[must_use]
    pub fn schema(mut self, schema: impl IntoSchema) -> Self {
        self.interrupt.schema = Some(schema.read());
        self
    }

    /// One more choice of a permission, for this once.
    #[must_use]
    pub fn option(self, id: &str, name: &str, effect: Effect) -> Self {
        self.choice(id, name, effect, false)
    }

    /// One more choice of a permission that holds for later calls too.
    #[must_use]
    pub fn option_always(self, id: &str, name: &str, effect: Effect) -> Self {
        self.choice(id, name, effect, true)
    }

    /// How long it waits while nobody who may answer is connected; the server's default when not set.
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
