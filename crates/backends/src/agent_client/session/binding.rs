//! The params that a session is opened with, and the part that its thread's binding keeps.

use std::path::{Path, PathBuf};

use serde_json::Value;
use trilogue_domain::Json;
use trilogue_domain::thread::OPENED_HERE_MEMBER;
use trilogue_wire::agent_client::splice;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionParams {
    pub(crate) cwd: PathBuf,
    pub(crate) directories: Value,
    /// Servers of the Model Context Protocol, as JSON.
    pub(crate) servers: Value,
    /// The client's instructions, as JSON. Null without any.
    pub(crate) system_prompt: Value,
}

/// The params of a thread's session, kept so that it can be reopened after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SessionBinding {
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) directories: Value,
    pub(crate) system_prompt: Value,
    pub(crate) auth_method: Option<String>,
    /// Whether a program on this machine has opened its folders, so that they may be outside of the roots.
    pub(crate) is_opened_here: bool,
    /// What is known of the sub-agent, if the session is one's.
    pub(crate) subagent: Option<Json>,
}

// === impl SessionParams ===

impl SessionParams {
    pub(crate) fn cwd_of(params: &Json) -> Option<PathBuf> {
        let cwd = splice::get_text(params.as_str(), &["cwd"])?;
        let cwd = Path::new(&*cwd);
        cwd.is_absolute().then(|| cwd.to_owned())
    }

    pub(crate) fn to_binding(
        &self,
        auth_method: Option<String>,
        is_opened_here: bool,
    ) -> SessionBinding {
        SessionBinding {
            cwd: Some(self.cwd.clone()),
            directories: self.directories.clone(),
            system_prompt: self.system_prompt.clone(),
            auth_method,
            is_opened_here,
            subagent: None,
        }
    }

    /// The params of a session that was not opened with any: it works in this folder.
    pub(super) fn of_folder(cwd: PathBuf) -> Self {
        let null = || Value::Null;
        Self { cwd, directories: null(), servers: null(), system_prompt: null() }
    }
}

// === impl SessionBinding ===

impl SessionBinding {
    pub(super) fn of_subagent(description: Json) -> Self {
        Self { subagent: Some(description), ..Self::default() }
    }

    /// The folders outside of the roots in which the session may open again.
    pub(crate) fn own_folders(&self) -> Vec<PathBuf> {
        let further = self.directories.as_array().into_iter().flatten().filter_map(Value::as_str);
        let folders = self.cwd.iter().cloned().chain(further.map(PathBuf::from));
        folders.filter(|_| self.is_opened_here).collect()
    }

    pub(crate) fn read(json: &Json) -> Self {
        let value = json.to_value();
        Self {
            cwd: value.get("cwd").and_then(Value::as_str).map(PathBuf::from),
            directories: value.get("additionalDirectories").cloned().unwrap_or_default(),
            system_prompt: value.get("systemPrompt").cloned().unwrap_or_default(),
            auth_method: value.get("authMethod").and_then(Value::as_str).map(str::to_owned),
            is_opened_here: value.get(OPENED_HERE_MEMBER).is_some_and(|it| it == true),
            subagent: value.get("subagent").map(Json::from_value),
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        let mut value = serde_json::json!({ "cwd": self.cwd });
        if !self.directories.is_null() {
            value["additionalDirectories"] = self.directories.clone();
        }
        if !self.system_prompt.is_null() {
            value["systemPrompt"] = self.system_prompt.clone();
        }
        if let Some(method) = &self.auth_method {
            value["authMethod"] = method.as_str().into();
        }
        if self.is_opened_here {
            value[OPENED_HERE_MEMBER] = true.into();
        }
        if let Some(subagent) = &self.subagent {
            value["subagent"] = subagent.to_value();
        }
        Json::from_value(&value)
    }
}
