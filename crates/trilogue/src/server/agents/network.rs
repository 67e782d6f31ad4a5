//! What agents reach over the network, by their settings.

use std::path::Path;
use std::sync::Arc;

use http::HeaderName;
use trilogue_backends::child::Network;
use trilogue_backends::network::{KeyPlan, KeySource, NetworkPlan, NetworkRules};
use trilogue_broker::{
    Broker, BrokerOptions, HostRules, KeyHeader, NetworkAccess, PriceTable, Unlisted,
};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use trilogue_egress::Policy;
use url::Url;

use crate::config::{self, KeySetting, NetworkSetting, RESERVED};
use crate::local::{providers, token_file};

/// The key in the field `authorization`.
const BEARER: &str = "bearer";

/// What the agents of a server share.
#[derive(Debug, Default)]
pub(super) struct SharedNetwork {
    broker: Option<Broker>,
    rules: Arc<NetworkRules>,
    ceiling: Option<HostRules>,
}

// === impl SharedNetwork ===

impl SharedNetwork {
    pub(super) fn of(options: &config::Options) -> Result<Self> {
        let network = &options.network;
        let ceiling = network.ceiling.as_ref().map(|hosts| HostRules::new(hosts.0.clone()));
        let ceiling = ceiling.transpose().map_err(|error| {
            Error::new(Code::InvalidRequest, format!("`network.ceiling`: {error}"))
        })?;
        let needs_broker = |agent: &config::Agent| {
            matches!(agent.network, NetworkSetting::Listed { .. }) || !agent.keys.is_empty()
        };
        let prices = prices(network.prices.as_deref())?;
        let broker = options.agents.values().any(needs_broker).then(|| {
            let addresses = Policy { allow: network.allow_addresses.0.clone() };
            let idle = network.idle.0;
            Broker::new(BrokerOptions { addresses, prices, idle, ..BrokerOptions::default() })
                .map_err(|error| Error::new(Code::Internal, error.to_string()))
        });
        // Another server of a cluster does not see the file.
        let is_alone = !trilogue_store::takes_nodes(&options.store.url);
        let state = token_file::state_dir().ok().filter(|_| is_alone);
        let rules = Arc::new(NetworkRules::open(state.as_deref()));
        Ok(Self { broker: broker.transpose()?, rules, ceiling })
    }

    /// Returns the plan of an agent.
    ///
    /// # Errors
    /// `invalid_request` that names the wrong setting.
    pub(super) fn plan(&self, name: &AgentName, agent: &config::Agent) -> Result<NetworkPlan> {
        let access = match &agent.network {
            NetworkSetting::Open | NetworkSetting::None => NetworkAccess::Open,
            NetworkSetting::Listed { hosts, asks } => {
                let unlisted = if *asks { Unlisted::Ask } else { Unlisted::Refuse };
                NetworkAccess::Listed { allow: hosts.clone(), unlisted }
            }
        };
        if !agent.keys.is_empty() && access == NetworkAccess::Open {
            let message =
                format!("`agents.{name}.keys`: the agent reaches the providers without the server");
            return Err(Error::new(Code::InvalidRequest, message)
                .hint("set `network` of the agent to a list of hosts, to \"ask\", or to [\"*\"]"));
        }
        let keys = agent.keys.iter().map(|(variable, setting)| key_plan(name, variable, setting));
        let keys = keys.collect::<Result<_>>()?;
        let (ceiling, rules) = (self.ceiling.clone(), Arc::clone(&self.rules));
        let broker = self.broker.clone().filter(|_| access != NetworkAccess::Open);
        Ok(NetworkPlan { access, ceiling, keys, rules, broker })
    }
}

/// Returns what the sandbox of an agent does about the network.
pub(super) fn of_sandbox(setting: &NetworkSetting) -> Network {
    match setting {
        NetworkSetting::Open => Network::Open,
        NetworkSetting::None => Network::None,
        NetworkSetting::Listed { .. } => Network::Broker,
    }
}

fn prices(file: Option<&str>) -> Result<PriceTable> {
    let usual = PriceTable::default();
    let Some(file) = file else { return Ok(usual) };
    let invalid = |why: String| {
        let message = format!("`network.prices`: '{}': {why}", Path::new(file).display());
        Error::new(Code::InvalidRequest, message)
            .hint("write a line `date`, and a line for each model with four prices, between tabs")
    };
    let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
    let own = PriceTable::parse(&text).map_err(|error| invalid(error.to_string()))?;
    Ok(usual.with(&own))
}

fn key_plan(name: &AgentName, variable: &str, setting: &KeySetting) -> Result<KeyPlan> {
    let invalid = |why: String, hint: String| {
        let message = format!("`agents.{name}.keys.{}`: {why}", variable.escape_debug());
        Error::new(Code::InvalidRequest, message).hint(hint)
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if variable.is_empty() || !variable.bytes().all(is_name) {
        let hint = "name the variable in which the agent expects the key".to_owned();
        return Err(invalid("it is not the name of a variable".to_owned(), hint));
    }
    let known = providers::of_key(variable);
    let url = setting.url.as_deref().or(known.map(|known| known.url.as_str()));
    let Some(url) = url else {
        let known = providers::keys().collect::<Vec<_>>().join(", ");
        let hint = format!("set `url` to the address of the provider; known are: {known}");
        return Err(invalid("the provider of this key is not known".to_owned(), hint));
    };
    let base = Url::parse(url).ok().filter(|url| {
        let is_plain = url.username().is_empty() && url.query().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && is_plain
    });
    let Some(base) = base else {
        let hint = "write it as \"https://api.example.com/v1\"".to_owned();
        return Err(invalid(format!("'{}' is no address", url.escape_debug()), hint));
    };
    let header = setting.header.as_deref().or(known.map(|known| known.header.as_str()));
    let header = match header.unwrap_or(BEARER) {
        BEARER => KeyHeader::Bearer,
        field => {
            let name = field.parse::<HeaderName>().ok();
            KeyHeader::Named(name.filter(|name| !RESERVED.contains(name)).ok_or_else(|| {
                let hint = "write `bearer`, or the name of a field such as `x-api-key`".to_owned();
                invalid(format!("'{}' is not a field for keys", field.escape_debug()), hint)
            })?)
        }
    };
    let base_variables = match setting.base_url.is_empty() {
        true => known.map(|known| known.base_url.clone()).unwrap_or_default(),
        false => setting.base_url.clone(),
    };
    let here = std::env::current_dir().unwrap_or_default();
    let source = match &setting.from {
        KeySource::File(path) => KeySource::File(here.join(path)),
        variable => variable.clone(),
    };
    let dialect = setting.dialect.or(known.map(|known| known.dialect)).unwrap_or_default();
    let variable = variable.to_owned();
    Ok(KeyPlan { variable, source, base, base_variables, header, dialect })
}
