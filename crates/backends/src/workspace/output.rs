use std::collections::VecDeque;

/// The most bytes of a character after its first.
const MAX_FOLLOWING: usize = 3;

/// The newest output of a command.
#[derive(Debug)]
pub(super) struct CommandOutput {
    bytes: VecDeque<u8>,
    max_bytes: usize,
    /// Whether the beginning was dropped.
    truncated: bool,
}

// === impl CommandOutput ===

impl CommandOutput {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { bytes: VecDeque::new(), max_bytes, truncated: false }
    }

    /// Adds output. The oldest is dropped.
    pub(super) fn push(&mut self, new: &[u8]) {
        let kept = new.get(new.len().saturating_sub(self.max_bytes)..).unwrap_or_default();
        let surplus = (self.bytes.len() + new.len()).saturating_sub(self.max_bytes);
        self.truncated |= surplus > 0;
        self.bytes.drain(..surplus.min(self.bytes.len()));
        self.bytes.extend(kept);
    }

    /// The text, at most as long as the kept output, and whether its beginning was dropped. An incomplete character at the end is left out unless the output `is_complete`. Bytes that are not text become U+FFFD.
    pub(super) fn text(&mut self, is_complete: bool) -> (String, bool) {
        let (most, cut) = (self.max_bytes, self.truncated);
        let mut bytes: &[u8] = self.bytes.make_contiguous();
        if cut {
            let following = bytes.iter().take(MAX_FOLLOWING).take_while(|it| **it & 0xC0 == 0x80);
            bytes = bytes.get(following.count()..).unwrap_or_default();
        }
        if !is_complete {
            bytes = bytes.get(..bytes.len() - incomplete(bytes)).unwrap_or_default();
        }
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        let mut truncated = cut;
        if text.len() > most {
            let start = text.ceil_char_boundary(text.len() - most);
            text.drain(..start);
            truncated = true;
        }
        (text, truncated)
    }
}

/// The length of an incomplete character at the end, in bytes.
fn incomplete(bytes: &[u8]) -> usize {
    let end = bytes.len().saturating_sub(MAX_FOLLOWING);
    let tail = bytes.get(end..).unwrap_or_default();
    let Some(lead) = tail.iter().rposition(|byte| byte & 0xC0 != 0x80) else { return 0 };
    let held = tail.len() - lead;
    let whole = match tail.get(lead) {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 1,
    };
    if held < whole { held } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_output_is_kept_from_a_whole_character_on() {
        let mut output = CommandOutput::new(7);
        output.push("aé".as_bytes());
        assert_eq!(output.text(false), ("aé".to_owned(), false));
        output.push("漢字".as_bytes());
        // Nine bytes, of which seven fit; they begin within the é.
        assert_eq!(output.text(false), ("漢字".to_owned(), true));
        output.push(b"0123456789");
        assert_eq!(output.text(false), ("3456789".to_owned(), true));
        let mut none = CommandOutput::new(0);
        none.push(b"");
        assert_eq!(none.text(true), (String::new(), false));
        none.push(b"x");
        assert_eq!(none.text(true), (String::new(), true));
    }

    #[test]
    fn a_character_shows_when_it_is_whole() {
        let bytes = "🦀é".as_bytes();
        let mut output = CommandOutput::new(64);
        for (count, shown) in ["", "", "", "🦀", "🦀", "🦀é"].into_iter().enumerate() {
            output.push(&bytes[count..=count]);
            assert_eq!(output.text(false).0, shown, "{count}");
        }
        output.push(&bytes[..2]);
        assert_eq!(output.text(false).0, "🦀é");
        assert_eq!(output.text(true).0, "🦀é\u{FFFD}");
        output.push(b"x");
        assert_eq!(output.text(false).0, "🦀é\u{FFFD}x");
    }

    #[test]
    fn bytes_that_are_no_text_do_not_make_it_longer_than_was_asked() {
        let mut output = CommandOutput::new(8);
        output.push(&[0xFF; 8]);
        let (text, truncated) = output.text(true);
        assert_eq!((text.as_str(), truncated), ("\u{FFFD}\u{FFFD}", true));
    }

    #[test]
    fn what_is_kept_does_not_depend_on_the_pieces_it_came_in() {
        let all: Vec<u8> = (0..5_000_u32).flat_map(|n| format!("{n}ü").into_bytes()).collect();
        for piece in [1, 3, 100, 4_096, all.len()] {
            let mut output = CommandOutput::new(1_000);
            all.chunks(piece).for_each(|chunk| output.push(chunk));
            let (text, truncated) = output.text(true);
            assert!(truncated && text.len() > 996 && text.len() <= 1_000, "{}", text.len());
            assert!(all.ends_with(text.as_bytes()));
        }
    }
}
