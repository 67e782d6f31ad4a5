//! The adapters: their settings, and what makes each of them do what is checked.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
use serde_json::json;
use trilogue_testkit::model::{Model, NAME, Step};
use trilogue_testkit::official::adapter;
use trilogue_testkit::until;

use super::{ANSWER, CHILD_ANSWER, Check, DONE, LIMIT, PLAN, Place, REPORT};

/// An adapter under test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Adapter {
    Claude,
    Codex,
}

// === impl Adapter ===

impl Adapter {
    pub(super) const ALL: [Self; 2] = [Self::Claude, Self::Codex];

    /// Its name among the known agents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// The name of the agent that plans first.
    pub(super) fn planner(self) -> String {
        format!("{}-planner", self.name())
    }

    /// The settings of both agents, with the variables that lead the adapter to the model.
    pub(super) fn settings(self, own: &Path, cwd: &Path, model: &Model) -> Result<String> {
        let (working, planning) = match self {
            Self::Claude => ("mode = \"default\"", "mode = \"plan\""),
            Self::Codex => ("mode = \"read-only\"", "options = { collaboration_mode = \"plan\" }"),
        };
        let planner = self.planner();
        let agents = [(self.name(), working), (planner.as_str(), planning)];
        let agents = agents.map(|(name, start)| self.settings_of(name, start, own, cwd, model));
        agents.into_iter().collect()
    }

    fn settings_of(
        self,
        name: &str,
        start: &str,
        own: &Path,
        cwd: &Path,
        model: &Model,
    ) -> Result<String> {
        let own = own.join(name);
        fs::create_dir_all(&own)?;
        let home = own.display().to_string();
        let env = match self {
            Self::Claude => json!({
                "HOME": home, "ANTHROPIC_BASE_URL": model.origin(), "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                // Otherwise it refuses to start for root, which tests in a container are.
                "IS_SANDBOX": "1",
            }),
            Self::Codex => {
                let config = format!(
                    "model = \"{NAME}\"\nmodel_provider = \"local\"\n[model_providers.local]\nname = \"Local\"\n\
                     base_url = \"{}\"\nenv_key = \"LOCAL_KEY\"\nwire_api = \"responses\"\n",
                    model.url()
                );
                fs::write(own.join("config.toml"), config)?;
                json!({
                    "HOME": home, "CODEX_HOME": home, "LOCAL_KEY": "none", "NO_BROWSER": "1",
                    "INITIAL_AGENT_MODE": "read-only",
                })
            }
        };
        // Neither adapter reports when its background work ends. The checks end it themselves.
        let mut settings = format!(
            "[agents.{name}]\nkind = \"agent-client\"\ncommand = {}\ncwd = {}\n{start}\nbackground_quiet = \"1h\"\nsandbox = \"auto\"\nwrite_paths = [{home:?}]\n",
            json!([self.program()?]),
            json!(cwd)
        );
        for (name, value) in env.as_object().context("the variables")? {
            settings.push_str(&format!("env.{name} = {value}\n"));
        }
        Ok(settings)
    }

    fn program(self) -> Result<PathBuf> {
        match self {
            Self::Claude => adapter("claude", "claude-agent-acp"),
            Self::Codex => adapter("codex", "codex-acp"),
        }
    }

    /// Makes the model answer the prompt of a check.
    pub(super) fn script(self, model: &Model, place: &Place) {
        let (prompt, file) = (place.prompt(), self.makes(&place.file_name()));
        match place.check {
            Check::Text => model.script(&prompt, [Step::text(DONE)]),
            Check::Question => model.script(&prompt, [file, Step::text(DONE)]),
            Check::Cancel => model.script(&prompt, [Step::text(DONE).behind(&prompt)]),
            Check::Subagent => {
                model.script(&prompt, [self.delegates(&place.task()), Step::text(ANSWER)]);
                model.script(&place.task(), [file, Step::text(CHILD_ANSWER)]);
            }
            Check::Plan => self.script_plan(model, &prompt),
            Check::Background | Check::CancelBackground | Check::Kill => {
                model.script(&prompt, [self.starts_task(place), Step::text(ANSWER)]);
                let report = file.with_text(REPORT).behind(&place.task());
                model.script(&place.task(), self.task_steps(place, report));
            }
        }
    }

    /// Each one asks before it runs this command.
    pub(super) fn makes(self, file: &str) -> Step {
        let command = format!("touch {file}");
        match self {
            Self::Claude => {
                Step::call("Bash", json!({"command": command, "description": "Makes a file."}))
            }
            Self::Codex => Step::call(
                "exec_command",
                json!({"cmd": command, "sandbox_permissions": "require_escalated", "justification": "Makes a file."}),
            ),
        }
    }

    fn delegates(self, task: &str) -> Step {
        match self {
            Self::Claude => Step::call(
                "Agent",
                json!({"description": "Helps", "prompt": task, "subagent_type": "general-purpose"}),
            ),
            Self::Codex => Step::call(
                "multi_agent_v1/spawn_agent",
                json!({"message": task, "agent_type": "worker"}),
            ),
        }
    }

    fn script_plan(self, model: &Model, prompt: &str) {
        match self {
            Self::Claude => {
                let plan = Step::call("ExitPlanMode", json!({"plan": PLAN})).deferred();
                model.script(prompt, [plan, Step::text(DONE)]);
            }
            Self::Codex => {
                let plan = format!("<proposed_plan>\n{PLAN}\n</proposed_plan>");
                model.script(prompt, [Step::text(&plan)]);
                model.script("Implement the approved plan.", [Step::text(DONE)]);
            }
        }
    }

    /// Claude Code runs a command in the background, and continues when it ends. Codex continues after its answer until it has reached its goal.
    fn starts_task(self, place: &Place) -> Step {
        match self {
            Self::Claude => Step::call(
                "Bash",
                json!({
                    "command": format!("cat {}", place.pipe_name()), "description": place.task(),
                    "run_in_background": true,
                }),
            ),
            Self::Codex => Step::call("create_goal", json!({"objective": place.task()})),
        }
    }

    /// What the model answers after the answer to the prompt.
    fn task_steps(self, place: &Place, report: Step) -> Vec<Step> {
        match self {
            Self::Claude => vec![report, Step::text(DONE)],
            Self::Codex => vec![
                // Codex continues at once. Without this, its report is late output of the answer.
                Step::call("get_goal", json!({})).behind(&place.pipe_name()),
                report,
                Step::call("update_goal", json!({"status": "complete"})),
                Step::text(DONE),
            ],
        }
    }

    /// Prepares the folder for a background task.
    pub(super) fn prepare_task(self, cwd: &Path, place: &Place) -> Result<()> {
        match self {
            Self::Claude => {
                Ok(mkfifoat(CWD, cwd.join(place.pipe_name()), Mode::RUSR | Mode::WUSR)?)
            }
            Self::Codex => Ok(()),
        }
    }

    /// Makes a background task report, after the answer.
    pub(super) async fn lets_report(self, model: &Model, cwd: &Path, place: &Place) -> Result<()> {
        let pipe = cwd.join(place.pipe_name());
        match self {
            // The pipe can be opened once its reader is there. The reader ends when it is closed.
            Self::Claude => {
                until("the command to read", LIMIT, || async {
                    open(&pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).ok().map(drop)
                })
                .await
            }
            Self::Codex => {
                model.open(&place.pipe_name());
                Ok(())
            }
        }
    }
}
