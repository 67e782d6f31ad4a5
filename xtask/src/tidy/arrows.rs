//! Which crate may depend on which.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Finding;

/// The workspace's crates, each with those it may depend on. Tests (development dependencies) are
/// free.
const ARROWS: &[(&str, &[&str])] = &[
    ("trilogue-wire", &[]),
    ("trilogue-domain", &[]),
    ("trilogue-mapping", &["trilogue-wire", "trilogue-domain"]),
    ("trilogue-store", &["trilogue-domain"]),
    ("trilogue-egress", &[]),
    ("trilogue-sandbox", &[]),
    ("trilogue-broker", &["trilogue-domain", "trilogue-egress", "trilogue-wire"]),
    ("trilogue-inspector", &[]),
    // Only the vocabulary by default; the others come with the features `peer`, `stdio` and `client`.
    ("trilogue-sdk", &["trilogue-domain", "trilogue-wire", "trilogue-mapping", "trilogue-egress"]),
    ("trilogue-runtime", &["trilogue-domain", "trilogue-store"]),
    (
        "trilogue-backends",
        &[
            "trilogue-domain",
            "trilogue-wire",
            "trilogue-mapping",
            "trilogue-broker",
            "trilogue-sandbox",
            "trilogue-sdk",
            "trilogue-egress",
            "trilogue-runtime",
        ],
    ),
    (
        "trilogue-gateway",
        &[
            "trilogue-domain",
            "trilogue-wire",
            "trilogue-mapping",
            "trilogue-egress",
            "trilogue-inspector",
            "trilogue-runtime",
            "trilogue-store",
        ],
    ),
];

/// Crates that compose or test the others and may depend on any of them.
const FREE: &[&str] =
    &["trilogue", "trilogue-testkit", "trilogue-bench", "trilogue-examples", "xtask"];

/// Crates of others that only some of ours may name, and why.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("rusqlite", &["trilogue-store", "trilogue-bench"], "only the store knows SQL"),
    (
        "reqwest",
        &["trilogue-egress", "trilogue-store"],
        "all outbound HTTP goes through egress, but for the store's own bucket",
    ),
    ("object_store", &["trilogue-store"], "only the store knows where content is"),
    (
        "axum",
        &["trilogue-gateway", "trilogue-testkit", "trilogue-bench"],
        "only the gateway serves HTTP",
    ),
    ("clap", &["trilogue"], "only the program has a command line"),
    ("anstream", &["trilogue"], "only the program prints"),
];

/// Crates of ours that do no IO, and what they may therefore not name.
const NO_IO: &[&str] = &["trilogue-wire", "trilogue-domain", "trilogue-mapping"];
/// Crates of others that do IO or run tasks.
const IO: &[&str] =
    &["tokio", "tokio-util", "hyper", "hyper-util", "axum", "reqwest", "rusqlite", "rustix"];

/// One crate and its dependencies outside of tests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) dependencies: Vec<String>,
}

/// The workspace as cargo sees it.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .context("cargo metadata could not be started")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    parse(&serde_json::from_slice(&output.stdout)?)
}

fn parse(metadata: &Value) -> Result<Vec<Package>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let dependencies = |package: &Value| {
        let all = package["dependencies"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|each| each["kind"].as_str() != Some("dev")).map(name).collect()
    };
    Ok(packages
        .iter()
        .map(|package| Package { name: name(package), dependencies: dependencies(package) })
        .collect())
}

/// Every arrow that is not in the table.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    for package in packages {
        let name = package.name.as_str();
        let allowed = ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to);
        if allowed.is_none() && !FREE.contains(&name) {
            findings.push(Finding::new(name, "this crate is not in the table of arrows"));
        }
        for dependency in package.dependencies.iter().map(String::as_str) {
            let refused = allowed.is_some_and(|allowed| !allowed.contains(&dependency));
            if ours.contains(&dependency) && refused {
                findings.push(Finding::new(name, format!("may not depend on {dependency}")));
            }
            if NO_IO.contains(&name) && IO.contains(&dependency) {
                let message = format!("does no IO, so it may not depend on {dependency}");
                findings.push(Finding::new(name, message));
            }
            let reserved = RESERVED.iter().find(|(crate_name, ..)| *crate_name == dependency);
            if let Some((_, _, why)) = reserved.filter(|(_, by, _)| !by.contains(&name)) {
                findings.push(Finding::new(name, format!("may not depend on {dependency}: {why}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_messages(name: &str, dependencies: &[&str]) -> Vec<String> {
        let package = |name: &str, dependencies: &[&str]| Package {
            name: name.to_owned(),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
        };
        let mut packages = vec![package(name, dependencies)];
        packages.extend(
            ARROWS.iter().filter(|(other, _)| *other != name).map(|(name, _)| package(name, &[])),
        );
        check(&packages).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_arrow_outside_the_table_is_found() {
        assert_eq!(
            finding_messages("trilogue-runtime", &["trilogue-store", "tokio"]),
            Vec::<String>::new()
        );
        assert_eq!(
            finding_messages("trilogue-runtime", &["trilogue-wire"]),
            ["may not depend on trilogue-wire"]
        );
        assert_eq!(finding_messages("trilogue-new", &[]).len(), 1);
        assert_eq!(finding_messages("trilogue", &["trilogue-wire", "clap"]), Vec::<String>::new());
    }

    #[test]
    fn io_and_reserved_crates_are_found_where_they_do_not_belong() {
        assert_eq!(finding_messages("trilogue-domain", &["tokio"]).len(), 1);
        assert_eq!(finding_messages("trilogue-runtime", &["rusqlite"]).len(), 1);
        assert_eq!(finding_messages("trilogue-gateway", &["reqwest"]).len(), 1);
    }

    #[test]
    fn development_dependencies_are_free() {
        let metadata = serde_json::json!({"packages": [{"name": "trilogue-wire", "dependencies": [
            {"name": "trilogue-testkit", "kind": "dev"},
            {"name": "bytes", "kind": null},
        ]}]});
        let packages = parse(&metadata).unwrap();
        assert_eq!(packages[0].dependencies, ["bytes"]);
    }
}
