//! Moves threads between nodes on purpose: to a node where a client works with them, or away from a node that drains.
//!
//! A thread moves while it is idle, so no run is interrupted.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio::time::timeout;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Scope, ThreadId, ThreadKey};
use trilogue_store::rows::ThreadRow;

use crate::handle::{MAX_OWNERS_AT_ONCE, Runtime};
use crate::owner::{Envelope, HandOver, stopped_error};
use crate::request::HandOverAll;
use crate::services::Services;

/// How long a hand-over waits for an active thread.
const HAND_OVER_WAIT: Duration = Duration::from_secs(10);
/// How long a stopping server looks for another node that takes its threads: the database may be unreachable.
const OTHER_NODE_WAIT: Duration = Duration::from_secs(2);

// === impl Runtime ===

impl Runtime {
    /// Makes this node the owner of a thread that the caller has looked up.
    /// Errors: `thread_elsewhere` while another node owns it, and those of loading it.
    pub async fn take(&self, thread: &ThreadRow) -> Result<()> {
        self.services().load(thread.key).await
    }

    /// Gives a thread to the node of this name when the thread is idle.
    /// Errors: `thread_not_found`; `thread_busy` if it is still active after ten seconds; `not_found` if no live node that takes threads has the name; `thread_elsewhere` if this node does not own it; and the store's errors.
    pub async fn hand_over(&self, scope: &Scope, id: &ThreadId, to: &str) -> Result<()> {
        let services = self.services();
        let thread = self.thread_row(scope, id).await?;
        let (reply, given) = oneshot::channel();
        services.send(thread.key, Envelope::HandOver(HandOver::To(to.to_owned(), reply))).await?;
        match timeout(HAND_OVER_WAIT, given).await {
            Ok(given) => given.map_err(|_| stopped_error())?,
            Err(_) => Err(Error::new(Code::ThreadBusy, format!("the thread '{id}' is at work"))
                .hint("try again when its run has ended")),
        }
    }

    /// Starts or ends draining. While it drains, this node hands over each of its threads when it is idle, and takes no others. It has no effect while no other node can take over.
    /// Errors: `invalid_request` if one process holds the store, and the store's errors.
    pub async fn set_draining(&self, draining: bool) -> Result<()> {
        self.services().store.set_draining(draining).await?;
        if draining {
            give_up(self.services()).await;
        }
        Ok(())
    }

    /// Hands over all threads before the server stops, each when it is idle, and takes no others: from then on, requests for them belong to the other nodes. Returns when this node has no thread left, at the latest after `limit`.
    pub async fn hand_over_all(&self, limit: Duration) -> HandOverAll {
        let services = self.services();
        if services.store.node().is_none() {
            return HandOverAll::NoOtherNode;
        }
        // Threads that are loaded later see that this node drains.
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

/// Gives up the threads of this node while it drains and another node takes them. Returns whether that is the case.
pub(crate) async fn give_up(services: &Arc<Services>) -> bool {
    let store = &services.store;
    if !store.is_draining() || store.check_takes(ThreadKey(0)).await.is_ok() {
        return false;
    }
    let owned = services.owned();
    match store.hand_over_all_but(&owned).await {
        Ok(0) => {}
        Ok(threads) => {
            // Their open runs count at the next owners.
            services.monitor.keep_only(&services.owned().into_iter().collect());
            tracing::info!(threads, "idle threads were handed over");
        }
        Err(error) => tracing::warn!(%error, "idle threads could not be handed over"),
    }
    stream::iter(owned)
        .for_each_concurrent(MAX_OWNERS_AT_ONCE, |thread| async move {
            // An owner that has left meanwhile has already given up its thread.
            drop(services.send(thread, Envelope::HandOver(HandOver::ToAnybody)).await);
        })
        .await;
    true
}
