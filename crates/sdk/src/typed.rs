//! Cards whose schemas come from Rust types.
//!
//! A schema that is made so is JSON Schema 2020-12, refers to nothing outside itself, and keeps what it names in its own `$defs`.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use trilogue_domain::Json;

use crate::card::Card;
use crate::error::AgentError;
use crate::fault::AgentFault;

/// The JSON of a value.
///
/// # Errors
/// When its `Serialize` fails, or it is nested too deep.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Json, AgentError> {
    Ok(Json::parse(serde_json::to_vec(value)?)?)
}

/// The value of a JSON, such as the payload of an interrupt or an answer.
///
/// # Errors
/// When it does not fit the type.
pub fn from_json<T: DeserializeOwned>(json: &Json) -> Result<T, AgentError> {
    Ok(serde_json::from_slice(json.as_bytes())?)
}

/// The schema of what an agent reads as this type.
#[must_use]
pub fn schema_of_read<T: JsonSchema + ?Sized>() -> Json {
    schema_of::<T>(Contract::Deserialize)
}

/// The schema of what an agent writes as this type.
#[must_use]
pub fn schema_of_written<T: JsonSchema + ?Sized>() -> Json {
    schema_of::<T>(Contract::Serialize)
}

fn schema_of<T: JsonSchema + ?Sized>(contract: Contract) -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // The protocols say which dialect it is; a member `$schema` would only get in the way of embedding it.
        settings.meta_schema = None;
        settings.contract = contract;
    });
    Json::from_value(&Schema::to_value(settings.into_generator().into_root_schema_for::<T>()))
}

// === impl Card ===

impl Card {
    /// An agent that takes a value of one type and answers with a value of another.
    #[must_use]
    pub fn typed<I: JsonSchema, O: JsonSchema>(
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self::schema(name, description, schema_of_read::<I>()).output(schema_of_written::<O>())
    }

    /// The type of its configuration, the one that [`Context::config`](crate::Context::config) gives.
    #[must_use]
    pub fn config_type<T: JsonSchema>(self) -> Self {
        self.config(schema_of_read::<T>())
    }

    /// The type of the thread state it keeps. What may be left out when it is read may be left out.
    #[must_use]
    pub fn state_type<T: JsonSchema>(self) -> Self {
        self.state(schema_of_read::<T>())
    }

    /// An interrupt of its own kind that it may raise: the types of the question and of the answer.
    #[must_use]
    pub fn interrupt_type<P: JsonSchema, A: JsonSchema>(self, kind: impl Into<String>) -> Self {
        self.interrupt(kind, schema_of_written::<P>(), schema_of_read::<A>())
    }

    /// The type of its own updates, those of [`Context::custom`](crate::Context::custom).
    #[must_use]
    pub fn update_type<T: JsonSchema>(self) -> Self {
        self.update_schema(schema_of_written::<T>())
    }

    /// As [`Card::error`], with the type of its details.
    #[must_use]
    pub fn error_type<T: JsonSchema>(
        self,
        code: impl Into<String>,
        description: impl Into<String>,
        transient: bool,
    ) -> Self {
        self.error_with_data(code, description, transient, schema_of_written::<T>())
    }

    /// An error that it may end with, as its type says.
    #[must_use]
    pub fn fault<F: AgentFault>(self) -> Self {
        let schema = schema_of_written::<F>();
        if schema.to_value().get("type").is_some_and(|kind| kind == "null") {
            return self.error(F::CODE, F::DESCRIPTION, F::TRANSIENT);
        }
        self.error_with_data(F::CODE, F::DESCRIPTION, F::TRANSIENT, schema)
    }
}
