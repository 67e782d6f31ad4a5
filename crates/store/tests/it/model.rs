//! All engines give the same answers to any operations in any order.

mod configuration;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::thread::AGENT_MEMBER;
use trilogue_domain::{
    CheckpointKey, Outcome, Resolution, RunKey, RunStatus, Scope, ThreadActivity, ThreadKey,
};
use trilogue_store::rows::{
    Claim, InterruptFilter, Page, QueueItem, QueueKind, RetentionPolicy, RetryDecision, RunFilter,
    RunRow, ThreadFilter, ThreadRow,
};
use trilogue_store::{Batch, Change, Draft, Range, Store};

use self::configuration::{configurations, configure};
use crate::copy::copied;
use crate::harness::{
    Log, World, agent, alice, at, json, now, own_scope, page, reader, run_id, tenant_scope,
    thought, thread_id, thread_row,
};
use crate::rows;

const KINDS: [QueueKind; 2] = [QueueKind::ScheduledRun, QueueKind::Callback];
const ENGINES: usize = 3;
const THREADS: usize = 3;
const AGENTS: [&str; 2] = ["echo", "other"];

#[derive(Clone, Debug)]
enum Act {
    Say { run: Option<usize>, events: usize },
    Start { id: usize, agent: usize },
    End { run: usize },
    Message { id: usize, run: usize },
    Alias { id: usize, alias: usize },
    Checkpoint { id: usize, run: Option<usize> },
    Interrupt { id: usize, run: usize, is_resolved: bool },
    Idempotency { key: usize, run: usize },
    Offer { kind: usize, key: usize, due: i64 },
    CallBack { run: usize, key: usize, number: u64, due: i64 },
    Withdraw { kind: usize, key: usize },
    Metadata { value: u8, agent: Option<usize> },
    Blob { text: usize },
    RemoveRun { run: usize },
}

#[derive(Clone, Debug)]
enum Op {
    Create { thread: usize, is_foreign: bool },
    Batch { thread: usize, acts: Vec<Act>, stale: u8 },
    Remove { thread: usize },
    TakeOver { thread: usize, node: usize },
    Claim { kind: usize, now: i64, until: i64, limit: usize },
    Finish { claim: usize },
    Extend { claim: usize, until: i64 },
    RetryDecision { claim: usize, retry: Option<i64> },
    Revive { now: i64 },
    Configure { id: usize, is_foreign: bool, now: i64, end: Option<i64> },
    Reconfigure { id: usize, is_own: bool, now: i64 },
    Forget { id: usize, limit: usize, now: i64 },
}

fn act() -> impl Strategy<Value = Act> {
    let run = 0..4_usize;
    prop_oneof![
        4 => (prop::option::of(run.clone()), 1..4_usize).prop_map(|(run, events)| Act::Say { run, events }),
        4 => (0..6_usize, 0..2_usize).prop_map(|(id, agent)| Act::Start { id, agent }),
        2 => run.clone().prop_map(|run| Act::End { run }),
        1 => (0..4_usize, run.clone()).prop_map(|(id, run)| Act::Message { id, run }),
        1 => (0..4_usize, 0..6_usize).prop_map(|(id, alias)| Act::Alias { id, alias }),
        2 => (0..6_usize, prop::option::of(run.clone())).prop_map(|(id, run)| Act::Checkpoint { id, run }),
        2 => (0..3_usize, run.clone(), any::<bool>())
            .prop_map(|(id, run, is_resolved)| Act::Interrupt { id, run, is_resolved }),
        1 => (0..3_usize, run.clone()).prop_map(|(key, run)| Act::Idempotency { key, run }),
        2 => (0..2_usize, 0..6_usize, 0..50_i64).prop_map(|(kind, key, due)| Act::Offer { kind, key, due }),
        4 => (run.clone(), 0..3_usize, 0..20_u64, 0..50_i64)
            .prop_map(|(run, key, number, due)| Act::CallBack { run, key, number, due }),
        1 => (0..2_usize, 0..6_usize).prop_map(|(kind, key)| Act::Withdraw { kind, key }),
        2 => (0..4_u8, prop::option::of(0..2_usize))
            .prop_map(|(value, agent)| Act::Metadata { value, agent }),
        1 => (0..3_usize).prop_map(|text| Act::Blob { text }),
        2 => run.prop_map(|run| Act::RemoveRun { run }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let thread = 0..THREADS;
    let acts = prop::collection::vec(act(), 1..5);
    prop_oneof![
        2 => (thread.clone(), any::<bool>()).prop_map(|(thread, is_foreign)| Op::Create { thread, is_foreign }),
        12 => (thread.clone(), acts, 0..20_u8).prop_map(|(thread, acts, stale)| Op::Batch { thread, acts, stale }),
        1 => thread.clone().prop_map(|thread| Op::Remove { thread }),
        1 => (thread, 0..2_usize).prop_map(|(thread, node)| Op::TakeOver { thread, node }),
        2 => (0..2_usize, 0..60_i64, 1..40_i64, 0..4_usize)
            .prop_map(|(kind, now, lease, limit)| Op::Claim { kind, now, until: now + lease, limit }),
        1 => (0..8_usize).prop_map(|claim| Op::Finish { claim }),
        1 => (0..8_usize, 0..99_i64).prop_map(|(claim, until)| Op::Extend { claim, until }),
        2 => (0..8_usize, prop::option::of(0..60_i64)).prop_map(|(claim, retry)| Op::RetryDecision { claim, retry }),
        1 => (0..60_i64).prop_map(|now| Op::Revive { now }),
        2 => (0..4_usize, any::<bool>(), 0..30_i64, prop::option::of(0..40_i64))
            .prop_map(|(id, is_foreign, now, end)| Op::Configure { id, is_foreign, now, end }),
        1 => (0..4_usize, any::<bool>(), 0..30_i64)
            .prop_map(|(id, is_own, now)| Op::Reconfigure { id, is_own, now }),
        1 => (0..4_usize, 0..3_usize, 0..30_i64).prop_map(|(id, limit, now)| Op::Forget { id, limit, now }),
    ]
}

/// All engines, the one in memory first: the others are compared with it.
struct Engines {
    worlds: [World; ENGINES],
    /// The threads as the first engine has them: rows and numbers are the same in all engines.
    threads: HashMap<usize, Live>,
    claims: Vec<[Claim; ENGINES]>,
    next_key: i64,
}

struct Live {
    log: Log,
    runs: Vec<RunRow>,
    last_run: HashMap<RunKey, u64>,
    head: Option<CheckpointKey>,
}

// === impl Engines ===

impl Engines {
    async fn new() -> Self {
        let worlds = [World::memory().await, World::sqlite().await, World::postgres().await];
        Self { worlds, threads: HashMap::new(), claims: Vec::new(), next_key: 1 }
    }

    fn key(&mut self) -> i64 {
        self.next_key += 1;
        self.next_key
    }

    async fn append(&self, batch: &Batch) -> bool {
        let [first, others @ ..] = self.each(async |store| store.append(batch.clone()).await).await;
        for other in others {
            assert_eq!(codes(&first), codes(&other), "{batch:?}\n{first:?}\n{other:?}");
        }
        first.is_ok()
    }

    /// Runs an operation on every engine, one after the other.
    async fn each<T>(&self, ask: impl AsyncFn(&dyn Store) -> T) -> [T; ENGINES] {
        let [memory, sqlite, postgres] = &self.worlds;
        [ask(&*memory.store).await, ask(&*sqlite.store).await, ask(&*postgres.store).await]
    }

    /// Runs an operation on every engine, checks that the results are equal, and returns one.
    async fn alike<T: PartialEq + std::fmt::Debug>(&self, ask: impl AsyncFn(&dyn Store) -> T) -> T {
        let [first, others @ ..] = self.each(ask).await;
        for other in others {
            assert_eq!(first, other);
        }
        first
    }

    async fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { thread, is_foreign } => self.create(*thread, *is_foreign).await,
            Op::Batch { thread, acts, stale } => self.batch(*thread, acts, *stale).await,
            Op::Remove { thread } => {
                let Some(live) = self.threads.get_mut(thread) else { return };
                let batch = live.log.step().change(Change::RemoveThread).batch;
                assert!(self.append(&batch).await);
                self.threads.remove(thread);
            }
            Op::TakeOver { thread, node } => self.take_over(*thread, *node).await,
            Op::Claim { kind, now, until, limit } => {
                let (kind, now, until) = (KINDS[*kind], at(*now), at(*until));
                let claim =
                    async |store: &dyn Store| store.claim(kind, now, until, *limit).await.unwrap();
                let [memory, sqlite, postgres] = self.each(claim).await;
                let shown = |claims: &[Claim]| -> Vec<_> {
                    claims.iter().map(|claim| (claim.attempts, claim.item.clone())).collect()
                };
                assert_eq!(shown(&memory), shown(&sqlite));
                assert_eq!(shown(&memory), shown(&postgres));
                let claims = memory.into_iter().zip(sqlite).zip(postgres);
                self.claims.extend(claims.map(|((a, b), c)| [a, b, c]));
            }
            Op::Finish { claim } => {
                self.settle(*claim, async |store, claim| store.finish(claim).await).await;
            }
            Op::Extend { claim, until } => {
                let until = at(*until);
                self.settle(*claim, async |store, claim| store.extend(claim, until).await).await;
            }
            Op::RetryDecision { claim, retry } => {
                let how = retry.map_or(RetryDecision::Dead, |due| RetryDecision::RetryAt(at(due)));
                let abandon = async |store: &dyn Store, claim: &Claim| {
                    store.abandon(claim, how.clone(), "it did not work").await
                };
                self.settle(*claim, abandon).await;
            }
            Op::Revive { now } => self.revive(*now).await,
            Op::Configure { .. } | Op::Reconfigure { .. } | Op::Forget { .. } => {
                self.alike(async |store| configure(store, op).await).await;
            }
        }
    }

    async fn create(&mut self, thread: usize, is_foreign: bool) {
        let scope = if is_foreign { tenant_scope("other") } else { own_scope("default", "alice") };
        let row = thread_row(ThreadKey(self.key()), &scope, &format!("t{thread}"));
        let mut log = Log::of(Arc::clone(&self.worlds[0].store), row);
        let change = Change::Thread(log.row.clone());
        let batch = log.step().change(change).batch;
        if self.append(&batch).await {
            // The same id in another tenant is another thread: leave the earlier one alone.
            let live = Live { log, runs: Vec::new(), last_run: HashMap::new(), head: None };
            self.threads.insert(thread, live);
        }
    }

    async fn take_over(&mut self, thread: usize, node: usize) {
        let Some(live) = self.threads.get(&thread) else { return };
        let node = format!("node-{node}");
        let (key, last) = (live.log.row.key, live.log.last);
        let acquire = async |store: &dyn Store| store.acquire(key, &node).await.unwrap();
        let [memory, others @ ..] = self.each(acquire).await;
        for other in others {
            assert_eq!(format!("{memory:?}"), format!("{other:?}"));
        }
        assert_eq!(memory.last, last);
        if let Some(live) = self.threads.get_mut(&thread) {
            live.log.row = memory.thread;
        }
    }

    async fn settle(
        &mut self,
        index: usize,
        ask: impl AsyncFn(&dyn Store, &Claim) -> Result<bool>,
    ) {
        let Some(claims) = self.claims.get(index) else { return };
        let mut held = Vec::new();
        for (world, claim) in self.worlds.iter().zip(claims) {
            held.push(ask(&*world.store, claim).await.unwrap());
        }
        assert!(held.iter().all(|one| *one == held[0]), "{held:?}");
    }

    async fn revive(&mut self, now: i64) {
        let mut revived = Vec::new();
        for world in &self.worlds {
            let dead = world.store.dead_deliveries(&alice(), &page(99, None)).await.unwrap();
            let Some(first) = dead.rows.first() else { continue };
            revived.push(world.store.revive(&alice(), first.id, at(now)).await.unwrap());
        }
        assert!(revived.is_empty() || revived == [true; ENGINES], "{revived:?}");
    }

    async fn batch(&mut self, thread: usize, acts: &[Act], stale: u8) {
        let Some(mut live) = self.threads.remove(&thread) else { return };
        let mut batch = live.log.step().batch;
        match stale {
            0 => batch.epoch += 1,
            1 => batch.expected_last += 1,
            2 => batch.vital = true,
            _ => {}
        }
        let before = (live.runs.clone(), live.last_run.clone(), live.head, live.log.row.clone());
        for act in acts {
            self.act(&mut live, &mut batch, act).await;
        }
        if self.append(&batch).await {
            live.log.last = batch.frames.last().map_or(batch.expected_last, |frame| frame.last());
        } else {
            (live.runs, live.last_run, live.head, live.log.row) = before;
        }
        self.threads.insert(thread, live);
    }

    async fn act(&mut self, live: &mut Live, batch: &mut Batch, act: &Act) {
        let pick = |run: usize| live.runs.get(run % live.runs.len().max(1)).cloned();
        let change = match act {
            Act::Say { run, events } => {
                let run = run.and_then(pick).map(|run| run.key);
                return live.say(batch, run, *events);
            }
            Act::Start { id, agent: name } => {
                let row = RunRow {
                    key: RunKey(self.key()),
                    metadata: json(&serde_json::json!({"id": id})),
                    agent: agent(AGENTS[*name]),
                    ..live.log.run_row(&format!("r{id}"))
                };
                live.runs.push(row.clone());
                Some(Change::Run(Box::new(row)))
            }
            Act::End { run } => pick(*run).map(|mut row| {
                row.status = RunStatus::Completed;
                row.outcome = Some(Outcome::Completed);
                row.ended_at.get_or_insert_with(now);
                live.put(&row);
                Change::Run(Box::new(row))
            }),
            Act::Message { id, run } => {
                pick(*run).map(|run| Change::Message(live.log.message(&format!("m{id}"), run.key)))
            }
            Act::Alias { id: id_of, alias } => {
                let id = |number| rows::message_id(&format!("m{number}"));
                Some(Change::Alias(id(*id_of), id(*alias)))
            }
            Act::Checkpoint { id, run } => {
                let mut row = live.log.checkpoint(&format!("c{id}"), live.head);
                row.key = CheckpointKey(self.key());
                row.run = run.and_then(pick).map(|run| run.key);
                row.value = (id % 3 > 0).then(|| json(&serde_json::json!({"n": id})));
                live.head = Some(row.key);
                live.log.row.head = live.head;
                batch.changes.push(Change::Thread(live.log.row.clone()));
                Some(Change::Checkpoint(row))
            }
            Act::Interrupt { id, run, is_resolved } => pick(*run).map(|run| {
                let mut row = live.log.interrupt(&format!("i{id}"), &run);
                row.resolution = is_resolved.then_some(Resolution::Cancelled);
                Change::Interrupt(Box::new(row))
            }),
            Act::Idempotency { key, run } => pick(*run)
                .map(|run| Change::Idempotency(live.log.idempotency(&format!("k{key}"), &run))),
            Act::Offer { kind, key, due } => {
                Some(Change::Offer(live.log.item(KINDS[*kind], &format!("r{key}"), *due)))
            }
            Act::CallBack { run, key, number, due } => pick(*run).map(|run| {
                let reference = json(&serde_json::json!({"run": run.key.0, "number": number}));
                // Like the keys of runs, each key belongs to one run.
                let key = format!("{}.{key}", run.key);
                let item = live.log.item(QueueKind::Callback, &key, *due);
                Change::Offer(QueueItem { reference, ..item })
            }),
            Act::Withdraw { kind, key } => Some(Change::Withdraw(KINDS[*kind], format!("r{key}"))),
            Act::Metadata { value, agent } => {
                let mut metadata = serde_json::json!({"v": value, "l": [value]});
                if let Some(agent) = agent {
                    metadata[AGENT_MEMBER] = AGENTS[*agent].into();
                }
                live.log.row.metadata = json(&metadata);
                Some(Change::Thread(live.log.row.clone()))
            }
            Act::Blob { text } => {
                batch.blobs.push(self.put_blob(&live.log, *text).await);
                None
            }
            Act::RemoveRun { run } => pick(*run).map(|run| {
                live.runs.retain(|one| one.key != run.key);
                Change::RemoveRun(run.key)
            }),
        };
        batch.changes.extend(change);
    }

    async fn put_blob(&self, log: &Log, text: usize) -> BlobRef {
        let bytes = Bytes::from(format!("blob {text}"));
        let tenant = &log.row.tenant;
        self.alike(async |store| store.put_blob(tenant, bytes.clone(), true).await.unwrap()).await
    }

    fn rows(&self) -> (Vec<ThreadRow>, Vec<RunRow>) {
        let rows = self.threads.values().map(|live| live.log.row.clone()).collect();
        (rows, self.threads.values().flat_map(|live| live.runs.clone()).collect())
    }

    /// A copy of the file store must answer like the store.
    async fn compare_copy(&self) {
        let (rows, runs) = self.rows();
        let [_, source, _] = &self.worlds;
        let copy = copied(source).await;
        assert_eq!(
            answers(&*copy.store, &rows, &runs).await,
            answers(&*source.store, &rows, &runs).await
        );
        copy.store.close().await.unwrap();
    }

    async fn compare(&self) {
        let (rows, runs) = self.rows();
        let [first, others @ ..] =
            self.each(async |store| answers(store, &rows, &runs).await).await;
        for (index, first) in first.iter().enumerate() {
            for other in &others {
                assert_eq!(first, &other[index]);
            }
        }
        for live in self.threads.values() {
            let world = &self.worlds[0];
            let acquired = world.store.thread_by_key(live.log.row.key).await.unwrap();
            assert_eq!(acquired, Some(live.log.row.clone()));
        }
    }
}

// === impl Live ===

impl Live {
    fn say(&mut self, batch: &mut Batch, run: Option<RunKey>, events: usize) {
        let mut draft = Draft::default();
        for event in 0..events {
            draft.push(now(), &thought(&format!("event {event}")), None).unwrap();
        }
        let last = batch.frames.last().map_or(batch.expected_last, |frame| frame.last());
        let first_run = run.map_or(0, |run| self.last_run.get(&run).copied().unwrap_or(0) + 1);
        for frame in draft.seal(batch.thread, run, last + 1, first_run, &reader()) {
            if let Some(run) = run {
                self.last_run.insert(run, frame.last_run());
            }
            batch.frames.push(frame);
        }
    }

    fn put(&mut self, row: &RunRow) {
        for one in &mut self.runs {
            if one.key == row.key {
                one.clone_from(row);
            }
        }
    }
}

fn codes(result: &Result<()>) -> Option<trilogue_domain::Code> {
    result.as_ref().err().map(trilogue_domain::Error::code)
}

/// A store's answers to all reads of these threads and runs, as text.
pub(crate) async fn answers(store: &dyn Store, rows: &[ThreadRow], runs: &[RunRow]) -> Vec<String> {
    let mut answers = Vec::new();
    for scope in
        [alice(), own_scope("default", "alice"), own_scope("default", "bob"), tenant_scope("other")]
    {
        answers.push(listings(store, &scope).await);
        answers.push(look_ups(store, &scope).await);
    }
    for row in rows {
        for after in [0, 1, 3, 9] {
            for max_bytes in [0, 100, usize::MAX] {
                let range = Range { run: None, after, max_bytes };
                answers.push(frames(store, row, range).await);
                for run in runs {
                    let range = Range { run: Some(run.key), after, max_bytes };
                    answers.push(frames(store, row, range).await);
                }
            }
        }
        for text in 0..3 {
            let hash: [u8; 32] =
                <sha2::Sha256 as sha2::Digest>::digest(format!("blob {text}")).into();
            answers.push(format!("{:?}", store.blob_by_hash(row.key, &hash).await.unwrap()));
        }
    }
    let policy = RetentionPolicy {
        max_stateless_age: Some(Duration::from_micros(5)),
        max_age: Some(Duration::from_micros(20)),
        max_runs_per_thread: Some(2),
        max_runs_per_tenant: Some(3),
    };
    answers.push(format!("{:?}", store.expired_runs(&policy, at(0), 99).await.unwrap()));
    let keys: Vec<_> = rows.iter().map(|row| row.key).collect();
    answers.push(format!("{:?}", store.activities(&alice(), &keys).await.unwrap()));
    for kind in KINDS {
        answers.push(format!("{:?}", store.next_due(kind).await.unwrap()));
    }
    let mut open = store.open_threads().await.unwrap();
    open.sort();
    answers.push(format!("{open:?}"));
    answers
}

async fn listings(store: &dyn Store, scope: &Scope) -> String {
    let mut text = String::new();
    let wanted = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    for metadata in [vec![], wanted("v", "1"), wanted("l", "[2]")] {
        let filter = ThreadFilter { metadata, ..ThreadFilter::default() };
        let mut after = None;
        loop {
            let listing = store.threads(scope, &filter, &page(2, after)).await.unwrap();
            // The end of a page is an integer of the engine, so it is not compared.
            writeln!(text, "{:?} {}", listing.rows, listing.next.is_some()).unwrap();
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
    }
    for filter in [
        RunFilter::default(),
        RunFilter { thread: Some(thread_id("t0")), ..RunFilter::default() },
        RunFilter { statuses: vec![RunStatus::Completed], ..RunFilter::default() },
        RunFilter { metadata: wanted("id", "1"), ..RunFilter::default() },
        RunFilter { statuses: RunStatus::ALL.to_vec(), ..RunFilter::default() },
        RunFilter {
            agent: Some(agent("echo")),
            statuses: vec![RunStatus::Completed, RunStatus::Queued],
            metadata: wanted("id", "1"),
            ..RunFilter::default()
        },
    ] {
        for skip in [0, 1, 4] {
            let page = Page { skip, ..page(3, None) };
            let listing = store.runs(scope, &filter, &page).await.unwrap();
            writeln!(text, "{:?} {}", listing.rows, listing.next.is_some()).unwrap();
        }
    }
    let other = Some(agent(AGENTS[1]));
    for (values, activity, agent) in [
        (wanted("n", "1"), None, None),
        (vec![], Some(ThreadActivity::Busy), None),
        (vec![], Some(ThreadActivity::Idle), None),
        (wanted("n", "2"), Some(ThreadActivity::Busy), None),
        (vec![], None, other.clone()),
        (vec![], Some(ThreadActivity::Busy), other),
        (vec![], None, Some(agent(AGENTS[0]))),
    ] {
        let filter = ThreadFilter { values, activity, agent, ..ThreadFilter::default() };
        for skip in [0, 1] {
            let page = Page { skip, ..page(2, None) };
            let listing = store.threads(scope, &filter, &page).await.unwrap();
            writeln!(text, "{:?} {}", listing.rows, listing.next.is_some()).unwrap();
        }
    }
    writeln!(text, "{}", configurations(store, scope).await).unwrap();
    for filter in [
        InterruptFilter::default(),
        InterruptFilter { pending: true, ..InterruptFilter::default() },
        InterruptFilter { run: Some(run_id("r1")), ..InterruptFilter::default() },
    ] {
        let listing = store.interrupts(scope, &filter, &page(99, None)).await.unwrap();
        writeln!(text, "{:?}", listing.rows).unwrap();
    }
    let dead = store.dead_deliveries(scope, &page(99, None)).await.unwrap();
    for item in dead.rows {
        writeln!(text, "{} {} {:?}", item.attempts, item.error, item.item).unwrap();
    }
    text
}

async fn look_ups(store: &dyn Store, scope: &Scope) -> String {
    let mut text = String::new();
    for number in 0..6 {
        let run = run_id(&format!("r{number}"));
        let message = rows::message_id(&format!("m{number}"));
        let interrupt = rows::interrupt_id(&format!("i{number}"));
        writeln!(text, "{:?}", store.run(scope, &run).await.unwrap()).unwrap();
        writeln!(text, "{:?}", store.interrupt(scope, &interrupt).await.unwrap()).unwrap();
        for thread in 0..THREADS {
            let thread = thread_id(&format!("t{thread}"));
            let row = store.message(scope, &thread, &message).await.unwrap();
            writeln!(text, "{row:?}").unwrap();
            let id = rows::checkpoint_id(&format!("c{number}"));
            let row = store.checkpoint(scope, &thread, &id).await.unwrap();
            writeln!(text, "{row:?}").unwrap();
        }
    }
    for thread in 0..THREADS {
        let thread = thread_id(&format!("t{thread}"));
        writeln!(text, "{:?}", store.thread(scope, &thread).await.unwrap()).unwrap();
        writeln!(text, "{:?}", store.path(scope, &thread, None, 5).await.unwrap()).unwrap();
        let Some(row) = store.thread(scope, &thread).await.unwrap() else { continue };
        for number in 0..6 {
            let message = rows::message_id(&format!("m{number}"));
            writeln!(text, "{:?}", store.message_in(row.key, &message).await.unwrap()).unwrap();
        }
    }
    text
}

async fn frames(store: &dyn Store, row: &ThreadRow, range: Range) -> String {
    let frames = store.frames(row.key, range).await.unwrap();
    let bytes: Vec<_> = frames.iter().map(|frame| (frame.first(), frame.bytes().clone())).collect();
    format!("{range:?} {bytes:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_engines_answer_alike(ops in prop::collection::vec(op(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut engines = Engines::new().await;
            for thread in 0..THREADS {
                engines.create(thread, thread == 2).await;
            }
            for (index, op) in ops.iter().enumerate() {
                engines.apply(op).await;
                if index % 8 == 0 {
                    engines.compare().await;
                }
            }
            engines.compare().await;
            engines.compare_copy().await;
            for world in &engines.worlds {
                world.store.close().await.unwrap();
            }
        });
    }
}
