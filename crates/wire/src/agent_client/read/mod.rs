//! Reading, with the tolerance that the protocol's schema asks for.

mod leaf;
pub(super) mod mode;
mod place;
mod violation;

pub(super) use place::At;
pub use violation::Violation;

use serde_json::value::RawValue;

use super::Json;

/// How much is taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rules {
    /// Whatever can be understood.
    #[default]
    Lenient,
    /// The letter of the protocol: lists that must be there are there, and base64 is base64.
    Strict,
}

/// What can be read. Everything in this module that comes from outside can.
pub trait Read: Sized {
    /// Reads JSON that was checked before.
    #[doc(hidden)]
    fn read(json: &str, at: &At<'_>) -> Result<Self, Violation>;
}

/// Reads one value from JSON text.
///
/// # Errors
/// The first thing that does not fit.
pub fn read<T: Read>(bytes: &[u8], rules: Rules) -> Result<T, Violation> {
    let raw: &RawValue = serde_json::from_slice(bytes)
        .map_err(|error| Violation::new("", format!("is not JSON: {error}")))?;
    T::read(raw.get(), &At::root(rules))
}

/// Reads one value from JSON text that was checked before. Text that is no JSON gives nonsense or a violation, never more.
///
/// # Errors
/// The first thing that does not fit.
pub fn read_checked<T: Read>(json: &str, rules: Rules) -> Result<T, Violation> {
    T::read(json, &At::root(rules))
}

/// Reads one value from JSON that is carried.
///
/// # Errors
/// The first thing that does not fit.
pub fn read_json<T: Read>(json: &Json, rules: Rules) -> Result<T, Violation> {
    T::read(json.as_str(), &At::root(rules))
}

/// Reads what a request or a notification carries. Nothing at all is `{}`.
///
/// # Errors
/// The first thing that does not fit.
pub fn read_params<T: Read>(params: Option<&RawValue>, rules: Rules) -> Result<T, Violation> {
    T::read(params.map_or("{}", RawValue::get), &At::root(rules))
}

/// Reads what a response carries. `null` is `{}`, which is enough where no member must be there.
///
/// # Errors
/// The first thing that does not fit.
pub fn read_result<T: Read>(result: &RawValue, rules: Rules) -> Result<T, Violation> {
    let json = match result.get() {
        "null" => "{}",
        json => json,
    };
    T::read(json, &At::root(rules))
}

/// What kind of JSON it is, in words.
pub(super) fn shape(json: &str) -> &'static str {
    match json.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
        None => "nothing",
    }
}

/// That something else was wanted.
pub(super) fn refusal(want: &str, json: &str, at: &At<'_>) -> Violation {
    at.violation(format!("must be {want}, not {}", shape(json)))
}
