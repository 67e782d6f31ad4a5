//! Servers in Python for comparison, from their own pinned packages.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::{Child, Command};
use trilogue_testkit::{Client, until};

/// How long a start may take.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The repository.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Such a server in a process of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Python {
    _child: Child,
    address: SocketAddr,
}

// === impl Python ===

impl Python {
    /// Installs the packages of `foreign/NAME` if they are missing, and starts its server `serve.py` with its port and these arguments.
    pub(crate) async fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        Self::start_program(name, "serve.py", arguments).await
    }

    /// The same with another program of that folder.
    pub(crate) async fn start_program(
        name: &str,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let target = target()?;
        let status = Command::new(Path::new(ROOT).join("scripts/foreign"))
            .arg(name)
            .env("CARGO_TARGET_DIR", &target)
            .stdin(Stdio::null())
            .status()
            .await
            .context("scripts/foreign could not be started")?;
        ensure!(status.success(), "scripts/foreign ended with {status}");
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        drop(listener);
        let child = Command::new(target.join("foreign").join(name).join("bin/python"))
            .arg("-B")
            .arg(Path::new(ROOT).join("foreign").join(name).join(program))
            .arg(address.port().to_string())
            .args(arguments)
            // Traces would go to a collector that is not there.
            .env("OTEL_SDK_DISABLED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("the server of foreign/{name} could not be started"))?;
        let client = Client::new(address);
        until(&format!("the server of foreign/{name} to be ready"), START_LIMIT, || async {
            client.get("/ping").await.ok()
        })
        .await?;
        Ok(Self { _child: child, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The target folder that this program was built into.
pub(crate) fn target() -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    let target = me.ancestors().nth(2).context("the program lies in no target folder")?;
    Ok(target.to_owned())
}
