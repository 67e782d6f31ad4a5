//! What a program can hold about this repository, and the figures it is measured by.
//!
//! ```text
//! cargo xtask tidy [--bless]    checks the rules of docs/ARCHITECTURE.md; --bless rewrites generated documents
//! cargo xtask bench [NAMES…]    measures, in a release build
//! cargo xtask bench --against REV [NAMES…]    measures that revision too, round by round, and compares
//! ```

mod bench;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
        ["bench", "--against", revision, names @ ..] => bench::compare(&root()?, revision, names),
        ["bench", names @ ..] => bench::run(&root()?, names),
        _ => bail!("expected `tidy`, `tidy --bless` or `bench [--against REV] [NAMES…]`"),
    }
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
