use std::sync::Arc;

use trilogue_domain::{Json, limits};

use crate::rows::{ConfigurationRow, DeadLetter, InterruptRow, Listing, Page, RunRow, ThreadRow};

/// A row of a listing.
pub(crate) trait PageRow {
    /// A page ends with the row that exceeds this many bytes.
    const MAX_PAGE_BYTES: usize = limits::MAX_PAGE_BYTES;

    /// The bytes that clients and agents stored in the row.
    fn bytes(&self) -> usize;
}

/// Collects the rows of a page. A row has an integer key; a newer row has a greater key.
#[derive(Debug)]
pub(crate) struct PageBuilder<T> {
    limit: usize,
    skip: usize,
    rows: Vec<(i64, T)>,
    /// Bytes of the rows.
    bytes: usize,
    /// Whether it ended before its last row.
    is_cut: bool,
}

// === impl PageBuilder ===

impl<T: PageRow> PageBuilder<T> {
    pub(crate) fn new(page: &Page) -> Self {
        let (limit, skip) = (page.rows(), page.skip);
        Self { limit, skip, rows: Vec::new(), bytes: 0, is_cut: false }
    }

    /// Whether the next matching row precedes the page. The row then counts as skipped.
    pub(crate) fn leaves_out(&mut self) -> bool {
        let leaves_out = self.skip > 0;
        self.skip = self.skip.saturating_sub(1);
        leaves_out
    }

    /// Adds a row that matches. Returns `false` if the page is already full.
    pub(crate) fn add(&mut self, key: i64, row: T) -> bool {
        if self.bytes > T::MAX_PAGE_BYTES {
            self.is_cut = true;
            return false;
        }
        if self.leaves_out() {
            return true;
        }
        self.bytes += row.bytes();
        self.rows.push((key, row));
        self.rows.len() <= self.limit
    }

    pub(crate) fn finish(mut self) -> Listing<T> {
        let has_more = self.is_cut || self.rows.len() > self.limit;
        self.rows.truncate(self.limit);
        let next = self.rows.last().filter(|_| has_more).map(|(key, _)| *key);
        Listing { rows: self.rows.into_iter().map(|(_, row)| row).collect(), next }
    }
}

// === impl Page ===

impl Page {
    pub(crate) fn rows(&self) -> usize {
        self.limit.clamp(1, limits::MAX_PAGE_ROWS)
    }

    /// The exclusive upper bound of the page's keys.
    pub(crate) fn before(&self) -> i64 {
        self.after.unwrap_or(i64::MAX)
    }

    /// How many rows to read when every row matches: the skipped ones, the page, and one more.
    pub(crate) fn rows_read(&self) -> usize {
        self.skip.saturating_add(self.rows() + 1)
    }
}

// === impl Listing ===

impl<T> Listing<T> {
    pub(crate) fn empty() -> Self {
        Self { rows: Vec::new(), next: None }
    }

    pub(crate) fn map<U>(self, convert: impl FnMut(T) -> U) -> Listing<U> {
        Listing { rows: self.rows.into_iter().map(convert).collect(), next: self.next }
    }
}

// === impl PageRow ===

impl PageRow for ThreadRow {
    fn bytes(&self) -> usize {
        length(&self.metadata)
    }
}

impl PageRow for RunRow {
    fn bytes(&self) -> usize {
        let other = [&self.config, &self.saved, &self.request].into_iter().flatten();
        length(&self.metadata) + other.map(length).sum::<usize>()
    }
}

impl PageRow for InterruptRow {
    const MAX_PAGE_BYTES: usize = limits::MAX_PENDING_PAGE_BYTES;

    fn bytes(&self) -> usize {
        length(&self.interrupt.payload)
    }
}

impl PageRow for ConfigurationRow {
    fn bytes(&self) -> usize {
        length(&self.metadata) + length(&self.config)
    }
}

impl PageRow for DeadLetter {
    fn bytes(&self) -> usize {
        length(&self.item.reference)
    }
}

impl<R: PageRow> PageRow for Arc<R> {
    const MAX_PAGE_BYTES: usize = R::MAX_PAGE_BYTES;

    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

impl<R: PageRow> PageRow for &R {
    const MAX_PAGE_BYTES: usize = R::MAX_PAGE_BYTES;

    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

fn length(json: &Json) -> usize {
    json.as_bytes().len()
}
