//! Runs that an agent starts itself, by working while no prompt is open.

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, Input, Principal, Right, RunId, StartedBy, Strategy};
use trilogue_store::rows::{Page, RunFilter, RunRow};

use crate::handle::Runtime;
use crate::owner::{Envelope, stopped_error};
use crate::request::{WhenHolding, WhenWaiting};
use crate::session::ThreadContext;
use crate::step::Submit;

// === impl Runtime ===

impl Runtime {
    /// Starts a run for the work of a thread's agent. It acts for the creator of the agent's newest run there, with that run's configuration, rules and callback.
    /// Errors: `thread_busy` while another run has the turn or waits for it; `invalid_request` on a thread that exists for one run only; `thread_not_found`, `overloaded`, `shutting_down`, and what storing can fail with.
    pub(crate) async fn start_agent_run(&self, thread: &ThreadContext) -> Result<RunId> {
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
        let filter = RunFilter {
            thread: Some(row.id.clone()),
            agent: Some(thread.agent.clone()),
            ..RunFilter::default()
        };
        let newest = Page { limit: 1, ..Page::default() };
        let last = store.runs(&thread.scope, &filter, &newest).await?.rows.into_iter().next();
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
        let new = RunRow { started_by: Some(StartedBy::Agent), ..new };
        let new = match last {
            Some(last) => RunRow {
                config: last.config,
                rules: last.rules,
                callback: last.callback,
                mount: last.mount,
                audit: last.audit,
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
        Ok(accepted.await.map_err(|_| stopped_error())??.id)
    }
}
