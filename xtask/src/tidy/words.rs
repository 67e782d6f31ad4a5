//! Strained English in comments, documents and function names: how much each area may have, and that no file gets worse.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex::Regex;

use super::Finding;
use super::tree::{File, Tree};

/// The committed counts of the files that still have strained phrases: a count and a path per line.
const RECORD: &str = "xtask/strained-phrases.txt";
/// Documents that the code renders: their sources are checked instead.
const RENDERED: &str = "docs/reference/";

/// Phrases that make a sentence hard to read, and what to write instead.
const PHRASES: [(&str, &str); 12] = [
    ("whoever|whomever|whatever|whichever", "name the person or the thing"),
    ("whom", "say who does what"),
    ("nobody|somebody|anybody|everybody|no one", "name the caller, the client, the task"),
    ("so many|so much|as many as there", "give the number or its name"),
    ("(?:is|are) none", "write 'missing', 'unknown', or 'None if'"),
    ("goes on|go on|going on|went on", "write 'continues' or 'resumes'"),
    ("(?:would|may|can) else", "write 'otherwise'"),
    ("(?:is|are|be|was|were|being) told", "write 'receives' or 'is notified'"),
    ("no longer than|no more than", "write 'at most'"),
    ("such a one|such ones?", "name it"),
    ("(?:it|that) (?:was|is) looked|looked (?:whether|for ends)", "write 'checked'"),
    ("is no [a-z]+", "write 'is not a …', 'not found' or 'invalid'"),
];
/// Follows "is no" in sentences that are fine.
const FINE_AFTER_IS_NO: [&str; 2] = ["longer", "more"];
/// Function names that are a participle or a riddle: a function is a verb, or the noun that it returns.
const FUNCTION_NAMES: &str = "asked|told|heard|known|shown|said|given|kept|made|met|begun|ended|refused|taken|gone|held|left|\
    meant|named|sent|found|over|there|yes|standing|beside|looked|waiting|answered|settled|removed|added|changed|closed|opened|\
    started|stopped|failed|passed|called|tell|hear|bury|relieve|farewell";

static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
    let all: Vec<String> = PHRASES.iter().map(|(phrase, _)| format!("({phrase})")).collect();
    pattern(&format!(r"(?i)\b(?:{})\b", all.join("|")))
});
static FUNCTION: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!(r"\bfn ({FUNCTION_NAMES})\s*[(<]")));

/// A part of the repository with a limit of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Area {
    Source,
    Tests,
    Documents,
    Decisions,
}

/// The words and the strained phrases of a text.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Count {
    words: usize,
    /// Each phrase: its line, itself, and what to do.
    phrases: Vec<(usize, String, &'static str)>,
}

/// Every file that has more strained phrases than the record allows, and every area above its limit.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let recorded = record(tree);
    let mut findings = Vec::new();
    let mut areas: BTreeMap<Area, (usize, usize)> = BTreeMap::new();
    for (file, count) in counts(tree) {
        let total = areas.entry(Area::of(file)).or_default();
        total.0 += count.words;
        total.1 += count.phrases.len();
        let allowed = recorded.get(file.path.as_str()).copied().unwrap_or_default();
        if count.phrases.len() > allowed {
            findings.extend(count.phrases.iter().map(|(line, phrase, advice)| {
                let message = format!("'{phrase}' is hard to read: {advice}");
                Finding::new(format!("{}:{line}", file.path), message)
            }));
        } else if count.phrases.len() < allowed {
            let message =
                "has fewer strained phrases than recorded: run `cargo xtask tidy --bless`";
            findings.push(Finding::new(&*file.path, message));
        }
    }
    for (area, (words, phrases)) in areas {
        let limit = area.limit();
        if phrases * 10_000 > limit * words.max(MIN_WORDS) {
            let message = format!(
                "{phrases} strained phrases in {words} words, at most {limit} in 10,000: rewrite some"
            );
            findings.push(Finding::new(format!("{area:?}").to_lowercase(), message));
        }
    }
    findings
}

/// An area with fewer words counts as one with this many, so that a short text may have a phrase.
const MIN_WORDS: usize = 20_000;

/// Writes the record with lower counts where files got better. It raises none.
pub(super) fn bless(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let recorded = record(&tree);
    let mut text = String::new();
    for (file, count) in counts(&tree) {
        let allowed = recorded.get(file.path.as_str()).copied().unwrap_or_default();
        let count = count.phrases.len().min(allowed);
        if count > 0 {
            writeln!(text, "{count} {}", file.path)?;
        }
    }
    fs::write(root.join(RECORD), text).with_context(|| format!("{RECORD} cannot be written"))
}

/// The recorded count of each file.
fn record(tree: &Tree) -> BTreeMap<&str, usize> {
    let text = tree.get(RECORD).map(|file| file.text.as_str()).unwrap_or_default();
    let entry = |line: &'_ str| -> Option<(usize, usize)> {
        let (count, _) = line.split_once(' ')?;
        Some((count.parse().ok()?, count.len() + 1))
    };
    text.lines().filter_map(|line| entry(line).map(|(count, at)| (&line[at..], count))).collect()
}

/// Every file of prose with its count.
fn counts(tree: &Tree) -> impl Iterator<Item = (&File, Count)> {
    let is_checked = |file: &&File| {
        let is_prose = file.path.ends_with(".rs") || file.path.ends_with(".md");
        is_prose && !file.path.starts_with(RENDERED)
    };
    tree.files.iter().filter(is_checked).map(|file| (file, Count::of(file)))
}

// === impl Area ===

impl Area {
    fn of(file: &File) -> Self {
        if file.path.ends_with(".md") {
            return if file.path.contains("decisions") { Self::Decisions } else { Self::Documents };
        }
        if file.is_test() || file.package() == "testkit" { Self::Tests } else { Self::Source }
    }

    /// The most strained phrases and function names in 10,000 words. Lower a limit when its area is better.
    const fn limit(self) -> usize {
        match self {
            Self::Source => 5,
            Self::Tests => 5,
            Self::Decisions => 5,
            Self::Documents => 2,
        }
    }
}

// === impl Count ===

impl Count {
    fn of(file: &File) -> Self {
        let is_rust = file.path.ends_with(".rs");
        let mut count = Self::default();
        for (index, line) in file.text.lines().enumerate() {
            let number = index + 1;
            if let Some(prose) = prose(line, is_rust) {
                count.words += prose.split_whitespace().count();
                count.phrases.extend(
                    phrases(prose).map(|(phrase, advice)| (number, phrase.to_owned(), advice)),
                );
            }
            if is_rust && let Some(name) = FUNCTION.captures(line) {
                let advice = "name a function by a verb, or by the noun that it returns";
                count.phrases.push((number, format!("fn {}", &name[1]), advice));
            }
        }
        count
    }
}

/// The strained phrases of a line, each with what to write instead.
fn phrases(prose: &str) -> impl Iterator<Item = (&str, &'static str)> {
    PHRASE.captures_iter(prose).filter_map(|captures| {
        let index = (0..PHRASES.len()).find(|index| captures.get(index + 1).is_some())?;
        let phrase = captures.get(0)?.as_str();
        let is_fine = FINE_AFTER_IS_NO.iter().any(|word| phrase.ends_with(&format!(" {word}")));
        (!is_fine).then_some((phrase, PHRASES[index].1))
    })
}

/// The prose of a line: a comment of Rust, or text of a document that is neither code nor a table's rule.
fn prose(line: &str, is_rust: bool) -> Option<&str> {
    let line = line.trim_end();
    if is_rust {
        return line
            .trim_start()
            .starts_with("//")
            .then(|| line.trim_start_matches([' ', '/', '!']));
    }
    let is_code = line.starts_with("    ") || line.trim_start().starts_with("```");
    (!is_code && !line.starts_with("|--")).then(|| line.trim_start())
}

/// A pattern of this file. Those are constants, and the tests compile each.
#[expect(clippy::expect_used, reason = "the patterns are constants that a test compiles")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/store/src/a.rs";

    fn places(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn strained_phrases_are_found_in_comments_and_documents_but_not_in_code() {
        assert_eq!(places(&[(PATH, "//! It is told.\n")]), [format!("{PATH}:1")]);
        assert_eq!(places(&[(PATH, "let x = \"whoever\"; // whom\n")]), Vec::<String>::new());
        assert_eq!(places(&[("docs/a.md", "Whoever asks.\n")]), ["docs/a.md:1"]);
        assert_eq!(places(&[("docs/a.md", "    whoever\n")]), Vec::<String>::new());
    }

    #[test]
    fn is_no_longer_is_fine_and_is_no_file_is_not() {
        assert_eq!(phrases("This is no longer so.").count(), 0);
        assert_eq!(phrases("This is no file.").count(), 1);
    }

    #[test]
    fn a_function_that_is_a_participle_is_found() {
        assert_eq!(
            places(&[(PATH, &format!("pub(crate) fn {}(x: u8) {{}}\n", "shown"))]),
            [format!("{PATH}:1")]
        );
        assert_eq!(places(&[(PATH, "fn is_shown() {}\n")]), Vec::<String>::new());
    }

    #[test]
    fn a_file_may_keep_what_is_recorded_and_the_record_follows_when_it_gets_better() {
        let text = "// Whoever asks.\n";
        let record = |count: usize| format!("{count} {PATH}\n");
        assert_eq!(places(&[(PATH, text), (RECORD, &record(1))]), Vec::<String>::new());
        assert_eq!(places(&[(PATH, text), (RECORD, &record(2))]), [PATH]);
        assert_eq!(places(&[(PATH, &text.repeat(2)), (RECORD, &record(1))]).len(), 2);
    }

    #[test]
    fn an_area_has_a_limit_that_no_record_raises() {
        let limit = Area::Source.limit() * MIN_WORDS / 10_000;
        let text = |count: usize| "// Whoever asks.\n".repeat(count);
        let found =
            |count: usize| places(&[(PATH, &text(count)), (RECORD, &format!("{count} {PATH}"))]);
        assert_eq!(found(limit), Vec::<String>::new());
        assert_eq!(found(limit + 1), ["source"]);
    }

    #[test]
    fn blessing_lowers_counts_and_raises_none() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("xtask")).unwrap();
        fs::write(root.path().join("a.md"), "Whoever asks.\n").unwrap();
        fs::write(root.path().join("b.md"), "Whoever asks whom.\n").unwrap();
        fs::write(root.path().join(RECORD), "2 a.md\n1 b.md\n3 gone.md\n").unwrap();
        bless(root.path()).unwrap();
        assert_eq!(fs::read_to_string(root.path().join(RECORD)).unwrap(), "1 a.md\n1 b.md\n");
    }
}
