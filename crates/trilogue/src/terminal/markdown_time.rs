//! Random Markdown and differences, against both renderers: the page's and the terminal's.
//!
//! `TRILOGUE_DOCUMENTS=100000 cargo test --release -p trilogue --bin trilogue markdown_time` draws the full number and holds each to a time.

use std::time::{Duration, Instant};

use trilogue_inspector::draw::{self, WorkLimit};
use trilogue_testkit::seed::Seed;

use super::markdown;
use super::rows::Canvas;

/// How many documents are drawn unless the variable says so.
const DOCUMENTS: usize = 100;
/// The most time that one document may take in a release build.
const MAX_TIME: Duration = Duration::from_millis(50);
/// What it may take in a build without optimization, on a machine with other work: far less than what is superlinear takes.
const MAX_TIME_UNOPTIMIZED: Duration = Duration::from_secs(20);
/// How often a document that took too long is drawn again: other programs may have had the processor meanwhile.
const MAX_REPEATS: usize = 3;
const MAX_DOCUMENT_BYTES: u64 = 64 * 1024;
const CANVAS: Canvas = Canvas { columns: 100, styled: true };

/// The pieces of the documents: every mark of Markdown, alone, open and closed.
const PIECES: &[&str] = &[
    ">",
    "> ",
    "- ",
    "* ",
    "+ ",
    "1. ",
    "1) ",
    "  ",
    "    ",
    "\t",
    "\n",
    "\n\n",
    "  \n",
    "\\",
    "\\\n",
    "a",
    "b c ",
    "*",
    "**",
    "***",
    "_",
    "__",
    "~",
    "~~",
    "`",
    "``",
    "```\n",
    "~~~\n",
    "```rust\n",
    "[",
    "![",
    "]",
    "](",
    "(",
    ")",
    "[a]",
    "[a]: u\n",
    "[a](u)",
    "[a](<u",
    "][",
    "\"",
    "'",
    "<",
    ">",
    "<a ",
    "</a>",
    "<!--",
    "-->",
    "<?",
    "<!A ",
    "<div>\n",
    "<https://a.b>",
    "&",
    "&amp;",
    "&#x1;",
    "|",
    "|a|b|\n",
    "|-|-|\n",
    "a|b\n",
    "# ",
    "## ",
    "#",
    "===\n",
    "](u '",
    "](<u>\"",
    "---\n",
    "***\n",
    "- [x] ",
    "\u{202e}",
    "\u{200b}",
    "\u{1b}[2J",
    "漢字",
    "👩‍👩‍👧",
    "e\u{301}",
];

/// Makes a document of a few pieces, repeated and mixed: superlinear time shows if one piece follows itself many times.
fn document(seed: &mut Seed) -> String {
    let size = usize::try_from(seed.below(MAX_DOCUMENT_BYTES)).unwrap();
    let mut text = String::with_capacity(size);
    while text.len() < size {
        let motif: String =
            (0..=seed.below(3)).filter_map(|_| seed.pick(PIECES)).copied().collect();
        let most = 1 << seed.below(16);
        let times = seed.below(most) + 1;
        for _ in 0..times {
            if text.len() >= size {
                break;
            }
            text.push_str(&motif);
        }
    }
    text
}

#[test]
#[expect(
    clippy::print_stdout,
    reason = "the slowest document is for whoever asked for the whole count"
)]
fn random_documents_are_drawn_in_bounded_time_and_size() {
    let count = std::env::var("TRILOGUE_DOCUMENTS").ok().map(|count| count.parse().unwrap());
    // The full number is for a release build.
    let most_time = if count.is_some() { MAX_TIME } else { MAX_TIME_UNOPTIMIZED };
    let (number, mut seed) = Seed::from_env("TRILOGUE_SEED");
    let mut slowest = (Duration::ZERO, 0, "");
    for document_number in 0..count.unwrap_or(DOCUMENTS) {
        let text = document(&mut seed);
        let limit = WorkLimit::new(Duration::from_secs(60));
        let mut drawn = |name: &'static str, draw: &dyn Fn() -> usize| {
            let begun = Instant::now();
            let bytes = draw();
            let mut took = begun.elapsed();
            for _ in 0..MAX_REPEATS {
                if took <= most_time {
                    break;
                }
                let begun = Instant::now();
                draw();
                took = took.min(begun.elapsed());
            }
            slowest = slowest.max((took, document_number, name));
            let most = 64 * text.len() + 4_096;
            assert!(
                bytes <= most,
                "{name}: {} bytes became {bytes}; seed {number}, document {document_number}",
                text.len()
            );
        };
        drawn("page", &|| draw::markdown(&text, &limit).len());
        drawn("terminal", &|| markdown::rows(&text, CANVAS).iter().map(|row| row.text.len()).sum());
        drawn("last block", &|| markdown::last_block(&text));
        let (before, after) = text.split_at(text.floor_char_boundary(text.len() / 2));
        drawn("difference", &|| draw::difference(before, after, &limit).len());
    }
    println!("slowest: {slowest:?}; seed {number}");
    assert!(slowest.0 <= most_time, "{slowest:?}; seed {number}");
}

#[test]
fn what_nests_without_end_is_drawn_on_the_terminal_to_a_limit() {
    let canvas = Canvas { columns: 4_096, styled: false };
    let bars = |text: &str| {
        let rows = markdown::rows(text, canvas);
        rows.iter().map(|row| row.text.matches('▎').count()).max().unwrap_or(0)
    };
    assert_eq!(bars(&format!("{}a", "> ".repeat(32))), 32);
    assert_eq!(bars(&format!("{}a", "> ".repeat(20_000))), 0, "it is shown as it is written");
    let stars = format!("{}a{}", "*a ".repeat(4_000), " b*".repeat(4_000));
    let rows = markdown::rows(&stars, canvas);
    let shown: usize = rows.iter().map(|row| row.text.matches('*').count()).sum();
    // The paragraph is a level too.
    assert_eq!(shown, 62, "emphasis beyond the limit leaves its text alone");
}

#[test]
fn a_table_that_is_too_wide_is_shown_by_its_cells() {
    let table = format!("{}|\n{}|\n|b|\n", "|a".repeat(2_000), "|-".repeat(2_000));
    let rows = markdown::rows(&table, Canvas { columns: 80, styled: false });
    let text: String = rows.iter().map(|row| row.text.as_str()).collect();
    assert!(text.starts_with("a | a | a"), "{text}");
    assert!(text.ends_with('b'), "{text}");
    assert!(text.len() < 4 * table.len(), "{}", text.len());
}

#[test]
fn a_table_with_a_very_long_word_is_shown_by_its_cells() {
    let canvas = Canvas { columns: 80, styled: false };
    let draw = |table: &str| -> String {
        markdown::rows(table, canvas).iter().map(|row| format!("{}\n", row.text)).collect()
    };
    // Each row of the terminal that the word takes costs a look at the rest of it.
    let table = format!("|a|b|\n|-|-|\n|{}|c|\n", "x".repeat(32_000));
    assert!(draw(&table).starts_with("a | b\nxxx"), "{:.80}", draw(&table));
    let narrow = format!("{}|\n{}|\n|{}|\n", "|a".repeat(32), "|-".repeat(32), "x".repeat(4_000));
    assert!(draw(&narrow).starts_with("a | a | a"), "{:.80}", draw(&narrow));
    let address = format!("|a|b|\n|-|-|\n|https://example.com/{}|c|\n", "x".repeat(1_000));
    assert!(draw(&address).contains('─'), "{:.80}", draw(&address));
}
