//! Cards whose schemas come from Rust types.
//!
//! A schema that is made so is JSON Schema 2020-12, refers to nothing outside itself, and keeps what it names in its own `$defs`.

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

/// A JSON Schema for a [`Card`] or a [`Question`](crate::Question): one that is written out, or [`schema_of`] a type.
pub trait IntoSchema {
    /// The schema of what the agent reads.
    fn read(self) -> Json;

    /// The schema of what the agent writes.
    fn written(self) -> Json;
}

/// The schema of a Rust type, from [`schema_of`].
#[derive(Clone, Copy, Debug)]
pub struct TypeSchema<T: ?Sized>(PhantomData<fn() -> T>);

/// The schema of a Rust type. What is read and what is written of a type may differ, as where a member has a default.
#[must_use]
pub const fn schema_of<T: JsonSchema + ?Sized>() -> TypeSchema<T> {
    TypeSchema(PhantomData)
}

fn generate<T: JsonSchema + ?Sized>(contract: Contract) -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // The protocols say which dialect it is; a member `$schema` would only get in the way of embedding it.
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
    /// An agent that takes a value of one type and answers with a value of another.
    #[must_use]
    pub fn typed<I: JsonSchema, O: JsonSchema>(
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self::schema(name, description, schema_of::<I>()).output(schema_of::<O>())
    }

    /// An error that it may end with, as its type says.
    #[must_use]
    pub fn fault<F: AgentFault>(self) -> Self {
        let schema = schema_of::<F>().written();
        if schema.to_value().get("type").is_some_and(|kind| kind == "null") {
            return self.error(F::CODE, F::DESCRIPTION, F::TRANSIENT);
        }
        self.error_with_data(F::CODE, F::DESCRIPTION, F::TRANSIENT, schema)
    }
}
