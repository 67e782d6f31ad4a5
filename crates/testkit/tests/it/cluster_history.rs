//! Several clients send commands on one thread through any node; the test checks that the responses are linearizable.
//!
//! The objects of a thread are its metadata, and each of its runs with its question. A history is linearizable exactly if its part for each object is, so the search checks each part separately.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_domain::lock;
use trilogue_testkit::linear::{Operation, Recorder, Sequential, Verdict, check};
use trilogue_testkit::{Client, Reply, Seed};

use crate::kill_rounds::Scenario;
use crate::run_of;

/// The number of clients that use one thread at the same time.
const CLIENTS: usize = 4;
/// How long a client pauses after each command, so that it does not crowd out the clients that watch the thread.
const REST: Duration = Duration::from_millis(15);
/// The number of runs with a question on one thread.
const MOST_RUNS: usize = 24;
/// The prefix of an answer's reason, before its number.
const REASON: &str = "answer-";

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Call {
    /// Sets a member of the metadata.
    Write(u64),
    Read,
    /// Requests a run under an id that other clients may take.
    Create(usize),
    /// Answers the question of a run.
    Answer(usize, u64),
    Cancel(usize),
    /// Reads the question of a run.
    Look(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum CommandResponse {
    Done,
    /// The command came too late.
    Refused,
    /// Another run held the thread's turn.
    Busy,
    Metadata(Option<u64>),
    Question(Question),
    /// An error that no state explains.
    Wrong(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Question {
    #[default]
    Pending,
    Answered(u64),
    Cancelled,
}

/// An object of a thread: its metadata, or one of its runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    metadata: Option<u64>,
    is_created: bool,
    question: Question,
}

#[derive(Debug)]
struct Thread;

/// One thread and the operations on it.
#[derive(Debug)]
pub(crate) struct Talk {
    thread: String,
    recorder: Recorder<Call, CommandResponse>,
    /// The number of the next run to create.
    next: AtomicUsize,
    values: AtomicUsize,
    /// The ids of the questions that clients have seen, by run.
    questions: Mutex<BTreeMap<usize, String>>,
}

#[derive(Debug)]
struct Player {
    client: Client,
    seed: Seed,
    talk: Arc<Talk>,
}

/// The numbers of operations in the histories that were found linearizable.
#[derive(Default, Debug)]
pub(crate) struct Histories {
    pub(crate) operations: usize,
    pub(crate) without_answer: usize,
    pub(crate) answers: usize,
    pub(crate) refused: usize,
}

// === impl Thread ===

impl Sequential for Thread {
    type State = State;
    type Call = Call;
    type Answer = CommandResponse;

    fn step(state: &State, call: &Call, said: Option<&CommandResponse>) -> Option<State> {
        let is_open = state.is_created && state.question == Question::Pending;
        let resolved = |question| State { question, ..state.clone() };
        let same = |fits: bool| fits.then(|| state.clone());
        match (call, said) {
            (Call::Write(value), said) => {
                let fits = said.is_none_or(|said| *said == CommandResponse::Metadata(Some(*value)));
                fits.then(|| State { metadata: Some(*value), ..state.clone() })
            }
            (Call::Read, Some(CommandResponse::Metadata(value))) => same(*value == state.metadata),
            (Call::Create(_), Some(CommandResponse::Busy)) => same(true),
            (Call::Create(_), Some(CommandResponse::Refused)) => same(state.is_created),
            (Call::Create(_), None | Some(CommandResponse::Done)) => {
                (!state.is_created).then(|| State { is_created: true, ..state.clone() })
            }
            (Call::Answer(_, number), None | Some(CommandResponse::Done)) => {
                is_open.then(|| resolved(Question::Answered(*number)))
            }
            // A run that was answered and still runs can be cancelled, and its question stays answered.
            (Call::Cancel(_), Some(CommandResponse::Done)) if !is_open => same(state.is_created),
            (Call::Cancel(_), None | Some(CommandResponse::Done)) => {
                is_open.then(|| resolved(Question::Cancelled))
            }
            (Call::Answer(..) | Call::Cancel(_), Some(CommandResponse::Refused)) => {
                same(state.is_created && !is_open)
            }
            (Call::Look(_), Some(CommandResponse::Question(question))) => {
                same(state.is_created && *question == state.question)
            }
            _ => None,
        }
    }
}

// === impl Call ===

impl Call {
    /// The object of the call: a run's number, or `None` for the metadata.
    fn object(&self) -> Option<usize> {
        match *self {
            Self::Write(_) | Self::Read => None,
            Self::Create(run) | Self::Answer(run, _) | Self::Cancel(run) | Self::Look(run) => {
                Some(run)
            }
        }
    }
}

// === impl Talk ===

impl Talk {
    fn on(thread: String) -> Self {
        Self {
            thread,
            recorder: Recorder::default(),
            next: AtomicUsize::new(0),
            values: AtomicUsize::new(0),
            questions: Mutex::default(),
        }
    }

    fn run(&self, number: usize) -> String {
        format!("{}-run-{number}", self.thread)
    }

    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed) as u64
    }

    /// Makes a call, and records its outcome.
    async fn make(&self, client: &Client, call: Call) {
        let operation = self.recorder.begin(call.clone());
        if let Some(said) = self.send(client, &call).await {
            self.recorder.end(operation, said);
        }
    }

    async fn send(&self, client: &Client, call: &Call) -> Option<CommandResponse> {
        let thread = format!("/api/v1/threads/{}", self.thread);
        let question = |run: &usize| lock(&self.questions).get(run).cloned();
        let metadata = |row: &Value| CommandResponse::Metadata(row["metadata"]["n"].as_u64());
        match call {
            Call::Write(value) => {
                let body = Bytes::from(json!({"metadata": {"n": value}}).to_string());
                let reply = client.send(Method::PATCH, &thread, &[], body).await;
                outcome(reply, metadata)
            }
            Call::Read => outcome(client.get(&thread).await, metadata),
            Call::Create(run) => {
                let letter = "Write to ada@example.com about the report: it is ready.";
                let mut body =
                    run_of("mailcomposer", &self.thread, &json!({"message": letter}), "wait");
                body["id"] = json!(self.run(*run));
                outcome(client.post("/api/v1/runs", &body).await, |shown| {
                    if let Some(id) = shown["interrupts"][0]["id"].as_str() {
                        lock(&self.questions).insert(*run, id.to_owned());
                    }
                    CommandResponse::Done
                })
            }
            Call::Answer(run, number) => {
                let path = format!("/api/v1/interrupts/{}/answer", question(run)?);
                let reason = format!("{REASON}{number}");
                let body = json!({"value": {"approved": true, "reason": reason}});
                outcome(client.post(&path, &body).await, |_| CommandResponse::Done)
            }
            Call::Cancel(run) => {
                let path = format!("/api/v1/runs/{}/cancel", self.run(*run));
                outcome(client.post(&path, &json!({})).await, |_| CommandResponse::Done)
            }
            Call::Look(run) => {
                let path = format!("/api/v1/interrupts/{}", question(run)?);
                outcome(client.get(&path).await, |row| match resolution(&row["resolution"]) {
                    Some(question) => CommandResponse::Question(question),
                    None => CommandResponse::Wrong(row.to_string()),
                })
            }
        }
    }

    /// Reads every object, like a client after all others.
    async fn look(&self, client: &Client) {
        self.make(client, Call::Read).await;
        let runs: Vec<usize> = lock(&self.questions).keys().copied().collect();
        for run in runs {
            self.make(client, Call::Look(run)).await;
        }
    }

    /// Fails unless the operations on each object are linearizable.
    fn check(&self, seen: &mut Histories) -> Result<()> {
        let mut objects: BTreeMap<Option<usize>, Vec<Operation<Call, CommandResponse>>> =
            BTreeMap::new();
        for operation in self.recorder.operations() {
            seen.operations += 1;
            seen.without_answer += usize::from(operation.answer.is_none());
            let is_answer = matches!(operation.call, Call::Answer(..));
            seen.answers +=
                usize::from(is_answer && operation.answer == Some(CommandResponse::Done));
            seen.refused += usize::from(operation.answer == Some(CommandResponse::Refused));
            objects.entry(operation.call.object()).or_default().push(operation);
        }
        for (object, operations) in objects {
            match check::<Thread>(&drop_irrelevant(operations)) {
                Verdict::Linearisable => {}
                Verdict::Contradiction(why) => {
                    bail!("no order explains {object:?} of {}: {why}", self.thread)
                }
                Verdict::Undecided => {
                    bail!("the search for an order was given up: {}", self.thread)
                }
            }
        }
        Ok(())
    }
}

/// Drops operations without an answer that change nothing, or whose change no client saw: they need not have taken effect.
fn drop_irrelevant(
    mut operations: Vec<Operation<Call, CommandResponse>>,
) -> Vec<Operation<Call, CommandResponse>> {
    let seen: Vec<CommandResponse> =
        operations.iter().filter_map(|one| one.answer.clone()).collect();
    operations.retain(|one| match &one.call {
        Call::Read | Call::Look(_) => one.answer.is_some(),
        Call::Write(value) => {
            one.answer.is_some() || seen.contains(&CommandResponse::Metadata(Some(*value)))
        }
        _ => true,
    });
    operations
}

/// The meaning of a response; `None` for a network or server error, which leaves the outcome open.
fn outcome(
    reply: Result<Reply>,
    fine: impl FnOnce(&Value) -> CommandResponse,
) -> Option<CommandResponse> {
    let reply = reply.ok()?;
    match reply.status {
        200..300 => Some(fine(&reply.json())),
        400..500 => Some(match reply.code().as_str() {
            "already_exists" | "interrupt_resolved" | "run_ended" => CommandResponse::Refused,
            "thread_busy" | "thread_waiting" => CommandResponse::Busy,
            _ => CommandResponse::Wrong(String::from_utf8_lossy(&reply.body).into_owned()),
        }),
        _ => None,
    }
}

fn resolution(row: &Value) -> Option<Question> {
    match row["kind"].as_str() {
        None => Some(Question::Pending),
        Some("cancelled") => Some(Question::Cancelled),
        Some("answered") => {
            let text = row.to_string();
            let (_, rest) = text.split_once(REASON)?;
            let digits = rest.split(|it: char| !it.is_ascii_digit()).next()?;
            digits.parse().ok().map(Question::Answered)
        }
        Some(_) => None,
    }
}

// === impl Player ===

impl Player {
    async fn play(mut self) -> Arc<Talk> {
        let body = json!({"id": self.talk.thread});
        while !self.client.is_closed() {
            let created = self.client.post("/api/v1/threads", &body).await;
            if created.is_ok_and(|reply| matches!(reply.status, 201 | 409)) {
                break;
            }
            tokio::time::sleep(REST).await;
        }
        while !self.client.is_closed() {
            let call = self.call();
            self.talk.make(&self.client, call.clone()).await;
            if let Call::Create(run) = call {
                self.talk.next.fetch_max(run + 1, Ordering::Relaxed);
            }
            tokio::time::sleep(REST).await;
        }
        self.talk
    }

    fn call(&mut self) -> Call {
        let talk = &self.talk;
        let shown: Vec<usize> = lock(&talk.questions).keys().copied().collect();
        // Prefers the newest runs, so that clients contend for them.
        let run = shown.iter().rev().nth(self.seed.below(2) as usize).or(shown.last());
        match (self.seed.below(10), run) {
            (0 | 1, _) => Call::Write(talk.value()),
            (2 | 3, _) => Call::Read,
            (4, _) | (_, None) => {
                let next = talk.next.load(Ordering::Relaxed).min(MOST_RUNS);
                Call::Create(next.saturating_sub(self.seed.below(2) as usize))
            }
            (5 | 6, Some(run)) => Call::Answer(*run, talk.value()),
            (7, Some(run)) => Call::Cancel(*run),
            (_, Some(run)) => Call::Look(*run),
        }
    }
}

// === impl Histories ===

impl Scenario for Histories {
    type Received = Arc<Talk>;

    fn play(&self, client: &Client, seed: &mut Seed, _: usize, players: &mut JoinSet<Arc<Talk>>) {
        let talk = Arc::new(Talk::on(format!("history-{:016x}", seed.draw())));
        for _ in 0..CLIENTS {
            let talk = Arc::clone(&talk);
            players.spawn(Player { client: client.clone(), seed: seed.fork(), talk }.play());
        }
    }

    async fn check(&mut self, client: &Client, told: &[Arc<Talk>], _: &mut Seed) -> Result<()> {
        for talk in each(told) {
            talk.look(client).await;
        }
        Ok(())
    }

    async fn resume(&mut self, _: &Client, told: Vec<Arc<Talk>>) -> Result<()> {
        each(&told).try_for_each(|talk| talk.check(self))
    }

    fn has_seen_enough(&self) -> bool {
        self.answers > 0 && self.refused > 0
    }
}

/// Each thread once, because all its clients return it.
fn each(told: &[Arc<Talk>]) -> impl Iterator<Item = &Arc<Talk>> {
    let is_first = |index: usize, talk: &Arc<Talk>| {
        !told[..index].iter().any(|other| Arc::ptr_eq(other, talk))
    };
    told.iter()
        .enumerate()
        .filter(move |(index, talk)| is_first(*index, talk))
        .map(|(_, talk)| talk)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks operations that ran one after the other.
    fn one_by_one(history: &[(Call, Option<CommandResponse>)]) -> Verdict {
        let recorder = Recorder::default();
        for (call, said) in history {
            let operation = recorder.begin(call.clone());
            if let Some(said) = said {
                recorder.end(operation, said.clone());
            }
        }
        check::<Thread>(&drop_irrelevant(recorder.operations()))
    }

    fn is_refused(history: &[(Call, Option<CommandResponse>)]) -> bool {
        matches!(one_by_one(history), Verdict::Contradiction(_))
    }

    #[test]
    fn a_thread_as_it_is_has_an_order_and_each_broken_promise_has_none() {
        let done = || Some(CommandResponse::Done);
        let refused = || Some(CommandResponse::Refused);
        let create = || (Call::Create(0), done());
        let shown = |question| (Call::Look(0), Some(CommandResponse::Question(question)));
        let fine = [
            create(),
            (Call::Create(0), refused()),
            shown(Question::Pending),
            (Call::Answer(0, 1), done()),
            (Call::Answer(0, 2), refused()),
            (Call::Cancel(0), done()),
            (Call::Cancel(0), refused()),
            shown(Question::Answered(1)),
        ];
        assert_eq!(one_by_one(&fine), Verdict::Linearisable);
        let unknown = [create(), (Call::Answer(0, 1), None), shown(Question::Answered(1))];
        assert_eq!(one_by_one(&unknown), Verdict::Linearisable);

        assert!(is_refused(&[create(), create()]), "one id was given twice");
        let twice = [create(), (Call::Answer(0, 1), done()), (Call::Answer(0, 2), done())];
        assert!(is_refused(&twice), "two answers were taken");
        assert!(is_refused(&[create(), (Call::Answer(0, 1), refused())]), "an answer was made up");
        assert!(is_refused(&[create(), shown(Question::Answered(1))]), "an answer was made up");
        let lost = [create(), (Call::Answer(0, 1), done()), shown(Question::Pending)];
        assert!(is_refused(&lost), "an answer was lost");
        let after = [create(), (Call::Cancel(0), done()), (Call::Answer(0, 1), done())];
        assert!(is_refused(&after), "an answer was taken behind the end");
        let stale = [
            (Call::Write(1), Some(CommandResponse::Metadata(Some(1)))),
            (Call::Write(2), Some(CommandResponse::Metadata(Some(2)))),
            (Call::Read, Some(CommandResponse::Metadata(Some(1)))),
        ];
        assert!(is_refused(&stale), "a look-up was stale");
        assert!(is_refused(&[(Call::Read, Some(CommandResponse::Wrong("404".to_owned())))]));
    }
}
