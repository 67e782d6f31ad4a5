//! `trilogue nodes`.

use clap::Args;

use crate::exit::Result;
use crate::globals::Globals;
use crate::remote;
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

const COLUMNS: [TableColumn; 5] = [
    TableColumn::text("NODE"),
    TableColumn::text("STATE"),
    TableColumn::text("OPEN THREADS"),
    TableColumn::text("ADDRESS"),
    TableColumn::text("VERSION"),
];

/// List the servers that share the store.
#[derive(Args, Debug)]
pub(crate) struct NodesCommand {}

// === impl NodesCommand ===

impl NodesCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let nodes = remote::open(globals)?.status().await?.nodes;
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
                let state = match (node.this, node.alive) {
                    (true, _) => "this one".to_owned(),
                    (false, true) => "alive".to_owned(),
                    (false, false) => format!("silent for {} s", node.silent_ms / 1_000),
                };
                let open = node.open_threads.to_string();
                let [name, address, version] =
                    [&node.name, &node.address, &node.version].map(|text| safe::line(text));
                vec![name, state, open, address, version]
            })
            .collect();
        print::table(&COLUMNS, &rows)
    }
}
