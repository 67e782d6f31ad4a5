//! Histories from clients, and their effect on the thread.

use std::sync::atomic::Ordering;

use trilogue_domain::event::ThreadEvent;
use trilogue_domain::{
    AgentName, Body, ClientHistory, Code, HeadMove, Json, MessageId, Principal, Reference,
    RunStatus, ThreadId, limits,
};
use trilogue_runtime::{NewThread, RunRequest, StateAt, ThreadChoice};
use trilogue_store::Range;
use trilogue_store::rows::{CheckpointRow, Page, ThreadFilter};

use crate::fixture::{TestServer, alice, new_run, principal, scope, until};

const STATE: &str = "http://example.com/state";

pub fn address(number: usize) -> Reference {
    Reference::Address(format!("http://example.com/{number}").into())
}

pub fn history_of(entries: Vec<Reference>) -> ClientHistory {
    ClientHistory { entries, state: None }
}

fn thread_id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

impl TestServer {
    /// Stores a message at each of these addresses: `far N`.
    pub fn fill_library(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            self.library.put(&format!("http://example.com/{number}"), format!("far {number}"));
        }
    }

    pub async fn replace(&self, thread: &ThreadId, entries: Vec<Reference>) {
        self.runtime.replace_history(&alice(), thread, history_of(entries)).await.unwrap();
    }

    pub async fn references(&self, thread: &ThreadId) -> Vec<Reference> {
        let mut reader = self.runtime.references(&scope(), thread).await.unwrap();
        let mut references = Vec::new();
        while let Some(part) = reader.next().await.unwrap() {
            references.extend(part);
        }
        references
    }

    pub async fn state_at(&self, thread: &ThreadId) -> Option<StateAt> {
        self.runtime.references(&scope(), thread).await.unwrap().state().cloned()
    }

    pub async fn path(&self, thread: &ThreadId) -> Vec<CheckpointRow> {
        self.store.path(&scope(), thread, None, 100).await.unwrap()
    }

    /// Returns the history that an agent gets of the thread.
    pub async fn agent_history(&self, thread: &ThreadId) -> String {
        let run = self.run("history", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(run.status, RunStatus::Completed, "{run:?}");
        self.output_text(&run).await
    }

    /// Returns why the thread's head moved, from its log.
    async fn moves(&self, thread: &ThreadId) -> Vec<HeadMove> {
        let row = self.store.thread(&scope(), thread).await.unwrap().unwrap();
        let range = Range { run: None, after: 0, max_bytes: 1 << 20 };
        let mut moves = Vec::new();
        for frame in self.store.frames(row.key, range).await.unwrap() {
            moves.extend(frame.events().unwrap().iter().filter_map(|event| match &event.body {
                Body::Thread(ThreadEvent::HeadMoved { by, .. }) => Some(*by),
                _ => None,
            }));
        }
        moves
    }
}

#[tokio::test]
async fn a_brought_history_makes_the_thread_that_is_not_there() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..2);
        let id = thread_id("brought");
        let entries = vec![address(0), address(1)];
        let row = server
            .runtime
            .replace_history(&alice(), &id, history_of(entries.clone()))
            .await
            .unwrap();
        assert_eq!((row.id.clone(), row.ephemeral), (id.clone(), false));
        let listed =
            server.store.threads(&scope(), &ThreadFilter::default(), &Page::default()).await;
        let listed = listed.unwrap().rows;
        assert_eq!((listed.len(), &listed[0]), (2, &row));
        assert_eq!(listed[1].id, server.main);
        assert_eq!(server.references(&id).await, entries);
        assert_eq!(server.moves(&id).await, [HeadMove::Replacement]);
        assert_eq!(server.agent_history(&id).await, "far 0|far 1");

        let empty = thread_id("empty");
        let row = server
            .runtime
            .replace_history(&alice(), &empty, ClientHistory::default())
            .await
            .unwrap();
        assert_eq!(row.head, None);
        assert_eq!(server.references(&empty).await, []);
    }
}

#[tokio::test]
async fn a_history_that_begins_with_the_threads_own_continues_it() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..3);
        server.run("say:one", ThreadChoice::Existing(server.main.clone())).await;
        let before = server.path(&server.main).await;
        let own = server.references(&server.main).await;
        assert_eq!(own.len(), 2);
        let longer = [own.clone(), vec![address(0), address(1)]].concat();
        server.replace(&server.main, longer.clone()).await;
        assert_eq!(server.references(&server.main).await, longer);
        let after = server.path(&server.main).await;
        assert_eq!((after.len(), &after[1..]), (2, &before[..]));
        assert_eq!(after[0].client_history, Some(history_of(vec![address(0), address(1)])));
        // The same history again changes nothing.
        server.replace(&server.main, longer.clone()).await;
        assert_eq!(server.path(&server.main).await, after);
        assert_eq!(server.moves(&server.main).await, [HeadMove::Replacement]);
        assert_eq!(server.agent_history(&server.main).await, "say:one|one|far 0|far 1");
        let longest = [server.references(&server.main).await, vec![address(2)]].concat();
        server.replace(&server.main, longest.clone()).await;
        assert_eq!(server.references(&server.main).await, longest);
    }
}

#[tokio::test]
async fn another_history_takes_the_place_of_the_threads_own() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..2);
        server.run(r#"say:one set:{"n":1}"#, ThreadChoice::Existing(server.main.clone())).await;
        let own = server.references(&server.main).await;
        let other = vec![address(1), own[0].clone()];
        server.replace(&server.main, other.clone()).await;
        assert_eq!(server.references(&server.main).await, other);
        let path = server.path(&server.main).await;
        assert_eq!((path.len(), path[0].parent), (1, None));
        assert_eq!(server.agent_history(&server.main).await, r#"far 1|say:one set:{"n":1}"#);
        assert_eq!(server.state_at(&server.main).await, None, "a state belongs to its history");
        // A shorter history is a rewind too.
        server.replace(&server.main, vec![address(1)]).await;
        assert_eq!(server.agent_history(&server.main).await, "far 1");
    }
}

#[tokio::test]
async fn a_run_that_has_the_turn_keeps_what_it_is_based_on() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..1);
        server.run("say:one", ThreadChoice::Existing(server.main.clone())).await;
        let at_work = new_run("commit gate history", ThreadChoice::Existing(server.main.clone()));
        let submitted = server.runtime.submit(&alice(), at_work).await.unwrap();
        until("the agent is at work", || async { server.agent.turns.load(Ordering::SeqCst) == 2 })
            .await;
        server.replace(&server.main, vec![address(0)]).await;
        assert_eq!(server.references(&server.main).await, [address(0)], "at once");
        server.agent.gate.add_permits(1);
        let run = submitted.settled.wait().await.unwrap();
        assert_eq!(server.output_text(&run).await, "say:one|one");
        assert_eq!(
            server.agent_history(&server.main).await,
            "far 0|commit gate history|say:one|one",
            "it ends behind the new head"
        );
    }
}

#[tokio::test]
async fn replacements_at_the_same_time_all_count() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = thread_id("shared");
        let replace = |number| {
            let (runtime, thread) = (server.runtime.clone(), thread.clone());
            tokio::spawn(async move {
                runtime.replace_history(&alice(), &thread, history_of(vec![address(number)])).await
            })
        };
        let all: Vec<_> = (0..4).map(replace).collect();
        for one in all {
            one.await.unwrap().unwrap();
        }
        assert_eq!(server.references(&thread).await.len(), 1, "each is a rewind of the one before");
        assert_eq!(server.moves(&thread).await, [HeadMove::Replacement; 4]);
    }
}

#[tokio::test]
async fn no_rewind_behind_an_agent_that_cannot_forget() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..1);
        let private = RunRequest {
            agent: AgentName::parse("private").unwrap(),
            ..new_run("bind:s say:one", ThreadChoice::Existing(server.main.clone()))
        };
        let run = server.runtime.submit(&alice(), private).await.unwrap();
        assert_eq!(run.settled.wait().await.unwrap().status, RunStatus::Completed);
        let own = server.references(&server.main).await;
        let by = alice();
        let rewind =
            server.runtime.replace_history(&by, &server.main, history_of(vec![address(0)]));
        let error = rewind.await.unwrap_err();
        assert_eq!(error.code(), Code::AgentMemoryNotRewindable);
        assert!(error.message().contains("'private'"), "{error}");
        assert_eq!(server.references(&server.main).await, own);
        // The agent need not forget anything to continue.
        server.replace(&server.main, [own, vec![address(0)]].concat()).await;
        assert_eq!(server.agent_history(&server.main).await, "bind:s say:one|one|far 0");
    }
}

#[tokio::test]
async fn the_state_is_read_where_it_lies_until_the_thread_has_its_own() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..2);
        server.library.put_state(STATE, r#"{"far":1}"#);
        let thread = thread_id("t");
        let choice = || ThreadChoice::Existing(thread.clone());
        let there = Some(StateAt::Address(STATE.into()));
        let brought = ClientHistory { entries: vec![address(0)], state: Some(STATE.into()) };
        let first = server.runtime.replace_history(&alice(), &thread, brought.clone()).await;
        let first = first.unwrap();
        assert_eq!(server.state_at(&thread).await, there);
        let run = server.run("state", choice()).await;
        assert_eq!(server.output_text(&run).await, r#"{"far":1}"#);
        assert_eq!(server.state_at(&thread).await, there);
        let again = ClientHistory { entries: server.references(&thread).await, ..brought };
        let row = server.runtime.replace_history(&alice(), &thread, again).await.unwrap();
        assert_ne!(row.head, first.head);
        assert_eq!(server.path(&thread).await.len(), 2, "neither history nor state is new");

        server.run(r#"set:{"own":2}"#, choice()).await;
        let head = server.path(&thread).await.remove(0);
        let own = Some(StateAt::Value { checkpoint: head.id });
        assert_eq!(server.state_at(&thread).await, own);
        let longer = [server.references(&thread).await, vec![address(1)]].concat();
        server.replace(&thread, longer).await;
        assert_eq!(server.state_at(&thread).await, own, "no new state leaves the old one");
        let run = server.run("state", choice()).await;
        assert_eq!(server.output_text(&run).await, r#"{"own":2}"#);
    }
}

#[tokio::test]
async fn a_state_can_be_brought_itself() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        for id in ["new", "old"] {
            let thread = thread_id(id);
            if id == "old" {
                server.replace(&thread, Vec::new()).await;
            }
            let bring = async || {
                let state = Some(Json::parse(r#"{"n":1}"#).unwrap());
                let given = history_of(Vec::new());
                server.runtime.replace_history_and_state(&alice(), &thread, given, state).await
            };
            let head = bring().await.unwrap().head;
            assert!(head.is_some());
            assert_eq!(bring().await.unwrap().head, head, "it is the state already");
            let run = server.run("state", ThreadChoice::Existing(thread.clone())).await;
            assert_eq!(server.output_text(&run).await, r#"{"n":1}"#);
        }
    }
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_with_its_place() {
    let server = TestServer::memory().await;
    let thread = thread_id("t");
    let refused = async |given: ClientHistory| {
        let error = server.runtime.replace_history(&alice(), &thread, given).await.unwrap_err();
        (error.code(), error.message().to_owned())
    };
    let many = history_of(vec![address(0); limits::MAX_GIVEN_ENTRIES + 1]);
    assert_eq!(refused(many).await.0, Code::TooManyParts);
    let long = Reference::Address(
        format!("http://example.com/{}", "x".repeat(limits::MAX_ADDRESS_BYTES)).into(),
    );
    for bad in [long, Reference::Address("file:///etc/passwd".into())] {
        let (code, message) = refused(history_of(vec![address(0), bad])).await;
        assert_eq!(code, Code::InvalidInput);
        assert!(message.starts_with("history[1]"), "{message}");
    }
    let state = ClientHistory { entries: Vec::new(), state: Some("/relative".into()) };
    let (code, message) = refused(state).await;
    assert_eq!((code, message.starts_with("state")), (Code::InvalidInput, true));
    assert_eq!(server.store.thread(&scope(), &thread).await.unwrap(), None);
    server.replace(&thread, vec![address(0); limits::MAX_GIVEN_ENTRIES]).await;
}

#[tokio::test]
async fn only_what_the_caller_sees_is_replaced_read_or_referred_to() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let run = server.run("say:one result:1", ThreadChoice::Existing(server.main.clone())).await;
        let own = server.references(&server.main).await;
        let bob = Principal { own: true, ..principal("bob") };
        let stranger = Principal {
            tenant: trilogue_domain::TenantId::parse("elsewhere").unwrap(),
            ..principal("alice")
        };
        let missing = Reference::Message {
            thread: Some(server.main.clone()),
            id: MessageId::parse("nowhere").unwrap(),
        };
        for (by, entry) in [
            (&bob, own[0].clone()),
            (&bob, Reference::Result(run.id.clone())),
            (&stranger, own[0].clone()),
            (&stranger, Reference::Result(run.id.clone())),
            (&alice(), missing),
        ] {
            let entries = history_of(vec![address(0), entry]);
            let id = thread_id("another");
            let error = server.runtime.replace_history(by, &id, entries).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidInput);
            assert!(error.message().starts_with("history[1]"), "{error}");
            assert_eq!(server.store.thread(&by.scope(), &id).await.unwrap(), None);
        }
        let error =
            server.runtime.replace_history(&bob, &server.main, history_of(vec![address(0)])).await;
        assert_eq!(error.unwrap_err().code(), Code::AlreadyExists);
        for by in [&bob, &stranger] {
            let error = server.runtime.references(&by.scope(), &server.main).await.unwrap_err();
            assert_eq!(error.code(), Code::ThreadNotFound);
        }
        assert_eq!(server.references(&server.main).await, own);
        // The same id in another tenant is another thread.
        let theirs = history_of(vec![address(0)]);
        server.runtime.replace_history(&stranger, &server.main, theirs).await.unwrap();
        assert_eq!(server.references(&server.main).await, own);
    }
}

#[tokio::test]
async fn a_copy_has_the_brought_history_too() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.fill_library(0..1);
        let thread = thread_id("t");
        let brought = ClientHistory { entries: vec![address(0)], state: Some(STATE.into()) };
        server.runtime.replace_history(&alice(), &thread, brought).await.unwrap();
        server.run("say:one", ThreadChoice::Existing(thread.clone())).await;
        let copy =
            server.runtime.copy_thread(&alice(), &thread, NewThread::default()).await.unwrap();
        server.runtime.erase_thread(&alice(), &thread).await.unwrap();
        assert_eq!(server.agent_history(&copy.id).await, "far 0|say:one|one");
        assert_eq!(server.state_at(&copy.id).await, Some(StateAt::Address(STATE.into())));
    }
}

/// Each request for a session needs its history: a run's log is read once, not each time.
#[test]
fn a_history_that_was_read_is_not_read_again() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let script = format!("say:one {}", "custom:{} ".repeat(3_000));
    let (server, run, first) = tokio.block_on(async {
        let server = TestServer::sqlite().await;
        let run = server.run(&script, ThreadChoice::Existing(server.main.clone())).await;
        let first = server.references(&server.main).await;
        (server, run, first)
    });
    assert_eq!(first.len(), 2, "the prompt and its answer: {first:?}");
    let mut again = Vec::new();
    let counted = allocation_counter::measure(|| {
        again = tokio.block_on(server.references(&server.main));
    });
    assert_eq!(again, first);
    // Reading the events would cost several allocations for each.
    assert!(counted.count_total < 1_000, "{counted:?}");
    // A removed run is not remembered.
    tokio.block_on(async {
        server.runtime.remove_run(&alice(), &run.id).await.unwrap();
        assert_eq!(server.references(&server.main).await, []);
    });
}
