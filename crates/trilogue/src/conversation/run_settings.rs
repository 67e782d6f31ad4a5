//! The settings of a run that have flags of their own: the agent's mode, model and options, and permission rules.

use clap::Args;
use serde_json::{Map, Value, json};
use trilogue::config::nearest;
use trilogue_wire::agent_client::ToolKind;
use trilogue_wire::native::Json;

use crate::terminal::exit::{CliError, Result};
use crate::terminal::safe;

/// Settings of the agent, and what it may do without a question.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingArguments {
    /// Settings of the agent for this run.
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// The agent's mode, by its id or name.
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The agent's model, by its id or name.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// A value of one of the agent's options. May be given several times.
    #[arg(long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Allow these kinds of tools without a question: read, edit, delete, move, search, execute, think, fetch, switch_mode or other. Configured rules come first.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    allow: Vec<String>,
    /// Deny these kinds of tools. It counts before --allow and --yes-to.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    deny: Vec<String>,
    /// Allow the tool with this name without a question; `*` matches anything. May be given several times.
    #[arg(long, value_name = "TOOL")]
    yes_to: Vec<String>,
}

// === impl SettingArguments ===

impl SettingArguments {
    /// Allows these kinds of tools without a question.
    pub(crate) fn allowing(kinds: &[String]) -> Self {
        Self { allow: kinds.to_vec(), ..Self::default() }
    }

    /// The configuration of the run, with the folder in which the agent works.
    pub(crate) fn config(&self, folder: Option<String>) -> Result<Option<Json>> {
        let mut members = Map::new();
        members.extend(folder.map(|folder| ("cwd".to_owned(), folder.into())));
        let named = [("mode", &self.mode), ("model", &self.model)];
        for (name, value) in named {
            members.extend(value.clone().map(|value| (name.to_owned(), value.into())));
        }
        for option in &self.options {
            let (name, value) = option.split_once('=').ok_or_else(|| {
                CliError::usage(format!("--option {}: '=' is missing", safe::visible(option)))
                    .hint("write --option NAME=VALUE")
            })?;
            let value = match value {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                text => text.into(),
            };
            members.insert(name.to_owned(), value);
        }
        let rules = self.rules()?;
        if !rules.is_empty() {
            members.insert("permissions".to_owned(), rules.into());
        }
        let config =
            self.config.as_deref().map(|text| crate::command::globals::json("--config", text));
        let Some(config) = config.transpose()? else {
            return Ok(Some(members).filter(|it| !it.is_empty()).map(|it| object(&it)));
        };
        if members.is_empty() {
            return Ok(Some(config));
        }
        let mut whole: Map<String, Value> =
            serde_json::from_str(config.as_str()).map_err(|_| {
                CliError::usage(
                    "--config has to be a JSON object beside other settings of the agent",
                )
            })?;
        // A default folder gives way to one that the caller sets.
        for (name, value) in members {
            whole.entry(name).or_insert(value);
        }
        Ok(Some(object(&whole)))
    }

    /// The rules, in the order in which they count.
    fn rules(&self) -> Result<Vec<Value>> {
        let mut rules = Vec::new();
        for (flag, kinds, decision) in
            [("--deny", &self.deny, "deny"), ("--allow", &self.allow, "allow")]
        {
            for kind in kinds {
                check_kind(flag, kind)?;
            }
            if !kinds.is_empty() {
                let name = format!("{flag} {}", kinds.join(","));
                rules.push(json!({ "name": name, "kind": kinds, "decision": decision }));
            }
        }
        for tool in &self.yes_to {
            let name = format!("--yes-to {tool}");
            rules.push(json!({ "name": name, "tool": tool, "decision": "allow" }));
        }
        Ok(rules)
    }
}

fn object(members: &Map<String, Value>) -> Json {
    Json::from_value(&Value::Object(members.clone()))
}

fn check_kind(flag: &str, kind: &str) -> Result {
    let known: Vec<_> = ToolKind::ALL.iter().map(|kind| kind.as_str()).collect();
    if known.contains(&kind) {
        return Ok(());
    }
    let message = format!("{flag}: unknown kind of tools '{}'", safe::visible(kind));
    let hint = match nearest(kind, &known) {
        Some(near) => format!("did you mean {near}? A tool by its name: --yes-to TOOL"),
        None => format!("there are: {}. A tool by its name: --yes-to TOOL", known.join(", ")),
    };
    Err(CliError::usage(message).hint(hint))
}
