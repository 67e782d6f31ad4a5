//! Being the server of a user.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;

use super::{Place, Record};

/// A user's place, held until this is dropped.
#[derive(Debug)]
pub struct Claim {
    place: Place,
    /// Held by the operating system until the file is closed, however this process ends.
    _lock: File,
    record: Record,
    listener: Option<UnixListener>,
}

/// What came of claiming a place.
#[derive(Debug)]
pub enum Claimed {
    /// It is ours.
    Held(Claim),
    /// Another server of the user holds it, which may not have said yet who it is.
    Taken(Option<Record>),
}

// === impl Claim ===

impl Claim {
    /// Takes a place and listens there, unless another server holds it. What a dead server left is removed.
    ///
    /// # Errors
    /// When the folder, the lock or the socket cannot be used.
    pub fn take(place: &Place, on_demand: bool) -> io::Result<Claimed> {
        let socket = place.make()?;
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(place.lock())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(Claimed::Taken(Record::read(&place.record())));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let record = Record {
            pid: std::process::id(),
            life: uuid::Uuid::new_v4().to_string(),
            socket,
            addresses: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            on_demand,
        };
        // Whoever looks now waits at the socket until the server is ready.
        record.write(&place.record())?;
        Ok(Claimed::Held(Self {
            place: place.clone(),
            _lock: lock,
            record,
            listener: Some(listener),
        }))
    }

    /// Says where the server listens for HTTP.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub fn announce(&mut self, addresses: &[SocketAddr]) -> io::Result<()> {
        self.record.addresses = addresses.iter().map(ToString::to_string).collect();
        self.record.write(&self.place.record())
    }

    /// The socket to serve on. Needs a Tokio runtime; there is one, so the second call gives `None`.
    ///
    /// # Errors
    /// When the runtime cannot take it.
    pub fn listener(&mut self) -> io::Result<Option<tokio::net::UnixListener>> {
        self.listener.take().map(tokio::net::UnixListener::from_std).transpose()
    }

    /// What the server says of itself.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // The lock is still ours, so the socket is too. One that stays is removed by the next server.
        let _ = fs::remove_file(&self.record.socket);
        self.record.remove(&self.place.record());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn held(place: &Place) -> Claim {
        match Claim::take(place, false).unwrap() {
            Claimed::Held(claim) => claim,
            Claimed::Taken(by) => panic!("{by:?}"),
        }
    }

    #[test]
    fn one_holds_a_place_and_what_a_dead_one_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::at(folder.path().join("trilogue"));
        let mut first = held(&place);
        first.announce(&["127.0.0.1:7".parse().unwrap()]).unwrap();
        let mode = fs::metadata(&first.record.socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&first.record.socket).unwrap();
        let Claimed::Taken(Some(by)) = Claim::take(&place, true).unwrap() else { panic!() };
        assert_eq!(&by, first.record());
        assert_eq!(by.addresses, ["127.0.0.1:7"]);
        drop(first);
        assert!(!place.record().exists() && !place.socket().exists());
        // As a killed server leaves it: files, and nobody behind them.
        drop(UnixListener::bind(place.socket()).unwrap());
        by.write(&place.record()).unwrap();
        let second = held(&place);
        assert_ne!(second.record.life, by.life);
        UnixStream::connect(place.socket()).unwrap();
    }
}
