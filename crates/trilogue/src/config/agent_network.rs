//! What an agent may reach over the network, and the keys that it uses without having them.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use trilogue_backends::network::KeySource;
use trilogue_broker::{Dialect, HostPattern, HostRules};

use super::list::{Item, List};

/// What an agent in its sandbox may reach over the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum NetworkSetting {
    /// Everything that the server's machine reaches.
    #[default]
    Open,
    /// Nothing.
    None,
    /// The hosts of a list, through the server.
    Listed {
        /// The hosts.
        hosts: HostRules,
        /// Whether a person is asked about other hosts. Otherwise they are refused.
        asks: bool,
    },
}

/// A key that the server adds to the agent's requests.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct KeySetting {
    /// Where the server reads the key.
    #[serde(serialize_with = "write_source")]
    pub from: KeySource,
    /// The address of the provider. `None`: the one that is known for the variable.
    pub url: Option<String>,
    /// The variables by which the agent takes the address of the provider. Empty: those that are known.
    pub base_url: Vec<String>,
    /// The header field with the key: `bearer`, or its name. `None`: the one that is known, or `bearer`.
    pub header: Option<String>,
    /// The dialect in which usage is counted. `None`: the one that is known, or no tokens are counted.
    pub dialect: Option<Dialect>,
}

const OPEN: &str = "open";
const NONE: &str = "none";
const ASK: &str = "ask";

// === impl NetworkSetting ===

impl NetworkSetting {
    /// The words of the setting.
    fn words(&self) -> Vec<String> {
        match self {
            Self::Open => vec![OPEN.to_owned()],
            Self::None => vec![NONE.to_owned()],
            Self::Listed { hosts, asks } => {
                let ask = asks.then(|| ASK.to_owned());
                hosts.patterns().map(ToString::to_string).chain(ask).collect()
            }
        }
    }

    fn of_words(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if word == OPEN => return Ok(Self::Open),
            [word] if word == NONE => return Ok(Self::None),
            [] => return Err("the list is empty; write \"none\" for no network".to_owned()),
            _ => {}
        }
        let asks = words.iter().any(|word| word == ASK);
        let hosts = words.iter().filter(|word| *word != ASK);
        let hosts = hosts
            .map(|word| match word.as_str() {
                OPEN | NONE => Err(format!("\"{word}\" stands alone, not in a list")),
                _ => word.parse::<HostPattern>().map_err(|error| error.to_string()),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let hosts = HostRules::new(hosts).map_err(|error| error.to_string())?;
        Ok(Self::Listed { hosts, asks })
    }
}

impl fmt::Display for NetworkSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().join(", "))
    }
}

impl Serialize for NetworkSetting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_str(OPEN),
            Self::None => serializer.serialize_str(NONE),
            Self::Listed { .. } => serializer.collect_seq(self.words()),
        }
    }
}

impl<'de> Deserialize<'de> for NetworkSetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = List::<String>::deserialize(deserializer)?;
        Self::of_words(&words.0).map_err(de::Error::custom)
    }
}

impl JsonSchema for NetworkSetting {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("text or list of texts")
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

fn write_source<S: Serializer>(source: &KeySource, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

fn read_source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KeySource, D::Error> {
    let text = Cow::<'_, str>::deserialize(deserializer)?;
    // The text may be the key itself, so that the error does not repeat it.
    text.parse().map_err(|error| de::Error::custom(format!("the text does not fit, {error}")))
}

// === impl KeySetting ===

impl<'de> Deserialize<'de> for KeySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            #[serde(deserialize_with = "read_source")]
            from: KeySource,
            #[serde(default)]
            url: Option<String>,
            #[serde(default)]
            base_url: List<String>,
            #[serde(default)]
            header: Option<String>,
            #[serde(default)]
            dialect: Option<Dialect>,
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = KeySetting;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"file:PATH\", \"env:NAME\", or a table with `from`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<KeySetting, E> {
                let from = text
                    .parse()
                    .map_err(|error| E::custom(format!("the text does not fit, {error}")))?;
                Ok(KeySetting {
                    from,
                    url: None,
                    base_url: Vec::new(),
                    header: None,
                    dialect: None,
                })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<KeySetting, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let Table { from, url, base_url, header, dialect } = table;
                Ok(KeySetting { from, url, base_url: base_url.0, header, dialect })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for KeySetting {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("text or table")
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "object"] })
    }
}

impl Item for HostPattern {
    const EXPECTED: &'static str =
        "a host, such as \"api.example.com\", \"*.example.org\" or \"example.com:8443\"";
}
