//! Modes of members: how each handles absent, `null` and invalid values. The names follow the flags in the Agent Client Protocol's schema.

use std::borrow::Cow;

use super::scan::items;
use super::{Path, Read, Violation};

/// Reads a member that must be present and valid.
pub(crate) fn required<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<T, Violation> {
    match json {
        None => Err(at.violation("is missing")),
        Some("null") if at.is_exact() => Err(at.violation("must not be null")),
        Some(json) => T::read(json, at),
    }
}

/// Reads a member that may be absent or `null`. Another value must be valid.
pub(crate) fn optional<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    match json {
        None | Some("null") => Ok(T::default()),
        Some(json) => T::read(json, at),
    }
}

/// Reads a member that may be absent. Only a peer may send `null`. Another value must be valid.
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

/// Reads like [`absent_or`], with the type's default.
pub(crate) fn defaulted<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    absent_or(json, at, T::default)
}

/// Reads like [`optional`], but keeps a peer's invalid value among the unknown members.
pub(crate) fn optional_or_unknown<'j, T: Read + Default>(
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

/// Reads a member whose invalid value counts as absent.
pub(crate) fn lenient<T: Read + Default>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<T, Violation> {
    Ok(optional(json, at).unwrap_or_default())
}

/// Reads a list that may be absent or `null`, except under strict rules. All items must be valid.
pub(crate) fn list_there<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<Vec<T>, Violation> {
    match json {
        None if at.is_strict() => Err(at.violation("is missing")),
        json => optional(json, at),
    }
}

/// Reads a list without its invalid items. Any value that is not an array counts as an empty list.
pub(crate) fn fitting<T: Read>(json: Option<&str>, at: &Path<'_>) -> Result<Vec<T>, Violation> {
    let all = items(json.unwrap_or_default()).enumerate();
    Ok(all.filter_map(|(index, item)| T::read(item, &at.index(index)).ok()).collect())
}

/// Reads like [`fitting`], but the member must be present.
pub(crate) fn fitting_there<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<Vec<T>, Violation> {
    if json.is_none() {
        return Err(at.violation("is missing"));
    }
    fitting(json, at)
}

/// Reads like [`fitting`], but returns `None` for an absent member or a value that is not an array.
pub(crate) fn optional_fitting<T: Read>(
    json: Option<&str>,
    at: &Path<'_>,
) -> Result<Option<Vec<T>>, Violation> {
    match json {
        Some(json) if json.starts_with('[') => fitting(Some(json), at).map(Some),
        _ => Ok(None),
    }
}
