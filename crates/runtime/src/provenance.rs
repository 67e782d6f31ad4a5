//! Detects loops of runs through other servers, and refuses them.

use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Provenance, RunTrace, limits};
use uuid::Uuid;

use crate::context::{RunContext, SharedRun};
use crate::request::RunRequest;
use crate::services::Services;

impl Services {
    /// Returns the name of an agent for other servers. It reveals nothing, and differs after each start of the process.
    fn hop_name(&self, agent: &AgentName) -> String {
        let name = format!("{}/{agent}", self.node);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
    }

    /// Refuses a run that its own agent has passed on to another server and that came back, and a run with an impossibly long path.
    /// Errors: `call_refused`.
    pub(crate) fn check_provenance(&self, new: &RunRequest) -> Result<()> {
        let Some(provenance) = &new.provenance else { return Ok(()) };
        let (agent, hops) = (&new.agent, &provenance.hops);
        if !hops.is_empty() && hops.contains(&self.hop_name(agent)) {
            let message =
                format!("the agent '{agent}' leads back to itself by way of other servers");
            return Err(Error::new(Code::CallRefused, message)
                .hint("two servers must not each use an agent of the other as their own: change one of them"));
        }
        if hops.len() >= limits::MAX_HOPS {
            let most = limits::MAX_HOPS;
            let message = format!("the request came by way of {most} agents behind other servers");
            return Err(Error::new(Code::CallRefused, message)
                .hint("it may be in a loop of servers: look at the addresses of their agents"));
        }
        Ok(())
    }
}

impl SharedRun {
    /// Returns the provenance of the runs that this run calls: the same as its own, except that the span is this run's if runs are traced.
    pub(crate) fn provenance_of_calls(&self) -> Option<Box<Provenance>> {
        let Some(ratio) = self.services.options.trace_ratio else { return self.provenance.clone() };
        let mut provenance = self.provenance.clone().unwrap_or_default();
        let caller = provenance.trace.as_deref();
        let trace = RunTrace::of(&self.scope.tenant, &self.id, caller, ratio);
        provenance.trace = Some(trace.context.to_string());
        Some(provenance)
    }
}

impl RunContext {
    /// Returns the provenance that a remote server gets with a call of this run.
    #[must_use]
    pub fn forwarded_provenance(&self) -> Provenance {
        let shared = &self.0;
        let mut provenance = shared.provenance_of_calls().map(|it| *it).unwrap_or_default();
        provenance.hops.push(shared.services.hop_name(&shared.agent));
        provenance
    }
}
