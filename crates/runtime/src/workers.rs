//! Workers beside the owners: scheduled runs, deadlines, retention.
//!
//! Due work passes rights and limits again. The items of one thread are handled in their order; threads do not wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::sync::{Mutex, Notify, Semaphore};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, InterruptId, Right, RunKey, Scope, ThreadKey};
use trilogue_store::rows::{Claim, QueueKind, RetryDecision, RunRow};

use crate::callback::while_extending;
use crate::creator::current_rights;
use crate::handle::{MAX_OWNERS_AT_ONCE, Runtime};
use crate::handover::give_up;
use crate::peers;
use crate::step::Command;

/// How long a worker holds an item before another may take it.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
/// The most items of a kind that are claimed at once, and so the most threads that one of them waits for.
const MAX_CLAIMED: usize = 64;
/// The longest a worker sleeps before it looks again, in case the clock was set.
pub(crate) const MAX_SLEEP: Duration = Duration::from_secs(60);
/// How long a worker rests after the store failed.
pub(crate) const REST: Duration = Duration::from_secs(1);
/// How long an item that failed waits before it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How often a node looks for threads that another has left.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(1);
/// How often the clock is looked at.
const CLOCK_EVERY: Duration = Duration::from_secs(2);
/// The most runs that retention looks up at once.
const MAX_REMOVED: usize = 256;
/// The most runs that retention removes at once, or in one transaction: fewer would make more commits, more would delay the appends that share one.
const MAX_REMOVED_AT_ONCE: usize = 64;

pub(crate) fn start(runtime: &Runtime) {
    for kind in [QueueKind::ScheduledRun, QueueKind::Deadline] {
        tokio::spawn(until_closing(runtime.clone(), serve(runtime.clone(), kind)));
    }
    tokio::spawn(until_closing(runtime.clone(), retain(runtime.clone())));
    tokio::spawn(until_closing(runtime.clone(), watch_clock(runtime.clone())));
    if runtime.services().store.node().is_some() {
        tokio::spawn(until_closing(runtime.clone(), take_over(runtime.clone())));
        tokio::spawn(until_closing(
            runtime.clone(),
            peers::publish_presence(Arc::clone(runtime.services())),
        ));
    }
    if let Some(heard) = runtime.services().store.subscribe() {
        let (services, shown) = (Arc::clone(runtime.services()), Arc::clone(runtime.questions()));
        tokio::spawn(until_closing(
            runtime.clone(),
            peers::receive_messages(services, shown, heard),
        ));
    }
}

/// Watches the clock, so that a jump is noticed even on an idle server. After the clock was set back, scheduled work is brought forward, so that the jump does
/// not delay it.
async fn watch_clock(runtime: Runtime) {
    let services = runtime.services();
    loop {
        tokio::time::sleep(CLOCK_EVERY).await;
        let by = services.clock.follow_jump();
        if by.is_zero() {
            continue;
        }
        match services.store.bring_forward(by).await {
            Ok(()) => services.store.offer_signal().notify_waiters(),
            Err(error) => {
                tracing::warn!(%error, "what waits for a time may be late: the clock was set back")
            }
        }
    }
}

/// Takes over open threads of nodes that are gone, so that their runs end or continue. Other threads are taken over on the next request. A draining node gives
/// its own threads up instead.
async fn take_over(runtime: Runtime) {
    let services = runtime.services();
    loop {
        tokio::time::sleep(TAKE_OVER_EVERY).await;
        if give_up(services).await {
            continue;
        }
        let abandoned = services.store.abandoned_threads().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "threads of other nodes cannot be read");
            Vec::new()
        });
        stream::iter(abandoned)
            .for_each_concurrent(MAX_OWNERS_AT_ONCE, |thread| runtime.recover(thread))
            .await;
    }
}

pub(crate) async fn until_closing(runtime: Runtime, work: impl Future<Output = ()>) {
    tokio::select! {
        () = runtime.closing().cancelled() => {}
        () = work => {}
    }
}

async fn serve(runtime: Runtime, kind: QueueKind) {
    let services = runtime.services();
    let offered = services.store.offer_signal();
    let free = Arc::new(Semaphore::new(MAX_CLAIMED));
    // An item that was put back may be due before its lease would have ended.
    let settled = Arc::new(Notify::new());
    loop {
        let offered = offered.notified();
        let settled_one = settled.notified();
        let Ok(first) = Arc::clone(&free).acquire_owned().await else { return };
        let mut permits = vec![first];
        permits.extend(std::iter::from_fn(|| Arc::clone(&free).try_acquire_owned().ok()));
        let now = services.clock.now();
        let claims = match services.store.claim(kind, now, now.after(LEASE), permits.len()).await {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(kind = kind.as_str(), %error, "the queue cannot be read");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        if claims.is_empty() {
            drop(permits);
            let due = services.store.next_due(kind).await.ok().flatten();
            let sleep = due.map_or(MAX_SLEEP, |due| {
                services.clock.now().until(due).clamp(Duration::from_millis(1), MAX_SLEEP)
            });
            tokio::select! {
                () = offered => {}
                () = settled_one => {}
                () = tokio::time::sleep(sleep) => {}
            }
            continue;
        }
        let mut threads: BTreeMap<Option<ThreadKey>, Vec<Claim>> = BTreeMap::new();
        for claim in claims {
            threads.entry(claim.item.thread).or_default().push(claim);
        }
        for claims in threads.into_values() {
            let held: Vec<_> = permits.drain(..claims.len().min(permits.len())).collect();
            let (work, settled) = (handle_all(runtime.clone(), claims), Arc::clone(&settled));
            let work = async move {
                work.await;
                // Before the notification, so that the loop finds the permits free when it wakes.
                drop(held);
                settled.notify_one();
            };
            tokio::spawn(until_closing(runtime.clone(), work));
        }
    }
}

/// Handles the items of one thread in their order. None loses its lease while it waits for those before it.
async fn handle_all(runtime: Runtime, claims: Vec<Claim>) {
    let turn = Mutex::new(());
    let each = claims.iter().map(|claim| {
        let work = async {
            // Tokio's mutex is fair, so the items keep their order.
            let _turn = turn.lock().await;
            handle(&runtime, claim).await;
        };
        while_extending(runtime.services(), claim, work)
    });
    futures_util::future::join_all(each).await;
}

async fn handle(runtime: &Runtime, claim: &Claim) {
    let services = runtime.services();
    let outcome = match claim.item.kind {
        QueueKind::ScheduledRun => scheduled_run(runtime, claim).await,
        QueueKind::Deadline => deadline(runtime, claim).await,
        QueueKind::Callback | QueueKind::Retention | QueueKind::Notify => Ok(None),
    };
    let now = services.clock.now();
    let settled = match outcome {
        Ok(None) => services.store.finish(claim).await,
        Ok(Some(later)) => {
            services.store.abandon(claim, RetryDecision::RetryAt(now.after(later)), "not yet").await
        }
        // Another node took the thread over meanwhile, and does the work when it is due there.
        Err(error) if error.code() == Code::ThreadElsewhere => {
            services.store.abandon(claim, RetryDecision::Postpone(now), error.message()).await
        }
        Err(error) if error.code().is_transient() => {
            let retry = RetryDecision::RetryAt(now.after(RETRY_AFTER));
            services.store.abandon(claim, retry, error.message()).await
        }
        // The thread or run is gone: there is nothing left to do.
        Err(error) => {
            tracing::debug!(key = claim.item.key, %error, "queued work had nothing to do");
            services.store.finish(claim).await
        }
    };
    if let Err(error) = settled {
        tracing::warn!(key = claim.item.key, %error, "a queue item could not be settled");
    }
}

async fn scheduled_run(runtime: &Runtime, claim: &Claim) -> Result<Option<Duration>> {
    let reference = claim.item.reference.to_value();
    let (thread, run) = (thread_of(&reference)?, RunKey(integer(&reference, "run")?));
    let (tenant, principal) = (&claim.item.tenant, &claim.item.principal);
    // Whether it may use this thread is checked when the run begins.
    let rights = current_rights(runtime.services(), tenant, principal).await?;
    let command = if rights.own.has(Right::Run) {
        Command::Due { run }
    } else {
        Command::Cancel { run, reason: Some(Code::Forbidden), roll_back: false }
    };
    runtime.change(thread, command).await.map(|_| None)
}

async fn deadline(runtime: &Runtime, claim: &Claim) -> Result<Option<Duration>> {
    let reference = claim.item.reference.to_value();
    let thread = thread_of(&reference)?;
    let id = reference.get("interrupt").and_then(Value::as_str).unwrap_or_default();
    let interrupt = InterruptId::parse(id)?;
    let now = tokio::time::Instant::now();
    let services = runtime.services();
    let scope = Scope::of_tenant(&claim.item.tenant);
    let Some(row) = services.store.interrupt(&scope, &interrupt).await? else { return Ok(None) };
    let patience = row.interrupt.patience.unwrap_or_default();
    // A client that may answer is connected, or was active: the patience counts from then on.
    let ends = services.patience_ends(thread, now.checked_sub(patience).unwrap_or(now), patience);
    if ends > now {
        let latest = row.raised_at.after(patience.max(services.options.attended_deadline));
        let left = services.clock.now().until(latest);
        if !left.is_zero() {
            let wait = left.min(ends - now).min(services.options.interrupt_deadline);
            return Ok(Some(wait));
        }
    }
    runtime.change(thread, Command::Deadline { interrupt }).await.map(|_| None)
}

/// Removes terminal runs by age and count, and configured instances that have expired.
async fn retain(runtime: Runtime) {
    let services = runtime.services();
    let policy = services.options.retention;
    loop {
        let expired = services.store.expired_runs(&policy, services.clock.now(), MAX_REMOVED).await;
        let rows = expired.unwrap_or_else(|error| {
            tracing::warn!(%error, "retention cannot read the store");
            Vec::new()
        });
        let found = rows.len();
        let mut removed = 0;
        match services.store.expire_configurations(services.clock.now(), MAX_REMOVED).await {
            Ok(expired) => removed = expired,
            Err(error) => tracing::warn!(%error, "expired configurations could not be removed"),
        }
        removed += remove_all(&runtime, rows).await;
        // More threads may be due, unless the removal itself fails.
        if found.max(removed) < MAX_REMOVED || removed == 0 {
            tokio::time::sleep(services.options.retention_interval).await;
        }
    }
}

/// Removes runs. Returns how many are gone.
async fn remove_all(runtime: &Runtime, rows: Vec<RunRow>) -> usize {
    let (gone, left) = remove_stateless(runtime, rows).await;
    // Together they share commits: one after the other, removing would be slower than new runs come in.
    let removing = left.into_iter().map(|row| remove(runtime, row));
    let done = stream::iter(removing).buffer_unordered(MAX_REMOVED_AT_ONCE);
    gone + done.filter(|is_gone| std::future::ready(*is_gone)).count().await
}

/// Removes stateless runs with their threads, many in a transaction: no owner is started for them. Returns how many are gone, and the other runs; a thread that has an owner is left to it.
async fn remove_stateless(runtime: &Runtime, rows: Vec<RunRow>) -> (usize, Vec<RunRow>) {
    let services = runtime.services();
    let (stateless, mut left): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.stateless && !services.is_owned(row.thread));
    let threads: Vec<_> = stateless.iter().map(|row| row.thread).collect();
    let mut removed = BTreeSet::new();
    for threads in threads.chunks(MAX_REMOVED_AT_ONCE) {
        match services.store.remove_ephemeral(threads).await {
            Ok(gone) => removed.extend(gone),
            Err(error) => tracing::warn!(%error, "stateless runs could not be removed"),
        }
    }
    let (gone, kept): (Vec<_>, Vec<_>) =
        stateless.into_iter().partition(|row| removed.contains(&row.thread));
    left.extend(kept);
    let count = gone.len();
    let forgetting = gone.into_iter().map(|row| forget(runtime.clone(), row));
    stream::iter(forgetting).buffer_unordered(MAX_REMOVED_AT_ONCE).collect::<()>().await;
    (count, left)
}

/// Tells agents with sessions of their own that a run's thread is gone.
async fn forget(runtime: Runtime, row: RunRow) {
    let named = (row.thread, &row.thread_id, &row.tenant);
    runtime.registry().forget(runtime.services(), named).await;
}

/// Removes a run. Returns whether it is gone.
async fn remove(runtime: &Runtime, row: RunRow) -> bool {
    let command = Command::RemoveRun { run: row.key, id: row.id, reason: "retention" };
    match runtime.change(row.thread, command).await {
        Ok(_) => true,
        // Another worker was faster.
        Err(error) if matches!(error.code(), Code::RunNotFound | Code::ThreadNotFound) => true,
        Err(error) => {
            tracing::warn!(%error, "a run could not be removed");
            false
        }
    }
}

fn thread_of(reference: &Value) -> Result<ThreadKey> {
    integer(reference, "thread").map(ThreadKey)
}

fn integer(reference: &Value, member: &str) -> Result<i64> {
    reference.get(member).and_then(Value::as_i64).ok_or_else(|| {
        Error::new(Code::Internal, format!("a queue item lacks the member '{member}'"))
    })
}
