//! The text of a new configuration file: the settings that people change most, commented out, with their defaults.

use std::fmt::Write as _;

use super::{Options, reference, settings};

/// How wide a comment is at most, in columns.
const COMMENT_COLUMNS: usize = 96;

const HEAD: &str = "\
# The configuration of your Trilogue server.
#
# To change a setting, remove the `# ` in front of it. Its value is the default, or an example where it says so.
# All settings: docs/reference/configuration.md. Check this file: trilogue serve --config FILE --check
";

/// A table of the file, and the settings of it that are shown.
struct StarterTable {
    name: &'static str,
    /// What to know before the settings, besides what the table is.
    note: &'static str,
    keys: &'static [StarterKey],
}

/// A setting, and an example where its default says nothing.
struct StarterKey(&'static str, Option<&'static str>);

const TABLES: [StarterTable; 7] = [
    StarterTable {
        name: "server",
        note: "Clients need a token: `trilogue token create` makes more of them. The server itself speaks plain HTTP; for other machines, put a proxy with TLS in front, as in docs/operating.md.",
        keys: &[
            StarterKey("listen", None),
            StarterKey("public_url", Some("\"https://agents.example.com\"")),
            StarterKey("trusted_proxies", Some("[\"10.0.0.5\"]")),
            StarterKey("allowed_origins", Some("[\"https://app.example.com\"]")),
            StarterKey("no_auth", None),
            StarterKey("public_agents", None),
            StarterKey("shutdown_deadline", None),
            StarterKey("idle_exit", Some("\"8h\"")),
        ],
    },
    StarterTable {
        name: "server.limits",
        note: "",
        keys: &[
            StarterKey("max_body", None),
            StarterKey("max_connections", None),
            StarterKey("max_streams", None),
        ],
    },
    StarterTable {
        name: "store",
        note: "",
        keys: &[
            StarterKey("url", None),
            StarterKey("durability", None),
            StarterKey("max_size", Some("\"10GiB\"")),
        ],
    },
    StarterTable {
        name: "runtime",
        note: "",
        keys: &[
            StarterKey("max_running", None),
            StarterKey("max_agent_processes", None),
            StarterKey("max_agent_memory", None),
            StarterKey("interrupt_deadline", None),
            StarterKey("keep_runs_for", Some("\"90d\"")),
        ],
    },
    StarterTable {
        name: "egress",
        note: "",
        keys: &[StarterKey("allow", Some("[\"10.0.0.0/8\"]"))],
    },
    StarterTable {
        name: "notify",
        note: "",
        keys: &[StarterKey("command", Some("[\"logger\", \"-t\", \"trilogue\"]"))],
    },
    StarterTable {
        name: "log",
        note: "",
        keys: &[StarterKey("format", None), StarterKey("level", None)],
    },
];

/// The text of a new file. `agents` are the tables of agents beside the built-in ones.
#[must_use]
pub fn starter(agents: &str) -> String {
    let schema = schemars::schema_for!(Options);
    let defaults = settings(&Options::default(), None, &[]);
    let default = |key: &str| {
        let found = defaults.iter().find(|setting| setting.key == key);
        found.map(|setting| setting.value.replace("\",\"", "\", \"")).unwrap_or_default()
    };
    let mut out = HEAD.to_owned();
    for table in &TABLES {
        let StarterTable { name, note, keys } = table;
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n[{name}]");
        let section = about(reference::description_of(schema.as_value(), name), true);
        comment(&mut out, format!("{section} {note}").trim_end());
        out.push('\n');
        for StarterKey(key, example) in *keys {
            let dotted = format!("{name}.{key}");
            let description = reference::description_of(schema.as_value(), &dotted);
            comment(&mut out, &about(description, example.is_none()));
            let _ = match example {
                Some(example) => writeln!(out, "# {key} = {example}  # an example"),
                None => writeln!(out, "# {key} = {}", default(&dotted)),
            };
        }
    }
    out.push_str("\n# The built-in agents.\n");
    for name in crate::BUILTIN_AGENTS {
        let _ = write!(out, "[agents.{name}]\nkind = \"builtin\"\n\n");
    }
    out.push_str(agents);
    out
}

/// The first sentence of a description, and what holds if the setting is not set where that says something.
fn about(description: Option<String>, has_default: bool) -> String {
    let description = description.unwrap_or_default();
    let mut sentences = sentences(&description).into_iter();
    let first = sentences.next().unwrap_or_default();
    let unset = sentences.find(|sentence| sentence.starts_with("Not set: "));
    match unset.filter(|_| !has_default) {
        Some(unset) => format!("{first} {unset}"),
        None => first.to_owned(),
    }
}

/// Splits after each full stop that a new sentence follows.
fn sentences(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut found = Vec::new();
    while let Some(end) = rest
        .match_indices(". ")
        .map(|(at, _)| at)
        .find(|at| rest[at + 2..].starts_with(|first: char| first.is_uppercase() || first == '`'))
    {
        found.push(&rest[..=end]);
        rest = &rest[end + 2..];
    }
    found.push(rest);
    found
}

/// Writes a comment, wrapped between its words.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() > 1 && line.chars().count() + 1 + word.chars().count() > COMMENT_COLUMNS {
            out.push_str(&line);
            out.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > 1 {
        out.push_str(&line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Setting, parse};

    fn uncommented(text: &str) -> String {
        let is_setting = |line: &&str| {
            let key = line.split_once(" = ").map(|(key, _)| key).unwrap_or_default();
            !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        let lines = text.lines();
        let lines = lines.map(|line| line.strip_prefix("# ").filter(is_setting).unwrap_or(line));
        lines.map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn a_new_file_is_the_server_without_a_file() {
        let loaded = parse(Path::new("t.toml"), &starter("")).unwrap().options;
        let agents = crate::local::built_in_agents();
        assert_eq!(loaded, Options { agents, ..Options::default() });
    }

    #[test]
    fn every_setting_in_a_comment_has_a_description_and_its_default() {
        let text = starter("");
        let loaded = parse(Path::new("t.toml"), &uncommented(&text)).unwrap();
        let count: usize = TABLES.iter().map(|table| table.keys.len()).sum();
        assert_eq!(loaded.lines.len(), count + crate::BUILTIN_AGENTS.len(), "{text}");
        crate::check(&loaded.options).unwrap();
        crate::config::check(&loaded.options).unwrap();
        let now = settings(&loaded.options, None, &[]);
        let before = settings(&Options::default(), None, &[]);
        for table in &TABLES {
            for StarterKey(key, example) in table.keys {
                let value = |all: &[Setting]| {
                    let key = format!("{}.{key}", table.name);
                    all.iter().find(|setting| setting.key == key).unwrap().value.clone()
                };
                assert_eq!(value(&now) == value(&before), example.is_none(), "{key}");
            }
        }
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2) {
            let is_setting =
                pair[1].starts_with("# ") && uncommented(pair[1]) != format!("{}\n", pair[1]);
            assert!(!is_setting || pair[0].starts_with("# ") && pair[0].ends_with('.'), "{pair:?}");
        }
        assert!(lines.iter().skip(5).all(|line| line.chars().count() <= COMMENT_COLUMNS), "{text}");
    }

    #[test]
    fn sentences_end_where_the_next_one_begins() {
        assert_eq!(sentences("A, e.g. b. `c` is. D"), ["A, e.g. b.", "`c` is.", "D"]);
    }
}
