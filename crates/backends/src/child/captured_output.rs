//! Captures a child's standard error and the part of its standard output that is not a message. Errors show the end of both if the child fails.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use trilogue_domain::{lock, safe};

use super::redact::Redactor;

/// How many bytes of the end are kept.
pub(super) const KEPT_BYTES: usize = 64 * 1024;
const MAX_LINES_PER_SECOND: u32 = 20;
const LOGGED_BYTES: usize = 2 * 1024;
/// The longest character in UTF-8.
const CHARACTER_BYTES: usize = 4;

#[derive(Debug)]
pub struct CapturedOutput {
    /// The name of the stream in messages.
    stream: &'static str,
    tail: Mutex<OutputTail>,
    redactor: Mutex<Redactor>,
}

#[derive(Debug, Default)]
struct OutputTail {
    bytes: VecDeque<u8>,
    /// Whether the beginning was dropped.
    is_cut: bool,
    /// How many bytes were captured in total.
    total: u64,
}

/// A line whose end has not been read yet.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the end was left out.
    is_cut: bool,
}

/// Counts the lines of the current second: at most [`MAX_LINES_PER_SECOND`] are logged.
struct LineRate {
    since: Instant,
    lines: u32,
    omitted: u64,
}

// === impl CapturedOutput ===

impl CapturedOutput {
    pub(crate) fn new<'a>(stream: &'static str, secrets: impl Iterator<Item = &'a str>) -> Self {
        let captured = Self { stream, tail: Mutex::default(), redactor: Mutex::default() };
        captured.hide(secrets);
        captured
    }

    /// Returns the name of the stream in messages.
    pub(super) fn stream(&self) -> &'static str {
        self.stream
    }

    /// Redacts these values, also in earlier output.
    pub(crate) fn hide<'a>(&self, values: impl Iterator<Item = &'a str>) {
        let mut redactor = lock(&self.redactor);
        let was_full = redactor.is_full();
        redactor.add(values);
        if redactor.is_full() && !was_full {
            tracing::warn!(
                stream = self.stream,
                "a process has too many secrets to redact: its output is not shown"
            );
        }
    }

    /// Returns the end of the output, at most `max_bytes`: whole lines if there are any, without control characters and secrets.
    #[must_use]
    pub fn tail(&self, max_bytes: usize) -> String {
        let (bytes, is_cut): (Vec<u8>, bool) = {
            let kept = lock(&self.tail);
            (kept.bytes.iter().copied().collect(), kept.is_cut)
        };
        let text = self.redact(&bytes, is_cut, false);
        let text = text.trim();
        let from = text.ceil_char_boundary(text.len().saturating_sub(max_bytes));
        let tail = text.get(from..).unwrap_or_default();
        match tail.split_once('\n') {
            Some((_, rest)) if from > 0 && !rest.is_empty() => rest.to_owned(),
            _ => tail.to_owned(),
        }
    }

    /// Returns how many bytes were captured so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        lock(&self.tail).total
    }

    /// Like [`Self::tail`], but only of the output after a position.
    #[must_use]
    pub fn tail_after(&self, position: u64, max_bytes: usize) -> String {
        let new = self.position().saturating_sub(position);
        match usize::try_from(new).unwrap_or(usize::MAX).min(max_bytes) {
            0 => String::new(),
            bytes => self.tail(bytes),
        }
    }

    /// Returns the redacted text. If its beginning or end was cut off, the bytes next to the cut are left out: they may be part of a secret.
    fn redact(&self, bytes: &[u8], is_cut: bool, is_cut_behind: bool) -> String {
        let redactor = lock(&self.redactor);
        let text = redactor.redact(safe::block(&String::from_utf8_lossy(bytes)));
        let doubtful = match redactor.longest() {
            0 => 0,
            longest => longest + CHARACTER_BYTES,
        };
        let from = text.ceil_char_boundary(if is_cut { doubtful.min(text.len()) } else { 0 });
        let cut = if is_cut_behind { doubtful } else { 0 };
        let to = text.floor_char_boundary(text.len().saturating_sub(cut));
        text.get(from..to).unwrap_or_default().to_owned()
    }

    pub fn clear(&self) {
        *lock(&self.tail) = OutputTail::default();
    }

    /// Captures and logs a stream to its end.
    pub(super) async fn read(&self, name: &str, mut from: impl AsyncRead + Unpin) {
        let mut rate = LineRate::new();
        let mut line = Line::default();
        let mut piece = vec![0; 8 * 1024];
        while let Ok(length @ 1..) = from.read(&mut piece).await {
            let piece = piece.get(..length).unwrap_or_default();
            self.keep(piece);
            // Keep enough of the line to recognize a secret that begins in its logged part.
            let most = LOGGED_BYTES + lock(&self.redactor).longest() + CHARACTER_BYTES;
            for part in piece.split_inclusive(|byte| *byte == b'\n') {
                line.push(part, most);
                if part.ends_with(b"\n") {
                    self.log(name, &mut line, &mut rate);
                }
            }
        }
        self.log(name, &mut line, &mut rate);
    }

    /// Adds a line that was read elsewhere.
    pub(crate) fn add_line(&self, name: &str, line: &[u8]) {
        self.keep(line);
        self.keep(b"\n");
        if tracing::enabled!(tracing::Level::DEBUG) && !lock(&self.redactor).is_full() {
            let mut cut = Line::default();
            cut.push(line, LOGGED_BYTES + lock(&self.redactor).longest() + CHARACTER_BYTES);
            tracing::debug!(agent = name, stream = self.stream, text = ?self.line(&cut), "output of an agent");
        }
    }

    fn keep(&self, piece: &[u8]) {
        let mut kept = lock(&self.tail);
        let last = piece.get(piece.len().saturating_sub(KEPT_BYTES)..).unwrap_or_default();
        let excess = (kept.bytes.len() + piece.len()).saturating_sub(KEPT_BYTES);
        let excess = excess.min(kept.bytes.len());
        kept.is_cut |= excess > 0 || last.len() < piece.len();
        kept.bytes.drain(..excess);
        kept.bytes.extend(last);
        kept.total += piece.len() as u64;
    }

    /// Logs a line and clears it for the next one.
    fn log(&self, name: &str, line: &mut Line, rate: &mut LineRate) {
        let done = std::mem::take(line);
        let is_wanted = tracing::enabled!(tracing::Level::DEBUG);
        if done.bytes.is_empty() || !is_wanted || !rate.allows(name) {
            return;
        }
        if lock(&self.redactor).is_full() {
            return;
        }
        let text = self.line(&done);
        tracing::debug!(agent = name, stream = self.stream, ?text, "output of an agent");
    }

    fn line(&self, line: &Line) -> String {
        let mut text = self.redact(&line.bytes, false, line.is_cut);
        text.truncate(text.floor_char_boundary(LOGGED_BYTES));
        text.truncate(text.trim_end().len());
        text
    }
}

// === impl Line ===

impl Line {
    /// Appends a part of the line. Keeps at most `most` bytes in total.
    fn push(&mut self, part: &[u8], most: usize) {
        let room = most.saturating_sub(self.bytes.len()).min(part.len());
        self.bytes.extend_from_slice(part.get(..room).unwrap_or_default());
        self.is_cut |= room < part.len();
    }
}

// === impl LineRate ===

impl LineRate {
    fn new() -> Self {
        Self { since: Instant::now(), lines: 0, omitted: 0 }
    }

    fn allows(&mut self, name: &str) -> bool {
        if self.since.elapsed() >= Duration::from_secs(1) {
            if self.omitted > 0 {
                tracing::debug!(
                    agent = name,
                    lines = self.omitted,
                    "omitted lines of an agent's output"
                );
            }
            *self = Self::new();
        }
        self.lines += 1;
        let allows = self.lines <= MAX_LINES_PER_SECOND;
        self.omitted += u64::from(!allows);
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2hunter2";

    fn stderr() -> CapturedOutput {
        CapturedOutput::new("standard error", [SECRET].into_iter())
    }

    #[tokio::test]
    async fn the_end_is_kept_in_whole_lines_without_secrets() {
        let stderr = stderr();
        let mut said = vec![b'x'; KEPT_BYTES * 2];
        said.extend_from_slice(b"\nthe key is hunter2hunter2\n\xffend\n");
        stderr.read("test", &said[..]).await;
        assert_eq!(lock(&stderr.tail).bytes.len(), KEPT_BYTES);
        assert_eq!(stderr.tail(64), "the key is [hidden]\n\u{fffd}end");
        assert_eq!(stderr.tail(3), "end");
        assert!(stderr.tail(KEPT_BYTES * 2).starts_with('x'));
        stderr.clear();
        assert_eq!(stderr.tail(64), "");
    }

    #[tokio::test]
    async fn a_secret_is_redacted_in_what_was_captured_before_it_was_known() {
        let stderr = stderr();
        stderr.read("test", &b"a token: 0123456789\n"[..]).await;
        assert_eq!(stderr.tail(64), "a token: 0123456789");
        stderr.hide(["0123456789", "short"].into_iter());
        assert_eq!(stderr.tail(64), "a token: [hidden]");
    }

    #[tokio::test]
    async fn no_part_of_a_secret_is_shown_wherever_it_is_cut() {
        for kept in 1..SECRET.len() {
            // The kept bytes begin within a secret, and the caller asks for all of them.
            let stderr = stderr();
            let mut said = SECRET.as_bytes().to_vec();
            said.resize(KEPT_BYTES + SECRET.len() - kept, b'.');
            stderr.read("test", &said[..]).await;
            let tail = stderr.tail(2 * KEPT_BYTES);
            assert!(tail.starts_with("..") && tail.len() > KEPT_BYTES - 64, "{kept}");
            // The logged part of a line ends within a secret.
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
