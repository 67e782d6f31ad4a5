//! A removal takes all content.

use bytes::Bytes;
use trilogue_domain::Resolution;
use trilogue_store::Change;
use trilogue_store::rows::{BindingRow, QueueKind, ThreadFilter};

use crate::harness::{Log, World, agent, alice, contract, json, now, page, run_id, thread_id};
use crate::rows;

contract!(a_removed_thread_leaves_nothing, a_removed_run_leaves_its_neighbours);

/// A text that is in everything that holds content.
pub(crate) const MARKER: &str = "zX9-marker-of-a-secret";

/// A thread in which everything that holds content has the marker, and one run of it.
pub(crate) async fn furnish(world: &World, thread: &str, run: &str) -> Log {
    let secret = json(&serde_json::json!({"k": MARKER, "list": [MARKER]}));
    let mut log = world.thread(thread).await;
    let mut row = log.start(run).await;
    (row.metadata, row.config, row.saved) =
        (secret.clone(), Some(secret.clone()), Some(secret.clone()));
    let mut checkpoint = log.checkpoint(&format!("c-{thread}-{run}"), None);
    (checkpoint.run, checkpoint.value) = (Some(row.key), Some(secret.clone()));
    let mut interrupt = log.interrupt(&format!("i-{run}"), &row);
    interrupt.interrupt.payload = secret.clone();
    interrupt.resolution = Some(Resolution::TimedOut { option: Some(MARKER.to_owned()) });
    let message = log.message(&format!("m-{run}"), row.key);
    let mut used = log.idempotency(&format!("{MARKER}-{run}"), &row);
    used.created_at = now();
    let mut item = log.item(QueueKind::Callback, run, 1);
    item.reference = secret.clone();
    let binding =
        BindingRow { capabilities: secret.clone(), ..rows::binding_row(log.row.key, MARKER) };
    let blob = Bytes::from(format!("{MARKER} in a blob of {run}"));
    let blob = world.store.put_blob(&log.row.tenant, blob, true).await.unwrap();
    log.row.metadata = secret;
    let thread = log.row.clone();
    log.step()
        .change(Change::Thread(thread))
        .run(&row)
        .say(Some(row.key), &[MARKER])
        .change(Change::Message(message))
        .change(Change::Interrupt(Box::new(interrupt)))
        .change(Change::Checkpoint(checkpoint))
        .change(Change::Binding(binding))
        .change(Change::Idempotency(used))
        .change(Change::Offer(item))
        .blob(&blob)
        .commit()
        .await
        .unwrap();
    log
}

async fn a_removed_thread_leaves_nothing(world: World) {
    let mut log = furnish(&world, "t", "r").await;
    let used = log.idempotency(&format!("{MARKER}-r"), &log.run_row("r"));
    log.write([Change::RemoveThread]).await;
    let (store, scope, id) = (&world.store, alice(), thread_id("t"));
    assert_eq!(store.thread(&scope, &id).await.unwrap(), None);
    assert_eq!(store.thread_by_key(log.row.key).await.unwrap(), None);
    let filter = ThreadFilter {
        metadata: vec![("k".to_owned(), format!("\"{MARKER}\""))],
        ..ThreadFilter::default()
    };
    assert_eq!(store.threads(&scope, &filter, &page(9, None)).await.unwrap().rows, []);
    assert_eq!(store.runs(&scope, &Default::default(), &page(9, None)).await.unwrap().rows, []);
    let interrupts = store.interrupts(&scope, &Default::default(), &page(9, None)).await;
    assert_eq!(interrupts.unwrap().rows, []);
    let message = rows::message_id("m-r");
    assert_eq!(store.message(&scope, &id, &message).await.unwrap(), None);
    assert_eq!(store.path(&scope, &id, None, 9).await.unwrap(), []);
    assert_eq!(store.binding(&scope, &id, &agent("echo")).await.unwrap(), None);
    assert_eq!(store.idempotency(&used.key, now()).await.unwrap(), None);
    assert_eq!(store.next_due(QueueKind::Callback).await.unwrap(), None);
    assert_eq!(log.read().await, []);
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs), (0, 0));
    furnish(&world, "t", "r").await;
}

async fn a_removed_run_leaves_its_neighbours(world: World) {
    let mut log = furnish(&world, "t", "gone").await;
    let other = furnish(&world, "u", "other").await;
    let stays = log.start("stays").await;
    let gone = world.store.run(&alice(), &run_id("gone")).await.unwrap().unwrap();
    log.write([Change::RemoveRun(gone.key)]).await;
    assert_eq!(world.store.run(&alice(), &run_id("gone")).await.unwrap(), None);
    assert_eq!(world.store.run(&alice(), &run_id("stays")).await.unwrap(), Some(stays));
    assert!(world.store.run(&alice(), &run_id("other")).await.unwrap().is_some());
    assert_eq!(log.read().await.len(), 1);
    assert_eq!(other.read().await.len(), 2);
    let interrupts = world.store.interrupts(&alice(), &Default::default(), &page(9, None)).await;
    assert_eq!(interrupts.unwrap().rows.len(), 1);
    let message = rows::message_id("m-other");
    assert!(world.store.message(&alice(), &thread_id("u"), &message).await.unwrap().is_some());
    let binding = world.store.binding(&alice(), &thread_id("t"), &agent("echo")).await.unwrap();
    assert!(binding.is_some(), "a binding is of the thread");
}
