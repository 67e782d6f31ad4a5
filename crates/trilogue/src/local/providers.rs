//! Providers of models, by the variable in which agents expect the key.

use std::sync::LazyLock;

use indexmap::IndexMap;
use serde::Deserialize;
use trilogue_broker::Dialect;

/// What is known of a provider.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Provider {
    /// The address that the paths of requests follow.
    pub(crate) url: String,
    /// The variables by which programs take another address.
    pub(crate) base_url: Vec<String>,
    /// The field with the key.
    pub(crate) header: String,
    pub(crate) dialect: Dialect,
}

static PROVIDERS: LazyLock<IndexMap<String, Provider>> =
    // A test reads the file.
    LazyLock::new(|| toml::from_str(include_str!("providers.toml")).unwrap_or_default());

/// Returns what is known of the provider of a key.
pub(crate) fn of_key(variable: &str) -> Option<&'static Provider> {
    PROVIDERS.get(variable)
}

/// Returns the variables that are known.
pub(crate) fn keys() -> impl Iterator<Item = &'static str> {
    PROVIDERS.keys().map(String::as_str)
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    #[test]
    fn each_provider_has_an_address() {
        let all: IndexMap<String, Provider> =
            toml::from_str(include_str!("providers.toml")).unwrap();
        assert!(all.len() > 5 && of_key("ANTHROPIC_API_KEY").is_some());
        for (name, provider) in &all {
            assert_eq!(Url::parse(&provider.url).unwrap().scheme(), "https", "{name}");
            assert_ne!(provider.dialect, Dialect::Unknown, "{name}");
        }
    }
}
