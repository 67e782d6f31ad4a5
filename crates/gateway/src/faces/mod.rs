//! One folder for each face: its routes, its state, its views and how it says an error.

pub(crate) mod client;
pub(crate) mod communication;
pub(crate) mod connect;
pub(crate) mod native;
