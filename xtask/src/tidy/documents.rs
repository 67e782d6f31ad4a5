//! Checks that the documents have the required content, and that their links work.

use super::Finding;
use super::tree::{File, Tree};

/// The page with the code map.
const MAP: &str = "docs/ARCHITECTURE.md";
/// Files that the repository must have.
const REQUIRED: [&str; 5] = [MAP, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Everything that is missing or leads nowhere.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in REQUIRED.into_iter().filter(|path| tree.get(path).is_none()) {
        findings.push(Finding::new(path, "is missing"));
    }
    if let Some(map) = tree.get(MAP) {
        for package in members(tree) {
            if !map.text.contains(&format!("`{package}`")) {
                findings.push(Finding::new(MAP, format!("the code map does not name `{package}`")));
            }
        }
    }
    let changes = tree.get("CHANGELOG.md");
    if changes.is_some_and(|changes| !changes.text.contains("## [Unreleased]")) {
        findings.push(Finding::new("CHANGELOG.md", "has no section [Unreleased]"));
    }
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, target) in links(&file.text) {
            if let Some(why) = broken(tree, file, &target) {
                let place = format!("{}:{number}", file.path);
                findings.push(Finding::new(place, format!("the link to {target} {why}")));
            }
        }
    }
    findings
}

/// The folders of the workspace's crates.
fn members(tree: &Tree) -> Vec<&str> {
    tree.files.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect()
}

/// The targets of a document's links, with their lines. Code blocks have none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let mut rest = if in_code { "" } else { line };
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else { break };
            links.push((index + 1, target.to_owned()));
            rest = after;
        }
    }
    links
}

/// Why a link leads nowhere. Only links within the repository are looked at.
fn broken(tree: &Tree, from: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let is_folder = path.ends_with('/');
    let path = if path.is_empty() { from.path.clone() } else { resolve(&from.path, path)? };
    let below = format!("{path}/");
    let Some(file) = tree.get(&path) else {
        // A file of a kind that is not read here is taken as it is.
        let known = [".md", ".rs", ".toml"].iter().any(|ending| path.ends_with(ending));
        let is_there = tree.files.iter().any(|file| file.path.starts_with(&below));
        let is_lost = known || (is_folder && !is_there);
        return is_lost.then(|| "leads to no file".to_owned());
    };
    let is_lost = !anchor.is_empty() && !anchors(&file.text).any(|each| each == anchor);
    is_lost.then(|| "leads to no heading".to_owned())
}

/// A relative path from a document; `None` when it leaves the repository, which is for the reader to judge.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a document's headings, as they are made from their words.
fn anchors(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_messages(files: &[(&str, &str)]) -> Vec<String> {
        let good = [
            (MAP, "`crates/x`"),
            ("README.md", ""),
            ("CHANGELOG.md", "## [Unreleased]"),
            ("CONTRIBUTING.md", ""),
            ("SECURITY.md", ""),
            ("crates/x/Cargo.toml", ""),
        ];
        let kept = good.iter().filter(|(path, _)| !files.iter().any(|(other, _)| other == path));
        let all: Vec<(&str, &str)> = kept.chain(files).copied().collect();
        check(&Tree::of(&all)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn missing_crates_and_sections_are_found() {
        assert_eq!(finding_messages(&[]), Vec::<String>::new());
        assert!(finding_messages(&[("crates/y/Cargo.toml", "")])[0].contains("crates/y"));
        assert!(finding_messages(&[("CHANGELOG.md", "# Changes")])[0].contains("Unreleased"));
        let nothing = check(&Tree::of(&[]));
        assert_eq!(nothing.len(), REQUIRED.len());
    }

    #[test]
    fn broken_links_are_found() {
        let page = |text| ("docs/a.md", text);
        assert_eq!(
            finding_messages(&[page("[a](../README.md) [b](https://x.y/z) [c](#top)\n# Top")])
                .len(),
            0
        );
        assert_eq!(finding_messages(&[page("[a](gone.md)")]).len(), 1);
        assert_eq!(finding_messages(&[page("[a](#gone)\n# Top")]).len(), 1);
        assert_eq!(finding_messages(&[page("[a](gone/)")]).len(), 1);
        assert_eq!(finding_messages(&[page("```\n[a](gone.md)\n```")]).len(), 0);
    }
}
