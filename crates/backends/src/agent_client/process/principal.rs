use trilogue_domain::{Principal, PrincipalId, TenantId};
use trilogue_runtime::{Client, RunCaller, RunContext};

/// A principal, unique over all tenants. Each has separate processes and sign-ins, which no other principal uses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PrincipalKey {
    tenant: TenantId,
    principal: PrincipalId,
}

// === impl PrincipalKey ===

impl PrincipalKey {
    pub(crate) fn of_client(client: &dyn Client) -> Self {
        Self::of_principal(client.principal())
    }

    pub(crate) fn of_principal(principal: &Principal) -> Self {
        Self { tenant: principal.tenant.clone(), principal: principal.id.clone() }
    }

    pub(crate) fn of_caller(caller: &RunCaller<'_>) -> Self {
        Self { tenant: caller.tenant.clone(), principal: caller.principal.clone() }
    }

    pub(crate) fn of_run(context: &RunContext) -> Self {
        Self { tenant: context.tenant().clone(), principal: context.principal().clone() }
    }
}
