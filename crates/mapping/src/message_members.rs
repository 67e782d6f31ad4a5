//! Members of a message that messages of ours do not have: they travel in its first part.

use serde_json::{Map, Value, json};
use trilogue_domain::error::Result;
use trilogue_domain::{Content, Json, Part};

use crate::connect::EXTENSION;

/// The member of a part, under [`EXTENSION`], with its message's own members.
pub(crate) const MESSAGE: &str = "message";
/// The one of them with the members that the sender's protocol does not declare.
pub(crate) const FURTHER: &str = "members";
/// Marks a part that is there only for them.
const EMPTY: &str = "empty";

/// Separates a message's own members from its first part; `None` where nothing else is left of the part.
pub(crate) fn split(part: &Part) -> (Option<Part>, Map<String, Value>) {
    let is_there = part.extra.as_ref().is_some_and(|extra| extra.as_str().contains(EXTENSION));
    let Some(Value::Object(mut extra)) =
        part.extra.as_ref().filter(|_| is_there).map(Json::to_value)
    else {
        return (None, Map::new());
    };
    let ours = extra.get_mut(EXTENSION).and_then(Value::as_object_mut);
    let Some(Value::Object(own)) = ours.and_then(|ours| ours.remove(MESSAGE)) else {
        return (None, Map::new());
    };
    if extra.get(EXTENSION).and_then(Value::as_object).is_some_and(Map::is_empty) {
        extra.remove(EXTENSION);
    }
    let extra = (!extra.is_empty()).then(|| Json::from_value(&Value::Object(extra)));
    (Some(Part { extra, ..part.clone() }), own)
}

/// Puts a message's own members into its first part.
pub(crate) fn keep(mut own: Map<String, Value>, parts: &mut Vec<Part>) -> Result<()> {
    if parts.is_empty() {
        own.insert(EMPTY.to_owned(), true.into());
        parts.push(Part::new("text/plain", Content::Empty));
    }
    let Some(first) = parts.first_mut() else { return Ok(()) };
    let mut extra = match first.extra.as_ref().map(Json::to_value) {
        Some(Value::Object(extra)) => extra,
        _ => Map::new(),
    };
    let ours = extra.entry(EXTENSION).or_insert_with(|| json!({}));
    if !ours.is_object() {
        *ours = json!({});
    }
    if let Some(ours) = ours.as_object_mut() {
        ours.insert(MESSAGE.to_owned(), Value::Object(own));
    }
    first.extra = Some(Json::parse(Value::Object(extra).to_string())?);
    Ok(())
}

/// Separates the undeclared members of a message from its first part, and leaves its other ones there. No part is left of one that was there only for them; `None` where there are no such members.
pub(crate) fn split_further(part: &Part) -> Option<(Option<Part>, Map<String, Value>)> {
    let (Some(rest), mut own) = split(part) else { return None };
    let Some(Value::Object(further)) = own.remove(FURTHER) else { return None };
    if own.len() == 1 && own.contains_key(EMPTY) {
        return Some((None, further));
    }
    let mut parts = vec![rest];
    if !own.is_empty() {
        // It was read from JSON that was as deep.
        keep(own, &mut parts).ok()?;
    }
    Some((parts.pop(), further))
}
