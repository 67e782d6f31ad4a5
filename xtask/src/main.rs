//! What a program can hold about this repository, and the figures it is measured by.
//!
//! ```text
//! cargo xtask tidy [--bless]    checks the rules of docs/ARCHITECTURE.md; --bless rewrites generated documents
//! cargo xtask bench [NAMES…]    measures, in a release build
//! ```

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

/// Whether everything is as it should be.
fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&root()?, false),
        ["tidy", "--bless"] => tidy::run(&root()?, true),
        ["bench", names @ ..] => bench(names),
        _ => bail!("expected `tidy`, `tidy --bless` or `bench [NAMES…]`"),
    }
}

/// Builds and runs the benchmarks, which are a package of their own so that nothing else waits for them.
fn bench(names: &[&str]) -> Result<bool> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let build = ["build", "--release", "--package", "trilogue", "--package", "trilogue-bench"];
    let built = Command::new(&cargo).args(build).current_dir(root()?).status()?;
    if !built.success() {
        return Ok(false);
    }
    let run = ["run", "--quiet", "--release", "--package", "trilogue-bench", "--"];
    Ok(Command::new(&cargo).args(run).args(names).current_dir(root()?).status()?.success())
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
