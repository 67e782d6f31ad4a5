//! Threads that change their node on purpose: to a node where a client works with them, or away from a node that drains.
//!
//! A thread moves when it has nothing to do: no run is cut short.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Scope, ThreadId, ThreadKey};
use trilogue_store::rows::ThreadRow;

use crate::handle::{MAX_OWNERS_AT_ONCE, Runtime};
use crate::owner::{Envelope, HandOver, stopped};
use crate::request::HandOverAll;
use crate::services::Services;

/// How long a thread that is at work may keep a wish to hand it over waiting.
const HAND_OVER_WAIT: Duration = Duration::from_secs(10);
/// How long a server that stops looks for another node that takes its threads: the database may be away.
const OTHER_NODE_WAIT: Duration = Duration::from_secs(2);

// === impl Runtime ===

impl Runtime {
    /// Makes this node the owner of a thread that the caller has looked up.
    /// Errors: `thread_elsewhere` while another node owns it, and as loading it.
    pub async fn take(&self, thread: &ThreadRow) -> Result<()> {
        self.services().load(thread.key).await
    }

    /// Gives a thread to the node of this name, when it has nothing to do.
    /// Errors: `thread_not_found`; `thread_busy` when it is still at work after ten seconds; `not_found` where no live node that takes threads has the name; `thread_elsewhere` where this node does not own it; and as storing.
    pub async fn hand_over(&self, scope: &Scope, id: &ThreadId, to: &str) -> Result<()> {
        let services = self.services();
        let thread = self.thread_row(scope, id).await?;
        let (reply, given) = oneshot::channel();
        services.send(thread.key, Envelope::HandOver(HandOver::To(to.to_owned(), reply))).await?;
        match timeout(HAND_OVER_WAIT, given).await {
            Ok(given) => given.map_err(|_| stopped())?,
            Err(_) => Err(Error::new(Code::ThreadBusy, format!("the thread '{id}' is at work"))
                .hint("try again when its run has ended")),
        }
    }

    /// Has this node hand all its threads over, each when it has nothing to do, and take no others; or take threads again. While no other node can take them, it goes on as before.
    /// Errors: `invalid_request` where one process holds the store, and as storing.
    pub async fn set_draining(&self, draining: bool) -> Result<()> {
        self.services().store.set_draining(draining).await?;
        if draining {
            give_up(self.services()).await;
        }
        Ok(())
    }

    /// Hands all threads over before the server stops, each when it has nothing to do, and takes no others: requests for them belong to the other nodes from now on. Returns when this node has none left, and at the latest after `limit`.
    pub async fn hand_over_all(&self, limit: Duration) -> HandOverAll {
        let services = self.services();
        if services.store.node().is_none() {
            return HandOverAll::NoOtherNode;
        }
        // Those that are loaded from now on find that this node drains.
        let begin = async {
            services.store.set_draining(true).await?;
            let owned = services.owned();
            Ok::<_, Error>(give_up(services).await.then_some(owned))
        };
        let owned = match timeout(OTHER_NODE_WAIT.min(limit), begin).await {
            Ok(Ok(Some(owned))) => owned,
            Ok(Ok(None)) | Err(_) => return HandOverAll::NoOtherNode,
            Ok(Err(error)) => {
                tracing::warn!(%error, "threads cannot be handed over before the stop");
                return HandOverAll::NoOtherNode;
            }
        };
        match timeout(limit, services.all_left(owned)).await {
            Ok(()) => HandOverAll::Done,
            Err(_) => HandOverAll::AtWork,
        }
    }
}

/// Gives up what this node owns, as long as it drains and another node takes it. Returns whether that is so.
pub(crate) async fn give_up(services: &Arc<Services>) -> bool {
    let store = &services.store;
    if !store.is_draining() || store.check_takes(ThreadKey(0)).await.is_ok() {
        return false;
    }
    let owned = services.owned();
    match store.hand_over_all_but(&owned).await {
        Ok(0) => {}
        Ok(threads) => tracing::info!(threads, "idle threads were handed over"),
        Err(error) => tracing::warn!(%error, "idle threads could not be handed over"),
    }
    stream::iter(owned)
        .for_each_concurrent(MAX_OWNERS_AT_ONCE, |thread| async move {
            // An owner that has left meanwhile has given its thread up.
            drop(services.send(thread, Envelope::HandOver(HandOver::ToAnybody)).await);
        })
        .await;
    true
}
