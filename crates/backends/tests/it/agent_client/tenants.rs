//! Threads of two tenants with the same id have nothing in common.

use std::path::Path;

use serde_json::{Value, json};
use trilogue_backends::agent_client::Processes;
use trilogue_backends::workspace::{CwdTemplate, Folders};
use trilogue_domain::{AgentName, Principal, PrincipalId, RunStatus, TenantId, ThreadId};
use trilogue_runtime::NewThread;

use super::rig::{Rig, caller};
use crate::harness::failure;

fn stranger(rig: &Rig) -> Principal {
    let (tenant, id) = (TenantId::parse("stranger"), PrincipalId::parse("bob"));
    Principal { tenant: tenant.unwrap(), id: id.unwrap(), ..rig.by.clone() }
}

/// Creates the thread `t1` of the rig's current principal.
async fn make(rig: &Rig) -> ThreadId {
    let id = ThreadId::parse("t1").unwrap();
    let new = NewThread { id: Some(id), metadata: None, ..NewThread::default() };
    rig.runtime.create_thread(&rig.by, new).await.unwrap().id
}

/// The output of the thread's process: its id, its folder, and the params of its session.
async fn process_output(rig: &Rig, thread: &ThreadId) -> (String, String, Value) {
    let run = rig.run(thread, "pid\ncwd\nsession").await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    let said = rig.reply_text(&run).await;
    let mut lines = said.lines().map(str::to_owned);
    let (pid, cwd) = (lines.next().unwrap(), lines.next().unwrap());
    (pid, cwd, serde_json::from_str(&lines.next().unwrap()).unwrap())
}

#[tokio::test]
async fn the_same_thread_id_of_two_tenants_is_two_sessions_in_two_folders() {
    let work = tempfile::tempdir().unwrap();
    let mut rig = Rig::with(&[], |launch| {
        let template = CwdTemplate::parse("work/{thread}").unwrap();
        let agent = AgentName::parse("scripted").unwrap();
        launch.folders = Some(Folders::new(work.path(), template, None, &agent).unwrap());
    })
    .await;
    let thread = make(&rig).await;
    let params = json!({
        "cwd": "/", "mcpServers": [
            { "name": "m", "command": "x", "args": [], "env": [{ "name": "KEY", "value": "alices-own-key" }] },
        ],
    });
    let context = rig.context(&thread).await;
    let params = trilogue_domain::Json::from_value(&params);
    rig.sessions().open(&context, &caller("{}"), params).await.unwrap();
    let (alices, folder, opening) = process_output(&rig, &thread).await;
    assert_eq!(opening["mcpServers"][0]["env"][0]["value"], "alices-own-key");

    let stranger = stranger(&rig);
    let alice = std::mem::replace(&mut rig.by, stranger);
    assert_eq!(make(&rig).await, thread);
    let (bobs, other, opening) = process_output(&rig, &thread).await;
    assert_ne!((&alices, &folder), (&bobs, &other));
    assert_ne!(folder, other);
    assert_eq!(opening["mcpServers"], json!([]));
    assert_eq!(opening["cwd"].as_str().unwrap(), other);

    // An erasure by one principal leaves the other's thread.
    rig.runtime.erase_thread(&rig.by, &thread).await.unwrap();
    assert!(!Path::new(&other).exists() && Path::new(&folder).exists());
    rig.by = alice;
    assert_eq!(process_output(&rig, &thread).await.0, alices);
    // A thread that is created again is a new one.
    rig.runtime.erase_thread(&rig.by, &thread).await.unwrap();
    assert_eq!(make(&rig).await, thread);
    let (_, anew, _) = process_output(&rig, &thread).await;
    assert_ne!(anew, folder);
    rig.sessions().forget(&context).await;
    assert!(Path::new(&anew).exists());
    rig.end().await;
}

#[tokio::test]
async fn what_one_thread_s_agent_complained_of_is_not_told_in_another() {
    let rig = Rig::with(&[], |launch| launch.processes = Processes::Shared).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    rig.run(&one, "stderr:the plan of one").await;
    let run = rig.run(&two, "crash").await;
    let why = failure(&run);
    assert!(why.message.contains("was killed by signal 6"), "{}", why.message);
    assert!(!why.message.contains("the plan of one"), "{}", why.message);
    rig.end().await;
}

#[tokio::test]
async fn what_a_client_gave_its_servers_is_not_told_in_failures() {
    let rig = Rig::new(&[]).await;
    let params = json!({
        "cwd": "/", "mcpServers": [
            { "name": "m", "command": "x", "args": [], "env": [{ "name": "GITHUB_PAT", "value": "hunter2-hunter2" }] },
            { "type": "http", "name": "h", "url": "https://x.example", "headers": [{ "name": "Authorization", "value": "Bearer sesame-sesame" }] },
        ],
    });
    let context = rig.context(&rig.thread).await;
    let params = trilogue_domain::Json::from_value(&params);
    rig.sessions().open(&context, &caller("{}"), params).await.unwrap();
    let run = rig.run(&rig.thread, "stderr:with hunter2-hunter2 and sesame-sesame\ncrash").await;
    let why = failure(&run).message;
    assert!(why.ends_with("with [hidden] and [hidden]"), "{why}");
    rig.end().await;
}
