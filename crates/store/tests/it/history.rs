//! Checkpoints and the path to the head, messages, bindings.

use trilogue_domain::{CheckpointKey, ClientHistory, Reference, Scope};
use trilogue_store::rows::{BindingRow, MessageRow};
use trilogue_store::{Change, PathReader};

use crate::harness::{World, agent, alice, contract, json, own_scope, tenant_scope, thread_id};
use crate::rows;

contract!(
    the_path_leads_from_the_head_to_the_beginning,
    a_long_path_is_read_whole_and_as_far_as_it_is_asked,
    a_removed_run_stays_on_the_path_without_value,
    a_path_stays_within_its_thread,
    a_message_that_another_run_holds_stays_there,
    two_threads_may_hold_a_message_of_the_same_id,
    a_message_is_found_by_another_id_in_its_thread_alone,
    a_message_is_written_over_by_its_own_run,
    a_binding_is_one_for_each_thread_and_agent,
    a_brought_history_stays_as_it_was_brought,
);

async fn the_path_leads_from_the_head_to_the_beginning(world: World) {
    let mut log = world.thread("t").await;
    let path = async |from, limit| {
        let rows = world.store.path(&alice(), &thread_id("t"), from, limit).await.unwrap();
        rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    let nothing: [&str; 0] = [];
    assert_eq!(path(None, 10).await, nothing, "a thread without head has no path");
    let a = log.checkpoint("a", None);
    let b = log.checkpoint("b", Some(a.key));
    let aside = log.checkpoint("aside", Some(a.key));
    let mut c = log.checkpoint("c", Some(b.key));
    c.value = Some(json(&serde_json::json!({"x": 1})));
    log.row.head = Some(c.key);
    let mut step = log.step();
    let row = step.batch.thread;
    for checkpoint in [&a, &b, &aside, &c] {
        assert_eq!(checkpoint.thread, row);
        step = step.change(Change::Checkpoint(checkpoint.clone()));
    }
    step.commit().await.unwrap();
    let row = log.row.clone();
    log.write([Change::Thread(row)]).await;
    assert_eq!(path(None, 10).await, ["c", "b", "a"]);
    assert_eq!(path(None, 2).await, ["c", "b"]);
    assert_eq!(path(None, 0).await, nothing);
    assert_eq!(path(Some(aside.key), 10).await, ["aside", "a"]);
    assert_eq!(path(Some(CheckpointKey(i64::MAX)), 10).await, nothing);
    let found = world.store.checkpoint(&alice(), &thread_id("t"), &c.id).await.unwrap();
    assert_eq!(found, Some(c.clone()));
    assert_eq!(world.store.checkpoint_by_key(c.key).await.unwrap(), Some(c));
}

async fn a_long_path_is_read_whole_and_as_far_as_it_is_asked(world: World) {
    const COUNT: usize = 10_050;
    let mut log = world.thread("t").await;
    let (scope, id) = (alice(), thread_id("t"));
    let mut parent = None;
    for part in (0..COUNT).collect::<Vec<_>>().chunks(1_005) {
        let rows: Vec<_> = part
            .iter()
            .map(|number| {
                let row = log.checkpoint(&format!("c{number}"), parent);
                parent = Some(row.key);
                row
            })
            .collect();
        log.write(rows.into_iter().map(Change::Checkpoint)).await;
    }
    log.row.head = parent;
    let row = log.row.clone();
    log.write([Change::Thread(row)]).await;
    let mut path = PathReader::new(&*world.store, &scope, &id, None);
    let mut count = 0;
    while let Some(row) = path.next().await.unwrap() {
        count += 1;
        assert_eq!(row.id.as_str(), format!("c{}", COUNT - count));
    }
    assert_eq!(count, COUNT, "to its beginning");
    assert_eq!(path.next().await.unwrap(), None);
    let mut stranger = PathReader::new(&*world.store, &scope, &id, Some(CheckpointKey(i64::MAX)));
    assert_eq!(stranger.next().await.unwrap(), None);
}

async fn a_removed_run_stays_on_the_path_without_value(world: World) {
    let (mut log, run) = world.thread_with_ended_run("t", "r").await;
    let mut a = log.checkpoint("a", None);
    (a.run, a.value) = (Some(run.key), Some(json(&serde_json::json!("secret"))));
    let mut b = log.checkpoint("b", Some(a.key));
    b.value = Some(json(&serde_json::json!("kept")));
    log.row.head = Some(b.key);
    let row = log.row.clone();
    log.write([Change::Checkpoint(a.clone()), Change::Checkpoint(b.clone()), Change::Thread(row)])
        .await;
    log.write([Change::RemoveRun(run.key)]).await;
    let path = world.store.path(&alice(), &thread_id("t"), None, 10).await.unwrap();
    a.value = None;
    assert_eq!(path, [b, a]);
}

async fn a_path_stays_within_its_thread(world: World) {
    let mut other = world.thread("u").await;
    let foreign = other.checkpoint("f", None);
    other.write([Change::Checkpoint(foreign.clone())]).await;
    let mut log = world.thread("t").await;
    let a = log.checkpoint("a", Some(foreign.key));
    log.write([Change::Checkpoint(a.clone())]).await;
    let path =
        async |from| world.store.path(&alice(), &thread_id("t"), Some(from), 10).await.unwrap();
    assert_eq!(path(foreign.key).await, []);
    assert_eq!(path(a.key).await, std::slice::from_ref(&a));
    let found = world.store.checkpoint(&alice(), &thread_id("t"), &foreign.id).await.unwrap();
    assert_eq!(found, None);
}

async fn a_message_that_another_run_holds_stays_there(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await, log.start("two").await);
    let first = log.message("m", one.key);
    log.write([Change::Message(first.clone())]).await;
    let second = log.message("m", two.key);
    let beside = log.message("n", two.key);
    log.write([Change::Message(second), Change::Message(beside.clone())]).await;
    assert_eq!(
        world.store.message(&alice(), &log.row.id, &first.id).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(world.store.message(&alice(), &log.row.id, &beside.id).await.unwrap(), Some(beside));
    log.write([Change::RemoveRun(one.key)]).await;
    assert_eq!(world.store.message(&alice(), &log.row.id, &first.id).await.unwrap(), None);
    let again = log.message("m", two.key);
    log.write([Change::Message(again.clone())]).await;
    assert_eq!(world.store.message(&alice(), &log.row.id, &again.id).await.unwrap(), Some(again));
}

async fn two_threads_may_hold_a_message_of_the_same_id(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    let bob = own_scope("default", "bob");
    let mut three = world.thread_of(&bob, "three").await;
    let mut rows = Vec::new();
    for log in [&mut two, &mut one, &mut three] {
        let run = log.start(&format!("r{}", log.row.key)).await;
        let row = log.message("m", run.key);
        log.write([Change::Message(row.clone())]).await;
        rows.push(row);
    }
    let store = &world.store;
    let id = &rows[0].id;
    for (log, row) in [(&two, &rows[0]), (&one, &rows[1]), (&three, &rows[2])] {
        assert_eq!(store.message_in(log.row.key, id).await.unwrap().as_ref(), Some(row));
    }
    let found = async |scope: &Scope, thread: &str| {
        let found = store.message(scope, &thread_id(thread), id).await.unwrap();
        found.map(|row| row.run)
    };
    for (scope, expected) in [
        (own_scope("default", "alice"), [Some(rows[1].run), Some(rows[0].run), None]),
        (bob.clone(), [None, None, Some(rows[2].run)]),
        (tenant_scope("default"), [Some(rows[1].run), Some(rows[0].run), Some(rows[2].run)]),
        (tenant_scope("other"), [None, None, None]),
    ] {
        for (thread, run) in ["one", "two", "three"].into_iter().zip(expected) {
            assert_eq!(found(&scope, thread).await, run, "{scope:?} {thread}");
        }
    }
    two.write([Change::RemoveRun(rows[0].run)]).await;
    assert_eq!(store.message_in(two.row.key, id).await.unwrap(), None);
    assert_eq!(found(&alice(), "two").await, None);
    assert_eq!(found(&alice(), "one").await, Some(rows[1].run));
    one.write([Change::RemoveThread]).await;
    assert_eq!(store.message_in(one.row.key, id).await.unwrap(), None);
    assert_eq!(found(&alice(), "one").await, None);
    assert_eq!(found(&bob, "three").await, Some(rows[2].run));
}

async fn a_message_is_found_by_another_id_in_its_thread_alone(world: World) {
    let (mut log, other) = (world.thread("t").await, world.thread("other").await);
    let (one, two) = (log.start("one").await, log.start("two").await);
    let id = |text| rows::message_id(text);
    let known = |row: &MessageRow, alias| MessageRow { alias: Some(id(alias)), ..row.clone() };
    let (first, second) = (log.message("m", one.key), log.message("n", two.key));
    log.write([
        Change::Message(first.clone()),
        Change::Message(known(&second, "theirs")),
        Change::Alias(first.id.clone(), id("theirs")),
        Change::Alias(id("nobody"), id("x")),
    ])
    .await;
    let found = async |text| world.store.message_in(log.row.key, &id(text)).await.unwrap();
    assert_eq!(found("theirs").await, Some(known(&first, "theirs")), "the oldest");
    assert_eq!(found("n").await, Some(known(&second, "theirs")));
    assert_eq!(found("x").await, None);
    assert_eq!(world.store.message(&alice(), &log.row.id, &id("theirs")).await.unwrap(), None);
    assert_eq!(world.store.message_in(other.row.key, &id("theirs")).await.unwrap(), None);
    // A message's own id takes precedence over another message's alias.
    let third = log.message("theirs", two.key);
    log.write([Change::Message(third.clone()), Change::Alias(first.id.clone(), id("newer"))]).await;
    let found = async |text| world.store.message_in(log.row.key, &id(text)).await.unwrap();
    assert_eq!(found("theirs").await, Some(third));
    assert_eq!(found("newer").await, Some(known(&first, "newer")));
    log.write([Change::RemoveRun(two.key)]).await;
    let found = async |text| world.store.message_in(log.row.key, &id(text)).await.unwrap();
    assert_eq!(found("theirs").await, None, "the first is known by a newer id");
    log.write([Change::RemoveRun(one.key)]).await;
    let found = async |text| world.store.message_in(log.row.key, &id(text)).await.unwrap();
    assert_eq!(found("newer").await, None);
}

async fn a_message_is_written_over_by_its_own_run(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let mut row = log.message("m", run.key);
    log.write([Change::Message(row.clone())]).await;
    row.position = 99;
    log.write([Change::Message(row.clone())]).await;
    assert_eq!(world.store.message(&alice(), &log.row.id, &row.id).await.unwrap(), Some(row));
}

async fn a_binding_is_one_for_each_thread_and_agent(world: World) {
    let mut log = world.thread("t").await;
    let mut row = BindingRow {
        agent: agent("mail"),
        capabilities: json(&serde_json::json!({"fork": true})),
        ..rows::binding_row(log.row.key, "s-1")
    };
    log.write([Change::Binding(row.clone())]).await;
    let other = BindingRow { agent: agent("echo"), ..row.clone() };
    (row.remote, row.last_seen) = ("s-2".to_owned(), Some(CheckpointKey(4)));
    log.write([Change::Binding(row.clone()), Change::Binding(other.clone())]).await;
    let binding =
        async |name| world.store.binding(&alice(), &thread_id("t"), &agent(name)).await.unwrap();
    assert_eq!(binding("mail").await, Some(row));
    assert_eq!(binding("echo").await, Some(other));
    assert_eq!(binding("none").await, None);
}

async fn a_brought_history_stays_as_it_was_brought(world: World) {
    let (mut log, run) = world.thread_with_ended_run("t", "r").await;
    let mut a = log.checkpoint("a", None);
    a.client_history = Some(ClientHistory {
        entries: vec![
            Reference::Message { thread: None, id: rows::message_id("m") },
            Reference::Message { thread: Some(log.row.id.clone()), id: rows::message_id("m") },
            Reference::Result(run.id.clone()),
            Reference::Address("http://example.com/1".into()),
            Reference::Address("http://example.com/1".into()),
        ],
        state: Some("http://example.com/state".into()),
    });
    let mut b = log.checkpoint("b", Some(a.key));
    (b.run, b.client_history) = (Some(run.key), Some(ClientHistory::default()));
    log.row.head = Some(b.key);
    let row = log.row.clone();
    log.write([Change::Checkpoint(a.clone()), Change::Checkpoint(b.clone()), Change::Thread(row)])
        .await;
    let path = world.store.path(&alice(), &thread_id("t"), None, 10).await.unwrap();
    assert_eq!(path, [b, a.clone()]);
    assert_eq!(world.store.checkpoint_by_key(a.key).await.unwrap(), Some(a.clone()));
    // The referenced run disappears; the reference stays.
    log.write([Change::RemoveRun(run.key)]).await;
    let found = world.store.checkpoint(&alice(), &thread_id("t"), &a.id).await.unwrap();
    assert_eq!(found, Some(a));
}
