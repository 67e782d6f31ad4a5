//! The rights of a run's creator, which are checked again for work that is done later than it was asked for.

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::{PrincipalId, Right, Rights, TenantId};
use trilogue_store::rows::{PrincipalRights, RunRow};

use crate::backend::Backend;
use crate::context::SharedRun;
use crate::request::RunCaller;
use crate::services::Services;

/// What a principal may do now, by its valid tokens; everything where it needs none. Fails as reading.
pub(crate) async fn current_rights(
    services: &Services,
    tenant: &TenantId,
    principal: &PrincipalId,
) -> Result<PrincipalRights> {
    if services.options.local_principal.as_ref() == Some(principal) {
        return Ok(PrincipalRights { own: Rights::all(), anywhere: Rights::all() });
    }
    services.store.rights_of(tenant, principal, services.clock.now()).await
}

/// Checks the creator of a run that waited before its turn: for its time, for the runs before it, for an answer, or for a server.
/// Settings that need the right `answer` are checked again without it.
/// Errors: `forbidden`, naming what is missing; as reading.
pub(crate) async fn check_creator(
    services: &Services,
    backend: &dyn Backend,
    run: &SharedRun,
) -> Result<()> {
    if !run.needs_token {
        return Ok(());
    }
    let rights = rights_in_thread(services, run).await?;
    if !rights.has(Right::Run) {
        return Err(forbidden(&run.principal, "run agents on its thread", Right::Run));
    }
    if !run.can_answer() || rights.has(Right::Answer) {
        return Ok(());
    }
    run.lose_answer();
    if let Some(config) = &run.config {
        let caller = RunCaller {
            tenant: &run.scope.tenant,
            principal: &run.principal,
            source: run.source,
            can_answer: false,
            folders: &[],
        };
        backend.authorize(&caller, config.clone()).await?;
    }
    Ok(())
}

/// What the creator of a run may do with the run's thread.
async fn rights_in_thread(services: &Services, run: &SharedRun) -> Result<Rights> {
    let rights = current_rights(services, &run.scope.tenant, &run.principal).await?;
    if rights.own == rights.anywhere {
        return Ok(rights.own);
    }
    let thread = services.store.thread(&run.scope, &run.thread).await?;
    let is_own = thread.is_some_and(|thread| thread.owner == run.principal);
    Ok(if is_own { rights.own } else { rights.anywhere })
}

fn forbidden(principal: &PrincipalId, what: &str, right: Right) -> Error {
    let message = format!("'{principal}', who created the run, may not {what} any more");
    Error::new(Code::Forbidden, message)
        .hint(format!("ask for the run again with a token that has the right `{}`", right.as_str()))
}

/// As [`crate::Runtime::check_creator_sees`].
pub(crate) async fn check_creator_sees(services: &Services, row: &RunRow) -> Result<()> {
    if row.audit.as_ref().is_none_or(|audit| audit.token.is_none()) {
        return Ok(());
    }
    let rights = current_rights(services, &row.tenant, &row.principal).await?.own;
    if rights.has(Right::Run) || rights.has(Right::Read) {
        return Ok(());
    }
    Err(forbidden(&row.principal, "see it", Right::Read))
}
