//! Agents of nodes that die or pause: the next owner of their threads works in the same folder, but never at the same time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use trilogue_testkit::{Folder, until};

use crate::client_official::scripted;
use crate::cluster::{Cluster, NAMES};
use crate::{events, run_of};

const LIMIT: Duration = Duration::from_secs(60);
const THREAD: &str = "shared";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeFault {
    Kill,
    Pause,
    /// The outer process of the agent's sandbox gets this signal, and the node works on.
    Stage(Signal),
}

/// Where the nodes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Machines {
    /// Agents have no sandbox: the next node kills those of the earlier one.
    One,
    /// The sandbox of an agent must keep it from working on.
    Several,
}

/// The process ids of the agents, and the times of their first and last writes into the folder in nanoseconds, by names that they gave themselves.
type Writers = BTreeMap<String, (u32, u128, u128)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_killed_node_does_not_write_beside_the_next_one() {
    write_in_turn(NodeFault::Kill, Machines::One).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_node_that_stands_still_does_not_write_beside_the_next_one() {
    write_in_turn(NodeFault::Pause, Machines::One).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_killed_node_of_another_machine_ends() {
    write_in_turn(NodeFault::Kill, Machines::Several).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_node_of_another_machine_stands_still_with_it() {
    write_in_turn(NodeFault::Pause, Machines::Several).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_its_stage_does_not_write_beside_the_next_one() {
    write_in_turn(NodeFault::Stage(Signal::KILL), Machines::Several).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_stage_stands_still_does_not_write_beside_the_next_one() {
    write_in_turn(NodeFault::Stage(Signal::STOP), Machines::Several).await;
}

async fn write_in_turn(fault: NodeFault, machines: Machines) {
    let (store, shared) = (Folder::new().unwrap(), Folder::new().unwrap());
    let agent = scripted(&store.path().join("sessions"), &[]).await;
    let (program, agent) = (agent[0].clone(), agent.join(" "));
    // The agent writes into its folder until the folder is removed.
    let script = format!(
        "name=$(cat /proc/sys/kernel/random/uuid); (while echo \"$name $$ $(date +%s%N)\" >> marks; do sleep 0.01; done) & exec {agent}"
    );
    let sandbox = if machines == Machines::One { "off" } else { "require:files" };
    let settings = format!(
        "[agents.writer]\nkind = \"agent-client\"\nsandbox = \"{sandbox}\"\nread_paths = [{program:?}]\nwrite_paths = [{:?}]\ncommand = {}\ncwd = \"{}/{{thread}}\"\n\n",
        store.path(),
        json!(["sh", "-c", script]),
        shared.path().display()
    );
    let mut cluster = match machines {
        Machines::One => Cluster::start(&settings).await.unwrap(),
        Machines::Several => Cluster::start_apart(&settings).await.unwrap(),
    };
    let [a, ..] = &cluster.clients()[..] else { panic!("there are three nodes") };
    let endless = run_of("writer", THREAD, &json!("say:at work\nslow"), "async");
    a.post("/api/v1/runs", &endless).await.unwrap().ok().unwrap();
    until("the first agent to be at work", LIMIT, || async {
        let events = events(a, THREAD).await.ok()?;
        let is_at_work = events.iter().any(|event| event.to_string().contains("\"at work\""));
        (is_at_work && writers(shared.path()).len() == 1).then_some(())
    })
    .await
    .unwrap();
    match fault {
        NodeFault::Kill => cluster.lose(0).await.unwrap(),
        NodeFault::Pause => cluster.suspend(0).unwrap(),
        NodeFault::Stage(signal) => kill_process(stage_of_agent(&cluster).await, signal).unwrap(),
    }
    let is_next = |index: &usize| *index > 0 || matches!(fault, NodeFault::Stage(_));
    let owner = until("another node to own the thread", LIMIT, || async {
        let owner = cluster.owner(THREAD).await.ok()??;
        NAMES.iter().position(|name| *name == owner).filter(is_next)
    });
    let next = cluster.clients().swap_remove(owner.await.unwrap());
    let run = run_of("writer", THREAD, &json!("say:done"), "wait");
    let run = next.post("/api/v1/runs", &run).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "completed", "{run}\n{}", cluster.log_ends());
    until("the second agent to write", LIMIT, || async {
        (writers(shared.path()).len() == 2).then_some(())
    })
    .await
    .unwrap();
    if fault == NodeFault::Pause {
        cluster.resume(0).unwrap();
        // Any node can answer for the thread; the run uses the agent of the thread's owner.
        let again = run_of("writer", THREAD, &json!("say:again"), "wait");
        let again = next.post("/api/v1/runs", &again).await.unwrap().ok().unwrap();
        assert_eq!(again["status"], "completed", "{again}");
    }
    let mut wrote: Vec<_> = writers(shared.path()).into_values().collect();
    wrote.sort_by_key(|(_, first, _)| *first);
    let [(before, _, last), (_, first, _)] = wrote[..] else {
        panic!("not two agents wrote: {wrote:?}")
    };
    assert!(last < first, "both agents wrote for {} ms", (last - first) / 1_000_000);
    // In a sandbox, the number is one of its namespace.
    assert!(machines == Machines::Several || !is_running(before), "the first agent runs");
    let log = cluster.log_ends();
    cluster.stop().await.unwrap();
    for folder in fs::read_dir(shared.path()).unwrap() {
        assert!(!folder.unwrap().path().join(".trilogue").exists(), "a lease is left\n{log}");
    }
}

/// Returns the outer process of the sandbox of the only agent at work.
async fn stage_of_agent(cluster: &Cluster) -> Pid {
    let mut stages = Vec::new();
    for client in cluster.clients() {
        let status = client.get("/api/v1/status").await.unwrap().ok().unwrap();
        let agents = status["agents"]["list"].as_array().cloned().unwrap_or_default();
        stages.extend(agents.iter().filter_map(|agent| agent["pid"].as_i64()));
    }
    let [stage] = stages[..] else { panic!("not one agent runs: {stages:?}") };
    Pid::from_raw(i32::try_from(stage).unwrap()).unwrap()
}

fn writers(shared: &Path) -> Writers {
    let mut writers = Writers::new();
    for folder in fs::read_dir(shared).unwrap() {
        let marks = fs::read_to_string(folder.unwrap().path().join("marks")).unwrap_or_default();
        for line in marks.lines() {
            let [name, pid, at] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
            let (Ok(pid), Ok(at)) = (pid.parse(), at.parse()) else { continue };
            let (.., last) = writers.entry(name.to_owned()).or_insert((pid, at, at));
            *last = at;
        }
    }
    writers
}

/// Whether a process runs. One that has exited may still be a zombie.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| !state.trim_start().starts_with('Z'))
}
