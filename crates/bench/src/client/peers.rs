//! The official libraries: client and agent of one language, with nothing between.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::Rates;
use crate::python::{ROOT, target};
use crate::report::{Report, median};

/// A library, how its two programs are started, and how many updates and turns one measurement has.
struct Peer {
    name: &'static str,
    program: Vec<PathBuf>,
    updates: u64,
    turns: u64,
}

/// Measures every library, and gives what the Rust one does.
pub(super) async fn measure(report: &mut Report) -> Result<Rates> {
    let target = target()?;
    let status = Command::new(Path::new(ROOT).join("scripts/foreign"))
        .arg("bench")
        .env("CARGO_TARGET_DIR", &target)
        .stdin(Stdio::null())
        .status()
        .await
        .context("scripts/foreign could not be started")?;
    ensure!(status.success(), "scripts/foreign ended with {status}");
    let mut rust = Rates::default();
    for peer in peers(&target.join("foreign/agent_client")) {
        let rates = rates(&peer, report.runs).await?;
        let line = |what: &str| format!("{}, client and agent alone, {what} a second", peer.name);
        report.line(&line("updates"), &format!("{:.0}", rates.updates));
        report.line(&line("turns in a row"), &format!("{:.0}", rates.turns));
        if peer.name == "Rust" {
            rust = rates;
        }
    }
    Ok(rust)
}

fn peers(installed: &Path) -> [Peer; 3] {
    let source = Path::new(ROOT).join("foreign/agent_client");
    [
        Peer {
            name: "Rust",
            program: vec![installed.join("rust/release/official-bench")],
            updates: 100_000,
            turns: 5_000,
        },
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
            program: vec![installed.join("python/bin/python"), source.join("python/bench.py")],
            updates: 5_000,
            turns: 500,
        },
    ]
}

async fn rates(peer: &Peer, runs: usize) -> Result<Rates> {
    let (program, before) = peer.program.split_first().context("no program")?;
    let (mut updates, mut turns) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let output = Command::new(program)
            .args(before)
            .args(["client", &peer.updates.to_string(), &peer.turns.to_string(), "--"])
            .args(&peer.program)
            .arg("agent")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .await
            .with_context(|| format!("{} could not be started", program.display()))?;
        ensure!(output.status.success(), "the {} library ended with {}", peer.name, output.status);
        let figures: Value = serde_json::from_slice(&output.stdout)?;
        updates.push(figures["updates"].as_f64().context("no figure")?);
        turns.push(figures["turns"].as_f64().context("no figure")?);
    }
    Ok(Rates { updates: median(updates), turns: median(turns) })
}
