//! The contents of every package of a release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::graph::Graph;
use super::platform::Platform;
use super::program::Program;
use super::{licences, sbom};

pub(super) const NAME: &str = "trilogue";
pub(super) const LICENCE: &str = "Apache-2.0";
/// The packages' description, in one line.
pub(super) const SUMMARY: &str =
    "A server for AI agents on your own machine, for every protocol with the acronym ACP";
/// The same at length.
pub(super) const DESCRIPTION: &str = "You start an agent once, and your editor, your terminal and your programs use it together. Every conversation is kept.";

#[derive(Debug)]
pub(super) struct Release {
    root: PathBuf,
    pub(super) platform: Platform,
    pub(super) program: Program,
    /// The version of the package, as Cargo writes it.
    pub(super) version: String,
    /// The time of everything in packages, in seconds since 1970.
    pub(super) seconds: u64,
    pub(super) sbom: Vec<u8>,
    /// The licences of what is linked into the binary.
    pub(super) licences: String,
}

// === impl Release ===

impl Release {
    pub(super) fn new(root: &Path, platform: Platform, program: Program) -> Result<Self> {
        let graph = Graph::read(root, NAME, &platform.target)?;
        let version = graph.root().version.clone();
        let printed = program.output(&["--version"])?;
        let printed = String::from_utf8_lossy(&printed);
        ensure!(
            printed.split_whitespace().nth(1) == Some(&*version),
            "the binary is {}, but this tree is version {version}: build the binary again",
            printed.trim()
        );
        let seconds = seconds(root)?;
        let sbom = sbom::render(&graph, &platform, &program, seconds)?;
        let licences = licences::render(&graph)?;
        Ok(Self { root: root.to_owned(), platform, program, version, seconds, sbom, licences })
    }

    /// A file of the repository.
    pub(super) fn text(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| path.to_owned())
    }

    /// The name of a file of the release that no ecosystem names.
    pub(super) fn file_name(&self, extension: &str) -> String {
        format!("{NAME}-{}-{}.{extension}", self.version, self.platform.target)
    }
}

/// Returns `SOURCE_DATE_EPOCH`, otherwise the time of the commit.
fn seconds(root: &Path) -> Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.parse().context("SOURCE_DATE_EPOCH is not a number of seconds");
    }
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root)
        .output()
        .context("git could not be started: set SOURCE_DATE_EPOCH")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().context("the time of the last commit was not found: set SOURCE_DATE_EPOCH")
}
