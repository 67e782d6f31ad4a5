//! The committed counts: read, compared and written.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The committed counts: a line per operation.
const FILE: &str = "ledger.tsv";
/// The first line of the file.
const HEAD: &str = "operation\tinstructions\tallocations\tatomics\tsystem calls\tcommits\tpages";
/// A count may be higher than recorded by this share.
///
/// Not less yet: how far counts of two builds and machines differ is not known.
const TOLERANCE: f64 = 0.05;
/// The same for operations with a disk: how many appends share a commit depends on how quick the disk is.
const DISK_TOLERANCE: f64 = 0.15;
/// The end of the names of operations with a disk.
const DISK_NAME: &str = ", SQLite";
/// The same for written pages, which the kernel joins as it likes.
const PAGES_TOLERANCE: f64 = 0.25;
/// The same for system calls: how often the server sleeps depends on the machine's other work.
const CALLS_TOLERANCE: f64 = 0.30;
/// And by this much, so that a small count is not held to less than one in five operations.
const LEAST: f64 = 0.2;

/// What one operation costs the server.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Costs {
    pub(super) instructions: f64,
    pub(super) allocations: f64,
    pub(super) atomics: f64,
    pub(super) system_calls: f64,
    pub(super) commits: f64,
    /// Pages of 4 KiB written to files.
    pub(super) pages: f64,
}

#[derive(Debug, Default)]
pub(super) struct Record(BTreeMap<String, Costs>);

// === impl Costs ===

impl Costs {
    /// Returns the lesser of each count.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            instructions: self.instructions.min(other.instructions),
            allocations: self.allocations.min(other.allocations),
            atomics: self.atomics.min(other.atomics),
            system_calls: self.system_calls.min(other.system_calls),
            commits: self.commits.min(other.commits),
            pages: self.pages.min(other.pages),
        }
    }

    fn figures(self) -> [(&'static str, f64); 6] {
        [
            ("instructions", self.instructions),
            ("allocations", self.allocations),
            ("atomics", self.atomics),
            ("system calls", self.system_calls),
            ("commits", self.commits),
            ("pages", self.pages),
        ]
    }
}

// === impl Record ===

impl Record {
    pub(super) fn read() -> Result<Self> {
        let path = path();
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Self::default()) };
        let mut lines = text.lines();
        ensure!(lines.next() == Some(HEAD), "{} has another first line", path.display());
        let mut all = BTreeMap::new();
        for line in lines {
            let mut values = line.split('\t');
            let name = values.next().unwrap_or_default().to_owned();
            let mut next = || -> Result<f64> {
                Ok(values.next().with_context(|| format!("a short line: {line}"))?.parse()?)
            };
            let costs = Costs {
                instructions: next()?,
                allocations: next()?,
                atomics: next()?,
                system_calls: next()?,
                commits: next()?,
                pages: next()?,
            };
            all.insert(name, costs);
        }
        Ok(Self(all))
    }

    pub(super) fn write(&self) -> Result<()> {
        let mut text = format!("{HEAD}\n");
        for (name, costs) in &self.0 {
            let [instructions, others @ ..] = costs.figures().map(|(_, value)| value);
            write!(text, "{name}\t{instructions:.0}")?;
            for value in others {
                write!(text, "\t{value:.2}")?;
            }
            text.push('\n');
        }
        Ok(fs::write(path(), text)?)
    }

    pub(super) fn insert(&mut self, name: String, costs: Costs) {
        self.0.insert(name, costs);
    }

    /// Returns a line for each count of an operation, with the recorded one.
    pub(super) fn compare(&self, name: &str, costs: Costs) -> Vec<String> {
        let recorded = self.0.get(name).map(|recorded| recorded.figures());
        let mut lines = vec![format!("\n{name}")];
        for (index, (figure, value)) in costs.figures().into_iter().enumerate() {
            let before = recorded.map(|figures| figures[index].1);
            let change = match before {
                Some(before) if before > 0.0 => {
                    format!("{before:>12.1} recorded {:>+7.1} %", (value / before - 1.0) * 100.0)
                }
                _ => String::new(),
            };
            lines.push(format!("  {figure:<16} {value:>12.1} {change}"));
        }
        lines
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the counts that are higher than recorded, and the operations without a record.
    pub(super) fn worse(&self, counted: &Self) -> Vec<String> {
        let mut worse = Vec::new();
        for (name, costs) in &counted.0 {
            let Some(recorded) = self.0.get(name) else {
                worse.push(format!("{name}: not recorded"));
                continue;
            };
            let pairs = recorded.figures().into_iter().zip(costs.figures());
            for ((figure, before), (_, after)) in pairs {
                let tolerance = match figure {
                    "pages" => PAGES_TOLERANCE,
                    "system calls" => CALLS_TOLERANCE,
                    _ if name.ends_with(DISK_NAME) => DISK_TOLERANCE,
                    _ => TOLERANCE,
                };
                if after > before * (1.0 + tolerance) + LEAST {
                    worse.push(format!("{name}: {figure} {before:.1} -> {after:.1}"));
                }
            }
        }
        worse
    }
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE)
}
