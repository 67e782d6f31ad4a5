use serde::Serialize;

use super::Json;

/// What a part means beyond its content, told apart by `kind`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum Metadata {
    /// Where a statement comes from.
    Citation(CitationMetadata),
    /// How the agent got there.
    Trajectory(TrajectoryMetadata),
    /// Something that a peer sent and the protocol has no word for, as it came.
    Other(Json),
}

/// Attributes content to a source.
/// The indexes count characters over the message's `text/*` parts, from 0; the end is not part of the range.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(tag = "kind", rename = "citation")]
pub struct CitationMetadata {
    /// First character of the range.
    pub start_index: Option<i64>,
    /// First character after the range.
    pub end_index: Option<i64>,
    /// The source's address.
    pub url: Option<String>,
    /// The source's title.
    pub title: Option<String>,
    /// A description or snippet.
    pub description: Option<String>,
}

/// One step of the agent: a thought, or a tool with its input and output.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(tag = "kind", rename = "trajectory")]
pub struct TrajectoryMetadata {
    /// Reasoning in words.
    pub message: Option<String>,
    /// The tool's name.
    pub tool_name: Option<String>,
    /// What the tool was given: a JSON object.
    pub tool_input: Option<Json>,
    /// What the tool gave back: a JSON object.
    pub tool_output: Option<Json>,
}
