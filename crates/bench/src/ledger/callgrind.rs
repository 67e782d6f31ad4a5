//! Starts a server under callgrind, and reads its counts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use trilogue_testkit::{Server, ServerOptions};

use super::operation::WARM_UP;
use super::record::Costs;
use crate::cost::sibling_path;
use crate::report;

/// Bytes of a page of a file in memory, in which the kernel counts what goes to the disk.
const PAGE_BYTES: u64 = 4_096;
/// How often an operation's window is counted. The least of each count is taken: other work of the server only adds to it.
const WINDOWS: u32 = 3;
/// Where callgrind writes its counts, with a number behind it.
const COUNTS: &str = "callgrind.out";
/// The variable that names a folder which keeps callgrind's counts, for `callgrind_annotate`.
const KEPT_COUNTS: &str = "TRILOGUE_BENCH_PROFILES";
/// The functions through which Rust allocates, with any allocator.
const ALLOCATORS: [&str; 3] = ["__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc"];

/// The folder and the options of a server that runs under callgrind.
#[derive(Debug)]
pub(super) struct CountedServer {
    dir: TempDir,
    options: ServerOptions,
}

/// Fails if the program that counts is missing.
pub(super) fn check_installed() -> Result<()> {
    let found = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    ensure!(
        found.is_ok_and(|status| status.success()),
        "valgrind not found, which counts instructions\nhint: apt-get install valgrind"
    );
    Ok(())
}

/// Counts what an operation costs the server, after a warm-up. `make` makes the operation as often as its argument says.
pub(super) async fn count(
    counted: &CountedServer,
    server: &Server,
    times: u64,
    make: impl AsyncFn(u64) -> Result<()>,
) -> Result<Costs> {
    let pid = server.pid().context("the server is gone")?.to_string();
    make(WARM_UP).await?;
    control(&["--instr=on", &pid])?;
    // The first code that is counted is translated again.
    make(WARM_UP / 10).await?;
    let mut least: Option<Costs> = None;
    for _ in 0..WINDOWS {
        let costs = counted.count_window(server, &pid, times, &make).await?;
        least = Some(least.map_or(costs, |least| least.min(costs)));
    }
    least.context("nothing was counted")
}

fn control(arguments: &[&str]) -> Result<()> {
    let done = Command::new("callgrind_control").args(arguments).output()?;
    let output = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success() && output.contains("OK"), "callgrind_control failed: {output}");
    Ok(())
}

fn file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

async fn commits(server: &Server) -> Result<u64> {
    let status = server.client().get("/api/v1/status").await?.ok()?;
    status["store"]["commits"].as_u64().context("no commits are counted")
}

/// Returns the bytes that a process has written to files so far, in whole pages.
fn disk_bytes(pid: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/io"))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    Ok(bytes.context("the kernel does not count written bytes")?.parse()?)
}

// === impl CountedServer ===

impl CountedServer {
    pub(super) fn new(store: &str) -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let script = dir.path().join("counted");
        // One worker thread: with more, the number of wake-ups depends on the machine's load.
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = serve ] || exec {program:?} \"$@\"\nexport TOKIO_WORKER_THREADS=1\nexec valgrind --quiet --tool=callgrind --instr-atstart=no --collect-bus=yes --collect-systime=yes --callgrind-out-file={counts:?} {program:?} \"$@\"\n",
            program = sibling_path("trilogue")?,
            counts = dir.path().join(COUNTS),
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700))?;
        let options = ServerOptions { binary: Some(script), ..report::server_options(store)? };
        Ok(Self { dir, options })
    }

    pub(super) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(super) const fn options(&self) -> &ServerOptions {
        &self.options
    }

    async fn count_window(
        &self,
        server: &Server,
        pid: &str,
        times: u64,
        make: &impl AsyncFn(u64) -> Result<()>,
    ) -> Result<Costs> {
        let (commits, written) = (commits(server).await?, disk_bytes(pid)?);
        control(&["--zero", pid])?;
        make(times).await?;
        // Before callgrind writes its own file.
        let written = disk_bytes(pid)?.saturating_sub(written);
        control(&["--dump", pid])?;
        let each = |count: u64| count as f64 / times as f64;
        let counts = self.read_counts()?;
        let made = self::commits(server).await?.saturating_sub(commits);
        Ok(Costs {
            instructions: each(counts.instructions),
            allocations: each(counts.allocations),
            atomics: each(counts.atomics),
            system_calls: each(counts.system_calls),
            commits: each(made),
            pages: each(written / PAGE_BYTES),
        })
    }

    /// Reads the newest counts, and removes them.
    fn read_counts(&self) -> Result<Counts> {
        let is_counts = |path: &PathBuf| file_name(path).starts_with(&format!("{COUNTS}."));
        let mut files = Vec::new();
        for entry in fs::read_dir(self.dir.path())? {
            files.push(entry?.path());
        }
        let Some(file) = files.into_iter().find(is_counts) else {
            bail!("callgrind wrote no counts")
        };
        let text = fs::read_to_string(&file)?;
        if let Some(folder) = env::var_os(KEPT_COUNTS) {
            fs::copy(&file, Path::new(&folder).join(&*file_name(&file)))?;
        }
        fs::remove_file(file)?;
        Counts::parse(&text)
    }
}

/// The counts of a file of callgrind.
#[derive(Debug, Default)]
struct Counts {
    instructions: u64,
    allocations: u64,
    atomics: u64,
    system_calls: u64,
}

// === impl Counts ===

impl Counts {
    fn parse(text: &str) -> Result<Self> {
        let line = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key));
            found.with_context(|| format!("no {key} in callgrind's counts"))
        };
        let totals = line("totals: ").or_else(|_| line("summary: "))?;
        let events = line("events: ")?.split(' ').zip(totals.split(' '));
        let events: HashMap<&str, u64> =
            events.filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect();
        let event = |name: &str| {
            let count = events.get(name).copied().filter(|count| *count > 0);
            count.with_context(|| format!("callgrind has not counted {name}"))
        };
        let allocations = allocations(text);
        ensure!(allocations > 0, "no calls of the allocator are in callgrind's counts");
        Ok(Self {
            instructions: event("Ir")?,
            allocations,
            atomics: event("Ge")?,
            system_calls: event("sysCount")?,
        })
    }
}

/// Counts the calls of allocating functions. A name comes once, and then its number stands for it.
fn allocations(text: &str) -> u64 {
    let mut ids: HashMap<&str, bool> = HashMap::new();
    let (mut is_allocator, mut sum) = (false, 0);
    for line in text.lines() {
        let name = line.strip_prefix("cfn=").or_else(|| line.strip_prefix("fn="));
        if let Some(name) = name {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                let last = name.rsplit("::").next().unwrap_or(name);
                ids.insert(id, ALLOCATORS.contains(&last));
            }
            if line.starts_with("cfn=") {
                is_allocator = ids.get(id).copied().unwrap_or_default();
            }
        } else if let Some(calls) = line.strip_prefix("calls=")
            && is_allocator
        {
            let count = calls.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            sum += count.unwrap_or_default();
        }
    }
    sum
}
