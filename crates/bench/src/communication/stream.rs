//! One stream of many parts through this protocol, compared with the same stream through the native one.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use trilogue::sdk::prelude::{
    Agent, AgentError, Card, Context as AgentContext, Outcome, Part, Turn, async_trait,
};
use trilogue_testkit::{Client, until};

use crate::load::Connection;
use crate::report::{self, Report, median, millis};

/// How many parts the stream has.
const PARTS: usize = 2_000;
/// How many parts each of its messages has, which is about as many as one may have.
const MESSAGE: usize = 1_000;
/// Bytes of text in each part.
const TEXT: usize = 32;
/// Occurs once in every part and nowhere else on the wire.
const MARK: u8 = b'~';
/// The most that the stream may take, in times of the same through our own face.
const TIMES: f64 = 1.5;
/// How long one measurement may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Emits as many parts as its input says; a second number is the pause before each of them, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Parts;

/// Our server with that agent, in a process of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct PartsServer {
    _child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    let server = PartsServer::start().await?;
    let text = PARTS.to_string();
    let native = json!({"agent": "parts", "input": text, "mode": "stream"});
    let face = json!({
        "agent_name": "parts", "mode": "stream",
        "input": [{"role": "user", "parts": [{"content_type": "text/plain", "content": text}]}],
    });
    // The first runs of a process pay for memory that later ones find.
    let read = async |path, body| read_parts(server.address, path, "none", body, PARTS).await;
    read("/api/v1/runs", &native).await?;
    read(super::RUNS, &face).await?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let them = read("/api/v1/runs", &native).await?.as_secs_f64();
        let us = read(super::RUNS, &face).await?.as_secs_f64();
        ours.push(us);
        theirs.push(them);
        ratios.push(us / them);
    }
    let time = |values| millis(Duration::from_secs_f64(median(values)));
    let core = crate::stream::time_of(PARTS as u64, report.runs).await?;
    let of_core = median(ours.clone()) / core.as_secs_f64();
    report.line(&format!("a run of {PARTS} parts in the core, nobody reading"), &millis(core));
    report.line("the same, streamed by /api/v1", &time(theirs));
    report.line("the same, streamed by this face", &time(ours));
    report.line(
        "this face in times of the core, with nobody reading there",
        &format!("{of_core:.2}"),
    );
    let ratio = median(ratios);
    let what = "this face in times of /api/v1";
    report.target(what, &format!("{ratio:.2}"), ratio <= TIMES, "<= 1.5");
    Ok(())
}

/// Is our server, with the agent of this figure, until it is killed.
pub(crate) async fn serve(address: &str, store: &str) -> Result<()> {
    let mut options = trilogue::Options::in_memory();
    store.clone_into(&mut options.store.url);
    options.server.listen = trilogue::config::List(vec![address.parse()?]);
    options.server.no_auth = true;
    trilogue::serve(Parts, options).await?;
    Ok(())
}

// === impl PartsServer ===

impl PartsServer {
    /// Starts the server; it accepts runs of every caller.
    pub(crate) async fn start() -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        drop(listener);
        let store = format!("sqlite:{}", dir.path().join("stream.db").display());
        let child = Command::new(std::env::current_exe()?)
            .args(["parts", &address.to_string(), &store])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let client = Client::new(address);
        until("our server to be ready", LIMIT, || async {
            client.get("/readyz").await.ok().filter(|reply| reply.status == 200)
        })
        .await?;
        Ok(Self { _child: child, address, _dir: dir })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Asks for a run of [`Parts`] and reads its stream to the end; fails unless all parts come.
pub(crate) async fn read_parts(
    address: SocketAddr,
    path: &str,
    token: &str,
    body: &Value,
    parts: usize,
) -> Result<Duration> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let connection = Connection::open(address).await?;
    let begun = Instant::now();
    let mut stream = connection.send(request.as_bytes()).await?;
    let (mut buffer, mut marks) = (vec![0; 64 * 1024], 0);
    let whole = async {
        loop {
            let read = stream.read(&mut buffer).await?;
            if read == 0 {
                return anyhow::Ok(());
            }
            marks += buffer[..read].iter().filter(|byte| **byte == MARK).count();
        }
    };
    timeout(LIMIT, whole).await.context("the stream did not end")??;
    let elapsed = begun.elapsed();
    ensure!(marks >= parts, "{path} gave {marks} of {parts} parts");
    Ok(elapsed)
}

#[async_trait]
impl Agent for Parts {
    fn card(&self) -> Card {
        Card::chat("parts", "Emits as many parts as it is told.")
    }

    async fn run(&self, turn: Turn, context: AgentContext) -> Result<Outcome, AgentError> {
        let numbers: Option<Vec<u64>> =
            turn.text().split_whitespace().map(|word| word.parse().ok()).collect();
        let (count, pause) = match numbers.as_deref() {
            Some([count]) => (*count as usize, None),
            Some([count, pause]) => (*count as usize, Some(Duration::from_millis(*pause))),
            _ => return Err(AgentError::invalid_input("say a number, or two")),
        };
        let text = format!("{}{}", char::from(MARK), "x".repeat(TEXT));
        for begun in (0..count).step_by(MESSAGE) {
            let mut message = context.message().await?;
            for _ in begun..count.min(begun + MESSAGE) {
                if let Some(pause) = pause {
                    context.wait(pause).await?;
                }
                message.part(Part::text(text.as_str())).await?;
            }
            message.finish().await?;
        }
        Ok(Outcome::Completed)
    }
}
