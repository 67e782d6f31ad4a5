//! What a child says on its standard error: the end of it is kept, and shown where the child fails.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::lock;

/// How much of the end is kept, in bytes.
const KEPT_BYTES: usize = 64 * 1024;
/// How many lines of a child go to the log in a second.
const LINES_PER_SECOND: u32 = 20;
/// How much of a line goes to the log, in bytes.
const LOGGED_BYTES: usize = 2 * 1024;
/// What stands for a secret.
const HIDDEN: &str = "[hidden]";

/// The end of what a child said on its standard error.
#[derive(Debug)]
pub struct Stderr {
    kept: Mutex<VecDeque<u8>>,
    /// What must not be shown.
    secrets: Vec<String>,
}

/// How much may still be logged.
struct Rate {
    since: Instant,
    lines: u32,
    left_out: u64,
}

// === impl Stderr ===

impl Stderr {
    pub(super) const fn new(secrets: Vec<String>) -> Self {
        Self { kept: Mutex::new(VecDeque::new()), secrets }
    }

    /// The end of it, at most so many bytes: whole lines where there are any, without control characters and without the values of
    /// variables that are secrets.
    #[must_use]
    pub fn tail(&self, max_bytes: usize) -> String {
        let bytes: Vec<u8> = lock(&self.kept).iter().copied().collect();
        let mut text = plain(&String::from_utf8_lossy(&bytes));
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), HIDDEN);
        }
        let text = text.trim();
        let mut from = text.len().saturating_sub(max_bytes);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let tail = text.get(from..).unwrap_or_default();
        match tail.split_once('\n') {
            Some((_, rest)) if from > 0 && !rest.is_empty() => rest.to_owned(),
            _ => tail.to_owned(),
        }
    }

    /// Forgets it.
    pub fn clear(&self) {
        lock(&self.kept).clear();
    }

    /// Reads to the end.
    pub(super) async fn read(&self, name: &str, mut from: impl AsyncRead + Unpin) {
        let mut rate = Rate::new();
        let mut line = Vec::new();
        let mut piece = vec![0; 8 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let piece = piece.get(..length).unwrap_or_default();
            self.keep(piece);
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                let room = LOGGED_BYTES.saturating_sub(line.len());
                line.extend_from_slice(part.get(..room.min(part.len())).unwrap_or_default());
                if part.ends_with(b"\n") {
                    self.log(name, &line, &mut rate);
                    line.clear();
                }
            }
        }
        self.log(name, &line, &mut rate);
    }

    fn keep(&self, piece: &[u8]) {
        let mut kept = lock(&self.kept);
        let piece = piece.get(piece.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        let excess = (kept.len() + piece.len()).saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
        kept.extend(piece);
    }

    fn log(&self, name: &str, line: &[u8], rate: &mut Rate) {
        if line.is_empty() || !tracing::enabled!(tracing::Level::DEBUG) || !rate.allows(name) {
            return;
        }
        let mut text = plain(&String::from_utf8_lossy(line));
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), HIDDEN);
        }
        let text = text.trim_end();
        tracing::debug!(agent = name, stderr = ?text, "an agent says");
    }
}

// === impl Rate ===

impl Rate {
    fn new() -> Self {
        Self { since: Instant::now(), lines: 0, left_out: 0 }
    }

    fn allows(&mut self, name: &str) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            if self.left_out > 0 {
                tracing::debug!(
                    agent = name,
                    lines = self.left_out,
                    "lines of an agent were left out"
                );
            }
            *self = Self::new();
        }
        self.lines += 1;
        let allows = self.lines <= LINES_PER_SECOND;
        self.left_out += u64::from(!allows);
        allows
    }
}

/// Text without what a terminal would act upon: escape sequences, control characters, and characters that turn the direction of text.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => match rest.next() {
                // A control sequence ends with a letter or one of `@[\]^_{|}~` and a backtick.
                Some('[') => drop(rest.by_ref().find(|one| matches!(one, '\u{40}'..='\u{7e}'))),
                // An operating system's command ends with a bell, or an escape and a backslash.
                Some(']') => {
                    while let Some(one) = rest.next() {
                        if one == '\u{7}' || (one == '\u{1b}' && rest.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\n' | '\t' => out.push(character),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if character.is_control() => {}
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_upon_is_left_out() {
        let text =
            "a\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}b\u{1b}]8;;x\u{1b}\\c\r\n\td\u{202e}e\u{0}";
        assert_eq!(plain(text), "aredbc\n\tde");
        assert_eq!(plain("\u{1b}"), "");
        assert_eq!(plain("x\u{1b}[31"), "x");
    }

    #[tokio::test]
    async fn the_end_is_kept_in_whole_lines_without_secrets() {
        let stderr = Stderr::new(vec!["hunter2hunter2".to_owned()]);
        let mut said = vec![b'x'; KEPT_BYTES * 2];
        said.extend_from_slice(b"\nthe key is hunter2hunter2\n\xffend\n");
        stderr.read("test", &said[..]).await;
        assert_eq!(lock(&stderr.kept).len(), KEPT_BYTES);
        assert_eq!(stderr.tail(64), "the key is [hidden]\n\u{fffd}end");
        assert_eq!(stderr.tail(3), "end");
        assert!(stderr.tail(KEPT_BYTES * 2).starts_with('x'));
    }
}
