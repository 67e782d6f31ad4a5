use serde_json::value::RawValue;

use super::{Json, Path, Style, Violation};

/// How deeply arrays and objects may lie in each other in JSON that the Agent Communication Protocol carries.
pub const MAX_DEPTH: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rules {
    /// Everything that can be understood: what a client takes from servers and agents.
    #[default]
    Lenient,
    /// What the protocol's documents say, where the official clients keep to it.
    Compatible,
    /// Exactly what the protocol's documents say.
    Strict,
}

pub trait Read: Sized {
    /// Reads JSON that was checked before.
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

/// Reads one value from JSON text that was checked before. Text that is not JSON gives nonsense or a violation, never more.
pub fn read_checked<T: Read>(json: &str, rules: Rules) -> Result<T, Violation> {
    T::read(json, &Path::root(rules, Style::Tolerant))
}

pub fn read_json<T: Read>(json: &Json, rules: Rules) -> Result<T, Violation> {
    read_checked(json.as_str(), rules)
}

/// Reads the params of a request or a notification. Absent params are `{}`.
pub fn read_params<T: Read>(params: Option<&RawValue>, rules: Rules) -> Result<T, Violation> {
    read_checked(params.map_or("{}", RawValue::get), rules)
}

/// Reads the result of a response. `null` is `{}`, which is enough where no member is required.
pub fn read_result<T: Read>(result: &RawValue, rules: Rules) -> Result<T, Violation> {
    let json = match result.get() {
        "null" => "{}",
        json => json,
    };
    read_checked(json, rules)
}
