//! Agents that are programs of their own, by their settings.

use std::path::Path;
use std::sync::Arc;

use trilogue_backends::AgentClient;
use trilogue_backends::agent_client::{self, Launch};
use trilogue_backends::child::Children;
use trilogue_backends::permission::{Rule, RuleText, Rules};
use trilogue_backends::workspace::{CwdTemplate, Folders, Grants};
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error, Json};
use trilogue_mapping::connect;
use trilogue_wire::agent_client::ToolKind;

use super::of_setting;
use crate::config::{self, AgentKind, OnRewind};

/// An agent that speaks the Agent Client Protocol.
///
/// # Errors
/// `invalid_request`, naming the setting that cannot work.
pub(super) fn build(
    name: &AgentName,
    agent: &config::Agent,
    descriptor: Option<&Json>,
    children: &Arc<Children>,
) -> Result<AgentClient> {
    let mut card = agent_client::card(name.clone(), agent.description.clone().unwrap_or_default());
    if let Some(written) = descriptor {
        card = connect::card(written, card).map_err(|error| of_setting(name, &error))?;
    }
    let rules = rules(name, agent)?;
    AgentClient::new(card, launch(name, agent)?, Arc::clone(children), rules)
}

/// An agent's permission rules.
///
/// # Errors
/// `invalid_request`, naming the rule that is none.
pub(super) fn rules(name: &AgentName, agent: &config::Agent) -> Result<Arc<Rules>> {
    let wrong = |why: String| {
        let message = format!("`agents.{name}.permissions`: {why}");
        Error::new(Code::InvalidRequest, message)
    };
    let mut rules = Vec::new();
    for (number, permission) in (1..).zip(&agent.permissions) {
        let called = permission.name.clone().unwrap_or_else(|| format!("rule {number}"));
        let kinds = permission.kind.as_ref().map(|kinds| kinds.0.clone());
        if agent.kind == AgentKind::AgentClient {
            for kind in kinds.iter().flatten() {
                check_kind(kind)
                    .map_err(|why| wrong(format!("the rule '{}' {why}", called.escape_debug())))?;
            }
        }
        let text = RuleText {
            name: called,
            kinds,
            tool: permission.tool.clone(),
            path: permission.path.clone(),
            verdict: permission.decision.into(),
        };
        rules.push(Rule::new(text).map_err(|error| wrong(error.to_string()))?);
    }
    Ok(Arc::new(Rules::new(rules).map_err(|error| wrong(error.to_string()))?))
}

/// A kind of tool that the protocol does not have would never fit.
fn check_kind(kind: &str) -> Result<(), String> {
    let known: Vec<_> = ToolKind::ALL.iter().map(|kind| kind.as_str()).collect();
    if known.contains(&kind) {
        return Ok(());
    }
    let shown = kind.escape_debug();
    Err(match config::nearest(kind, &known) {
        Some(near) => format!("names the kind `{shown}`, did you mean `{near}`?"),
        None => format!("names the kind `{shown}`; there are: {}", known.join(", ")),
    })
}

fn launch(name: &AgentName, agent: &config::Agent) -> Result<Launch> {
    let wrong = |key: &str, why: &str| {
        Error::new(Code::InvalidRequest, format!("`agents.{name}.{key}`: {why}"))
    };
    let Some(program) = agent.command.0.first().filter(|program| !program.is_empty()) else {
        return Err(wrong("command", "it is needed, and names a program").hint(
            "set command to the program and its arguments, such as [\"some-agent\", \"acp\"]",
        ));
    };
    // No shell reads it, and hardly any program is called so.
    if agent.command.0.len() == 1
        && program.contains(char::is_whitespace)
        && !Path::new(program).exists()
    {
        let words: Vec<_> = program.split_whitespace().map(|word| format!("{word:?}")).collect();
        return Err(wrong("command", "it has a program and its arguments in one text")
            .hint(format!("write command = [{}]", words.join(", "))));
    }
    if agent.max_processes == 0 {
        return Err(wrong("max_processes", "it would never run").hint("set it to at least 1"));
    }
    if agent.max_sessions == 0 {
        return Err(
            wrong("max_sessions", "nothing could be said to it").hint("set it to at least 1")
        );
    }
    if agent.max_line.0 < MIN_LINE_BYTES {
        let hint = format!("set it to at least {}KiB", MIN_LINE_BYTES / 1024);
        return Err(wrong("max_line", "hardly any message would fit").hint(hint));
    }
    if let Some(key) = agent
        .env
        .keys()
        .chain(&agent.inherit.0)
        .find(|key| key.is_empty() || key.contains(['=', '\0']))
    {
        let why = format!("'{}' is no name of a variable", key.escape_debug());
        return Err(wrong("env", &why).hint("a name is not empty and has no '='"));
    }
    let env = agent.env.iter().map(|(key, value)| (key.clone(), value.0.clone()));
    Ok(Launch {
        folders: folders(name, agent)?,
        env: env.collect(),
        inherit: agent.inherit.0.clone(),
        processes: agent.processes.into(),
        max_processes: agent.max_processes,
        max_sessions: agent.max_sessions,
        idle_stop: agent.idle(),
        start_timeout: agent.start_timeout.0,
        open_timeout: agent.open_timeout.0,
        max_line_bytes: agent.max_line.to_usize(),
        grants: Grants {
            files: agent.files.into(),
            terminals: agent.terminals,
            ..Grants::default()
        },
        client_tools: agent.client_tools.into(),
        auth_method: agent.auth_method.clone(),
        hold: agent.hold,
        primes_on_rewind: agent.on_rewind == OnRewind::Prime,
        assign_message_ids: agent.assign_message_ids,
        send_message_id: agent.send_message_id,
        client_meta: agent.client_meta.into(),
        ..Launch::of(agent.command.0.iter().cloned())
    })
}

/// The smallest bound on a line, in bytes.
const MIN_LINE_BYTES: u64 = 64 * 1024;

/// Where its threads work, where the settings say that.
fn folders(name: &AgentName, agent: &config::Agent) -> Result<Option<Folders>> {
    let named = |key: &str, error: &Error| {
        let message = format!("`agents.{name}.{key}`: {}", error.message());
        let hint = error.hint_text().unwrap_or_default().to_owned();
        Error::new(Code::InvalidRequest, message).hint(hint)
    };
    let Some(cwd) = &agent.cwd else {
        if agent.worktree.is_some() {
            let error = Error::new(Code::InvalidRequest, "a worktree needs a place")
                .hint("set cwd too, such as \"work/{thread}\"");
            return Err(named("worktree", &error));
        }
        return Ok(None);
    };
    let template = CwdTemplate::parse(cwd).map_err(|error| named("cwd", &error))?;
    let repository = agent.worktree.as_deref().map(Path::new);
    let made = Folders::new(Path::new("."), template, repository, name);
    made.map(Some).map_err(|error| named("worktree", &error))
}

#[cfg(test)]
mod tests;
