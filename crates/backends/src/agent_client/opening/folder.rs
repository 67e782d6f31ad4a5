//! The folder that a run names for its session.

use std::path::Path;

use trilogue_domain::{Code, Error, Json};
use trilogue_runtime::RunContext;
use trilogue_wire::agent_client::splice;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::session::{SessionParams, ThreadState};

/// The member of a run's configuration that names the folder.
pub(in crate::agent_client) const FOLDER_MEMBER: &str = "cwd";

/// The params of a session in the folder that the run names, as a client would give them; `None` if the run names none.
/// Errors: the folder is no absolute path.
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
