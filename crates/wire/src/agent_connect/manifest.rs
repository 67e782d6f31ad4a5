use serde::Deserialize;
use serde_json::Value;

use super::{AgentMetadata, AgentRef, Descriptor, Json};
use crate::json::{Violation, decode};

/// The names of the extension of an agent record that contains the specs, the newer one first.
const EXTENSIONS: [&str; 2] = [
    "schema.oasf.agntcy.org/features/runtime/manifest",
    "oasf.agntcy.org/feature/runtime/manifest",
];

/// A file that describes an agent: a descriptor, a manifest around one, or an agent record with the manifest as an extension.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// The descriptor as its author wrote it.
    pub written: Json,
    /// The parsed descriptor.
    pub descriptor: Descriptor,
}

/// The members that distinguish the three forms.
#[derive(Deserialize)]
struct Forms {
    metadata: Option<Json>,
    specs: Option<Json>,
    deployment: Option<Json>,
    deployments: Option<Json>,
    dependencies: Option<Json>,
    extensions: Option<Vec<Extension>>,
}

#[derive(Deserialize)]
struct Extension {
    #[serde(default)]
    name: String,
    data: Option<Runtime>,
}

#[derive(Deserialize)]
struct Runtime {
    acp: Option<Json>,
}

/// The members of an agent record that a descriptor needs.
#[derive(Deserialize)]
struct Record {
    name: String,
    version: String,
    description: Option<String>,
    locators: Option<Vec<Locator>>,
}

#[derive(Deserialize)]
struct Locator {
    url: Option<String>,
}

// === impl Manifest ===

impl Manifest {
    /// Reads a file. Does not check the descriptor's rules: [`Descriptor::check`] does that.
    /// Fails if the file has none of the three forms, or has a wrong shape.
    pub fn read(file: &[u8]) -> Result<Self, Violation> {
        let forms: Forms = decode(file)?;
        let Some(specs) = forms.specs else {
            let record = decode::<Record>(file);
            return Self::of_record(forms.extensions.unwrap_or_default(), record);
        };
        let metadata = forms.metadata.as_ref().map_or("null", Json::as_str);
        let beside = [&forms.deployment, &forms.deployments, &forms.dependencies];
        let is_manifest = beside.into_iter().any(Option::is_some);
        let text = if is_manifest {
            format!("{{\"metadata\":{metadata},\"specs\":{}}}", specs.as_str())
        } else {
            String::from_utf8_lossy(file).into_owned()
        };
        let descriptor = decode(text.as_bytes())?;
        Ok(Self { written: parse(text)?, descriptor })
    }

    fn of_record(
        mut extensions: Vec<Extension>,
        record: Result<Record, Violation>,
    ) -> Result<Self, Violation> {
        if extensions.is_empty() {
            let forms = "has neither `specs` (a descriptor or a manifest) nor `extensions` (an agent record)";
            return Err(Violation::new("", forms));
        }
        let named = EXTENSIONS
            .iter()
            .find_map(|name| extensions.iter().position(|extension| extension.name == *name));
        let place = named.unwrap_or_default();
        let data = extensions.swap_remove(place).data;
        let at = format!("/extensions/{place}/data");
        let runtime = data.ok_or_else(|| Violation::new(at.clone(), "is missing"))?;
        let specs = runtime.acp.ok_or_else(|| Violation::new(at + "/acp", "is missing"))?;
        let record = record?;
        let url = record.locators.unwrap_or_default().into_iter().find_map(|locator| locator.url);
        let metadata = AgentMetadata {
            reference: AgentRef { name: record.name, version: record.version, url },
            description: record.description.unwrap_or_default(),
        };
        let metadata = serde_json::to_value(metadata).unwrap_or(Value::Null);
        let text = format!("{{\"metadata\":{metadata},\"specs\":{}}}", specs.as_str());
        let descriptor = decode(text.as_bytes())?;
        Ok(Self { written: parse(text)?, descriptor })
    }
}

fn parse(text: String) -> Result<Json, Violation> {
    Json::parse(text).map_err(|error| Violation::new("", error.to_string()))
}
