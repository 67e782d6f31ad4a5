//! Which runs a policy removes.

use std::time::Duration;

use trilogue_domain::{RunStatus, Timestamp};
use trilogue_store::rows::RetentionPolicy;
use trilogue_store::{Change, Housekeeping};

use crate::harness::{Log, World, at, contract, now, tenant_scope};

contract!(
    runs_expire_by_age,
    runs_expire_by_count_of_their_thread,
    runs_expire_by_count_of_their_tenant,
    conditions_add_up_oldest_first,
    old_idempotency_keys_are_forgotten,
);

const NOTHING: RetentionPolicy =
    RetentionPolicy { max_age: None, max_runs_per_thread: None, max_runs_per_tenant: None };
const SECOND: i64 = 1_000_000;

/// A run that ended this many seconds after the epoch.
async fn ended(log: &mut Log, id: &str, second: i64) {
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
        ended(&mut log, id, second).await;
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

async fn runs_expire_by_count_of_their_thread(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    for (id, second) in [("a", 1), ("c", 3), ("e", 5)] {
        ended(&mut one, id, second).await;
        one.start(&format!("open-{id}")).await;
    }
    for (id, second) in [("b", 2), ("d", 4)] {
        ended(&mut two, id, second).await;
    }
    let policy = |most| RetentionPolicy { max_runs_per_thread: Some(most), ..NOTHING };
    assert_eq!(expired(&world, policy(1), 9, 9).await, ["a", "b", "c"]);
    assert_eq!(expired(&world, policy(2), 9, 9).await, ["a"]);
    assert_eq!(expired(&world, policy(0), 9, 9).await, ["a", "b", "c", "d", "e"]);
}

async fn runs_expire_by_count_of_their_tenant(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    let mut foreign = world.thread_of(&tenant_scope("other"), "t").await;
    ended(&mut one, "a", 1).await;
    ended(&mut two, "b", 2).await;
    ended(&mut one, "c", 3).await;
    ended(&mut foreign, "x", 1).await;
    let policy = |most| RetentionPolicy { max_runs_per_tenant: Some(most), ..NOTHING };
    assert_eq!(expired(&world, policy(2), 9, 9).await, ["a"]);
    assert_eq!(expired(&world, policy(1), 9, 9).await, ["a", "b"]);
}

async fn conditions_add_up_oldest_first(world: World) {
    let (mut one, mut two) = (world.thread("one").await, world.thread("two").await);
    ended(&mut one, "a", 10).await;
    ended(&mut two, "b", 20).await;
    ended(&mut two, "c", 30).await;
    ended(&mut one, "d", 40).await;
    let policy = RetentionPolicy {
        max_age: Some(Duration::from_secs(35)),
        max_runs_per_thread: Some(1),
        max_runs_per_tenant: Some(3),
    };
    assert_eq!(expired(&world, policy, 50, 9).await, ["a", "b"]);
    assert_eq!(expired(&world, policy, 50, 1).await, ["a"]);
    let rows = world.store.expired_runs(&policy, at(50 * SECOND), 9).await.unwrap();
    two.step().change(Change::RemoveRun(rows[1].key)).commit().await.unwrap();
    assert_eq!(expired(&world, policy, 50, 9).await, ["a"]);
}

async fn old_idempotency_keys_are_forgotten(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let used = log.idempotency("k", &run);
    log.step().change(Change::Idempotency(used.clone())).commit().await.unwrap();
    world.store.expired_runs(&NOTHING, now(), 9).await.unwrap();
    assert!(world.store.idempotency(&used.key, used.created_at).await.unwrap().is_some());
    let late = used.created_at.after(Duration::from_secs(48 * 3600));
    world.store.expired_runs(&NOTHING, late, 9).await.unwrap();
    let found = Housekeeping::idempotency(&*world.store, &used.key, used.created_at).await;
    assert_eq!(found.unwrap(), None, "it is gone, whatever the clock says");
}
