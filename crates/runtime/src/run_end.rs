//! Ends runs for callers: cancelling, rolling back, removing, and waiting for the end.

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Principal, RunId, Scope};
use trilogue_store::rows::RunRow;

use crate::handle::Runtime;
use crate::owner::{Envelope, stopped_error, unexpected};
use crate::step::{Command, Reply};

// === impl Runtime ===

impl Runtime {
    /// Waits until a run has ended or waits for an answer; fails with `run_not_found`, and with `shutting_down` if the server stops first.
    pub async fn wait_until_settled(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        let row = self.run_row(&by.scope(), id).await?;
        self.wait_until_row_settled(row).await
    }

    /// Asks a run to stop. Returns when that is durable, possibly before the agent has stopped. Fails with `run_not_found`, `run_ended`, `subagent_not_cancellable`, or if the store fails.
    pub async fn cancel(&self, by: &Principal, id: &RunId) -> Result<RunRow> {
        let row = self.run_row(&by.scope(), id).await?;
        self.check_can_cancel(&row)?;
        let command = Command::Cancel { run: row.key, reason: None, roll_back: false };
        self.stop(&row, command).await
    }

    /// Stops a run and removes it with all its effects. Returns when it is removed; other waiters get its final row, with the reason `run_rolled_back`. Fails as [`Runtime::cancel`].
    pub async fn roll_back(&self, by: &Principal, id: &RunId) -> Result<()> {
        let row = self.run_row(&by.scope(), id).await?;
        self.check_can_cancel(&row)?;
        let reason = Some(Code::RunRolledBack);
        let command = Command::Cancel { run: row.key, reason, roll_back: true };
        self.stop(&row, command).await?;
        // The agent may still be active; the run is removed after it has stopped.
        let (reply, gone) = oneshot::channel();
        self.services().send(row.thread, Envelope::Settled { run: row.key, reply }).await?;
        match gone.await.map_err(|_| stopped_error())? {
            // The thread belonged to the run and was removed with it.
            Err(error) if error.code() == Code::ThreadNotFound => Ok(()),
            other => other.map(drop),
        }
    }

    /// Checks that the agent can cancel the work of a run that it started itself. Fails with `subagent_not_cancellable`.
    fn check_can_cancel(&self, row: &RunRow) -> Result<()> {
        if row.started_by.is_none() || row.ended_at.is_some() {
            return Ok(());
        }
        match self.registry().get(&row.agent) {
            Some(agent) => agent.check_cancel(row.thread),
            None => Ok(()),
        }
    }

    /// Removes an ended run with its events; fails with `run_not_found`, `run_not_ended`, or if the store fails.
    pub async fn remove_run(&self, by: &Principal, id: &RunId) -> Result<()> {
        let row = self.run_row(&by.scope(), id).await?;
        let command = Command::RemoveRun { run: row.key, id: row.id.clone(), reason: "deleted" };
        self.change(row.thread, command)
            .await
            .map(drop)
            .map_err(|error| to_run_not_found(error, &row))
    }

    async fn stop(&self, row: &RunRow, command: Command) -> Result<RunRow> {
        match self.change(row.thread, command).await {
            Ok(Reply::Run(row)) => Ok(*row),
            Ok(_) => Err(unexpected()),
            Err(error) => Err(to_run_not_found(error, row)),
        }
    }

    pub(crate) async fn wait_until_row_settled(&self, row: RunRow) -> Result<RunRow> {
        if row.status.is_terminal() {
            return Ok(row);
        }
        let (reply, settled) = oneshot::channel();
        self.services().send(row.thread, Envelope::Settled { run: row.key, reply }).await?;
        let told = settled.await.map_err(|_| stopped_error())?;
        match told.map_err(|error| to_run_not_found(error, &row))? {
            Some(row) => Ok(row),
            None => {
                let scope = Scope { tenant: row.tenant.clone(), owner: None };
                self.run_row(&scope, &row.id).await
            }
        }
    }
}

/// Reports a run as not found if its thread was removed meanwhile.
fn to_run_not_found(error: Error, row: &RunRow) -> Error {
    match error.code() {
        Code::ThreadNotFound => {
            Error::new(Code::RunNotFound, format!("run '{}' not found", row.id))
        }
        _ => error,
    }
}
