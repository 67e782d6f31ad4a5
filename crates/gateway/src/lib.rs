//! The faces: routes, views, authentication, limits, metrics, graceful shutdown.
//!
//! [`Server::start`] serves [`Ports`] under [`Options`] on listeners that were bound elsewhere.
//!
//! # Invariants
//! - Only this crate chooses HTTP statuses, and one table does it.
//! - Every request passes the host and origin checks before it is routed.
//! - Every look-up takes the caller's scope: what lies outside is *not found*.
//! - Events reach clients by the store's read port only, after their commit.

mod access;
mod api;
pub mod callback;
mod http;
pub mod metric_names;
mod metrics;
mod openapi;
mod options;
mod pipeline;
mod routes;
mod rows;
mod server;
mod shared;
mod stream;
mod trace;

pub use access::peers::Proxies;
pub use access::secret::{hash_secret, new_secret};
pub use options::{Access, Exposure, Options};
pub use server::{Server, ShutdownReport};
pub use shared::Ports;

/// The OpenAPI document of `/api/v1`, as the server shows it.
#[must_use]
pub fn openapi_document() -> String {
    openapi::document(&api::routes())
}
