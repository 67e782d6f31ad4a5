//! Sessions in shared processes: at most the allowed number, and clients learn of every forgotten conversation.

use serde_json::Value;
use trilogue_backends::agent_client::{Launch, Processes};
use trilogue_domain::{Json, RunStatus, ThreadId};
use trilogue_store::rows::RunRow;

use super::rig::{HEARD, Rig};
use crate::harness::failure;

/// Flags of an agent that can open its sessions in any process.
const LOADS: [&str; 3] = ["--load", "--store", "{store}"];

fn shared(sessions: usize, processes: usize) -> impl FnOnce(&mut Launch) {
    move |launch| {
        launch.processes = Processes::Shared;
        launch.max_sessions = sessions;
        launch.max_processes = processes;
    }
}

async fn completed(rig: &Rig, thread: &ThreadId, text: &str) -> RunRow {
    let run = rig.run(thread, text).await;
    assert_eq!(run.status, RunStatus::Completed, "{text}: {:?}", run.outcome);
    run
}

fn count_requests(rig: &Rig, method: &str) -> usize {
    let heard = std::fs::read_to_string(rig.path(HEARD)).unwrap();
    let lines = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["method"] == method).count()
}

#[tokio::test]
async fn the_session_that_was_used_longest_ago_makes_room_and_comes_back() {
    let rig = Rig::with(&LOADS, shared(2, 1)).await;
    let (one, two, three) = (rig.thread().await, rig.thread().await, rig.thread().await);
    completed(&rig, &one, "say:first").await;
    completed(&rig, &two, "say:x").await;
    completed(&rig, &one, "say:second").await;
    assert_eq!(count_requests(&rig, "session/close"), 0);
    // The second thread's session is the least recently used one.
    completed(&rig, &three, "say:x").await;
    assert_eq!(
        (count_requests(&rig, "session/close"), count_requests(&rig, "session/new")),
        (1, 3)
    );
    completed(&rig, &one, "say:third").await;
    assert_eq!(
        (count_requests(&rig, "session/close"), count_requests(&rig, "session/load")),
        (1, 0)
    );
    let back = completed(&rig, &two, "count").await;
    assert_eq!(
        (count_requests(&rig, "session/close"), count_requests(&rig, "session/load")),
        (2, 1)
    );
    assert_eq!((count_requests(&rig, "session/new"), count_requests(&rig, "initialize")), (3, 1));
    assert_ne!(rig.reply_text(&back).await, "0");
    assert_eq!(rig.custom(&back, "session_restarted").await, Vec::<Json>::new());
    rig.end().await;
}

#[tokio::test]
async fn where_all_are_at_work_another_process_is_started_as_long_as_there_may_be_one() {
    let rig = Rig::with(&LOADS, shared(1, 2)).await;
    let (one, two, three) = (rig.thread().await, rig.thread().await, rig.thread().await);
    let first = rig.run(&one, "permission").await;
    assert_eq!(first.status, RunStatus::Interrupted);
    let second = rig.run(&two, "permission").await;
    assert_eq!((second.status, count_requests(&rig, "initialize")), (RunStatus::Interrupted, 2));
    let refused = rig.run(&three, "say:x").await;
    let why = failure(&refused);
    assert_eq!((&*why.code, why.transient), ("overloaded", true), "{why:?}");
    let hint = why.data.as_ref().map(Json::as_str).unwrap_or_default();
    assert!(hint.contains("`max_sessions`"), "{why:?}");
    assert_eq!((count_requests(&rig, "session/close"), rig.children.count()), (0, 2));
    rig.cancel(&second).await;
    // Now that session makes space.
    completed(&rig, &three, "say:x").await;
    assert_eq!((count_requests(&rig, "session/close"), count_requests(&rig, "initialize")), (1, 2));
    rig.cancel(&first).await;
    rig.end().await;
}

#[tokio::test]
async fn a_session_that_cannot_come_back_makes_room_last_and_says_so() {
    let rig = Rig::with(&[], shared(1, 2)).await;
    let (one, two, three) = (rig.thread().await, rig.thread().await, rig.thread().await);
    for thread in [&one, &two] {
        completed(&rig, thread, "say:remembered").await;
    }
    // Each has a process, in which it still exists.
    for thread in [&one, &two] {
        let run = completed(&rig, thread, "count").await;
        assert_eq!(rig.custom(&run, "session_restarted").await, Vec::<Json>::new());
    }
    assert_eq!((count_requests(&rig, "session/close"), count_requests(&rig, "initialize")), (0, 2));
    completed(&rig, &three, "say:x").await;
    assert_eq!((count_requests(&rig, "session/close"), count_requests(&rig, "initialize")), (1, 2));
    let run = completed(&rig, &one, "prompt").await;
    assert_eq!(rig.custom(&run, "session_restarted").await.len(), 1);
    assert!(rig.reply_text(&run).await.contains("remembered"));
    rig.end().await;
}

#[tokio::test]
async fn a_session_that_is_replaced_needs_no_place_beside_its_own() {
    let errs = ["--load", "--load-error", "-32002", "--store", "{store}"];
    for flags in [&[] as &[&str], &errs] {
        let rig = Rig::with(flags, shared(1, 1)).await;
        completed(&rig, &rig.thread, "say:x").await;
        rig.run(&rig.thread, "crash:0").await;
        let run = completed(&rig, &rig.thread, "say:y").await;
        assert_eq!(rig.custom(&run, "session_restarted").await.len(), 1, "{flags:?}");
        rig.end().await;
    }
}

#[tokio::test]
async fn many_threads_at_once_share_a_few_sessions() {
    let rig = Rig::with(&LOADS, shared(2, 2)).await;
    let mut threads = Vec::new();
    for _ in 0..8 {
        threads.push(rig.thread().await);
    }
    // A run fails if all sessions are in use, and no run waits for ever.
    let runs = threads.iter().map(|thread| rig.run(thread, "say:x"));
    for run in futures_util::future::join_all(runs).await {
        let is_done = run.status == RunStatus::Completed || &*failure(&run).code == "overloaded";
        assert!(is_done, "{:?}", run.outcome);
    }
    assert!(rig.children.count() <= 2);
    for thread in &threads {
        completed(&rig, thread, "say:x").await;
    }
    rig.end().await;
}
