use std::collections::VecDeque;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub max_line_bytes: usize,
    pub max_event_bytes: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    Event {
        /// The last id of the stream up to this event; empty if the stream sent none.
        id: String,
        /// The event's name; `message` if it has no name.
        event: String,
        /// The data, lines joined with `\n`.
        data: String,
    },
    /// How long to wait before reconnecting, in milliseconds.
    Retry(u64),
    /// A comment, which is a heartbeat.
    Comment(String),
}

/// Why the stream cannot be read further. The decoder returns no more items after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    #[error("a line of the event stream is longer than {0} bytes")]
    LineTooLong(usize),
    #[error("an event of the stream has more than {0} bytes of data")]
    EventTooLarge(usize),
    #[error("the event stream is not valid UTF-8")]
    NotUtf8,
}

/// The most bytes of an event's id and name that count as part of it. Servers that repeat these fields send nothing.
const MAX_HEAD_BYTES: u64 = 64 * 1024;

/// The longest id or name of an event, in bytes. Longer ones are left out.
const MAX_NAME_BYTES: usize = 4 * 1024;

/// Reads server-sent events from chunks of any size.
///
/// An event that is cut off by the end of the stream is dropped, as the specification requires.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    line: Vec<u8>,
    /// Whether the previous chunk ended in CR. An LF at the start of the next chunk then belongs to that line end.
    after_cr: bool,
    /// Whether nothing was read yet. A byte order mark may come.
    at_start: bool,
    id: String,
    event: String,
    data: String,
    has_data: bool,
    ready: VecDeque<Item>,
    failed: Option<Error>,
    /// The bytes of the current event's id and name.
    head_bytes: u64,
    /// The bytes that became no event, since [`Decoder::take_skipped_bytes`].
    skipped_bytes: u64,
}

// === impl Limits ===

impl Default for Limits {
    /// Returns limits of 32 MiB for lines and events, because an event can hold a line of another protocol.
    fn default() -> Self {
        Self { max_line_bytes: 32 * 1024 * 1024, max_event_bytes: 32 * 1024 * 1024 }
    }
}

// === impl Decoder ===

impl Default for Decoder {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Decoder {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            line: Vec::new(),
            after_cr: false,
            at_start: true,
            id: String::new(),
            event: String::new(),
            data: String::new(),
            has_data: false,
            ready: VecDeque::new(),
            failed: None,
            head_bytes: 0,
            skipped_bytes: 0,
        }
    }

    /// Adds the next chunk of the stream. [`Decoder::next`] returns the items that it completes.
    pub fn push(&mut self, mut piece: &[u8]) {
        while self.failed.is_none() && !piece.is_empty() {
            if std::mem::take(&mut self.after_cr)
                && let Some(rest) = piece.strip_prefix(b"\n")
            {
                piece = rest;
                continue;
            }
            let end = piece.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (part, rest) = piece.split_at(end.unwrap_or(piece.len()));
            if self.line.len() + part.len() > self.limits.max_line_bytes {
                return self.fail(Error::LineTooLong(self.limits.max_line_bytes));
            }
            self.line.extend_from_slice(part);
            let Some((end, rest)) = rest.split_first() else { return };
            self.after_cr = *end == b'\r';
            piece = rest;
            let line = std::mem::take(&mut self.line);
            self.take_line(&line);
            // Reuses the buffer, unless a long line made it large.
            if line.capacity() <= 64 * 1024 {
                self.line = line;
                self.line.clear();
            }
        }
    }

    /// Returns the next item; `None` if it needs more chunks.
    #[expect(clippy::should_implement_trait, reason = "`None` is no end: pushing more goes on")]
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        match (self.ready.pop_front(), self.failed) {
            (Some(item), _) => Ok(Some(item)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Returns how many bytes became no event since the last call: comments, unknown fields, events without data, and events that were cut off.
    pub fn take_skipped_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.skipped_bytes)
    }

    /// Drops an event that the end of the stream cuts off. Its bytes count as skipped.
    pub fn drop_unfinished(&mut self) {
        let data = std::mem::take(&mut self.data);
        let line = std::mem::take(&mut self.line);
        self.skipped_bytes +=
            std::mem::take(&mut self.head_bytes) + (data.len() + line.len()) as u64;
        self.has_data = false;
    }

    fn take_line(&mut self, line: &[u8]) {
        // With the line's end.
        let line_bytes = line.len() as u64 + 1;
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if self.at_start => rest,
            _ => line,
        };
        self.at_start = false;
        let Ok(line) = std::str::from_utf8(line) else { return self.fail(Error::NotUtf8) };
        if line.is_empty() {
            return self.dispatch();
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {}
            "event" | "id" if self.head_bytes < MAX_HEAD_BYTES => self.head_bytes += line_bytes,
            _ => self.skipped_bytes += line_bytes,
        }
        match name {
            "" => self.ready.push_back(Item::Comment(value.to_owned())),
            "data" => self.add_data(value),
            // Each event gets a copy of both, also of an id that came long before.
            "event" | "id" if value.len() > MAX_NAME_BYTES => {}
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => value.clone_into(&mut self.id),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.ready.push_back(Item::Retry(value.parse().unwrap_or(u64::MAX)));
            }
            _ => {}
        }
    }

    fn add_data(&mut self, value: &str) {
        if self.data.len() + value.len() + 1 > self.limits.max_event_bytes {
            return self.fail(Error::EventTooLarge(self.limits.max_event_bytes));
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push('\n');
        }
        self.data.push_str(value);
    }

    fn dispatch(&mut self) {
        let (event, head_bytes) =
            (std::mem::take(&mut self.event), std::mem::take(&mut self.head_bytes));
        if !std::mem::take(&mut self.has_data) {
            self.skipped_bytes += head_bytes + 1;
            return;
        }
        self.ready.push_back(Item::Event {
            id: self.id.clone(),
            event: if event.is_empty() { "message".to_owned() } else { event },
            data: std::mem::take(&mut self.data),
        });
    }

    fn fail(&mut self, error: Error) {
        self.failed = Some(error);
        self.drop_unfinished();
    }
}
