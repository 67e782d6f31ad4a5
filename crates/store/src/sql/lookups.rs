//! Look-ups of rows, most of them through a scope.

use std::sync::Arc;

use trilogue_domain::limits::IDEMPOTENCY_KEPT;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{
    AgentName, CheckpointId, MessageId, Scope, ThreadActivity, ThreadId, ThreadKey, Timestamp,
};

use super::{SqlConnection, SqlError, frames, many, one};
use crate::core::health::{Health, OwnedRow};
use crate::core::no_thread;
use crate::core::search::{Candidates, matches};
use crate::core::table::{TableRow, columns};
use crate::port::OwnedThread;
use crate::rows::{
    BindingRow, CheckpointRow, IdempotencyKey, IdempotencyRow, MessageRow, RunRow, ThreadFilter,
    ThreadRow,
};

pub(crate) const BY_KEY: &str = "WHERE key = ?1";
/// A message or checkpoint of a thread, by its id.
pub(crate) const IN_THREAD: &str = "WHERE thread = ?1 AND id = ?2";

/// A connection that answers conditions on a thread's runs by its own indexes.
pub(crate) trait ThreadConnection: SqlConnection {
    /// After `FROM runs` and `FROM interrupts`: the open runs and the pending interrupts of a thread, oldest first.
    const OPEN_RUNS: &'static str;
    const PENDING: &'static str;

    fn activity(
        &self,
        thread: ThreadKey,
    ) -> impl Future<Output = Result<ThreadActivity, Self::Error>> + Send;

    /// Whether an agent is one of a thread's.
    fn has_agent(
        &self,
        thread: &ThreadRow,
        agent: &AgentName,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

pub(crate) async fn by_id<R: TableRow + OwnedRow, C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    id: &str,
) -> Result<Option<R>, C::Error> {
    let values = columns![&scope.tenant, id];
    let found = one(conn, "WHERE tenant = ?1 AND id = ?2", &values).await?;
    Ok(health.visible(scope, found)?)
}

pub(crate) async fn by_key<R: TableRow + OwnedRow, C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    key: i64,
) -> Result<Option<R>, C::Error> {
    let found = one(conn, BY_KEY, &columns![key]).await?;
    Ok(health.visible(scope, found)?)
}

/// The message of a thread with this id, if the scope sees its run.
pub(crate) async fn message<C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    thread: &ThreadId,
    id: &MessageId,
) -> Result<Option<MessageRow>, C::Error> {
    // The run decides whether the scope sees the message: the thread may belong to another principal.
    let tenant = Scope::of_tenant(&scope.tenant);
    let found = of_thread(conn, health, &tenant, thread, IN_THREAD, id.as_str()).await?;
    let Some(row): Option<MessageRow> = found else { return Ok(None) };
    let run = one::<RunRow, _>(conn, BY_KEY, &columns![row.run]).await?;
    if !run.is_some_and(|run| run.is_seen(scope)) {
        return Ok(None);
    }
    health.check_thread(row.thread)?;
    Ok(Some(row))
}

pub(crate) async fn checkpoint<C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    thread: &ThreadId,
    id: &CheckpointId,
) -> Result<Option<CheckpointRow>, C::Error> {
    of_thread(conn, health, scope, thread, IN_THREAD, id.as_str()).await
}

pub(crate) async fn binding<C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    thread: &ThreadId,
    agent: &AgentName,
) -> Result<Option<BindingRow>, C::Error> {
    let rest = "WHERE thread = ?1 AND agent = ?2";
    of_thread(conn, health, scope, thread, rest, agent.as_str()).await
}

/// A row of a thread that the scope sees. The parameters of `rest` are the thread's key and the text.
async fn of_thread<R: TableRow, C: SqlConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    thread: &ThreadId,
    rest: &str,
    text: &str,
) -> Result<Option<R>, C::Error> {
    let found = by_id::<ThreadRow, _>(conn, health, scope, thread.as_str()).await?;
    let Some(thread) = found else { return Ok(None) };
    one(conn, rest, &columns![thread.key, text]).await
}

/// The use of an idempotency key that is not too old.
pub(crate) async fn idempotency<C: SqlConnection>(
    conn: &C,
    key: &IdempotencyKey,
    now: Timestamp,
) -> Result<Option<IdempotencyRow>, C::Error> {
    let rest = concat!(
        "WHERE tenant = ?1 AND principal = ?2 AND agent = ?3 AND text = ?4",
        " AND created_at >= ?5"
    );
    let oldest = now.before(IDEMPOTENCY_KEPT);
    let values = columns![&key.tenant, &key.principal, &key.agent, &key.text, oldest];
    one(conn, rest, &values).await
}

/// The runs with these keys, except those of damaged threads: a person has to decide about these.
pub(crate) async fn undamaged_runs<C: SqlConnection>(
    conn: &C,
    health: &Health,
    keys: Vec<i64>,
) -> Result<Vec<RunRow>, C::Error> {
    let mut runs: Vec<RunRow> = Vec::with_capacity(keys.len());
    for key in keys {
        match one(conn, BY_KEY, &columns![key]).await {
            Ok(run) => runs.extend(run),
            Err(fail) => {
                let fail: C::Error = fail;
                let (thread, error) = fail.into_damage()?;
                if let Some(thread) = thread {
                    health.quarantine.add(thread, error.message());
                }
            }
        }
    }
    runs.retain(|run| health.check_thread(run.thread).is_ok());
    Ok(runs)
}

/// The rows of a thread whose log ends at `last`, for its owner.
pub(crate) async fn owned_thread<C: ThreadConnection>(
    conn: &C,
    reader: &Arc<dyn ReadOriginal>,
    thread: ThreadKey,
    last: u64,
) -> Result<OwnedThread, C::Error> {
    let key = columns![thread];
    let row = one::<ThreadRow, _>(conn, BY_KEY, &key).await?;
    let row = row.ok_or_else(|| no_thread(thread))?;
    let mut open_runs: Vec<RunRow> = many(conn, C::OPEN_RUNS, &key).await?;
    for run in &mut open_runs {
        // The row was written at a boundary; the log may have grown since.
        let last = frames::last_of_run(conn, reader, thread, run.key).await?;
        run.last_run_number = run.last_run_number.max(last);
    }
    let pending = many(conn, C::PENDING, &key).await?;
    Ok(OwnedThread { thread: row, last, open_runs, pending, is_taken_over: false })
}

/// The activity of visible threads, in the order of the keys.
pub(crate) async fn activities<C: ThreadConnection>(
    conn: &C,
    health: &Health,
    scope: &Scope,
    threads: &[ThreadKey],
) -> Result<Vec<ThreadActivity>, C::Error> {
    let mut activities = Vec::with_capacity(threads.len());
    for key in threads {
        let found = match one::<ThreadRow, _>(conn, BY_KEY, &columns![*key]).await {
            Ok(found) => health.visible(scope, found).ok().flatten(),
            Err(fail) => fail.into_damage().map(|_| None)?,
        };
        activities.push(match found {
            Some(_) => conn.activity(*key).await?,
            None => ThreadActivity::Idle,
        });
    }
    Ok(activities)
}

/// Whether a thread matches a filter's conditions on its agent, activity and state, and how many checkpoints were read for that.
pub(crate) async fn fits<C: ThreadConnection>(
    conn: &C,
    row: &ThreadRow,
    filter: &ThreadFilter,
) -> Result<(bool, usize), C::Error> {
    if let Some(agent) = &filter.agent
        && !conn.has_agent(row, agent).await?
    {
        return Ok((false, 0));
    }
    if let Some(wanted) = filter.activity
        && conn.activity(row.key).await? != wanted
    {
        return Ok((false, 0));
    }
    if filter.values.is_empty() {
        return Ok((true, 0));
    }
    // The state that was set last on the path to the head.
    let (mut next, mut read, mut candidates) = (row.head, 0, Candidates::default());
    while let Some(key) = next {
        read += 1;
        // The bound also ends a circle of damaged links.
        candidates.add(1)?;
        let rest = "WHERE key = ?1 AND thread = ?2";
        let values = columns![key, row.key];
        let found = one::<CheckpointRow, _>(conn, rest, &values).await?;
        let Some(checkpoint) = found else { break };
        if checkpoint.ends_state_search() {
            let fits = checkpoint.value.is_some_and(|value| matches(&value, &filter.values));
            return Ok((fits, read));
        }
        next = checkpoint.parent;
    }
    Ok((false, read))
}
