//! One folder for each face: its routes, its state, its views and how it says an error. A face knows no other face; what they share lies in [`common`].

pub(crate) mod client;
mod common;
pub(crate) mod communication;
pub(crate) mod connect;
pub(crate) mod inspector;
pub(crate) mod native;
