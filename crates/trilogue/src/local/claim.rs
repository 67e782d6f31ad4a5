//! The claim of a process to be its user's server.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use super::{ServerRecord, StartedBy, UserServerDir};

/// Makes this process the user's server until it is dropped.
#[derive(Debug)]
pub struct ServerClaim {
    dir: UserServerDir,
    /// Held by the operating system until the file is closed, however this process ends.
    _lock: File,
    record: ServerRecord,
    listener: Option<UnixListener>,
}

/// The result of [`ServerClaim::take`].
#[derive(Debug)]
pub enum ClaimResult {
    /// This process is the user's server.
    Held(ServerClaim),
    /// Another process is the server. It may not have written its record yet.
    Taken(Option<ServerRecord>),
}

// === impl ServerClaim ===

impl ServerClaim {
    /// Takes the lock and listens on the socket, unless another server does. Removes what a dead server left.
    pub fn take(dir: &UserServerDir, started_by: StartedBy) -> io::Result<ClaimResult> {
        let socket = dir.create()?;
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(dir.lock())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Ok(ClaimResult::Taken(ServerRecord::read(&dir.record())));
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
        let record = ServerRecord {
            pid: std::process::id(),
            life: uuid::Uuid::new_v4().to_string(),
            socket,
            addresses: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: None,
            log: None,
            config: None,
            folder: std::env::current_dir().ok().filter(|folder| folder.to_str().is_some()),
            arguments: std::env::args_os().map_while(|it| it.into_string().ok()).collect(),
            started_by,
        };
        // Programs that connect now wait at the socket until the server is ready.
        record.write(&dir.record())?;
        Ok(ClaimResult::Held(Self {
            dir: dir.clone(),
            _lock: lock,
            record,
            listener: Some(listener),
        }))
    }

    /// Adds the file that the server logs to. The record has it from the next [`ServerClaim::announce`] on.
    pub fn set_log(&mut self, log: PathBuf) {
        self.record.log = Some(log);
    }

    /// Adds the configuration file. The record has it from the next [`ServerClaim::announce`] on.
    pub fn set_config(&mut self, file: PathBuf) {
        self.record.config = Some(file);
    }

    /// Adds the server's HTTP addresses and its store to the record.
    pub fn announce(&mut self, addresses: &[SocketAddr], store: &str) -> io::Result<()> {
        self.record.store = Some(store.to_owned());
        self.record.addresses = addresses.iter().map(ToString::to_string).collect();
        self.record.write(&self.dir.record())
    }

    /// Returns the socket to serve on; `None` from the second call on. Needs a Tokio runtime.
    pub fn listener(&mut self) -> io::Result<Option<tokio::net::UnixListener>> {
        self.listener.take().map(tokio::net::UnixListener::from_std).transpose()
    }

    /// The server's record.
    #[must_use]
    pub fn record(&self) -> &ServerRecord {
        &self.record
    }
}

impl Drop for ServerClaim {
    fn drop(&mut self) {
        // The lock is still held, so the socket belongs to this process. The next server removes a socket
        // that stays.
        let _ = fs::remove_file(&self.record.socket);
        self.record.remove(&self.dir.record());
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn take_claim(dir: &UserServerDir) -> ServerClaim {
        match ServerClaim::take(dir, StartedBy::Demo).unwrap() {
            ClaimResult::Held(claim) => claim,
            ClaimResult::Taken(by) => panic!("{by:?}"),
        }
    }

    #[test]
    fn one_server_holds_the_claim_and_a_dead_one_leaves_it_free() {
        let folder = tempfile::tempdir().unwrap();
        let dir = UserServerDir::at(folder.path().join("trilogue"));
        let mut first = take_claim(&dir);
        first.announce(&["127.0.0.1:7".parse().unwrap()], "memory:").unwrap();
        let mode = fs::metadata(&first.record.socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&first.record.socket).unwrap();
        let ClaimResult::Taken(Some(by)) = ServerClaim::take(&dir, StartedBy::OnDemand).unwrap()
        else {
            panic!()
        };
        assert_eq!(&by, first.record());
        let named = format!(
            "http://127.0.0.1:7 (process {}, started by `trilogue demo`, store memory:)",
            std::process::id()
        );
        assert_eq!(by.to_string(), named);
        drop(first);
        assert!(!dir.record().exists() && !dir.socket().exists());
        // A killed server leaves its files and no listener behind.
        drop(UnixListener::bind(dir.socket()).unwrap());
        by.write(&dir.record()).unwrap();
        let second = take_claim(&dir);
        assert_ne!(second.record.life, by.life);
        UnixStream::connect(dir.socket()).unwrap();
    }
}
