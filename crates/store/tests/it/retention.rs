//! The runs that a policy removes.

use std::time::Duration;

use trilogue_domain::{Code, RunStatus, Timestamp};
use trilogue_store::rows::{QueueItem, QueueKind, RetentionPolicy, RetryDecision, ThreadRow};
use trilogue_store::{Change, Housekeeping};

use crate::harness::{Log, World, at, contract, json, now, tenant_scope, thread_row};

contract!(
    runs_expire_by_age,
    stateless_runs_have_an_age_of_their_own,
    a_run_stays_until_its_client_was_called_back,
    runs_expire_by_count_of_their_thread,
    runs_expire_by_count_of_their_tenant,
    a_count_keeps_the_newest_by_place_and_by_end_whatever_the_clock_was,
    runs_that_end_at_one_moment_expire_in_the_order_of_lists,
    runs_that_have_not_ended_neither_count_nor_expire,
    conditions_add_up_oldest_first,
    a_removal_in_parts_reaches_all_and_sees_what_ends_meanwhile,
    old_idempotency_keys_are_forgotten,
    ephemeral_threads_go_as_wholes_when_their_runs_have_ended,
);

const NOTHING: RetentionPolicy = RetentionPolicy {
    max_age: None,
    max_stateless_age: None,
    max_runs_per_thread: None,
    max_runs_per_tenant: None,
};
const SECOND: i64 = 1_000_000;

async fn add_ended_run(log: &mut Log, id: &str, second: i64) {
    let mut row = log.run_row(id);
    row.status = RunStatus::Completed;
    row.outcome = Some(trilogue_domain::Outcome::Completed);
    row.ended_at = Some(at(second * SECOND));
    log.step().run(&row).commit().await.unwrap();
}

async fn expired(world: &World, policy: RetentionPolicy, second: i64, limit: usize) -> Vec<String> {
    let now = Timestamp::from_micros(second * SECOND);
    let rows = world.store.expired_runs(&policy, now, limit).await.unwrap();
    rows.into_iter().map(|row| row.id.to_string()).collect()
}

async fn runs_expire_by_age(world: World) {
    let mut log = world.thread("t").await;
    log.start("open").await;
    for (id, second) in [("a", 100), ("b", 200), ("c", 300)] {
        add_ended_run(&mut log, id, second).await;
    }
    let policy = RetentionPolicy { max_age: Some(Duration::from_secs(100)), ..NOTHING };
    let nothing: [&str; 0] = [];
    assert_eq!(expired(&world, policy, 200, 9).await, nothing, "not longer ago than that");
    assert_eq!(expired(&world, policy, 201, 9).await, ["a"]);
    assert_eq!(expired(&world, policy, 301, 9).await, ["a", "b"]);
    assert_eq!(expired(&world, policy, 999, 9).await, ["a", "b", "c"]);
    assert_eq!(expired(&world, policy, 999, 2).await, ["a", "b"]);
    assert_eq!(expired(&world, NOTHING, 999, 9).await, nothing);
}

async fn stateless_runs_have_an_age_of_their_own(world: World) {
    let mut log = world.thread("t").await;
    add_ended_run(&mut log, "usual", 100).await;
    for (id, second, status) in [
        ("first", 100, RunStatus::Completed),
        ("waits", 100, RunStatus::Interrupted),
        ("second", 200, RunStatus::Failed),
    ] {
        let mut row = log.run_row(id);
        row.stateless = true;
        row.status = status;
        row.ended_at = status.is_terminal().then(|| at(second * SECOND));
        log.step().run(&row).commit().await.unwrap();
    }
    let age = Some(Duration::from_secs(100));
    let policy = RetentionPolicy { max_stateless_age: age, ..NOTHING };
    assert_eq!(expired(&world, policy, 200, 9).await, [""; 0]);
    assert_eq!(expired(&world, policy, 201, 9).await, ["first"]);
    assert_eq!(expired(&world, policy, 999, 9).await, ["first", "second"]);
    assert_eq!(expired(&world, policy, 999, 1).await, ["first"]);
    let both = RetentionPolicy { max_age: Some(Duration::from_secs(500)), ..policy };
    assert_eq!(expired(&world, both, 601, 9).await, ["usual", "first", "second"]);
}

async fn a_run_stays_until_its_client_was_called_back(world: World) {
    let mut log = world.thread("t").await;
    add_ended_run(&mut log, "a", 100).await;
    add_ended_run(&mut log, "b", 101).await;
    let policies = [
        RetentionPolicy { max_age: Some(Duration::from_secs(1)), ..NOTHING },
        RetentionPolicy { max_runs_per_thread: Some(0), ..NOTHING },
        RetentionPolicy { max_runs_per_tenant: Some(0), ..NOTHING },
    ];
    let rows = world.store.expired_runs(&policies[0], at(999 * SECOND), 9).await.unwrap();
    let kind = QueueKind::Callback;
    let reference = serde_json::json!({"run": rows[0].key.0, "number": 7});
    let item = QueueItem { reference: json(&reference), ..log.item(kind, "a.7", 1) };
    log.write([Change::Offer(item)]).await;
    for policy in policies {
        assert_eq!(expired(&world, policy, 999, 9).await, ["b"]);
    }
    // A dead item waits for a person and does not keep the run.
    let claim = world.store.claim(kind, at(1), at(2), 1).await.unwrap().remove(0);
    assert!(world.store.abandon(&claim, RetryDecision::Dead, "410").await.unwrap());
    for policy in policies {
        assert_eq!(expired(&world, policy, 999, 9).await, ["a", "b"]);
    }
}

async fn runs_expire_by_count_of_their_thread(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    for (id, second) in [("a", 1), ("c", 3), ("e", 5)] {
        add_ended_run(&mut one, id, second).await;
        one.start(&format!("open-{id}")).await;
    }
    for (id, second) in [("b", 2), ("d", 4)] {
        add_ended_run(&mut two, id, second).await;
    }
    let policy = |most| RetentionPolicy { max_runs_per_thread: Some(most), ..NOTHING };
    assert_eq!(expired(&world, policy(1), 9, 9).await, ["a", "b", "c"]);
    assert_eq!(expired(&world, policy(2), 9, 9).await, ["a"]);
    assert_eq!(expired(&world, policy(0), 9, 9).await, ["a", "b", "c", "d", "e"]);
}

async fn runs_expire_by_count_of_their_tenant(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    let mut foreign = world.thread_of(&tenant_scope("other"), "t").await;
    add_ended_run(&mut one, "a", 1).await;
    add_ended_run(&mut two, "b", 2).await;
    add_ended_run(&mut one, "c", 3).await;
    add_ended_run(&mut foreign, "x", 1).await;
    let policy = |most| RetentionPolicy { max_runs_per_tenant: Some(most), ..NOTHING };
    assert_eq!(expired(&world, policy(2), 9, 9).await, ["a"]);
    assert_eq!(expired(&world, policy(1), 9, 9).await, ["a", "b"]);
}

async fn a_count_keeps_the_newest_by_place_and_by_end_whatever_the_clock_was(world: World) {
    let mut log = world.thread("t").await;
    // An old run that was answered late, two that ended while the clock was ahead, and five later ones.
    let ends = [("waited", 1_000), ("ahead-1", 9_001), ("ahead-2", 9_002)];
    let since = [("a", 101), ("b", 102), ("c", 103), ("d", 104), ("e", 105)];
    for (id, second) in [("first", 1), ("second", 2)].into_iter().chain(ends).chain(since) {
        add_ended_run(&mut log, id, second).await;
    }
    let by_thread = RetentionPolicy { max_runs_per_thread: Some(5), ..NOTHING };
    let by_tenant = RetentionPolicy { max_runs_per_tenant: Some(5), ..NOTHING };
    for policy in [by_thread, by_tenant] {
        assert_eq!(expired(&world, policy, 200, 99).await, ["first", "second"]);
    }
    let policy = RetentionPolicy { max_runs_per_thread: Some(2), ..NOTHING };
    assert_eq!(
        expired(&world, policy, 200, 99).await,
        ["first", "second", "a", "b", "c", "waited"],
        "oldest end first"
    );
}

async fn runs_that_end_at_one_moment_expire_in_the_order_of_lists(world: World) {
    let mut log = world.thread("t").await;
    for number in 0..7 {
        add_ended_run(&mut log, &format!("r{number}"), 5).await;
    }
    let policy = RetentionPolicy { max_runs_per_thread: Some(5), ..NOTHING };
    assert_eq!(expired(&world, policy, 9, 99).await, ["r0", "r1"]);
}

async fn runs_that_have_not_ended_neither_count_nor_expire(world: World) {
    let mut log = world.thread("t").await;
    for number in 0..3 {
        add_ended_run(&mut log, &format!("r{number}"), number).await;
        log.start(&format!("at-work-{number}")).await;
        let mut waiting = log.run_row(&format!("waiting-{number}"));
        waiting.status = RunStatus::Interrupted;
        log.step().run(&waiting).commit().await.unwrap();
    }
    for policy in [
        RetentionPolicy { max_runs_per_thread: Some(2), ..NOTHING },
        RetentionPolicy { max_runs_per_tenant: Some(2), ..NOTHING },
    ] {
        assert_eq!(expired(&world, policy, 9, 99).await, ["r0"]);
    }
}

async fn conditions_add_up_oldest_first(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    add_ended_run(&mut one, "a", 10).await;
    add_ended_run(&mut two, "b", 20).await;
    add_ended_run(&mut two, "c", 30).await;
    add_ended_run(&mut one, "d", 40).await;
    let policy = RetentionPolicy {
        max_stateless_age: None,
        max_age: Some(Duration::from_secs(35)),
        max_runs_per_thread: Some(1),
        max_runs_per_tenant: Some(3),
    };
    assert_eq!(expired(&world, policy, 50, 9).await, ["a", "b"]);
    assert_eq!(expired(&world, policy, 50, 1).await, ["a"]);
    let rows = world.store.expired_runs(&policy, at(50 * SECOND), 9).await.unwrap();
    two.write([Change::RemoveRun(rows[1].key)]).await;
    assert_eq!(expired(&world, policy, 50, 9).await, ["a"]);
}

async fn a_removal_in_parts_reaches_all_and_sees_what_ends_meanwhile(world: World) {
    let mut log = world.thread("t").await;
    for number in 0..20 {
        add_ended_run(&mut log, &format!("r{number}"), number).await;
    }
    let policy = RetentionPolicy { max_runs_per_thread: Some(5), ..NOTHING };
    let mut removed = Vec::new();
    loop {
        let rows = world.store.expired_runs(&policy, at(99 * SECOND), 4).await.unwrap();
        if rows.is_empty() {
            break;
        }
        // Runs that are not removed are returned again, first.
        assert_eq!(expired(&world, policy, 99, 1).await, [rows[0].id.as_str()]);
        for row in rows {
            log.write([Change::RemoveRun(row.key)]).await;
            removed.push(row.id.to_string());
        }
        if removed.len() == 8 {
            add_ended_run(&mut log, "late", 50).await;
        }
    }
    let expected: Vec<_> = (0..16).map(|number| format!("r{number}")).collect();
    assert_eq!(removed, expected);
}

async fn old_idempotency_keys_are_forgotten(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let used = log.idempotency("k", &run);
    log.write([Change::Idempotency(used.clone())]).await;
    world.store.expired_runs(&NOTHING, now(), 9).await.unwrap();
    assert!(world.store.idempotency(&used.key, used.created_at).await.unwrap().is_some());
    let late = used.created_at.after(Duration::from_secs(48 * 3600));
    world.store.expired_runs(&NOTHING, late, 9).await.unwrap();
    let found = Housekeeping::idempotency(&*world.store, &used.key, used.created_at).await;
    assert_eq!(found.unwrap(), None, "it is gone, whatever the clock says");
}

async fn ephemeral_threads_go_as_wholes_when_their_runs_have_ended(world: World) {
    let mut logs = Vec::new();
    for (id, ephemeral, ends) in
        [("kept", false, true), ("open", true, false), ("one", true, true), ("two", true, true)]
    {
        let key = world.store.next_thread_key();
        let row = ThreadRow { ephemeral, ..thread_row(key, &crate::harness::alice(), id) };
        let mut log = world.create(row).await.unwrap();
        let mut run = log.start(&format!("{id}-run")).await;
        if ends {
            (run.status, run.ended_at) = (RunStatus::Completed, Some(at(SECOND)));
        }
        log.step().say(Some(run.key), &["said"]).run(&run).commit().await.unwrap();
        logs.push(log);
    }
    let mut tail = world.store.tail(logs[2].row.key);
    let unknown = trilogue_domain::ThreadKey(7_777);
    let asked: Vec<_> = logs.iter().map(|log| log.row.key).chain([unknown]).collect();
    let removed = world.store.remove_ephemeral(&asked).await.unwrap();
    assert_eq!(removed, [logs[2].row.key, logs[3].row.key]);
    while tail.committed.changed().await.is_ok() {}
    for log in &mut logs {
        let is_left = !removed.contains(&log.row.key);
        let scope = crate::harness::alice();
        let found = world.store.thread(&scope, &log.row.id).await.unwrap();
        assert_eq!(found.is_some(), is_left, "{}", log.row.id);
        let run = trilogue_domain::RunId::parse(&format!("{}-run", log.row.id)).unwrap();
        assert_eq!(world.store.run(&scope, &run).await.unwrap().is_some(), is_left);
        assert_eq!(log.read().await.is_empty(), !is_left);
        // An owner that still has the thread in memory gets an error.
        let late = log.step().say(None, &["late"]).commit().await;
        let refused = late.map_err(|error| error.code());
        assert_eq!(refused, if is_left { Ok(()) } else { Err(Code::OwnershipLost) });
    }
    assert_eq!(world.store.remove_ephemeral(&removed).await.unwrap(), [], "they are gone");
    assert_eq!(world.store.remove_ephemeral(&[]).await.unwrap(), []);
}
