//! Import circles: files of one crate that reach each other through their imports.

use std::collections::BTreeMap;

use super::Finding;
use super::imports::{self, Import};
use super::tree::Tree;

/// The most files that may import each other in a circle. A type and the modules of its folder do so by nature.
const MAX_FILES: usize = 5;

/// One finding for each circle that is too large.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    largest_first(tree)
        .into_iter()
        .filter(|circle| circle.len() > MAX_FILES)
        .map(|circle| {
            let message = format!(
                "{} files import each other in a circle, at most {MAX_FILES} may: {}",
                circle.len(),
                circle.join(", ")
            );
            Finding::new(circle.first().copied().unwrap_or_default(), message)
        })
        .collect()
}

/// The circles of every crate: files in order of their paths, the largest circle first.
fn largest_first(tree: &Tree) -> Vec<Vec<&str>> {
    let sources = imports::of(tree);
    let mut packages: BTreeMap<&str, Vec<(&str, Vec<Import>)>> = BTreeMap::new();
    for source in sources {
        packages.entry(source.root).or_default().push((source.path, source.imports));
    }
    let mut circles: Vec<Vec<&str>> =
        packages.values().flat_map(|files| circles_of(files)).collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// The strongly connected components of more than one file.
fn circles_of<'a>(files: &[(&'a str, Vec<Import>)]) -> Vec<Vec<&'a str>> {
    let edges: Vec<Vec<usize>> = imports::edges(files);
    let mut reversed = vec![Vec::new(); files.len()];
    for (from, targets) in edges.iter().enumerate() {
        for target in targets {
            reversed[*target].push(from);
        }
    }
    let mut order = Vec::new();
    let mut seen = vec![false; files.len()];
    for start in 0..files.len() {
        visit(start, &edges, &mut seen, &mut order);
    }
    let mut seen = vec![false; files.len()];
    let mut circles = Vec::new();
    for start in order.into_iter().rev() {
        let mut members = Vec::new();
        visit(start, &reversed, &mut seen, &mut members);
        if members.len() > 1 {
            let mut circle: Vec<&str> = members.into_iter().map(|file| files[file].0).collect();
            circle.sort_unstable();
            circles.push(circle);
        }
    }
    circles
}

/// Adds to `order` all that is reached from `start` and was not seen, each after what it reaches.
fn visit(start: usize, edges: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    for target in &edges[start] {
        visit(*target, edges, seen, order);
    }
    order.push(start);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of `count` files, each of which imports the next one, and the last one the first.
    fn ring(count: usize) -> Vec<(String, String)> {
        let file = |at: usize| {
            let next = (at + 1) % count;
            (format!("crates/x/src/m{at}.rs"), format!("use crate::m{next}::Thing{next};"))
        };
        (0..count).map(file).collect()
    }

    fn finding_messages(files: &[(String, String)]) -> Vec<String> {
        let files: Vec<(&str, &str)> =
            files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        check(&Tree::of(&files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_large_circle_is_found_and_a_small_one_is_not() {
        assert_eq!(finding_messages(&ring(MAX_FILES)), Vec::<String>::new());
        let circle = finding_messages(&ring(MAX_FILES + 1));
        assert!(circle[0].contains("6 files") && circle[0].contains("crates/x/src/m3.rs"));
    }

    #[test]
    fn an_open_chain_is_no_circle() {
        let mut chain = ring(MAX_FILES + 1);
        chain[0].1 = String::new();
        assert_eq!(finding_messages(&chain), Vec::<String>::new());
    }
}
