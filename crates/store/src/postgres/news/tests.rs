//! A log, two nodes that write it one after the other, a network that loses, duplicates, reorders and damages their messages, and readers on a third node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicI64;

use proptest::prelude::*;
use trilogue_domain::event::{Body, ThreadEvent};
use trilogue_domain::{RunId, RunKey, ThreadKey, Timestamp};

use super::encryption::{ClusterKey, KEY_BYTES};
use super::message::MAX_MESSAGE_BYTES;
use super::*;
use crate::core::tail::Tails;
use crate::port::{Range, Tail};
use crate::record::{Draft, Frame, NoOriginals};

const THREAD: ThreadKey = ThreadKey(1 << 40);
const SUBJECT: &str = "trilogue.test.log";
const RUNS: i64 = 2;
const READ_BYTES: usize = 64;
/// More than the tail keeps of all threads.
const CACHE_BYTES: usize = 2_000;

#[derive(Clone, Debug)]
enum Op {
    /// The owner appends frames of a run, each with this many events.
    Append {
        run: i64,
        frames: Vec<usize>,
        text: usize,
    },
    RemoveRun {
        run: i64,
    },
    /// The other node becomes the owner.
    TakeOver,
    Deliver {
        message: usize,
        keeps: bool,
    },
    Lose {
        message: usize,
    },
    Damage {
        message: usize,
        byte: usize,
    },
    LookUp,
    /// The first reader learns the end of the log from an earlier look-up.
    Find,
    Attach {
        run: Option<i64>,
    },
    Detach {
        reader: usize,
    },
    Read {
        reader: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let message = 0..6_usize;
    prop_oneof![
        8 => (0..RUNS, prop::collection::vec(1..4_usize, 1..4), 0..60_usize)
            .prop_map(|(run, frames, text)| Op::Append { run, frames, text }),
        1 => (0..RUNS).prop_map(|run| Op::RemoveRun { run }),
        1 => Just(Op::TakeOver),
        8 => Just(Op::Deliver { message: 0, keeps: false }),
        2 => (message.clone(), any::<bool>())
            .prop_map(|(message, keeps)| Op::Deliver { message, keeps }),
        1 => message.clone().prop_map(|message| Op::Lose { message }),
        1 => (message, 0..300_usize).prop_map(|(message, byte)| Op::Damage { message, byte }),
        1 => Just(Op::LookUp),
        2 => Just(Op::Find),
        2 => prop::option::of(0..RUNS).prop_map(|run| Op::Attach { run }),
        1 => (0..3_usize).prop_map(|reader| Op::Detach { reader }),
        8 => (0..3_usize).prop_map(|reader| Op::Read { reader }),
    ]
}

/// The durable log.
#[derive(Default)]
struct Log {
    frames: Vec<Arc<Frame>>,
    last: u64,
    stamp: i64,
    last_of_run: BTreeMap<i64, u64>,
    erased: BTreeSet<u64>,
}

/// In microseconds.
#[derive(Debug, Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

struct Reader {
    tail: Tail,
    run: Option<i64>,
    /// It reads from the number after this one.
    began: u64,
    seen: Vec<u64>,
}

struct World {
    log: Log,
    state: Arc<NewsState>,
    ear: NewsSubscriber,
    clock: Arc<TestClock>,
    writers: [(NewsWriter, Encryptor); 2],
    owner: usize,
    network: Vec<Bytes>,
    readers: Vec<Reader>,
    /// The entry of the thread whose end is being looked up, and the result.
    finding: Option<(u64, u64)>,
    /// The numbers that were erased before this node last checked.
    known_erased: BTreeSet<u64>,
    served: usize,
}

impl Log {
    fn append(&mut self, run: i64, frames: &[usize], text: usize) -> Vec<Arc<Frame>> {
        let mut written = Vec::new();
        for events in frames {
            let mut draft = Draft::default();
            for number in 0..*events {
                let reason = "x".repeat(text + number);
                let body = ThreadEvent::RunRemoved { run: RunId::generate(), reason };
                let body = Body::Thread(body);
                draft.push(Timestamp::from_micros(1), &body, None).unwrap();
            }
            let of_run = self.last_of_run.entry(run).or_default();
            let reader: Arc<dyn ReadOriginal> = Arc::new(NoOriginals);
            let sealed = draft.seal(THREAD, Some(RunKey(run)), self.last + 1, *of_run + 1, &reader);
            self.last += *events as u64;
            *of_run += *events as u64;
            written.extend(sealed);
        }
        self.frames.extend(written.iter().cloned());
        self.stamp += 1;
        written
    }

    fn remove(&mut self, run: i64) {
        let of_run = |frame: &Arc<Frame>| frame.run() == Some(RunKey(run));
        let numbers =
            self.frames.iter().filter(|it| of_run(it)).flat_map(|it| it.first()..=it.last());
        self.erased.extend(numbers);
        self.frames.retain(|frame| !of_run(frame));
        self.stamp += 1;
    }

    fn read(&self, range: Range) -> Vec<Arc<Frame>> {
        let behind = |frame: &&Arc<Frame>| match range.run {
            None => frame.last() > range.after,
            Some(run) => frame.run() == Some(run) && frame.last_run() > range.after,
        };
        self.frames.iter().filter(behind).take(2).cloned().collect()
    }
}

impl World {
    fn new() -> Self {
        let state = Arc::new(NewsState {
            tails: Arc::new(Tails::new(CACHE_BYTES)),
            peer_news: broadcast::Sender::new(8),
            keys: ClusterKeys::default(),
            is_connected: AtomicBool::new(true),
            waiting_bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
        });
        let key = ClusterKey::new(&[1; KEY_BYTES]);
        state.keys.set(Some(key.clone()), vec![key]);
        let clock = Arc::new(TestClock::default());
        let writers = [1, 2].map(|opening| {
            let mut writer = NewsWriter::new(opening);
            writer.begin(MAX_MESSAGE_BYTES, clock.now());
            (writer, Encryptor::new(SUBJECT))
        });
        Self {
            log: Log::default(),
            ear: NewsSubscriber::new(
                3,
                SUBJECT,
                Arc::new(NoOriginals),
                Arc::clone(&clock) as _,
                Arc::clone(&state),
            ),
            state,
            clock,
            writers,
            owner: 0,
            network: Vec::new(),
            readers: Vec::new(),
            finding: None,
            known_erased: BTreeSet::new(),
            served: 0,
        }
    }

    fn publish(&mut self, removal: Option<LogRemoval>, frames: Vec<Arc<Frame>>) {
        let (last, stamp) = (self.log.last, self.log.stamp);
        let (writer, encryptor) = &mut self.writers[self.owner];
        writer.append(&AppendNotice { thread: THREAD, last, stamp, removal, frames });
        let messages = writer.finish();
        let keys = &self.state.keys;
        self.network
            .extend(messages.iter().map(|message| encryptor.encrypt(keys, message).unwrap()));
    }

    fn look_up(&mut self) {
        for (thread, _) in self.state.tails.threads_with_readers() {
            self.state.tails.reconcile_end(thread, self.log.last, self.log.stamp);
        }
        self.known_erased = self.log.erased.clone();
    }

    fn find(&mut self) {
        if let Some((entry, last)) = self.finding.take() {
            self.state.tails.set_end(THREAD, entry, last);
        }
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Append { run, frames, text } => {
                let frames = self.log.append(run, &frames, text);
                self.publish(None, frames);
            }
            Op::RemoveRun { run } => {
                self.log.remove(run);
                self.publish(Some(LogRemoval::Run), Vec::new());
            }
            Op::TakeOver => self.owner = 1 - self.owner,
            Op::Deliver { message, .. } | Op::Lose { message } | Op::Damage { message, .. }
                if message >= self.network.len() => {}
            Op::Deliver { message, keeps: true } => {
                self.ear.on_message(&self.network[message].clone())
            }
            Op::Deliver { message, keeps: false } => {
                let message = self.network.remove(message);
                self.ear.on_message(&message);
            }
            Op::Lose { message } => drop(self.network.remove(message)),
            Op::Damage { message, byte } => {
                let mut bytes = self.network[message].to_vec();
                let place = byte % bytes.len();
                bytes[place] ^= 1 << (byte % 8);
                self.ear.on_message(&Bytes::from(bytes));
            }
            Op::LookUp => self.look_up(),
            Op::Find => self.find(),
            Op::Attach { run } => {
                let (tail, first) = self.state.tails.attach(THREAD);
                if let Some(entry) = first {
                    // Looked up now, delivered to the reader later.
                    self.finding = Some((entry, self.log.last));
                }
                let began = match run {
                    None => self.log.last,
                    Some(run) => self.log.last_of_run.get(&run).copied().unwrap_or(0),
                };
                self.readers.push(Reader { tail, run, began, seen: Vec::new() });
            }
            Op::Detach { reader } if reader < self.readers.len() => {
                drop(self.readers.remove(reader));
            }
            Op::Read { reader } if reader < self.readers.len() => {
                let woken = self.readers[reader].tail.committed.has_changed().unwrap();
                if woken {
                    self.readers[reader].tail.committed.mark_unchanged();
                    while self.read(reader) {}
                }
            }
            Op::Detach { .. } | Op::Read { .. } => {}
        }
    }

    /// Reads the next frames, and checks them against the log. Returns `false` at its end.
    fn read(&mut self, index: usize) -> bool {
        let reader = &mut self.readers[index];
        let after = reader.seen.last().copied().unwrap_or(reader.began);
        let run = reader.run.map(RunKey);
        let range = Range { run, after, max_bytes: READ_BYTES };
        let kept = self.state.tails.frames(THREAD, range);
        self.served += usize::from(kept.as_ref().is_some_and(|frames| !frames.is_empty()));
        let frames = kept.unwrap_or_else(|| self.log.read(range));
        for frame in &frames {
            assert!(frame.last() <= self.log.last, "it is not durable");
            for number in frame.first()..=frame.last() {
                assert!(!self.known_erased.contains(&number), "{number} is erased");
                let place = match run {
                    None => number,
                    Some(run) => {
                        assert_eq!(frame.run(), Some(run));
                        frame.first_run() + (number - frame.first())
                    }
                };
                if place > reader.seen.last().copied().unwrap_or(reader.began) {
                    reader.seen.push(place);
                }
            }
        }
        !frames.is_empty()
    }

    /// Delivers and reads the rest. Then checks that every reader has seen every event that was not erased.
    fn settle(&mut self) {
        self.find();
        self.look_up();
        for index in 0..self.readers.len() {
            self.run(Op::Read { reader: index });
            let Reader { run, began, seen, .. } = &self.readers[index];
            let of_run =
                |frame: &&Arc<Frame>| run.is_none_or(|run| frame.run() == Some(RunKey(run)));
            let places = self.log.frames.iter().filter(of_run).flat_map(|frame| match run {
                None => frame.first()..=frame.last(),
                Some(_) => frame.first_run()..=frame.last_run(),
            });
            let missed: Vec<_> =
                places.filter(|place| place > began && !seen.contains(place)).collect();
            assert_eq!(missed, [0; 0], "a reader of {run:?} has not seen these");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_the_log_whatever_becomes_of_the_news(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
        }
        world.settle();
    }
}

#[test]
fn news_that_arrives_in_order_spares_every_look_up() {
    let mut world = World::new();
    world.run(Op::Attach { run: None });
    world.run(Op::Find);
    for text in 0..20 {
        world.run(Op::Append { run: text % RUNS, frames: vec![1, 2], text: text as usize });
        world.run(Op::Deliver { message: 0, keeps: false });
        let durable = std::mem::take(&mut world.log.frames);
        world.run(Op::Read { reader: 0 });
        world.log.frames = durable;
    }
    assert_eq!(world.readers[0].seen, (1..=60).collect::<Vec<_>>());
    assert!(world.served >= 20);
    world.run(Op::RemoveRun { run: 0 });
    // A node that receives no message finds it by polling.
    world.run(Op::LookUp);
    let range = Range { run: None, after: 58, max_bytes: READ_BYTES };
    assert!(world.state.tails.frames(THREAD, range).is_none());
}

#[test]
fn a_message_that_was_held_back_is_not_taken() {
    let mut world = World::new();
    world.run(Op::Attach { run: None });
    world.run(Op::Find);
    let append = || Op::Append { run: 0, frames: vec![1], text: 1 };
    let deliver = || Op::Deliver { message: 0, keeps: true };
    world.run(append());
    world.run(deliver());
    world.network.clear();
    world.run(append());
    let mut heard = world.state.peer_news.subscribe();
    world.clock.0.store(10_000_001, Ordering::Relaxed);
    world.run(deliver());
    assert_eq!(*world.readers[0].tail.committed.borrow(), 1);
    assert_eq!(heard.try_recv(), Ok(PeerNews::Missed), "what the sender tells is late");
    world.run(deliver());
    assert!(heard.try_recv().is_err(), "it is noticed once");
}
