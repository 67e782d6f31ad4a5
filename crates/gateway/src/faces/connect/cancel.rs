//! Cancels runs, and removes them.

use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Right};
use trilogue_mapping::native::escape_for_message;
use trilogue_store::rows::RunRow;
use trilogue_wire::agent_connect::CancelAction;

use super::{ANYTHING, BASE, ConnectCall, ConnectRoute, look_up, request};
use crate::http::reply::Reply;
use crate::route::{Access, Parameter};

/// How long the server waits for a rollback even if the client does not: by then the agent has the cancellation.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(1);

const CANCEL: ConnectRoute = BASE
    .post("/runs/{run_id}/cancel", |call| Box::pin(cancel(call)))
    .access(Access::Agent(Right::Run))
    .describe("connect_cancel_run", "Ask a run to stop; one that has ended stays as it is")
    .query(&[
        Parameter { name: "wait", about: "With `true`: answer when it has stopped." },
        Parameter {
            name: "action",
            about: "`interrupt` keeps the run and what it did, `rollback` removes both.",
        },
        ANYTHING,
    ])
    .answers(&[crate::route::no_content("It is asked to stop.")])
    .errors(&[Code::RunNotFound, Code::InvalidRequest]);

const DELETE: ConnectRoute = CANCEL
    .delete("/runs/{run_id}", |call| Box::pin(delete(call)))
    .for_people()
    .describe("connect_delete_run", "Remove a run; one that has not ended is cancelled first")
    .query(&[ANYTHING])
    .answers(&[crate::route::no_content("It is gone.")])
    .errors(&[Code::RunNotFound]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    CANCEL,
    DELETE,
    CANCEL
        .path("/threads/{thread_id}/runs/{run_id}/cancel")
        .operation("connect_cancel_thread_run")
        .errors(&[Code::ThreadNotFound, Code::RunNotFound, Code::InvalidRequest]),
    DELETE
        .path("/threads/{thread_id}/runs/{run_id}")
        .operation("connect_delete_thread_run")
        .errors(&[Code::ThreadNotFound, Code::RunNotFound]),
];

async fn cancel(call: ConnectCall) -> Result<Reply> {
    let wait = request::flag(&call, "wait")?;
    let action = match call.query("action") {
        None => CancelAction::default(),
        Some(text) => CancelAction::parse(text).ok_or_else(|| {
            Error::new(Code::InvalidRequest, format!("'action' is '{}'", escape_for_message(text)))
                .hint("it is 'interrupt' or 'rollback'")
        })?,
    };
    let row = look_up::run(&call).await?;
    if row.status.is_terminal() {
        return Ok(Reply::no_content());
    }
    match action {
        CancelAction::Interrupt => stop(&call, &row, wait).await?,
        CancelAction::Rollback => {
            call.require_person().await?;
            call.require_removal_of(Some(&row.principal)).await?;
            if roll_back(&call, &row, wait).await? {
                call.audit_removal(&row, "rolled back");
            }
        }
    }
    Ok(Reply::no_content())
}

async fn stop(call: &ConnectCall, row: &RunRow, wait: bool) -> Result<()> {
    let runtime = &call.state.runtime;
    match runtime.cancel(call.principal(), &row.id).await {
        Ok(_) if wait => {
            let settled =
                call.while_admitted(runtime.wait_until_settled(call.principal(), &row.id));
            ok_if_removed(settled.await.map(drop))
        }
        Ok(_) => Ok(()),
        Err(error) => ok_if_ended(error),
    }
}

/// Removes the run; continues even if the client stops waiting. Returns whether the run is removed: a run that has ended meanwhile stays.
async fn roll_back(call: &ConnectCall, row: &RunRow, wait: bool) -> Result<bool> {
    let (runtime, by, id) = (call.state.runtime.clone(), call.principal().clone(), row.id.clone());
    let removing = tokio::spawn(async move { runtime.roll_back(&by, &id).await });
    let removed = if wait {
        removing.await
    } else {
        match tokio::time::timeout(ROLLBACK_PATIENCE, removing).await {
            Ok(removed) => removed,
            Err(_) => return Ok(true),
        }
    };
    match removed {
        Ok(Ok(())) => Ok(true),
        Ok(Err(error)) => ok_if_ended(error).map(|()| false),
        Err(_) => Err(Error::new(Code::Internal, "the rollback panicked")),
    }
}

/// Succeeds if the run has ended meanwhile.
fn ok_if_ended(error: Error) -> Result<()> {
    match error.code() {
        Code::RunEnded => Ok(()),
        _ => Err(error),
    }
}

/// Succeeds if the run was removed meanwhile.
fn ok_if_removed(settled: Result<()>) -> Result<()> {
    match settled {
        Err(error) if error.code() == Code::RunNotFound => Ok(()),
        other => other,
    }
}

async fn delete(call: ConnectCall) -> Result<Reply> {
    let row = look_up::run(&call).await?;
    call.require_removal_of(Some(&row.principal)).await?;
    // Clients that wait for the active run learn that it is removed.
    let is_rolled_back = !row.status.is_terminal() && roll_back(&call, &row, true).await?;
    if !is_rolled_back {
        call.state.runtime.remove_run(call.principal(), &row.id).await?;
    }
    call.audit_removal(&row, if is_rolled_back { "rolled back" } else { "deleted" });
    Ok(Reply::no_content())
}
