//! Lists the value of every setting and where it comes from.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Options;

/// The value of one setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its dotted key.
    pub key: String,
    /// Its value in TOML, or `not set`.
    pub value: String,
    /// Where the value comes from.
    pub origin: Origin,
}

/// Where a setting's value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The default.
    Default,
    /// A line of the file.
    File(PathBuf, usize),
    /// An option of the command line.
    Flag(&'static str),
}

/// Every setting with its origin, in the order of the reference. `flags` pairs each key that the command line set with the option's name.
#[must_use]
pub fn settings(
    options: &Options,
    file: Option<(&Path, &[(String, usize)])>,
    flags: &[(&str, &'static str)],
) -> Vec<Setting> {
    let mut flat = Vec::new();
    let mut value = serde_json::to_value(options).unwrap_or_default();
    if let Some(url) = value.pointer_mut("/store/url") {
        // It may hold a password.
        *url = trilogue_store::redacted_url(&options.store.url).into();
    }
    flatten(&value, "", &mut flat);
    flat.into_iter()
        .map(|(key, value)| {
            let origin = if let Some((_, flag)) = flags.iter().find(|(name, _)| *name == key) {
                Origin::Flag(flag)
            } else {
                let named = file.and_then(|(path, lines)| {
                    let (_, line) = lines.iter().find(|(name, _)| *name == key)?;
                    Some(Origin::File(path.to_owned(), *line))
                });
                named.unwrap_or(Origin::Default)
            };
            Setting { key, value, origin }
        })
        .collect()
}

fn flatten(value: &Value, prefix: &str, flat: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let dotted =
                    if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(value, &dotted, flat);
            }
        }
        Value::Null => flat.push((prefix.to_owned(), "not set".to_owned())),
        value => flat.push((prefix.to_owned(), value.to_string())),
    }
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_names_its_origin() {
        let path = Path::new("t.toml");
        let loaded =
            super::super::parse(path, "[log]\nlevel = \"warn\"\n[store]\nurl = \"memory:\"\n")
                .unwrap();
        let settings =
            settings(&loaded.options, Some((path, &loaded.lines)), &[("store.url", "--store")]);
        let of = |key: &str| {
            let setting = settings.iter().find(|setting| setting.key == key).unwrap();
            format!("{} ({})", setting.value, setting.origin)
        };
        assert_eq!(of("log.level"), "\"warn\" (t.toml:2)");
        assert_eq!(of("store.url"), "\"memory:\" (--store)");
        assert_eq!(of("store.durability"), "\"fsync\" (default)");
        assert_eq!(of("server.public_url"), "not set (default)");
        assert_eq!(of("server.listen"), "[\"127.0.0.1:7878\",\"[::1]:7878\"] (default)");
    }
}
