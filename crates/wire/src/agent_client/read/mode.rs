//! How much a member may be wrong. The names are those of the flags in the protocol's schema, in our words.

use super::super::Patch;
use super::{At, Read, Violation, refusal};
use crate::jsonrpc::scan::items;

/// It has to be there and fit.
pub(in super::super) fn required<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<T, Violation> {
    let json = given.ok_or_else(|| at.violation("is missing"))?;
    T::read(json, at)
}

/// It may be absent or `null`; what is there has to fit.
pub(in super::super) fn optional<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Option<T>, Violation> {
    match given {
        None | Some("null") => Ok(None),
        Some(json) => T::read(json, at).map(Some),
    }
}

/// What does not fit counts as absent.
pub(in super::super) fn lenient<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Option<T>, Violation> {
    Ok(optional(given, at).unwrap_or_default())
}

/// What does not fit counts as `false`.
pub(in super::super) fn flag(given: Option<&str>, _: &At<'_>) -> Result<bool, Violation> {
    Ok(given == Some("true"))
}

/// Any JSON. `null` counts as absent.
pub(in super::super) fn raw<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Option<T>, Violation> {
    lenient(given, at)
}

/// `null` clears, absence leaves as it was, and what does not fit counts as absent.
pub(in super::super) fn patch<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Patch<T>, Violation> {
    Ok(match given {
        None => Patch::Unchanged,
        Some("null") => Patch::Clear,
        Some(json) => T::read(json, at).map_or(Patch::Unchanged, Patch::Set),
    })
}

/// An array whose items all have to fit.
pub(in super::super) fn list<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Vec<T>, Violation> {
    let json = given.ok_or_else(|| at.violation("is missing"))?;
    if !json.starts_with('[') {
        return Err(refusal("an array", json, at));
    }
    items(json).enumerate().map(|(index, item)| T::read(item, &at.index(index))).collect()
}

/// An array whose items all have to fit; it may be absent or `null`, which is none.
pub(in super::super) fn list_or_none<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Vec<T>, Violation> {
    match given {
        None | Some("null") => Ok(Vec::new()),
        json => list(json, at),
    }
}

/// The same, but strictly it has to be there.
pub(in super::super) fn list_there<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Vec<T>, Violation> {
    match given {
        None if at.is_strict() => Err(at.violation("is missing")),
        given => list_or_none(given, at),
    }
}

/// An array whose items all have to fit; it may be absent or `null`, which is something else than none.
pub(in super::super) fn optional_list<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Option<Vec<T>>, Violation> {
    match given {
        None | Some("null") => Ok(None),
        json => list(json, at).map(Some),
    }
}

/// An array without the items that do not fit. What is no array is an empty one.
pub(in super::super) fn fitting<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Vec<T>, Violation> {
    let all = items(given.unwrap_or_default()).enumerate();
    Ok(all.filter_map(|(index, item)| T::read(item, &at.index(index)).ok()).collect())
}

/// The same, but it has to be there.
pub(in super::super) fn fitting_there<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Vec<T>, Violation> {
    if given.is_none() {
        return Err(at.violation("is missing"));
    }
    fitting(given, at)
}

/// The same, but what is absent or no array is something else than an empty one.
pub(in super::super) fn optional_fitting<T: Read>(
    given: Option<&str>,
    at: &At<'_>,
) -> Result<Option<Vec<T>>, Violation> {
    match given {
        Some(json) if json.starts_with('[') => fitting(given, at).map(Some),
        _ => Ok(None),
    }
}
