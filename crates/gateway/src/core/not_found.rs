//! The "not found" errors, the same in every face.

use trilogue_domain::{Code, Error};
use trilogue_mapping::native::escape_for_message;

pub(crate) fn no_route(path: &str) -> Error {
    Error::new(Code::NotFound, format!("route '{}' not found", escape_for_message(path)))
        .hint("the routes are listed at /api/v1/openapi.json")
}

pub(crate) fn no_thread(id: &str) -> Error {
    Error::new(Code::ThreadNotFound, format!("thread '{}' not found", escape_for_message(id)))
}

pub(crate) fn no_run(id: &str) -> Error {
    Error::new(Code::RunNotFound, format!("run '{}' not found", escape_for_message(id)))
}

pub(crate) fn no_interrupt(id: &str) -> Error {
    Error::new(Code::InterruptNotFound, format!("interrupt '{}' not found", escape_for_message(id)))
}
