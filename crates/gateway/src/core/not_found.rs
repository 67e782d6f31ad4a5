//! The "not found" errors, the same in every face.

use trilogue_domain::{Code, Error};
use trilogue_mapping::native::escape_for_message;

pub(crate) fn no_route(path: &str) -> Error {
    Error::new(Code::NotFound, format!("there is no route '{}'", escape_for_message(path)))
        .hint("the routes are listed at /api/v1/openapi.json")
}

pub(crate) fn no_thread(id: &str) -> Error {
    Error::new(Code::ThreadNotFound, format!("there is no thread '{}'", escape_for_message(id)))
}

pub(crate) fn no_run(id: &str) -> Error {
    Error::new(Code::RunNotFound, format!("there is no run '{}'", escape_for_message(id)))
}

pub(crate) fn no_interrupt(id: &str) -> Error {
    Error::new(
        Code::InterruptNotFound,
        format!("there is no interrupt '{}'", escape_for_message(id)),
    )
}
