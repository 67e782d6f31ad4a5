//! The simulated nodes on a real database. Each step is also done in memory, and the two results must agree.
//!
//! Every process is an opening of the store. Time passes by moving the signs of life into the past, so nothing waits. Appends use separate connections, like those of a node that is gone.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio_postgres::Client;
use trilogue_domain::event::{Body, MessageEvent};
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Code, Timestamp};

use super::group_writer::{GroupWriter, StampedBatch};
use super::liveness;
use super::*;
use crate::core::ownership::{self, Ownership};
use crate::fixtures;
use crate::options::{Durability, NodeOptions, Options};
use crate::port::{Admin as _, Append as _, Batch, Change, Nodes as _, Read as _};
use crate::record::{Draft, NoOriginals};
use crate::rows::ThreadRow;
use crate::services::postgres_url;
use crate::simulation::{
    AcquireOutcome, AppendOutcome, DEAD_AFTER, Entry, HEARTBEAT, Register, Rules, SentAppend,
    Shared, THREADS, check,
};

const SCHEDULES: u64 = 30;
/// A unit of the simulated time, in seconds: so long that the real time of a test does not matter.
const UNIT: f64 = 1_000.0;
const NEVER: Duration = Duration::from_secs(1_000_000);

struct SharedDatabase {
    register: Register,
    url: String,
    /// Closed stores keep their places and ids.
    stores: Vec<(Option<PostgresStore>, String)>,
    threads: Vec<ThreadRow>,
    writer: GroupWriter,
    clock: Client,
}

fn reader() -> Arc<dyn ReadOriginal> {
    Arc::new(NoOriginals)
}

fn options() -> Options {
    Options { durability: Durability::Buffered, ..Options::new(reader()) }
}

fn address(process: usize) -> String {
    format!("http://{process}")
}

fn text(entry: Entry) -> String {
    match entry {
        Entry::Accept(id) => format!("accept {id}"),
        Entry::Start(id) => format!("start {id}"),
    }
}

// === impl SharedDatabase ===

impl SharedDatabase {
    /// Each schedule has separate threads and nodes in one schema.
    async fn new(url: &str, network: &PostgresStore) -> Self {
        let (clock, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        clock.execute("DELETE FROM nodes", &[]).await.unwrap();
        let (_, inbox) = mpsc::channel(1);
        Self {
            register: Register::new(Rules::STORE),
            url: url.to_owned(),
            stores: Vec::new(),
            threads: Vec::new(),
            writer: GroupWriter::new(Arc::clone(&network.database), inbox),
            clock,
        }
    }

    /// Moves all times in the database into the past.
    async fn move_clock(&self, units: f64) {
        for sql in [
            "UPDATE nodes SET seen_at = seen_at - make_interval(secs => $1)",
            "UPDATE reachable_time SET reached_at = reached_at - make_interval(secs => $1)",
        ] {
            self.clock.execute(sql, &[&(UNIT * units)]).await.unwrap();
        }
    }

    fn store(&self, process: usize) -> &PostgresStore {
        self.stores[process].0.as_ref().unwrap()
    }

    /// The process that an error names.
    fn process_of_error(&self, error: &trilogue_domain::Error) -> usize {
        assert_eq!(error.code(), Code::ThreadElsewhere, "{error}");
        let named = error.other_node().unwrap();
        (0..self.stores.len()).find(|process| address(*process) == named).unwrap()
    }

    fn batch(&self, append: &SentAppend) -> Batch {
        let row = &self.threads[append.thread];
        let mut draft = Draft::default();
        for entry in &append.entries {
            let body =
                Body::Message(MessageEvent::Thought { message: None, text: text(*entry).into() });
            // Two appends never happen in the same moment.
            draft.push(Timestamp::from_micros(append.stamp), &body, None).unwrap();
        }
        let frames = draft.seal(row.key, None, append.expected_last + 1, 0, &reader());
        // Every second append also changes a row, so that it needs more than one statement.
        let row = ThreadRow {
            epoch: append.epoch,
            owner_node: self.stores[append.process].1.clone(),
            ..row.clone()
        };
        let changes = Some(Change::Thread(row)).filter(|_| append.stamp % 2 == 0);
        Batch {
            thread: self.threads[append.thread].key,
            epoch: append.epoch,
            expected_last: append.expected_last,
            frames,
            changes: changes.into_iter().collect(),
            blobs: Vec::new(),
            vital: false,
        }
    }
}

impl Shared for SharedDatabase {
    async fn open(&mut self, name: usize) -> bool {
        if !self.register.open(name).await {
            // The store would wait until the other node is dead.
            return false;
        }
        let node = NodeOptions {
            heartbeat: Duration::from_secs_f64(UNIT * HEARTBEAT as f64),
            dead_after: Duration::from_secs_f64(UNIT * DEAD_AFTER as f64),
            poll: NEVER,
            ..NodeOptions::new(format!("node {name}"), address(self.stores.len()))
        };
        let options = Options { node: Some(node), ..options() };
        let store = PostgresStore::open(&self.url, options).await.unwrap();
        // The test triggers its signs of life.
        trilogue_domain::lock(&store.upkeep).abort_all();
        let id = store.node().unwrap().to_owned();
        self.stores.push((Some(store), id));
        true
    }

    async fn create(&mut self, process: usize) {
        self.register.create(process).await;
        for _ in 0..THREADS {
            let store = self.store(process);
            let key = store.next_thread_key();
            let row = ThreadRow {
                owner_node: self.stores[process].1.clone(),
                ..fixtures::thread_row(key, "default", &format!("t{key}"))
            };
            let batch = Batch {
                thread: key,
                epoch: row.epoch,
                expected_last: 0,
                frames: Vec::new(),
                changes: vec![Change::Thread(row.clone())],
                blobs: Vec::new(),
                vital: false,
            };
            store.append(batch).await.unwrap();
            self.threads.push(row);
        }
    }

    async fn sign(&mut self, process: usize) {
        self.register.sign(process).await;
        let database = &self.store(process).database;
        liveness::sign(database, database.node.as_ref().unwrap()).await.unwrap();
    }

    async fn end(&mut self, process: usize, is_clean: bool) {
        self.register.end(process, is_clean).await;
        let store = self.stores[process].0.take().unwrap();
        if is_clean {
            store.close().await.unwrap();
        }
    }

    async fn pass(&mut self, time: u64) {
        self.register.pass(time).await;
        self.move_clock(time as f64).await;
    }

    async fn set_clock(&mut self, by: i64) {
        self.register.set_clock(by).await;
        self.move_clock(by as f64).await;
    }

    async fn set_draining(&mut self, process: usize, draining: bool) {
        self.register.set_draining(process, draining).await;
        self.store(process).set_draining(draining).await.unwrap();
    }

    async fn hand_over(
        &mut self,
        process: usize,
        thread: usize,
        epoch: u64,
        to: Option<usize>,
    ) -> bool {
        let expected = self.register.hand_over(process, thread, epoch, to).await;
        let to = to.map(|name| format!("node {name}"));
        let key = self.threads[thread].key;
        let given = self.store(process).hand_over(key, epoch, to.as_deref()).await;
        assert_eq!(given.is_ok(), expected, "{given:?}");
        expected
    }

    async fn hand_over_all_but(&mut self, process: usize, but: &[usize]) {
        self.register.hand_over_all_but(process, but).await;
        let but: Vec<_> = but.iter().map(|thread| self.threads[*thread].key).collect();
        self.store(process).hand_over_all_but(&but).await.unwrap();
    }

    async fn acquire(&mut self, process: usize, thread: usize) -> AcquireOutcome {
        let expected = self.register.acquire(process, thread).await;
        let (_, id) = &self.stores[process];
        let acquired = self.store(process).acquire(self.threads[thread].key, id).await;
        match (&expected, acquired) {
            (AcquireOutcome::Owned { .. }, Ok(owned)) => {
                let (epoch, last) = (owned.thread.epoch, owned.last);
                assert_eq!(expected, AcquireOutcome::Owned { epoch, last });
            }
            (AcquireOutcome::Elsewhere(owner), Err(error)) => {
                assert_eq!(self.process_of_error(&error), *owner)
            }
            // The database chooses the node that takes over.
            (AcquireOutcome::GivenUp(_), Err(error)) => {
                assert!(self.register.takes_threads(self.process_of_error(&error)), "{error}");
            }
            (_, acquired) => panic!("{expected:?} and not {acquired:?}"),
        }
        expected
    }

    async fn append(&mut self, append: &SentAppend, is_again: bool) -> AppendOutcome {
        let expected = self.register.append(append, is_again).await;
        let batch = self.batch(append);
        let bytes = batch.check_form().unwrap();
        // Other schedules of this run use the same stamps on other threads.
        let sent = StampedBatch { batch, bytes, stamp: append.stamp };
        let mut outcomes = self.writer.attempt(&[sent], is_again).await.unwrap();
        let outcome = outcomes.remove(0);
        match expected {
            AppendOutcome::Stored | AppendOutcome::StoredBefore => outcome.unwrap(),
            AppendOutcome::Late | AppendOutcome::Uncertain => {
                let error = outcome.unwrap_err();
                assert_eq!(error.code(), Code::OwnershipLost, "{error}");
                let is_uncertain = error.message().contains("may have been stored");
                assert_eq!(is_uncertain, expected == AppendOutcome::Uncertain, "{error}");
            }
        }
        expected
    }

    async fn entries(&mut self, thread: usize) -> Vec<Entry> {
        let expected = self.register.entries(thread).await;
        let sql = "SELECT coalesce(sum(last - first + 1), 0)::bigint, coalesce(max(last), 0) FROM frames WHERE thread = $1";
        let key = self.threads[thread].key;
        let counted = self.clock.query_one(sql, &[&key.0]).await.unwrap();
        let (events, last): (i64, i64) = (counted.get(0), counted.get(1));
        assert_eq!((events, last), (expected.len() as i64, expected.len() as i64));
        let range = Range { run: None, after: 0, max_bytes: 1 << 20 };
        let store = self.stores.iter().find_map(|(store, _)| store.as_ref()).unwrap();
        let frames = store.frames(key, range).await.unwrap();
        let events = frames.iter().flat_map(|frame| frame.events().unwrap());
        let texts: Vec<_> = events
            .map(|event| match &event.body {
                Body::Message(MessageEvent::Thought { text, .. }) => text.to_string(),
                other => panic!("nothing else was written: {other:?}"),
            })
            .collect();
        assert_eq!(texts, expected.iter().copied().map(text).collect::<Vec<_>>());
        expected
    }
}

#[tokio::test]
async fn nodes_on_a_database_keep_the_same_promises() {
    let url = postgres_url().await;
    let network = PostgresStore::open(&url, options()).await.unwrap();
    for seed in 0..SCHEDULES {
        let shared = SharedDatabase::new(&url, &network).await;
        if let Err(failure) = check(seed, Rules::STORE, shared, 0).await {
            panic!("{failure}");
        }
    }
}

/// A step with different results in memory and in the database is detected.
#[tokio::test]
async fn a_database_that_decides_otherwise_is_noticed() {
    let url = postgres_url().await;
    let network = PostgresStore::open(&url, options()).await.unwrap();
    for seed in 0..SCHEDULES {
        let mut shared = SharedDatabase::new(&url, &network).await;
        let acquisition =
            |found: Ownership| ownership::acquisition(Ownership { is_owner_alive: false, ..found });
        shared.register = Register::new(Rules { acquisition, ..Rules::STORE });
        let checked = AssertUnwindSafe(check(seed, Rules::STORE, shared, 0)).catch_unwind().await;
        if let Err(panicked) = checked {
            let said = panicked.downcast_ref::<String>().unwrap();
            assert!(said.starts_with("Owned"), "{said}");
            return;
        }
    }
    panic!("nothing was noticed");
}
