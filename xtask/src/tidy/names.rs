//! Rules about the names of types and modules: one thing, one name; one name, one thing.

use std::collections::BTreeMap;

use super::Finding;
use super::scan;
use super::tree::{File, Tree};

/// Names that say nothing about the thing they name: participles, question words and pictures.
const PLACEHOLDERS: [&str; 44] = [
    "Asked",
    "Book",
    "Bringing",
    "Crowd",
    "Desk",
    "Door",
    "Doorkeeper",
    "Gatekeeper",
    "Given",
    "Growth",
    "Half",
    "Heard",
    "Held",
    "How",
    "Kept",
    "Known",
    "Lane",
    "Losses",
    "Met",
    "Of",
    "Opener",
    "Otherwise",
    "Outside",
    "Passed",
    "Pieces",
    "Place",
    "Reach",
    "Said",
    "Seat",
    "Seats",
    "Site",
    "Speaking",
    "Standing",
    "Stumble",
    "Taken",
    "Told",
    "Trouble",
    "Unsaid",
    "Voices",
    "Wanted",
    "What",
    "Whom",
    "Woken",
    "Working",
];
/// Module names of the same kind beside those of the list above.
const PLACEHOLDER_MODULES: [&str; 4] = ["given_up", "in_words", "speaking", "voice"];
/// Modules outside `wire` that may declare a type of one name.
const MAX_MODULES: usize = 2;
/// Names that stand in more modules by convention, and why.
const CONVENTIONAL: [(&str, &str); 7] = [
    ("Client", "each module of clients has one: the module is the first half of its name"),
    ("Error", "the error of the crate or module that declares it"),
    ("Options", "the settings of the crate or component that declares it"),
    ("NewRun", "each protocol has one: the module of its client is the first half of its name"),
    ("Request", "each transport has one: the module is the first half of its name"),
    ("Session", "the protocols' object, once for each side that holds one"),
    ("State", "what a face or an actor owns, private to it or named with its module"),
];
/// What measures or tests the others; its names are its own.
const TOOLS: [&str; 5] = ["bench", "testkit", "examples", "foreign", "xtask"];
/// How a declaration begins.
const DECLARATIONS: [&str; 5] = ["struct ", "enum ", "trait ", "union ", "type "];

/// Every name that breaks a rule.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut modules: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in tree.rust() {
        findings.extend(module_name(file));
        if file.is_test() || TOOLS.contains(&file.package()) || file.path.ends_with("_tests.rs") {
            continue;
        }
        for line in scan::production(&file.text) {
            let Some(name) = declared(&line.code) else { continue };
            if PLACEHOLDERS.contains(&name) {
                let message = format!("'{name}' is a placeholder: name the thing");
                findings.push(Finding::new(format!("{}:{}", file.path, line.number), message));
            }
            // Each protocol has objects of its own, and protocols share words.
            if file.package() != "wire" {
                let places = modules.entry(name.to_owned()).or_default();
                if places.last() != Some(&file.path.as_str()) {
                    places.push(&file.path);
                }
            }
        }
    }
    modules.retain(|name, _| !CONVENTIONAL.iter().any(|(conventional, _)| conventional == name));
    findings.extend(modules.into_iter().filter(|(_, places)| places.len() > MAX_MODULES).map(
        |(name, places)| {
            let all = places.join(", ");
            let message = format!("'{name}' names {} things: {all}", places.len());
            Finding::new(places[0], message)
        },
    ));
    findings
}

/// A module that is called by a placeholder.
fn module_name(file: &File) -> Option<Finding> {
    let name = file.path.rsplit('/').next()?.strip_suffix(".rs")?;
    let is_placeholder = PLACEHOLDER_MODULES.contains(&name)
        || PLACEHOLDERS.iter().any(|placeholder| placeholder.eq_ignore_ascii_case(name));
    is_placeholder.then(|| {
        Finding::new(
            &*file.path,
            format!("'{name}' is a placeholder: name what one looks for here"),
        )
    })
}

/// The type that a line declares at the outermost level of its file.
fn declared(code: &str) -> Option<&str> {
    let code = match code.strip_prefix("pub") {
        Some(rest) => match rest.strip_prefix('(') {
            Some(rest) => rest.split_once(") ")?.1,
            None => rest.strip_prefix(' ')?,
        },
        None => code,
    };
    let rest = DECLARATIONS.iter().find_map(|declaration| code.strip_prefix(declaration))?;
    rest.split(|char: char| !char.is_alphanumeric() && char != '_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn placeholders_are_found_in_types_and_modules() {
        for text in ["struct Said;", "pub(crate) enum Given {", "pub type Told<T> = T;"] {
            let found = finding_messages(&[("crates/store/src/a.rs", text)]);
            assert!(found[0].contains("placeholder"), "{text}: {found:?}");
        }
        assert_eq!(finding_messages(&[("crates/store/src/given.rs", "")]).len(), 1);
        assert_eq!(
            finding_messages(&[("crates/store/src/a.rs", "struct Given2; // struct Said")]).len(),
            0
        );
        assert_eq!(finding_messages(&[("crates/store/tests/it/a.rs", "struct Said;")]).len(), 0);
    }

    #[test]
    fn one_name_for_three_things_is_found() {
        let file = |path| (path, "struct Frame;");
        let two = [file("crates/store/src/a.rs"), file("crates/domain/src/a.rs")];
        assert_eq!(finding_messages(&two).len(), 0);
        let three = [two[0], two[1], file("crates/sdk/src/a.rs")];
        assert!(finding_messages(&three)[0].contains("3 things"));
        let wire = [two[0], two[1], file("crates/wire/src/a.rs")];
        assert_eq!(finding_messages(&wire).len(), 0);
        let test = [two[0], two[1], file("crates/sdk/tests/it/a.rs")];
        assert_eq!(finding_messages(&test).len(), 0);
    }
}
