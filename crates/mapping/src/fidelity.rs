//! What each protocol carries, as data: the page in the documentation and the answer of our own face are made from it.

use std::fmt::Write as _;

use crate::{agent_client, communication, connect, native};

/// What becomes of one concept in one protocol. Names of the protocol stand in backticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The concept, in words that no protocol owns.
    pub concept: &'static str,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// What becomes of a concept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The protocol has a place for it: this one.
    Carried(&'static str),
    /// It travels in a place that the protocol leaves free: this one.
    Extension(&'static str),
    /// It does not come through, because of this.
    Lost(&'static str),
}

/// A protocol's part of the table.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// Its name: that of its mount.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// One row a concept.
    pub rows: &'static [Row],
}

/// The whole table.
pub const TABLE: &[Protocol] = &[
    Protocol {
        name: "native",
        title: "The HTTP interface `/api/v1`",
        rows: native::fidelity::ROWS,
    },
    Protocol {
        name: "communication",
        title: "The Agent Communication Protocol",
        rows: communication::fidelity::ROWS,
    },
    Protocol {
        name: "connect",
        title: "The Agent Connect Protocol",
        rows: connect::fidelity::ROWS,
    },
    Protocol {
        name: "client",
        title: "The Agent Client Protocol",
        rows: agent_client::fidelity::ROWS,
    },
];

/// The table as a page in Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "<!-- Generated from trilogue_mapping::fidelity by `cargo xtask tidy --bless`. -->\n\n\
         # Fidelity\n\n\
         Look up here what each protocol does with a concept. A running server returns the same table at `/api/v1/fidelity`.\n\n\
         | verdict | meaning |\n|---|---|\n\
         | carried | the protocol has a member for it |\n\
         | extension | it travels in a free member of the protocol, and comes back unchanged |\n\
         | lost | the protocol cannot carry it; the table gives the reason |\n\n\
         The server drops nothing without a row here.\n",
    );
    for protocol in TABLE {
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "\n## {}\n\n| concept | verdict | where, or why not |\n|---|---|---|\n",
            protocol.title
        );
        for Row { concept, verdict } in protocol.rows {
            let (word, text) = match verdict {
                Verdict::Carried(place) => ("carried", place),
                Verdict::Extension(place) => ("extension", place),
                Verdict::Lost(why) => ("lost", why),
            };
            let _ = writeln!(page, "| {concept} | {word} | {text} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_concept_stands_once_in_its_protocol_and_says_where_or_why() {
        for protocol in TABLE {
            let mut seen = HashSet::new();
            for Row { concept, verdict } in protocol.rows {
                let (Verdict::Carried(text) | Verdict::Extension(text) | Verdict::Lost(text)) =
                    verdict;
                assert!(!text.is_empty(), "{concept}");
                assert!(seen.insert(concept), "{concept} stands twice");
                assert!(!concept.contains('|') && !text.contains('|'), "{concept} breaks its row");
            }
        }
    }

    #[test]
    fn every_protocol_speaks_of_the_same_concepts() {
        let concepts = |protocol: &Protocol| -> Vec<&str> {
            protocol.rows.iter().map(|row| row.concept).collect()
        };
        for protocol in TABLE {
            assert_eq!(concepts(protocol), concepts(&TABLE[0]), "{}", protocol.name);
        }
    }

    #[test]
    fn the_page_has_a_line_for_every_row() {
        let page = page();
        for row in TABLE.iter().flat_map(|protocol| protocol.rows) {
            assert!(page.contains(&format!("\n| {} | ", row.concept)), "{}", row.concept);
        }
    }
}
