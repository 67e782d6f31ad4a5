//! Checks of this repository that a program can make, and its measurements.
//!
//! ```text
//! cargo xtask tidy [--bless]    checks the rules of docs/ARCHITECTURE.md; --bless rewrites generated documents
//! cargo xtask bench [NAMES…]    measures, in a release build
//! cargo xtask bench --against REV [NAMES…]    measures that revision too, round by round, and compares
//! cargo xtask bench ledger [--bless]    counts what operations cost the server, and compares that with the committed counts, or records it
//! cargo xtask soak [--kills N]    cuts the power of a server's disk N times while clients use it, and counts what is lost
//! cargo xtask soak --cluster [--kills N]    kills, stops, cuts off and skews servers that share a store, and restarts what they share, N times; compares the answers that clients got, and prints how long threads stopped
//! cargo xtask soak --streams [--kills N]    parts clients from streams of every protocol by every fault, N times each; resumes the streams, and prints the matrix
//! cargo xtask soak --network [--kills N]    lets the network fail between clients of the Agent Client Protocol and a server, in N runs, and kills the server in a tenth of them; compares what clients received with the log
//! cargo xtask drift PACKAGE STABLE UNSTABLE    compares what is served of the Agent Client Protocol with an official schema; `scripts/drift` runs it for the newest ones
//! cargo xtask dist [--binary PATH] [--target TRIPLE] [--out DIR]    makes the packages of a release
//! ```

mod bench;
mod dist;
mod drift;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The long forms of the kill tests.
const POWER_CUTS: &str = "soak::power_cuts";
const CLUSTER: &str = "soak::nodes";
const STREAMS: &str = "soak::streams";
const NETWORK: &str = "soak::clients";

/// Whether everything is as it should be.
fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&root()?, false),
        ["tidy", "--bless"] => tidy::run(&root()?, true),
        ["bench", "--against", revision, names @ ..] => bench::compare(&root()?, revision, names),
        ["bench", names @ ..] => bench::run(&root()?, names),
        ["soak"] => soak(&root()?, POWER_CUTS, None),
        ["soak", "--kills", kills] => soak(&root()?, POWER_CUTS, Some(kills)),
        ["soak", "--cluster"] => soak(&root()?, CLUSTER, None),
        ["soak", "--cluster", "--kills", kills] => soak(&root()?, CLUSTER, Some(kills)),
        ["soak", "--streams"] => soak(&root()?, STREAMS, None),
        ["soak", "--streams", "--kills", kills] => soak(&root()?, STREAMS, Some(kills)),
        ["soak", "--network"] => soak(&root()?, NETWORK, None),
        ["soak", "--network", "--kills", kills] => soak(&root()?, NETWORK, Some(kills)),
        ["drift", package, stable, unstable] => drift::run(&root()?, package, stable, unstable),
        ["dist", options @ ..] => dist::run(&root()?, options),
        _ => bail!(
            "expected `tidy`, `tidy --bless`, `bench [--against REV] [NAMES…]`, `bench ledger [--bless]`, `soak [--cluster | --streams | --network] [--kills N]`, `drift PACKAGE STABLE UNSTABLE` or `dist [--binary PATH] [--target TRIPLE] [--out DIR]`"
        ),
    }
}

/// Runs a long form of the kill tests. `TRILOGUE_SEED` repeats one.
fn soak(root: &Path, test: &str, kills: Option<&str>) -> Result<bool> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--package", "trilogue-testkit", "--test", "it", "--"]);
    command.args(["--ignored", "--nocapture", test]).current_dir(root);
    if let Some(kills) = kills {
        let kills: u64 = kills.parse().context("--kills takes a number")?;
        command.env("TRILOGUE_KILLS", kills.to_string());
    }
    Ok(command.status()?.success())
}

/// The repository: the folder above this package.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_owned).context("xtask has no folder above it")
}

#[expect(clippy::print_stderr, reason = "this program's output is for the one who ran it")]
fn say(line: &str) {
    eprintln!("{line}");
}
