//! Responses after which a connection carries another protocol than HTTP.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use http::{Response, request};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;
use trilogue_domain::lock;

/// A connection after its response with status 101.
#[derive(Debug)]
pub(crate) struct UpgradedConnection {
    pub(crate) stream: TokioIo<Upgraded>,
    /// Asks the connection to end.
    pub(crate) stop: CancellationToken,
}

/// Serves a connection after its response with status 101. The connection counts until this has completed.
pub(crate) type UpgradeHandler =
    Box<dyn FnOnce(UpgradedConnection) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Carries the handler from the route to the connection, in the extensions of the response.
#[derive(Clone)]
struct UpgradeSlot(Arc<Mutex<Option<UpgradeHandler>>>);

/// Whether a request can change the protocol of its connection. Only one of HTTP/1.1 can, with a header `Upgrade`.
pub(crate) fn is_possible(head: &request::Parts) -> bool {
    head.extensions.get::<OnUpgrade>().is_some()
}

/// Sets the handler of the connection after this response.
pub(crate) fn put<B>(response: &mut Response<B>, handler: UpgradeHandler) {
    response.extensions_mut().insert(UpgradeSlot(Arc::new(Mutex::new(Some(handler)))));
}

/// Takes the handler out of a response.
pub(crate) fn take<B>(response: &mut Response<B>) -> Option<UpgradeHandler> {
    let slot = response.extensions_mut().remove::<UpgradeSlot>()?;
    lock(&slot.0).take()
}

impl fmt::Debug for UpgradeSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpgradeSlot")
    }
}
