//! Runs that an agent starts itself, by working while no prompt is open.

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{
    Code, Error, Input, ParentRun, Principal, Right, RunAudit, RunId, StartedBy, Strategy,
};
use trilogue_store::rows::{Page, RunFilter, RunRow};

use crate::handle::Runtime;
use crate::owner::{Envelope, stopped_error};
use crate::request::{WhenHolding, WhenWaiting};
use crate::session::ThreadContext;
use crate::step::Submit;

// === impl Runtime ===

impl Runtime {
    /// Starts a run for the work of a thread's agent. It acts for the creator of the agent's newest run there, with that run's configuration, rules and callback.
    /// A sub-agent's run acts as the newest run of its parent, without a callback: its client knows only the parent.
    /// Errors: `thread_busy` while another run has the turn or waits for it; `invalid_request` on a thread that exists for one run only; `thread_not_found`, `overloaded`, `shutting_down`, and what storing can fail with.
    pub(crate) async fn start_agent_run(
        &self,
        thread: &ThreadContext,
        parent: Option<ParentRun>,
    ) -> Result<RunRow> {
        self.check_open()?;
        let store = &self.services().store;
        let row = store.thread(&thread.scope, &thread.id).await?;
        let row = row.filter(|row| row.key == thread.thread).ok_or_else(|| {
            Error::new(Code::ThreadNotFound, format!("thread '{}' not found", thread.id))
        })?;
        if row.ephemeral {
            let message = "the thread exists for one run only";
            return Err(Error::new(Code::InvalidRequest, message));
        }
        let last = match &thread.parent {
            Some(above) => self.newest_run_above(above).await?,
            None => self.newest_run(thread).await?,
        };
        let principal = last.as_ref().map_or(&row.owner, |last| &last.principal);
        let by = Principal {
            tenant: row.tenant.clone(),
            id: principal.clone(),
            rights: std::iter::once(Right::Run).collect(),
            own: true,
        };
        self.check_open_runs(&by)?;
        let new = RunRow::new(
            store.next_run_key(),
            RunId::generate(),
            &row,
            by.id,
            thread.agent.clone(),
            self.services().clock.now(),
        );
        let new = RunRow { started_by: Some(StartedBy::Agent), parent, ..new };
        let new = match last {
            Some(last) => RunRow {
                config: last.config,
                rules: last.rules,
                callback: last.callback.filter(|_| thread.parent.is_none()),
                mount: last.mount,
                audit: last
                    .audit
                    .map(|audit| Box::new(RunAudit { thread: row.id.clone(), ..*audit })),
                ..new
            },
            None => new,
        };
        let submit = Box::new(Submit {
            row: new,
            input: Input::Messages(Vec::new()),
            said: Vec::new(),
            native: false,
            create_thread: false,
            claims_ids: false,
            strategy: Strategy::Reject,
            may_remove_of_others: false,
            when_waiting: WhenWaiting::Start,
            when_holding: WhenHolding::Refuse,
            idempotency: None,
            opening: None,
        });
        let ((reply, accepted), (settled, _)) = (oneshot::channel(), oneshot::channel());
        let envelope = Envelope::Submit { submit, deferred: false, reply, settled };
        self.services().send(row.key, envelope).await?;
        accepted.await.map_err(|_| stopped_error())?
    }

    /// The newest run of the agent on the thread.
    async fn newest_run(&self, thread: &ThreadContext) -> Result<Option<RunRow>> {
        let filter = RunFilter {
            thread: Some(thread.id.clone()),
            agent: Some(thread.agent.clone()),
            ..RunFilter::default()
        };
        let newest = Page { limit: 1, ..Page::default() };
        let store = &self.services().store;
        Ok(store.runs(&thread.scope, &filter, &newest).await?.rows.into_iter().next())
    }

    /// The newest run of the parent, or of the nearest thread above it that has runs.
    async fn newest_run_above(&self, parent: &ThreadContext) -> Result<Option<RunRow>> {
        let mut thread = Some(parent);
        while let Some(one) = thread {
            if let Some(run) = self.newest_run(one).await? {
                return Ok(Some(run));
            }
            thread = one.parent.as_deref();
        }
        Ok(None)
    }
}
