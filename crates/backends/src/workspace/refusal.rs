//! How what goes wrong is said to an agent.

use std::borrow::Cow;
use std::io;

use serde_json::json;
use trilogue_wire::agent_client::{Json, Read, Rules, read, splice};
use trilogue_wire::jsonrpc::{Code, ErrorObject, Payload};

/// Reads what a request carries, whether its session id was cut out or left empty.
pub(super) fn params<T: Read>(params: &str) -> Result<T, ErrorObject> {
    let whole = match splice::get(params, &["sessionId"]) {
        Some(_) => Cow::Borrowed(params),
        None => splice::set_text(params, &["sessionId"], "").map_or(params.into(), Cow::Owned),
    };
    read(whole.as_bytes(), Rules::Lenient).map_err(|why| refused(why.to_string()))
}

/// A result, as JSON.
pub(super) fn result(result: &impl Payload) -> Vec<u8> {
    let mut out = Vec::new();
    result.write(&mut out);
    out
}

/// What was asked for may not be, or is too much.
pub(super) fn refused(why: impl Into<String>) -> ErrorObject {
    ErrorObject::new(Code::INVALID_PARAMS, why)
}

/// There is no such file or terminal.
pub(super) fn not_found(what: &str) -> ErrorObject {
    let data = Json::from_value(&json!({ "uri": what }));
    ErrorObject::new(Code::RESOURCE_NOT_FOUND, format!("Resource not found: {what}")).data(data)
}

/// What the system said of a file.
pub(super) fn of_file(path: &str, error: &io::Error) -> ErrorObject {
    let shown = path.escape_debug();
    let data = || Json::from_value(&json!({ "path": path }));
    match error.kind() {
        io::ErrorKind::NotFound => not_found(path),
        // What leads outside is refused as if the system did not permit it.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(path),
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::FileTooLarge => refused(format!("'{shown}': {error}")).data(data()),
        _ => ErrorObject::new(Code::INTERNAL_ERROR, format!("'{shown}': {error}")).data(data()),
    }
}

/// The work on a file came to no end.
pub(super) fn lost() -> ErrorObject {
    ErrorObject::new(Code::INTERNAL_ERROR, "the server is stopping")
}

/// The path begins or ends outside of the workspace.
pub(super) fn outside(path: &str) -> ErrorObject {
    let data = Json::from_value(&json!({ "path": path }));
    refused(format!("'{}' is outside of the workspace", path.escape_debug())).data(data)
}
