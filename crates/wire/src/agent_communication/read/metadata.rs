use super::super::{CitationMetadata, Json, Metadata, TrajectoryMetadata};
use super::given::Given;
use super::leaf::{Text, Whole};
use super::members::{Members, object};
use super::raw::Raw;
use super::{At, Read, Violation, quoted};

// === impl Metadata ===

impl Read for Metadata {
    type Draft = Raw;
    fn finish(raw: Raw, at: &At<'_>) -> Result<Self, Violation> {
        let mut members: Members = match serde_json::from_slice(raw.bytes()) {
            Ok(members) => members,
            Err(error) => return Err(super::locate::locate::<Members>(raw.bytes(), &error, at)),
        };
        let kind_at = at.key("kind");
        let kind = match members.remove("kind") {
            Some(kind) => serde_json::from_str::<String>(kind.0.as_str()).ok(),
            None if at.is_peer() => None,
            None => {
                return Err(
                    kind_at.violation("is missing; it must be \"citation\" or \"trajectory\"")
                );
            }
        };
        match kind.as_deref() {
            Some("citation") => citation(members, at).map(Self::Citation),
            Some("trajectory") => trajectory(members, at).map(Self::Trajectory),
            _ if at.is_peer() => Ok(Self::Other(raw.0)),
            Some(kind) => Err(kind_at.violation(format!(
                "must be \"citation\" or \"trajectory\", not {}",
                quoted(kind)
            ))),
            None => Err(kind_at.violation("must be the string \"citation\" or \"trajectory\"")),
        }
    }
}

fn citation(mut members: Members, at: &At<'_>) -> Result<CitationMetadata, Violation> {
    Ok(CitationMetadata {
        start_index: members.take::<Whole>("start_index", at)?.map(|whole| whole.0).optional(),
        end_index: members.take::<Whole>("end_index", at)?.map(|whole| whole.0).optional(),
        url: text(&mut members, "url", at)?,
        title: text(&mut members, "title", at)?,
        description: text(&mut members, "description", at)?,
    })
}

fn trajectory(mut members: Members, at: &At<'_>) -> Result<TrajectoryMetadata, Violation> {
    Ok(TrajectoryMetadata {
        message: text(&mut members, "message", at)?,
        tool_name: text(&mut members, "tool_name", at)?,
        tool_input: tool_value(&mut members, "tool_input", at)?,
        tool_output: tool_value(&mut members, "tool_output", at)?,
    })
}

pub(super) fn text(
    members: &mut Members,
    name: &str,
    at: &At<'_>,
) -> Result<Option<String>, Violation> {
    Ok(members.take::<Text>(name, at)?.map(|text| text.0).optional())
}

fn tool_value(members: &mut Members, name: &str, at: &At<'_>) -> Result<Option<Json>, Violation> {
    match members.take::<Raw>(name, at)? {
        Given::Value(raw) => object(raw, &at.key(name)).map(Some),
        Given::Absent | Given::Null => Ok(None),
    }
}
