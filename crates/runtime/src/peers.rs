//! Messages between nodes that share the store: which rows change, which principal was shown which question, which threads have clients.
//!
//! Best effort: any message can be lost. Then a list is read again, an answer without an id is for what this node has shown, and a deadline counts as if the client had left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{MissedTickBehavior, interval};
use trilogue_store::{PeerMessage, PeerNews};

use crate::services::Services;
use crate::shown::ShownQuestions;

/// How often a node publishes which threads have clients that can answer.
pub(crate) const BEAT: Duration = Duration::from_secs(1);
/// The most threads that it publishes.
const MAX_PRESENT: usize = 10_000;
/// The most threads in one message.
const MAX_IN_NOTE: usize = 1_024;

/// Processes messages of other nodes while the runtime exists.
pub(crate) async fn receive_messages(
    services: Arc<Services>,
    shown: Arc<ShownQuestions>,
    mut heard: Receiver<PeerNews>,
) {
    loop {
        match heard.recv().await {
            Ok(PeerNews::Message(PeerMessage::Rows(changes))) => {
                services.row_changes.publish(changes.into())
            }
            Ok(PeerNews::Message(PeerMessage::Shown(question))) => shown.record_remote(question),
            Ok(PeerNews::Message(PeerMessage::Present(threads))) => {
                services.presence_table.record_remote(&threads);
            }
            // The faces handle tokens.
            Ok(PeerNews::Message(PeerMessage::Revoked(_))) => {}
            Ok(PeerNews::Missed) | Err(RecvError::Lagged(_)) => {
                services.row_changes.publish_missed()
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Publishes repeatedly which threads have clients on this node that can answer.
pub(crate) async fn publish_presence(services: Arc<Services>) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        services.presence_table.tidy();
        if services.store.has_peers() {
            for threads in services.presence_table.local_threads(MAX_PRESENT).chunks(MAX_IN_NOTE) {
                services.store.publish(PeerMessage::Present(threads.to_vec()));
            }
        }
    }
}
