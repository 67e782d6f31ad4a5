//! The real program under real-world faults: killed, with a full or failing disk, with damaged files, started twice.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "functions that tests share fail as tests do, and print their seeds"
)]

mod agent_network;
mod bridge;
mod bridge_chaos;
mod bridge_communication;
mod bridge_connect;
mod bridge_matrix;
mod bridge_official;
mod bridge_provenance;
mod bridge_resources;
mod client_chaos;
mod client_coding;
mod client_kill;
mod client_large;
mod client_official;
mod client_official_network;
mod clock_jumps;
mod cluster;
mod cluster_agents;
mod cluster_chaos;
mod cluster_client;
mod cluster_clock;
mod cluster_editor;
mod cluster_fencing;
mod cluster_history;
mod cluster_marks;
mod cluster_moves;
mod cluster_outage;
mod cluster_pauses;
mod cluster_rolling;
mod communication_kill;
mod connect_fuzz;
mod connect_kill;
mod connect_states;
mod copy_cut;
mod database_outage;
mod disk;
mod flip;
mod input_memory;
mod kill_rounds;
mod kill_runs;
mod ledger;
mod long_thread;
mod lost_log;
mod native_kill;
mod newest_agents;
mod official_clients;
mod power_cut;
mod probe;
mod process;
mod remote_servers;
mod sandbox;
mod schema;
mod soak;
mod stream_resume;
mod stream_subjects;
mod traces;

use serde_json::{Value, json};
use trilogue_testkit::{Client, Reply};

/// A request for a run of an agent on a thread, which is created if it is missing.
fn run_of(agent: &str, thread: &str, input: &Value, mode: &str) -> Value {
    json!({
        "agent": agent, "thread_id": thread, "create_thread": true, "input": input, "mode": mode,
    })
}

async fn echo(client: &Client, thread: &str, text: &str) -> Reply {
    client.post("/api/v1/runs", &run_of("echo", thread, &json!(text), "wait")).await.unwrap()
}

/// All events of a thread, page by page.
async fn events(client: &Client, thread: &str) -> anyhow::Result<Vec<Value>> {
    let mut all: Vec<Value> = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/threads/{thread}/events?limit=1000{after}");
        let page = client.get(&path).await?.ok()?;
        for mut event in page["items"].as_array().cloned().unwrap_or_default() {
            // Removes the id: it counts run numbers on a run's stream and thread numbers here.
            event.as_object_mut().map(|members| members.remove("id"));
            all.push(event);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}
