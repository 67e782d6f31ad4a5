//! What a child says on its standard error: the end of it is kept, and shown where the child fails.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};

use super::hidden::Hidden;
use super::lock;
use super::plain::plain;

/// How much of the end is kept, in bytes.
const KEPT_BYTES: usize = 64 * 1024;
/// How many lines of a child go to the log in a second.
const LINES_PER_SECOND: u32 = 20;
/// How much of a line goes to the log, in bytes.
const LOGGED_BYTES: usize = 2 * 1024;
/// How many bytes of a character may be missing.
const CHARACTER_BYTES: usize = 4;

/// The end of what a child said on its standard error.
#[derive(Debug)]
pub struct Stderr {
    kept: Mutex<Kept>,
    /// What must not be shown.
    hidden: Mutex<Hidden>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    /// Whether the beginning is gone.
    is_cut: bool,
}

/// A line that is being read.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether its end was left out.
    is_cut: bool,
}

/// How much may still be logged.
struct Rate {
    since: Instant,
    lines: u32,
    left_out: u64,
}

// === impl Stderr ===

impl Stderr {
    pub(super) fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Self {
        let stderr = Self { kept: Mutex::default(), hidden: Mutex::default() };
        stderr.hide(secrets);
        stderr
    }

    /// Never shows these values, from now on and in what was said before.
    pub(super) fn hide<'a>(&self, values: impl Iterator<Item = &'a str>) {
        let mut hidden = lock(&self.hidden);
        let was_full = hidden.is_full();
        hidden.add(values);
        if hidden.is_full() && !was_full {
            tracing::warn!(
                "a process has more secrets than can be hidden: nothing that it says is shown"
            );
        }
    }

    /// The end of it, at most so many bytes: whole lines where there are any, without control characters and without what is hidden.
    #[must_use]
    pub fn tail(&self, max_bytes: usize) -> String {
        let (bytes, is_cut): (Vec<u8>, bool) = {
            let kept = lock(&self.kept);
            (kept.bytes.iter().copied().collect(), kept.is_cut)
        };
        let text = self.shown(&bytes, is_cut, false);
        let text = text.trim();
        let from = text.ceil_char_boundary(text.len().saturating_sub(max_bytes));
        let tail = text.get(from..).unwrap_or_default();
        match tail.split_once('\n') {
            Some((_, rest)) if from > 0 && !rest.is_empty() => rest.to_owned(),
            _ => tail.to_owned(),
        }
    }

    /// What may be shown of this. What may be half of a secret, where it was cut at its beginning or its end, is left out.
    fn shown(&self, bytes: &[u8], is_cut: bool, is_cut_behind: bool) -> String {
        let hidden = lock(&self.hidden);
        let text = hidden.without(plain(&String::from_utf8_lossy(bytes)));
        let doubtful = match hidden.longest() {
            0 => 0,
            longest => longest + CHARACTER_BYTES,
        };
        let from = text.ceil_char_boundary(if is_cut { doubtful.min(text.len()) } else { 0 });
        let cut = if is_cut_behind { doubtful } else { 0 };
        let to = text.floor_char_boundary(text.len().saturating_sub(cut));
        text.get(from..to).unwrap_or_default().to_owned()
    }

    /// Forgets it.
    pub fn clear(&self) {
        *lock(&self.kept) = Kept::default();
    }

    /// Reads to the end.
    pub(super) async fn read(&self, name: &str, mut from: impl AsyncRead + Unpin) {
        let mut rate = Rate::new();
        let mut line = Line::default();
        let mut piece = vec![0; 8 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let piece = piece.get(..length).unwrap_or_default();
            self.keep(piece);
            // A secret that begins in what is logged is whole in what is kept of the line.
            let most = LOGGED_BYTES + lock(&self.hidden).longest() + CHARACTER_BYTES;
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                line.push(part, most);
                if part.ends_with(b"\n") {
                    self.log(name, &mut line, &mut rate);
                }
            }
        }
        self.log(name, &mut line, &mut rate);
    }

    fn keep(&self, piece: &[u8]) {
        let mut kept = lock(&self.kept);
        let last = piece.get(piece.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        let excess = (kept.bytes.len() + piece.len()).saturating_sub(KEPT_BYTES);
        let excess = excess.min(kept.bytes.len());
        kept.is_cut |= excess > 0 || last.len() < piece.len();
        kept.bytes.drain(..excess);
        kept.bytes.extend(last);
    }

    /// Logs a line, and begins the next.
    fn log(&self, name: &str, line: &mut Line, rate: &mut Rate) {
        let said = std::mem::take(line);
        let is_wanted = tracing::enabled!(tracing::Level::DEBUG);
        if said.bytes.is_empty() || !is_wanted || !rate.allows(name) {
            return;
        }
        if lock(&self.hidden).is_full() {
            return;
        }
        let text = self.line(&said);
        tracing::debug!(agent = name, stderr = ?text, "an agent says");
    }

    fn line(&self, said: &Line) -> String {
        let mut text = self.shown(&said.bytes, false, said.is_cut);
        text.truncate(text.floor_char_boundary(LOGGED_BYTES));
        text.truncate(text.trim_end().len());
        text
    }
}

// === impl Line ===

impl Line {
    /// Adds a part of it, and keeps at most so many bytes of it all.
    fn push(&mut self, part: &[u8], most: usize) {
        let room = most.saturating_sub(self.bytes.len()).min(part.len());
        self.bytes.extend_from_slice(part.get(..room).unwrap_or_default());
        self.is_cut |= room < part.len();
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2hunter2";

    fn stderr() -> Stderr {
        Stderr::new([SECRET].into_iter())
    }

    #[tokio::test]
    async fn the_end_is_kept_in_whole_lines_without_secrets() {
        let stderr = stderr();
        let mut said = vec![b'x'; KEPT_BYTES * 2];
        said.extend_from_slice(b"\nthe key is hunter2hunter2\n\xffend\n");
        stderr.read("test", &said[..]).await;
        assert_eq!(lock(&stderr.kept).bytes.len(), KEPT_BYTES);
        assert_eq!(stderr.tail(64), "the key is [hidden]\n\u{fffd}end");
        assert_eq!(stderr.tail(3), "end");
        assert!(stderr.tail(KEPT_BYTES * 2).starts_with('x'));
        stderr.clear();
        assert_eq!(stderr.tail(64), "");
    }

    #[tokio::test]
    async fn what_is_learnt_later_is_hidden_in_what_was_said_before() {
        let stderr = stderr();
        stderr.read("test", &b"a token: 0123456789\n"[..]).await;
        assert_eq!(stderr.tail(64), "a token: 0123456789");
        stderr.hide(["0123456789", "short"].into_iter());
        assert_eq!(stderr.tail(64), "a token: [hidden]");
    }

    #[tokio::test]
    async fn no_half_of_a_secret_is_shown_wherever_it_is_cut() {
        for kept in 1..SECRET.len() {
            // The beginning of what is kept stands within a secret, and all of that is asked for.
            let stderr = stderr();
            let mut said = SECRET.as_bytes().to_vec();
            said.resize(KEPT_BYTES + SECRET.len() - kept, b'.');
            stderr.read("test", &said[..]).await;
            let tail = stderr.tail(2 * KEPT_BYTES);
            assert!(tail.starts_with("..") && tail.len() > KEPT_BYTES - 64, "{kept}");
            // The end of what is logged of a line does.
            let mut said = vec![b'.'; LOGGED_BYTES - kept];
            said.extend_from_slice(SECRET.as_bytes());
            said.resize(4 * LOGGED_BYTES, b'.');
            let mut line = Line::default();
            line.push(&said, LOGGED_BYTES + SECRET.len() + CHARACTER_BYTES);
            let shown = stderr.line(&line);
            assert!(shown.len() > LOGGED_BYTES - 64 && !shown.contains("hun"), "{kept}");
        }
    }
}
