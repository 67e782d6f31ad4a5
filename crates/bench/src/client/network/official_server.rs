//! The official Rust library's server, with an agent that writes the updates that it is asked for.

use std::process::Stdio;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::super::link::AgentAddress;
use super::super::peers;

/// The server in a process of its own. Killed when dropped.
#[derive(Debug)]
pub(super) struct OfficialServer {
    address: AgentAddress,
    _child: Child,
}

// === impl OfficialServer ===

impl OfficialServer {
    pub(super) async fn start() -> Result<Self> {
        let mut child = Command::new(peers::rust_program()?)
            .arg("listen")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().context("the server is mute")?;
        let port = BufReader::new(output).lines().next_line().await?;
        let port: u16 = port.context("the server ended")?.parse()?;
        let address = AgentAddress {
            server: ([127, 0, 0, 1], port).into(),
            path: "/acp".to_owned(),
            token: "none".to_owned(),
        };
        Ok(Self { address, _child: child })
    }

    pub(super) fn address(&self) -> &AgentAddress {
        &self.address
    }
}
