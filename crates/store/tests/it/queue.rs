//! The queue: claims in order, leases with fences, dead letters.

use std::time::Duration;

use tokio::time::timeout;
use trilogue_store::Change;
use trilogue_store::rows::{Claim, QueueKind, RetryDecision};

use crate::harness::{Log, World, alice, at, contract, page, tenant_scope};

contract!(
    items_are_claimed_when_due_oldest_first,
    a_claimed_item_is_free_again_when_its_lease_ends,
    a_holder_that_lost_its_item_is_told,
    a_lease_can_be_lengthened,
    an_item_comes_back_when_it_shall,
    a_dead_item_is_listed_until_it_is_revived,
    dead_items_have_pages,
    offering_a_key_again_replaces_the_item,
    tenants_do_not_share_keys,
    withdrawing_takes_an_item_from_its_holder,
    items_go_with_their_run_and_thread,
    an_offer_wakes_a_worker,
    two_workers_never_hold_one_item,
);

const KIND: QueueKind = QueueKind::ScheduledRun;

async fn offer(log: &mut Log, kind: QueueKind, key: &str, due: i64) {
    let item = log.item(kind, key, due);
    log.write([Change::Offer(item)]).await;
}

async fn claim(world: &World, now: i64, until: i64, limit: usize) -> Vec<Claim> {
    world.store.claim(KIND, at(now), at(until), limit).await.unwrap()
}

fn keys(claims: &[Claim]) -> Vec<&str> {
    claims.iter().map(|claim| claim.item.key.as_str()).collect()
}

async fn items_are_claimed_when_due_oldest_first(world: World) {
    let mut log = world.thread("t").await;
    for (key, due) in [("late", 30), ("first", 10), ("second", 20), ("far", 1_000)] {
        offer(&mut log, KIND, key, due).await;
    }
    offer(&mut log, QueueKind::Deadline, "other", 1).await;
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(10)));
    assert_eq!(world.store.next_due(QueueKind::Callback).await.unwrap(), None);
    assert_eq!(claim(&world, 9, 500, 10).await, []);
    assert_eq!(keys(&claim(&world, 10, 500, 10).await), ["first"], "due is not after now");
    assert_eq!(keys(&claim(&world, 100, 500, 1).await), ["second"]);
    let claims = claim(&world, 100, 500, 10).await;
    assert_eq!(keys(&claims), ["late"]);
    assert_eq!(claims[0].attempts, 1);
    assert_eq!(claims[0].item, log.item(KIND, "late", 30));
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(500)), "the leases end first");
}

async fn a_claimed_item_is_free_again_when_its_lease_ends(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    let first = claim(&world, 1, 10, 1).await;
    assert_eq!(claim(&world, 9, 20, 1).await, []);
    let second = claim(&world, 10, 20, 1).await;
    assert_eq!(keys(&second), ["k"]);
    assert_eq!((first[0].attempts, second[0].attempts), (1, 2));
    assert!(second[0].fence > first[0].fence);
    assert_eq!(first[0].id, second[0].id);
}

async fn a_holder_that_lost_its_item_is_told(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    let stale = claim(&world, 1, 10, 1).await.remove(0);
    let holder = claim(&world, 10, 20, 1).await.remove(0);
    let store = &world.store;
    assert!(!store.extend(&stale, at(99)).await.unwrap());
    assert!(!store.finish(&stale).await.unwrap());
    assert!(!store.abandon(&stale, RetryDecision::Dead, "x").await.unwrap());
    assert!(!store.abandon(&stale, RetryDecision::RetryAt(at(1)), "x").await.unwrap());
    assert_eq!(store.next_due(KIND).await.unwrap(), Some(at(20)), "nothing of it happened");
    assert!(store.finish(&holder).await.unwrap());
    assert!(!store.finish(&holder).await.unwrap(), "it is gone");
    assert_eq!(store.next_due(KIND).await.unwrap(), None);
}

async fn a_lease_can_be_lengthened(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    let holder = claim(&world, 1, 10, 1).await.remove(0);
    assert!(world.store.extend(&holder, at(50)).await.unwrap());
    assert_eq!(claim(&world, 49, 99, 1).await, []);
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(50)));
    assert!(world.store.finish(&holder).await.unwrap());
}

async fn an_item_comes_back_when_it_shall(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    let holder = claim(&world, 1, 10, 1).await.remove(0);
    assert!(
        world.store.abandon(&holder, RetryDecision::RetryAt(at(30)), "no route").await.unwrap()
    );
    assert!(!world.store.finish(&holder).await.unwrap(), "it was given back");
    assert_eq!(claim(&world, 29, 99, 1).await, []);
    let again = claim(&world, 30, 99, 1).await.remove(0);
    assert_eq!((again.attempts, again.item), (2, log.item(KIND, "k", 30)));
}

async fn a_dead_item_is_listed_until_it_is_revived(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, QueueKind::Callback, "k", 1).await;
    offer(&mut log, KIND, "other", 1).await;
    let store = &world.store;
    let holder = store.claim(QueueKind::Callback, at(1), at(10), 1).await.unwrap().remove(0);
    assert!(store.abandon(&holder, RetryDecision::Dead, "refused with 500").await.unwrap());
    let other = claim(&world, 1, 10, 1).await.remove(0);
    assert!(store.abandon(&other, RetryDecision::Dead, "no callback").await.unwrap());
    assert_eq!(store.claim(QueueKind::Callback, at(999), at(1_000), 9).await.unwrap(), []);
    assert_eq!(store.next_due(QueueKind::Callback).await.unwrap(), None);
    let dead = store.dead_deliveries(&alice(), &page(10, None)).await.unwrap();
    assert_eq!(dead.rows.len(), 1, "only callbacks are deliveries");
    assert_eq!(dead.rows[0].error, "refused with 500");
    assert_eq!((dead.rows[0].attempts, dead.rows[0].item.key.as_str()), (1, "k"));
    let id = dead.rows[0].id;
    assert!(!store.revive(&tenant_scope("other"), id, at(50)).await.unwrap());
    assert!(store.revive(&alice(), id, at(50)).await.unwrap());
    assert!(!store.revive(&alice(), id, at(50)).await.unwrap(), "it is not dead any more");
    assert!(!store.revive(&alice(), i64::MAX, at(50)).await.unwrap());
    assert_eq!(store.dead_deliveries(&alice(), &page(10, None)).await.unwrap().rows, []);
    assert_eq!(store.next_due(QueueKind::Callback).await.unwrap(), Some(at(50)));
    let again = store.claim(QueueKind::Callback, at(50), at(60), 1).await.unwrap().remove(0);
    assert_eq!(again.item.due, at(50));
    assert!(again.fence > holder.fence);
}

async fn dead_items_have_pages(world: World) {
    let mut log = world.thread("t").await;
    for key in ["a", "b", "c"] {
        offer(&mut log, QueueKind::Callback, key, 1).await;
    }
    for claim in world.store.claim(QueueKind::Callback, at(1), at(2), 9).await.unwrap() {
        assert!(world.store.abandon(&claim, RetryDecision::Dead, "x").await.unwrap());
    }
    let first = world.store.dead_deliveries(&alice(), &page(2, None)).await.unwrap();
    let rest = world.store.dead_deliveries(&alice(), &page(2, first.next)).await.unwrap();
    let keys: Vec<_> =
        first.rows.iter().chain(&rest.rows).map(|dead| dead.item.key.as_str()).collect();
    assert_eq!(keys, ["c", "b", "a"]);
    assert_eq!(rest.next, None);
}

async fn offering_a_key_again_replaces_the_item(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    let holder = claim(&world, 1, 10, 1).await.remove(0);
    offer(&mut log, KIND, "k", 40).await;
    assert!(!world.store.finish(&holder).await.unwrap(), "the new item is not the holder's");
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(40)));
    let claims = claim(&world, 40, 50, 9).await;
    assert_eq!(claims.len(), 1);
    assert_eq!((claims[0].attempts, claims[0].item.due), (1, at(40)));
}

async fn tenants_do_not_share_keys(world: World) {
    let mut log = world.thread("t").await;
    let mut foreign = world.thread_of(&tenant_scope("other"), "t").await;
    offer(&mut log, KIND, "k", 1).await;
    offer(&mut foreign, KIND, "k", 2).await;
    foreign.write([Change::Withdraw(KIND, "k".to_owned())]).await;
    let claims = claim(&world, 9, 10, 9).await;
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].item.tenant, log.row.tenant);
}

async fn withdrawing_takes_an_item_from_its_holder(world: World) {
    let mut log = world.thread("t").await;
    offer(&mut log, KIND, "k", 1).await;
    offer(&mut log, QueueKind::Deadline, "k", 1).await;
    let holder = claim(&world, 1, 10, 1).await.remove(0);
    log.write([Change::Withdraw(KIND, "k".to_owned())]).await;
    assert!(!world.store.extend(&holder, at(99)).await.unwrap());
    assert_eq!(world.store.next_due(KIND).await.unwrap(), None);
    assert_eq!(world.store.next_due(QueueKind::Deadline).await.unwrap(), Some(at(1)));
    log.write([Change::Withdraw(KIND, "k".to_owned())]).await;
}

async fn items_go_with_their_run_and_thread(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let interrupt = log.interrupt("i", &run);
    log.write([Change::Interrupt(Box::new(interrupt))]).await;
    offer(&mut log, KIND, "r", 1).await;
    offer(&mut log, QueueKind::Deadline, "i", 2).await;
    offer(&mut log, QueueKind::Retention, "thread", 3).await;
    let mut named = log.item(QueueKind::Callback, "some key", 4);
    named.reference = crate::harness::json(&serde_json::json!({"run": run.key.0, "number": 7}));
    log.write([Change::Offer(named)]).await;
    log.write([Change::RemoveRun(run.key)]).await;
    for kind in [KIND, QueueKind::Deadline, QueueKind::Callback] {
        assert_eq!(world.store.next_due(kind).await.unwrap(), None, "{kind:?}");
    }
    assert_eq!(world.store.next_due(QueueKind::Retention).await.unwrap(), Some(at(3)));
    log.write([Change::RemoveThread]).await;
    assert_eq!(world.store.next_due(QueueKind::Retention).await.unwrap(), None);
}

async fn an_offer_wakes_a_worker(world: World) {
    let mut log = world.thread("t").await;
    let offered = world.store.offer_signal();
    let notified = offered.notified();
    tokio::pin!(notified);
    notified.as_mut().enable();
    offer(&mut log, KIND, "k", 1).await;
    timeout(Duration::from_secs(60), notified).await.expect("the worker is woken");
}

async fn two_workers_never_hold_one_item(world: World) {
    let mut log = world.thread("t").await;
    for number in 0..50 {
        offer(&mut log, KIND, &format!("k{number}"), 1).await;
    }
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let store = world.store.clone();
            tokio::spawn(async move {
                let mut held = Vec::new();
                loop {
                    let claims = store.claim(KIND, at(1), at(100), 3).await.unwrap();
                    if claims.is_empty() {
                        return held;
                    }
                    for claim in claims {
                        assert!(store.finish(&claim).await.unwrap());
                        held.push(claim.item.key);
                    }
                }
            })
        })
        .collect();
    let mut held = Vec::new();
    for worker in workers {
        held.extend(worker.await.unwrap());
    }
    held.sort();
    let mut expected: Vec<_> = (0..50).map(|number| format!("k{number}")).collect();
    expected.sort();
    assert_eq!(held, expected, "each once");
}
