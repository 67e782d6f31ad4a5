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
mod answering;
pub mod callback;
mod faces;
mod http;
pub mod metric_names;
mod metrics;
mod mount;
mod notify;
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
pub use access::schemes::{Scheme, anonymous};
pub use access::secret::{hash_secret, new_secret};
pub use callback::check_callback_url;
pub use faces::client::{
    ClientOptions, LocalReader, LocalWriter, MessageIdFormat, UserMessageId, WhenBusy, Wrap,
    WrapCommand, split_local,
};
pub use faces::communication::HistoryFetch;
pub use faces::connect::deliver::CallbackDelivery;
pub use mount::{ConnectOptions, ErrorBody, Mount, Operation, Protocol};
pub use notify::{NoticeDelivery, Tell, TellAddress};
pub use options::{Access, Exposure, Options};
pub use server::{Server, ShutdownReport};
pub use shared::Ports;

/// Whether a server could serve these mounts together.
///
/// # Errors
/// `already_exists` when two have one prefix, `invalid_request` when one would hide the server's own routes.
pub fn check_mounts(mounts: &[Mount]) -> trilogue_domain::Result<()> {
    routes::Router::new(faces::native::routes(), mounts).map(drop)
}

/// The OpenAPI document of `/api/v1`, as the server shows it.
#[must_use]
pub fn openapi_document() -> String {
    openapi::document(&faces::native::routes())
}
