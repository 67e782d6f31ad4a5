//! Pages of listings, newest first, and what metadata must hold.

use std::sync::Arc;

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{Json, limits};

use crate::rows::{Listing, Page};

/// The members that metadata must hold.
#[derive(Debug)]
pub(super) struct Metadata<'a> {
    wanted: &'a [(String, String)],
    /// Whether a condition is on an array or object, which no search row has: then only so many candidates are looked at.
    is_residual: bool,
}

/// The rows of the page and one more; with conditions on metadata every candidate, which is looked at outside the lock.
pub(super) fn first_page<T>(
    rows: impl Iterator<Item = T>,
    metadata: &[(String, String)],
    page: &Page,
) -> Vec<T> {
    let most = if metadata.is_empty() { page.rows() + 1 } else { usize::MAX };
    rows.take(most).collect()
}

/// Cuts the row behind the page off; gives where the next page begins.
pub(super) fn next_of<T>(rows: &mut Vec<T>, page: &Page, key: impl Fn(&T) -> i64) -> Option<i64> {
    if rows.len() <= page.rows() {
        return None;
    }
    rows.truncate(page.rows());
    rows.last().map(key)
}

// === impl Metadata ===

impl<'a> Metadata<'a> {
    pub(super) fn new(wanted: &'a [(String, String)]) -> Self {
        let is_residual = wanted.iter().any(|(_, value)| is_composite(value));
        Self { wanted, is_residual }
    }

    /// The page of those candidates, newest first, whose metadata fits.
    pub(super) fn select<T: Clone>(
        &self,
        candidates: Vec<Arc<T>>,
        page: &Page,
        parts: impl Fn(&T) -> (i64, &Json),
    ) -> Result<Listing<T>> {
        let mut rows: Vec<Arc<T>> = Vec::new();
        let mut looked_at = 0;
        for row in candidates {
            if !self.fits(parts(&row).1, &mut looked_at)? {
                continue;
            }
            rows.push(row);
            if rows.len() > page.rows() {
                break;
            }
        }
        let next = next_of(&mut rows, page, |row| parts(row).0);
        Ok(Listing { rows: rows.into_iter().map(Arc::unwrap_or_clone).collect(), next })
    }

    fn fits(&self, metadata: &Json, looked_at: &mut usize) -> Result<bool> {
        if self.wanted.is_empty() {
            return Ok(true);
        }
        let metadata = metadata.to_value();
        let holds = |(key, value): &&(String, String)| {
            let text = metadata.get(key).map(ToString::to_string);
            text.as_ref() == Some(value)
        };
        let (composite, scalar): (Vec<_>, Vec<_>) =
            self.wanted.iter().partition(|(_, value)| is_composite(value));
        if !scalar.iter().all(holds) {
            return Ok(false);
        }
        if self.is_residual {
            *looked_at += 1;
            if *looked_at > limits::MAX_SEARCH_CANDIDATES {
                return Err(too_broad());
            }
        }
        Ok(composite.iter().all(holds))
    }
}

// === impl Page ===

impl Page {
    /// How many rows the page has.
    pub(crate) fn rows(&self) -> usize {
        self.limit.clamp(1, limits::MAX_PAGE_ROWS)
    }
}

// === impl Listing ===

impl<T> Listing<T> {
    /// No rows.
    pub(crate) fn empty() -> Self {
        Self { rows: Vec::new(), next: None }
    }
}

fn is_composite(value: &str) -> bool {
    value.starts_with(['{', '['])
}

fn too_broad() -> Error {
    Error::new(
        Code::FilterTooBroad,
        format!(
            "the filter on an array or object leaves more than {} candidates",
            limits::MAX_SEARCH_CANDIDATES
        ),
    )
    .hint("add a condition on a string, number, truth value or null")
}
