//! The tidy checks. Each examines the tree and reports its findings; none changes a file, except that `--bless` writes generated documents.

mod arrows;
mod circles;
mod cited_tests;
mod documents;
mod golden;
mod imports;
mod layers;
mod length;
mod manifests;
mod names;
mod prose;
mod rules;
mod scan;
mod tree;
mod words;

use std::path::Path;

use anyhow::Result;

use tree::Tree;

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Finding {
    /// Where: a path, with a line where there is one.
    place: String,
    /// The problem and the fix.
    message: String,
    /// Whether the check fails by it.
    fatal: bool,
}

// === impl Finding ===

impl Finding {
    fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), fatal: true }
    }

    fn warning(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { fatal: false, ..Self::new(place, message) }
    }
}

/// Runs every check and prints the findings. Returns whether the tree is tidy.
pub(crate) fn run(root: &Path, bless: bool) -> Result<bool> {
    if bless {
        golden::bless(root)?;
        words::bless(root)?;
    }
    let tree = Tree::read(root)?;
    let mut findings = arrows::check(&arrows::packages(root)?);
    findings.extend(manifests::check(&tree));
    findings.extend(length::check(&tree));
    findings.extend(rules::check(&tree));
    findings.extend(names::check(&tree));
    findings.extend(circles::check(&tree));
    findings.extend(layers::check(&tree));
    findings.extend(documents::check(&tree));
    findings.extend(cited_tests::check(&tree));
    findings.extend(prose::check(&tree));
    findings.extend(words::check(&tree));
    findings.extend(golden::check(root));
    for finding in &findings {
        let kind = if finding.fatal { "error" } else { "warning" };
        crate::say(&format!("{kind}: {}: {}", finding.place, finding.message));
    }
    let fatal = findings.iter().filter(|finding| finding.fatal).count();
    let warnings = findings.len() - fatal;
    crate::say(&format!("tidy: {} files, {fatal} errors, {warnings} warnings", tree.files.len()));
    Ok(fatal == 0)
}
