//! The messages of nodes over NATS: durable appends, with their frames if these are small, and notes. Best effort: a message may be lost, duplicated or late. The log itself is in the database, and [`super::node::watch`] finds changes that no message announced.
//!
//! Messages are encrypted with a key from the database: access to NATS alone is not enough to read or to create one.

mod encryption;
#[cfg(test)]
mod forged;
pub(super) mod keys;
mod message;
mod subscriber;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use async_nats::{Client, ConnectOptions, Event};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{broadcast, mpsc};
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::{Clock, ReadOriginal};

use self::encryption::{ClusterKeys, Encryptor, SEAL_BYTES};
pub(super) use self::message::{AppendNotice, LogRemoval};
use self::message::{MAX_APPEND_BYTES, NewsWriter};
use self::subscriber::NewsSubscriber;
use crate::core::tail::Tails;
use crate::news::{PeerMessage, PeerNews};

/// The most groups of appends and notes that wait to be sent. Further ones are lost.
const MAX_WAITING: usize = 1_024;
/// The most bytes of frames that wait to be sent. For further appends, only the ends of their logs are sent.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;
/// The most messages that wait in the NATS client.
const MAX_IN_CLIENT: usize = 64;

/// The connection to the other nodes.
#[derive(Debug)]
pub(super) struct News {
    sender: mpsc::Sender<OutgoingNews>,
    state: Arc<NewsState>,
}

/// The connection, before the tasks that use it start.
#[derive(Debug)]
pub(super) struct NewsConnection {
    client: Client,
    subject: String,
    waiting: mpsc::Receiver<OutgoingNews>,
    state: Arc<NewsState>,
}

#[derive(Debug)]
struct NewsState {
    tails: Arc<Tails>,
    peer_news: broadcast::Sender<PeerNews>,
    keys: ClusterKeys,
    is_connected: AtomicBool,
    /// Bytes of frames that wait to be sent.
    waiting_bytes: AtomicUsize,
    /// Messages that were lost since the last one that was sent.
    lost: AtomicU64,
}

#[derive(Debug)]
enum OutgoingNews {
    Appends(Vec<AppendNotice>),
    Message(PeerMessage),
}

// === impl News ===

impl News {
    /// Connects in the background. A server that cannot be reached delays messages and stops nothing else.
    /// Errors: `invalid_request` for an invalid address.
    pub(super) async fn connect(
        url: &str,
        store: &str,
        tails: &Arc<Tails>,
        heard: &broadcast::Sender<PeerNews>,
    ) -> Result<(Self, NewsConnection)> {
        let state = Arc::new(NewsState {
            tails: Arc::clone(tails),
            peer_news: heard.clone(),
            keys: ClusterKeys::default(),
            is_connected: AtomicBool::new(false),
            waiting_bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        });
        let noting = Arc::clone(&state);
        let options = ConnectOptions::new()
            .name("trilogue")
            .retry_on_initial_connect()
            // Also for servers that the first one announces.
            .require_tls(url.starts_with("tls://"))
            .client_capacity(MAX_IN_CLIENT)
            .event_callback(move |event| {
                noting.on_event(&event);
                std::future::ready(())
            });
        let client = options.connect(url).await.map_err(|error| {
            // The address may hold a password.
            Error::new(Code::InvalidRequest, format!("`cluster.nats` cannot be used: {error}"))
                .hint("write it such as \"nats://nats.example.com:4222\"")
        })?;
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let subject = format!("trilogue.{store}.log");
        let connection = NewsConnection { client, subject, waiting, state: Arc::clone(&state) };
        Ok((Self { sender, state }, connection))
    }

    pub(super) fn is_connected(&self) -> bool {
        self.state.is_connected.load(Ordering::Acquire)
    }

    /// Publishes durable appends to the other nodes. Never waits.
    pub(super) fn publish_appends(&self, mut appends: Vec<AppendNotice>) {
        if appends.is_empty() {
            return;
        }
        let mut bytes = 0;
        for append in &mut appends {
            if append.bytes() > MAX_APPEND_BYTES || append.removal.is_some() {
                append.frames = Vec::new();
            }
            bytes += append.bytes();
        }
        if self.state.waiting_bytes.load(Ordering::Relaxed) + bytes > MAX_WAITING_BYTES {
            appends.iter_mut().for_each(|append| append.frames = Vec::new());
            bytes = 0;
        }
        self.state.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.send(OutgoingNews::Appends(appends)) {
            self.state.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Publishes a note to the other nodes. Never waits.
    pub(super) fn publish_message(&self, note: PeerMessage) {
        self.send(OutgoingNews::Message(note));
    }

    fn send(&self, told: OutgoingNews) -> bool {
        let is_sent = self.is_connected() && self.sender.try_send(told).is_ok();
        if !is_sent {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
        is_sent
    }
}

// === impl NewsConnection ===

impl NewsConnection {
    /// Sends this opening's messages and receives those of others, until the store is closed.
    pub(super) async fn run(
        self,
        opening: i64,
        reader: Arc<dyn ReadOriginal>,
        clock: Arc<dyn Clock>,
    ) {
        let Self { client, subject, mut waiting, state } = self;
        let mut heard = match client.subscribe(subject.clone()).await {
            Ok(heard) => heard,
            Err(error) => {
                tracing::error!(%error, "news of other nodes cannot be heard");
                return;
            }
        };
        let mut writer = NewsWriter::new(opening);
        let mut encryptor = Encryptor::new(&subject);
        let mut ear =
            NewsSubscriber::new(opening, &subject, reader, Arc::clone(&clock), Arc::clone(&state));
        loop {
            tokio::select! {
                message = heard.next() => {
                    let Some(message) = message else { return };
                    ear.on_message(&message.payload);
                }
                told = waiting.recv() => {
                    let Some(told) = told else { return };
                    let max_bytes = client.max_payload().saturating_sub(SEAL_BYTES);
                    writer.begin(max_bytes, clock.now());
                    for message in state.pack(&mut writer, &mut encryptor, told) {
                        if let Err(error) = client.publish(subject.clone(), message).await {
                            tracing::debug!(%error, "news was not sent");
                        }
                    }
                }
            }
        }
    }
}

// === impl NewsState ===

impl NewsState {
    /// The messages with these entries, encrypted. Empty without a key: the others then notice the missing numbers.
    fn pack(
        &self,
        writer: &mut NewsWriter,
        encryptor: &mut Encryptor,
        told: OutgoingNews,
    ) -> Vec<Bytes> {
        writer.skip(self.lost.swap(0, Ordering::Relaxed));
        match told {
            OutgoingNews::Appends(appends) => {
                let bytes: usize = appends.iter().map(AppendNotice::bytes).sum();
                appends.iter().for_each(|append| writer.append(append));
                self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            OutgoingNews::Message(note) => writer.push_message(&note),
        }
        let messages = writer.finish();
        messages.iter().filter_map(|message| encryptor.encrypt(&self.keys, message)).collect()
    }

    /// Forgets state that depends on the lost messages, for example on the removal of a run.
    fn on_messages_lost(&self) {
        self.tails.forget_remote_frames();
        // The send fails if there are no listeners, which is harmless.
        drop(self.peer_news.send(PeerNews::Missed));
    }

    fn on_event(&self, event: &Event) {
        match event {
            Event::Connected => {
                self.is_connected.store(true, Ordering::Release);
                self.on_messages_lost();
                tracing::info!("news of other nodes arrives over NATS");
            }
            Event::Disconnected => {
                self.is_connected.store(false, Ordering::Release);
                self.on_messages_lost();
                tracing::warn!(
                    "NATS cannot be reached: news of other nodes is late until it is back"
                );
            }
            Event::SlowConsumer(_) => self.on_messages_lost(),
            Event::ServerError(error) => tracing::warn!(%error, "NATS refuses something"),
            event => tracing::debug!(%event, "NATS"),
        }
    }
}

#[cfg(test)]
mod tests;
