//! Continues with a session whose agent has outlived the server that opened it.

use trilogue_domain::Json;
use trilogue_runtime::RunContext;
use uuid::Uuid;

use super::{Requester, SessionOpener, replace};
use crate::agent_client::failure::AgentFailure;
use crate::agent_client::process::AdoptedProcess;
use crate::agent_client::session::{KeptSession, SessionBinding, SessionLease};
use crate::child::{AdoptedChild, BeginOutput};

/// A session of a previous server. The agent's output flows once `begin` is dropped.
pub(in crate::agent_client) struct RejoinedSession {
    pub(in crate::agent_client) session: SessionLease,
    pub(in crate::agent_client) begin: BeginOutput,
}

// === impl SessionOpener ===

impl SessionOpener {
    /// Continues with the session of a run in the child with this id. The child's output begins at this position. `None` if the child is gone, or if it cannot be continued with.
    pub(in crate::agent_client) async fn rejoin(
        &self,
        context: &RunContext,
        remote: &str,
        (instance, position): (Uuid, u64),
    ) -> Result<Option<RejoinedSession>, AgentFailure> {
        let Some(binding) = context.binding().await? else { return Ok(None) };
        let Some(adopted) = self.pool.take_child(instance, position) else { return Ok(None) };
        let AdoptedChild { started, owner, last_call, begin } = adopted;
        let child = started.child.clone();
        let Ok(kept) = serde_json::from_value::<KeptSession>(owner) else {
            child.begin_kill();
            return Ok(None);
        };
        let process = AdoptedProcess { started, initialize: kept.initialize, last_call };
        let thread = self.threads.get_or_insert(context.key());
        let mut state = thread.state.lock().await;
        let binding = SessionBinding::read(&binding.capabilities);
        let (client, of_run) = (context.client(), context.thread_context());
        let requester = Requester::run(context, client.as_ref());
        let opening = (binding, Some((process, position)));
        let rejoined = async {
            let (start, lease) = self.start(&of_run, &requester, &state, opening).await?;
            let session = start.rejoin(remote, Json::from_value(&kept.opened)).await?;
            Ok(replace(&of_run, &mut state, session, lease).await)
        };
        let session = rejoined.await.inspect_err(|_: &AgentFailure| child.begin_kill())?;
        Ok(Some(RejoinedSession { session, begin }))
    }
}
