use std::borrow::Cow;

use serde_json::Number;

use super::object::object;
use super::tagged::tagged;
use super::{Map, Opaque};
use crate::json::words::words;
use crate::json::{Path, Read, Violation};

object! {
    /// The fields of a form: a JSON Schema of a flat object.
    #[derive(Default)]
    pub struct ElicitationSchema {
    } may {
        /// Always an object.
        kind: Option<ElicitationSchemaType> = "type" as lenient;
        /// What the form is called.
        title: Option<String> = "title" as lenient;
        /// What the form is for.
        description: Option<String> = "description" as lenient;
        /// The fields.
        properties: Option<Map<ElicitationPropertySchema>> = "properties" as optional;
        /// The fields that must be filled in.
        required: Option<Vec<String>> = "required" as optional;
    }
}

words! {
    /// What a form gives.
    pub enum ElicitationSchemaType {
        /// An object.
        Object = "object";
    }
}

tagged! {
    /// A field.
    pub enum ElicitationPropertySchema by "type" {
        /// Text, or one of a choice.
        String(Box<StringPropertySchema>) = "string";
        /// A number.
        Number(Box<NumberPropertySchema>) = "number";
        /// A whole number.
        Integer(Box<IntegerPropertySchema>) = "integer";
        /// Yes or no.
        Boolean(BooleanPropertySchema) = "boolean";
        /// Several of a choice.
        Array(Box<MultiSelectPropertySchema>) = "array";
    }
}

object! {
    /// Text, or one of a choice.
    #[derive(Default)]
    pub struct StringPropertySchema {
    } may {
        /// What it is called.
        title: Option<String> = "title" as lenient;
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// The fewest characters.
        min_length: Option<u32> = "minLength" as optional;
        /// The most characters.
        max_length: Option<u32> = "maxLength" as optional;
        /// A regular expression that it fits.
        pattern: Option<String> = "pattern" as optional;
        /// How it is written.
        format: Option<StringFormat> = "format" as optional;
        /// What is filled in at first.
        default: Option<String> = "default" as lenient;
        /// The choice.
        choice: Option<Vec<String>> = "enum" as optional;
        /// The choice, with what each is called.
        titled_choice: Option<Vec<EnumOption>> = "oneOf" as optional;
    }
}

words! {
    /// How text is written.
    pub enum StringFormat {
        /// As an address for mail.
        Email = "email";
        /// As a URI.
        Uri = "uri";
        /// As a date.
        Date = "date";
        /// As a date with a time.
        DateTime = "date-time";
    }
}

object! {
    /// One of a choice.
    pub struct EnumOption {
        /// Its value.
        value: String = "const" as required;
        /// What it is called.
        title: String = "title" as required;
    } may {
        /// What it means.
        description: Option<String> = "description" as lenient;
    }
}

object! {
    /// A number.
    #[derive(Default)]
    pub struct NumberPropertySchema {
    } may {
        /// What it is called.
        title: Option<String> = "title" as lenient;
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// The least.
        minimum: Option<Number> = "minimum" as optional;
        /// The most.
        maximum: Option<Number> = "maximum" as optional;
        /// What is filled in at first.
        default: Option<Number> = "default" as lenient;
    }
}

object! {
    /// A whole number.
    #[derive(Default)]
    pub struct IntegerPropertySchema {
    } may {
        /// What it is called.
        title: Option<String> = "title" as lenient;
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// The least.
        minimum: Option<i64> = "minimum" as optional;
        /// The most.
        maximum: Option<i64> = "maximum" as optional;
        /// What is filled in at first.
        default: Option<i64> = "default" as lenient;
    }
}

object! {
    /// Yes or no.
    #[derive(Default)]
    pub struct BooleanPropertySchema {
    } may {
        /// What it is called.
        title: Option<String> = "title" as lenient;
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// What is filled in at first.
        default: Option<bool> = "default" as lenient;
    }
}

object! {
    /// Several of a choice.
    pub struct MultiSelectPropertySchema {
        /// The choice.
        items: MultiSelectItems = "items" as required;
    } may {
        /// What it is called.
        title: Option<String> = "title" as lenient;
        /// What it means.
        description: Option<String> = "description" as lenient;
        /// The fewest.
        min_items: Option<u64> = "minItems" as optional;
        /// The most.
        max_items: Option<u64> = "maxItems" as optional;
        /// What is chosen at first.
        default: Option<Vec<String>> = "default" as optional_fitting;
    }
}

tagged! {
    /// A choice.
    pub enum MultiSelectItems by "type" {
        /// Of values.
        Plain(StringMultiSelectItems) = "string";
    } plain {
        /// Of values, with what each is called.
        Titled(TitledMultiSelectItems);
    } read by untagged
}

object! {
    /// A choice of values.
    pub struct StringMultiSelectItems {
        /// The values.
        values: Vec<String> = "enum" as required;
    } may {
    }
}

object! {
    /// A choice of values, with what each is called.
    pub struct TitledMultiSelectItems {
        /// The values.
        values: Vec<EnumOption> = "anyOf" as required;
    } may {
    }
}

// === impl ElicitationSchema ===

impl ElicitationSchema {
    /// A form with these fields.
    #[must_use]
    pub fn of(fields: Map<ElicitationPropertySchema>, required: Option<Vec<String>>) -> Self {
        Self {
            kind: Some(ElicitationSchemaType::Object),
            properties: Some(fields),
            required,
            ..Self::default()
        }
    }
}

fn untagged(
    json: &str,
    kind: Option<Cow<'_, str>>,
    at: &Path<'_>,
) -> Result<MultiSelectItems, Violation> {
    match kind {
        Some(kind) => {
            let json = Read::read(json, at)?;
            Ok(MultiSelectItems::Other(Opaque { kind: kind.into_owned(), json }))
        }
        None => TitledMultiSelectItems::read(json, at).map(MultiSelectItems::Titled),
    }
}
