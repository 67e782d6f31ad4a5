//! What an agent says of itself, built step by step.

mod check;

use trilogue_domain::error::Result;
use trilogue_domain::{
    Abilities, AgentCard, AgentName, DeclaredError, DeclaredInterrupt, InputKind, Json, limits,
};

use crate::typed::IntoSchema;

/// Builds an [`AgentCard`]. Names and schemas are checked when the agent is served, by [`Card::build`] and by whoever compiles the schemas.
#[derive(Clone, Debug)]
pub struct Card {
    name: String,
    card: AgentCardParts,
}

/// The parts of a card that need no check.
#[derive(Clone, Debug)]
struct AgentCardParts {
    id: Option<String>,
    title: Option<String>,
    version: String,
    url: Option<String>,
    description: String,
    input: InputKind,
    output_schema: Option<Json>,
    state_schema: Option<Json>,
    config_schema: Option<Json>,
    update_schema: Option<Json>,
    interrupts: Vec<DeclaredInterrupt>,
    errors: Vec<DeclaredError>,
    abilities: Abilities,
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

    /// An agent that takes one JSON value which fits this schema: a JSON Schema, or [`schema_of`](crate::schema_of) a type.
    #[must_use]
    pub fn schema(
        name: impl Into<String>,
        description: impl Into<String>,
        input: impl IntoSchema,
    ) -> Self {
        let (input, json) = (InputKind::Schema(input.read()), "application/json");
        Self::of(name.into(), description.into(), input, json, json)
    }

    fn of(name: String, description: String, input: InputKind, reads: &str, writes: &str) -> Self {
        Self {
            name,
            card: AgentCardParts {
                id: None,
                title: None,
                version: "0.0.0".to_owned(),
                url: None,
                description,
                input,
                output_schema: None,
                state_schema: None,
                config_schema: None,
                update_schema: None,
                interrupts: Vec::new(),
                errors: Vec::new(),
                abilities: Abilities::default(),
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

    /// The UUID by which the Agent Connect Protocol names it, where it has had one before; else one is made from its name.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.card.id = Some(id.into());
        self
    }

    /// Where more can be read of it.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.card.url = Some(url.into());
        self
    }

    /// Its version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.card.version = version.into();
        self
    }

    /// The schema of the value it answers with.
    #[must_use]
    pub fn output(mut self, schema: impl IntoSchema) -> Self {
        self.card.output_schema = Some(schema.written());
        self
    }

    /// The schema of the thread state it keeps. What may be left out when it is read may be left out.
    #[must_use]
    pub fn state(mut self, schema: impl IntoSchema) -> Self {
        self.card.state_schema = Some(schema.read());
        self
    }

    /// The schema of its configuration, which [`Context::config`](crate::Context::config) gives.
    #[must_use]
    pub fn config(mut self, schema: impl IntoSchema) -> Self {
        self.card.config_schema = Some(schema.read());
        self
    }

    /// The schema of its own updates, those of [`Context::custom`](crate::Context::custom). It streams them then.
    #[must_use]
    pub fn update(mut self, schema: impl IntoSchema) -> Self {
        self.card.update_schema = Some(schema.written());
        self.card.abilities.streams_updates.get_or_insert(true);
        self
    }

    /// An error that it may end with: its code, the condition, and whether the same request may succeed later.
    ///
    /// Errors are numbered in the order in which they are declared, from [`limits::FIRST_AGENT_ERROR`] on.
    #[must_use]
    pub fn error(
        self,
        code: impl Into<String>,
        description: impl Into<String>,
        transient: bool,
    ) -> Self {
        self.declare(code.into(), description.into(), transient, None)
    }

    /// As [`Card::error`], with the schema of its details.
    #[must_use]
    pub fn error_with_data(
        self,
        code: impl Into<String>,
        description: impl Into<String>,
        transient: bool,
        data: impl IntoSchema,
    ) -> Self {
        self.declare(code.into(), description.into(), transient, Some(data.written()))
    }

    fn declare(
        mut self,
        code: String,
        description: String,
        transient: bool,
        data_schema: Option<Json>,
    ) -> Self {
        let before = u32::try_from(self.card.errors.len()).unwrap_or(u32::MAX);
        let number = limits::FIRST_AGENT_ERROR.saturating_add(before);
        let error = DeclaredError { code, number, description, transient, data_schema };
        self.card.errors.push(error);
        self
    }

    /// It runs on no thread that lasts: it keeps no state, and each run stands alone.
    #[must_use]
    pub fn without_threads(mut self) -> Self {
        self.card.abilities.threads = false;
        self
    }

    /// Its clients are not called back.
    #[must_use]
    pub fn without_callbacks(mut self) -> Self {
        self.card.abilities.callbacks = false;
        self
    }

    /// Whether its output is streamed as a whole that grows, and whether its updates are: its own, its thoughts, its steps. Until told, the output is, and updates are where they have a schema.
    #[must_use]
    pub fn streams(mut self, values: bool, updates: bool) -> Self {
        self.card.abilities.streams_values = Some(values);
        self.card.abilities.streams_updates = Some(updates);
        self
    }

    /// An interrupt of its own kind that it may raise: the schemas of the question and of the answer.
    #[must_use]
    pub fn interrupt(
        mut self,
        kind: impl Into<String>,
        payload: impl IntoSchema,
        answer: impl IntoSchema,
    ) -> Self {
        self.card.interrupts.push(DeclaredInterrupt {
            kind: kind.into(),
            payload_schema: payload.written(),
            answer_schema: answer.read(),
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
    /// `invalid_id` when the name is no [`AgentName`] or the id no UUID; `invalid_request` when the card contradicts itself: it names what does not go together.
    pub fn build(self) -> Result<AgentCard> {
        let Self { name, card } = self;
        let card = AgentCard {
            name: AgentName::parse(&name)?,
            id: card.id.as_deref().map(check::agent_id).transpose()?,
            title: card.title,
            version: card.version,
            url: card.url,
            description: card.description,
            input: card.input,
            output_schema: card.output_schema,
            state_schema: card.state_schema,
            config_schema: card.config_schema,
            update_schema: card.update_schema,
            interrupts: card.interrupts,
            errors: card.errors,
            abilities: card.abilities,
            descriptor: None,
            input_content_types: card.input_content_types,
            output_content_types: card.output_content_types,
            commands: Vec::new(),
        };
        check::coherent(&card)?;
        Ok(card)
    }
}
