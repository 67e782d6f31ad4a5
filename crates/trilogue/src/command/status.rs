//! `trilogue status`.

use clap::Args;
use trilogue::local::{ServerRecord, start};
use trilogue_sdk::client::{Filter, Page};
use trilogue_wire::native::{
    Agent, ConnectedClient, Interrupt, List, Node, Status as ServerStatus, StoreState,
};

use super::node_text;
use crate::command::globals::Globals;
use crate::command::server_command::user_server_dir;
use crate::conversation::remote;
use crate::terminal::exit::Result;
use crate::terminal::{age, print, safe};

/// Show the server: its address, store and process, its agents, who is connected, and what waits.
#[derive(Args, Debug)]
pub(crate) struct Status {}

/// Everything that the command shows.
struct Overview {
    url: String,
    /// The record of the user's own server, if it is this one.
    record: Option<ServerRecord>,
    status: ServerStatus,
    agents: List<Agent>,
    waiting: List<Interrupt>,
}

// === impl Status ===

impl Status {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let status = client.status().await?;
        if globals.json {
            return print::json(&status);
        }
        let record = start::running(&user_server_dir()?).filter(|it| it.pid == status.pid);
        let url = record.as_ref().and_then(ServerRecord::url);
        let overview = Overview {
            url: url.unwrap_or_else(|| globals.server()),
            record,
            status,
            agents: client.agents(&Page::default()).await?,
            waiting: client.interrupts(&Filter::default(), &Page::default()).await?,
        };
        print::report(&overview.render())?;
        if !overview.waiting.items.is_empty() {
            print::hint(&format!("list what waits with `trilogue inbox{}`", globals.url_option()));
        }
        Ok(())
    }
}

// === impl Overview ===

impl Overview {
    fn render(&self) -> String {
        let Self { status, agents, waiting, .. } = self;
        let ServerStatus { store, runtime, .. } = status;
        let mut lines = vec![
            ("server", self.server()),
            (
                "store",
                format!(
                    "{} ({}, {}, {}, {}, schema {})",
                    safe::line(&store.url),
                    count_text(store.threads, "thread"),
                    count_text(store.runs, "run"),
                    size(store.bytes),
                    safe::line(&status.durability),
                    store.schema_version
                ),
            ),
        ];
        if let Some(log) = self.record.as_ref().and_then(|record| record.log.as_ref()) {
            lines.push(("log", log.display().to_string()));
        }
        let names: Vec<_> = agents.items.iter().map(|agent| safe::line(&agent.name)).collect();
        let more = if agents.next.is_some() { ", …" } else { "" };
        lines.push(("agents", join_or_none(&names) + more));
        if !status.nodes.is_empty() {
            let nodes: Vec<_> = status.nodes.iter().map(node).collect();
            lines.push(("nodes", join_or_none(&nodes)));
        }
        let differences: Vec<_> = status
            .agent_differences
            .iter()
            .map(|it| safe::line(&format!("{} {}", it.agent, node_text::difference(it))))
            .collect();
        if !differences.is_empty() {
            lines.push(("agents that differ", differences.join("; ")));
        }
        let clients: Vec<_> = status.clients.iter().map(client).collect();
        lines.push(("editors", join_or_none(&clients)));
        lines.push((
            "at work",
            format!(
                "{}, {} ({} idle), {}, {}",
                count_text(runtime.running, "run"),
                count_text(status.agents.processes, "agent process"),
                status.agents.idle,
                count_text(status.connections, "HTTP connection"),
                count_text(status.streams, "stream")
            ),
        ));
        let more = if waiting.next.is_some() { "at least " } else { "" };
        let waits = count_text(waiting.items.len() as u64, "question");
        lines.push(("waiting", format!("{more}{waits}")));
        if runtime.draining {
            lines.push(("state", "shutting down".to_owned()));
        }
        if let Some(problem) = &status.store_problem {
            lines.push(("store problem", safe::line(problem)));
        }
        if store.lost_commits > 0 {
            lines.push(("store damage", lost_commits(store)));
        }
        if store.quarantined > 0 {
            lines.push(("damaged", count_text(store.quarantined, "thread")));
        }
        for name in &status.dangerously {
            lines.push(("override in force", safe::line(name)));
        }
        lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
    }

    fn server(&self) -> String {
        let starter = self.record.as_ref().map(|it| format!(" by {}", it.started_by));
        format!(
            "{} (process {}, version {}, started {}{})",
            safe::visible(&self.url),
            self.status.pid,
            safe::line(&self.status.version),
            moment(&self.status.started_at),
            starter.unwrap_or_default()
        )
    }
}

/// When it was: on a terminal, how long ago.
fn moment(time: &str) -> String {
    if !print::is_terminal() {
        return safe::line(time);
    }
    safe::line(&age::age(time, jiff::Timestamp::now()))
}

/// A number of bytes, on a terminal in a larger unit.
fn size(bytes: u64) -> String {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    match bytes {
        _ if !print::is_terminal() => format!("{bytes} bytes"),
        MIB.. => format!("{} MiB", bytes / MIB),
        KIB.. => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

fn node(node: &Node) -> String {
    let (name, open) = (safe::line(&node.name), count_text(node.open_threads, "open thread"));
    match (node.alive && !node.draining, node.this) {
        (true, false) => format!("{name} ({open})"),
        _ => format!("{name} ({}, {open})", node_text::state(node)),
    }
}

fn client(client: &ConnectedClient) -> String {
    let name = client.name.as_deref().map_or_else(|| "a program".to_owned(), safe::line);
    let version = client.version.as_deref().map(|it| format!(" {}", safe::line(it)));
    let cwd = client.cwd.as_deref().map(|it| format!(" in {}", safe::line(it)));
    let (version, cwd) = (version.unwrap_or_default(), cwd.unwrap_or_default());
    let way = match client.transport.as_str() {
        "" | "local" => String::new(),
        way => format!(" over {} as {}", safe::line(way), safe::line(&client.principal)),
    };
    let controlled = client.sessions.iter().filter(|session| session.controls).count();
    let observed = client.sessions.len() - controlled;
    let counted = |count: usize, verb: &str| match count {
        0 => String::new(),
        count => format!(", {verb} {}", count_text(count as u64, "session")),
    };
    let sessions = counted(controlled, "controls") + &counted(observed, "observes");
    format!("{name}{version} with {}{cwd}{way}{sessions}", safe::line(&client.agent))
}

pub(super) fn count_text(count: u64, noun: &str) -> String {
    let plural = match (count, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {noun}{plural}")
}

/// Formats a count with its noun and the verb.
pub(super) fn counted_are(count: u64, noun: &str) -> String {
    format!("{} {}", count_text(count, noun), if count == 1 { "is" } else { "are" })
}

fn join_or_none(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Describes the commits that a damaged write-ahead log of a store lost.
pub(super) fn lost_commits(store: &StoreState) -> String {
    let found = store.lost_at.as_deref().map(safe::line).unwrap_or_default();
    let lost = counted_are(store.lost_commits, "acknowledged change");
    let cause = if store.url.starts_with("postgres") {
        "the database failed over to a replica without them"
    } else {
        "the write-ahead log was damaged"
    };
    format!("{lost} lost: {cause} (found {found})")
}
