use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

/// A listener of the broker, as it is passed between processes.
#[derive(Debug)]
pub struct PassedListener {
    pub listener: TcpListener,
    /// The network in which it is, if only the program has that network.
    pub namespace: Option<NetworkNamespace>,
}

/// A network that only one program has, and the namespace of users to which it belongs.
#[derive(Debug)]
pub struct NetworkNamespace {
    pub(super) network: OwnedFd,
    pub(super) users: OwnedFd,
}

// === impl NetworkNamespace ===

impl NetworkNamespace {
    /// The one of this process.
    #[cfg(target_os = "linux")]
    pub(super) fn of_this_process() -> std::io::Result<Self> {
        let open = |path| std::fs::File::open(path).map(OwnedFd::from);
        Ok(Self { network: open("/proc/self/ns/net")?, users: open("/proc/self/ns/user")? })
    }

    /// The paths by which another process of this user opens both, while this one has them.
    pub(crate) fn paths(&self) -> [PathBuf; 2] {
        let process = std::process::id();
        [&self.network, &self.users]
            .map(|it| format!("/proc/{process}/fd/{}", it.as_raw_fd()).into())
    }
}
