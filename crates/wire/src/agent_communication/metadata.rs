use serde::Serialize;

use super::Json;
use super::object::object;
use crate::json::member::optional;
use crate::json::object::find_members;
use crate::json::{Path, Read, Violation, quoted, text};

/// The meaning of a part beyond its content. `kind` selects the variant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Metadata {
    Citation(CitationMetadata),
    /// A step of the agent on the way to its answer.
    Trajectory(TrajectoryMetadata),
    /// A kind that the protocol does not define, as a peer sent it.
    Other(Json),
}

object! {
    /// Attributes content to a source.
    /// The indexes count characters over the message's `text/*` parts, from 0; the range excludes its end.
    /// Unknown members, such as `author`, are kept; the official clients ignore them.
    #[serde(tag = "kind", rename = "citation")]
    pub open struct CitationMetadata: Default {
        start_index: Option<i64> = whole;
        end_index: Option<i64> = whole;
        url: Option<String> = optional;
        title: Option<String> = optional;
        description: Option<String> = optional;
    }
    finish without_kind;

    /// One step of the agent: a thought, or a tool with its input and output.
    /// Unknown members are kept; the official clients ignore them.
    #[serde(tag = "kind", rename = "trajectory")]
    pub open struct TrajectoryMetadata: Default {
        message: Option<String> = optional;
        tool_name: Option<String> = optional;
        tool_input: Option<Json> = json_object;
        tool_output: Option<Json> = json_object;
    }
    finish step_without_kind;
}

// === impl Metadata ===

impl Read for Metadata {
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation> {
        find_members!(json, at, { kind = "kind", } else _member => {});
        let carried = <Json as Read>::read(json, at)?;
        let kind_at = at.key("kind");
        match kind.map(text::decode) {
            Some(Some(kind)) if kind == "citation" => Read::read(json, at).map(Self::Citation),
            Some(Some(kind)) if kind == "trajectory" => Read::read(json, at).map(Self::Trajectory),
            _ if at.is_lenient() => Ok(Self::Other(carried)),
            Some(Some(kind)) => Err(kind_at.violation(format!(
                "must be \"citation\" or \"trajectory\", not {}",
                quoted(&kind)
            ))),
            Some(None) => {
                Err(kind_at.violation("must be the string \"citation\" or \"trajectory\""))
            }
            None => Err(kind_at.violation("is missing; it must be \"citation\" or \"trajectory\"")),
        }
    }
}

/// Removes `kind`, because the type already writes it.
fn without_kind(
    mut citation: CitationMetadata,
    _json: &str,
    _at: &Path<'_>,
) -> Result<CitationMetadata, Violation> {
    citation.extra.take("kind");
    Ok(citation)
}

fn step_without_kind(
    mut step: TrajectoryMetadata,
    _json: &str,
    _at: &Path<'_>,
) -> Result<TrajectoryMetadata, Violation> {
    step.extra.take("kind");
    Ok(step)
}

/// Reads a whole number, or a string of its digits, which the official server also accepts. The strict rules accept only a number.
fn whole(json: Option<&str>, at: &Path<'_>) -> Result<Option<i64>, Violation> {
    let Some(text) = json.and_then(text::decode) else { return optional(json, at) };
    if at.is_strict() {
        return Err(at.violation(format!("must be a whole number, not the text {}", quoted(&text))));
    }
    let digits = text.trim();
    let whole = digits
        .split_once('.')
        .filter(|(_, rest)| rest.bytes().all(|byte| byte == b'0'))
        .map_or(digits, |(whole, _)| whole);
    whole.parse().map(Some).map_err(|_| {
        at.violation(format!(
            "must be a whole number, or a string of its digits, not {}",
            quoted(&text)
        ))
    })
}

pub(super) fn json_object(json: Option<&str>, at: &Path<'_>) -> Result<Option<Json>, Violation> {
    match json {
        Some(json) if json != "null" && !json.starts_with('{') => {
            Err(at.violation("must be a JSON object"))
        }
        json => optional(json, at),
    }
}
