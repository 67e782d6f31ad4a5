//! One run with many readers, some of which do not read, compared with a bare server over a broadcast channel.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;
use trilogue::sdk::prelude::{
    Agent, AgentError, Card, Context as AgentContext, Outcome, Turn, async_trait,
};
use trilogue_testkit::{Client, until};

use crate::load::Connection;
use crate::peer::Peer;
use crate::report::{Report, median};

/// Subscribers that read.
const READERS: usize = 900;
/// Subscribers that do not.
const SLEEPERS: usize = 100;
/// How many events the run emits while they are there.
const EVENTS: usize = 1_000;
/// Occurs once in every event and nowhere else on the wire.
const MARK: u8 = b'~';
/// Bytes of text in each event.
const TEXT: usize = 64;
/// The least share of the peer's deliveries.
const SHARE: f64 = 0.5;
/// The most that the server's memory may grow by, in KiB: the tail cache, the shared renderings, and a socket's worth for each reader.
const GROWTH_KIB: u64 = 160 * 1024;
/// How long one measurement may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits for an answer, then emits as many parts as its input says.
#[derive(Clone, Copy, Debug)]
struct Fountain;

/// Our server with that agent, in a process of its own. Killed when dropped.
struct PartsServerProcess {
    child: Child,
    address: SocketAddr,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (mut ours, mut theirs, mut ratios, mut growths) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let server = PartsServerProcess::start().await?;
        let before = resident(&server.child)?;
        let (us, event) = deliver(&server).await?;
        growths.push(resident(&server.child)?.saturating_sub(before) as f64);
        drop(server);
        let them = broadcast(&event).await?;
        ours.push(us);
        theirs.push(them);
        ratios.push(us / them);
    }
    let what = format!("a bare broadcast, events a second to {READERS} readers");
    report.line(&what, &format!("{:.0}", median(theirs)));
    report.line("one run, events a second to the same readers", &format!("{:.0}", median(ours)));
    let ratio = median(ratios);
    report.target("one run, share of the peer", &format!("{ratio:.2}"), ratio >= SHARE, ">= 0.50");
    let growth = median(growths) as u64;
    let what = format!("growth with {SLEEPERS} more that do not read");
    let value = crate::memory::mib(growth);
    report.target(
        &what,
        &value,
        growth <= GROWTH_KIB,
        &format!("<= {}", crate::memory::mib(GROWTH_KIB)),
    );
    Ok(())
}

/// Is our server, with the agent of this figure, until it is killed.
pub(crate) async fn serve(address: &str) -> Result<()> {
    let mut options = trilogue::Options::in_memory();
    options.server.listen = trilogue::config::List(vec![address.parse()?]);
    options.server.no_auth = true;
    trilogue::serve(Fountain, options).await?;
    Ok(())
}

/// One run to all readers; gives the delivered events a second, and the bytes of one event on the wire.
async fn deliver(server: &PartsServerProcess) -> Result<(f64, Vec<u8>)> {
    let client = Client::new(server.address);
    let request = json!({"agent": "fountain", "input": {"parts": EVENTS}, "mode": "async"});
    let run = client.post("/api/v1/runs", &request).await?.ok()?;
    let id = run["id"].as_str().context("the run has no id")?.to_owned();
    let question = until("the agent to ask", LIMIT, || async {
        let run = client.get(&format!("/api/v1/runs/{id}")).await.ok()?.json();
        run["interrupts"][0]["id"].as_str().map(str::to_owned)
    })
    .await?;
    let path = format!("/api/v1/runs/{id}/events");
    let answer = format!("/api/v1/interrupts/{question}/answer");
    let begin = async {
        client.post(&answer, &json!({"text": "begin"})).await?.ok()?;
        Ok(())
    };
    let rate = read_all(server.address, &path, begin).await?;

    // The bytes of one event on the wire, for the peer: the last part of the run.
    let mut stream = client.stream(&path, None).await?;
    let mut event = Vec::new();
    while let Some(each) = stream.next().await? {
        if each.data.as_bytes().contains(&MARK) {
            let id = each.id.unwrap_or_default();
            let name = each.event.map(|name| format!("event: {name}\n")).unwrap_or_default();
            event = format!("id: {id}\n{name}data: {}\n\n", each.data).into_bytes();
        }
        let end: Value = serde_json::from_str(&each.data).unwrap_or_default();
        if end["type"] == "run.ended" {
            break;
        }
    }
    ensure!(!event.is_empty(), "the run emitted nothing");
    Ok((rate, event))
}

/// The same bytes to the same readers, from a bare server.
async fn broadcast(event: &[u8]) -> Result<f64> {
    let peer = Peer::start("sse", "").await?;
    let client = Client::new(peer.address());
    let publish = async {
        let path = format!("/publish?count={EVENTS}");
        let body = bytes::Bytes::copy_from_slice(event);
        client.send(http::Method::POST, &path, &[], body).await?.ok()?;
        Ok(())
    };
    read_all(peer.address(), "/events", publish).await
}

/// Opens every subscriber, lets `begin` begin, and reads until each reader has every event.
async fn read_all(
    address: SocketAddr,
    path: &str,
    begin: impl Future<Output = Result<()>>,
) -> Result<f64> {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    let mut sleepers = Vec::new();
    let mut readers = Vec::new();
    for index in 0..READERS + SLEEPERS {
        let mut stream = Connection::open(address).await?.send(request.as_bytes()).await?;
        // The head shows that the subscription stands.
        let mut head = [0; 1];
        timeout(LIMIT, stream.read_exact(&mut head)).await.context("no answer came")??;
        let all = if index < READERS { &mut readers } else { &mut sleepers };
        all.push(stream);
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for stream in readers {
        tasks.spawn(read_marks(stream));
    }
    begin.await?;
    let all = async {
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        anyhow::Ok(())
    };
    timeout(LIMIT, all).await.context("the readers did not get every event")??;
    let elapsed = begun.elapsed();
    drop(sleepers);
    Ok((READERS * EVENTS) as f64 / elapsed.as_secs_f64())
}

/// Reads until every event was seen.
async fn read_marks(mut stream: TcpStream) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    let mut seen = 0;
    while seen < EVENTS {
        let read = stream.read(&mut buffer).await?;
        ensure!(read > 0, "the stream ended after {seen} events");
        seen += buffer[..read].iter().filter(|byte| **byte == MARK).count();
    }
    Ok(())
}

// === impl PartsServerProcess ===

impl PartsServerProcess {
    async fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        drop(listener);
        let child = Command::new(std::env::current_exe()?)
            .args(["ours", &address.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let client = Client::new(address);
        until("our server to be ready", LIMIT, || async {
            client.get("/readyz").await.ok().filter(|reply| reply.status == 200)
        })
        .await?;
        Ok(Self { child, address })
    }
}

/// Resident memory of a process, in KiB.
fn resident(child: &Child) -> Result<u64> {
    let pid = child.id().context("the server is gone")?;
    crate::memory::resident_of(&fs::read_to_string(format!("/proc/{pid}/status"))?)
}

#[async_trait]
impl Agent for Fountain {
    fn card(&self) -> Card {
        Card::schema("fountain", "Emits parts when it is told to.", json!({"type": "object"}))
    }

    async fn run(&self, turn: Turn, context: AgentContext) -> Result<Outcome, AgentError> {
        let Turn::Start { input: trilogue::sdk::Input::Value(input) } = turn else {
            return Ok(Outcome::Completed);
        };
        context.ask_message("begin?").await?;
        let text = format!("{}{}", char::from(MARK), "x".repeat(TEXT));
        for _ in 0..input.to_value()["parts"].as_u64().unwrap_or_default() {
            context.part(trilogue::sdk::Part::text(text.as_str())).await?;
        }
        Ok(Outcome::Completed)
    }
}
