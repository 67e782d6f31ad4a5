//! The tests that `SECURITY.md` and the pages on the protocols' documents name: each must exist.

use std::collections::HashSet;

use super::Finding;
use super::tree::{File, Tree};

/// Where the pages on documents are.
const PAGES: &str = "docs/documents/";
const SECURITY: &str = "SECURITY.md";
/// A name with fewer underscores can be anything.
const MIN_UNDERSCORES: usize = 2;

/// Every name in the last column of a table that is no function and no file of a crate.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| file.path.starts_with("crates/"));
    let sources: Vec<_> = sources.filter(|file| file.path.ends_with(".rs")).collect();
    let functions: HashSet<&str> = sources
        .iter()
        .flat_map(|file| functions(&file.text))
        .chain(tree.scripts.iter().flat_map(|file| script_functions(&file.text)))
        .collect();
    let is_file = |name: &str| {
        let below = format!("/{name}");
        sources.iter().any(|file| file.path == name || file.path.ends_with(&below))
    };
    let mut findings = Vec::new();
    let is_page = |file: &&File| file.path.starts_with(PAGES) || file.path == SECURITY;
    for page in tree.files.iter().filter(is_page) {
        for (number, name) in cited(&page.text) {
            let is_there =
                if name.ends_with(".rs") { is_file(name) } else { functions.contains(name) };
            if !is_there {
                let place = format!("{}:{number}", page.path);
                findings.push(Finding::new(place, format!("there is no test {name}")));
            }
        }
    }
    findings
}

fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0))
}

/// The checks of a script for the browser: members of an object.
fn script_functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("async ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0))
}

/// What stands in back quotes in the last column of tables and looks like a test or a file of tests, with its line.
fn cited(text: &str) -> Vec<(usize, &str)> {
    let mut cited = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let row = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let Some((_, last)) = row.and_then(|row| row.rsplit_once('|')) else { continue };
        let names = last.split('`').skip(1).step_by(2);
        // A module is written in front of some names.
        let names = names.map(|name| name.rsplit_once("::").map_or(name, |(_, name)| name));
        let names = names.filter(|name| is_name(name));
        cited.extend(names.map(|name| (number, name)));
    }
    cited
}

fn is_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.strip_suffix(".rs") {
        Some(path) => path.chars().all(|c| is_word(c) || c == '/'),
        None => name.matches('_').count() >= MIN_UNDERSCORES && name.chars().all(is_word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/documents/a.md", page),
            ("docs/other.md", "| `it_is_not_there` |"),
            ("crates/x/tests/it/face.rs", "async fn it_really_works() {}"),
            ("foreign/page/chat.mjs", "check({ async it_works_in_a_page(browser) {} })"),
            ("SECURITY.md", "| x | gateway `a::b::it_works_in_a_page`, `a::it_does_not_hold` |"),
        ]);
        let found = check(&tree).into_iter().map(|it| format!("{}: {}", it.place, it.message));
        let (security, others): (Vec<_>, Vec<_>) =
            found.partition(|finding| finding.starts_with(SECURITY));
        assert_eq!(security, ["SECURITY.md:1: there is no test it_does_not_hold"]);
        others
    }

    #[test]
    fn tests_and_their_files_are_found_where_they_are() {
        let row = "| x | `it_really_works`, `face.rs`, `crates/x/tests/it/face.rs` |";
        assert_eq!(found(row), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        for name in ["it_really_sleeps", "faces.rs", "crates/y/tests/it/face.rs"] {
            let line = format!("docs/documents/a.md:3: there is no test {name}");
            assert_eq!(found(&format!("\n\n| x | *how* `{name}` |")), [line]);
        }
    }

    #[test]
    fn only_the_last_column_of_tables_names_tests() {
        let others = "`no_test_here`\n| `no_test_here` | `a_test`, `trilogue run x_y_z`, `A_b_c` |";
        assert_eq!(found(others), Vec::<String>::new());
    }
}
