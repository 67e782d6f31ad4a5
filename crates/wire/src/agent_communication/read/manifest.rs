use serde::Deserialize;

use super::super::{AgentManifest, ManifestMetadata, manifest};
use super::given::Given;
use super::leaf::{List, Object, Text};
use super::{At, Read, Violation};

/// A manifest as it was sent.
#[derive(Debug, Deserialize)]
pub struct Draft {
    #[serde(default)]
    name: Given<Text>,
    #[serde(default)]
    description: Given<Text>,
    #[serde(default)]
    metadata: Given<<ManifestMetadata as Read>::Draft>,
    #[serde(default)]
    input_content_types: Given<List<Text>>,
    #[serde(default)]
    output_content_types: Given<List<Text>>,
}

// === impl AgentManifest ===

impl Read for AgentManifest {
    type Draft = Object<Draft>;
    fn finish(Object(draft): Object<Draft>, at: &At<'_>) -> Result<Self, Violation> {
        let metadata = at.key("metadata");
        let types = |given: Given<List<Text>>, name| -> Result<Vec<String>, Violation> {
            let list = given.unless_absent(&at.key(name))?;
            Ok(list.map_or_else(manifest::any, strings))
        };
        Ok(Self {
            name: draft.name.required(&at.key("name"))?.0,
            description: draft.description.optional().map(|text| text.0).unwrap_or_default(),
            metadata: match draft.metadata.unless_absent(&metadata)? {
                Some(members) => ManifestMetadata::finish(members, &metadata)?,
                None => ManifestMetadata::default(),
            },
            input_content_types: types(draft.input_content_types, "input_content_types")?,
            output_content_types: types(draft.output_content_types, "output_content_types")?,
        })
    }
}

pub(super) fn strings(list: List<Text>) -> Vec<String> {
    list.0.into_iter().map(|text| text.0).collect()
}
