use std::borrow::Cow;

use serde_json::Number;

use super::object::object;
use super::tagged::tagged;
use super::{Map, Opaque};
use crate::json::words::words;
use crate::json::{Path, Read, Violation};

object! {
    /// The fields of a form: a JSON Schema of a flat object.
    pub struct ElicitationSchema may {
        kind: Option<ElicitationSchemaType> = "type";
        title: Option<String> = "title";
        description: Option<String> = "description";
        properties: Option<Map<ElicitationPropertySchema>> = "properties" as optional;
        required: Option<Vec<String>> = "required" as optional;
    }
}

words! {
    pub enum ElicitationSchemaType {
        Object = "object";
    }
}

tagged! {
    pub enum ElicitationPropertySchema by "type" {
        String(Box<StringPropertySchema>) = "string";
        Number(Box<NumberPropertySchema>) = "number";
        Integer(Box<IntegerPropertySchema>) = "integer";
        Boolean(BooleanPropertySchema) = "boolean";
        Array(Box<MultiSelectPropertySchema>) = "array";
    }
}

object! {
    pub struct StringPropertySchema may {
        title: Option<String> = "title";
        description: Option<String> = "description";
        min_length: Option<u32> = "minLength" as optional;
        max_length: Option<u32> = "maxLength" as optional;
        pattern: Option<String> = "pattern" as optional;
        format: Option<StringFormat> = "format" as optional;
        default: Option<String> = "default";
        choice: Option<Vec<String>> = "enum" as optional;
        titled_choice: Option<Vec<EnumOption>> = "oneOf" as optional;
    }
}

words! {
    pub enum StringFormat {
        Email = "email";
        Uri = "uri";
        Date = "date";
        DateTime = "date-time";
    }
}

object! {
    pub struct EnumOption {
        value: String = "const";
        title: String = "title";
    } may {
        description: Option<String> = "description";
    }

    pub struct NumberPropertySchema may {
        title: Option<String> = "title";
        description: Option<String> = "description";
        minimum: Option<Number> = "minimum" as optional;
        maximum: Option<Number> = "maximum" as optional;
        default: Option<Number> = "default";
    }

    pub struct IntegerPropertySchema may {
        title: Option<String> = "title";
        description: Option<String> = "description";
        minimum: Option<i64> = "minimum" as optional;
        maximum: Option<i64> = "maximum" as optional;
        default: Option<i64> = "default";
    }

    pub struct BooleanPropertySchema may {
        title: Option<String> = "title";
        description: Option<String> = "description";
        default: Option<bool> = "default";
    }

    pub struct MultiSelectPropertySchema {
        items: MultiSelectItems = "items";
    } may {
        title: Option<String> = "title";
        description: Option<String> = "description";
        min_items: Option<u64> = "minItems" as optional;
        max_items: Option<u64> = "maxItems" as optional;
        default: Option<Vec<String>> = "default" as optional_fitting;
    }
}

tagged! {
    pub enum MultiSelectItems by "type" {
        Plain(StringMultiSelectItems) = "string";
    } plain {
        Titled(TitledMultiSelectItems);
    } read by untagged
}

object! {
    pub struct StringMultiSelectItems {
        values: Vec<String> = "enum";
    }

    pub struct TitledMultiSelectItems {
        values: Vec<EnumOption> = "anyOf";
    }
}

// === impl ElicitationSchema ===

impl ElicitationSchema {
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
