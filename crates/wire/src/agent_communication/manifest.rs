use serde::Serialize;

use super::ManifestMetadata;

/// What an agent says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AgentManifest {
    /// Its name, which fits into a role.
    pub name: String,
    /// What it does; empty where it does not say.
    pub description: String,
    /// More about it.
    pub metadata: ManifestMetadata,
    /// MIME types or ranges that it takes; at least one.
    pub input_content_types: Vec<String>,
    /// MIME types or ranges that it gives; at least one.
    pub output_content_types: Vec<String>,
}

// === impl AgentManifest ===

impl AgentManifest {
    /// An agent that takes and gives everything.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            metadata: ManifestMetadata::default(),
            input_content_types: any(),
            output_content_types: any(),
        }
    }

    /// Writes the manifest as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::splice::json(out, self);
    }
}

pub(super) fn any() -> Vec<String> {
    vec!["*/*".to_owned()]
}
