//! Modes of members: which misfits are tolerated. The names follow the flags in the Agent Client Protocol's schema.

use std::borrow::Cow;

use super::scan::items;
use super::{Path, Read, Violation};

/// It has to be there and fit.
pub(crate) fn required<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<T, Violation> {
    match json {
        None => Err(at.violation("is missing")),
        Some("null") if at.is_exact() => Err(at.violation("must not be null")),
        Some(json) => T::read(json, at),
    }
}

/// It may be absent or `null`; another value has to fit.
pub(crate) fn optional<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    match json {
        None | Some("null") => Ok(T::default()),
        Some(json) => T::read(json, at),
    }
}

/// It may be absent, but `null` only from a peer; another value has to fit.
pub(crate) fn absent_or<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
    default: impl FnOnce() -> T,
) -> Result<T, Violation> {
    match json {
        None => Ok(default()),
        Some("null") if at.is_lenient() => Ok(default()),
        Some("null") => Err(at.violation("must not be null; it may be left out")),
        Some(json) => T::read(json, at),
    }
}

/// As [`absent_or`] with the type's default.
pub(crate) fn defaulted<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    absent_or(json, at, T::default)
}

/// As [`optional`], but a misfit from a peer stays among the unknown members.
pub(crate) fn kept<'j, T: Read + Default>(
    json: Option<&'j str>,
    object: &Path<'_>,
    name: &'static str,
    unknown: &mut Vec<(Cow<'j, str>, &'j str)>,
) -> Result<T, Violation> {
    match (optional(json, &object.key(name)), json) {
        (Err(_), Some(json)) if object.is_lenient() => {
            unknown.push((Cow::Borrowed(name), json));
            Ok(T::default())
        }
        (read, _) => read,
    }
}

/// A misfit counts as absent.
pub(crate) fn lenient<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    Ok(optional(json, at).unwrap_or_default())
}

/// A list that may be absent or `null`, except under strict rules. All items have to fit.
pub(crate) fn list_there<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<Vec<T>, Violation> {
    match json {
        None if at.is_strict() => Err(at.violation("is missing")),
        json => optional(json, at),
    }
}

/// A list without the items that do not fit. Anything but an array is an empty one.
pub(crate) fn fitting<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<Vec<T>, Violation> {
    let all = items(json.unwrap_or_default()).enumerate();
    Ok(all.filter_map(|(index, item)| T::read(item, &at.index(index)).ok()).collect())
}

/// As [`fitting`], but it has to be there.
pub(crate) fn fitting_there<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<Vec<T>, Violation> {
    if json.is_none() {
        return Err(at.violation("is missing"));
    }
    fitting(json, at)
}

/// As [`fitting`], but an absent list, or anything but an array, is not an empty one.
pub(crate) fn optional_fitting<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<Option<Vec<T>>, Violation> {
    match json {
        Some(json) if json.starts_with('[') => fitting(Some(json), at).map(Some),
        _ => Ok(None),
    }
}
