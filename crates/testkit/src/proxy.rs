//! nginx in front of servers, configured as in the example of a cluster.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::folder::Folder;
use crate::port::reserve_address;
use crate::programs::ROOT;

/// Balances requests over servers. Stopped when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    folder: Folder,
}

// === impl Proxy ===

impl Proxy {
    pub async fn start(servers: &[SocketAddr]) -> Result<Self> {
        Self::start_with(servers, "1.1").await
    }

    /// Starts one as an operator gets it who configures nothing else: it speaks HTTP/1.0 to the server, and passes no WebSockets on.
    pub async fn start_with_defaults(server: SocketAddr) -> Result<Self> {
        Self::start_with(&[server], "1.0").await
    }

    async fn start_with(servers: &[SocketAddr], http_version: &str) -> Result<Self> {
        let (address, folder) = (reserve_address()?, Folder::new()?);
        let mut command = Command::new("bash");
        command.env("HTTP_VERSION", http_version);
        command.arg(format!("{ROOT}/examples/cluster/proxy")).arg(folder.path());
        command.arg(address.port().to_string());
        command.args(servers.iter().map(|server| server.port().to_string()));
        let output = command.output().await.context("the proxy could not be started")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Self { address, folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.folder.path().join("nginx.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}
