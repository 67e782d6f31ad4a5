//! The printed report: the machine, each figure, and whether its target was reached.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use trilogue_testkit::ServerOptions;

/// How often each figure is measured, unless `TRILOGUE_BENCH_RUNS` says otherwise.
const RUNS: usize = 5;

/// Collects the figures.
#[derive(Debug)]
pub(crate) struct Report {
    /// How often each figure is measured.
    pub(crate) runs: usize,
    /// By how much the counts of a measurement are divided.
    divisor: u64,
    missed: Vec<String>,
}

// === impl Report ===

impl Report {
    /// Prints the machine, the commit and the settings.
    pub(crate) fn begin() -> Result<Self> {
        let text = std::env::var("TRILOGUE_BENCH_RUNS").ok();
        let runs = text.and_then(|text| text.parse().ok()).unwrap_or(RUNS).max(1);
        let text = std::env::var("TRILOGUE_BENCH_DIVISOR").ok();
        let divisor = text.and_then(|text| text.parse().ok()).unwrap_or(1).max(1);
        let info = |path: &str, key: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
            line.split_once(':').map_or("unknown", |(_, value)| value).trim().to_owned()
        };
        let output = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok();
            output.map_or_else(String::new, |output| {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            })
        };
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let cores = std::thread::available_parallelism()?;
        let dirty =
            if output("git", &["status", "--porcelain"]).is_empty() { "" } else { " and changes" };
        say(&format!("machine   {cores} cores, {}", info("/proc/cpuinfo", "model name")));
        say(&format!("memory    {}", info("/proc/meminfo", "MemTotal")));
        say(&format!("system    {}", output("uname", &["-srm"])));
        say(&format!("compiler  {}, {build}", output("rustc", &["--version"])));
        say(&format!("commit    {}{dirty}", output("git", &["rev-parse", "--short=12", "HEAD"])));
        say(&format!("settings  medians of {runs} runs; server, peer and load on the same cores"));
        say(&format!("disk      {}", folder().display()));
        if divisor > 1 {
            say(&format!("counts    divided by {divisor}, where a figure permits it"));
        }
        Ok(Self { runs, divisor, missed: Vec::new() })
    }

    /// Returns how often something is done in a measurement: this often, or fewer with `TRILOGUE_BENCH_DIVISOR`, which shows that a benchmark works.
    pub(crate) fn scale(&self, count: u64) -> u64 {
        (count / self.divisor).max(1)
    }

    /// Begins a figure.
    pub(crate) fn section(&mut self, name: &str) {
        say(&format!("\n{name}"));
    }

    /// Prints a figure that has no target.
    pub(crate) fn line(&mut self, what: &str, value: &str) {
        say(&format!("  {what:<56} {value:>20}"));
    }

    /// Prints a figure with its target, and remembers whether it was missed.
    pub(crate) fn target(&mut self, what: &str, value: &str, reached: bool, target: &str) {
        let verdict = if reached { "ok" } else { "MISSED" };
        say(&format!("  {what:<56} {value:>20}  target {target}: {verdict}"));
        if !reached {
            self.missed.push(what.to_owned());
        }
    }

    /// Whether every target was reached.
    pub(crate) fn end(self) -> bool {
        if self.missed.is_empty() {
            say("\nevery target was reached");
        } else {
            say(&format!("\nmissed: {}", self.missed.join("; ")));
        }
        self.missed.is_empty()
    }
}

/// The folder on the disk that is measured: `TRILOGUE_BENCH_DIR`, or the system's temporary one.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("TRILOGUE_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// The store with a disk.
pub(crate) const DISK: &str = "sqlite:store/trilogue.db";

/// Returns the options of the server in this program's folder.
pub(crate) fn server_options(store: &str) -> Result<ServerOptions> {
    let me = std::env::current_exe()?;
    let binary = me.parent().map(|folder| folder.join("trilogue"));
    Ok(ServerOptions { store: store.to_owned(), binary, ..ServerOptions::default() })
}

/// The value in the middle, or the one above it.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value that this share of the values does not exceed.
pub(crate) fn percentile(values: &[Duration], share: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The median and the 99th percentile of times, for a line.
pub(crate) fn spread(times: &[Duration]) -> String {
    format!("{} / {}", millis(percentile(times, 0.50)), millis(percentile(times, 0.99)))
}

/// Milliseconds, with three digits.
pub(crate) fn millis(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1e3)
}

#[expect(clippy::print_stdout, reason = "figures are what this program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
