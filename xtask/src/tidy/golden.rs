//! Documents that the code renders: they must equal what it renders now.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

/// A generated document: its path, and the function that renders it.
type Golden = (&'static str, fn() -> String);

/// The generated documents.
const GOLDEN: &[Golden] = &[
    ("docs/reference/configuration.md", trilogue::config::reference),
    ("docs/reference/fidelity.md", trilogue_mapping::fidelity::page),
    ("docs/reference/metrics.md", trilogue_gateway::metric_names::page),
    ("docs/reference/openapi/native.json", trilogue_gateway::openapi_document),
    (
        "docs/reference/schema/agent-client-message-ids.json",
        trilogue_wire::agent_client::message_id_schema,
    ),
    (
        "docs/reference/schema/agent-client-served.json",
        trilogue_wire::agent_client::served_document,
    ),
];

/// Writes every generated document.
pub(super) fn bless(root: &Path) -> Result<()> {
    write(root, GOLDEN)
}

/// Finds each generated document that differs from the code's rendering.
pub(super) fn check(root: &Path) -> Vec<Finding> {
    compare(root, GOLDEN)
}

fn write(root: &Path, golden: &[Golden]) -> Result<()> {
    for (path, render) in golden {
        let file = root.join(path);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&file, render()).with_context(|| format!("{path} cannot be written"))?;
    }
    Ok(())
}

fn compare(root: &Path, golden: &[Golden]) -> Vec<Finding> {
    let differs = |(path, render): &&Golden| {
        fs::read_to_string(root.join(path)).ok().is_none_or(|text| text != render())
    };
    let message =
        "is not what the code renders: run `cargo xtask tidy --bless` and look at the change";
    golden.iter().filter(differs).map(|(path, _)| Finding::new(*path, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_differs_is_found_until_it_is_blessed() {
        let root = tempfile::tempdir().unwrap();
        let golden: &[Golden] = &[("docs/a.md", || "rendered\n".to_owned())];
        assert_eq!(compare(root.path(), golden).len(), 1);
        write(root.path(), golden).unwrap();
        assert_eq!(compare(root.path(), golden), Vec::new());
        fs::write(root.path().join("docs/a.md"), "edited\n").unwrap();
        assert_eq!(compare(root.path(), golden).len(), 1);
    }
}
