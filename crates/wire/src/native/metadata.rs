use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::Json;
use crate::json::record::record;

/// The meaning of a part beyond its content. `kind` selects the variant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PartMetadata {
    /// The source of a statement.
    Citation(Citation),
    /// A step of the agent on the way to its answer.
    Trajectory(Trajectory),
    /// Other metadata.
    Other(OtherMetadata),
}

record! {
    /// Attributes a range of the message's text to a source. Indexes count characters.
    pub written struct Citation: Default {
        /// The first character of the range.
        start_index?: i64,
        /// The first character after the range.
        end_index?: i64,
        /// The source's URL.
        url?: String,
        /// The source's title.
        title?: String,
        /// A description or snippet of the source.
        description?: String,
    }

    /// One step of the agent: a thought, or a tool with its input and output.
    pub written struct Trajectory: Default {
        /// Reasoning as text.
        message?: String,
        /// The tool's name.
        tool_name?: String,
        /// The input of the tool.
        tool_input?: Json,
        /// The output of the tool.
        tool_output?: Json,
    }

    /// Metadata that this API does not define.
    pub written struct OtherMetadata {
        /// The unchanged metadata.
        value: Json,
    }
}

/// The members of all kinds, for reading.
/// One flat object instead of a tagged one keeps JSON members as they were written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    kind: Kind,
    start_index: Option<i64>,
    end_index: Option<i64>,
    url: Option<String>,
    title: Option<String>,
    description: Option<String>,
    message: Option<String>,
    tool_name: Option<String>,
    #[serde(default, deserialize_with = "crate::json::present")]
    tool_input: Option<Json>,
    #[serde(default, deserialize_with = "crate::json::present")]
    tool_output: Option<Json>,
    #[serde(default, deserialize_with = "crate::json::present")]
    value: Option<Json>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Citation,
    Trajectory,
    Other,
}

// === impl Kind ===

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Citation => "citation",
            Self::Trajectory => "trajectory",
            Self::Other => "other",
        }
    }
}

// === impl PartMetadata ===

impl<'de> Deserialize<'de> for PartMetadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::try_from(Members::deserialize(from)?).map_err(de::Error::custom)
    }
}

impl TryFrom<Members> for PartMetadata {
    type Error = String;

    fn try_from(members: Members) -> Result<Self, String> {
        let citation = members.start_index.is_some()
            || members.end_index.is_some()
            || members.url.is_some()
            || members.title.is_some()
            || members.description.is_some();
        let trajectory = members.message.is_some()
            || members.tool_name.is_some()
            || members.tool_input.is_some()
            || members.tool_output.is_some();
        let other = members.value.is_some();
        let foreign = match members.kind {
            Kind::Citation => trajectory || other,
            Kind::Trajectory => citation || other,
            Kind::Other => citation || trajectory,
        };
        if foreign {
            return Err(format!(
                "the metadata of kind '{}' has members of another kind",
                members.kind.as_str()
            ));
        }
        Ok(match members.kind {
            Kind::Citation => Self::Citation(Citation {
                start_index: members.start_index,
                end_index: members.end_index,
                url: members.url,
                title: members.title,
                description: members.description,
            }),
            Kind::Trajectory => Self::Trajectory(Trajectory {
                message: members.message,
                tool_name: members.tool_name,
                tool_input: members.tool_input,
                tool_output: members.tool_output,
            }),
            Kind::Other => Self::Other(OtherMetadata {
                value: members.value.ok_or("the metadata of kind Other lacks 'value'")?,
            }),
        })
    }
}
