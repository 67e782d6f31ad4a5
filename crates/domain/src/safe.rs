//! Makes untrusted text safe for terminals and logs.
//!
//! Agents, peers and stored threads choose names, titles, arguments, errors and answers.
//! A terminal interprets control sequences: they can rewrite earlier output, fill the clipboard, hide a link's target or reorder a line.
//! Therefore every such text passes through this module before it is printed.

use std::fmt::Write as _;

/// The maximum length of a control sequence that is removed, in characters. The text after it is kept.
///
/// Without a bound, one unterminated sequence would hide everything after it.
const MAX_SEQUENCE_CHARS: usize = 4_096;

/// Removes control sequences from a stream of text, including sequences that are split across chunks.
#[derive(Clone, Debug, Default)]
pub struct Stripper {
    state: State,
    removed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// Outside of a sequence.
    #[default]
    Text,
    /// After a carriage return. A line feed makes it a line end; any other character would overwrite the line.
    Return,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes such as `(`.
    Intermediate,
    /// Inside CSI: parameters until a final byte.
    Csi,
    /// Inside a string (OSC, DCS, SOS, PM, APC): until BEL, ST or ESC `\`.
    InString,
    /// Inside such a string, after ESC.
    StringEscape,
}

/// Returns text of any number of lines, without control sequences and control characters. Line feeds and tabs stay.
/// Characters that hide or reorder text are shown as `\u{…}`, except the joiners that scripts and emoji need.
#[must_use]
pub fn block(text: &str) -> String {
    let mut stripper = Stripper::default();
    stripper.push(text)
}

/// Returns text for one line: removes control sequences, and replaces line feeds and tabs with spaces.
#[must_use]
pub fn line(text: &str) -> String {
    let mut out = block(text);
    if out.contains(['\n', '\t']) {
        out = out.replace(['\n', '\t'], " ");
    }
    out
}

/// Returns text for one line with every invisible character shown as `\u{…}`. Use it for text on which a user bases a decision.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || is_hidden(c) => push_code(c, &mut out),
            c => out.push(c),
        }
    }
    out
}

/// Returns JSON for a terminal: hidden characters inside its strings become `\uXXXX`, which has the same meaning. Line feeds between values stay.
#[must_use]
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (c.is_control() || is_hidden(c)) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

fn push_code(c: char, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", c as u32);
}

// === impl Stripper ===

impl Stripper {
    /// Returns the safe text of the next chunk.
    #[must_use]
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            self.step(c, &mut out);
        }
        out
    }

    fn step(&mut self, c: char, out: &mut String) {
        if self.state == State::Return {
            self.state = State::Text;
            out.push('\n');
            if c == '\n' {
                return;
            }
        }
        if self.state == State::Text {
            self.enter(c, out);
            return;
        }
        self.removed += 1;
        if self.removed > MAX_SEQUENCE_CHARS {
            self.state = State::Text;
            self.enter(c, out);
            return;
        }
        self.inside(c, out);
    }

    /// Handles a character outside of a sequence.
    fn enter(&mut self, c: char, out: &mut String) {
        self.removed = 0;
        self.state = match c {
            '\n' | '\t' => {
                out.push(c);
                State::Text
            }
            '\r' => State::Return,
            '\u{1b}' => State::Escape,
            '\u{9b}' => State::Csi,
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => State::InString,
            c if c.is_ascii_control() => State::Text,
            c if c.is_control() || (is_hidden(c) && !is_joiner(c)) => {
                push_code(c, out);
                State::Text
            }
            c => {
                out.push(c);
                State::Text
            }
        };
    }

    /// Drops a character inside a sequence, and ends the sequence where a terminal would.
    fn inside(&mut self, c: char, out: &mut String) {
        self.state = match (self.state, c) {
            // CAN and SUB end any sequence.
            (_, '\u{18}' | '\u{1a}') => State::Text,
            (State::InString | State::StringEscape, '\u{7}' | '\u{9c}') => State::Text,
            (State::StringEscape, '\\') => State::Text,
            (_, '\u{1b}') if self.state != State::InString => State::Escape,
            (State::InString, '\u{1b}') => State::StringEscape,
            // ESC inside a string ends it and begins another sequence.
            (State::Escape | State::StringEscape, '[') => State::Csi,
            (State::Escape | State::StringEscape, ']' | 'P' | 'X' | '^' | '_') => State::InString,
            (State::Escape | State::Intermediate | State::StringEscape, ' '..='/') => {
                State::Intermediate
            }
            (State::Escape | State::Intermediate | State::StringEscape, '0'..='~') => State::Text,
            (State::Csi, ' '..='?') => State::Csi,
            (State::Csi, '@'..='~') => State::Text,
            (State::InString, _) => State::InString,
            // Terminals execute control characters inside a sequence: drop them and stay inside.
            (state, c) if c.is_control() && c != '\n' => state,
            // Any other character ends the sequence and is text again.
            (_, c) => {
                self.enter(c, out);
                return;
            }
        };
    }
}

/// Returns `true` for characters that reorder a line, break it only in some programs, or are invisible. They can make two different texts look the same.
fn is_hidden(c: char) -> bool {
    matches!(c,
        // Direction, line and paragraph separators, annotations.
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
        | '\u{fff9}'..='\u{fffb}'
        // No width or no shape; the rest of what Unicode calls default ignorable.
        | '\u{00ad}' | '\u{034f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns `true` for hidden characters that ordinary text needs: soft hyphens, joiners of scripts and emoji, and variation selectors.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{00ad}' | '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attacks, and the text that remains of them.
    const CORPUS: &[(&str, &str)] = &[
        // Clipboard, window title, hyperlink with a false text.
        ("a\u{1b}]52;c;cm0gLXJmIH4K\u{7}b", "ab"),
        ("a\u{1b}]0;owned\u{1b}\\b", "ab"),
        ("\u{1b}]8;;http://evil.example\u{1b}\\bank\u{1b}]8;;\u{1b}\\", "bank"),
        // Cursor, erase, colour, private modes, device reports.
        ("a\u{1b}[2J\u{1b}[1;1Hb", "ab"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("\u{1b}[?1049h\u{1b}[6n\u{1b}[>c x", " x"),
        // C1 in UTF-8, which some terminals obey.
        ("a\u{9b}2Jb\u{9d}52;c;AA==\u{9c}c", "abc"),
        ("\u{90}+q544e\u{9c}x\u{9f}payload\u{7}y", "xy"),
        // Character sets, resets, keypad modes.
        ("\u{1b}(0a\u{1b}cb\u{1b}=c\u{1b}#8d", "abcd"),
        // Overwriting a line.
        ("good\rbad ", "good\nbad "),
        ("two\r\nlines", "two\nlines"),
        ("abc\u{8}\u{8}\u{8}xyz\u{7f}", "abcxyz"),
        ("a\u{7}b\u{0}c\u{b}d\u{c}e", "abcde"),
        // Bidirectional overrides and isolates.
        ("user\u{202e}txt.exe\u{202c}", r"user\u{202e}txt.exe\u{202c}"),
        ("\u{2066}a\u{2069}\u{200f}b\u{61c}", r"\u{2066}a\u{2069}\u{200f}b\u{61c}"),
        ("line\u{2028}sep\u{2029}", r"line\u{2028}sep\u{2029}"),
        // No width, tags that hide text, C1 that begins no sequence.
        ("pay\u{200b}pal\u{feff}\u{e0041}", r"pay\u{200b}pal\u{feff}\u{e0041}"),
        ("next\u{85}line", r"next\u{85}line"),
        // A string that ends with another sequence, not with its terminator.
        ("\u{1b}]0;title\u{1b}[31mred", "red"),
        ("\u{1b}Pq\u{18}text", "text"),
        // A sequence without an end.
        ("\u{1b}", ""),
        ("x\u{1b}[31", "x"),
        // A sequence that text of another script ends.
        ("\u{1b}[3äb", "äb"),
        // Plain text of every kind stays.
        ("tab\tnew\nline ünïcode 漢字 👩‍👩‍👧", "tab\tnew\nline ünïcode 漢字 👩‍👩‍👧"),
    ];

    #[test]
    fn control_sequences_are_removed() {
        for (attack, left) in CORPUS {
            assert_eq!(block(attack), *left, "{attack:?}");
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same_text() {
        for (attack, left) in CORPUS {
            for size in 1..4 {
                let chars: Vec<char> = attack.chars().collect();
                let mut stripper = Stripper::default();
                let whole: String = chars
                    .chunks(size)
                    .map(|piece| stripper.push(&piece.iter().collect::<String>()))
                    .collect();
                assert_eq!(whole, *left, "{attack:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn no_control_character_survives_in_any_form() {
        for (attack, _) in CORPUS {
            let shown = block(attack);
            let is_bad = |c: char| c.is_control() || (is_hidden(c) && !is_joiner(c));
            assert!(!shown.chars().any(|c| is_bad(c) && c != '\n' && c != '\t'), "{shown:?}");
            assert!(!line(attack).chars().any(is_bad), "{attack:?}");
            let is_bad = |c: char| c.is_control() || is_hidden(c);
            for shown in [visible(attack), json(attack).replace('\n', "")] {
                assert!(!shown.chars().any(is_bad), "{shown:?}");
            }
        }
    }

    #[test]
    fn an_endless_sequence_cannot_hide_the_rest() {
        let text = format!("\u{1b}]0;{}visible", "x".repeat(MAX_SEQUENCE_CHARS));
        assert!(block(&text).ends_with("visible"));
    }

    #[test]
    fn visible_text_hides_nothing() {
        assert_eq!(visible("rm\u{202e} -rf\r\n\u{1b}[2K~"), "rm\\u{202e} -rf\\r\\n\\u{1b}[2K~");
        assert_eq!(visible("a\u{200b}b\u{ad}c"), "a\\u{200b}b\\u{ad}c");
        assert_eq!(visible("ünï 漢字 'quoted'"), "ünï 漢字 'quoted'");
        assert_eq!(visible("\u{85}\u{fe0f}\u{3164}"), r"\u{85}\u{fe0f}\u{3164}");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\"a\":\"x\u{202e}\u{9b}\u{e0041}ü\u{200d}\"}\n{}\n";
        let shown = "{\"a\":\"x\\u202e\\u009b\\udb40\\udc41ü\\u200d\"}\n{}\n";
        assert_eq!(json(text), shown);
    }
}
