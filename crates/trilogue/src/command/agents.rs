//! `trilogue agents`.

mod add;
pub(crate) mod entry;
mod known_agents;
mod login;
mod trace;

use clap::{Args, Subcommand};
use trilogue_sdk::client::connect;
use trilogue_wire::native::{Agent, AgentInputKind};

use super::PageArguments;
use crate::command::globals::Globals;
use crate::conversation::remote::{RemoteServer, ServerProtocol};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

/// List the agents of the server, add one, or find out what one needs.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentsCommand {
    #[command(subcommand)]
    action: Option<AgentsAction>,
    /// Show one agent with its schemas.
    agent: Option<String>,
    /// The server's protocol. `auto` asks a server at another address than the default.
    #[arg(long, value_enum, default_value_t, value_name = "PROTOCOL")]
    protocol: ServerProtocol,
    #[command(flatten)]
    page: PageArguments,
}

#[derive(Subcommand, Debug)]
enum AgentsAction {
    Known(known_agents::KnownCommand),
    Add(add::AddCommand),
    Login(login::LoginCommand),
    Trace(trace::TraceCommand),
}

// === impl AgentsCommand ===

impl AgentsCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        match &self.action {
            Some(AgentsAction::Known(known)) => return known.execute(globals).await,
            Some(AgentsAction::Add(add)) => return add.execute(globals),
            Some(AgentsAction::Login(login)) => return login.execute(globals).await,
            Some(AgentsAction::Trace(trace)) => return Box::pin(trace.execute(globals)).await,
            None => {}
        }
        let server = RemoteServer::find(globals)?;
        if server.protocol(globals, self.protocol).await == ServerProtocol::Connect {
            return self.connect(&server.connect(), globals).await;
        }
        let client = server.native();
        if let Some(name) = &self.agent {
            let agent = client.agent(name).await?;
            return if globals.json { print::json(&agent) } else { print::out(&describe(&agent)) };
        }
        let agents = client.agents(&self.page.page()).await?;
        if globals.json {
            return print::json(&agents);
        }
        let columns = ["AGENT", "TAKES", "VERSION", "DESCRIPTION"].map(TableColumn::text);
        let next = agents.next.as_deref();
        self.page.print(&agents.items, next, "no agents", &columns, |agent| {
            let description = match (&agent.unavailable, &agent.last_failure) {
                (Some(_), _) => format!("(unavailable) {}", agent.description),
                (None, Some(_)) => format!("(failed) {}", agent.description),
                (None, None) => agent.description.clone(),
            };
            [agent.name.as_str(), input_name(agent), &agent.version, &description]
                .map(safe::line)
                .to_vec()
        })?;
        if self.page.is_table() {
            agents.items.iter().for_each(|agent| note_failures(agent, globals));
        }
        Ok(())
    }

    async fn connect(&self, client: &connect::Client, globals: &Globals) -> Result {
        if let Some(name) = &self.agent {
            let agent = client.find_agent(name).await?;
            let descriptor = client.descriptor(&agent.agent_id).await?;
            return match globals.json {
                true => print::json(&descriptor),
                false => print::out(&agent_text(&agent, &descriptor)),
            };
        }
        let page = self.page.page();
        if page.after.is_some() {
            return Err(CliError::usage("--after: the Agent Connect Protocol has no cursors"));
        }
        let limit = page.limit.map(|limit| {
            connect::Limit::new(limit)
                .ok_or_else(|| CliError::usage("--limit must be from 1 to 1000"))
        });
        let request = connect::AgentSearchRequest {
            limit: limit.transpose()?,
            ..connect::AgentSearchRequest::default()
        };
        let agents = client.search_agents(&request).await?;
        if globals.json {
            return print::json(&agents);
        }
        // An agent's id has no short form: a caller needs the whole id.
        let columns = ["AGENT", "NAME", "VERSION", "DESCRIPTION"].map(TableColumn::text);
        self.page.print(&agents, None, "no agents", &columns, |agent| {
            let about = &agent.metadata;
            [&agent.agent_id, &about.reference.name, &about.reference.version, &about.description]
                .map(|text| safe::line(text))
                .to_vec()
        })
    }
}

fn agent_text(agent: &connect::Agent, descriptor: &connect::Descriptor) -> String {
    let (about, specs) = (&agent.metadata, &descriptor.specs);
    let mut text = format!(
        "{} {}\n{}\nid: {}\n",
        safe::line(&about.reference.name),
        safe::line(&about.reference.version),
        safe::block(&about.description),
        safe::line(&agent.agent_id)
    );
    let schemas = [
        ("input schema", Some(&specs.input)),
        ("output schema", Some(&specs.output)),
        ("state schema", specs.thread_state.as_ref()),
        ("configuration schema", Some(&specs.config)),
    ];
    for (name, schema) in schemas {
        if let Some(schema) = schema {
            text.push_str(&format!("{name}: {}\n", safe::visible(schema.as_str())));
        }
    }
    for interrupt in specs.interrupts.iter().flatten() {
        text.push_str(&format!("asks: {}\n", safe::line(&interrupt.interrupt_type)));
    }
    text
}

fn input_name(agent: &Agent) -> &'static str {
    match agent.input.kind {
        AgentInputKind::Chat => "messages",
        AgentInputKind::Schema => "JSON",
    }
}

/// Says why an agent does not work. Its output can have several lines.
fn note_failures(agent: &Agent, globals: &Globals) {
    let name = safe::line(&agent.name);
    if let Some(reason) = &agent.unavailable {
        print::note(&format!("{name} cannot be used now: {}", safe::line(reason)));
    }
    if let Some(failure) = &agent.last_failure {
        let (at, reason) = (safe::line(&failure.at), safe::block(&failure.reason));
        print::note(&format!("{name} failed at {at}: {reason}"));
        let elsewhere = globals.url_option();
        print::hint(&format!("correct it and run it again: `trilogue run {name}{elsewhere}`"));
    }
}

fn describe(agent: &Agent) -> String {
    let mut text = format!(
        "{} {}\n{}\ntakes: {}\n",
        safe::line(&agent.name),
        safe::line(&agent.version),
        safe::block(&agent.description),
        input_name(agent)
    );
    if let Some(reason) = &agent.unavailable {
        text.push_str(&format!("unavailable: {}\n", safe::block(reason)));
    }
    if let Some(failure) = &agent.last_failure {
        let (at, reason) = (safe::line(&failure.at), safe::block(&failure.reason));
        text.push_str(&format!("last failure: {at}: {reason}\n"));
    }
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
