//! Rewords serde's messages in terms of the protocol, without the names of Rust types.

/// The maximum number of characters of a client's value that a message repeats.
const MAX_SHOWN_CHARS: usize = 64;

/// Returns serde's message, reworded for the author of a client. It follows the path of the value.
pub(super) fn plain(message: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: "];
    if let Some(rest) = kinds.iter().find_map(|kind| message.strip_prefix(kind))
        && let Some((found, expected)) = rest.rsplit_once(", expected ")
    {
        return format!("must be {}, not {}", describe_expected(expected), describe_found(found));
    }
    if let Some(rest) = message.strip_prefix("unknown variant `")
        && let Some((found, expected)) = rest.rsplit_once("`, expected ")
    {
        return format!("must be {expected}, not \"{}\"", cut(found));
    }
    if let Some(rest) = message.strip_prefix("unknown field `")
        && let Some((_, expected)) = rest.rsplit_once("`, expected ")
    {
        return format!("is not known there: expected {expected}");
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("lacks the member {name}");
    }
    if let Some(name) = message.strip_prefix("duplicate field ") {
        return format!("has the member {name} twice");
    }
    match message {
        // The reader expects a word and finds another kind of value.
        "expected value" => "must be a string".to_owned(),
        other => other.to_owned(),
    }
}

fn describe_expected(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        structure if structure.starts_with("struct ") => "an object",
        other => other,
    }
}

fn describe_found(found: &str) -> String {
    let quoted = |kind: &str| found.strip_prefix(kind)?.strip_prefix('`')?.strip_suffix('`');
    if let Some(number) = quoted("integer ").or_else(|| quoted("floating point ")) {
        return format!("the number {}", cut(number));
    }
    if let Some(boolean) = quoted("boolean ") {
        return boolean.to_owned();
    }
    if let Some(text) = found.strip_prefix("string \"").and_then(|text| text.strip_suffix('"')) {
        return format!("the string \"{}\"", cut(text));
    }
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "an array".to_owned(),
        "unit" => "null".to_owned(),
        other => cut(other),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
