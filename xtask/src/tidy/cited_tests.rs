//! The tests that `SECURITY.md` and the pages on the protocols' documents name: each must exist.

use std::collections::HashMap;

use super::Finding;
use super::tree::{File, Tree};

/// Where the pages on documents are.
const PAGES: &str = "docs/documents/";
const SECURITY: &str = "SECURITY.md";
/// A name with fewer underscores can be anything.
const MIN_UNDERSCORES: usize = 2;

/// Finds each name in the last column of a table that is neither a function nor a file of a crate.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let sources = tree.files.iter().filter(|file| file.path.starts_with("crates/"));
    let sources: Vec<_> = sources.filter(|file| file.path.ends_with(".rs")).collect();
    let mut functions: HashMap<&str, Vec<Vec<&str>>> = HashMap::new();
    for file in &sources {
        for (modules, name) in self::functions(&file.path, &file.text) {
            functions.entry(name).or_default().push(modules);
        }
    }
    for name in tree.scripts.iter().flat_map(|file| script_functions(&file.text)) {
        functions.entry(name).or_default().push(Vec::new());
    }
    let is_file = |name: &str| {
        let below = format!("/{name}");
        sources.iter().any(|file| file.path == name || file.path.ends_with(&below))
    };
    let mut findings = Vec::new();
    let is_page = |file: &&File| file.path.starts_with(PAGES) || file.path == SECURITY;
    for page in tree.files.iter().filter(is_page) {
        for (number, path) in cited(&page.text) {
            let (modules, name) = path.rsplit_once("::").unwrap_or(("", path));
            let problem = match functions.get(name) {
                _ if name.ends_with(".rs") => {
                    (!is_file(name)).then(|| format!("test {name} not found"))
                }
                None => Some(format!("test {name} not found")),
                Some(places) => wrong_module(modules, places)
                    .map(|place| format!("the test {name} is in {place}, not in {modules}")),
            };
            let place = || format!("{}:{number}", page.path);
            findings.extend(problem.map(|problem| Finding::new(place(), problem)));
        }
    }
    findings
}

/// Where a test is, unless it is in the modules that are written before its name. A page need not write any.
/// A `*` stands for the modules that a macro makes of one function.
fn wrong_module(written: &str, places: &[Vec<&str>]) -> Option<String> {
    let written: Vec<&str> = written.split("::").filter(|it| !["", "*"].contains(it)).collect();
    let is_right = written.is_empty() || places.contains(&written);
    (!is_right).then(|| {
        let places: Vec<String> = places.iter().map(|place| place.join("::")).collect();
        places.join(" or ")
    })
}

/// The functions of a file, each behind its modules.
fn functions<'a>(path: &'a str, text: &'a str) -> Vec<(Vec<&'a str>, &'a str)> {
    let mut modules = file_modules(path);
    let of_file = modules.len();
    // The indentation of each open module of the file itself: the formatter puts its end there.
    let mut indents: Vec<usize> = Vec::new();
    let mut functions = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "}" && indents.last() == Some(&indent) {
            indents.pop();
            modules.truncate(of_file + indents.len());
        }
        let module = code.split_once("mod ").and_then(|(_, rest)| rest.strip_suffix(" {"));
        if let Some(module) = module {
            indents.push(indent);
            modules.push(module);
        }
        let names = code.split("fn ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0));
        functions.extend(names.map(|name| (modules.clone(), name)));
    }
    functions
}

/// The modules that the path of a file stands for.
fn file_modules(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let (_, inside) =
        path.split_once("/tests/it/").or_else(|| path.split_once("/src/")).unwrap_or(("", path));
    let is_root = |module: &&str| !["mod", "lib", "main"].contains(module);
    inside.split('/').filter(is_root).collect()
}

/// The checks of a script for the browser: members of an object.
fn script_functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("async ").skip(1).filter_map(|rest| Some(rest.split_once('(')?.0))
}

/// Returns the names in back quotes, in the last column of tables, that look like a test or a file of tests, with
/// their lines.
fn cited(text: &str) -> Vec<(usize, &str)> {
    let mut cited = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let row = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|'));
        let Some((_, last)) = row.and_then(|row| row.rsplit_once('|')) else { continue };
        let paths = last.split('`').skip(1).step_by(2);
        let is_test = |path: &&str| is_name(path.rsplit_once("::").map_or(*path, |(_, name)| name));
        cited.extend(paths.filter(is_test).map(|path| (number, path)));
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

    fn finding_messages(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("docs/documents/a.md", page),
            ("docs/other.md", "| `it_is_not_there` |"),
            ("crates/x/tests/it/face.rs", "async fn it_really_works() {}"),
            (
                "crates/x/src/a/mod.rs",
                "mod tests {\n    fn it_works_inside() {}\n}\nfn it_is_bare() {}",
            ),
            ("foreign/page/chat.mjs", "check({ async it_works_in_a_page(browser) {} })"),
            ("SECURITY.md", "| x | gateway `it_works_in_a_page`, `a::it_does_not_hold` |"),
        ]);
        let found = check(&tree).into_iter().map(|it| format!("{}: {}", it.place, it.message));
        let (security, others): (Vec<_>, Vec<_>) =
            found.partition(|finding| finding.starts_with(SECURITY));
        assert_eq!(security, ["SECURITY.md:1: test it_does_not_hold not found"]);
        others
    }

    #[test]
    fn tests_and_their_files_are_found_where_they_are() {
        let row = "| x | `it_really_works`, `face.rs`, `crates/x/tests/it/face.rs` |";
        assert_eq!(finding_messages(row), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        for name in ["it_really_sleeps", "faces.rs", "crates/y/tests/it/face.rs"] {
            let line = format!("docs/documents/a.md:3: test {name} not found");
            assert_eq!(finding_messages(&format!("\n\n| x | *how* `{name}` |")), [line]);
        }
    }

    #[test]
    fn a_test_in_another_module_than_the_one_written_is_found() {
        let right =
            ["face::it_really_works", "face::*::it_really_works", "a::tests::it_works_inside"];
        for path in [&right[..], &["a::it_is_bare"]].concat() {
            assert_eq!(finding_messages(&format!("| x | `{path}` |")), Vec::<String>::new());
        }
        for (path, place) in [
            ("faces::it_really_works", "face"),
            ("tests::it_works_inside", "a::tests"),
            ("a::tests::it_is_bare", "a"),
        ] {
            let (modules, name) = path.rsplit_once("::").unwrap();
            let line =
                format!("docs/documents/a.md:1: the test {name} is in {place}, not in {modules}");
            assert_eq!(finding_messages(&format!("| x | `{path}` |")), [line]);
        }
    }

    #[test]
    fn only_the_last_column_of_tables_names_tests() {
        let others = "`no_test_here`\n| `no_test_here` | `a_test`, `trilogue run x_y_z`, `A_b_c` |";
        assert_eq!(finding_messages(others), Vec::<String>::new());
    }
}
