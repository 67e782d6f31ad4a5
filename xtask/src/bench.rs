//! Builds and runs the benchmarks. They are a separate package, so that no other build waits for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::say;

/// How many rounds two revisions are measured in, one after the other, unless `TRILOGUE_BENCH_RUNS` says otherwise.
const ROUNDS: usize = 5;
/// The folder of the other revision's checkout, below the build folder, so that its own build is kept.
const OTHER: &str = "target/against";

/// Measures this tree. Returns whether every target was reached.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    let program = build(root)?;
    Ok(Command::new(program).args(names).current_dir(root).status()?.success())
}

/// Measures this tree and another revision in turn, and prints each figure of both with their ratio.
pub(crate) fn compare(root: &Path, revision: &str, names: &[&str]) -> Result<bool> {
    let other = root.join(OTHER);
    check_out(root, &other, revision)?;
    let programs = [build(&other)?, build(root)?];
    let rounds = std::env::var("TRILOGUE_BENCH_RUNS").ok().and_then(|text| text.parse().ok());
    let mut figures = Figures::default();
    for round in 1..=rounds.unwrap_or(ROUNDS).max(1) {
        for (side, program) in programs.iter().enumerate() {
            say(&format!("round {round}, {}", [revision, "this tree"][side]));
            let output = Command::new(program)
                .args(names)
                .current_dir(root)
                .env("TRILOGUE_BENCH_RUNS", "1")
                .output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            // A missed target is not a failure here: only the difference counts.
            ensure!(text.contains("target"), "{}", String::from_utf8_lossy(&output.stderr));
            figures.add(side, &text);
        }
    }
    say(&format!("\n{:<60} {revision:>16} {:>16} {:>8}", "medians", "this tree", "ratio"));
    for line in figures.table() {
        say(&line);
    }
    Ok(true)
}

/// The figures of two revisions, in the order in which they came first.
#[derive(Debug, Default)]
struct Figures {
    order: Vec<String>,
    values: HashMap<String, [Vec<f64>; 2]>,
}

// === impl Figures ===

impl Figures {
    /// Adds the output of one round.
    fn add(&mut self, side: usize, text: &str) {
        let mut section = "";
        let mut before = "";
        for line in text.lines() {
            // Programs that a benchmark starts may print lines of their own in between.
            if before.is_empty() && !line.starts_with(' ') && !line.is_empty() {
                section = line;
            }
            before = line;
            let Some((what, value)) = figure(line) else { continue };
            let name = format!("{section}: {what}");
            if !self.values.contains_key(&name) {
                self.order.push(name.clone());
            }
            self.values.entry(name).or_default()[side].push(value);
        }
    }

    /// A line for each figure.
    fn table(self) -> Vec<String> {
        let Self { order, mut values } = self;
        let line = |name: String| {
            let [other, ours] = values.remove(&name).unwrap_or_default().map(median);
            let show =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}"));
            let ratio = other.zip(ours).map(|(other, ours)| ours / other);
            format!("{name:<60} {:>16} {:>16} {:>8}", show(other), show(ours), show(ratio))
        };
        order.into_iter().map(line).collect()
    }
}

/// Reads a line of the benchmarks' output: a label, two spaces or more, and a number.
fn figure(line: &str) -> Option<(&str, f64)> {
    let (what, rest) = line.strip_prefix("  ")?.split_once("  ")?;
    let value = rest.split_whitespace().next()?;
    Some((what.trim(), value.parse().ok()?))
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Builds the server and the benchmarks of a tree. Gives the benchmarks' program.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = root.join("target");
    let arguments = ["build", "--release", "--package", "trilogue", "--package", "trilogue-bench"];
    let built = Command::new(&cargo)
        .args(arguments)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &target)
        .status()?;
    ensure!(built.success(), "{} could not be built", root.display());
    Ok(target.join("release/trilogue-bench"))
}

/// Checks a revision out, in a work tree of its own that stays for the next time.
fn check_out(root: &Path, folder: &Path, revision: &str) -> Result<()> {
    let git = |folder: &Path, arguments: &[&str]| -> Result<()> {
        let done = Command::new("git").args(arguments).current_dir(folder).status()?;
        ensure!(done.success(), "git {} failed", arguments.join(" "));
        Ok(())
    };
    if folder.exists() {
        return git(folder, &["checkout", "--quiet", "--detach", revision]);
    }
    let path = folder.to_str().context("the folder's name is not UTF-8")?;
    git(root, &["worktree", "add", "--quiet", "--detach", path, revision])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_two_revisions_are_compared() {
        let text = |rate: u32| {
            format!(
                "machine   2 cores\n\necho\nlistening: http://127.0.0.1:{rate}\n  runs a second{:>40}  target >= 1: ok\n  age, p50 / p99   12 us / 13 us\n",
                rate
            )
        };
        let mut figures = Figures::default();
        for (side, rate) in [(0, 100), (1, 150), (0, 90), (1, 170), (0, 110), (1, 10)] {
            figures.add(side, &text(rate));
        }
        let table = figures.table();
        assert_eq!(table.len(), 2);
        let words: Vec<&str> = table[0].split_whitespace().collect();
        assert_eq!(words, ["echo:", "runs", "a", "second", "100.00", "150.00", "1.50"]);
    }
}
