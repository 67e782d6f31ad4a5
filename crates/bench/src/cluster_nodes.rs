//! The costs and failures of nodes: memory with many idle threads, the time of a take-over, and a projection to a large cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio_postgres::NoTls;
use trilogue_testkit::{Server, until};

use crate::load;
use crate::memory::{mib, resident};
use crate::report::{self, Report};

/// How many threads are there before, so that caches and buffers have their size, and how many come.
const WARM_UP: u64 = 10_000;
const IDLE_THREADS: u64 = 100_000;
/// How many connections make them on each server.
const CONNECTIONS: u64 = 16;
/// The most additional memory of a server with the idle threads, in KiB.
const MORE_KIB: u64 = 20 * 1024;
/// How long a server may take to release memory that it no longer needs.
const SETTLE: Duration = Duration::from_secs(30);
/// The longest from a kill to the next run on a thread of the server that was killed.
const TAKE_OVER: Duration = Duration::from_secs(5);

/// The load that the figures are projected to.
const THREADS: f64 = 1e6;
const EVENTS_A_SECOND: f64 = 1e5;
/// How many threads are at work at once: an assumption.
const SHARE_AT_WORK: f64 = 0.01;
/// The memory of a working thread, in KiB: the benchmark `hop` measures it, for each of 1,000 streams.
const KIB_AT_WORK: f64 = 128.0;
/// Connections of a server to the database, as it is set up without further settings: those that read, those that write, and the one for signs of life.
const NODE_CONNECTIONS: f64 = 7.0;
/// How many connections PostgreSQL takes without further settings.
const MAX_CONNECTIONS: f64 = 100.0;
/// Statements a second that a server sends without any work: a sign of life, and a look at the ends of logs.
const NODE_STATEMENTS: f64 = 2.0;

/// The figures for a projection, all of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterFigures {
    /// Frames a second that the store appends.
    pub(crate) appends: f64,
    /// Runs of `echo` a second through one server.
    pub(crate) runs: f64,
    /// Events of a run of `echo`, and the growth of the database per event, in bytes.
    pub(crate) run_events: f64,
    pub(crate) event_bytes: f64,
    /// Memory of an idle thread on a server, in bytes.
    pub(crate) idle_bytes: f64,
}

/// The size of a database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatabaseSize {
    pub(crate) events: f64,
    pub(crate) runs: f64,
    pub(crate) bytes: f64,
}

// === impl DatabaseSize ===

impl DatabaseSize {
    pub(crate) async fn of(url: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let sql = concat!(
            "SELECT (SELECT coalesce(sum(last - first + 1), 0) FROM frames)::float8,",
            " (SELECT count(*) FROM runs)::float8,",
            " pg_database_size(current_database())::float8"
        );
        let row = client.query_one(sql, &[]).await?;
        Ok(Self { events: row.get(0), runs: row.get(1), bytes: row.get(2) })
    }
}

/// Measures the resident memory of two servers before and after many threads that had a run each. Returns the memory of an idle thread, in bytes.
pub(crate) async fn idle(report: &mut Report, servers: &[Server]) -> Result<f64> {
    make_threads(servers, 0..WARM_UP).await?;
    let before = wait_for_memory(servers, u64::MAX).await?;
    make_threads(servers, WARM_UP..WARM_UP + IDLE_THREADS).await?;
    let most = before.iter().max().copied().unwrap_or_default() + MORE_KIB;
    let after = wait_for_memory(servers, most).await?;
    let more: Vec<u64> =
        after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before)).collect();
    let most = more.iter().max().copied().unwrap_or_default();
    report.line("each server before, the larger one", &mib(before.into_iter().max().unwrap_or(0)));
    let what = format!("more on a server with {IDLE_THREADS} idle threads");
    report.target(&what, &mib(most), most <= MORE_KIB, "<= 20 MiB");
    Ok(most as f64 * 1024.0 / IDLE_THREADS as f64)
}

/// Makes threads of these numbers, each with a run, the same share on each server.
async fn make_threads(servers: &[Server], numbers: std::ops::Range<u64>) -> Result<()> {
    let mut tasks = Vec::new();
    let step = CONNECTIONS * servers.len() as u64;
    for place in 0..step {
        let server = &servers[place as usize % servers.len()];
        let (address, token) = (server.home().address(), server.token().to_owned());
        let numbers = numbers.clone();
        tasks.push(tokio::spawn(async move {
            let mut connection = load::Connection::open(address).await?;
            for number in numbers.skip(place as usize).step_by(step as usize) {
                let body = run_on(&format!("idle-{number}"));
                let request = load::post(address, "/api/v1/runs", &token, &body);
                let (status, _) = connection.exchange(&request).await?;
                ensure!(status == 200, "a run was answered with {status}");
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// The resident memory of each server, in KiB, once none has more than `most` or the time is over.
async fn wait_for_memory(servers: &[Server], most: u64) -> Result<Vec<u64>> {
    let all = || servers.iter().map(resident).collect::<Result<Vec<u64>>>();
    let fits = until("memory to settle", SETTLE, || async {
        all().ok().filter(|all| all.iter().all(|one| *one <= most))
    });
    match fits.await {
        Ok(all) => Ok(all),
        Err(_) => all(),
    }
}

fn run_on(thread: &str) -> String {
    json!({
        "agent": "echo", "input": "hello", "mode": "wait",
        "thread_id": thread, "create_thread": true,
    })
    .to_string()
}

/// From the kill of the server that owns a thread until another one has done a run on it.
pub(crate) async fn take_over(report: &mut Report, servers: Vec<Server>) -> Result<()> {
    let [mut owner, mut other] =
        <[Server; 2]>::try_from(servers).ok().context("two servers take part")?;
    let mut times = Vec::new();
    for round in 0..report.runs {
        let body = run_on(&format!("take-over-{round}"));
        let ask = async |server: &Server| -> Result<u16> {
            let address = server.home().address();
            let request = load::post(address, "/api/v1/runs", server.token(), &body);
            Ok(load::Connection::open(address).await?.ask(&request).await?.0)
        };
        let status = ask(&owner).await?;
        ensure!(status == 200, "a run was answered with {status}");
        let begun = Instant::now();
        let home = owner.kill().await?;
        let status = ask(&other).await?;
        times.push(begun.elapsed());
        ensure!(status == 200, "a run after the kill was answered with {status}");
        owner = home.start().await?;
        // The other one owns the next thread.
        std::mem::swap(&mut owner, &mut other);
    }
    let longest = times.iter().max().copied().unwrap_or_default();
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    report.line("from a kill to the next run, p50", &seconds(report::percentile(&times, 0.50)));
    let is_reached = longest < TAKE_OVER;
    report.target("from a kill to the next run, longest", &seconds(longest), is_reached, "< 5 s");
    for server in [owner, other] {
        server.stop().await?;
    }
    Ok(())
}

/// Prints the projection of this run's figures to a million threads and 100,000 events a second.
pub(crate) fn project(report: &mut Report, measured: ClusterFigures) {
    let ClusterFigures { appends, runs, run_events, event_bytes, idle_bytes } = measured;
    let node_events = runs * run_events;
    let nodes = (EVENTS_A_SECOND / node_events).ceil();
    let connections = nodes * NODE_CONNECTIONS;
    let at_work = THREADS * SHARE_AT_WORK * KIB_AT_WORK / nodes / 1024.0;
    let idle = THREADS * idle_bytes / nodes / 1024.0 / 1024.0;
    let databases = EVENTS_A_SECOND / appends;
    let day = EVENTS_A_SECOND * event_bytes * 86_400.0 / 1e12;
    report.section("cluster, projected to 1,000,000 threads and 100,000 events a second");
    report.line("events a second through one server here", &format!("{node_events:.0}"));
    report.line("servers like this one", &format!("{nodes:.0}"));
    report.line("their connections to the database", &format!("{connections:.0}"));
    let statements = nodes * NODE_STATEMENTS;
    report.line("statements a second without any work", &format!("{statements:.0}"));
    report.line("memory of each for idle threads", &format!("{idle:.0} MiB"));
    report.line("memory of each for 1 % of them at work", &format!("{at_work:.0} MiB"));
    report.line("databases like this one, by its appends", &format!("{databases:.1}"));
    report.line("the database grows, a day", &format!("{day:.1} TB"));
    let ratios = [
        ("what the database appends", databases),
        ("its connections (100 without a setting)", connections / MAX_CONNECTIONS),
    ];
    let first = ratios.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let (what, ratio) = first.unwrap_or_default();
    report.line("what breaks first", what);
    report.line("by how many times it is exceeded", &format!("{ratio:.1}"));
}
