//! A session's working directory and tool servers, with the secrets that they contain.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trilogue_domain::{Code, Error, Json};
use trilogue_runtime::ThreadContext;
use trilogue_wire::agent_client::{Meta, splice};

use crate::agent_client::failure::AgentFailure;
use crate::agent_client::host::AgentHost;
use crate::agent_client::launch::{Launch, Processes};
use crate::agent_client::process::Process;
use crate::agent_client::session::{SessionBinding, SessionParams};
use crate::child::{SandboxMode, address_secrets, texts};

/// The member of a client's params with its instructions.
const SYSTEM_PROMPT_MEMBER: &str = "systemPrompt";
/// The largest instructions of a client, in bytes of JSON: they are stored with the binding, which changes in every turn.
const MAX_SYSTEM_PROMPT_BYTES: usize = 32 * 1024;

/// The directory is, in this order: a folder of this server, that of the settings for the agent's machine, the client's, the previous one, the directory in which the agent starts.
pub(super) async fn of_session(
    launch: &Launch,
    thread: &ThreadContext,
    wanted: Option<&Json>,
    binding: SessionBinding,
) -> Result<SessionParams, AgentFailure> {
    let cwd = match (&launch.folders, launch.remote_cwd()) {
        (Some(folders), _) => {
            folders.prepare(thread.tenant(), thread.thread(), thread.key()).await?
        }
        (None, Some(cwd)) => cwd.to_owned(),
        (None, None) => {
            let cwd = wanted.and_then(SessionParams::cwd_of).or(binding.cwd);
            cwd.unwrap_or_else(|| default_cwd(launch))
        }
    };
    let Some(wanted) = wanted else {
        let servers = with_configured(launch, Value::Null);
        let SessionBinding { directories, system_prompt, .. } = binding;
        return Ok(SessionParams { cwd, directories, servers, system_prompt });
    };
    // A client sends all params each time.
    let member = |name: &str| {
        let raw = splice::get(wanted.as_str(), &[name])?;
        serde_json::from_str::<Value>(raw).ok()
    };
    let directories = member("additionalDirectories").unwrap_or_default();
    let servers = with_configured(launch, member("mcpServers").unwrap_or_default());
    let system_prompt = member(SYSTEM_PROMPT_MEMBER).unwrap_or_default();
    if system_prompt.to_string().len() > MAX_SYSTEM_PROMPT_BYTES {
        let message =
            format!("`{SYSTEM_PROMPT_MEMBER}` has more than {MAX_SYSTEM_PROMPT_BYTES} bytes");
        return Err(Error::new(Code::InvalidRequest, message)
            .hint("send long instructions with the first prompt")
            .into());
    }
    Ok(SessionParams { cwd, directories, servers, system_prompt })
}

/// Leaves out instructions from before a restart if the agent does not take such any more: it would refuse the session.
pub(super) fn check_system_prompt(
    wanted: Option<&Json>,
    process: &Process,
    params: &mut SessionParams,
) {
    let session = process.capabilities().session.as_ref();
    let takes = session.is_some_and(|session| session.system_prompt.is_some());
    if wanted.is_none() && !takes && !params.system_prompt.is_null() {
        let agent = process.agent();
        tracing::warn!(%agent, "the agent does not take the instructions of its session any more");
        params.system_prompt = Value::Null;
    }
}

/// The client's servers, and those of the settings. For equal names, the client's server is used.
fn with_configured(launch: &Launch, servers: Value) -> Value {
    if launch.mcp_servers.is_empty() {
        return servers;
    }
    let mut all = match servers {
        Value::Array(servers) => servers,
        Value::Null => Vec::new(),
        // The agent reports the error.
        other => return other,
    };
    for server in &launch.mcp_servers {
        if all.iter().all(|one| one["name"] != server["name"]) {
            all.push(server.clone());
        }
    }
    Value::Array(all)
}

/// Fails if the settings name a server of a kind that the agent does not support.
pub(super) fn check_servers(launch: &Launch, process: &Process) -> Result<(), AgentFailure> {
    let can = process.capabilities().mcp.clone().unwrap_or_default();
    let unusable = launch.mcp_servers.iter().find(|server| match server["type"].as_str() {
        Some("http") => !can.http,
        Some("sse") => !can.sse,
        _ => false,
    });
    let Some(server) = unusable else { return Ok(()) };
    let (name, agent) = (server["name"].as_str().unwrap_or_default(), process.agent());
    let message = format!("the agent '{agent}' takes no MCP servers by address, such as '{name}'");
    let hint = "give the server a `command` in place of its `url`, or remove it from `mcp_servers`";
    Err(Error::new(Code::ConfigInvalid, message).hint(hint).into())
}

/// The members of a client's params that [`SessionParams`] does not have. Some agents also read the names with underscores.
pub(super) fn extra_members(params: &Json) -> Option<Json> {
    const KNOWN: [&str; 10] = [
        "sessionId",
        "session_id",
        "cwd",
        "mcpServers",
        "mcp_servers",
        "additionalDirectories",
        "additional_directories",
        SYSTEM_PROMPT_MEMBER,
        // The server itself copies the session, and sets the options after the opening.
        "cursorId",
        "configOptions",
    ];
    let extra = KNOWN.iter().fold(Cow::Borrowed(params.as_str()), |extra, name| {
        Cow::Owned(splice::remove(&extra, &[name]).into_owned())
    });
    Json::parse_mended(extra.into_owned()).ok()
}

/// Returns the folders in which a session works, for the sandbox of its process. None without a sandbox: such a process can use every folder.
pub(super) fn sandbox_folders(launch: &Launch, cwd: &Path, directories: &Value) -> Vec<PathBuf> {
    if launch.sandbox.mode == SandboxMode::Off {
        return Vec::new();
    }
    let more = directories.as_array().into_iter().flatten().filter_map(Value::as_str);
    [cwd.to_owned()].into_iter().chain(more.map(PathBuf::from)).collect()
}

/// Where the process of a session starts.
pub(super) fn process_cwd(launch: &Launch, params: &SessionParams) -> PathBuf {
    launch.start_dir.clone().unwrap_or_else(|| usual_cwd(launch, params))
}

/// Where the process of a session starts, unless the launch names a folder for that.
fn usual_cwd(launch: &Launch, params: &SessionParams) -> PathBuf {
    // A connection serves sessions in every directory.
    if launch.processes == Processes::Shared || launch.remote.is_some() {
        return default_cwd(launch);
    }
    match &launch.cwd {
        Some(cwd) if launch.folders.is_none() => cwd.clone(),
        _ => params.cwd.clone(),
    }
}

/// The directory in which a process without a thread starts.
pub(super) fn unowned_cwd(launch: &Launch) -> PathBuf {
    launch.start_dir.clone().unwrap_or_else(|| default_cwd(launch))
}

pub(super) fn follows_client(launch: &Launch) -> bool {
    let is_fixed = launch.cwd.is_some()
        || launch.folders.is_some()
        || launch.start_dir.is_some()
        || launch.remote.is_some();
    launch.processes == Processes::Thread && !is_fixed
}

pub(in crate::agent_client) fn default_cwd(launch: &Launch) -> PathBuf {
    let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    match &launch.remote {
        Some(remote) => remote.cwd.clone().unwrap_or_else(|| PathBuf::from("/")),
        None => launch.cwd.clone().unwrap_or_else(here),
    }
}

/// Fails if a client chose a working directory that does not exist on this server; the agent is not to blame for that.
pub(super) async fn check_cwd(launch: &Launch, params: &SessionParams) -> Result<(), AgentFailure> {
    let is_chosen = launch.folders.is_none() && launch.cwd.as_ref() != Some(&params.cwd);
    // In another environment, such as a container or another machine, only the agent can check it.
    let is_used_here = launch.remote.is_none()
        && (usual_cwd(launch, params) == params.cwd || !launch.grants.is_empty());
    if !is_chosen || !is_used_here {
        return Ok(());
    }
    let why = match tokio::fs::metadata(&params.cwd).await {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "it is not a folder".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("the session cannot work in '{}': {why}", params.cwd.display());
    let hint = "create that folder on this server, or open the session with a `cwd` that exists";
    Err(Error::new(Code::InvalidRequest, message).hint(hint).into())
}

/// Hides a client's values from the captured standard error: the values for its servers, and everything that
/// it attached.
pub(super) fn hide_secrets(host: &AgentHost, params: &SessionParams, extra: Option<&Json>) {
    let secrets = server_secrets(&params.servers);
    let attached = extra.map(attached_texts).unwrap_or_default();
    host.hide(secrets.iter().chain(&attached).map(String::as_str));
}

fn server_secrets(servers: &Value) -> Vec<String> {
    let lists = servers.as_array().into_iter().flatten();
    let entries = lists.flat_map(|server| ["env", "headers"].map(|name| server.get(name)));
    let entries = entries.flatten().filter_map(Value::as_array).flatten();
    let values = entries.filter_map(|entry| entry.get("value")?.as_str());
    let addresses = servers.as_array().into_iter().flatten().filter_map(|it| it["url"].as_str());
    let mut secrets: Vec<_> = addresses.flat_map(address_secrets).collect();
    for value in values {
        secrets.push(value.to_owned());
        // The token after `Bearer`.
        if let Some((_, token)) = value.split_once(' ') {
            secrets.push(token.trim().to_owned());
        }
    }
    secrets
}

/// All texts in `_meta`, because some may be tokens.
fn attached_texts(extra: &Json) -> Vec<String> {
    let meta = splice::get(extra.as_str(), &[Meta::KEY]);
    meta.and_then(|it| serde_json::from_str(it).ok()).map(texts).unwrap_or_default()
}
