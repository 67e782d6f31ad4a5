//! Generates the schemas of cards from Rust types.
//!
//! A generated schema is JSON Schema 2020-12. It refers only to definitions in its own `$defs`.

use std::marker::PhantomData;

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use trilogue_domain::Json;

use crate::card::Card;
use crate::error::AgentError;
use crate::fault::AgentFault;

/// Serializes a value to JSON.
///
/// # Errors
/// If its `Serialize` fails, or if the JSON is nested too deep.
pub fn to_json<T: Serialize + ?Sized>(value: &T) -> Result<Json, AgentError> {
    Ok(Json::parse(serde_json::to_vec(value)?)?)
}

/// Deserializes JSON, such as the payload of an interrupt or an answer.
///
/// # Errors
/// If the JSON does not fit the type.
pub fn from_json<T: DeserializeOwned>(json: &Json) -> Result<T, AgentError> {
    Ok(serde_json::from_slice(json.as_bytes())?)
}

/// A JSON Schema for a [`Card`] or a [`Question`](crate::Question): a literal schema, or the schema of a type from [`schema_of`].
pub trait IntoSchema {
    /// Returns the schema of values that the agent reads.
    fn read(self) -> Json;

    /// Returns the schema of values that the agent writes.
    fn written(self) -> Json;
}

/// The schema of a Rust type, from [`schema_of`].
#[derive(Clone, Copy, Debug)]
pub struct TypeSchema<T: ?Sized>(PhantomData<fn() -> T>);

/// Returns the schema of a Rust type. Its schema for reading can differ from its schema for writing, for example if a member has a default.
#[must_use]
pub const fn schema_of<T: JsonSchema + ?Sized>() -> TypeSchema<T> {
    TypeSchema(PhantomData)
}

fn generate<T: JsonSchema + ?Sized>(contract: Contract) -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // The protocols state the dialect; a `$schema` member would prevent embedding.
        settings.meta_schema = None;
        settings.contract = contract;
    });
    Json::from_value(&Schema::to_value(settings.into_generator().into_root_schema_for::<T>()))
}

// === impl IntoSchema ===

impl<T: JsonSchema + ?Sized> IntoSchema for TypeSchema<T> {
    fn read(self) -> Json {
        generate::<T>(Contract::Deserialize)
    }

    fn written(self) -> Json {
        generate::<T>(Contract::Serialize)
    }
}

impl IntoSchema for Json {
    fn read(self) -> Json {
        self
    }

    fn written(self) -> Json {
        self
    }
}

impl IntoSchema for Value {
    fn read(self) -> Json {
        Json::from_value(&self)
    }

    fn written(self) -> Json {
        Json::from_value(&self)
    }
}

impl<T: IntoSchema + Clone> IntoSchema for &T {
    fn read(self) -> Json {
        self.clone().read()
    }

    fn written(self) -> Json {
        self.clone().written()
    }
}

// === impl Card ===

impl Card {
    /// Describes an agent that reads a value of one type and returns a value of another.
    #[must_use]
    pub fn typed<I: JsonSchema, O: JsonSchema>(
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self::schema(name, description, schema_of::<I>()).output(schema_of::<O>())
    }

    /// Declares an error that the agent can end with, from the error's type.
    #[must_use]
    pub fn fault<F: AgentFault>(self) -> Self {
        let schema = schema_of::<F>().written();
        if schema.to_value().get("type").is_some_and(|kind| kind == "null") {
            return self.error(F::CODE, F::DESCRIPTION, F::TRANSIENT);
        }
        self.error_with_data(F::CODE, F::DESCRIPTION, F::TRANSIENT, schema)
    }
}
