//! Checks the manifest of every crate.

use super::Finding;
use super::tree::Tree;

/// Fields that every crate takes from the workspace.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Dependencies that a crate asks for with features of its own choice.
///
/// An author's agent depends on the SDK alone, and a workspace's features can only be added to.
const OWN_FEATURES: [(&str, &str); 2] =
    [("crates/sdk/Cargo.toml", "schemars"), ("crates/sdk/Cargo.toml", "tokio")];

/// Every manifest that leaves something out.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_member = |path: &str| path.ends_with("/Cargo.toml");
    for file in tree.files.iter().filter(|file| is_member(&file.path)) {
        let mut find = |message: String| findings.push(Finding::new(&*file.path, message));
        let manifest: toml::Table = match file.text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                find(format!("cannot be read: {error}"));
                continue;
            }
        };
        // A package that is a workspace of its own shares nothing with the others.
        if manifest.contains_key("workspace") {
            continue;
        }
        let inherits = |table: &str, field: &str| {
            let table = manifest.get(table).and_then(|table| table.get(field));
            table.is_some_and(|field| {
                field.as_bool() == Some(true)
                    || field.get("workspace").and_then(toml::Value::as_bool) == Some(true)
            })
        };
        if !inherits("lints", "workspace") {
            find("does not take the workspace's lints, which ask for documented items".to_owned());
        }
        for field in INHERITED.into_iter().filter(|field| !inherits("package", field)) {
            find(format!("does not take {field} from the workspace"));
        }
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = manifest.get(table).and_then(toml::Value::as_table);
            for (name, value) in dependencies.into_iter().flatten() {
                let is_own = OWN_FEATURES.contains(&(&*file.path, name));
                if value.get("workspace").is_none() && !is_own {
                    find(format!("names a version of {name} itself: it belongs to the workspace"));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [lints]\nworkspace = true\n[dependencies]\nbytes.workspace = true\n";

    fn finding_count(manifest: &str) -> usize {
        check(&Tree::of(&[("crates/x/Cargo.toml", manifest)])).len()
    }

    #[test]
    fn a_workspace_of_its_own_shares_nothing() {
        assert_eq!(finding_count("[package]\nname = \"x\"\nversion = \"1.0.0\"\n[workspace]\n"), 0);
        assert_ne!(finding_count("[package]\nname = \"x\"\nversion = \"1.0.0\"\n"), 0);
    }

    #[test]
    fn what_a_manifest_leaves_out_is_found() {
        assert_eq!(finding_count(GOOD), 0);
        assert_eq!(finding_count(&GOOD.replace("[lints]\nworkspace = true\n", "")), 1);
        assert_eq!(finding_count(&GOOD.replace("license.workspace = true\n", "")), 1);
        assert_eq!(finding_count(&GOOD.replace("bytes.workspace = true", "bytes = \"1\"")), 1);
        assert_eq!(finding_count("not toml"), 1);
    }
}
