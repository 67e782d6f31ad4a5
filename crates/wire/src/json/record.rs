/// Declares structures with public members, and enums of words in `snake_case`. Serde reads and writes all of them.
///
/// | item | unknown members | what it is for |
/// |---|---|---|
/// | `pub struct` | ignored | reading, writing and the schema |
/// | `pub strict struct` | refused | the same |
/// | `pub written struct` | – | writing and the schema |
/// | `pub local struct` | ignored | reading and writing |
/// | `pub enum` | – | reading, writing and the schema |
///
/// | member | absent | `null` | written |
/// |---|---|---|---|
/// | `m: T` | refused | as `T` | always |
/// | `m?: T` | `None` | `None` | unless `None` |
/// | `m: T = default` | the default | as `T` | always |
/// | `m: T = default unless "f"` | the default | as `T` | unless `f` returns `true` |
/// | `m: T = default from "f"` | the default | as `f` reads it | always |
macro_rules! record {
    ($(
        $(#[$attr:meta])*
        pub $kind:ident $($name:ident)+ $(: $($derive:ident),+)? { $($body:tt)* }
    )*) => {
        $( $crate::json::record::record! { @$kind { $(#[derive($($derive),+)])? $(#[$attr])* } $($name)+ { $($body)* } } )*
    };
    (@enum { $($attr:tt)* } $name:ident { $($body:tt)* }) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "snake_case")]
        $($attr)*
        pub enum $name { $($body)* }
    };
    (@struct { $($attr:tt)* } $name:ident { $($body:tt)* }) => {
        $crate::json::record::record! {
            @members { #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)] $($attr)* } $name { $($body)* }
        }
    };
    (@strict { $($attr:tt)* } struct $name:ident { $($body:tt)* }) => {
        $crate::json::record::record! { @struct { #[serde(deny_unknown_fields)] $($attr)* } $name { $($body)* } }
    };
    (@written { $($attr:tt)* } struct $name:ident { $($body:tt)* }) => {
        $crate::json::record::record! {
            @members { #[derive(serde::Serialize, schemars::JsonSchema)] $($attr)* } $name { $($body)* }
        }
    };
    (@local { $($attr:tt)* } struct $name:ident { $($body:tt)* }) => {
        $crate::json::record::record! {
            @members { #[derive(serde::Serialize, serde::Deserialize)] $($attr)* } $name { $($body)* }
        }
    };
    (
        @members { $($attr:tt)* } $name:ident {
            $(
                $(#[$mattr:meta])*
                $member:ident $(as $key:literal)? $(? : $optional:ty)?
                $(: $type:ty $(= $default:ident $(from $from:literal)? $(unless $unless:literal)?)?)?
            ),* $(,)?
        }
    ) => {
        #[derive(Clone, PartialEq, Eq, Debug)]
        $($attr)*
        pub struct $name {
            $(
                $(#[$mattr])*
                $(#[serde(rename = $key)])?
                $(
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub $member: Option<$optional>,
                )?
                $(
                    $(
                        #[serde($default)]
                        $(#[serde(deserialize_with = $from)])?
                        $(#[serde(skip_serializing_if = $unless)])?
                    )?
                    pub $member: $type,
                )?
            )*
        }
    };
}
pub(crate) use record;
