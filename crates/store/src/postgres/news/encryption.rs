//! The encryption of messages between nodes. Access to NATS without the database is not enough to read or to create a message.
//!
//! A sealed message is a version byte, the id of the cluster's key, the salt of its sender, a counter, and the encrypted message with its tag. Each sender derives its key from the cluster's key and a random salt, and counts its messages under it. So no key is used twice with one counter, even if a restored database gives a number twice. The head and the subject are authenticated with the message.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::{Buf, BufMut, Bytes};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use trilogue_domain::lock;

use super::message::MAX_MESSAGE_BYTES;

/// Versions 1 and 2 were not encrypted.
const VERSION: u8 = 3;
const KEY_ID_BYTES: usize = 8;
const SALT_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + SALT_BYTES + 8;
const TAG_BYTES: usize = 16;
/// What sealing adds to a message, in bytes.
pub(super) const SEAL_BYTES: usize = HEAD_BYTES + TAG_BYTES;
/// The size of a cluster's key, in bytes.
pub(super) const KEY_BYTES: usize = 32;
/// Separates these keys from keys for other uses.
const PURPOSE: &[u8] = b"trilogue news 1";
/// The most derived sender keys that are kept. Beyond that all are derived again.
const MAX_SENDER_KEYS: usize = 1_024;

type KeyId = [u8; KEY_ID_BYTES];
type SenderSalt = [u8; SALT_BYTES];

/// A key that the nodes of a cluster share.
#[derive(Clone, Debug)]
pub(super) struct ClusterKey {
    id: KeyId,
    secret: Prk,
}

/// The cluster's keys as this node last read them, and whether it must read them again.
#[derive(Debug, Default)]
pub(super) struct ClusterKeys {
    keys: Mutex<KeySet>,
    /// Notified when a message arrives that none of the keys opens.
    pub(super) wanted: Notify,
}

#[derive(Debug, Default)]
struct KeySet {
    to_send: Option<ClusterKey>,
    all: Vec<ClusterKey>,
}

/// Encrypts what this node sends.
#[derive(Debug)]
pub(super) struct Encryptor {
    subject: String,
    current: Option<SenderKey>,
}

#[derive(Debug)]
struct SenderKey {
    id: KeyId,
    salt: SenderSalt,
    key: LessSafeKey,
    /// The counter of the next message.
    next: u64,
}

/// Decrypts what other nodes send.
#[derive(Debug)]
pub(super) struct Decryptor {
    subject: String,
    senders: HashMap<(KeyId, SenderSalt), LessSafeKey>,
}

// === impl ClusterKey ===

impl ClusterKey {
    pub(super) fn new(secret: &[u8; KEY_BYTES]) -> Self {
        let mut id = [0; KEY_ID_BYTES];
        let digest =
            Sha256::new().chain_update(b"trilogue news key id").chain_update(secret).finalize();
        id.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        Self { id, secret: Salt::new(HKDF_SHA256, PURPOSE).extract(secret) }
    }

    /// The key of the sender with this salt.
    fn derive(&self, salt: &SenderSalt) -> Option<LessSafeKey> {
        let info: [&[u8]; 1] = [salt];
        let key = self.secret.expand(&info, &CHACHA20_POLY1305).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

// === impl ClusterKeys ===

impl ClusterKeys {
    /// Returns whether a key is new.
    pub(super) fn set(&self, to_send: Option<ClusterKey>, all: Vec<ClusterKey>) -> bool {
        let mut keys = lock(&self.keys);
        let has_new = all.iter().any(|key| keys.all.iter().all(|known| known.id != key.id));
        *keys = KeySet { to_send, all };
        has_new
    }

    fn to_send(&self) -> Option<ClusterKey> {
        lock(&self.keys).to_send.clone()
    }

    fn find(&self, id: &KeyId) -> Option<ClusterKey> {
        lock(&self.keys).all.iter().find(|key| key.id == *id).cloned()
    }
}

// === impl Encryptor ===

impl Encryptor {
    pub(super) fn new(subject: &str) -> Self {
        Self { subject: subject.to_owned(), current: None }
    }

    /// Encrypts a message. `None` without a key.
    pub(super) fn encrypt(&mut self, keys: &ClusterKeys, message: &[u8]) -> Option<Bytes> {
        let cluster = keys.to_send()?;
        if self.current.as_ref().is_none_or(|sender| sender.id != cluster.id) {
            self.current = Some(SenderKey::new(&cluster)?);
        }
        let sender = self.current.as_mut()?;
        let counter = sender.next;
        sender.next = counter.checked_add(1)?;
        let mut sealed = Vec::with_capacity(message.len() + SEAL_BYTES);
        sealed.put_u8(VERSION);
        sealed.put_slice(&sender.id);
        sealed.put_slice(&sender.salt);
        sealed.put_u64_le(counter);
        let aad = authenticated(&sealed, &self.subject);
        sealed.put_slice(message);
        let (_, text) = sealed.split_at_mut_checked(HEAD_BYTES)?;
        let tag = sender.key.seal_in_place_separate_tag(nonce(counter), aad, text).ok()?;
        sealed.put_slice(tag.as_ref());
        Some(Bytes::from(sealed))
    }
}

// === impl SenderKey ===

impl SenderKey {
    fn new(cluster: &ClusterKey) -> Option<Self> {
        let mut salt = [0; SALT_BYTES];
        SystemRandom::new().fill(&mut salt).ok()?;
        Some(Self { id: cluster.id, salt, key: cluster.derive(&salt)?, next: 0 })
    }
}

// === impl Decryptor ===

impl Decryptor {
    pub(super) fn new(subject: &str) -> Self {
        Self { subject: subject.to_owned(), senders: HashMap::new() }
    }

    /// Decrypts a sealed message. `None` if no node of this store sent it on this subject, or if its key is not known yet: then the keys must be read again.
    pub(super) fn decrypt(&mut self, keys: &ClusterKeys, sealed: &Bytes) -> Option<Bytes> {
        let opened = self.try_decrypt(keys, sealed);
        if opened.is_none() {
            keys.wanted.notify_one();
        }
        opened
    }

    fn try_decrypt(&mut self, keys: &ClusterKeys, sealed: &Bytes) -> Option<Bytes> {
        let (head, text) = sealed.split_at_checked(HEAD_BYTES)?;
        if text.len() > MAX_MESSAGE_BYTES + TAG_BYTES {
            return None;
        }
        let mut fields = head;
        let version = fields.try_get_u8().ok()?;
        let (id, rest) = fields.split_first_chunk::<KEY_ID_BYTES>()?;
        let (salt, counter) = rest.split_first_chunk::<SALT_BYTES>()?;
        let counter = u64::from_le_bytes(*counter.first_chunk()?);
        // A key that was removed is no longer accepted.
        let cluster = keys.find(id).filter(|_| version == VERSION)?;
        let known = self.senders.get(&(*id, *salt));
        let derived = if known.is_none() { Some(cluster.derive(salt)?) } else { None };
        let key = known.or(derived.as_ref())?;
        let mut text = text.to_vec();
        let aad = authenticated(head, &self.subject);
        let length = key.open_in_place(nonce(counter), aad, &mut text).ok()?.len();
        text.truncate(length);
        if let Some(derived) = derived {
            // Only senders with the cluster's key reach this line.
            if self.senders.len() >= MAX_SENDER_KEYS {
                self.senders.clear();
            }
            self.senders.insert((*id, *salt), derived);
        }
        Some(Bytes::from(text))
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce.iter_mut().zip(counter.to_le_bytes()).for_each(|(to, from)| *to = from);
    Nonce::assume_unique_for_key(nonce)
}

/// The data that is authenticated with the message. A message of another subject, for example of another store, is refused.
fn authenticated(head: &[u8], subject: &str) -> Aad<Vec<u8>> {
    Aad::from([head, subject.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"a message";

    fn keys(secrets: &[u8]) -> ClusterKeys {
        let all: Vec<_> = secrets.iter().map(|it| ClusterKey::new(&[*it; KEY_BYTES])).collect();
        let keys = ClusterKeys::default();
        keys.set(all.first().cloned(), all);
        keys
    }

    #[test]
    fn a_message_opens_under_its_subject_and_key_only() {
        let sealed = Encryptor::new("s").encrypt(&keys(&[1]), TEXT).unwrap();
        let open =
            |subject, secrets: &[u8]| Decryptor::new(subject).decrypt(&keys(secrets), &sealed);
        assert_eq!(open("s", &[2, 1]).as_deref(), Some(TEXT));
        assert_eq!(open("t", &[1]), None, "another subject");
        assert_eq!(open("s", &[2]), None, "another key");
        assert_eq!(open("s", &[]), None, "no key");
        assert_eq!(sealed.len(), TEXT.len() + SEAL_BYTES);
    }

    #[test]
    fn a_changed_message_does_not_open() {
        let keys = keys(&[1]);
        let sealed = Encryptor::new("s").encrypt(&keys, TEXT).unwrap();
        let mut decryptor = Decryptor::new("s");
        assert!(decryptor.decrypt(&keys, &sealed).is_some());
        for at in 0..sealed.len() {
            assert_eq!(decryptor.decrypt(&keys, &sealed.slice(..at)), None, "cut at {at}");
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(decryptor.decrypt(&keys, &changed.into()), None, "byte {at}");
        }
        let longer = [&sealed[..], b"x"].concat();
        assert_eq!(decryptor.decrypt(&keys, &longer.into()), None);
    }

    #[test]
    fn no_two_messages_share_a_nonce_under_one_key() {
        let (mut one, mut other) = (Encryptor::new("s"), Encryptor::new("s"));
        let (old, new) = (keys(&[1]), keys(&[2, 1]));
        let mut heads = std::collections::HashSet::new();
        for keys in [&old, &old, &new, &old] {
            for encryptor in [&mut one, &mut other] {
                let sealed = encryptor.encrypt(keys, TEXT).unwrap();
                assert!(heads.insert(sealed.slice(..HEAD_BYTES)), "a head is used twice");
                assert_eq!(Decryptor::new("s").decrypt(&new, &sealed).as_deref(), Some(TEXT));
            }
        }
    }

    #[test]
    fn a_key_that_was_taken_away_opens_nothing() {
        let keys = keys(&[1]);
        let sealed = Encryptor::new("s").encrypt(&keys, TEXT).unwrap();
        let mut decryptor = Decryptor::new("s");
        assert!(decryptor.decrypt(&keys, &sealed).is_some());
        keys.set(None, Vec::new());
        assert_eq!(decryptor.decrypt(&keys, &sealed), None);
    }
}
