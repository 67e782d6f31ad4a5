//! How a token is sent to an agent's server.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::{HeaderName, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How a token is sent to an agent's server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum TokenAs {
    /// `Authorization: Bearer`.
    #[default]
    Bearer,
    /// `x-api-key`.
    ApiKey,
    /// The value of this header field.
    Header(HeaderName),
}

/// A text that does not say how a token is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected \"bearer\", \"api-key\" or \"header:NAME\" with the name of a header field for credentials"
)]
pub struct NotATokenForm;

/// The prefix of a header field's name.
const HEADER: &str = "header:";
/// Fields with a meaning that no token can have.
pub(crate) const RESERVED: [HeaderName; 8] = [
    header::ACCEPT,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::HOST,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

// === impl TokenAs ===

impl FromStr for TokenAs {
    type Err = NotATokenForm;

    fn from_str(text: &str) -> Result<Self, NotATokenForm> {
        match text {
            "bearer" => Ok(Self::Bearer),
            "api-key" => Ok(Self::ApiKey),
            _ => {
                let name = text.strip_prefix(HEADER).ok_or(NotATokenForm)?;
                let name = HeaderName::from_str(name).map_err(|_| NotATokenForm)?;
                if RESERVED.contains(&name) { Err(NotATokenForm) } else { Ok(Self::Header(name)) }
            }
        }
    }
}

impl fmt::Display for TokenAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer => f.write_str("bearer"),
            Self::ApiKey => f.write_str("api-key"),
            Self::Header(name) => write!(f, "{HEADER}{name}"),
        }
    }
}

impl Serialize for TokenAs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenAs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(|error| {
            de::Error::custom(format!("`{}` does not fit, {error}", text.escape_debug()))
        })
    }
}

impl JsonSchema for TokenAs {
    fn schema_name() -> Cow<'static, str> {
        "text".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_in_the_usual_ways_or_in_a_field_of_its_own() {
        for text in ["bearer", "api-key", "header:x-agent-key"] {
            assert_eq!(text.parse::<TokenAs>().unwrap().to_string(), text);
        }
        let upper: TokenAs = "header:X-Agent-Key".parse().unwrap();
        assert_eq!(upper, TokenAs::Header(HeaderName::from_static("x-agent-key")));
        for text in ["", "basic", "header:", "header:a b", "header:Host", "x-agent-key"] {
            assert_eq!(text.parse::<TokenAs>(), Err(NotATokenForm), "{text}");
        }
    }
}
