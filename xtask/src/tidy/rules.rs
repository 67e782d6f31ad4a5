//! Rules about words that only certain source files may contain.

use super::Finding;
use super::scan::{self, Line};
use super::tree::{File, Tree};

/// Crates that test the others, measure them or show how to use them, and print what they find.
const TOOLS: [&str; 5] = ["testkit", "bench", "examples", "foreign", "xtask"];
/// Module names that say what kind of thing is inside, not which.
const KINDS: [&str; 7] = ["helper", "helpers", "manager", "misc", "types", "util", "utils"];
/// How a statement begins, in the capitals that SQL is written in here: the first word, and one that follows.
const STATEMENTS: [(&str, &str); 7] = [
    ("SELECT", ""),
    ("INSERT", "INTO"),
    ("UPDATE", "SET"),
    ("DELETE", "FROM"),
    ("CREATE", "TABLE"),
    ("CREATE", "INDEX"),
    ("PRAGMA", ""),
];
/// The macros and functions that print.
const PRINTING: [&str; 6] = ["println!", "eprintln!", "print!", "eprint!", "stdout()", "stderr()"];

/// Finds each word in a file that may not contain it.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".sql")) {
        if file.package() != "store" {
            findings.push(Finding::new(&*file.path, "only crates/store contains SQL"));
        }
    }
    for file in tree.rust() {
        if let Some(message) = module_name(file) {
            findings.push(Finding::new(&*file.path, message));
        }
        let whole = scan::scan(&file.text);
        let lines = if file.is_test() { Vec::new() } else { scan::production(&file.text) };
        let everywhere = whole.iter().filter_map(|line| Some((line, attribute(line)?)));
        let production = lines
            .iter()
            .flat_map(|line| production(file, line).map(move |message| (line, message)));
        for (line, message) in everywhere.chain(production) {
            findings.push(Finding::new(format!("{}:{}", file.path, line.number), message));
        }
    }
    findings
}

/// A module that is named by kind.
fn module_name(file: &File) -> Option<String> {
    let mut names = file.path.trim_end_matches(".rs").split('/');
    let kind = names.find(|name| KINDS.contains(name))?;
    Some(format!("a module called {kind} says nothing: name the noun it holds"))
}

/// An attribute that hides what it should explain.
fn attribute(line: &Line) -> Option<String> {
    let code = line.code.replace(' ', "");
    if code.contains("#[allow(") || code.contains("#![allow(") {
        Some("`allow` is never noticed again: use `expect` with a reason".to_owned())
    } else if code.contains("[expect(missing_docs") {
        Some("every public item is documented, without exception".to_owned())
    } else if code.contains("[expect(") && code.contains(")]") && !code.contains("reason=") {
        Some("an `expect` gives its reason".to_owned())
    } else {
        None
    }
}

/// The rules about which crate may do what.
fn production(file: &File, line: &Line) -> impl Iterator<Item = String> {
    let package = file.package();
    let is_tool = TOOLS.contains(&package);
    let has = |words: &[&str]| words.iter().any(|word| mentions(&line.code, word));
    let sql = !is_tool && package != "store" && line.strings.iter().any(|text| is_sql(text));
    // The proxy of agents and the command line's receiver of callbacks are servers of their own, and so is an agent that listens for WebSockets. A WebSocket's client compares statuses.
    let answers = package == "gateway"
        || package == "broker"
        || file.path.starts_with("crates/trilogue/src/command/receiver")
        || file.path.starts_with("crates/egress/src/websocket")
        || file.path.starts_with("crates/sdk/src/agent_client/network");
    let status = !is_tool && !answers && line.code.contains("StatusCode::");
    // An agent that an editor starts speaks on its own standard streams.
    // A build script tells cargo by printing.
    let may_print = package == "trilogue"
        || file.path.starts_with("crates/sdk/src/stdio")
        || file.path.ends_with("/build.rs");
    let prints = !is_tool && !may_print && has(&PRINTING);
    // Code that reads JSON may name a `Deserializer`; types that implement the traits are forbidden.
    // `Json` is JSON already.
    let serial = package == "domain"
        && file.path != "crates/domain/src/json.rs"
        && ["Serialize", "Deserialize"]
            .iter()
            .any(|word| mentions(&line.code.replace("Deserializer", ""), word));
    [
        sql.then_some("only crates/store contains SQL"),
        status.then_some("only crates/gateway chooses HTTP statuses"),
        prints.then_some("only crates/trilogue prints"),
        serial.then_some("a domain type is not serialisable: convert by hand at the edge"),
    ]
    .into_iter()
    .flatten()
    .map(str::to_owned)
}

/// Whether `word` stands in the code by itself, not as the end of a longer word.
fn mentions(code: &str, word: &str) -> bool {
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || char == '_')
    })
}

/// Whether a string literal is a statement of SQL.
fn is_sql(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return false };
    let rest: Vec<&str> = words.collect();
    STATEMENTS.iter().any(|(begin, then)| {
        first == *begin && !rest.is_empty() && (then.is_empty() || rest.contains(then))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_messages(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(path, text)]);
        check(&tree).into_iter().map(|finding| finding.message).collect()
    }

    fn is_found(path: &str, text: &str, words: &str) {
        let found = finding_messages(path, text);
        assert!(found.iter().any(|message| message.contains(words)), "{text}: {found:?}");
    }

    #[test]
    fn sql_is_found_outside_the_store() {
        for sql in
            ["SELECT 1", "INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "CREATE TABLE t (a)"]
        {
            let text = format!("const A: &str = \"{sql}\";");
            is_found("crates/runtime/src/a.rs", &text, "SQL");
            assert_eq!(finding_messages("crates/store/src/a.rs", &text), Vec::<String>::new());
        }
        is_found("crates/runtime/src/a.sql", "", "SQL");
        assert_eq!(finding_messages("crates/store/src/a.sql", ""), Vec::<String>::new());
        let prose = "const A: &str = \"DELETE\"; const B: &str = \"select one\";";
        assert_eq!(finding_messages("crates/runtime/src/a.rs", prose), Vec::<String>::new());
    }

    #[test]
    fn statuses_and_printing_are_found_where_they_do_not_belong() {
        is_found("crates/runtime/src/a.rs", "let a = StatusCode::OK;", "statuses");
        assert_eq!(
            finding_messages("crates/gateway/src/a.rs", "let a = StatusCode::OK;"),
            Vec::<String>::new()
        );
        is_found("crates/gateway/src/a.rs", "println!(\"a\");", "prints");
        is_found("crates/gateway/src/a.rs", "std::io::stderr().write_all(b)", "prints");
        assert_eq!(
            finding_messages("crates/trilogue/src/a.rs", "println!(\"a\");"),
            Vec::<String>::new()
        );
        let test = "#[cfg(test)]\nmod tests {\n    fn a() { println!(); }\n}\n";
        assert_eq!(finding_messages("crates/gateway/src/a.rs", test), Vec::<String>::new());
    }

    #[test]
    fn a_serialisable_domain_type_is_found() {
        is_found("crates/domain/src/a.rs", "#[derive(serde::Serialize)]", "serialisable");
        assert_eq!(
            finding_messages("crates/wire/src/a.rs", "#[derive(Serialize)]"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn silent_attributes_are_found_even_in_tests() {
        is_found("crates/store/tests/it/a.rs", "#![allow(dead_code)]", "expect");
        is_found("crates/store/src/a.rs", "#[expect(missing_docs, reason = \"x\")]", "documented");
        is_found("crates/store/src/a.rs", "#[expect(clippy::panic)]", "reason");
        let good = "#[expect(clippy::panic, reason = \"a test\")]";
        assert_eq!(finding_messages("crates/store/src/a.rs", good), Vec::<String>::new());
    }

    #[test]
    fn modules_named_by_kind_are_found() {
        is_found("crates/store/src/utils.rs", "", "utils");
        is_found("crates/store/src/types/frame.rs", "", "types");
        assert_eq!(finding_messages("crates/store/src/frame.rs", ""), Vec::<String>::new());
    }
}
