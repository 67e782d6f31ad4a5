//! A builder for the card of an agent.

mod check;

use trilogue_domain::error::Result;
use trilogue_domain::{
    Abilities, AgentCard, AgentName, DeclaredError, DeclaredInterrupt, InputKind, Json,
    SystemPromptAbility, limits,
};

use crate::typed::IntoSchema;

/// Builds an [`AgentCard`]. [`Card::build`] checks the names when serving starts; the code that serves the agent compiles and checks the schemas.
#[derive(Clone, Debug)]
pub struct Card {
    name: String,
    card: AgentCardParts,
}

/// The members of a card that this builder does not check.
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
    /// Describes an agent that reads and writes messages. By default it reads any content type and writes plain text.
    #[must_use]
    pub fn chat(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self::of(name.into(), description.into(), InputKind::Chat, "*/*", "text/plain")
    }

    /// Describes an agent that takes one JSON value that fits this schema: a JSON Schema, or the schema of a type from [`schema_of`](crate::schema_of).
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

    /// Sets the agent's name elsewhere, such as the dotted name in a descriptor.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.card.title = Some(title.into());
        self
    }

    /// Sets the agent's UUID in the Agent Connect Protocol, for an agent that already has one. By default the UUID is made from the name.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.card.id = Some(id.into());
        self
    }

    /// Sets the URL of a page about the agent.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.card.url = Some(url.into());
        self
    }

    /// Sets the agent's version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.card.version = version.into();
        self
    }

    /// Sets the schema of the agent's result.
    #[must_use]
    pub fn output(mut self, schema: impl IntoSchema) -> Self {
        self.card.output_schema = Some(schema.written());
        self
    }

    /// Sets the schema of the thread state. Members that are optional for reading are optional here.
    #[must_use]
    pub fn state(mut self, schema: impl IntoSchema) -> Self {
        self.card.state_schema = Some(schema.read());
        self
    }

    /// Sets the schema of the configuration, which [`Context::config`](crate::Context::config) returns.
    #[must_use]
    pub fn config(mut self, schema: impl IntoSchema) -> Self {
        self.card.config_schema = Some(schema.read());
        self
    }

    /// Sets the schema of the agent's own updates, which [`Context::custom`](crate::Context::custom) emits. Unless set otherwise, this declares that the agent streams updates.
    #[must_use]
    pub fn update(mut self, schema: impl IntoSchema) -> Self {
        self.card.update_schema = Some(schema.written());
        self.card.abilities.streams_updates.get_or_insert(true);
        self
    }

    /// Declares that the agent takes instructions of clients, which [`Context::system_prompt`](crate::Context::system_prompt) returns.
    #[must_use]
    pub fn system_prompt(mut self, ability: SystemPromptAbility) -> Self {
        self.card.abilities.system_prompt = Some(ability);
        self
    }

    /// Declares an error that the agent can end with: its code, its condition, and whether the same request may succeed later.
    ///
    /// Errors get numbers in the order of declaration, starting at [`limits::FIRST_AGENT_ERROR`].
    #[must_use]
    pub fn error(
        self,
        code: impl Into<String>,
        description: impl Into<String>,
        transient: bool,
    ) -> Self {
        self.declare(code.into(), description.into(), transient, None)
    }

    /// Declares an error like [`Card::error`], with the schema of its details.
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

    /// Declares that the agent has no lasting threads: it keeps no state, and each run is independent.
    #[must_use]
    pub fn without_threads(mut self) -> Self {
        self.card.abilities.threads = false;
        self
    }

    /// Declares that the agent's clients get no callbacks.
    #[must_use]
    pub fn without_callbacks(mut self) -> Self {
        self.card.abilities.callbacks = false;
        self
    }

    /// Declares whether the agent streams its output as a growing whole, and whether it streams updates: its own updates, thoughts and steps. By default it streams the output, and it streams updates if they have a schema.
    #[must_use]
    pub fn streams(mut self, values: bool, updates: bool) -> Self {
        self.card.abilities.streams_values = Some(values);
        self.card.abilities.streams_updates = Some(updates);
        self
    }

    /// Declares an interrupt of the agent's own kind, with the schemas of the question and of the answer.
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

    /// Sets the MIME types that the agent reads, instead of the default.
    #[must_use]
    pub fn reads<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.card.input_content_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the MIME types that the agent writes, instead of the default.
    #[must_use]
    pub fn writes<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.card.output_content_types = types.into_iter().map(Into::into).collect();
        self
    }

    /// Checks and returns the card.
    ///
    /// # Errors
    /// `invalid_id` if the name is not a valid [`AgentName`] or the id is not a UUID; `invalid_request` if members of the card contradict each other.
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
