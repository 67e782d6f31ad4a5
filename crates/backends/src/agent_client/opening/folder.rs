//! The folder that a run names for its session.
//!
//! A request over the network gets a folder below the roots of its agent. Its configuration then has the real path, so that a link that is made later has no effect.

use std::path::{Path, PathBuf};

use trilogue_domain::error::Result as DomainResult;
use trilogue_domain::{AgentName, Code, Error, Json, RequestSource};
use trilogue_runtime::{RunCaller, RunContext};
use trilogue_wire::agent_client::splice;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::Launch;
use crate::agent_client::session::{SessionParams, ThreadState};
use crate::permission::real_path;

/// The member of a run's configuration that names the folder.
pub(in crate::agent_client) const FOLDER_MEMBER: &str = "cwd";

/// The params of a session in the folder that the run names, as a client would give them; `None` if the run names none.
/// Errors: the folder is not an absolute path.
pub(super) fn params_of_run(
    context: &RunContext,
    state: &ThreadState,
) -> Result<Option<Json>, AgentFailure> {
    let Some(config) = context.config() else { return Ok(None) };
    let Some(written) = splice::get(config.as_str(), &[FOLDER_MEMBER]) else { return Ok(None) };
    let folder: Option<String> = serde_json::from_str(written).ok();
    let Some(folder) = folder.filter(|folder| Path::new(folder).is_absolute()) else {
        let message = format!("`config.{FOLDER_MEMBER}` is not an absolute path");
        return Err(Error::new(Code::ConfigInvalid, message)
            .hint("give the whole path of a folder of the server")
            .into());
    };
    let wanted = state.wanted.as_ref();
    if wanted.and_then(SessionParams::cwd_of).is_some_and(|cwd| cwd == Path::new(&folder)) {
        return Ok(None);
    }
    let before = wanted.map_or("{\"mcpServers\":[]}", |wanted| wanted.as_str());
    let params = splice::set_text(before, &[FOLDER_MEMBER], &folder);
    Ok(params.and_then(|params| Json::parse(params).ok()))
}

/// The configuration with the real path of the folder that it names, if its caller may choose that folder.
/// Errors: `forbidden`, naming the setting.
pub(in crate::agent_client) async fn check_folder(
    agent: &AgentName,
    launch: &Launch,
    caller: &RunCaller<'_>,
    config: Json,
) -> DomainResult<Json> {
    // With its own folders, the agent never works in one from a request.
    if launch.folders.is_some() {
        return Ok(config);
    }
    let named = splice::get(config.as_str(), &[FOLDER_MEMBER]).map(serde_json::from_str::<String>);
    // An invalid path fails the run later, with the reason.
    let Some(Ok(named)) = named else { return Ok(config) };
    let path = PathBuf::from(&named);
    if !path.is_absolute() {
        return Ok(config);
    }
    let (roots, private) = (launch.roots.clone(), launch.private.clone());
    let (source, opened) = (caller.source, caller.folders.to_vec());
    let found = tokio::task::spawn_blocking(move || {
        let real = real_path(&path)?;
        if is_below(&real, &private) {
            return None;
        }
        let is_allowed = match source {
            RequestSource::LocalSocket => true,
            RequestSource::Network => is_below(&real, &roots) || is_below(&real, &opened),
            RequestSource::Agent => is_below(&real, &roots),
        };
        is_allowed.then_some(real)
    });
    let Some(real) = found.await.ok().flatten() else { return Err(outside(agent, &named)) };
    if source == RequestSource::LocalSocket {
        return Ok(config);
    }
    let real = real.to_str().ok_or_else(|| outside(agent, &named))?;
    let config = splice::set_text(config.as_str(), &[FOLDER_MEMBER], real);
    config.and_then(|it| Json::parse(it).ok()).ok_or_else(|| outside(agent, &named))
}

/// Checks that the folder of a request over the network is still reached without links to another place.
pub(super) async fn check_unmoved(context: &RunContext, params: &Json) -> Result<(), AgentFailure> {
    let Some(folder) = SessionParams::cwd_of(params) else { return Ok(()) };
    if context.source() == RequestSource::LocalSocket {
        return Ok(());
    }
    match tokio::fs::canonicalize(&folder).await {
        Ok(real) if real != folder => {
            Err(outside(context.agent(), &folder.display().to_string()).into())
        }
        // A missing folder is refused later, with the reason.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether a real path is one of these folders or below one. It blocks on the file system.
pub(super) fn is_below(real: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        // Every folder is below the root of the file system.
        folder.parent().is_some() && real.starts_with(folder)
    })
}

/// The same error for every folder, so that it does not reveal which folders exist.
pub(super) fn outside(agent: &AgentName, folder: &str) -> Error {
    let message = format!(
        "`agents.{agent}.roots` does not allow the folder '{}' for this request",
        folder.escape_debug()
    );
    Error::new(Code::Forbidden, message).hint(format!(
        "choose a folder below one of `agents.{agent}.roots`, or let the operator add this one; the folders of the server itself are never allowed"
    ))
}
