//! The folder that a run names for its session.
//!
//! A request over the network gets a folder below the roots of its agent. Its configuration then has the real path, so that a link that is made later has no effect.
//! When the run starts, and whenever a session opens again, the folder is checked again: it can come from another store, a link can have replaced it,
//! and the roots can have changed.

use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use serde_json::Value;

use trilogue_domain::error::Result as DomainResult;
use trilogue_domain::{AgentName, Code, Error, Json, RequestSource, lock};
use trilogue_runtime::{RunCaller, RunContext};
use trilogue_wire::agent_client::splice;

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::launch::Launch;
use crate::agent_client::process::PrincipalKey;
use crate::agent_client::session::{SessionParams, ThreadState};
use crate::permission::real_path;
use crate::workspace::PrivatePaths;

/// The member of a run's configuration that names the folder.
pub(in crate::agent_client) const FOLDER_MEMBER: &str = "cwd";

/// The most accepted folders outside of the roots that are remembered. The oldest is forgotten first.
const MAX_OPENED_FOLDERS: usize = 256;

/// How many of the folders that a caller has opened on this machine are accepted with its request, the newest first.
const MAX_CALLER_FOLDERS: usize = 16;

/// The folders outside of the roots in which requests of a principal may work because a program of that principal on this machine has opened them since the start. Without a principal: because the settings named them.
#[derive(Debug, Default)]
pub(in crate::agent_client) struct AcceptedFolders(Mutex<VecDeque<AcceptedFolder>>);

#[derive(PartialEq, Eq, Debug)]
struct AcceptedFolder {
    principal: Option<PrincipalKey>,
    path: PathBuf,
}

/// The folders in which requests may work.
struct FolderRules {
    roots: Vec<PathBuf>,
    /// The folders and files of the server itself.
    private: PrivatePaths,
    /// Whether the folders are on another machine, whose links and folders this server does not see.
    is_elsewhere: bool,
}

// === impl FolderRules ===

impl FolderRules {
    fn of(launch: &Launch) -> Self {
        let is_elsewhere = launch.remote.is_some();
        // Its own folders are not on that machine.
        let private = if is_elsewhere { PrivatePaths::default() } else { launch.private.clone() };
        Self { roots: launch.roots.clone(), private, is_elsewhere }
    }

    /// Returns a folder with its links resolved. `None` for a folder of the server itself, and for one that leads upwards on another machine.
    /// It blocks on the file system.
    fn real_path(&self, folder: &Path) -> Option<PathBuf> {
        if self.is_elsewhere {
            let leads_up = folder.components().any(|it| it == Component::ParentDir);
            return (!leads_up).then(|| folder.to_owned());
        }
        real_path(folder).filter(|real| !self.private.resolve().contains(real))
    }

    fn is_in_roots(&self, real: &Path) -> bool {
        self.is_below(real, &self.roots)
    }

    fn is_below(&self, real: &Path, folders: &[PathBuf]) -> bool {
        if self.is_elsewhere {
            return folders.iter().any(|it| it.parent().is_some() && real.starts_with(it));
        }
        is_below(real, folders)
    }
}

// === impl AcceptedFolders ===

impl AcceptedFolders {
    fn add(&self, principal: Option<PrincipalKey>, path: PathBuf) {
        let folder = AcceptedFolder { principal, path };
        let mut folders = lock(&self.0);
        folders.retain(|it| *it != folder);
        if folders.len() >= MAX_OPENED_FOLDERS {
            folders.pop_front();
        }
        folders.push_back(folder);
    }

    pub(super) fn has(&self, by: &PrincipalKey, folder: &Path) -> bool {
        let is_for = |it: &AcceptedFolder| it.principal.as_ref().is_none_or(|it| it == by);
        lock(&self.0).iter().any(|it| is_for(it) && it.path == folder)
    }
}

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
    accepted: &AcceptedFolders,
    caller: &RunCaller<'_>,
    config: Json,
) -> DomainResult<Json> {
    // With its own folders, the agent never works in one from a request.
    if launch.folders.is_some() || launch.remote_cwd().is_some() {
        return Ok(config);
    }
    // A session of an earlier life of the server may open there again.
    let by = PrincipalKey::of_caller(caller);
    if caller.source == RequestSource::Network {
        let newest = caller.folders.iter().rev().take(MAX_CALLER_FOLDERS);
        newest.for_each(|folder| accepted.add(Some(by.clone()), folder.clone()));
    }
    let named = splice::get(config.as_str(), &[FOLDER_MEMBER]).map(serde_json::from_str::<String>);
    // An invalid path fails the run later, with the reason.
    let Some(Ok(named)) = named else { return Ok(config) };
    let path = PathBuf::from(&named);
    if !path.is_absolute() {
        return Ok(config);
    }
    let rules = FolderRules::of(launch);
    let (source, opened) = (caller.source, caller.folders.to_vec());
    let found = tokio::task::spawn_blocking(move || {
        let real = rules.real_path(&path)?;
        let is_allowed = match source {
            RequestSource::LocalSocket => true,
            RequestSource::Network => rules.is_in_roots(&real) || rules.is_below(&real, &opened),
            RequestSource::Agent => rules.is_in_roots(&real),
        };
        is_allowed.then_some(real)
    });
    let Some(real) = found.await.ok().flatten() else { return Err(outside(agent, &named)) };
    if source == RequestSource::LocalSocket {
        return Ok(config);
    }
    if source == RequestSource::Network && !caller.folders.is_empty() {
        accepted.add(Some(by), real.clone());
    }
    let real = real.to_str().ok_or_else(|| outside(agent, &named))?;
    let config = splice::set_text(config.as_str(), &[FOLDER_MEMBER], real);
    config.and_then(|it| Json::parse(it).ok()).ok_or_else(|| outside(agent, &named))
}

/// Checks, when a run starts, that its agent may still work in the folder: below the roots, reached without links to another place, and never one of the
/// server itself. Only the folder of a request over the local socket can be outside of the roots.
pub(super) async fn check_at_start(
    context: &RunContext,
    launch: &Launch,
    accepted: &AcceptedFolders,
    params: &Json,
) -> Result<(), AgentFailure> {
    let is_fixed = launch.folders.is_some() || launch.remote_cwd().is_some();
    let Some(folder) = SessionParams::cwd_of(params).filter(|_| !is_fixed) else {
        return Ok(());
    };
    let real = match launch.remote {
        Some(_) => folder.clone(),
        // A missing folder is refused later, with the reason.
        None => match tokio::fs::canonicalize(&folder).await {
            Ok(real) => real,
            Err(_) => return Ok(()),
        },
    };
    let is_of_network = context.source() != RequestSource::LocalSocket;
    let rules = FolderRules::of(launch);
    let is_accepted = !is_of_network || accepted.has(&PrincipalKey::of_run(context), &real);
    let is_moved = is_of_network && real != folder;
    let checked = tokio::task::spawn_blocking(move || {
        rules.real_path(&real).is_some() && (is_accepted || rules.is_in_roots(&real))
    });
    if !is_moved && checked.await.unwrap_or(false) {
        return Ok(());
    }
    Err(outside(context.agent(), &folder.display().to_string()).into())
}

/// A session that is about to open, and who opens it.
pub(super) struct OpeningFolders<'a> {
    pub(super) agent: &'a AgentName,
    pub(super) source: RequestSource,
    pub(super) by: &'a PrincipalKey,
    /// The params that its client or run named.
    pub(super) wanted: Option<&'a Json>,
    /// The folders in which a program on this machine has opened the session before.
    pub(super) own: &'a [PathBuf],
    pub(super) params: &'a SessionParams,
}

/// Checks, with links resolved now, that a session may open in its folders: never in one of the server itself. For a request over the network or of an
/// agent, also below the roots, unless the settings name the folder, or a program of its principal on this machine has opened it since the start, or this session there
/// before. A link that has replaced a folder leads to another one.
pub(super) async fn check_opening(
    launch: &Launch,
    accepted: &AcceptedFolders,
    opening: &OpeningFolders<'_>,
) -> Result<(), AgentFailure> {
    let OpeningFolders { agent, source, by, wanted, own, params } = *opening;
    let is_local = source == RequestSource::LocalSocket;
    let named = wanted.and_then(SessionParams::cwd_of);
    let is_of_settings = launch.cwd.as_ref() == Some(&params.cwd)
        || launch.remote_cwd() == Some(&params.cwd)
        || (named.is_none() && params.cwd == super::params::default_cwd(launch));
    let Some(mut folders) = directories_of(&params.directories) else {
        return Err(outside(agent, &params.directories.to_string()).into());
    };
    if launch.folders.is_none() && !is_of_settings {
        folders.push(params.cwd.clone());
    }
    let rules = FolderRules::of(launch);
    let resolved = tokio::task::spawn_blocking(move || {
        let resolve = |folder: PathBuf| {
            let real = rules.real_path(&folder);
            let is_in_roots = real.as_ref().is_some_and(|real| rules.is_in_roots(real));
            (folder, real, is_in_roots)
        };
        folders.into_iter().map(resolve).collect::<Vec<_>>()
    });
    let resolved = resolved.await.map_err(|_| outside(agent, &params.cwd.display().to_string()))?;
    for (folder, real, is_in_roots) in &resolved {
        // An agent can understand other paths in another way than the file system.
        let is_plain =
            folder.is_absolute() && !folder.components().any(|it| it == Component::ParentDir);
        let is_allowed = |real: &PathBuf| {
            is_local || is_plain && (*is_in_roots || accepted.has(by, real) || own.contains(real))
        };
        if !real.as_ref().is_some_and(is_allowed) {
            return Err(outside(agent, &folder.display().to_string()).into());
        }
    }
    // Also the session's own folders: a program on this machine has named them before.
    let is_named_here = is_local && wanted.is_some();
    let known = resolved.into_iter().filter_map(|(_, real, _)| real);
    known
        .filter(|real| is_named_here || own.contains(real))
        .for_each(|real| accepted.add(Some(by.clone()), real));
    if launch.folders.is_none()
        && launch.remote.is_none()
        && is_of_settings
        && let Ok(real) = tokio::fs::canonicalize(&params.cwd).await
    {
        accepted.add(None, real);
    }
    Ok(())
}

/// Returns the additional folders of a session; `None` if they are no list of texts.
fn directories_of(directories: &Value) -> Option<Vec<PathBuf>> {
    match directories {
        Value::Null => Some(Vec::new()),
        Value::Array(folders) => folders.iter().map(|it| Some(it.as_str()?.into())).collect(),
        _ => None,
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
        "choose a folder below one of `agents.{agent}.roots`, open this one with a program on this machine, or let the operator add it; the folders of the server itself are never allowed"
    ))
}
