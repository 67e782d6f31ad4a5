//! The activity and the state of threads, and searches by both.

use serde_json::json;
use trilogue_domain::{ClientHistory, Code, Outcome, RunStatus, ThreadActivity, ThreadKey, limits};
use trilogue_store::Change;
use trilogue_store::rows::{Page, RunFilter, RunRow, ThreadFilter};

use crate::harness::{
    Log, World, agent, alice, code, contract, json, now, own_scope, page, tenant_scope, thread_row,
};
use crate::rows;

contract!(
    a_thread_stands_as_its_runs_do,
    threads_are_found_by_how_they_stand,
    threads_are_found_by_the_state_at_their_head,
    a_page_leaves_out_as_many_matches_as_are_asked_for,
    runs_are_found_in_any_of_several_statuses,
    conditions_are_all_fulfilled,
);

async fn run(log: &mut Log, id: &str, status: RunStatus) -> RunRow {
    let mut row = log.run_row(id);
    row.status = status;
    if status.is_terminal() {
        row.ended_at = Some(now());
        row.outcome = Some(Outcome::Completed);
    }
    log.step().run(&row).commit().await.unwrap();
    row
}

/// Makes a checkpoint with this value the head.
async fn set(
    log: &mut Log,
    id: &str,
    value: Option<serde_json::Value>,
    client_history: Option<ClientHistory>,
) {
    let mut row = log.checkpoint(id, log.row.head);
    row.value = value.as_ref().map(json);
    row.client_history = client_history;
    log.row.head = Some(row.key);
    let thread = Change::Thread(log.row.clone());
    log.write([Change::Checkpoint(row), thread]).await;
}

fn wanted(members: &[(&str, &str)]) -> Vec<(String, String)> {
    members.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn threads(world: &World, filter: &ThreadFilter, page: &Page) -> Vec<String> {
    let listing = world.store.threads(&alice(), filter, page).await.unwrap();
    listing.rows.into_iter().map(|row| row.id.to_string()).collect()
}

async fn a_thread_stands_as_its_runs_do(world: World) {
    use RunStatus::{
        Cancelled, Cancelling, Completed, Failed, Interrupted, Queued, Running, TimedOut,
    };
    let cases: [(&[RunStatus], ThreadActivity); 13] = [
        (&[], ThreadActivity::Idle),
        (&[Queued], ThreadActivity::Busy),
        (&[Running], ThreadActivity::Busy),
        (&[Cancelling], ThreadActivity::Busy),
        (&[Interrupted], ThreadActivity::Interrupted),
        (&[Completed], ThreadActivity::Idle),
        (&[Cancelled], ThreadActivity::Idle),
        (&[Failed], ThreadActivity::Failed),
        (&[TimedOut], ThreadActivity::Failed),
        (&[Failed, Completed], ThreadActivity::Idle),
        (&[Completed, Failed], ThreadActivity::Failed),
        (&[Queued, Failed], ThreadActivity::Busy),
        (&[Interrupted, Completed], ThreadActivity::Idle),
    ];
    let (mut keys, mut expected) = (Vec::new(), Vec::new());
    for (case, (statuses, activity)) in cases.into_iter().enumerate() {
        let mut log = world.thread(&format!("t{case}")).await;
        for (place, status) in statuses.iter().enumerate() {
            run(&mut log, &format!("r{case}-{place}"), *status).await;
        }
        keys.push(log.row.key);
        expected.push(activity);
    }
    assert_eq!(world.store.activities(&alice(), &keys).await.unwrap(), expected);
    // A scope that does not see a thread gets `Idle` for it.
    for stranger in [tenant_scope("other"), own_scope("default", "bob")] {
        let told = world.store.activities(&stranger, &keys).await.unwrap();
        assert_eq!(told, vec![ThreadActivity::Idle; keys.len()]);
    }
    let missing = [ThreadKey(i64::MAX), keys[1]];
    let told = world.store.activities(&alice(), &missing).await.unwrap();
    assert_eq!(told, [ThreadActivity::Idle, ThreadActivity::Busy]);
}

async fn threads_are_found_by_how_they_stand(world: World) {
    let statuses = [
        ("idle", RunStatus::Completed),
        ("busy", RunStatus::Running),
        ("waits", RunStatus::Interrupted),
        ("failed", RunStatus::Failed),
        ("busy too", RunStatus::Queued),
    ];
    for (id, status) in statuses {
        let mut log = world.thread(id).await;
        run(&mut log, &format!("r {id}"), status).await;
    }
    let mut foreign = world.thread_of(&tenant_scope("other"), "busy").await;
    run(&mut foreign, "x", RunStatus::Running).await;
    world.thread("new").await;
    for (activity, expected) in [
        (ThreadActivity::Busy, &["busy too", "busy"][..]),
        (ThreadActivity::Interrupted, &["waits"]),
        (ThreadActivity::Failed, &["failed"]),
        (ThreadActivity::Idle, &["new", "idle"]),
    ] {
        let filter = ThreadFilter { activity: Some(activity), ..ThreadFilter::default() };
        assert_eq!(threads(&world, &filter, &page(9, None)).await, expected);
        let second = Page { skip: 1, ..page(9, None) };
        assert_eq!(threads(&world, &filter, &second).await, expected[1..]);
    }
}

async fn threads_are_found_by_the_state_at_their_head(world: World) {
    let mut one = world.thread("one").await;
    set(&mut one, "a", Some(json!({"n": 1, "l": [1, 2]})), None).await;
    let mut two = world.thread("two").await;
    set(&mut two, "a", Some(json!({"n": 1})), None).await;
    set(&mut two, "b", Some(json!({"n": 2})), None).await;
    // A head without a value has the value of an earlier checkpoint.
    let mut three = world.thread("three").await;
    set(&mut three, "a", Some(json!({"n": 1})), None).await;
    set(&mut three, "b", None, None).await;
    // The history that a client sent is stored elsewhere.
    let mut four = world.thread("four").await;
    set(&mut four, "a", Some(json!({"n": 1})), None).await;
    let given = ClientHistory { entries: Vec::new(), state: Some("http://example.com".into()) };
    set(&mut four, "b", None, Some(given)).await;
    let mut said = world.thread("said").await;
    set(&mut said, "a", None, None).await;
    world.thread("new").await;
    let find = async |members: &[(&str, &str)]| {
        let filter = ThreadFilter { values: wanted(members), ..ThreadFilter::default() };
        threads(&world, &filter, &page(9, None)).await
    };
    assert_eq!(find(&[("n", "1")]).await, ["three", "one"]);
    assert_eq!(find(&[("n", "2")]).await, ["two"]);
    assert_eq!(find(&[("n", "1"), ("l", "[1,2]")]).await, ["one"]);
    assert_eq!(find(&[("messages", "[]")]).await, [""; 0]);
}

async fn a_page_leaves_out_as_many_matches_as_are_asked_for(world: World) {
    for number in 0..9 {
        let mut row = thread_row(world.store.next_thread_key(), &alice(), &format!("t{number}"));
        row.metadata = json(&json!({"even": number % 2 == 0}));
        row.ephemeral = number == 8;
        let mut log = world.create(row).await.unwrap();
        run(&mut log, &format!("r{number}"), RunStatus::Completed).await;
    }
    let even = ThreadFilter { metadata: wanted(&[("even", "true")]), ..ThreadFilter::default() };
    for (filter, limit, skip, expected) in [
        (&ThreadFilter::default(), 3, 2, &["t5", "t4", "t3"][..]),
        (&ThreadFilter::default(), 9, 7, &["t0"]),
        (&ThreadFilter::default(), 9, 8, &[]),
        (&ThreadFilter::default(), 9, usize::MAX, &[]),
        (&even, 2, 1, &["t4", "t2"]),
        (&even, 2, 3, &["t0"]),
    ] {
        let page = Page { skip, ..page(limit, None) };
        assert_eq!(threads(&world, filter, &page).await, expected, "{skip}");
    }
    // The next page begins after the last row of this one.
    let first = Page { skip: 2, ..page(2, None) };
    let runs = world.store.runs(&alice(), &RunFilter::default(), &first).await.unwrap();
    let second = Page { skip: 1, ..page(2, runs.next) };
    let rest = world.store.runs(&alice(), &RunFilter::default(), &second).await.unwrap();
    let ids: Vec<_> = runs.rows.iter().chain(&rest.rows).map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["r6", "r5", "r3", "r2"]);
}

async fn runs_are_found_in_any_of_several_statuses(world: World) {
    let mut log = world.thread("t").await;
    let mut other = world.thread_of(&tenant_scope("other"), "t").await;
    for (place, status) in RunStatus::ALL.into_iter().chain(RunStatus::ALL).enumerate() {
        run(&mut log, &format!("{}-{place}", status.as_str()), status).await;
        run(&mut other, &format!("x-{place}"), status).await;
    }
    let find = async |statuses: &[RunStatus], page: Page| {
        let filter = RunFilter { statuses: statuses.to_vec(), ..RunFilter::default() };
        let listing = world.store.runs(&alice(), &filter, &page).await.unwrap();
        let ids: Vec<_> = listing.rows.into_iter().map(|row| row.id.to_string()).collect();
        (ids, listing.next)
    };
    let pending = [RunStatus::Running, RunStatus::Queued, RunStatus::Cancelling, RunStatus::Queued];
    let all = ["cancelling-11", "running-9", "queued-8", "cancelling-3", "running-1", "queued-0"];
    assert_eq!(find(&pending, page(9, None)).await.0, all);
    let (first, next) = find(&pending, page(4, None)).await;
    assert_eq!(first, all[..4]);
    assert_eq!(find(&pending, page(9, next)).await.0, all[4..]);
    let skipping = Page { skip: 3, ..page(2, None) };
    assert_eq!(find(&pending, skipping).await.0, all[3..5]);
    assert_eq!(find(&[RunStatus::Failed], page(9, None)).await.0, ["failed-13", "failed-5"]);
    assert_eq!(find(&RunStatus::ALL, page(99, None)).await.0.len(), 16);
}

async fn conditions_are_all_fulfilled(world: World) {
    let mut log = world.thread("t").await;
    for number in 0..24 {
        let mut row = log.run_row(&format!("r{number}"));
        row.agent = agent(if number % 2 == 0 { "mail" } else { "echo" });
        row.status = if number % 3 == 0 { RunStatus::Queued } else { RunStatus::Running };
        row.metadata = json(&json!({"four": number % 4, "k": "v", "list": [number % 4]}));
        log.step().run(&row).commit().await.unwrap();
    }
    let find = async |filter: RunFilter, limit| {
        let listing = world.store.runs(&alice(), &filter, &page(limit, None)).await.unwrap();
        listing.rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    let filter = |metadata: &[(&str, &str)]| RunFilter {
        agent: Some(agent("mail")),
        statuses: vec![RunStatus::Queued],
        metadata: wanted(metadata),
        ..RunFilter::default()
    };
    assert_eq!(find(filter(&[]), 9).await, ["r18", "r12", "r6", "r0"]);
    for metadata in [
        &[("four", "0")][..],
        &[("k", "\"v\""), ("four", "0")],
        &[("list", "[0]")],
        &[("list", "[0]"), ("k", "\"v\"")],
    ] {
        assert_eq!(find(filter(metadata), 9).await, ["r12", "r0"], "{metadata:?}");
        assert_eq!(find(filter(metadata), 1).await, ["r12"], "{metadata:?}");
    }
    assert_eq!(find(filter(&[("four", "1")]), 9).await, [""; 0]);
}

/// More threads than a search without an index may read.
#[tokio::test]
async fn a_state_that_no_index_finds_is_looked_for_in_so_many_threads() {
    let world = World::sqlite().await;
    for number in 0..=limits::MAX_SEARCH_CANDIDATES {
        let id = rows::thread_id(&format!("t{number}"));
        let row = thread_row(world.store.next_thread_key(), &alice(), id.as_str());
        world.create(row).await.unwrap();
    }
    let filter = |values: &[(&str, &str)]| ThreadFilter {
        values: wanted(values),
        activity: values.is_empty().then_some(ThreadActivity::Failed),
        ..ThreadFilter::default()
    };
    for filter in [filter(&[("n", "1")]), filter(&[])] {
        let result = world.store.threads(&alice(), &filter, &page(1, None)).await;
        assert_eq!(code(result), Code::FilterTooBroad);
    }
    // A page that fills before the limit is returned.
    let idle = ThreadFilter { activity: Some(ThreadActivity::Idle), ..ThreadFilter::default() };
    assert_eq!(threads(&world, &idle, &page(3, None)).await.len(), 3);
}
