//! What an agent says of itself, built step by step.

use trilogue_domain::agent::DeclaredInterrupt;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, AgentName, InputKind, Json};

use crate::context::IntoJson;

/// Builds an [`AgentCard`]. Names and schemas are checked when the agent is served, by [`Card::build`] and by whoever compiles the schemas.
#[derive(Clone, Debug)]
pub struct Card {
    name: String,
    card: AgentCardParts,
}

/// The parts of a card that need no check.
#[derive(Clone, Debug)]
struct AgentCardParts {
    title: Option<String>,
    version: String,
    description: String,
    input: InputKind,
    output_schema: Option<Json>,
    state_schema: Option<Json>,
    config_schema: Option<Json>,
    interrupts: Vec<DeclaredInterrupt>,
    input_content_types: Vec<String>,
    output_content_types: Vec<String>,
}

// === impl Card ===

impl Card {
    /// An agent that takes and gives messages. Until told otherwise it reads any content type and writes plain text.
    #[must_use]
    pub fn chat(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::of(name.into(), description.into(), InputKind::Chat, "*/*", "text/plain")
    }

    /// An agent that takes one JSON value which fits this JSON Schema.
    #[must_use]
    pub fn schema(
        name: impl Into<String>,
        description: impl Into<String>,
        input: impl IntoJson,
    ) -> Self {
        let (input, json) = (InputKind::Schema(input.into_json()), "application/json");
        Self::of(name.into(), description.into(), input, json, json)
    }

    fn of(name: String, description: String, input: InputKind, reads: &str, writes: &str) -> Self {
        Self {
            name,
            card: AgentCardParts {
                title: None,
                version: "0.0.0".to_owned(),
                description,
                input,
                output_schema: None,
                state_schema: None,
                config_schema: None,
                interrupts: Vec::new(),
                input_content_types: vec![reads.to_owned()],
                output_content_types: vec![writes.to_owned()],
            },
        }
    }

    /// The name it has elsewhere, such as a descriptor's dotted name.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.card.title = Some(title.into());
        self
    }

    /// Its version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.card.version = version.into();
        self
    }

    /// The JSON Schema of the value it answers with.
    #[must_use]
    pub fn output(mut self, schema: impl IntoJson) -> Self {
        self.card.output_schema = Some(schema.into_json());
        self
    }

    /// The JSON Schema of the thread state it keeps.
    #[must_use]
    pub fn state(mut self, schema: impl IntoJson) -> Self {
        self.card.state_schema = Some(schema.into_json());
        self
    }

    /// The JSON Schema of its configuration.
    #[must_use]
    pub fn config(mut self, schema: impl IntoJson) -> Self {
        self.card.config_schema = Some(schema.into_json());
        self
    }

    /// An interrupt of its own kind that it may raise: the schema of the question and that of the answer.
    #[must_use]
    pub fn interrupt(
        mut self,
        kind: impl Into<String>,
        payload: impl IntoJson,
        answer: impl IntoJson,
    ) -> Self {
        self.card.interrupts.push(DeclaredInterrupt {
            kind: kind.into(),
            payload_schema: payload.into_json(),
            answer_schema: answer.into_json(),
        });
        self
    }

    /// The MIME types it reads, instead of the default.
    #[must_use]
    pub fn reads<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.card.input_content_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The MIME types it writes, instead of the default.
    #[must_use]
    pub fn writes<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.card.output_content_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// The card.
    ///
    /// # Errors
    /// `invalid_id` when the name is no [`AgentName`].
    pub fn build(self) -> Result<AgentCard> {
        let Self { name, card } = self;
        Ok(AgentCard {
            name: AgentName::parse(&name)?,
            title: card.title,
            version: card.version,
            description: card.description,
            input: card.input,
            output_schema: card.output_schema,
            state_schema: card.state_schema,
            config_schema: card.config_schema,
            interrupts: card.interrupts,
            input_content_types: card.input_content_types,
            output_content_types: card.output_content_types,
        })
    }
}
