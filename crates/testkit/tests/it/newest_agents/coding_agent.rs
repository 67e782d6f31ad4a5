//! The coding agents whose turns have to outlive the server: their settings, and a tool call of each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use trilogue_testkit::model::{Model, NAME, Step};

use super::adapter::Adapter;
use crate::client_coding::opencode_settings;

/// Names the folder with the agents that `scripts/foreign` does not install. Each has a folder there by its name, with its npm package or a Python environment.
pub(super) const FOLDER: &str = "TRILOGUE_AGENTS";

#[derive(Clone, Copy, Debug)]
pub(super) enum CodingAgent {
    Adapter(Adapter),
    OpenCode,
    Gemini,
    Qwen,
    FastAgent,
    Copilot,
}

// === impl CodingAgent ===

impl CodingAgent {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Adapter(adapter) => adapter.name(),
            Self::OpenCode => "opencode",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::FastAgent => "fast-agent",
            Self::Copilot => "copilot",
        }
    }

    /// The path of its program in the folder of agents. `None` if it is always installed.
    fn place(self) -> Option<PathBuf> {
        let name = self.name();
        match self {
            Self::Adapter(_) | Self::OpenCode => None,
            Self::Gemini | Self::Qwen | Self::Copilot => {
                Some(Path::new(name).join("node_modules/.bin").join(name))
            }
            Self::FastAgent => Some(Path::new(name).join("bin").join(name)),
        }
    }

    /// Why it cannot be tested here. `None` if it is installed.
    pub(super) fn why_missing(self) -> Option<String> {
        let place = self.place()?;
        let Some(folder) = std::env::var_os(FOLDER) else {
            return Some(format!("{FOLDER} is not set"));
        };
        let program = Path::new(&folder).join(place);
        (!program.is_file()).then(|| format!("{} is missing", program.display()))
    }

    /// Its settings with this model. A rule allows everything, so that its turns never wait for an answer.
    pub(super) fn settings(self, own: &Path, cwd: &Path, model: &Model) -> Result<String> {
        let name = self.name();
        let mut settings = match self {
            Self::Adapter(adapter) => adapter.settings(own, cwd, model)?,
            Self::OpenCode => opencode_settings(own, model, &format!("cwd = {}\n", json!(cwd)))?,
            _ => self.settings_of_other(own, cwd, model)?,
        };
        settings.push_str(&format!("\n[[agents.{name}.permissions]]\ndecision = \"allow\"\n"));
        Ok(settings)
    }

    fn settings_of_other(self, own: &Path, cwd: &Path, model: &Model) -> Result<String> {
        let name = self.name();
        let folder = std::env::var_os(FOLDER).context(FOLDER)?;
        let program = Path::new(&folder).join(self.place().context("its program")?);
        let home = own.join(name);
        fs::create_dir_all(&home)?;
        let (arguments, files): (&[&str], _) = match self {
            Self::FastAgent => (&["acp"], "files = \"write\"\n"),
            Self::Copilot => (&["--acp", "--stdio"], ""),
            _ => (&["--acp", "--approval-mode", "default"], ""),
        };
        let program = program.display().to_string();
        let command = [&[program.as_str()], arguments].concat();
        let mut settings = format!(
            "[agents.{name}]\nkind = \"agent-client\"\ncommand = {}\ncwd = {}\nsandbox = \"auto\"\nwrite_paths = {}\n{files}",
            json!(command),
            json!(cwd),
            json!([home]),
        );
        let mut env = match self {
            Self::Gemini => json!({
                "GOOGLE_GEMINI_BASE_URL": model.origin(), "GEMINI_API_KEY": "none",
                // Otherwise it asks the model which model to use.
                "GEMINI_MODEL": "gemini-2.5-flash",
            }),
            Self::FastAgent => json!({
                "GENERIC_BASE_URL": model.url(), "GENERIC_API_KEY": "none",
                "FAST_AGENT_MODEL": format!("generic.{NAME}"), "FAST_AGENT_HOME": home,
            }),
            Self::Copilot => json!({
                "COPILOT_PROVIDER_BASE_URL": model.url(), "COPILOT_PROVIDER_API_KEY": "none",
                "COPILOT_MODEL": NAME, "COPILOT_OFFLINE": "true",
            }),
            _ => json!({
                "OPENAI_BASE_URL": model.url(), "OPENAI_API_KEY": "none", "OPENAI_MODEL": NAME,
            }),
        };
        env["HOME"] = json!(home);
        for (name, value) in env.as_object().context("the variables")? {
            settings.push_str(&format!("env.{name} = {value}\n"));
        }
        Ok(settings)
    }

    /// The tool call that makes this file.
    pub(super) fn makes(self, file: &Path) -> Step {
        let command = format!("touch {}", file.display());
        let shell = |tool: &str, more: Value| {
            let mut arguments = json!({"command": command, "description": "Makes a file."});
            if let (Some(members), Value::Object(more)) = (arguments.as_object_mut(), more) {
                members.extend(more);
            }
            Step::call(tool, arguments)
        };
        match self {
            Self::Adapter(adapter) => adapter.makes(&file.display().to_string()),
            Self::OpenCode => Step::call("write", json!({"filePath": file, "content": "made"})),
            Self::Gemini => shell("run_shell_command", json!({})),
            Self::Qwen => shell("run_shell_command", json!({"is_background": false})),
            // A request of the agent to the server.
            Self::FastAgent => {
                Step::call("write_text_file", json!({"path": file, "content": "made"}))
            }
            Self::Copilot => shell("bash", json!({})),
        }
    }
}
