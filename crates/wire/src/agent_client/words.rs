//! How lists of words are declared.

/// Declares an enum of words. A word that is not among them does not fit; what that means is for the member to say in which it stands.
/// An `open` list keeps it.
macro_rules! words {
    (
        $(#[$attr:meta])*
        pub enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident = $word:literal; )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $( $(#[$doc])* $variant, )*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$( Self::$variant ),*];

            /// The word.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )*
                }
            }

            /// What the word means.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $( $word => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }

        impl $crate::agent_client::Read for $name {
            fn read(
                json: &str,
                at: &$crate::agent_client::read::At<'_>,
            ) -> Result<Self, $crate::agent_client::read::Violation> {
                let word = $crate::jsonrpc::text::decode(json);
                word.and_then(|word| Self::parse(&word)).ok_or_else(|| {
                    at.violation(concat!("must be one of" $(, " ", $word)*))
                })
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "enum": [$($word),*] })
            }
        }
    };
    (
        $(#[$attr:meta])*
        pub open enum $name:ident {
            $( $(#[$doc:meta])* $variant:ident = $word:literal; )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $( $(#[$doc])* $variant, )*
            /// A word that the protocol does not have, as it came.
            Other(String),
        }

        impl $name {
            /// The word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $word, )*
                    Self::Other(word) => word,
                }
            }

            /// What the word means.
            #[must_use]
            pub fn parse(word: &str) -> Self {
                match word {
                    $( $word => Self::$variant, )*
                    _ => Self::Other(word.to_owned()),
                }
            }

            /// Whether the protocol has the word.
            #[must_use]
            pub const fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }

        impl $crate::agent_client::Read for $name {
            fn read(
                json: &str,
                at: &$crate::agent_client::read::At<'_>,
            ) -> Result<Self, $crate::agent_client::read::Violation> {
                match $crate::jsonrpc::text::decode(json) {
                    Some(word) => Ok(Self::parse(&word)),
                    None => Err($crate::agent_client::read::refusal("a string", json, at)),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    };
}
pub(super) use words;
