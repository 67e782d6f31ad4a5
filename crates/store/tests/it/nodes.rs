//! The guarantees between nodes that share a store in PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::Code;
use trilogue_store::rows::QueueKind;
use trilogue_store::{NodeAgent, NodeOptions, Options, Store, agent_differences, open};

use crate::harness::{World, alice, at, code, options, postgres_url, read, service, thread_row};

const LATE: Duration = Duration::from_secs(3_600);
const PATIENCE: Duration = Duration::from_secs(20);

fn node(name: &str) -> NodeOptions {
    NodeOptions {
        heartbeat: Duration::from_millis(100),
        dead_after: Duration::from_secs(1),
        poll: LATE,
        ..NodeOptions::new(name.to_owned(), format!("http://{name}:1"))
    }
}

async fn open_store(url: &str, node: NodeOptions) -> Arc<dyn Store> {
    open(url, Options { node: Some(node), ..options() }).await.unwrap()
}

/// Takes a thread for a store's own node.
async fn take(
    store: &Arc<dyn Store>,
    log: &crate::harness::Log,
) -> trilogue_domain::error::Result<u64> {
    let me = store.node().unwrap().to_owned();
    store.acquire(log.row.key, &me).await.map(|taken| taken.thread.epoch)
}

#[tokio::test]
async fn a_live_owner_is_never_robbed_and_one_that_left_is_replaced_at_once() {
    let url = postgres_url().await;
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, node("b")).await);
    let log = World::of(Arc::clone(&a)).thread("t").await;
    let epoch = take(&a, &log).await.unwrap();
    assert_eq!(take(&a, &log).await.unwrap(), epoch, "it keeps what it has");
    let refused = take(&b, &log).await.unwrap_err();
    assert_eq!(refused.code(), Code::ThreadElsewhere);
    assert_eq!(refused.other_node(), Some("http://a:1"));
    let names: Vec<_> =
        b.nodes().await.unwrap().into_iter().map(|node| (node.name, node.is_alive)).collect();
    assert_eq!(names, [("a".to_owned(), true), ("b".to_owned(), true)]);
    a.close().await.unwrap();
    assert_eq!(take(&b, &log).await.unwrap(), epoch + 1);
    assert_eq!(b.nodes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_silent_node_is_dead_and_writes_nothing_when_it_comes_back() {
    let url = postgres_url().await;
    // It gives one sign of life, at its start.
    let silent = NodeOptions { heartbeat: LATE, ..node("a") };
    let (a, b) = (open_store(&url, silent).await, open_store(&url, node("b")).await);
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    let run = log.start("r").await;
    log.step().say(Some(run.key), &["one"]).commit().await.unwrap();
    let taking = async {
        while b.abandoned_threads().await.unwrap() != [log.row.key] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        take(&b, &log).await.unwrap()
    };
    let epoch = tokio::time::timeout(PATIENCE, taking).await.unwrap();
    assert_eq!(epoch, log.row.epoch + 1);
    assert_eq!(code(log.step().say(Some(run.key), &["late"]).commit().await), Code::OwnershipLost);
    assert_eq!(take(&a, &log).await.unwrap_err().code(), Code::ThreadElsewhere, "it steps down");
    assert_eq!(read(&*b, &log.row, None).await.last().unwrap().1, "one");
}

#[tokio::test]
async fn two_live_nodes_have_two_names_and_a_dead_one_gives_its_name_back() {
    let url = postgres_url().await;
    let _a = open_store(&url, node("a")).await;
    let second = Options { node: Some(node("a")), ..options() };
    let refused = open(&url, second.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    assert!(refused.hint_text().unwrap().contains("[cluster] name"), "{refused}");

    let silent = NodeOptions { heartbeat: LATE, ..node("b") };
    let url = postgres_url().await;
    let first = open_store(&url, silent.clone()).await;
    let next = NodeOptions { heartbeat: Duration::from_millis(100), ..silent };
    // The new node waits until the earlier one is dead.
    let next = open_store(&url, next).await;
    assert_ne!(first.node(), next.node());
    assert_eq!(next.nodes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn work_that_falls_due_is_the_owners() {
    let url = postgres_url().await;
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, node("b")).await);
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    let item = log.item(QueueKind::ScheduledRun, "k", 5);
    log.write([trilogue_store::Change::Offer(item)]).await;
    let kind = QueueKind::ScheduledRun;
    assert_eq!(b.next_due(kind).await.unwrap(), None);
    assert!(b.claim(kind, at(9), at(20), 9).await.unwrap().is_empty());
    assert_eq!(a.next_due(kind).await.unwrap(), Some(at(5)));
    let claims = a.claim(kind, at(9), at(20), 9).await.unwrap();
    assert_eq!(claims.len(), 1);
    // Its lease ends, and then the owner closes.
    a.close().await.unwrap();
    assert_eq!(b.claim(kind, at(30), at(40), 9).await.unwrap().len(), 1);
}

/// Reads a log on `reader` while `writer` appends to it, waiting for each event.
async fn follow(writer: &Arc<dyn Store>, reader: &Arc<dyn Store>) {
    let world = World::of(Arc::clone(writer));
    let mut log = world.create(thread_row(writer.next_thread_key(), &alice(), "t")).await.unwrap();
    let mut tail = reader.tail(log.row.key);
    for number in 1..=20_u64 {
        log.step().say(None, &[&format!("event {number}")]).commit().await.unwrap();
        let reached = tail.committed.wait_for(|last| *last >= number);
        tokio::time::timeout(PATIENCE, reached).await.unwrap().unwrap();
        let events = read(&**reader, &log.row, None).await;
        assert_eq!(events.len() as u64, number);
    }
}

#[tokio::test]
async fn a_reader_elsewhere_hears_of_each_append_by_news() {
    let nats = service("TRILOGUE_NATS");
    let url = postgres_url().await;
    let told = |name| NodeOptions { news: Some(nats.clone()), ..node(name) };
    let (a, b) = (open_store(&url, told("a")).await, open_store(&url, told("b")).await);
    let world = World::of(Arc::clone(&a));
    let mut first = world.thread("first").await;
    let mut heard = b.tail(first.row.key);
    let hearing = async {
        // Messages may be lost until both are connected.
        loop {
            first.step().say(None, &["again"]).commit().await.unwrap();
            let reached = heard.committed.wait_for(|last| *last >= first.last);
            if tokio::time::timeout(Duration::from_millis(200), reached).await.is_ok() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, hearing).await.unwrap();
    follow(&a, &b).await;
}

#[tokio::test]
async fn a_reader_elsewhere_finds_each_append_without_news() {
    let url = postgres_url().await;
    let looking = NodeOptions { poll: Duration::from_millis(20), ..node("b") };
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, looking).await);
    follow(&a, &b).await;
    // A NATS server that cannot be reached stops nothing.
    let deaf = NodeOptions {
        news: Some("nats://127.0.0.1:1".to_owned()),
        poll: Duration::from_millis(20),
        ..node("c")
    };
    let c = open_store(&url, deaf).await;
    let world = World::of(Arc::clone(&c));
    let mut log = world.thread("u").await;
    log.step().say(None, &["one"]).commit().await.unwrap();
    let mut tail = b.tail(log.row.key);
    let reached = tail.committed.wait_for(|last| *last >= 1);
    tokio::time::timeout(PATIENCE, reached).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_kept_of_a_log_that_came_back_has_no_hole() {
    let url = postgres_url().await;
    let silent = NodeOptions { heartbeat: LATE, ..node("a") };
    let (a, b) = (open_store(&url, silent).await, open_store(&url, node("b")).await);
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    // With a reader, this node keeps its writes in memory.
    let _reader = a.tail(log.row.key);
    log.step().say(None, &["a1"]).commit().await.unwrap();
    let taking = async {
        loop {
            match take(&b, &log).await {
                Ok(epoch) => return epoch,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    log.row.epoch = tokio::time::timeout(PATIENCE, taking).await.unwrap();
    log.store = Arc::clone(&b);
    log.step().say(None, &["b2"]).commit().await.unwrap();
    b.close().await.unwrap();
    log.store = Arc::clone(&a);
    log.row.epoch = take(&a, &log).await.unwrap();
    log.step().say(None, &["a3"]).commit().await.unwrap();
    let texts: Vec<_> = read(&*a, &log.row, None).await.into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["a1", "b2", "a3"]);
}

fn node_agents(agents: &[(&str, &str)]) -> Vec<NodeAgent> {
    let agent = |&(name, digest): &(&str, &str)| NodeAgent {
        name: name.to_owned(),
        digest: Some(digest.to_owned()),
        also: vec![format!("{name}-id")],
    };
    agents.iter().map(agent).collect()
}

#[tokio::test]
async fn nodes_find_who_has_an_agent_and_where_they_differ() {
    let url = postgres_url().await;
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, node("b")).await);
    assert_eq!(a.nodes().await.unwrap()[0].agents, None, "it has told nothing yet");
    a.publish_agents(node_agents(&[("x", "1"), ("y", "1")])).await.unwrap();
    assert_eq!(agent_differences(&a.nodes().await.unwrap()), []);
    b.publish_agents(node_agents(&[("y", "2")])).await.unwrap();
    for text in ["x", "x-id", "X-ID"] {
        let found = b.node_with_agent(text).await.unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.address.as_str()), ("a", "http://a:1"));
        assert_eq!(a.node_with_agent(text).await.unwrap(), None, "only it has the agent");
    }
    assert_eq!(b.node_with_agent("z").await.unwrap(), None);
    let differing = agent_differences(&b.nodes().await.unwrap());
    let differing: Vec<_> =
        differing.iter().map(|it| (it.agent.as_str(), it.variants.len(), &it.missing_on)).collect();
    assert_eq!(differing, [("x", 1, &vec!["b".to_owned()]), ("y", 2, &vec![])]);
    b.publish_agents(node_agents(&[("x", "1"), ("y", "1")])).await.unwrap();
    assert_eq!(agent_differences(&b.nodes().await.unwrap()), []);
    a.close().await.unwrap();
    assert_eq!(b.node_with_agent("x").await.unwrap(), None, "it has left");
}

#[tokio::test]
async fn a_thread_and_its_due_work_wait_for_a_node_that_has_the_agent() {
    let url = postgres_url().await;
    let a = open_store(&url, node("a")).await;
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    let run = log.start("r").await;
    let item = log.item(QueueKind::Deadline, "k", 5);
    log.write([trilogue_store::Change::Offer(item)]).await;
    let (b, c) = (open_store(&url, node("b")).await, open_store(&url, node("c")).await);
    b.publish_agents(node_agents(&[("other", "1")])).await.unwrap();
    c.publish_agents(node_agents(&[(run.agent.as_str(), "1")])).await.unwrap();
    a.close().await.unwrap();
    let refused = take(&b, &log).await.unwrap_err();
    assert_eq!(refused.code(), Code::ThreadElsewhere);
    assert_eq!(refused.other_node(), Some("http://c:1"));
    let kind = QueueKind::Deadline;
    let unseen = async {
        // The other nodes learn it with the next sign of life.
        while b.next_due(kind).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, unseen).await.unwrap();
    assert!(b.claim(kind, at(9), at(20), 9).await.unwrap().is_empty());
    assert_eq!(c.claim(kind, at(9), at(20), 9).await.unwrap().len(), 1);
    // If no live node has the agent, any node may take the thread.
    c.close().await.unwrap();
    take(&b, &log).await.unwrap();
    assert_eq!(b.claim(kind, at(30), at(40), 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_idle_thread_moves_to_a_node_that_has_the_agent_of_a_new_run() {
    let url = postgres_url().await;
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, node("b")).await);
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    log.row.owner_node = a.node().unwrap().to_owned();
    let run = log.start("r").await;
    let agent = trilogue_domain::AgentName::parse("only-on-b").unwrap();
    let busy = async {
        a.publish_agents(node_agents(&[(run.agent.as_str(), "1")])).await.unwrap();
        b.publish_agents(node_agents(&[(run.agent.as_str(), "1"), (agent.as_str(), "1")]))
            .await
            .unwrap();
        loop {
            // The other nodes learn it with the next sign of life.
            match b.take_for_agent(&log.row, &agent).await {
                Ok(()) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    };
    let busy = tokio::time::timeout(PATIENCE, busy).await.unwrap();
    assert_eq!((busy.code(), busy.other_node()), (Code::ThreadElsewhere, None));
    log.end(run.clone()).await;
    b.take_for_agent(&log.row, &run.agent).await.unwrap();
    assert_eq!(take(&a, &log).await.unwrap(), log.row.epoch, "its owner has that agent");
    b.take_for_agent(&log.row, &agent).await.unwrap();
    assert_eq!(take(&b, &log).await.unwrap(), log.row.epoch + 1);
    assert_eq!(code(log.step().say(None, &["late"]).commit().await), Code::OwnershipLost);
    assert_eq!(take(&a, &log).await.unwrap_err().other_node(), Some("http://b:1"));
}

#[tokio::test]
async fn a_thread_that_is_handed_over_moves_to_the_node_that_was_named() {
    let url = postgres_url().await;
    let (a, b) = (open_store(&url, node("a")).await, open_store(&url, node("b")).await);
    let c = open_store(&url, node("c")).await;
    let mut log = World::of(Arc::clone(&a)).thread("t").await;
    log.row.epoch = take(&a, &log).await.unwrap();
    let epoch = log.row.epoch;
    let unknown = a.hand_over(log.row.key, epoch, Some("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(take(&a, &log).await.unwrap(), epoch, "it keeps what nobody takes");
    a.hand_over(log.row.key, epoch, Some("b")).await.unwrap();
    a.hand_over(log.row.key, epoch, Some("b")).await.unwrap();
    for other in [&a, &c] {
        let refused = take(other, &log).await.unwrap_err();
        assert_eq!(refused.other_node(), Some("http://b:1"));
    }
    let me = b.node().unwrap().to_owned();
    let taken = b.acquire(log.row.key, &me).await.unwrap();
    assert!(taken.is_taken_over, "its runs are looked at");
    assert_eq!(taken.thread.epoch, epoch + 1);
    let late = log.step().say(None, &["late"]).commit().await.unwrap_err();
    assert_eq!(late.code(), Code::OwnershipLost);
}

#[tokio::test]
async fn a_node_that_drains_gives_up_what_it_owns_and_takes_nothing() {
    let url = postgres_url().await;
    let a = open_store(&url, node("a")).await;
    let world = World::of(Arc::clone(&a));
    let (idle, busy) = (world.thread("idle").await, world.thread("busy").await);
    let epoch = take(&a, &idle).await.unwrap();
    take(&a, &busy).await.unwrap();
    a.set_draining(true).await.unwrap();
    assert!(a.check_takes(idle.row.key).await.is_ok(), "nobody else takes it");
    assert_eq!(take(&a, &idle).await.unwrap(), epoch);
    let b = open_store(&url, node("b")).await;
    assert_eq!(a.check_takes(idle.row.key).await.unwrap_err().other_node(), Some("http://b:1"));
    assert_eq!(a.hand_over_all_but(&[busy.row.key]).await.unwrap(), 1);
    assert_eq!(take(&a, &idle).await.unwrap_err().other_node(), Some("http://b:1"));
    assert_eq!(take(&b, &idle).await.unwrap(), epoch + 1);
    assert_eq!(take(&b, &busy).await.unwrap_err().other_node(), Some("http://a:1"));
    let draining: Vec<_> =
        b.nodes().await.unwrap().into_iter().map(|node| (node.name, node.is_draining)).collect();
    assert_eq!(draining, [("a".to_owned(), true), ("b".to_owned(), false)]);
    // A draining node gives up a requested thread, even if no node takes it.
    assert_eq!(take(&a, &busy).await.unwrap_err().other_node(), Some("http://b:1"));
    take(&b, &busy).await.unwrap();
    a.set_draining(false).await.unwrap();
    let again = world.thread("again").await;
    take(&a, &again).await.unwrap();
}
