//! What connects an editor to an agent of the server: a piece of its configuration.
//!
//! The forms are those of the editors' own documentation.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use trilogue::find_program;
use trilogue::local::start;

use crate::command::demo::shell_word;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::{print, style};

/// The agent that an editor is connected to, and the program that connects it.
#[derive(Debug)]
pub(crate) struct EditorAgent {
    program: String,
    agent: String,
}

/// An editor or a plugin of one.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EditorChoice {
    /// Zed.
    Zed,
    /// IntelliJ IDEA, PyCharm and the others, with AI Assistant.
    Jetbrains,
    /// Neovim with CodeCompanion.
    #[value(alias = "neovim", alias = "nvim")]
    Codecompanion,
    /// Neovim with avante.
    Avante,
    /// Emacs with agent-shell.
    #[value(alias = "agent-shell")]
    Emacs,
    /// marimo notebooks.
    Marimo,
    /// All of these.
    All,
}

const ZED_MEMBERS: &str = "      \"type\": \"custom\",\n";

/// Programs that show that an editor is installed.
const JETBRAINS: [&str; 8] =
    ["idea", "pycharm", "webstorm", "goland", "clion", "phpstorm", "rubymine", "rustrover"];

// === impl EditorAgent ===

impl EditorAgent {
    /// Makes the entry of an agent that starts through this program, by its full path: editors often have
    /// another search path than a shell.
    pub(crate) fn of_this_program(agent: &str) -> Result<Self> {
        let program = start::this_program().map_err(|error| {
            CliError::failure(format!("cannot find this program's own file: {error}"))
        })?;
        Ok(Self::new(&program, agent))
    }

    pub(crate) fn new(program: &Path, agent: &str) -> Self {
        Self { program: program.display().to_string(), agent: agent.to_owned() }
    }

    /// The member of `agent_servers` for this agent, with further members of its own.
    fn agent_server(&self, members: &str) -> String {
        let (program, agent) = (quoted(&self.program), quoted(&self.agent));
        format!(
            "    {agent}: {{\n{members}      \"command\": {program},\n      \"args\": [\"connect\", {agent}]\n    }}"
        )
    }

    /// The member of `agent_servers` in Zed's settings, in one line.
    pub(crate) fn zed_entry(&self) -> String {
        on_one_line(&self.agent_server(ZED_MEMBERS))
    }

    fn zed(&self) -> String {
        agent_servers(&self.agent_server(ZED_MEMBERS))
    }

    fn jetbrains(&self) -> String {
        agent_servers(&self.agent_server(""))
    }

    fn codecompanion(&self) -> String {
        let (program, agent) = (quoted(&self.program), quoted(&self.agent));
        format!(
            "require(\"codecompanion\").setup({{\n  adapters = {{\n    acp = {{\n      trilogue = function()\n        return require(\"codecompanion.adapters\").extend(\"goose\", {{\n          name = \"trilogue\",\n          formatted_name = \"Trilogue\",\n          commands = {{ default = {{ {program}, \"connect\", {agent} }} }},\n        }})\n      end,\n    }},\n  }},\n  interactions = {{ chat = {{ adapter = \"trilogue\" }} }},\n}})\n"
        )
    }

    fn avante(&self) -> String {
        let (program, agent) = (quoted(&self.program), quoted(&self.agent));
        format!(
            "require(\"avante\").setup({{\n  provider = \"trilogue\",\n  acp_providers = {{\n    [\"trilogue\"] = {{\n      command = {program},\n      args = {{ \"connect\", {agent} }},\n    }},\n  }},\n}})\n"
        )
    }

    fn emacs(&self) -> String {
        let (program, agent) = (quoted(&self.program), quoted(&self.agent));
        format!(
            "(with-eval-after-load 'agent-shell\n  (add-to-list 'agent-shell-agent-configs\n    (agent-shell-make-agent-config\n     :identifier 'trilogue\n     :mode-line-name \"Trilogue\"\n     :buffer-name \"Trilogue\"\n     :shell-prompt \"Trilogue> \"\n     :shell-prompt-regexp \"Trilogue> \"\n     :client-maker\n     (lambda (buffer)\n       (acp-make-client\n        :command {program}\n        :command-params '(\"connect\" {agent})\n        :context-buffer buffer)))))\n"
        )
    }

    fn marimo(&self) -> String {
        let command = format!("{} connect {}", shell_word(Path::new(&self.program)), self.agent);
        // Inside of double quotes a shell reads these.
        let command = ['\\', '"', '$', '`']
            .iter()
            .fold(command, |text, sign| text.replace(*sign, &format!("\\{sign}")));
        format!("npx stdio-to-ws \"{command}\" --port 3019\n")
    }
}

// === impl EditorChoice ===

impl EditorChoice {
    const EACH: [Self; 6] =
        [Self::Zed, Self::Jetbrains, Self::Codecompanion, Self::Avante, Self::Emacs, Self::Marimo];

    /// Prints the editor's settings, and the place for them.
    pub(super) fn print(self, agent: &EditorAgent) -> Result {
        let (place, text) = match self {
            Self::Zed => ("Zed: add to ~/.config/zed/settings.json", agent.zed()),
            Self::Jetbrains => {
                ("JetBrains AI Assistant: add to ~/.jetbrains/acp.json", agent.jetbrains())
            }
            Self::Codecompanion => {
                ("Neovim with CodeCompanion: add to your setup", agent.codecompanion())
            }
            Self::Avante => ("Neovim with avante: add to your setup", agent.avante()),
            Self::Emacs => ("Emacs with agent-shell: add to your init file", agent.emacs()),
            Self::Marimo => (
                "marimo: run this, and choose Gemini in its agent panel, whose place the agent takes",
                agent.marimo(),
            ),
            Self::All => return Self::EACH.into_iter().try_for_each(|editor| editor.print(agent)),
        };
        print::note(&style::bold(place));
        print::out(&text)
    }

    /// Whether it seems to be installed.
    fn is_found(self) -> bool {
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let path = std::env::var("PATH").ok();
        let has = |program: &&str| find_program(program, &home, path.as_deref()).is_some();
        match self {
            Self::Zed => ["zed", "zeditor"].iter().any(has),
            Self::Jetbrains => home.join(".jetbrains").is_dir() || JETBRAINS.iter().any(has),
            // Which of the two plugins is used is not known.
            Self::Codecompanion => has(&"nvim"),
            Self::Emacs => has(&"emacs"),
            Self::Marimo => has(&"marimo"),
            Self::Avante | Self::All => false,
        }
    }
}

/// Prints the settings of the installed editors; those of Zed if none is found.
pub(super) fn print_found(agent: &EditorAgent) -> Result {
    let found: Vec<_> = EditorChoice::EACH.into_iter().filter(|editor| editor.is_found()).collect();
    let shown = if found.is_empty() { &[EditorChoice::Zed][..] } else { &found };
    for editor in shown {
        print::note("");
        editor.print(agent)?;
    }
    print::note("");
    let names: Vec<_> = EditorChoice::value_variants()
        .iter()
        .filter(|it| **it != EditorChoice::All && !shown.contains(it))
        .collect();
    let names = names.iter().filter_map(|editor| editor.to_possible_value());
    let names: Vec<_> = names.map(|value| value.get_name().to_owned()).collect();
    print::hint(&format!(
        "`trilogue init --editor all` has the others, and --editor takes one of {}",
        names.join(", ")
    ));
    Ok(())
}

/// The settings of an editor that reads `agent_servers`.
fn agent_servers(entry: &str) -> String {
    format!("{{\n  \"agent_servers\": {{\n{entry}\n  }}\n}}\n")
}

/// An entry of JSON in one line.
fn on_one_line(text: &str) -> String {
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    text.replace("{ ", "{").replace(" }", "}")
}

/// A text as JSON, Lua and Emacs Lisp write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
