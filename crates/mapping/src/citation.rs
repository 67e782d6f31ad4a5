//! Citations beyond their five members: further ones such as `author` and `score`, and citations as text.
//!
//! The further members are in the cited part's `extra`, under the extension key, as `citation`. Every protocol that can shows them inside the citation.
//! Further members of a trajectory are kept in the same way, as `trajectory`.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::{Map, Value};
use trilogue_domain::{Citation, Json, Part, PartMetadata};
use trilogue_wire::agent_client::splice;

use crate::communication::EXTENSION;

/// The citation members of the vocabulary.
pub(crate) const DECLARED: [&str; 6] =
    ["kind", "start_index", "end_index", "url", "title", "description"];
/// The trajectory members of the vocabulary.
const DECLARED_OF_STEP: [&str; 5] = ["kind", "message", "tool_name", "tool_input", "tool_output"];
/// The longest passage that a footnote quotes, in characters.
const MAX_QUOTE_CHARS: usize = 120;

/// Reads a citation's members; undeclared ones, and those of another type, are kept in the part's `extra`.
pub(crate) fn set(part: &mut Part, citation: &Map<String, Value>) {
    let text = |key: &str| citation.get(key).and_then(Value::as_str).map(str::to_owned);
    let index = |key: &str| citation.get(key).and_then(Value::as_i64);
    let read = Citation {
        start_index: index("start_index"),
        end_index: index("end_index"),
        url: text("url"),
        title: text("title"),
        description: text("description"),
    };
    let known = object(&read);
    let further = citation.iter().filter(|(key, value)| {
        *key != "kind" && !value.is_null() && !known.contains_key(key.as_str())
    });
    let further: Map<_, _> = further.map(|(key, value)| (key.clone(), value.clone())).collect();
    part.metadata = Some(PartMetadata::Citation(read));
    keep(part, further);
}

/// Returns the key for the further members of a part's metadata, and the names that these cannot have.
fn kept_as(part: &Part) -> Option<(&'static str, &'static [&'static str])> {
    match part.metadata.as_ref()? {
        PartMetadata::Citation(_) => Some(("citation", &DECLARED)),
        PartMetadata::Trajectory(_) => Some(("trajectory", &DECLARED_OF_STEP)),
        PartMetadata::Other(_) => None,
    }
}

/// Returns the undeclared members of a trajectory.
pub(crate) fn further_of_step(step: &Map<String, Value>) -> Map<String, Value> {
    let further = step.iter().filter(|(key, _)| !DECLARED_OF_STEP.contains(&key.as_str()));
    further.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Keeps further members of a part's citation or trajectory.
pub(crate) fn keep(part: &mut Part, further: Map<String, Value>) {
    let Some((member, _)) = kept_as(part).filter(|_| !further.is_empty()) else { return };
    let further = Value::Object(further).to_string();
    let before = part.extra.as_ref().map_or("{}", Json::as_str);
    let is_object = splice::get(before, &[EXTENSION]).is_some_and(|it| it.starts_with('{'));
    let kept = match is_object {
        true => splice::set(before, &[EXTENSION, member], &further),
        false => splice::set(before, &[EXTENSION], &format!("{{\"{member}\":{further}}}")),
    };
    if let Some(kept) = kept.and_then(|kept| Json::parse(kept).ok()) {
        part.extra = Some(kept);
    }
}

/// Returns the further members of a part's citation or trajectory.
pub(crate) fn further(part: &Part) -> Map<String, Value> {
    let Some((member, _)) = kept_as(part) else { return Map::new() };
    let extra = part.extra.as_ref();
    let kept = extra.and_then(|extra| splice::get(extra.as_str(), &[EXTENSION, member]));
    match kept.and_then(|kept| serde_json::from_str(kept).ok()) {
        Some(Value::Object(further)) => further,
        _ => Map::new(),
    }
}

/// Returns the members of [`further`] that no declared member hides.
pub(crate) fn shown_further(part: &Part) -> Map<String, Value> {
    let declared = kept_as(part).map_or(&[][..], |(_, declared)| declared);
    let mut further = further(part);
    further.retain(|key, _| !declared.contains(&key.as_str()));
    further
}

/// Returns the part's `extra` without the further members of its citation or trajectory: `{}` if it has nothing else.
pub(crate) fn extra_without(part: &Part) -> Cow<'_, str> {
    let extra = part.extra.as_ref().map_or("{}", Json::as_str);
    let Some((member, _)) = kept_as(part).filter(|_| !further(part).is_empty()) else {
        return Cow::Borrowed(extra);
    };
    let rest = splice::remove(extra, &[EXTENSION, member]);
    let is_empty =
        splice::get(&rest, &[EXTENSION]).is_some_and(|ours| splice::members(ours).next().is_none());
    if is_empty { Cow::Owned(splice::remove(&rest, &[EXTENSION]).into_owned()) } else { rest }
}

/// Returns the present members of a citation.
pub(crate) fn object(citation: &Citation) -> Map<String, Value> {
    let Citation { start_index, end_index, url, title, description } = citation;
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let members = [
        ("start_index", start_index.map(Value::from)),
        ("end_index", end_index.map(Value::from)),
        ("url", text(url)),
        ("title", text(title)),
        ("description", text(description)),
    ];
    members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Returns a part's citation with all its members; `None` if the part has no citation.
pub(crate) fn whole(part: &Part) -> Option<Map<String, Value>> {
    let Some(PartMetadata::Citation(citation)) = &part.metadata else { return None };
    let mut whole = object(citation);
    for (key, value) in further(part) {
        whole.entry(key).or_insert(value);
    }
    Some(whole)
}

/// Returns a source as text: title, address, description, then the further members that are text or numbers. `None` if it names nothing.
pub(crate) fn in_words(citation: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| {
        let text = citation.get(key)?.as_str()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    let mut words: Vec<_> = ["title", "url", "description"].into_iter().filter_map(text).collect();
    for (key, value) in citation.iter().filter(|(key, _)| !DECLARED.contains(&key.as_str())) {
        match value {
            Value::String(text) => words.push(format!("{key}: {text}")),
            Value::Number(number) => words.push(format!("{key}: {number}")),
            _ => {}
        }
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// Returns the sources of a message's parts as one text, in order, each with the passage that it refers to. `None` without sources.
pub(crate) fn footnotes(parts: &[Part]) -> Option<String> {
    let mut notes = String::new();
    let mut count = 0;
    for part in parts {
        let Some(citation) = whole(part) else { continue };
        let Some(words) = in_words(&citation) else { continue };
        count += 1;
        let quote =
            quote(parts, part, &citation).map_or_else(String::new, |quote| format!("“{quote}”: "));
        // Writing to a string cannot fail.
        let _ = write!(notes, "\n[{count}] {quote}{words}");
    }
    (count > 0).then(|| format!("\n\nSources:{notes}"))
}

/// Returns the passage that a citation refers to: its range of the message's text, otherwise the text of its own part.
fn quote(parts: &[Part], part: &Part, citation: &Map<String, Value>) -> Option<String> {
    let index = |key: &str| {
        citation.get(key).and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok())
    };
    let passage: String = match (index("start_index"), index("end_index")) {
        (Some(start), Some(end)) if start < end => {
            let text = parts.iter().filter_map(Part::as_text).flat_map(str::chars);
            text.skip(start).take(end - start).collect()
        }
        (None, None) => part.as_text().unwrap_or_default().to_owned(),
        _ => return None,
    };
    let passage = passage.trim();
    if passage.is_empty() {
        return None;
    }
    Some(match passage.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", passage.get(..end).unwrap_or_default()),
        None => passage.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trilogue_domain::Content;

    use super::*;

    fn cited(mut part: Part, citation: &Value) -> Part {
        set(&mut part, citation.as_object().unwrap());
        part
    }

    #[test]
    fn further_members_are_kept_beside_what_a_part_has() {
        let citation =
            json!({ "kind": "citation", "title": "T", "url": 5, "score": 0.5, "x": null });
        let plain = cited(Part::text("a"), &citation);
        assert_eq!(extra_without(&plain), "{}");
        let extra = |text: &str| Some(Json::parse(text.to_owned()).unwrap());
        for (before, after) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"x_trilogue":{"b":1}}"#, r#"{"x_trilogue":{"b":1}}"#),
            (r#"{"x_trilogue":5}"#, "{}"),
        ] {
            let part = cited(Part { extra: extra(before), ..Part::text("a") }, &citation);
            assert_eq!(extra_without(&part), after);
            let expected = json!({ "title": "T", "url": 5, "score": 0.5 });
            assert_eq!(Value::Object(whole(&part).unwrap()), expected);
        }
        let uncited = Part { metadata: None, ..plain };
        assert!(further(&uncited).is_empty() && whole(&uncited).is_none());
    }

    #[test]
    fn footnotes_quote_the_passage_that_a_source_is_about() {
        let text = "According to a recent study, AI adoption has increased.";
        let parts = [
            cited(
                Part::text(text),
                &json!({ "start_index": 15, "end_index": 27, "title": "Report", "author": "A. B.", "score": 0.5 }),
            ),
            cited(
                Part::new("text/plain", Content::Empty),
                &json!({ "start_index": 9_999, "end_index": 10_000, "url": "https://a/" }),
            ),
            cited(Part::text("ä".repeat(200)), &json!({ "title": "Long" })),
            cited(Part::new("text/plain", Content::Empty), &json!({ "start_index": 1 })),
        ];
        let expected = format!(
            "\n\nSources:\n[1] “recent study”: Report; author: A. B.; score: 0.5\n[2] https://a/\n[3] “{}…”: Long",
            "ä".repeat(120)
        );
        assert_eq!(footnotes(&parts), Some(expected));
        assert_eq!(footnotes(&[Part::text("a")]), None);
    }
}
