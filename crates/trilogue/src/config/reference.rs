//! Renders the reference of the configuration file from the doc comments of its types.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::Options;

const HEAD: &str = "\
<!-- Generated from the doc comments of `trilogue::config`. Do not edit. -->

# Configuration

Look up a setting of the configuration file here. `trilogue serve --config FILE` reads one TOML file.

- An empty file is valid: every setting has a default, except those that are marked as required.
- An unknown key is an error that names the nearest known key.
- `trilogue serve --config FILE --check` prints the value of each setting and where it comes from, and starts nothing.
- A duration is a whole number with `ms`, `s`, `m`, `h` or `d`, such as `\"30s\"`.
- A size is a whole number with `B`, `KiB`, `MiB` or `GiB`, such as `\"32MiB\"`.
";

/// The text of `docs/reference/configuration.md`.
#[must_use]
pub fn reference() -> String {
    let schema = schemars::schema_for!(Options);
    let mut out = HEAD.to_owned();
    section(&mut out, schema.as_value(), schema.as_value(), "");
    out
}

/// The description of a setting, by its dotted key.
pub(super) fn description_of(root: &Value, key: &str) -> Option<String> {
    let mut table = root;
    let mut member = root;
    for part in key.split('.') {
        member = table.get("properties")?.get(part)?;
        table = resolve(root, member);
    }
    Some(description(member))
}

/// One table of the file: its settings first, then the tables within.
fn section(out: &mut String, root: &Value, table: &Value, path: &str) {
    let none = Map::new();
    let members = table.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let mut rows = String::new();
    let mut inner = Vec::new();
    for (key, member) in members {
        let target = resolve(root, member);
        let dotted = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if target.get("properties").is_some() {
            inner.push((dotted, member, target));
        } else if let Some(entry) = table_of(root, target) {
            inner.push((format!("[{dotted}]"), member, entry));
        } else if let Some(entry) = tables_of(root, target) {
            inner.push((format!("{dotted}.NAME"), member, entry));
        } else {
            // Writing to a String cannot fail.
            let _ = writeln!(
                rows,
                "| `{key}` | {} | {} | {} |",
                kind(target),
                default(member),
                description(member).replace('|', "\\|")
            );
        }
    }
    if !rows.is_empty() {
        let _ = write!(out, "\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}");
    }
    for (dotted, member, target) in inner {
        let _ = write!(out, "\n## `[{dotted}]`\n\n{}\n", description(member));
        section(out, root, target, &dotted);
    }
}

/// Returns the table that a list contains, if it contains tables.
fn table_of<'a>(root: &'a Value, list: &'a Value) -> Option<&'a Value> {
    let entry = resolve(root, list.get("items")?);
    entry.get("properties").map(|_| entry)
}

/// Returns the named tables that a table contains, if it contains tables.
fn tables_of<'a>(root: &'a Value, table: &'a Value) -> Option<&'a Value> {
    let entry = resolve(root, table.get("additionalProperties")?);
    entry.get("properties").map(|_| entry)
}

fn resolve<'a>(root: &'a Value, member: &'a Value) -> &'a Value {
    let target = member.get("anyOf").and_then(|any| any.get(0)).unwrap_or(member);
    let name = target.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix("#"));
    name.and_then(|pointer| root.pointer(pointer)).unwrap_or(target)
}

fn kind(target: &Value) -> String {
    let choices = target.get("enum").or_else(|| target.get("oneOf")).and_then(Value::as_array);
    if let Some(choices) = choices {
        let names: Vec<_> = choices
            .iter()
            .flat_map(|choice| match choice.get("enum").and_then(Value::as_array) {
                Some(several) => several.iter().collect::<Vec<_>>(),
                None => vec![choice.get("const").unwrap_or(choice)],
            })
            .map(|choice| format!("`{choice}`"))
            .collect();
        return names.join(" or ");
    }
    let word = |value: &Value| match value.as_str() {
        Some("array") => "list".to_owned(),
        Some("string") => target.get("format").and_then(Value::as_str).unwrap_or("text").to_owned(),
        Some("integer") => "number".to_owned(),
        Some("object") => "table of texts".to_owned(),
        other => other.unwrap_or("any").to_owned(),
    };
    match target.get("type") {
        Some(Value::Array(kinds)) => {
            let kinds: Vec<_> =
                kinds.iter().filter(|kind| kind.as_str() != Some("null")).map(word).collect();
            kinds.join(" or ")
        }
        Some(kind) => word(kind),
        None => "any".to_owned(),
    }
}

fn default(member: &Value) -> String {
    match member.get("default") {
        Some(Value::Null) => "not set".to_owned(),
        Some(value) => format!("`{value}`"),
        None => "required".to_owned(),
    }
}

fn description(member: &Value) -> String {
    let text = member.get("description").and_then(Value::as_str).unwrap_or_default();
    text.replace("\n\n", " ").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_stands_in_the_reference_with_type_default_and_meaning() {
        let text = reference();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
        for setting in super::super::settings(&Options::default(), None, &[]) {
            let key = setting.key.rsplit('.').next().unwrap();
            if !["agents", "mounts"].contains(&key) {
                assert!(rows.iter().any(|row| row.starts_with(&format!("| `{key}` "))), "{key}");
            }
        }
        for row in rows {
            assert!(!row.contains("| any |") && !row.ends_with("|  |"), "{row}");
        }
        assert!(text.contains("| `shutdown_deadline` | duration | `\"30s\"` |"), "{text}");
        assert!(text.contains("| `durability` | `\"fsync\"` or `\"buffered\"` | `\"fsync\"` |"));
        assert!(text.contains("## `[agents.NAME]`"));
        assert!(text.contains("## `[[agents.NAME.permissions]]`"));
        assert!(text.contains("| `env` | table of texts | `{}` | `agent-client`, and"), "{text}");
        assert!(text.contains("| `max_line` | size | `\"16MiB\"` |"), "{text}");
        assert!(text.contains("## `[[mounts]]`"));
        let protocols =
            "| `protocol` | `\"communication\"` or `\"connect\"` or `\"client\"` | required |";
        assert!(text.contains(protocols), "{text}");
    }
}
