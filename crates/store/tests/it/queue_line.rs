//! Callbacks of one run are in line: they are claimed in the order of their numbers, one at a time.

use serde_json::json;
use trilogue_domain::{Json, RunKey};
use trilogue_store::Change;
use trilogue_store::rows::{Claim, QueueItem, QueueKind, RetryDecision};

use crate::harness::{Log, World, alice, at, contract, page};

contract!(
    the_items_of_a_run_are_claimed_one_after_the_other,
    an_item_that_failed_holds_those_behind_it_back,
    a_dead_item_holds_nobody_back_and_comes_back_in_its_place,
    a_waiting_item_is_replaced_and_moves_back,
    a_failed_item_is_replaced_and_keeps_its_patience,
    a_held_item_is_replaced_when_its_holder_is_done,
    what_was_offered_meanwhile_survives_its_holder,
    a_withdrawn_item_lets_the_next_go,
    a_line_goes_with_its_run,
);

const KIND: QueueKind = QueueKind::Callback;

fn item(log: &Log, run: RunKey, key: &str, number: u64, due: i64) -> QueueItem {
    let reference = Json::from_value(&json!({"run": run.0, "number": number}));
    QueueItem { reference, ..log.item(KIND, key, due) }
}

async fn offer(log: &mut Log, run: RunKey, key: &str, number: u64, due: i64) {
    let item = item(log, run, key, number, due);
    log.write([Change::Offer(item)]).await;
}

async fn claim(world: &World, now: i64) -> Vec<Claim> {
    world.store.claim(KIND, at(now), at(now + 30), 9).await.unwrap()
}

/// Claims the available items, and returns their keys and numbers.
async fn claimed(world: &World, now: i64) -> (Vec<Claim>, Vec<String>) {
    let claims = claim(world, now).await;
    let told = claims.iter().map(|claim| {
        let reference = claim.item.reference.to_value();
        format!("{} {}", claim.item.key, reference["number"])
    });
    let told = told.collect();
    (claims, told)
}

async fn the_items_of_a_run_are_claimed_one_after_the_other(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await.key, log.start("two").await.key);
    // Neither the due time nor the order of offers matters.
    offer(&mut log, one, "one.9", 9, 1).await;
    offer(&mut log, one, "one.4", 4, 3).await;
    offer(&mut log, two, "two.5", 5, 2).await;
    offer(&mut log, one, "one.7", 7, 1).await;
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(2)));
    let (first, told) = claimed(&world, 5).await;
    assert_eq!(told, ["two.5 5", "one.4 4"]);
    assert_eq!(claimed(&world, 6).await.1, [""; 0]);
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(35)), "the leases end");
    assert!(world.store.finish(&first[1]).await.unwrap());
    let (second, told) = claimed(&world, 6).await;
    assert_eq!(told, ["one.7 7"]);
    assert!(world.store.finish(&second[0]).await.unwrap());
    assert_eq!(claimed(&world, 6).await.1, ["one.9 9"]);
}

async fn an_item_that_failed_holds_those_behind_it_back(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    offer(&mut log, run, "a", 1, 1).await;
    offer(&mut log, run, "b", 2, 1).await;
    let first = claim(&world, 1).await.remove(0);
    assert!(world.store.abandon(&first, RetryDecision::RetryAt(at(20)), "500").await.unwrap());
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(20)));
    assert_eq!(claimed(&world, 19).await.1, [""; 0]);
    let (again, told) = claimed(&world, 20).await;
    assert_eq!((told, again[0].attempts), (vec!["a 1".to_owned()], 2));
    // The end of a lease does not let another item overtake.
    assert_eq!(claimed(&world, 50).await.1, ["a 1"]);
}

async fn a_dead_item_holds_nobody_back_and_comes_back_in_its_place(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    for (key, number) in [("a", 1), ("b", 2), ("c", 3)] {
        offer(&mut log, run, key, number, 1).await;
    }
    let first = claim(&world, 1).await.remove(0);
    assert!(world.store.abandon(&first, RetryDecision::Dead, "410").await.unwrap());
    let (second, told) = claimed(&world, 2).await;
    assert_eq!(told, ["b 2"]);
    let dead = world.store.dead_deliveries(&alice(), &page(9, None)).await.unwrap().rows;
    assert!(world.store.revive(&alice(), dead[0].id, at(5)).await.unwrap());
    assert_eq!(claimed(&world, 6).await.1, [""; 0], "one of the run is under way");
    assert!(world.store.finish(&second[0]).await.unwrap());
    let (first, told) = claimed(&world, 6).await;
    assert_eq!(told, ["a 1"]);
    assert!(world.store.finish(&first[0]).await.unwrap());
    assert_eq!(claimed(&world, 6).await.1, ["c 3"]);
}

async fn a_waiting_item_is_replaced_and_moves_back(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    offer(&mut log, run, "values", 5, 1).await;
    offer(&mut log, run, "update", 7, 1).await;
    offer(&mut log, run, "values", 9, 2).await;
    let (first, told) = claimed(&world, 3).await;
    assert_eq!(told, ["update 7"], "the newer values stand behind it");
    assert!(world.store.finish(&first[0]).await.unwrap());
    let (second, told) = claimed(&world, 3).await;
    assert_eq!(told, ["values 9"]);
    assert!(world.store.finish(&second[0]).await.unwrap());
    assert_eq!(world.store.next_due(KIND).await.unwrap(), None);
}

/// A newer item does not shorten the back-off of a receiver that does not respond.
async fn a_failed_item_is_replaced_and_keeps_its_patience(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    offer(&mut log, run, "values", 5, 1).await;
    let failed = claim(&world, 1).await.remove(0);
    assert!(world.store.abandon(&failed, RetryDecision::RetryAt(at(20)), "500").await.unwrap());
    offer(&mut log, run, "values", 6, 2).await;
    offer(&mut log, run, "values", 7, 3).await;
    assert_eq!(world.store.next_due(KIND).await.unwrap(), Some(at(20)));
    assert_eq!(claimed(&world, 19).await.1, [""; 0]);
    let (newest, told) = claimed(&world, 20).await;
    assert_eq!((told, newest[0].attempts), (vec!["values 7".to_owned()], 2));
    assert_eq!(newest[0].item.due, at(20));
    // A dead item is done: the next one starts without its attempts.
    assert!(world.store.abandon(&newest[0], RetryDecision::Dead, "500").await.unwrap());
    offer(&mut log, run, "values", 9, 21).await;
    let (anew, told) = claimed(&world, 21).await;
    assert_eq!((told, anew[0].attempts), (vec!["values 9".to_owned()], 1));
}

async fn a_held_item_is_replaced_when_its_holder_is_done(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    let store = &world.store;
    offer(&mut log, run, "values", 5, 1).await;
    let holder = claim(&world, 1).await.remove(0);
    offer(&mut log, run, "values", 8, 2).await;
    offer(&mut log, run, "values", 9, 2).await;
    offer(&mut log, run, "end", 12, 2).await;
    assert_eq!(claimed(&world, 3).await.1, [""; 0]);
    assert!(store.extend(&holder, at(60)).await.unwrap(), "it is the holder's still");
    assert!(store.finish(&holder).await.unwrap());
    assert!(!store.finish(&holder).await.unwrap(), "what took its place is not the holder's");
    let (newer, told) = claimed(&world, 3).await;
    assert_eq!((told, newer[0].attempts), (vec!["values 9".to_owned()], 1));
    // A failed item is not retried if there is a newer one, which waits for the rest of the failed one's back-off.
    offer(&mut log, run, "values", 11, 4).await;
    assert!(store.abandon(&newer[0], RetryDecision::RetryAt(at(20)), "500").await.unwrap());
    assert_eq!(claimed(&world, 19).await.1, [""; 0]);
    let (newest, told) = claimed(&world, 20).await;
    assert_eq!((told, newest[0].attempts), (vec!["values 11".to_owned()], 2));
    offer(&mut log, run, "values", 13, 21).await;
    assert!(store.abandon(&newest[0], RetryDecision::Dead, "400").await.unwrap());
    let dead = store.dead_deliveries(&alice(), &page(9, None)).await.unwrap().rows;
    assert_eq!(dead, [], "something newer took its place");
    let (end, told) = claimed(&world, 22).await;
    assert_eq!(told, ["end 12"]);
    assert!(store.finish(&end[0]).await.unwrap());
    assert_eq!(claimed(&world, 22).await.1, ["values 13"]);
}

async fn what_was_offered_meanwhile_survives_its_holder(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    offer(&mut log, run, "values", 5, 1).await;
    let holder = claim(&world, 1).await.remove(0);
    offer(&mut log, run, "values", 8, 2).await;
    // The holder never returns.
    let (newer, told) = claimed(&world, 31).await;
    assert_eq!(told, ["values 8"]);
    assert!(!world.store.finish(&holder).await.unwrap());
    assert!(world.store.finish(&newer[0]).await.unwrap());
    assert_eq!(world.store.next_due(KIND).await.unwrap(), None);
}

async fn a_withdrawn_item_lets_the_next_go(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await.key;
    offer(&mut log, run, "a", 1, 1).await;
    offer(&mut log, run, "b", 2, 1).await;
    let first = claim(&world, 1).await.remove(0);
    log.write([Change::Withdraw(KIND, "a".to_owned())]).await;
    assert!(!world.store.finish(&first).await.unwrap());
    assert_eq!(claimed(&world, 2).await.1, ["b 2"]);
}

async fn a_line_goes_with_its_run(world: World) {
    let mut log = world.thread("t").await;
    let (one, two) = (log.start("one").await.key, log.start("two").await.key);
    for number in 1..4 {
        offer(&mut log, one, &format!("one.{number}"), number, 1).await;
        offer(&mut log, two, &format!("two.{number}"), number, 1).await;
    }
    let claims = claim(&world, 1).await;
    assert_eq!(claims.len(), 2);
    log.write([Change::RemoveRun(one)]).await;
    for claim in &claims {
        assert_eq!(world.store.finish(claim).await.unwrap(), claim.item.key.starts_with("two"));
    }
    assert_eq!(claimed(&world, 2).await.1, ["two.2 2"]);
    log.write([Change::RemoveThread]).await;
    assert_eq!(world.store.next_due(KIND).await.unwrap(), None);
}
