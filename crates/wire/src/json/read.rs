use serde_json::value::RawValue;

use super::{Json, Path, Style, Violation};

/// The maximum nesting of JSON that the Agent Communication Protocol carries.
pub const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rules {
    /// Everything that can be understood. Clients use this for servers and agents.
    #[default]
    Lenient,
    /// The protocol's documents, except where the official clients differ from them.
    Compatible,
    /// Exactly the protocol's documents.
    Strict,
}

pub trait Read: Sized {
    /// Reads checked JSON.
    #[doc(hidden)]
    fn read(json: &str, at: &Path<'_>) -> Result<Self, Violation>;
}

pub fn read<T: Read>(bytes: &[u8], rules: Rules) -> Result<T, Violation> {
    read_styled(bytes, rules, Style::Tolerant)
}

pub(crate) fn read_styled<T: Read>(
    bytes: &[u8],
    rules: Rules,
    style: Style,
) -> Result<T, Violation> {
    let at = Path::root(rules, style);
    match serde_json::from_slice::<&RawValue>(bytes) {
        Ok(raw) => T::read(raw.get(), &at),
        Err(_) if at.is_exact() && bytes.iter().all(u8::is_ascii_whitespace) => {
            Err(at.violation("must be a JSON object, but it is empty"))
        }
        Err(error) => {
            let Violation { root, .. } = at.violation("");
            Err(Violation { root, ..Violation::malformed(error) })
        }
    }
}

/// Reads one value from checked JSON text. For text that is not JSON, the result is a violation or an arbitrary value; it never panics.
pub fn read_checked<T: Read>(json: &str, rules: Rules) -> Result<T, Violation> {
    T::read(json, &Path::root(rules, Style::Tolerant))
}

pub fn read_json<T: Read>(json: &Json, rules: Rules) -> Result<T, Violation> {
    read_checked(json.as_str(), rules)
}

/// Reads the params of a request or a notification. Absent params count as `{}`.
pub fn read_params<T: Read>(params: Option<&RawValue>, rules: Rules) -> Result<T, Violation> {
    read_checked(params.map_or("{}", RawValue::get), rules)
}

/// Reads the result of a response. `null` counts as `{}`, which is valid if no member is required.
pub fn read_result<T: Read>(result: &RawValue, rules: Rules) -> Result<T, Violation> {
    let json = match result.get() {
        "null" => "{}",
        json => json,
    };
    read_checked(json, rules)
}
