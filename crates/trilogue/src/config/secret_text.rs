//! Secrets that settings name by a variable or a file, so that no configuration holds them.

use std::path::Path;

use trilogue_domain::error::{Code, Error, Result};

/// The longest secret, in bytes.
const MAX_BYTES: u64 = 64 * 1024;

/// The secret of the settings `NAME_env` and `NAME_file`, without the white space around it; `None` when neither is set.
/// Fails with `invalid_request` when both are set, or the secret cannot be read.
pub(crate) fn secret_text(
    name: &str,
    variable: &Option<String>,
    file: &Option<String>,
) -> Result<Option<String>> {
    let wrong = |kind: &str, why: String| {
        Error::new(Code::InvalidRequest, format!("`{name}_{kind}`: {why}"))
    };
    let text = match (variable, file) {
        (Some(_), Some(_)) => {
            let why = format!("`{name}_env` names one too");
            return Err(wrong("file", why).hint("set one of the two"));
        }
        (Some(variable), None) => std::env::var(variable).map_err(|_| {
            wrong("env", format!("the variable '{}' is not set", variable.escape_debug()))
                .hint("set it where the server starts")
        })?,
        (None, Some(file)) => secret_of_file(Path::new(file)).map_err(|why| wrong("file", why))?,
        (None, None) => return Ok(None),
    };
    Ok(Some(text.trim().to_owned()))
}

/// Checks the settings of a secret without reading its variable, which may be set only where the server starts.
/// Fails as [`secret_text`].
pub(crate) fn check_secret_text(
    name: &str,
    variable: &Option<String>,
    file: &Option<String>,
) -> Result<()> {
    match file {
        Some(_) => secret_text(name, variable, file).map(drop),
        None => Ok(()),
    }
}

/// The text of a file with a secret.
pub(crate) fn secret_of_file(path: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| format!("'{}' cannot be read: {error}", path.display());
    let length = std::fs::metadata(path).map_err(told)?.len();
    if length > MAX_BYTES {
        return Err(format!("'{}' has {length} bytes; {MAX_BYTES} is the most", path.display()));
    }
    std::fs::read_to_string(path).map_err(told)
}
