//! How long a paragraph of a document may be.

use super::Finding;
use super::tree::Tree;

/// The most lines of a paragraph or of an entry of a list.
const MAX_LINES: usize = 5;
/// Characters that make a line where a document does not break its lines.
const LINE_CHARACTERS: usize = 120;

/// Every paragraph in `docs/` and in the documents at the root that is too long to be read.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pages = tree.files.iter().filter(|file| {
        file.path.ends_with(".md") && (file.path.starts_with("docs/") || !file.path.contains('/'))
    });
    for page in pages {
        for paragraph in paragraphs(&page.text) {
            let lines = paragraph.lines.max(paragraph.characters.div_ceil(LINE_CHARACTERS));
            if lines > MAX_LINES {
                let message = format!(
                    "a paragraph of {lines} lines, at most {MAX_LINES}: split it, or make it a table or a list"
                );
                findings.push(Finding::new(format!("{}:{}", page.path, paragraph.begun), message));
            }
        }
    }
    findings
}

/// Lines of prose that belong together.
#[derive(Clone, Copy, Debug)]
struct Paragraph {
    /// The number of its first line.
    begun: usize,
    lines: usize,
    characters: usize,
}

/// Returns the paragraphs and list entries of a page, without tables, headings and code.
fn paragraphs(text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        if in_code || is_fence || line.is_empty() || line.starts_with(['|', '#', '<']) {
            is_open = false;
            continue;
        }
        let is_entry = ["- ", "* "].iter().any(|mark| line.starts_with(mark)) || is_numbered(line);
        match paragraphs.last_mut().filter(|_| is_open && !is_entry) {
            Some(paragraph) => {
                paragraph.lines += 1;
                paragraph.characters += line.chars().count() + 1;
            }
            None => {
                let characters = line.chars().count();
                paragraphs.push(Paragraph { begun: index + 1, lines: 1, characters });
            }
        }
        is_open = true;
    }
    paragraphs
}

/// Whether a line begins an entry of a numbered list.
fn is_numbered(line: &str) -> bool {
    let rest = line.trim_start_matches(|char: char| char.is_ascii_digit());
    rest.len() < line.len() && rest.starts_with(". ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_count(text: &str) -> usize {
        check(&Tree::of(&[("docs/a.md", text)])).len()
    }

    #[test]
    fn a_long_paragraph_is_found() {
        assert_eq!(finding_count(&"A line.\n".repeat(MAX_LINES)), 0);
        assert_eq!(finding_count(&"A line.\n".repeat(MAX_LINES + 1)), 1);
        assert_eq!(finding_count(&"word ".repeat(LINE_CHARACTERS * MAX_LINES / 5)), 0);
        assert_eq!(finding_count(&"word ".repeat(LINE_CHARACTERS * MAX_LINES / 5 + 2)), 1);
    }

    #[test]
    fn lists_tables_and_code_are_no_paragraphs() {
        let many = |line: &str| format!("{line}\n").repeat(MAX_LINES + 1);
        assert_eq!(finding_count(&many("- entry")), 0);
        assert_eq!(finding_count(&many("1. entry")), 0);
        assert_eq!(finding_count(&many("| cell |")), 0);
        assert_eq!(finding_count(&format!("```\n{}```\n", many("code"))), 0);
        assert_eq!(finding_count(&many("a\n")), 0);
    }
}
