//! Errors of the engine: their meaning for the change and for the whole store.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;
use trilogue_domain::ThreadKey;
use trilogue_domain::error::Error;

use crate::sql::SqlError;

#[derive(Debug)]
pub(crate) enum PostgresError {
    Sql(tokio_postgres::Error),
    /// No connection could be made, with the reason.
    Unreachable(String),
    /// The change breaks a rule. The store is healthy.
    Refused(Error),
    Damaged(Option<ThreadKey>, Error),
    /// The bucket lacks content that a row of the database refers to.
    MissingObject(Error),
    Closed,
    /// The connection broke during the commit of a change that is not retried, with the reason.
    Uncertain(String),
}

/// What a writer does after a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Remedy {
    /// The batch of the failed statement is to blame, and fails alone.
    Refuse,
    /// Another transaction was in the way: try again at once.
    Retry,
    /// The connection or the database is gone: try again on a new connection.
    Reconnect,
    /// A retry does not help.
    Fail,
}

// === impl PostgresError ===

impl From<tokio_postgres::Error> for PostgresError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for PostgresError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl SqlError for PostgresError {
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

impl From<PoolError> for PostgresError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Self::Sql(error),
            PoolError::Closed => Self::Closed,
            PoolError::Timeout(_) => Self::Unreachable("no connection was free in time".to_owned()),
            error => Self::Unreachable(error.to_string()),
        }
    }
}

impl PostgresError {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Refused(_) | Self::Damaged(..) | Self::MissingObject(_) => Remedy::Refuse,
            Self::Unreachable(_) => Remedy::Reconnect,
            Self::Closed | Self::Uncertain(_) => Remedy::Fail,
            Self::Sql(error) => match error.code() {
                _ if is_away(error) => Remedy::Reconnect,
                Some(code) if is_conflict(code) => Remedy::Retry,
                Some(code) if is_of_batch(code) => Remedy::Refuse,
                _ => Remedy::Fail,
            },
        }
    }

    /// The same failure for a group of appends. A statement that was cancelled, by a timeout or an operator, stored nothing and is retried.
    pub(super) fn of_write(self) -> Self {
        match self {
            Self::Sql(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                Self::Unreachable(explain(&error))
            }
            fail => fail,
        }
    }

    /// The same failure if nothing was sent yet.
    pub(super) fn before_sending(self) -> Self {
        match self {
            Self::Sql(error) if has_broken(&error) => Self::Unreachable(explain(&error)),
            fail => fail,
        }
    }

    /// Whether a connection broke after something was sent, so that the result is unknown.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Sql(error) if has_broken(error))
    }

    /// The failure of the last try of a change. It is `Uncertain` if this try or an earlier one may have been stored.
    pub(super) fn of_last_try(self, may_be_stored: bool) -> Self {
        match self {
            Self::Sql(error) if has_broken(&error) => Self::Uncertain(explain(&error)),
            Self::Unreachable(why) if may_be_stored => Self::Uncertain(why),
            fail => fail,
        }
    }

    /// The name of the unique index that a row violates.
    pub(super) fn violated_index(&self) -> Option<&str> {
        match self {
            Self::Sql(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                error.as_db_error()?.constraint()
            }
            _ => None,
        }
    }
}

/// Whether the connection or the database is gone.
fn is_away(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        None => error.is_closed() || is_io(error),
        Some(code) => is_outage(code),
    }
}

/// As [`is_away`], except for a server that was refused because it is read-only.
fn has_broken(error: &tokio_postgres::Error) -> bool {
    is_away(error) && !takes_no_writes(error)
}

/// Whether another transaction was faster, or holds a lock that this one needs.
pub(super) fn is_conflict(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(code)
}

/// Whether the server is stopping or starting, or has closed this connection.
fn is_outage(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        // After a failover, a connection may still lead to the server that was the primary.
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
        || code.code().starts_with("08")
}

fn is_of_batch(code: &SqlState) -> bool {
    // Integrity and data errors: the batch is to blame.
    code.code().starts_with("23") || code.code().starts_with("22")
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}

/// Whether a server was refused because it is read-only, such as a replica.
pub(super) fn takes_no_writes(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
        || cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The failure with its causes, in one line.
pub(super) fn explain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
