//! What a process of an agent may reach, and the keys that it uses.

use std::fmt;

use http::HeaderName;
use http::header::AUTHORIZATION;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use url::Url;

use crate::host_rules::HostRules;

/// What a process of an agent may reach.
#[derive(Clone, Debug, Default)]
pub struct AgentAccess {
    /// The hosts that it may reach.
    pub network: NetworkAccess,
    /// What no setting and no answer goes beyond. `None`: everything.
    pub ceiling: Option<HostRules>,
    /// What the process proves itself by. `None` if no other program reaches the listener.
    pub secret: Option<SecretText>,
    /// The keys that it uses without having them. No host rule is needed for their providers, but the ceiling holds.
    pub keys: Vec<ProviderKey>,
}

/// The hosts that a process may reach.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum NetworkAccess {
    /// All, at addresses that the operator allows.
    #[default]
    Open,
    /// Those of a list.
    Listed {
        /// The list.
        allow: HostRules,
        /// What happens with the others.
        unlisted: Unlisted,
    },
}

/// What happens with a host that is not listed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unlisted {
    /// It is refused.
    Refuse,
    /// The [observer](crate::BrokerObserver::ask) decides.
    Ask,
}

/// A key of a provider of models. The process has the placeholder, and sends its requests to `/keys/NAME` of its listener.
#[derive(Clone, Debug)]
pub struct ProviderKey {
    /// The variable in which programs expect it, such as `ANTHROPIC_API_KEY`.
    pub name: String,
    /// What the process has in its place.
    pub placeholder: SecretText,
    /// The key.
    pub key: SecretText,
    /// Where the provider is. The rest of the path of a request follows its path.
    pub base: Url,
    /// Where the provider expects the key.
    pub header: KeyHeader,
    /// How the provider writes its errors and its usage.
    pub dialect: Dialect,
}

/// The field of a request that has the key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeyHeader {
    /// `authorization`, after `Bearer`.
    Bearer,
    /// This field, such as `x-api-key`.
    Named(HeaderName),
}

/// How a provider writes requests and usage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// The messages of Anthropic.
    Anthropic,
    /// Both the chat and the responses of `OpenAI`, and of all who follow it.
    OpenAi,
    /// The content of Google's Gemini.
    Gemini,
    /// Requests are counted, tokens are not.
    #[default]
    Unknown,
}

/// A text that is never shown.
#[derive(Clone)]
pub struct SecretText(String);

// === impl SecretText ===

impl SecretText {
    /// Hides a text.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a text is this one, in a time that does not depend on the first difference.
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        bool::from(self.0.as_bytes().ct_eq(text.as_bytes()))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

// === impl KeyHeader ===

impl KeyHeader {
    pub(crate) fn name(&self) -> HeaderName {
        match self {
            Self::Bearer => AUTHORIZATION,
            Self::Named(name) => name.clone(),
        }
    }

    /// Returns the text of the field with this key.
    pub(crate) fn value(&self, key: &str) -> String {
        match self {
            Self::Bearer => format!("Bearer {key}"),
            Self::Named(_) => key.to_owned(),
        }
    }
}
