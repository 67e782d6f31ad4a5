//! Servers on PostgreSQL: appends compared with the same frames as rows in bare PostgreSQL, runs through one server and through two, the extra cost of a
//! request for another server's thread, and the time until a reader at another server receives an append.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::NoTls;
use trilogue_store::{NodeOptions, Options};
use trilogue_testkit::{Server, ServerOptions};

use crate::appends::{self, PRODUCERS, Work};
use crate::cluster_nodes::{self, ClusterFigures, DatabaseSize};
use crate::load;
use crate::report::{self, Report, median, spread};

/// The least rate, as a share of bare PostgreSQL's.
const SHARE: f64 = 0.7;
/// The most frames in one commit of the peer, and how many connections it writes on: as many as the store.
const GROUP: usize = 256;
const WRITERS: usize = 2;
/// How many connections ask at once, and for how many runs.
const CONNECTIONS: usize = 16;
const REQUESTS: u64 = 4_000;
/// How many requests and appends are timed one by one.
const SINGLE: usize = 400;

/// A private PostgreSQL that waits for the disk, and a NATS server. Stopped when dropped.
struct PrivateServers {
    state: tempfile::TempDir,
    postgres: String,
    nats: String,
}

/// A frame on its way to one of the peer's writers.
struct PeerFrame {
    thread: i64,
    frame: Arc<trilogue_store::Frame>,
    done: oneshot::Sender<()>,
}

// === impl PrivateServers ===

impl PrivateServers {
    fn start() -> Result<Self> {
        let state = tempfile::tempdir_in(report::folder())?;
        let output = script(state.path()).args(["start", "--durable"]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout)?;
        let of = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            line.map(str::to_owned).with_context(|| format!("scripts/services names no {name}"))
        };
        Ok(Self { postgres: of("TRILOGUE_POSTGRES")?, nats: of("TRILOGUE_NATS")?, state })
    }

    /// A database of its own.
    async fn database(&self, name: &str) -> Result<String> {
        let (client, connection) = tokio_postgres::connect(&self.postgres, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        let (server, _) = self.postgres.rsplit_once('/').context("the URL names a database")?;
        Ok(format!("{server}/{name}"))
    }
}

impl Drop for PrivateServers {
    fn drop(&mut self) {
        // What is left shows in the list of processes.
        let _ = script(self.state.path()).arg("stop").status();
    }
}

fn script(state: &Path) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/services");
    let mut command = Command::new(path);
    command.env("CARGO_TARGET_DIR", state);
    command
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let services = PrivateServers::start()?;
    let appends = compare_appends(report, &services).await?;
    let through = runs(report, &services).await?;
    news(report, &services).await?;
    let idle_bytes = nodes(report, &services).await?;
    cluster_nodes::project(report, ClusterFigures { appends, idle_bytes, ..through });
    Ok(())
}

/// Measures the memory of two servers with idle threads, and the time in which one takes over from the other. Returns the memory of an idle thread, in bytes.
async fn nodes(report: &mut Report, services: &PrivateServers) -> Result<f64> {
    let url = services.database("nodes").await?;
    let dirs = [tempfile::tempdir_in(report::folder())?, tempfile::tempdir_in(report::folder())?];
    let servers = start_two(&url, services, &dirs).await?;
    let idle_bytes = cluster_nodes::idle(report, &servers).await?;
    cluster_nodes::take_over(report, servers).await?;
    Ok(idle_bytes)
}

async fn start_two(
    url: &str,
    services: &PrivateServers,
    dirs: &[tempfile::TempDir; 2],
) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for (name, dir) in ["a", "b"].into_iter().zip(dirs) {
        let options =
            ServerOptions { settings: node(name, services), ..report::server_options(url)? };
        servers.push(Server::start(dir.path(), &options).await?);
    }
    Ok(servers)
}

/// Returns the frames a second that the store takes.
async fn compare_appends(report: &mut Report, services: &PrivateServers) -> Result<f64> {
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..report.runs {
        let url = services.database(&format!("ours{round}")).await?;
        let store = trilogue_store::open(&url, appends::options()).await?;
        let work = appends::prepare(store.as_ref()).await?;
        let url = services.database(&format!("theirs{round}")).await?;
        let them = appends::rate(bare(&url, &work).await?);
        let us = appends::rate(appends::append(&store, &work).await?);
        store.close().await?;
        ours.push(us);
        theirs.push(them);
        ratios.push(us / them);
    }
    let what = format!("bare PostgreSQL, frames a second, {PRODUCERS} producers");
    report.line(&what, &format!("{:.0}", median(theirs)));
    let ours = median(ours);
    report.line("the store, the same frames a second", &format!("{ours:.0}"));
    let ratio = median(ratios);
    let is_reached = ratio >= SHARE;
    report.target(
        "the store's share of bare PostgreSQL",
        &format!("{ratio:.2}"),
        is_reached,
        ">= 0.70",
    );
    Ok(ours)
}

/// Writes the same frames to bare PostgreSQL: as many writers as the store has, and each inserts all frames that have arrived in one statement.
async fn bare(url: &str, work: &[Work]) -> Result<Duration> {
    let mut senders = Vec::new();
    let mut writers = Vec::new();
    for place in 0..WRITERS {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        if place == 0 {
            let table = concat!(
                "CREATE TABLE frames (thread BIGINT NOT NULL, run BIGINT, first BIGINT NOT NULL,",
                " last BIGINT NOT NULL, first_run BIGINT NOT NULL, body BYTEA NOT NULL,",
                " PRIMARY KEY (thread, first));",
                " ALTER TABLE frames ALTER COLUMN body SET STORAGE EXTERNAL;",
                " CREATE INDEX frames_by_run ON frames (run, first_run) WHERE run IS NOT NULL"
            );
            client.batch_execute(table).await?;
        }
        let (sender, inbox) = mpsc::channel(GROUP);
        senders.push(sender);
        writers.push(tokio::spawn(write(client, inbox)));
    }
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for (index, work) in work.iter().enumerate() {
        let (sender, frames) = (senders[index % WRITERS].clone(), work.frames.clone());
        let thread = i64::try_from(index)?;
        tasks.push(tokio::spawn(async move {
            for frame in frames {
                let (done, committed) = oneshot::channel();
                sender.send(PeerFrame { thread, frame, done }).await.ok();
                committed.await?;
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let elapsed = begun.elapsed();
    drop(senders);
    for writer in writers {
        writer.await??;
    }
    Ok(elapsed)
}

async fn write(client: tokio_postgres::Client, mut inbox: mpsc::Receiver<PeerFrame>) -> Result<()> {
    let sql = concat!(
        "INSERT INTO frames SELECT * FROM",
        " unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])"
    );
    let statement = client.prepare(sql).await?;
    let mut group: Vec<PeerFrame> = Vec::with_capacity(GROUP);
    while inbox.recv_many(&mut group, GROUP).await > 0 {
        let number = |of: &dyn Fn(&PeerFrame) -> u64| -> Vec<i64> {
            group.iter().map(|sent| of(sent).cast_signed()).collect()
        };
        let threads: Vec<i64> = group.iter().map(|sent| sent.thread).collect();
        let runs: Vec<Option<i64>> =
            group.iter().map(|sent| sent.frame.run().map(|run| run.0)).collect();
        let first = number(&|sent| sent.frame.first());
        let last = number(&|sent| sent.frame.last());
        let first_run = number(&|sent| sent.frame.first_run());
        let bodies: Vec<&[u8]> = group.iter().map(|sent| sent.frame.bytes().as_ref()).collect();
        client.execute(&statement, &[&threads, &runs, &first, &last, &first_run, &bodies]).await?;
        for sent in group.drain(..) {
            // A producer that is gone needs no answer.
            let _ = sent.done.send(());
        }
    }
    Ok(())
}

fn node(name: &str, services: &PrivateServers) -> String {
    format!("[cluster]\nname = \"{name}\"\nnats = \"{}\"\n", services.nats)
}

/// Measures runs of `echo` through one server and through two, and requests for a thread of the other. Returns the figures of the runs.
async fn runs(report: &mut Report, services: &PrivateServers) -> Result<ClusterFigures> {
    let url = services.database("servers").await?;
    let dirs = [tempfile::tempdir_in(report::folder())?, tempfile::tempdir_in(report::folder())?];
    let servers = start_two(&url, services, &dirs).await?;
    let before = DatabaseSize::of(&url).await?;
    let body =
        json!({"agent": "echo", "input": "hello, who is there?", "mode": "wait"}).to_string();
    let path = "/api/v1/runs";
    let request = |server: &Server, body: &str| {
        load::post(server.home().address(), path, server.token(), body)
    };
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let [a, b] = [&servers[0], &servers[1]];
        let alone =
            load::hammer(a.home().address(), request(a, &body), CONNECTIONS, REQUESTS).await?;
        one.push(alone.per_second());
        let half = (CONNECTIONS / 2, REQUESTS / 2);
        let (left, right) = tokio::try_join!(
            load::hammer(a.home().address(), request(a, &body), half.0, half.1),
            load::hammer(b.home().address(), request(b, &body), half.0, half.1),
        )?;
        let longer = left.elapsed.max(right.elapsed);
        two.push((left.requests + right.requests) as f64 / longer.as_secs_f64());
    }
    let after = DatabaseSize::of(&url).await?;
    let events = after.events - before.events;
    let through = ClusterFigures {
        appends: 0.0,
        runs: median(one),
        run_events: events / (after.runs - before.runs),
        event_bytes: (after.bytes - before.bytes) / events,
        idle_bytes: 0.0,
    };
    report.line("echo through one server, runs a second", &format!("{:.0}", through.runs));
    report.line("echo through two servers, runs a second", &format!("{:.0}", median(two)));

    let on = json!({"agent": "echo", "input": "hello", "mode": "wait", "thread_id": "t", "create_thread": true});
    let on = on.to_string();
    let mut here = Vec::new();
    let mut there = Vec::new();
    let mut connections = Vec::new();
    for server in &servers {
        connections.push(load::Connection::open(server.home().address()).await?);
    }
    for _ in 0..SINGLE {
        for (place, times) in [(0, &mut here), (1, &mut there)] {
            let begun = Instant::now();
            let (status, _) = connections[place].ask(&request(&servers[place], &on)).await?;
            times.push(begun.elapsed());
            ensure!(status == 200, "a run was answered with {status}");
        }
    }
    for (what, times) in [("at its owner", &here), ("at another server", &there)] {
        report.line(&format!("a run on a thread, {what}, p50 / p99"), &spread(times));
    }
    for server in servers {
        server.stop().await?;
    }
    Ok(through)
}

/// From an append that has returned until a reader of another server knows of it.
async fn news(report: &mut Report, services: &PrivateServers) -> Result<()> {
    let url = services.database("news").await?;
    let open = async |name: &str| {
        let node = NodeOptions {
            news: Some(services.nats.clone()),
            ..NodeOptions::new(name.to_owned(), format!("http://{name}"))
        };
        trilogue_store::open(&url, Options { node: Some(node), ..appends::options() }).await
    };
    let (writer, reader) = (open("a").await?, open("b").await?);
    let work = appends::prepare(writer.as_ref()).await?;
    let mut times = Vec::new();
    for work in &work {
        let mut tail = reader.tail(work.thread);
        for frame in work.frames.iter().take(SINGLE / PRODUCERS + 1) {
            let last = frame.last();
            writer
                .append(appends::batch(
                    work.thread,
                    frame.first() - 1,
                    vec![Arc::clone(frame)],
                    Vec::new(),
                ))
                .await?;
            let begun = Instant::now();
            tail.committed.wait_for(|committed| *committed >= last).await?;
            times.push(begun.elapsed());
        }
    }
    report.line("an append known at another server, p50 / p99", &spread(&times));
    let trips = round_trips(services).await?;
    report.line("a message through NATS itself, p50 / p99", &spread(&trips));
    writer.close().await?;
    reader.close().await?;
    Ok(())
}

/// How long a message of the same size takes from one client of NATS to another.
async fn round_trips(services: &PrivateServers) -> Result<Vec<Duration>> {
    use futures_util::StreamExt as _;
    let (sender, receiver) =
        (async_nats::connect(&services.nats).await?, async_nats::connect(&services.nats).await?);
    let mut heard = receiver.subscribe("bench").await?;
    receiver.flush().await?;
    let mut times = Vec::new();
    let mut trip = async |number: usize| -> Result<()> {
        // As long as the news of one append.
        let message: bytes::Bytes = format!("{number:025}").into();
        sender.publish("bench", message.clone()).await?;
        // One that came late is of an earlier trip.
        while heard.next().await.context("the subscription ended")?.payload != message {}
        Ok(())
    };
    // Until the server knows of the subscription, messages are lost.
    while tokio::time::timeout(Duration::from_secs(1), trip(0)).await.is_err() {}
    for number in 1..=SINGLE {
        let begun = Instant::now();
        trip(number).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}
