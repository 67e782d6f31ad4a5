//! `trilogue status`.

use clap::Args;
use trilogue_wire::native;

use crate::exit::Result;
use crate::globals::Globals;
use crate::remote;
use crate::terminal::{print, safe};

/// Show the state of the server.
#[derive(Args, Debug)]
pub(crate) struct Status {}

// === impl Status ===

impl Status {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let status = remote::open(globals)?.status().await?;
        if globals.json { print::json(&status) } else { print::out(&render(&status)) }
    }
}

fn render(status: &native::Status) -> String {
    let native::Status { store, runtime, .. } = status;
    let mut text = format!(
        "version: {}\nstarted: {}\ndurability: {}\n",
        safe::line(&status.version),
        safe::line(&status.started_at),
        safe::line(&status.durability)
    );
    text.push_str(&format!(
        "store: {} threads, {} runs, {} bytes, schema {}\n",
        store.threads, store.runs, store.bytes, store.schema_version
    ));
    text.push_str(&format!(
        "now: {} runs at work, {} processes of agents ({} idle), {} connections, {} streams\n",
        runtime.running,
        status.agents.processes,
        status.agents.idle,
        status.connections,
        status.streams
    ));
    if runtime.draining {
        text.push_str("state: shutting down\n");
    }
    if let Some(problem) = &status.store_problem {
        text.push_str(&format!("store problem: {}\n", safe::line(problem)));
    }
    if store.quarantined > 0 {
        text.push_str(&format!("damaged threads: {}\n", store.quarantined));
    }
    for name in &status.dangerously {
        text.push_str(&format!("override in force: {}\n", safe::line(name)));
    }
    text
}
