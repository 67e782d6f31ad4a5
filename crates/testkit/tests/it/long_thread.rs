//! A thread of 20,000 runs: every response about it is bounded, and none needs much memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use trilogue_domain::event::{Body, MessageEvent, RunEvent};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, MessageId, Outcome, PrincipalId, Role, RunId,
    RunStatus, TenantId, ThreadId, Timestamp,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::{CheckpointRow, MessageRow, RunRow, ThreadRow};
use trilogue_store::{Batch, Change, Draft, Durability, Options, Store, open};
use trilogue_testkit::{Client, Folder, Home, Reply, Server, ServerOptions};

/// The number of runs on the thread.
const RUNS: usize = 20_000;
/// The number of runs in one append.
const RUNS_OF_BATCH: usize = 100;
/// The memory that a request may add to the idle server, in KiB.
const MAX_MEMORY: u64 = 64 * 1024;
/// The memory that four concurrent requests may add, in KiB.
const MAX_MEMORY_OF_FOUR: u64 = 256 * 1024;
/// The page of `docs` that lists the routes below.
const DOCS: &str = include_str!("../../../../docs/reference/response-sizes.md");
const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

/// The size limit of a route's response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Bound {
    /// A page ends with the item that exceeds 4 MiB; items on it are smaller than that.
    Page,
    /// Sent in pieces: memory holds the part of one run.
    Pieces,
    /// The size of one run, at most 32 MiB.
    Run,
}

/// A request for the thread, and its bound.
#[derive(Debug)]
struct Request {
    /// The route's name in the documentation.
    route: &'static str,
    bound: Bound,
    path: String,
    body: Option<Value>,
    headers: &'static [(&'static str, &'static str)],
}

/// A thread with many runs. Their ids are UUIDs made from numbers.
struct LongThread {
    store: Arc<dyn Store>,
    row: ThreadRow,
    last: u64,
    head: Option<CheckpointKey>,
}

// === impl Bound ===

impl Bound {
    fn text(self) -> &'static str {
        match self {
            Self::Page => "a page",
            Self::Pieces => "in pieces",
            Self::Run => "one run",
        }
    }

    fn max_bytes(self) -> usize {
        match self {
            Self::Page => 5 * 1024 * 1024,
            Self::Pieces => usize::MAX,
            Self::Run => 33 * 1024 * 1024,
        }
    }
}

// === impl LongThread ===

impl LongThread {
    async fn create(file: &Path) -> Self {
        let options = Options {
            durability: Durability::Buffered,
            reserve_bytes: 0,
            ..Options::new(Arc::new(NoOriginals))
        };
        let store = open(&format!("sqlite:{}", file.display()), options).await.unwrap();
        let row = ThreadRow {
            owner_node: "before".to_owned(),
            ..ThreadRow::new(
                store.next_thread_key(),
                ThreadId::parse(&uuid(0)).unwrap(),
                TenantId::parse("default").unwrap(),
                PrincipalId::parse("writer").unwrap(),
                START,
            )
        };
        Self { store, row, last: 0, head: None }
    }

    fn batch(&self) -> Batch {
        Batch {
            thread: self.row.key,
            epoch: self.row.epoch,
            expected_last: self.last,
            frames: Vec::new(),
            changes: Vec::new(),
            blobs: Vec::new(),
            vital: false,
        }
    }

    async fn append(&mut self, numbers: std::ops::Range<usize>) {
        let mut batch = self.batch();
        for number in numbers {
            self.add_run(number, &mut batch);
        }
        self.row.head = self.head;
        batch.changes.push(Change::Thread(self.row.clone()));
        self.store.append(batch).await.unwrap();
    }

    fn add_run(&mut self, number: usize, batch: &mut Batch) {
        let agent = AgentName::parse("echo").unwrap();
        let id = RunId::parse(&uuid(number)).unwrap();
        let text: Arc<str> = Arc::from(format!("{number} {}", "words ".repeat(25)));
        let mut events = vec![Body::Run(RunEvent::Created {
            run: id.clone(),
            agent: agent.clone(),
            input: None,
            audit: None,
        })];
        let key = self.store.next_run_key();
        let says = [(1, Role::User), (2, Role::NamedAgent(Arc::from("echo")))];
        for (place, role) in says {
            let message = MessageId::parse(&uuid(number * 10 + place + 1_000_000)).unwrap();
            if place == 2 {
                events.push(Body::Run(RunEvent::Started));
            }
            let (started, text) = (role.clone(), Arc::clone(&text));
            events.extend([
                Body::Message(MessageEvent::Started {
                    message: message.clone(),
                    role: started,
                    times: None,
                }),
                Body::Message(MessageEvent::Delta { message: message.clone(), text }),
                Body::Message(MessageEvent::Completed { message: message.clone() }),
            ]);
            batch.changes.push(Change::Message(MessageRow {
                id: message,
                tenant: self.row.tenant.clone(),
                thread: self.row.key,
                run: key,
                role,
                position: self.last + 1,
                alias: None,
            }));
        }
        events.push(Body::Run(RunEvent::Ended(Outcome::Completed)));
        let mut draft = Draft::default();
        for event in &events {
            draft.push(START, event, None).unwrap();
        }
        let mut last_run_number = 0;
        let originals: Arc<dyn ReadOriginal> = Arc::new(NoOriginals);
        for frame in draft.seal(self.row.key, Some(key), self.last + 1, 1, &originals) {
            self.last = frame.last();
            last_run_number = frame.last_run();
            batch.frames.push(frame);
        }
        let run = RunRow::new(key, id, &self.row, self.row.owner.clone(), agent, START);
        batch.changes.push(Change::Run(Box::new(RunRow {
            status: RunStatus::Completed,
            outcome: Some(Outcome::Completed),
            started_at: Some(START),
            ended_at: Some(START),
            last_run_number,
            ..run
        })));
        let checkpoint = self.store.next_checkpoint_key();
        batch.changes.push(Change::Checkpoint(CheckpointRow {
            key: checkpoint,
            id: CheckpointId::parse(&uuid(number + 5_000_000)).unwrap(),
            thread: self.row.key,
            parent: self.head,
            run: Some(key),
            position: self.last,
            value: None,
            created_at: START,
            client_history: None,
        }));
        self.head = Some(checkpoint);
    }
}

fn uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// Starts a server whose store has the thread.
async fn server_with_long_thread(dir: &Path) -> Server {
    let home = Home::new(dir, &ServerOptions::default()).unwrap();
    let mut thread = LongThread::create(&home.store_dir().join("trilogue.db")).await;
    let mut first = thread.batch();
    first.changes.push(Change::Thread(thread.row.clone()));
    thread.store.append(first).await.unwrap();
    for begin in (0..RUNS).step_by(RUNS_OF_BATCH) {
        thread.append(begin + 1..begin + 1 + RUNS_OF_BATCH).await;
    }
    thread.store.close().await.unwrap();
    home.start().await.unwrap()
}

/// The routes whose responses grow with a thread. Bare states are covered by the states of threads.
fn requests() -> Vec<Request> {
    let (thread, run) = (uuid(0), uuid(RUNS));
    let get = |route, bound, path: String| Request { route, bound, path, body: None, headers: &[] };
    let post = |route, bound, path: &str, body| Request {
        body: Some(body),
        ..get(route, bound, path.to_owned())
    };
    let native = format!("/api/v1/threads/{thread}");
    let connect = format!("/connect/threads/{thread}");
    let page = "limit=1000";
    vec![
        get("GET /api/v1/threads", Bound::Page, format!("/api/v1/threads?{page}")),
        get("GET /api/v1/runs", Bound::Page, format!("/api/v1/runs?{page}")),
        get(
            "GET /api/v1/threads/{thread_id}/events",
            Bound::Page,
            format!("{native}/events?{page}"),
        ),
        get(
            "GET /api/v1/threads/{thread_id}/messages",
            Bound::Page,
            format!("{native}/messages?{page}"),
        ),
        get(
            "GET /api/v1/threads/{thread_id}/checkpoints",
            Bound::Page,
            format!("{native}/checkpoints?{page}"),
        ),
        get("GET /api/v1/threads/{thread_id}/state", Bound::Run, format!("{native}/state")),
        get("GET /api/v1/threads/{thread_id}/export", Bound::Pieces, format!("{native}/export")),
        get("GET /api/v1/runs/{run_id}", Bound::Run, format!("/api/v1/runs/{run}")),
        get(
            "GET /api/v1/runs/{run_id}/events",
            Bound::Page,
            format!("/api/v1/runs/{run}/events?{page}"),
        ),
        get("GET /communication/runs", Bound::Page, "/communication/runs?limit=100".to_owned()),
        get("GET /communication/runs/{run_id}", Bound::Run, format!("/communication/runs/{run}")),
        get(
            "GET /communication/runs/{run_id}/events",
            Bound::Run,
            format!("/communication/runs/{run}/events"),
        ),
        get(
            "GET /communication/sessions/{session_id}",
            Bound::Pieces,
            format!("/communication/sessions/{thread}"),
        ),
        post(
            "POST /connect/threads/search",
            Bound::Page,
            "/connect/threads/search",
            json!({"limit": 1000}),
        ),
        post(
            "POST /connect/runs/search",
            Bound::Page,
            "/connect/runs/search",
            json!({"limit": 1000}),
        ),
        get("GET /connect/threads/{thread_id}", Bound::Pieces, connect.clone()),
        get(
            "GET /connect/threads/{thread_id}/history",
            Bound::Pieces,
            format!("{connect}/history?limit=100"),
        ),
        get("GET /connect/threads/{thread_id}/runs", Bound::Page, format!("{connect}/runs?{page}")),
        get(
            "GET /connect/threads/{thread_id}/runs/{run_id}/wait",
            Bound::Run,
            format!("{connect}/runs/{run}/wait"),
        ),
    ]
}

async fn send(client: &Client, request: &Request) -> Reply {
    let Request { path, body, headers, .. } = request;
    match body {
        Some(body) => client.post(path, body).await.unwrap(),
        None => client.send(Method::GET, path, headers, bytes::Bytes::new()).await.unwrap(),
    }
}

/// The memory of a server in KiB: now, or the peak since [`forget_peak`].
pub(crate) fn memory(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid().unwrap());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

pub(crate) fn forget_peak(server: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid().unwrap()), "5").unwrap();
}

/// The rows of the table of the documentation: each route with its bound.
fn documented() -> BTreeMap<&'static str, &'static str> {
    let rows = DOCS.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let route = cells.next()?.strip_suffix('`')?;
        Some((route, cells.next()?))
    });
    rows.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_of_many_runs_is_answered_in_bounded_bytes_and_memory() {
    let dir = Folder::new().unwrap();
    let server = server_with_long_thread(dir.path()).await;
    check_memory(&server).await;
    check_pages(&server.client()).await;
}

async fn check_memory(server: &Server) {
    let client = server.client();
    // Fills the caches of the store and of the allocator first.
    send(&client, &requests()[0]).await.ok().unwrap();
    let idle = memory(server, "VmRSS");
    let documented = documented();
    let mut failures = Vec::new();
    for request in requests() {
        let Request { route, bound, .. } = &request;
        if documented.get(route).is_none_or(|text| !text.starts_with(bound.text())) {
            failures.push(format!("{route} is not documented as: {}", bound.text()));
        }
        forget_peak(server);
        let begin = std::time::Instant::now();
        let reply = send(&client, &request).await;
        let (size, more) = (reply.body.len(), memory(server, "VmHWM").saturating_sub(idle));
        let seconds = begin.elapsed().as_secs_f32();
        eprintln!("{route}: {} {size} bytes, {more} KiB, {seconds:.1} s", reply.status);
        if reply.status != 200 || size > bound.max_bytes() || more > MAX_MEMORY {
            failures.push(format!("{route}: {} {size} bytes, {more} KiB", reply.status));
        }
        if *bound != Bound::Pieces || reply.headers.contains_key("content-length") {
            continue;
        }
        // The pieces must join to valid JSON.
        if !route.ends_with("/export") && reply.json().is_null() {
            failures.push(format!("{route} is no JSON"));
        }
    }
    let large: Vec<_> = requests().into_iter().filter(|it| it.bound == Bound::Pieces).collect();
    let [export, session, thread, history, ..] = &large[..] else { panic!("{large:?}") };
    forget_peak(server);
    let replies = tokio::join!(
        send(&client, export),
        send(&client, session),
        send(&client, thread),
        send(&client, history)
    );
    let statuses = [replies.0.status, replies.1.status, replies.2.status, replies.3.status];
    let more = memory(server, "VmHWM").saturating_sub(idle);
    eprintln!("four at once: {statuses:?}, {more} KiB");
    if statuses != [200; 4] || more > MAX_MEMORY_OF_FOUR {
        failures.push(format!("four at once: {statuses:?}, {more} KiB"));
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// Checks that the pages of its history lead from the newest state to the first.
async fn check_pages(client: &Client) {
    let history = format!("/connect/threads/{}/history", uuid(0));
    let checkpoint = |number: usize| uuid(number + 5_000_000);
    // The newest state exceeds a page, so its page has no other state.
    let page = client.get(&format!("{history}?limit=100")).await.unwrap();
    let states = page.ok().unwrap();
    assert_eq!(states.as_array().map(Vec::len), Some(1));
    assert_eq!(states[0]["checkpoint"]["checkpoint_id"], checkpoint(RUNS));
    let messages = states[0]["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2 * RUNS);
    assert!(messages[0]["content"].as_str().unwrap().starts_with("1 words"));
    assert_eq!(states[0]["values"]["messages"], states[0]["messages"]);
    assert_eq!(page.headers["trilogue-next"], checkpoint(RUNS).as_str());
    // Far back, a page has as many states as its limit.
    let page = client.get(&format!("{history}?limit=10&before={}", checkpoint(21))).await.unwrap();
    let states = page.ok().unwrap();
    let ids = states
        .as_array()
        .unwrap()
        .iter()
        .map(|state| state["checkpoint"]["checkpoint_id"].as_str().unwrap_or_default());
    let expected: Vec<_> = (11..=20).rev().map(checkpoint).collect();
    assert_eq!(ids.collect::<Vec<_>>(), expected);
    assert_eq!(states[0]["messages"].as_array().map(Vec::len), Some(40));
    assert_eq!(page.headers["trilogue-next"], checkpoint(11).as_str());
    let page = client.get(&format!("{history}?limit=10&before={}", checkpoint(11))).await.unwrap();
    assert_eq!(page.ok().unwrap().as_array().map(Vec::len), Some(10));
    assert!(!page.headers.contains_key("trilogue-next"), "it is the last one");
    // A list leaves the conversation out, with a note.
    let list = client.post("/connect/threads/search", &json!({})).await.unwrap();
    let threads = list.ok().unwrap();
    assert_eq!(threads[0]["thread_id"], uuid(0));
    assert!(threads[0].get("values").is_none() && list.headers.contains_key("warning"));
}
