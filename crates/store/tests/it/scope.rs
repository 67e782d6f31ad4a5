//! Data that a scope does not see counts as missing.

use bytes::Bytes;
use trilogue_domain::{Scope, ThreadKey};
use trilogue_store::rows::{
    BindingRow, InterruptFilter, Page, QueueKind, RetryDecision, RunFilter, ThreadFilter,
};
use trilogue_store::{Change, Store};

use crate::harness::{World, agent, at, contract, own_scope, run_id, tenant_scope, thread_id};
use crate::rows;

contract!(
    another_tenant_sees_nothing,
    another_owner_sees_nothing,
    the_same_ids_in_two_tenants,
    a_key_finds_the_thread_in_its_scope_alone,
);

/// A thread with one row of every kind, of `alice` in `default`.
async fn furnish(world: &World) {
    let scope = own_scope("default", "alice");
    let mut log = world.thread_of(&scope, "t").await;
    let run = log.start("r").await;
    let checkpoint = log.checkpoint("c", None);
    log.row.head = Some(checkpoint.key);
    let blob = world.store.put_blob(&scope.tenant, Bytes::from_static(b"x"), true).await.unwrap();
    let binding =
        BindingRow { last_seen: Some(checkpoint.key), ..rows::binding_row(log.row.key, "s") };
    let (message, interrupt) = (log.message("m", run.key), log.interrupt("i", &run));
    let (item, row) = (log.item(QueueKind::Callback, "d", 1), log.row.clone());
    log.step()
        .say(Some(run.key), &["a"])
        .change(Change::Thread(row))
        .change(Change::Message(message))
        .change(Change::Interrupt(Box::new(interrupt)))
        .change(Change::Checkpoint(checkpoint))
        .change(Change::Binding(binding))
        .change(Change::Offer(item))
        .blob(&blob)
        .commit()
        .await
        .unwrap();
    let claims = world.store.claim(QueueKind::Callback, at(2), at(3), 1).await.unwrap();
    assert!(world.store.abandon(&claims[0], RetryDecision::Dead, "refused").await.unwrap());
}

async fn visible_items(store: &dyn Store, scope: &Scope) -> Vec<&'static str> {
    let (thread, page) = (thread_id("t"), Page::default());
    let mut found = Vec::new();
    let mut note = |what, is_found: bool| {
        if is_found {
            found.push(what);
        }
    };
    note("thread", store.thread(scope, &thread).await.unwrap().is_some());
    let threads = store.threads(scope, &ThreadFilter::default(), &page).await.unwrap();
    note("threads", !threads.rows.is_empty());
    note("run", store.run(scope, &run_id("r")).await.unwrap().is_some());
    for filter in
        [RunFilter::default(), RunFilter { thread: Some(thread.clone()), ..RunFilter::default() }]
    {
        let runs = store.runs(scope, &filter, &page).await.unwrap();
        note("runs", !runs.rows.is_empty());
    }
    let id = rows::interrupt_id("i");
    note("interrupt", store.interrupt(scope, &id).await.unwrap().is_some());
    let interrupts = store.interrupts(scope, &InterruptFilter::default(), &page).await.unwrap();
    note("interrupts", !interrupts.rows.is_empty());
    let id = rows::message_id("m");
    note("message", store.message(scope, &thread, &id).await.unwrap().is_some());
    let id = rows::checkpoint_id("c");
    note("checkpoint", store.checkpoint(scope, &thread, &id).await.unwrap().is_some());
    note("path", !store.path(scope, &thread, None, 10).await.unwrap().is_empty());
    note("binding", store.binding(scope, &thread, &agent("echo")).await.unwrap().is_some());
    let dead = store.dead_deliveries(scope, &page).await.unwrap();
    note("dead", !dead.rows.is_empty());
    found
}

const EVERYTHING: [&str; 12] = [
    "thread",
    "threads",
    "run",
    "runs",
    "runs",
    "interrupt",
    "interrupts",
    "message",
    "checkpoint",
    "path",
    "binding",
    "dead",
];

async fn another_tenant_sees_nothing(world: World) {
    furnish(&world).await;
    assert_eq!(visible_items(&*world.store, &tenant_scope("default")).await, EVERYTHING);
    let nothing: [&str; 0] = [];
    assert_eq!(visible_items(&*world.store, &tenant_scope("other")).await, nothing);
    assert_eq!(visible_items(&*world.store, &own_scope("other", "alice")).await, nothing);
    let dead = world.store.dead_deliveries(&tenant_scope("default"), &Page::default()).await;
    let id = dead.unwrap().rows[0].id;
    assert!(!world.store.revive(&tenant_scope("other"), id, at(5)).await.unwrap());
    assert!(!world.store.revive(&own_scope("default", "bob"), id, at(5)).await.unwrap());
    assert!(world.store.revive(&own_scope("default", "alice"), id, at(5)).await.unwrap());
}

async fn another_owner_sees_nothing(world: World) {
    furnish(&world).await;
    assert_eq!(visible_items(&*world.store, &own_scope("default", "alice")).await, EVERYTHING);
    let nothing: [&str; 0] = [];
    assert_eq!(visible_items(&*world.store, &own_scope("default", "bob")).await, nothing);
}

async fn the_same_ids_in_two_tenants(world: World) {
    furnish(&world).await;
    let mut log = world.thread_of(&tenant_scope("other"), "t").await;
    let run = log.start("r").await;
    let message = log.message("m", run.key);
    log.write([Change::Message(message)]).await;
    for tenant in ["default", "other"] {
        let scope = tenant_scope(tenant);
        let thread = world.store.thread(&scope, &thread_id("t")).await.unwrap().unwrap();
        assert_eq!(thread.tenant, scope.tenant);
        let run = world.store.run(&scope, &run_id("r")).await.unwrap().unwrap();
        assert_eq!((run.tenant, run.thread), (scope.tenant.clone(), thread.key));
        let id = rows::message_id("m");
        let message = world.store.message(&scope, &thread.id, &id).await.unwrap().unwrap();
        assert_eq!((message.tenant, message.thread), (scope.tenant, thread.key));
    }
}

async fn a_key_finds_the_thread_in_its_scope_alone(world: World) {
    furnish(&world).await;
    let row = world.store.thread(&tenant_scope("default"), &thread_id("t")).await.unwrap().unwrap();
    let found = async |scope: &Scope, key| world.store.thread_of(scope, key).await.unwrap();
    for scope in [tenant_scope("default"), own_scope("default", "alice")] {
        assert_eq!(found(&scope, row.key).await, Some(row.clone()));
    }
    let others = [own_scope("default", "bob"), tenant_scope("other"), own_scope("other", "alice")];
    for scope in others {
        assert_eq!(found(&scope, row.key).await, None);
    }
    assert_eq!(found(&tenant_scope("default"), ThreadKey(i64::MAX)).await, None);
}
