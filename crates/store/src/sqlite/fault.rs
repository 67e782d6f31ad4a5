//! The fault domain: what a failure means for the store, and for one thread.
//!
//! ```text
//! healthy ⇄ full           SQLITE_FULL; back when there is room again
//!    │       │
//!    ├───────┴─▶ read-only an I/O error; until the next start
//!    └─────────▶ corrupt   SQLite's own structures are damaged; until it is restored
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error, Result};
pub(super) use trilogue_domain::lock;

/// How often, at most, a full store looks whether there is room again.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The extended code for "the shared-memory file cannot grow", which on a full disk comes before any other.
const IOERR_SHMSIZE: i32 = 4_874;

/// Why something inside the engine did not work.
#[derive(Debug)]
pub(super) enum Fail {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// A rule of ours said so; the store is well.
    Refused(Error),
    /// A row, frame or blob is damaged.
    Damaged(Option<ThreadKey>, Error),
}

/// The state of the whole store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum State {
    Healthy = 0,
    Full = 1,
    ReadOnly = 2,
    Corrupt = 3,
    Closed = 4,
}

/// The store's state and its quarantined threads. Shared by the writer and all readers.
#[derive(Debug)]
pub(super) struct Health {
    path: PathBuf,
    state: AtomicU8,
    /// What was seen first, for the message.
    detail: Mutex<String>,
    probed: Mutex<Option<Instant>>,
    any_quarantined: AtomicBool,
    quarantined: Mutex<HashMap<ThreadKey, String>>,
}

// === impl Fail ===

impl From<rusqlite::Error> for Fail {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Fail {
    /// Whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == ErrorCode::DiskFull || error.extended_code == IOERR_SHMSIZE
            }
            _ => false,
        }
    }

    /// Whether only the statement's own batch is to blame.
    pub(super) fn blames_batch(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Damaged(..) => true,
            Self::Sql(rusqlite::Error::SqliteFailure(error, _)) => matches!(
                error.code,
                ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch
            ),
            Self::Sql(_) => false,
        }
    }
}

// === impl Health ===

impl Health {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            state: AtomicU8::new(State::Healthy as u8),
            detail: Mutex::default(),
            probed: Mutex::default(),
            any_quarantined: AtomicBool::new(false),
            quarantined: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Healthy,
            1 => State::Full,
            2 => State::ReadOnly,
            3 => State::Corrupt,
            _ => State::Closed,
        }
    }

    /// Moves to a worse state; only [`Health::recovered`] leads back.
    pub(super) fn worsen(&self, to: State, detail: &str) {
        let before = self.state.fetch_max(to as u8, Ordering::AcqRel);
        if before >= to as u8 {
            return;
        }
        *lock(&self.detail) = detail.to_owned();
        match to {
            State::Full => tracing::error!(store = %self.path.display(), "the disk is full"),
            State::ReadOnly => {
                tracing::error!(store = %self.path.display(), detail, "the store takes no more writes");
            }
            State::Corrupt => {
                tracing::error!(store = %self.path.display(), detail, "the store is damaged");
            }
            State::Healthy | State::Closed => {}
        }
    }

    /// There is room again.
    pub(super) fn recovered(&self) {
        let back = self.state.compare_exchange(
            State::Full as u8,
            State::Healthy as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if back.is_ok() {
            tracing::info!(store = %self.path.display(), "the disk has room again");
        }
    }

    /// Whether a full store may look for room now; at most once per interval.
    pub(super) fn may_probe(&self) -> bool {
        let mut probed = lock(&self.probed);
        let due = probed.is_none_or(|last| last.elapsed() >= PROBE_EVERY);
        if due {
            *probed = Some(Instant::now());
        }
        due
    }

    /// Whether the next look for room is due, without taking it.
    pub(super) fn probe_is_due(&self) -> bool {
        lock(&self.probed).is_none_or(|last| last.elapsed() >= PROBE_EVERY)
    }

    /// The error that the state stands for.
    pub(super) fn error(&self, state: State) -> Option<Error> {
        let path = self.path.display();
        let detail = || lock(&self.detail).clone();
        Some(match state {
            State::Healthy => return None,
            State::Full => Error::new(
                Code::DiskFull,
                format!("there is no room for the store '{path}'"),
            )
            .hint("free some disk space; until then runs can end, interrupts be answered and threads be erased"),
            State::ReadOnly => Error::new(
                Code::StoreReadOnly,
                format!("the store '{path}' takes no more writes: {}", detail()),
            )
            .hint("check the disk, then start the server again; what was acknowledged is kept"),
            State::Corrupt => Error::new(
                Code::StoreCorrupt,
                format!("the store '{path}' is damaged: {}", detail()),
            )
            .hint("stop the server and bring back a backup with: trilogue restore BACKUP"),
            State::Closed => Error::new(Code::ShuttingDown, "the store is closed"),
        })
    }

    /// Passes when reads are served.
    pub(super) fn check_read(&self) -> Result<()> {
        match self.state() {
            State::Healthy | State::Full | State::ReadOnly => Ok(()),
            state => self.error(state).map_or(Ok(()), Err),
        }
    }

    /// Passes when this kind of write is admitted.
    pub(super) fn check_write(&self, is_vital: bool) -> Result<()> {
        match self.state() {
            State::Full if is_vital => Ok(()),
            state => self.error(state).map_or(Ok(()), Err),
        }
    }

    /// Passes when the thread is not quarantined.
    pub(super) fn check_thread(&self, thread: ThreadKey) -> Result<()> {
        if !self.any_quarantined.load(Ordering::Acquire) {
            return Ok(());
        }
        match lock(&self.quarantined).get(&thread) {
            None => Ok(()),
            Some(why) => Err(quarantined(why)),
        }
    }

    /// Names a thread as damaged.
    pub(super) fn quarantine(&self, thread: ThreadKey, why: &str) {
        let mut threads = lock(&self.quarantined);
        if threads.insert(thread, why.to_owned()).is_none() {
            tracing::error!(%thread, why, "the thread is quarantined");
        }
        self.any_quarantined.store(true, Ordering::Release);
    }

    /// The thread is gone, and its damage with it.
    pub(super) fn forget(&self, thread: ThreadKey) {
        if self.any_quarantined.load(Ordering::Acquire) {
            lock(&self.quarantined).remove(&thread);
        }
    }

    /// How many threads are quarantined.
    pub(super) fn quarantined(&self) -> u64 {
        lock(&self.quarantined).len() as u64
    }

    /// What a failure means: changes the state and gives the error for the caller.
    pub(super) fn settle(&self, fail: Fail) -> Error {
        match fail {
            Fail::Refused(error) => error,
            Fail::Damaged(thread, error) => {
                if let Some(thread) = thread {
                    self.quarantine(thread, error.message());
                }
                error
            }
            Fail::Sql(error) => self.settle_sql(&error),
        }
    }

    fn settle_sql(&self, error: &rusqlite::Error) -> Error {
        let state = match error {
            rusqlite::Error::SqliteFailure(inner, _) if inner.extended_code == IOERR_SHMSIZE => {
                State::Full
            }
            rusqlite::Error::SqliteFailure(inner, _) => match inner.code {
                ErrorCode::DiskFull => State::Full,
                ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen => {
                    State::ReadOnly
                }
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => State::Corrupt,
                ErrorCode::ConstraintViolation => {
                    return Error::new(Code::AlreadyExists, "an id of the change is taken");
                }
                _ => return self.unexpected(error),
            },
            // STRICT tables hold no value of another type than their column's.
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => State::Corrupt,
            _ => return self.unexpected(error),
        };
        self.worsen(state, &error.to_string());
        self.error(state).unwrap_or_else(|| self.unexpected(error))
    }

    fn unexpected(&self, error: &rusqlite::Error) -> Error {
        tracing::error!(store = %self.path.display(), %error, "a statement failed");
        Error::new(Code::Internal, "the store failed in a way it should not; see the server's log")
    }
}

/// The error of a quarantined thread.
pub(super) fn quarantined(why: &str) -> Error {
    Error::new(Code::ThreadQuarantined, format!("the thread's stored data is damaged: {why}")).hint(
        "restore the store from a backup, or erase this thread; other threads are not affected",
    )
}
