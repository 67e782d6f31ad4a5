//! The faces: routes, views, authentication, limits, metrics, graceful shutdown.
//!
//! [`Server::start`] serves [`Ports`] under [`Options`] on listeners that were bound elsewhere.
//!
//! # Invariants
//! - Only this crate chooses HTTP statuses, and one table does it.
//! - Every request passes the host and origin checks before it is routed.
//! - Every lookup takes the caller's scope: objects outside of it are *not found*.
//! - Events reach clients only through the store's read port, after their commit.
//! - Modules use only those before them: `core`, `access`, `http`, `stream`, `route` and `face`, `faces::common`, each of `faces`, `mounts`, `local` and `pipeline`, `tcp`, `server`. A face uses no other face.

mod access;
pub mod callback;
mod core;
pub mod face;
mod faces;
mod http;
mod local;
mod mounts;
mod notify;
mod otlp;
mod pipeline;
mod route;
mod server;
mod stream;
mod tcp;

pub use crate::access::schemes::anonymous;
pub use crate::access::secret::{hash_secret, new_secret};
pub use crate::callback::check_callback_url;
pub use crate::core::audit::{AUDIT_TARGET, AuditActor, AuditEvent, audit};
pub use crate::core::callback_secrets::{CallbackOwner, CallbackSecrets};
pub use crate::core::descriptors::raise_descriptor_limit;
pub use crate::core::exposure::{Exposure, Proxies};
pub use crate::core::meters::install_recorder;
pub use crate::core::metric_names;
pub use crate::core::options::{Access, Options};
pub use crate::core::ports::{AgentProcesses, Ports};
pub use crate::core::scheme::Scheme;
pub use crate::face::Protocol;
pub use crate::faces::client::{
    ClientOptions, ClientProtocol, LocalReader, LocalWriter, MessageIdFormat, UserMessageId,
    WhenBusy, Wrap, WrapCommand, split_local,
};
pub use crate::faces::communication::{CommunicationOptions, HistoryFetch};
pub use crate::faces::connect::{CallbackDelivery, ConnectOptions, ErrorBody};
pub use crate::faces::native::openapi_document;
pub use crate::mounts::{Mount, check_mounts, protocols};
pub use crate::notify::{AddressNotifier, NoticeDelivery, Notifier};
pub use crate::otlp::{TraceCollector, TraceExporter, TraceOptions};
pub use crate::server::{Server, ShutdownReport};
