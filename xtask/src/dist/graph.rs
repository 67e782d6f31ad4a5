//! What the binary is built from: the crates and edges of `cargo tree`, with what the manifests and the lock file say of each.
//!
//! `cargo metadata` alone would name crates of features that nothing asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The name and the version of a crate. The lock file has one source for all.
type Key = (String, String);
/// Crates, and the crates that each needs.
type Edges = BTreeMap<Key, BTreeSet<Key>>;

/// The crates of a binary, without those of its tests.
#[derive(Debug)]
pub(super) struct Graph {
    root: Key,
    crates: BTreeMap<Key, Crate>,
}

/// A crate that the binary is built from.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    /// The SHA-256 of its source, for crates that are not of this repository.
    pub(super) checksum: Option<String>,
    pub(super) folder: PathBuf,
    /// Whether its code is in the binary. Others run while it is built.
    pub(super) is_linked: bool,
    dependencies: BTreeSet<Key>,
}

// === impl Graph ===

impl Graph {
    /// Reads the graph of a package of the workspace for a platform.
    pub(super) fn read(root: &Path, package: &str, target: &str) -> Result<Self> {
        let tree = |edges: &str| {
            let arguments = ["tree", "--locked", "--package", package, "--target", target];
            let form = ["--edges", edges, "--prefix", "depth", "--format", " {p}"];
            parse_tree(&output(root, &[&arguments[..], &form].concat())?)
        };
        let (key, built) = tree("no-dev")?;
        let (_, linked) = tree("normal,no-proc-macro")?;
        let arguments = ["metadata", "--format-version", "1", "--locked", "--filter-platform"];
        let metadata = output(root, &[&arguments[..], &[target]].concat())?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
        let checksums = checksums(&lock)?;

        let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
        let mut crates = BTreeMap::new();
        for package in packages {
            let mut member = Crate::parse(package).context("cargo metadata lacks a member")?;
            let key = (member.name.clone(), member.version.clone());
            let Some(dependencies) = built.get(&key) else { continue };
            member.dependencies.clone_from(dependencies);
            member.checksum = checksums.get(&key).cloned().flatten();
            member.is_linked = linked.contains_key(&key);
            crates.insert(key, member);
        }
        ensure!(crates.len() == built.len(), "cargo metadata lacks crates of cargo tree");
        Ok(Self { root: key, crates })
    }

    /// Returns the package of the binary.
    pub(super) fn root(&self) -> &Crate {
        &self.crates[&self.root]
    }

    /// Every crate, the root among them, by name and version.
    pub(super) fn crates(&self) -> impl Iterator<Item = &Crate> {
        self.crates.values()
    }

    /// Returns the crates that a crate needs at run time or to be built.
    pub(super) fn dependencies<'a>(&'a self, member: &'a Crate) -> impl Iterator<Item = &'a Crate> {
        member.dependencies.iter().filter_map(|key| self.crates.get(key))
    }
}

// === impl Crate ===

impl Crate {
    /// A package of `cargo metadata`.
    fn parse(package: &Value) -> Option<Self> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            version: package["version"].as_str()?.to_owned(),
            // Old manifests have a slash for a choice.
            licence: package["license"].as_str().map(|licence| licence.replace('/', " OR ")),
            checksum: None,
            folder: manifest.parent()?.to_owned(),
            is_linked: false,
            dependencies: BTreeSet::new(),
        })
    }
}

/// Returns cargo's output.
fn output(root: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        super::cargo(root).args(arguments).output().context("cargo could not be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The first crate of a tree and the edges in it. A line has its depth, a name and a version: `2 bytes v1.12.1`.
fn parse_tree(text: &str) -> Result<(Key, Edges)> {
    let mut edges = Edges::new();
    let mut path: Vec<Key> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(depth) = words.next().and_then(|word| word.parse().ok()) else { continue };
        let [name, version] = [words.next(), words.next()].map(Option::unwrap_or_default);
        let key = (name.to_owned(), version.trim_start_matches('v').to_owned());
        path.truncate(depth);
        if let Some(parent) = path.last() {
            edges.entry(parent.clone()).or_default().insert(key.clone());
        }
        edges.entry(key.clone()).or_default();
        path.push(key);
    }
    Ok((path.into_iter().next().context("cargo tree printed nothing")?, edges))
}

/// The checksum of each crate in a lock file, by name and version.
fn checksums(lock: &str) -> Result<BTreeMap<Key, Option<String>>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock cannot be read")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.context("Cargo.lock has no packages")?.iter().filter_map(|package| {
        let field = |name: &str| package.get(name)?.as_str().map(str::to_owned);
        Some(((field("name")?, field("version")?), field("checksum")))
    });
    Ok(packages.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_with_its_edges() {
        let text = "0 program v1.0.0 (/p)\n1 library v2.0.0\n2 bytes v1.0.0\n[build-dependencies]\n2 cc v1.1.0\n1 macros v0.1.0 (proc-macro)\n2 bytes v1.0.0 (*)\n";
        let (root, edges) = parse_tree(text).unwrap();
        assert_eq!(root, ("program".to_owned(), "1.0.0".to_owned()));
        let names = |name: &str| {
            let (_, needs) = edges.iter().find(|(key, _)| key.0 == name).unwrap();
            needs.iter().map(|key| &*key.0).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(edges.len(), 5);
        assert_eq!(names("program"), "library macros");
        assert_eq!(names("library"), "bytes cc");
        assert_eq!(names("macros"), "bytes");
        assert!(parse_tree("").is_err());
    }

    #[test]
    fn only_crates_of_others_have_a_checksum() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n[[package]]\nname = \"b\"\nversion = \"1.0.0\"\n";
        let found: Vec<_> = checksums(lock).unwrap().into_values().collect();
        assert_eq!(found, [Some("ab".to_owned()), None]);
    }
}
