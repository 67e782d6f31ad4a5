//! The official libraries: client and agent of one language, with nothing or something between.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::rates::Rates;
use crate::python::{ROOT, target};

/// The place of the Rust library among the peers.
pub(super) const RUST: usize = 0;

/// The build of the Rust library's programs, and what installs it: a debug build of the benchmarks only shows that they work.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
const INSTALLATION: &str = if cfg!(debug_assertions) { "agent_client" } else { "bench" };

/// A library, how its two programs are started, and how many updates and turns one measurement has.
pub(super) struct Peer {
    pub(super) name: &'static str,
    program: Vec<PathBuf>,
    updates: u64,
    turns: u64,
}

/// The Rust library's own conductor, before the agent of `program`.
pub(super) fn conductor(program: &Path) -> Result<Vec<OsString>> {
    let conductor =
        target()?.join("foreign/agent_client/conductor/bin/agent-client-protocol-conductor");
    let agent = format!("{} agent", program.display());
    Ok(vec![conductor.into(), "agent".into(), agent.into()])
}

/// The Rust library's client and agent, as one program.
pub(super) fn rust_program() -> Result<PathBuf> {
    Ok(target()?.join("foreign/agent_client/rust").join(PROFILE).join("official-bench"))
}

/// Installs the libraries if they are missing.
pub(super) async fn install() -> Result<()> {
    let status = tokio::process::Command::new(Path::new(ROOT).join("scripts/foreign"))
        .arg(INSTALLATION)
        .env("CARGO_TARGET_DIR", target()?)
        .stdin(Stdio::null())
        .status()
        .await
        .context("scripts/foreign could not be started")?;
    ensure!(status.success(), "scripts/foreign ended with {status}");
    Ok(())
}

pub(super) fn all() -> Result<[Peer; 3]> {
    let installed = target()?.join("foreign/agent_client");
    let rust = rust_program()?;
    let source = Path::new(ROOT).join("foreign/agent_client");
    Ok([
        Peer { name: "Rust", program: vec![rust], updates: 100_000, turns: 5_000 },
        Peer {
            name: "TypeScript",
            program: vec![
                "node".into(),
                source.join("typescript/bench.mjs"),
                "--modules".into(),
                installed.join("typescript"),
            ],
            updates: 20_000,
            turns: 2_000,
        },
        Peer {
            name: "Python",
            program: vec![
                installed.join("python/bin/python"),
                "-B".into(),
                source.join("python/bench.py"),
            ],
            updates: 10_000,
            turns: 1_000,
        },
    ])
}

// === impl Peer ===

impl Peer {
    /// Measures once, with nothing between.
    pub(super) fn rates(&self) -> Result<Rates> {
        let mut agent: Vec<OsString> = self.program.iter().map(Into::into).collect();
        agent.push("agent".into());
        self.rates_with(&agent, |_| {})
    }

    /// Measures once with this for the agent, which `place` may launch elsewhere.
    pub(super) fn rates_with(
        &self,
        agent: &[OsString],
        place: impl FnOnce(&mut Command),
    ) -> Result<Rates> {
        let (program, before) = self.program.split_first().context("no program")?;
        let mut client = Command::new(program);
        place(&mut client);
        let output = client
            .args(before)
            .args(["client", &self.updates.to_string(), &self.turns.to_string(), "--"])
            .args(agent)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{} could not be started", program.display()))?;
        ensure!(output.status.success(), "the {} library ended with {}", self.name, output.status);
        let figures: Value = serde_json::from_slice(&output.stdout)?;
        let figure = |name: &str| figures[name].as_f64().context("no figure");
        let (updates, turns) = (figure("updates")?, figure("turns")?);
        Ok(Rates { updates, turns, ..Rates::default() })
    }
}
