//! One run of many parts, through the runtime and SQLite.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use trilogue_domain::agent::InputKind;
use trilogue_domain::event::MessageEvent;
use trilogue_domain::lock;
use trilogue_domain::port::SystemClock;
use trilogue_domain::{
    AgentCard, AgentName, Body, Content, Failure, Json, MessageId, Part, Principal, PrincipalId,
    Rights, RunStatus, TenantId, ThreadId,
};
use trilogue_runtime::{
    Backend, Ending, Input, NewThread, Options, RunContext, RunRequest, Runtime, ThreadChoice,
    Turn, WhenHolding,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::{Range, Store};

use crate::appends::options;
use crate::disk;
use crate::report::{self, Report, median, millis, percentile};

/// The shorter stream, in parts.
const FEW: u64 = 2_000;
/// The longer one.
const MANY: u64 = 20_000;
/// The most that the longer one may take, in times of the shorter.
const TIMES: f64 = 12.0;
/// The most that the shorter one may take, or this many commits of the disk.
const FEW_LIMIT: Duration = Duration::from_millis(100);
const FEW_COMMITS: u32 = 20;
/// The pause between parts in a measurement of latency: about a fast model's tokens.
const PACE: Duration = Duration::from_millis(1);
/// The most time of a durable event beyond twice the disk's commit.
const SLACK: Duration = Duration::from_micros(500);
/// Bytes of text in each part.
const TEXT: usize = 32;

/// Emits as many parts as its input says.
#[derive(Debug)]
struct Parts {
    card: AgentCard,
    /// When each part was emitted, if the measurement needs it.
    emitted: Arc<Mutex<Vec<Instant>>>,
}

/// A runtime with that agent over SQLite.
struct PartsRuntime {
    runtime: Runtime,
    store: Arc<dyn Store>,
    emitted: Arc<Mutex<Vec<Instant>>>,
    by: Principal,
    _dir: tempfile::TempDir,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let house = PartsRuntime::open().await?;
    let (mut few, mut many, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..report.runs {
        let short = house.stream(FEW).await?.as_secs_f64();
        let long = house.stream(MANY).await?.as_secs_f64();
        few.push(short);
        many.push(long);
        ratios.push(long / short);
    }
    // A frame under load has about this many bytes: a full draft of such parts.
    let commit = disk::measure(report, 256 * (TEXT + 64))?;
    let few = Duration::from_secs_f64(median(few));
    let limit = FEW_LIMIT.max(commit.p50 * FEW_COMMITS);
    let target = format!("< {}", millis(limit));
    report.target(&format!("a run of {FEW} parts"), &millis(few), few < limit, &target);
    report.line(&format!("a run of {MANY} parts"), &millis(Duration::from_secs_f64(median(many))));
    let ratio = median(ratios);
    report.target(
        "the longer in times of the shorter",
        &format!("{ratio:.1}"),
        ratio <= TIMES,
        "<= 12",
    );

    let commit = disk::measure(report, TEXT + 64)?;
    let mut p99s = Vec::new();
    for _ in 0..report.runs {
        p99s.push(house.latency(FEW).await?.as_secs_f64());
    }
    let p99 = Duration::from_secs_f64(median(p99s));
    let limit = commit.p99 * 2 + SLACK;
    let target = format!("<= {}", millis(limit));
    report.target("an event from emitted to durable, p99", &millis(p99), p99 <= limit, &target);
    Ok(())
}

/// How long a run of this many parts takes in the core, the median of several.
pub(crate) async fn time_of(parts: u64, runs: usize) -> Result<Duration> {
    let house = PartsRuntime::open().await?;
    let mut times = Vec::new();
    for _ in 0..runs {
        times.push(house.stream(parts).await?.as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(times)))
}

// === impl PartsRuntime ===

impl PartsRuntime {
    async fn open() -> Result<Self> {
        let dir = tempfile::tempdir_in(report::folder())?;
        let url = format!("sqlite:{}", dir.path().join("stream.db").display());
        let store = trilogue_store::open(&url, options()).await?;
        let emitted = Arc::<Mutex<Vec<Instant>>>::default();
        let agent: Arc<dyn Backend> =
            Arc::new(Parts { card: card()?, emitted: Arc::clone(&emitted) });
        let runtime = Runtime::start(
            Options::default(),
            Arc::clone(&store),
            vec![agent],
            Arc::new(SystemClock),
            Arc::new(NoOriginals),
        )
        .await?;
        let by = Principal {
            tenant: TenantId::parse("bench")?,
            id: PrincipalId::parse("bench")?,
            rights: Rights::all(),
            own: false,
        };
        Ok(Self { runtime, store, emitted, by, _dir: dir })
    }

    fn new_run(&self, thread: &ThreadId, parts: u64, paced: bool) -> Result<RunRequest> {
        let input = serde_json::json!({"parts": parts, "paced": paced});
        Ok(RunRequest {
            when_holding: WhenHolding::Strategy,
            ..RunRequest::new(
                AgentName::parse("parts")?,
                ThreadChoice::Ensure(NewThread {
                    id: Some(thread.clone()),
                    metadata: None,
                    ..NewThread::default()
                }),
                Input::Value(Json::from_value(&input)),
            )
        })
    }

    /// Runs to the end, as fast as the log takes it.
    async fn stream(&self, parts: u64) -> Result<Duration> {
        let begun = Instant::now();
        let new = self.new_run(&ThreadId::generate(), parts, false)?;
        let run = self.runtime.submit(&self.by, new).await?.settled.wait().await?;
        ensure!(run.status == RunStatus::Completed, "the run ended as {:?}", run.outcome);
        Ok(begun.elapsed())
    }

    /// Runs at a pace, and gives the p99 of the time from an event's emission to its durability.
    async fn latency(&self, parts: u64) -> Result<Duration> {
        lock(&self.emitted).clear();
        let id = ThreadId::generate();
        let submitted = self.runtime.submit(&self.by, self.new_run(&id, parts, true)?).await?;
        let row = self.store.thread(&self.by.scope(), &id).await?.context("the thread is lost")?;
        let mut tail = self.store.tail(row.key);
        let (mut after, mut durable) = (0, Vec::new());
        while durable.len() < usize::try_from(parts)? {
            tail.committed.wait_for(|committed| *committed > after).await?;
            let woken = Instant::now();
            let range = Range { run: None, after, max_bytes: 1 << 20 };
            for frame in self.store.frames(row.key, range).await? {
                let new = frame.events()?.iter().filter(|event| event.number > after);
                let is_part =
                    |body: &Body| matches!(body, Body::Message(MessageEvent::Part { .. }));
                durable.extend(new.filter(|event| is_part(&event.body)).map(|_| woken));
                after = frame.last();
            }
        }
        submitted.settled.wait().await?;
        let emitted = lock(&self.emitted);
        let times: Vec<Duration> =
            emitted.iter().zip(&durable).map(|(from, to)| to.duration_since(*from)).collect();
        Ok(percentile(&times, 0.99))
    }
}

fn card() -> Result<AgentCard> {
    Ok(AgentCard {
        version: "1".to_owned(),
        description: "emits parts".to_owned(),
        ..AgentCard::new(AgentName::parse("parts")?, InputKind::Schema(Json::empty_object()))
    })
}

#[async_trait]
impl Backend for Parts {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        true
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Turn::Start { input: Input::Value(input) } = turn else {
            return Err(agent_failure("input"));
        };
        let input = input.to_value();
        let paced = input["paced"] == true;
        let text: Arc<str> = Arc::from("x".repeat(TEXT));
        let message = MessageId::generate();
        let mut tick = tokio::time::interval(PACE);
        for _ in 0..input["parts"].as_u64().unwrap_or_default() {
            if paced {
                tick.tick().await;
                lock(&self.emitted).push(Instant::now());
            }
            let part = Part {
                content_type: Arc::from("text/plain"),
                content: Content::Text(Arc::clone(&text)),
                name: None,
                metadata: None,
                extra: None,
            };
            let body = Body::Message(MessageEvent::Part { message: message.clone(), part });
            context.emit(body, None).await.map_err(|error| agent_failure(&error.to_string()))?;
        }
        Ok(Ending::Completed)
    }
}

fn agent_failure(message: &str) -> Failure {
    Failure {
        code: "agent_failed".to_owned(),
        message: message.to_owned(),
        transient: false,
        data: None,
    }
}
