//! Positions on a stream.

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, ThreadKey};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::RunRow;
use trilogue_store::{Range, Read};

/// The position of the last wire event of a log event.
const LAST: u32 = u32::MAX;

/// A position on a stream: a log event's number, and which of its wire events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cursor {
    pub(crate) number: u64,
    pub(crate) sub: u32,
}

// === impl Cursor ===

impl Cursor {
    pub(crate) const START: Self = Self::after(0);

    /// Returns the position after everything of this log event.
    pub(crate) const fn after(number: u64) -> Self {
        Self { number, sub: LAST }
    }

    /// Returns the number of the last log event that is complete at this position.
    pub(crate) fn whole(self) -> u64 {
        if self.sub == LAST { self.number } else { self.number.saturating_sub(1) }
    }

    /// Reads `12`, `12.3` or `12.v`.
    /// Errors: `invalid_cursor`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let malformed = || {
            let text = escape_for_message(text);
            Error::new(Code::InvalidCursor, format!("invalid event stream position '{text}'"))
                .hint("give the 'id' of the last event that you have, or 0 for the beginning")
        };
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (number, sub) = text.split_once('.').unwrap_or((text, "v"));
        if !digits(number) || !(sub == "v" || digits(sub)) {
            return Err(malformed());
        }
        let number: i64 = number.parse().map_err(|_| malformed())?;
        let sub = if sub == "v" { LAST } else { sub.parse().map_err(|_| malformed())? };
        Ok(Self { number: number.unsigned_abs(), sub })
    }

    /// Checks a position in the log of a thread, or of one of its runs, that the caller has looked up. Asks the store and not a tail, which can be behind the client: after a start, and on a node that does not own the thread.
    /// Errors: `invalid_cursor` if the position is beyond the log, and those of reading the store.
    pub(crate) async fn check(
        self,
        read: &dyn Read,
        thread: ThreadKey,
        run: Option<&RunRow>,
    ) -> Result<()> {
        let Some(run) = run else {
            let last = read.last_number(thread).await?;
            return if self.number > last { Err(self.beyond(Some(last))) } else { Ok(()) };
        };
        if self.number <= run.last_run_number {
            return Ok(());
        }
        if run.status.is_terminal() {
            return Err(self.beyond(Some(run.last_run_number)));
        }
        // The row of an open run can be older than its log. The log's cache here is older too until its end is looked up.
        read.last_number(thread).await?;
        let range = Range { run: Some(run.key), after: self.number - 1, max_bytes: 1 };
        let frames = read.frames(thread, range).await?;
        let is_there = frames.last().is_some_and(|frame| frame.last_run() >= self.number);
        if is_there { Ok(()) } else { Err(self.beyond(None)) }
    }

    /// Returns the error for a position after the end of the log.
    fn beyond(self, last: Option<u64>) -> Error {
        let last = last.map(|last| format!(", {last}")).unwrap_or_default();
        let number = self.number;
        let message = format!("the position {number} lies beyond the last event{last}");
        Error::new(Code::InvalidCursor, message)
            .hint("give the 'id' of an event of this same stream")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_and_order() {
        assert_eq!(Cursor::parse("12"), Ok(Cursor::after(12)));
        assert_eq!(Cursor::parse("12.v"), Ok(Cursor::after(12)));
        assert_eq!(Cursor::parse("12.3"), Ok(Cursor { number: 12, sub: 3 }));
        assert!(Cursor { number: 12, sub: 3 } < Cursor::after(12));
        assert_eq!(Cursor { number: 12, sub: 3 }.whole(), 11);
        for bad in [
            "",
            "x",
            "-1",
            "+1",
            "1.",
            ".1",
            "1.x",
            "1.2.3",
            "99999999999999999999",
            " 1",
            "1.99999999999",
        ] {
            assert_eq!(
                Cursor::parse(bad).map_err(|error| error.code()),
                Err(Code::InvalidCursor),
                "{bad}"
            );
        }
    }
}
