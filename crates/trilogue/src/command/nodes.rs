//! `trilogue nodes`.

use std::time::Duration;

use clap::{Args, Subcommand};
use trilogue_sdk::client::Client;
use trilogue_wire::native::{Node, Status};

use super::node_text;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::terminal::exit::Result;
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

const COLUMNS: [TableColumn; 6] = [
    TableColumn::text("NODE"),
    TableColumn::text("STATE"),
    TableColumn::text("OPEN THREADS"),
    TableColumn::text("ADDRESS"),
    TableColumn::text("VERSION"),
    TableColumn::text("AGENTS"),
];

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// List the servers that share the store, or take one out.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodesCommand {
    #[command(subcommand)]
    action: Option<NodesAction>,
}

#[derive(Subcommand, Debug)]
enum NodesAction {
    /// Have a server hand its threads over to the others, before you stop it.
    ///
    /// A thread moves as soon as it has nothing to do, so no run is cut short. The server sends what it is asked for to the others.
    Drain(Drain),
}

#[derive(Args, Debug)]
struct Drain {
    /// The server's name, from `trilogue nodes`.
    name: String,
    /// Have it take threads again instead.
    #[arg(long)]
    undo: bool,
    /// Return at once instead of waiting until its last run has ended.
    #[arg(long, conflicts_with = "undo")]
    no_wait: bool,
}

// === impl NodesCommand ===

impl NodesCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        if let Some(NodesAction::Drain(drain)) = &self.action {
            return drain.execute(&client, globals).await;
        }
        let Status { nodes, agent_differences, .. } = client.status().await?;
        if globals.json {
            return print::json(&nodes);
        }
        if nodes.is_empty() {
            print::note("one server holds the store");
            print::hint(
                "several servers can share a store in PostgreSQL: see [cluster] in the configuration",
            );
            return Ok(());
        }
        let rows: Vec<Vec<String>> = nodes
            .iter()
            .map(|node| {
                let open = node.open_threads.to_string();
                let agents = match node.agents.is_empty() {
                    true => "-".to_owned(),
                    false => safe::line(&node.agents.join(", ")),
                };
                let [name, address, version] =
                    [&node.name, &node.address, &node.version].map(|text| safe::line(text));
                vec![name, node_text::state(node), open, address, version, agents]
            })
            .collect();
        print::table(&COLUMNS, &rows)?;
        for found in &agent_differences {
            let difference = node_text::difference(found);
            print::note(&safe::line(&format!("agent {}: {difference}", found.agent)));
        }
        if !agent_differences.is_empty() {
            print::hint("give all servers the same agents");
        }
        Ok(())
    }
}

// === impl Drain ===

impl Drain {
    async fn execute(&self, client: &Client, globals: &Globals) -> Result {
        let mut node = match self.undo {
            true => client.undrain_node(&self.name).await?,
            false => client.drain_node(&self.name).await?,
        };
        if !self.undo && !self.no_wait {
            node = self.wait(client, node).await?;
        }
        if globals.json {
            return print::json(&node);
        }
        let name = safe::line(&node.name);
        if self.undo {
            return print::out(&format!("{name}: takes threads\n"));
        }
        print::out(&format!("{name}: draining, {} open threads\n", node.open_threads))?;
        print::hint("it stays so until it is started again, or `trilogue nodes drain NAME --undo`");
        Ok(())
    }

    /// Waits until no thread of the node has an open run. A node that is gone has none.
    async fn wait(&self, client: &Client, mut node: Node) -> Result<Node> {
        let mut told = None;
        while node.open_threads > 0 && node.alive && node.draining {
            if told != Some(node.open_threads) {
                print::note(&format!("waiting for {} threads at work", node.open_threads));
                told = Some(node.open_threads);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            let nodes = client.nodes().await?.items;
            let Some(found) = nodes.into_iter().find(|found| found.name == self.name) else {
                node.open_threads = 0;
                break;
            };
            node = found;
        }
        Ok(node)
    }
}
