//! One folder for each face: routes, state, views and errors. A face imports no other face; [`common`] has what they share.

pub(crate) mod client;
mod common;
pub(crate) mod communication;
pub(crate) mod connect;
pub(crate) mod inspector;
pub(crate) mod native;
