//! `trilogue nodes`.

use clap::Args;
use trilogue_wire::native::Status;

use super::node_text;
use crate::exit::Result;
use crate::globals::Globals;
use crate::remote;
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

/// List the servers that share the store.
#[derive(Args, Debug)]
pub(crate) struct NodesCommand {}

// === impl NodesCommand ===

impl NodesCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let Status { nodes, agent_differences, .. } = remote::open(globals)?.status().await?;
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
