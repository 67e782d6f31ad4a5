//! The settings of an agent, and the variables by which its programs find the broker.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use trilogue_broker::{
    AgentAccess, Broker, Dialect, HostRules, KeyHeader, NetworkAccess, ProviderKey, SecretText,
};
use url::Url;

use super::rules::NetworkRules;
use crate::child::{BrokerAddress, BrokerVariables, INHERITED, InvalidSetting, SERVER_PREFIX};

/// The variables by which programs find a proxy. Some read the small ones only.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
/// The variables with the hosts for which programs use no proxy.
const NO_PROXIES: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// The hosts of the program itself, and of the broker.
const OWN_HOSTS: &str = "127.0.0.1,localhost,::1";
/// Without it, `fetch` of Node reads no variables for proxies.
const NODE_PROXY: &str = "NODE_USE_ENV_PROXY";
/// How a key begins whose programs look at its form.
const KEY_PREFIX: &str = "sk-trilogue-";
/// The longest key, in bytes.
const MAX_KEY_BYTES: u64 = 64 * 1024;

/// What an agent may reach over the network, and the keys that it uses without having them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkPlan {
    pub access: NetworkAccess,
    /// What no agent of the server goes beyond.
    pub ceiling: Option<HostRules>,
    pub keys: Vec<KeyPlan>,
    /// The hosts that people have allowed.
    pub rules: Arc<NetworkRules>,
    /// The proxy of the server, if the agent needs it.
    pub broker: Option<Broker>,
}

/// A key of a provider, which the broker adds to the agent's requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyPlan {
    /// The variable in which the agent's program expects the key.
    pub variable: String,
    pub source: KeySource,
    /// The address of the provider.
    pub base: Url,
    /// The variables by which the program takes another address.
    pub base_variables: Vec<String>,
    pub header: KeyHeader,
    pub dialect: Dialect,
}

/// Where the server reads a key. It is read whenever a process starts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum KeySource {
    File(PathBuf),
    /// A variable of the server.
    Variable(String),
}

/// A text that names no place of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected \"file:PATH\" or \"env:NAME\"")]
pub struct NotAKeySource;

// === impl NetworkPlan ===

impl NetworkPlan {
    /// Checks that the keys can be read.
    ///
    /// # Errors
    /// The first key that cannot.
    pub fn check(&self) -> Result<(), InvalidSetting> {
        for key in &self.keys {
            let mut names = key.base_variables.iter().chain([&key.variable]);
            if let Some(name) = names.find(|name| is_reserved(name)) {
                return Err(InvalidSetting {
                    key: "keys",
                    why: format!("the agent needs the variable '{name}' for something else"),
                    hint: "name the variables for the key and for the provider's address"
                        .to_owned(),
                });
            }
            key.source.read().map_err(|why| InvalidSetting {
                key: "keys",
                why: format!("{}: {why}", key.variable),
                hint: "name a file or a variable of the server with the key".to_owned(),
            })?;
            if key.base_variables.is_empty() {
                let hint = "set `base_url` of the key to the variable by which the agent takes the address of its provider";
                return Err(InvalidSetting {
                    key: "keys",
                    why: format!("the agent would not find the broker for {}", key.variable),
                    hint: hint.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Returns what a process may reach. `secret` is what it proves itself by, and `is_private` says that only the process reaches the broker. Blocks on the file system.
    ///
    /// # Errors
    /// A key that cannot be read.
    pub(crate) fn access(&self, secret: &str, is_private: bool) -> Result<AgentAccess, String> {
        let password = password(secret);
        let keys = self.keys.iter().map(|key| {
            let text = key.source.read().map_err(|why| format!("{}: {why}", key.variable))?;
            Ok(ProviderKey {
                name: key.variable.clone(),
                placeholder: SecretText::new(password.clone()),
                key: SecretText::new(text),
                base: key.base.clone(),
                header: key.header.clone(),
                dialect: key.dialect,
            })
        });
        let keys = keys.collect::<Result<_, String>>()?;
        // Other programs of the machine reach the listener of a process without namespaces.
        let secret = (!is_private).then(|| SecretText::new(password));
        let (network, ceiling) = (self.access.clone(), self.ceiling.clone());
        Ok(AgentAccess { network, ceiling, secret, keys })
    }
}

impl BrokerVariables for NetworkPlan {
    fn variables(&self, address: &BrokerAddress) -> Vec<(String, String)> {
        let password = password(&address.secret);
        let place = format!("127.0.0.1:{}", address.port);
        let mut all = Vec::new();
        let mut set = |name: &str, value: &str| all.push((name.to_owned(), value.to_owned()));
        let proxy = match address.is_private {
            true => format!("http://{place}"),
            false => format!("http://agent:{password}@{place}"),
        };
        PROXIES.iter().for_each(|name| set(name, &proxy));
        NO_PROXIES.iter().for_each(|name| set(name, OWN_HOSTS));
        set(NODE_PROXY, "1");
        for key in &self.keys {
            set(&key.variable, &password);
            let base = format!("http://{place}/keys/{}", key.variable);
            key.base_variables.iter().for_each(|name| set(name, &base));
        }
        all
    }
}

/// Whether a variable has a meaning for every program, or for the server.
fn is_reserved(name: &str) -> bool {
    let of_broker = PROXIES.iter().chain(&NO_PROXIES).chain([&NODE_PROXY]);
    let mut reserved = of_broker.chain(INHERITED);
    let is_prefixed = ["LD_", SERVER_PREFIX].iter().any(|prefix| name.starts_with(prefix));
    is_prefixed || reserved.any(|reserved| *reserved == name)
}

/// Returns the password of the proxy, which is also the placeholder of each key.
fn password(secret: &str) -> String {
    format!("{KEY_PREFIX}{secret}")
}

// === impl KeySource ===

impl FromStr for KeySource {
    type Err = NotAKeySource;

    fn from_str(text: &str) -> Result<Self, NotAKeySource> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            Some(("env", name)) if !name.is_empty() => Ok(Self::Variable(name.to_owned())),
            _ => Err(NotAKeySource),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Variable(name) => write!(f, "env:{name}"),
        }
    }
}

impl KeySource {
    /// Reads the key, without the white space around it. Blocks on the file system.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(&self) -> Result<String, String> {
        let text = match self {
            Self::File(path) => {
                let failed = |error| format!("'{}' cannot be read: {error}", path.display());
                let length = fs::metadata(path).map_err(failed)?.len();
                if length > MAX_KEY_BYTES {
                    return Err(format!(
                        "'{}' has more than {MAX_KEY_BYTES} bytes",
                        path.display()
                    ));
                }
                fs::read_to_string(path).map_err(failed)?
            }
            Self::Variable(name) => std::env::var(name)
                .map_err(|_| format!("the variable '{}' is not set", name.escape_debug()))?,
        };
        let key = text.trim();
        if key.is_empty() || key.chars().any(char::is_control) {
            return Err("the key is empty, or has control characters".to_owned());
        }
        Ok(key.to_owned())
    }
}
