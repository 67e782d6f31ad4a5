use std::borrow::Cow;
use std::io;

use serde_json::json;
use trilogue_wire::agent_client::{Json, Read, Rules, read, splice};
use trilogue_wire::jsonrpc::{Code, ErrorObject, Payload};

/// Reads the params of a request, with or without a session id.
pub(super) fn params<T: Read>(params: &str) -> Result<T, ErrorObject> {
    let whole = match splice::get(params, &["sessionId"]) {
        Some(_) => Cow::Borrowed(params),
        None => splice::set_text(params, &["sessionId"], "").map_or(params.into(), Cow::Owned),
    };
    read(whole.as_bytes(), Rules::Lenient).map_err(|why| invalid_params(why.to_string()))
}

pub(super) fn result(result: &impl Payload) -> Vec<u8> {
    let mut out = Vec::new();
    result.write(&mut out);
    out
}

/// The request is not allowed, or above a limit.
pub(super) fn invalid_params(why: impl Into<String>) -> ErrorObject {
    ErrorObject::new(Code::INVALID_PARAMS, why)
}

pub(super) fn not_found(what: &str) -> ErrorObject {
    let data = Json::from_value(&json!({ "uri": what }));
    ErrorObject::new(Code::RESOURCE_NOT_FOUND, format!("Resource not found: {what}")).data(data)
}

/// The system's error about a file.
pub(super) fn of_file(path: &str, error: &io::Error) -> ErrorObject {
    let shown = path.escape_debug();
    let data = || Json::from_value(&json!({ "path": path }));
    match error.kind() {
        io::ErrorKind::NotFound => not_found(path),
        // A path that leads outside has no error number of the system.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(path),
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::FileTooLarge => invalid_params(format!("'{shown}': {error}")).data(data()),
        _ => ErrorObject::new(Code::INTERNAL_ERROR, format!("'{shown}': {error}")).data(data()),
    }
}

pub(super) fn shutting_down() -> ErrorObject {
    ErrorObject::new(Code::INTERNAL_ERROR, "the server is shutting down")
}

/// The path begins or leads outside of the workspace.
pub(super) fn outside(path: &str) -> ErrorObject {
    let data = Json::from_value(&json!({ "path": path }));
    invalid_params(format!("'{}' is outside of the workspace", path.escape_debug())).data(data)
}
