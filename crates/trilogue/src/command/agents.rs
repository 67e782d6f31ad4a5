//! `trilogue agents`.

use clap::Args;
use trilogue_wire::native::{Agent, AgentInputKind};

use super::PageArguments;
use crate::arguments::Globals;
use crate::exit::Result;
use crate::remote;
use crate::terminal::{print, safe};

/// List the agents.
#[derive(Args, Debug)]
pub(crate) struct Agents {
    /// Show one agent with its schemas.
    agent: Option<String>,
    #[command(flatten)]
    page: PageArguments,
}

// === impl Agents ===

impl Agents {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        if let Some(name) = &self.agent {
            let agent = client.agent(name).await?;
            return if globals.json { print::json(&agent) } else { print::out(&describe(&agent)) };
        }
        let agents = client.agents(&self.page.page()).await?;
        if globals.json {
            return print::json(&agents);
        }
        let heading = ["AGENT", "TAKES", "VERSION", "DESCRIPTION"];
        self.page.print(&agents.items, agents.next.as_deref(), &heading, |agent| {
            [agent.name.as_str(), takes(agent), &agent.version, &agent.description]
                .map(safe::line)
                .to_vec()
        })
    }
}

fn takes(agent: &Agent) -> &'static str {
    match agent.input.kind {
        AgentInputKind::Chat => "messages",
        AgentInputKind::Schema => "JSON",
    }
}

fn describe(agent: &Agent) -> String {
    let mut text = format!(
        "{} {}\n{}\ntakes: {}\n",
        safe::line(&agent.name),
        safe::line(&agent.version),
        safe::block(&agent.description),
        takes(agent)
    );
    let schemas = [
        ("input schema", &agent.input.schema),
        ("output schema", &agent.output_schema),
        ("state schema", &agent.state_schema),
        ("configuration schema", &agent.config_schema),
    ];
    for (name, schema) in schemas {
        if let Some(schema) = schema {
            text.push_str(&format!("{name}: {}\n", safe::visible(schema.as_str())));
        }
    }
    for interrupt in &agent.interrupts {
        text.push_str(&format!("asks: {}\n", safe::line(&interrupt.kind)));
    }
    text
}
