//! What nodes tell each other over NATS: that a log goes on. It may be lost, doubled or late: the log itself is read from the database, and [`super::node::watch`] finds what nobody told of.
//!
//! A message is a version byte, the opening of its sender, and for each log its thread and its last number; integers have eight bytes, little-endian.

use std::sync::Arc;

use async_nats::{Client, ConnectOptions, Event};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};

use super::database::Database;
use super::node::RemoteAppend;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 9;
const ENTRY_BYTES: usize = 16;
/// The most messages that wait to be sent; further ones are lost.
const MAX_WAITING: usize = 1_024;
/// The most logs of one message: more than a group of appends has.
const MAX_ENTRIES: usize = 1_024;

/// The way to the other nodes.
#[derive(Debug)]
pub(super) struct News {
    sender: mpsc::Sender<Bytes>,
}

/// The connection, before the tasks that use it start.
#[derive(Debug)]
pub(super) struct NewsConnection {
    client: Client,
    subject: String,
    waiting: mpsc::Receiver<Bytes>,
}

// === impl News ===

impl News {
    /// Connects in the background: a server that cannot be reached makes others later, and stops nothing.
    /// Errors: `invalid_request` for an address that is none.
    pub(super) async fn connect(url: &str, store: &str) -> Result<(Self, NewsConnection)> {
        let options = ConnectOptions::new()
            .name("trilogue")
            .retry_on_initial_connect()
            .event_callback(|event| async move { note(&event) });
        let client = options.connect(url).await.map_err(|error| {
            // The address may hold a password.
            Error::new(Code::InvalidRequest, format!("`cluster.nats` cannot be used: {error}"))
                .hint("write it such as \"nats://nats.example.com:4222\"")
        })?;
        let (sender, waiting) = mpsc::channel(MAX_WAITING);
        let subject = format!("trilogue.{store}.log");
        Ok((Self { sender }, NewsConnection { client, subject, waiting }))
    }

    /// Tells the others where these logs end now. Never waits.
    pub(super) fn tell(&self, opening: i64, ends: &[RemoteAppend]) {
        for ends in ends.chunks(MAX_ENTRIES) {
            drop(self.sender.try_send(encode(opening, ends)));
        }
    }
}

// === impl NewsConnection ===

impl NewsConnection {
    /// Sends what is told here, and hears what others tell, until the store is closed.
    pub(super) async fn run(self, database: Arc<Database>) {
        let Self { client, subject, mut waiting } = self;
        let mut heard = match client.subscribe(subject.clone()).await {
            Ok(heard) => heard,
            Err(error) => {
                tracing::error!(%error, "news of other nodes cannot be heard");
                return;
            }
        };
        loop {
            tokio::select! {
                message = heard.next() => {
                    let Some(message) = message else { return };
                    let Some((opening, ends)) = decode(&message.payload) else { continue };
                    if opening != database.keys.opening {
                        ends.into_iter().for_each(|end| database.hear(end));
                    }
                }
                message = waiting.recv() => {
                    let Some(message) = message else { return };
                    if let Err(error) = client.publish(subject.clone(), message).await {
                        tracing::debug!(%error, "news was not sent");
                    }
                }
            }
        }
    }
}

fn note(event: &Event) {
    match event {
        Event::Connected => tracing::info!("news of other nodes arrives over NATS"),
        Event::Disconnected => {
            tracing::warn!("NATS cannot be reached: news of other nodes is late until it is back");
        }
        Event::ServerError(error) => tracing::warn!(%error, "NATS refuses something"),
        event => tracing::debug!(%event, "NATS"),
    }
}

fn encode(opening: i64, ends: &[RemoteAppend]) -> Bytes {
    let mut message = BytesMut::with_capacity(HEAD_BYTES + ends.len() * ENTRY_BYTES);
    message.put_u8(VERSION);
    message.put_i64_le(opening);
    for end in ends {
        message.put_i64_le(end.thread.0);
        message.put_u64_le(end.last);
    }
    message.freeze()
}

/// `None` for what another version, or somebody else, has sent.
fn decode(message: &[u8]) -> Option<(i64, Vec<RemoteAppend>)> {
    let (head, entries) = message.split_at_checked(HEAD_BYTES)?;
    let (version, opening) = head.split_first()?;
    if *version != VERSION
        || entries.len() % ENTRY_BYTES != 0
        || entries.len() > MAX_ENTRIES * ENTRY_BYTES
    {
        return None;
    }
    let ends = entries.chunks_exact(ENTRY_BYTES).filter_map(|entry| {
        let (thread, last) = entry.split_first_chunk::<8>()?;
        Some(RemoteAppend {
            thread: ThreadKey(i64::from_le_bytes(*thread)),
            last: u64::from_le_bytes(last.try_into().ok()?),
        })
    });
    Some((i64::from_le_bytes(opening.try_into().ok()?), ends.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_and_what_is_none_is_passed_over() {
        let ends = [
            RemoteAppend { thread: ThreadKey(7 << 40), last: 3 },
            RemoteAppend { thread: ThreadKey(1), last: u64::MAX },
        ];
        let message = encode(5, &ends);
        assert_eq!(decode(&message), Some((5, ends.to_vec())));
        assert_eq!(decode(&message[..message.len() - 1]), None);
        assert_eq!(decode(b""), None);
        assert_eq!(decode(b"hello, world"), None);
        let mut newer = message.to_vec();
        newer[0] = VERSION + 1;
        assert_eq!(decode(&newer), None);
    }
}
