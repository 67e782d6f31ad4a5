use super::ManifestMetadata;
use super::object::object;
use crate::json::member::{absent_or, defaulted, optional, required};
use crate::json::{Path, Violation};

object! {
    pub struct AgentManifest {
        /// Must be valid as a name in a role.
        name: String = required;
        description: String = optional;
        metadata: ManifestMetadata = defaulted;
        /// The MIME types or ranges that the agent reads; at least one.
        input_content_types: Vec<String> = content_types;
        /// The MIME types or ranges that the agent writes; at least one.
        output_content_types: Vec<String> = content_types;
    }
}

// === impl AgentManifest ===

impl AgentManifest {
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            metadata: ManifestMetadata::default(),
            input_content_types: any(),
            output_content_types: any(),
        }
    }
}

fn content_types(json: Option<&str>, at: &Path<'_>) -> Result<Vec<String>, Violation> {
    absent_or(json, at, any)
}

fn any() -> Vec<String> {
    vec!["*/*".to_owned()]
}
