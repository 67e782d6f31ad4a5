use super::{Path, Violation, quoted, text_of};

/// Declares enums of words. For a closed list, the member that contains the word decides how to handle an unknown word. An `open` list keeps it.
macro_rules! words {
    ($(
        $(#[$attr:meta])*
        pub enum $name:ident $(: $derive:ident)? {
            $( $(#[$vattr:meta])* $variant:ident = $word:literal; )*
        }
    )*) => {$(
        $(#[$attr])*
        $(#[derive($derive)])?
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, schemars::JsonSchema)]
        pub enum $name {
            $( $(#[$vattr])* #[serde(rename = $word)] $variant, )*
        }

        impl $name {
            const WORDS: &[&str] = &[$($word),*];

            pub const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $word, )*
                }
            }

            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $( $word => Some(Self::$variant), )*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                let word = $crate::json::text::decode(json);
                word.and_then(|word| Self::parse(&word))
                    .ok_or_else(|| $crate::json::words::other_word(json, at, Self::WORDS))
            }
        }

        // A derived reader would also accept an object whose only member is the word.
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(from)?;
                Self::parse(&word)
                    .ok_or_else(|| serde::de::Error::unknown_variant(&word, Self::WORDS))
            }
        }
    )*};
    (
        $(#[$attr:meta])*
        pub open enum $name:ident {
            $( $(#[$vattr:meta])* $variant:ident = $word:literal; )*
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $( $(#[$vattr])* $variant, )*
            /// A word that the protocol does not define, unchanged.
            Other(String),
        }

        impl $name {
            pub fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $word, )*
                    Self::Other(word) => word,
                }
            }

            pub fn parse(word: &str) -> Self {
                match word {
                    $( $word => Self::$variant, )*
                    _ => Self::Other(word.to_owned()),
                }
            }

            pub const fn is_known(&self) -> bool {
                !matches!(self, Self::Other(_))
            }
        }

        impl $crate::json::Read for $name {
            fn read(
                json: &str,
                at: &$crate::json::Path<'_>,
            ) -> Result<Self, $crate::json::Violation> {
                $crate::json::text_of(json, at).map(|word| Self::parse(&word))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        $crate::json::schema::schema!($name = stringify!($name), |_| {
            schemars::json_schema!({ "type": "string" })
        });
    };
}
pub(crate) use words;

pub(crate) fn other_word(json: &str, at: &Path<'_>, words: &[&str]) -> Violation {
    if !at.is_exact() {
        return at.violation(format!("must be one of {}", words.join(" ")));
    }
    let word = match text_of(json, at) {
        Ok(word) => word,
        Err(violation) => return violation,
    };
    let want = match words {
        [one, two] => format!("{one:?} or {two:?}"),
        [one, two, three] => format!("{one:?}, {two:?} or {three:?}"),
        _ => format!("one of {}", words.join(", ")),
    };
    at.violation(format!("must be {want}, not {}", quoted(&word)))
}
