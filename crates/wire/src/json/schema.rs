/// Implements `JsonSchema` for a type without serde's derive. An `inline` type gets no separate definition.
macro_rules! schema {
    (inline $type:ty = $name:expr, |$generator:pat_param| $schema:expr) => {
        $crate::json::schema::schema!(@implement $type, $name, true, $generator, $schema);
    };
    ($type:ty = $name:expr, |$generator:pat_param| $schema:expr) => {
        $crate::json::schema::schema!(@implement $type, $name, false, $generator, $schema);
    };
    (@implement $type:ty, $name:expr, $inline:literal, $generator:pat_param, $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use schema;
