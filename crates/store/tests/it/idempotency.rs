//! Idempotency keys: used once, kept for a certain time, removed with their run.

use std::time::Duration;

use trilogue_domain::{Code, MessageId, limits};
use trilogue_store::Change;

use crate::harness::{World, code, contract, now, principal};

contract!(
    a_key_is_used_once,
    a_key_is_forgotten_after_its_time,
    a_key_goes_with_its_run,
    the_same_key_of_somebody_else_is_another,
    the_keys_of_a_run_are_found_by_it,
);

async fn a_key_is_used_once(world: World) {
    let mut one = world.thread("one").await;
    let mut two = world.thread("two").await;
    let (first, second) = (one.run_row("first"), two.run_row("second"));
    let used = one.idempotency("k", &first);
    one.step().run(&first).change(Change::Idempotency(used.clone())).commit().await.unwrap();
    assert_eq!(world.store.idempotency(&used.key, now()).await.unwrap(), Some(used.clone()));
    let again = two.idempotency("k", &second);
    let step = two.step().run(&second).change(Change::Idempotency(again));
    assert_eq!(code(step.commit().await), Code::AlreadyExists);
    assert_eq!(world.store.idempotency(&used.key, now()).await.unwrap(), Some(used.clone()));
    // The run that holds the key may store it again.
    one.write([Change::Idempotency(used)]).await;
}

async fn a_key_is_forgotten_after_its_time(world: World) {
    let mut log = world.thread("t").await;
    let (first, second) = (log.start("first").await, log.start("second").await);
    let used = log.idempotency("k", &first);
    log.write([Change::Idempotency(used.clone())]).await;
    let end = used.created_at.after(limits::IDEMPOTENCY_KEPT);
    let late = end.after(Duration::from_micros(1));
    assert_eq!(world.store.idempotency(&used.key, end).await.unwrap(), Some(used.clone()));
    assert_eq!(world.store.idempotency(&used.key, late).await.unwrap(), None);
    let mut again = log.idempotency("k", &second);
    again.created_at = late;
    log.write([Change::Idempotency(again.clone())]).await;
    assert_eq!(world.store.idempotency(&used.key, late).await.unwrap(), Some(again));
    // The removal of the first run does not remove the second run's key.
    log.write([Change::RemoveRun(first.key)]).await;
    assert!(world.store.idempotency(&used.key, late).await.unwrap().is_some());
}

async fn a_key_goes_with_its_run(world: World) {
    let mut log = world.thread("t").await;
    let (run, other) = (log.start("r").await, log.start("other").await);
    let used = log.idempotency("k", &run);
    log.write([Change::Idempotency(used.clone())]).await;
    let again = log.idempotency("k", &other);
    log.write([Change::RemoveRun(run.key), Change::Idempotency(again.clone())]).await;
    assert_eq!(world.store.idempotency(&used.key, now()).await.unwrap(), Some(again));
    log.write([Change::RemoveThread]).await;
    assert_eq!(world.store.idempotency(&used.key, now()).await.unwrap(), None);
}

async fn the_same_key_of_somebody_else_is_another(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let used = log.idempotency("k", &run);
    let mut other = log.idempotency("k", &run);
    other.key.principal = principal("bob");
    log.write([Change::Idempotency(used.clone()), Change::Idempotency(other.clone())]).await;
    assert_eq!(world.store.idempotency(&used.key, now()).await.unwrap(), Some(used.clone()));
    assert_eq!(world.store.idempotency(&other.key, now()).await.unwrap(), Some(other));
    let mut unknown = used.key;
    unknown.text = "other".to_owned();
    assert_eq!(world.store.idempotency(&unknown, now()).await.unwrap(), None);
}

async fn the_keys_of_a_run_are_found_by_it(world: World) {
    let mut log = world.thread("t").await;
    let (run, other) = (log.start("r").await, log.start("other").await);
    let mut answered = log.idempotency("answered", &run);
    answered.message = Some(MessageId::parse("m").unwrap());
    let created = log.idempotency("created", &run);
    let elsewhere = log.idempotency("elsewhere", &other);
    let mut step = log.step();
    for row in [&answered, &created, &elsewhere] {
        step = step.change(Change::Idempotency(row.clone()));
    }
    step.commit().await.unwrap();
    let mut found = world.store.idempotency_of_run(run.thread, &run.id).await.unwrap();
    found.sort_by(|one, other| one.key.text.cmp(&other.key.text));
    assert_eq!(found, [answered, created]);
}
