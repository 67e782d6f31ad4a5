//! Errors of the engine, and their effect on the store's health.

use rusqlite::ErrorCode;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::{Code, Error};

use super::file;
pub(super) use crate::core::health::{Health, StoreState};
use crate::core::{closed_error, unexpected_error};
use crate::sql::SqlError;
pub(super) use trilogue_domain::lock;

/// The extended code for "the shared-memory file cannot grow". On a full disk it comes before any other error.
const IOERR_SHMSIZE: i32 = 4_874;

#[derive(Debug)]
pub(crate) enum SqliteError {
    Sql(rusqlite::Error),
    /// The change breaks a rule. The store is healthy.
    Refused(Error),
    Damaged(Option<ThreadKey>, Error),
}

// === impl SqliteError ===

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for SqliteError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl SqlError for SqliteError {
    fn damaged(thread: Option<ThreadKey>, error: Error) -> Self {
        Self::Damaged(thread, error)
    }

    fn into_damage(self) -> Result<(Option<ThreadKey>, Error), Self> {
        match self {
            Self::Damaged(thread, error) => Ok((thread, error)),
            fail => Err(fail),
        }
    }
}

impl SqliteError {
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == ErrorCode::DiskFull || error.extended_code == IOERR_SHMSIZE
            }
            _ => false,
        }
    }

    /// Whether only the statement's batch caused the failure.
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
    /// Updates the state after a failure and returns the error for the caller.
    pub(super) fn settle(&self, fail: SqliteError) -> Error {
        match fail {
            SqliteError::Refused(error) => error,
            SqliteError::Damaged(thread, error) => {
                if let Some(thread) = thread {
                    self.quarantine.add(thread, error.message());
                }
                error
            }
            SqliteError::Sql(error) => self.settle_sql(&error),
        }
    }

    fn settle_sql(&self, error: &rusqlite::Error) -> Error {
        let state = match error {
            rusqlite::Error::SqliteFailure(inner, _) if inner.extended_code == IOERR_SHMSIZE => {
                StoreState::Full
            }
            rusqlite::Error::SqliteFailure(inner, _) => match inner.code {
                ErrorCode::DiskFull => StoreState::Full,
                ErrorCode::SystemIoFailure | ErrorCode::ReadOnly | ErrorCode::CannotOpen => {
                    StoreState::ReadOnly
                }
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreState::Corrupt,
                ErrorCode::ConstraintViolation => {
                    return Error::new(Code::AlreadyExists, "another row has an id of the change");
                }
                _ => return self.unexpected(error),
            },
            // STRICT tables hold only values of their column's type.
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => StoreState::Corrupt,
            _ => return self.unexpected(error),
        };
        if state == StoreState::Corrupt {
            return self.settle_damage(&error.to_string());
        }
        self.worsen(state, &error.to_string());
        self.error(state).unwrap_or_else(|| self.unexpected(error))
    }

    /// Notes damage of the engine's structures, unless the disk cannot return the file's bytes: then a backup does not help, and the file may be whole.
    pub(super) fn settle_damage(&self, finding: &str) -> Error {
        // The file is read at most once, because the state stays.
        if self.state() < StoreState::ReadOnly
            && let Some(error) = file::find_unreadable(self.path())
        {
            self.worsen(StoreState::ReadOnly, error.message());
            return error;
        }
        self.worsen(StoreState::Corrupt, finding);
        self.error(StoreState::Corrupt).unwrap_or_else(closed_error)
    }

    fn unexpected(&self, error: &rusqlite::Error) -> Error {
        tracing::error!(store = %self.path().display(), %error, "a statement failed");
        unexpected_error()
    }
}
