//! Cancelling: the agent is asked first; an agent that does not respond is killed.

use std::time::{Duration, Instant};

use serde_json::json;
use trilogue_backends::agent_client::Processes;
use trilogue_backends::child::Budget;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, RunStatus, ThreadId};

use super::background::{go, once};
use super::rig::{Rig, settle, until, until_async};

/// Begins a run that does not end by itself, and waits until its agent works.
async fn at_work(
    rig: &Rig,
    thread: &trilogue_domain::ThreadId,
    text: &str,
) -> trilogue_store::rows::RunRow {
    let begun = rig.begin(thread, text).await;
    let row = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    until_async("the agent works", async || !rig.messages(&row).await.is_empty()).await;
    row
}

#[tokio::test]
async fn an_agent_that_listens_stops_and_lives() {
    let rig = Rig::new(&[]).await;
    let run = at_work(&rig, &rig.thread, "pid\ntool-open\nslow").await;
    let pid = rig.reply_text(&run).await;
    let run = rig.cancel(&run).await;
    assert_eq!(run.status, RunStatus::Cancelled);
    let kinds: Vec<_> = rig.events(&run).await.iter().map(|event| event.body.name()).collect();
    assert!(kinds.contains(&"tool.ended"), "{kinds:?}");
    let run = rig.run(&rig.thread, "pid").await;
    assert_eq!(rig.reply_text(&run).await, pid);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_does_not_listen_is_ended() {
    for processes in [Processes::Thread, Processes::Shared] {
        let rig = Rig::with(&["--load", "--store", "{store}"], |launch| {
            launch.cancel_grace = Some(Duration::from_millis(200));
            launch.processes = processes;
        })
        .await;
        let run = at_work(&rig, &rig.thread, "pid\nstubborn").await;
        let pid = rig.reply_text(&run).await;
        let began = Instant::now();
        let run = rig.cancel(&run).await;
        assert_eq!(run.status, RunStatus::Cancelled);
        assert!(began.elapsed() < Duration::from_secs(8));
        let run = rig.run(&rig.thread, "pid").await;
        assert_ne!(rig.reply_text(&run).await, pid);
        rig.end().await;
    }
}

#[tokio::test]
async fn a_stubborn_session_of_a_shared_process_takes_no_other_with_it() {
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| {
        launch.cancel_grace = Some(Duration::from_millis(200));
        launch.processes = Processes::Shared;
    })
    .await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let other = rig.begin(&two, "say:on\nslow:1500\nsay:done").await;
    let run = at_work(&rig, &one, "say:x\nstubborn").await;
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    let other = settle(other).await;
    assert_eq!(
        (other.status, rig.reply_text(&other).await),
        (RunStatus::Completed, "on\ndone".to_owned())
    );
    rig.end().await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_its_agent_starts_ends_at_once() {
    let rig = Rig::new(&["--start-when", "{store}-may-start"]).await;
    let begun = rig.begin(&rig.thread, "say:x").await;
    until("the agent starts", || rig.children.count() == 1).await;
    let row = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    // The agent is still starting: the cancellation does not wait for it.
    assert_eq!(rig.cancel(&row).await.status, RunStatus::Cancelled);
    std::fs::write(rig.path("sessions-may-start"), "").unwrap();
    assert_eq!(rig.run(&rig.thread, "say:y").await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn a_runtime_that_gives_up_on_a_run_leaves_no_turn_behind() {
    let rig = Rig::with(&[], |launch| launch.cancel_grace = Some(Duration::from_secs(3_600))).await;
    let _run = at_work(&rig, &rig.thread, "say:x\nstubborn").await;
    let report = rig.runtime.drain(Duration::from_millis(100)).await;
    assert_eq!(report.abandoned.len(), 1);
    until("the process is ended", || rig.children.count() == 0).await;
    rig.end().await;
}

/// Whether the log of the thread says that the server has stopped its agent.
async fn is_stopped(rig: &Rig, thread: &ThreadId) -> bool {
    rig.log(thread).await.iter().any(|event| {
        matches!(&event.body, Body::State(StateEvent::Custom { kind, .. }) if kind == "agent_stopped")
    })
}

/// Starts a child process of the agent, and returns its id.
async fn start_child(rig: &Rig, thread: &ThreadId) -> rustix::process::Pid {
    let file = rig.path("child");
    let run = rig.run(thread, &format!("child:{}", file.display())).await;
    assert!(rig.reply_text(&run).await.starts_with("child: "));
    let pid = std::fs::read_to_string(file).unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(pid).unwrap()
}

#[tokio::test]
async fn a_child_process_keeps_its_agent_from_being_idle() {
    let rig = Rig::with(&[], |launch| {
        launch.children_count = true;
        launch.idle_stop = Some(Duration::from_millis(200));
    })
    .await;
    let other = rig.thread().await;
    let child = start_child(&rig, &rig.thread).await;
    // This agent is idle later, and is stopped earlier.
    rig.run(&other, "say:x").await;
    until_async("the agent without a child is stopped", async || is_stopped(&rig, &other).await)
        .await;
    assert!(!is_stopped(&rig, &rig.thread).await);
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    until_async("the agent is stopped", async || is_stopped(&rig, &rig.thread).await).await;
    rig.end().await;
}

#[tokio::test]
async fn a_tool_call_that_an_answer_leaves_open_keeps_its_agent_from_being_idle() {
    let rig = Rig::with(&[], |launch| launch.idle_stop = Some(Duration::from_millis(200))).await;
    let call = json!({
        "sessionUpdate": "tool_call", "toolCallId": "c", "title": "In the background",
        "status": "in_progress",
    });
    let end = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed",
    });
    let other = rig.thread().await;
    rig.run(&rig.thread, &format!("raw:{call}\n{}", once(&rig, "go", &end))).await;
    // This agent is idle later, and is stopped earlier.
    rig.run(&other, "say:x").await;
    until_async("the agent without a call is stopped", async || is_stopped(&rig, &other).await)
        .await;
    assert!(!is_stopped(&rig, &rig.thread).await);
    go(&rig, "go");
    until_async("the agent is stopped", async || is_stopped(&rig, &rig.thread).await).await;
    rig.end().await;
}

#[tokio::test]
async fn a_tool_call_that_does_not_end_keeps_its_agent_for_a_limited_time() {
    let rig = Rig::with(&[], |launch| {
        launch.children_limit = Duration::from_millis(600);
        launch.idle_stop = Some(Duration::from_millis(100));
    })
    .await;
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "For ever" });
    rig.run(&rig.thread, &format!("raw:{call}")).await;
    until_async("the agent is stopped", async || is_stopped(&rig, &rig.thread).await).await;
    rig.end().await;
}

#[tokio::test]
async fn an_agent_with_an_open_tool_call_makes_room_last_and_its_thread_learns_why() {
    let open = r#"raw:{"sessionUpdate":"tool_call","toolCallId":"c","title":"In the background"}"#;
    for processes in [Processes::Thread, Processes::Shared] {
        let rig = Rig::with(&[], |launch| {
            launch.processes = processes;
            if processes == Processes::Shared {
                (launch.max_sessions, launch.max_processes) = (2, 1);
            }
        })
        .await;
        rig.children.set_budget(Budget { max_processes: 2, ..Budget::default() });
        let (two, three, four) = (rig.thread().await, rig.thread().await, rig.thread().await);
        for (thread, text) in [(&rig.thread, open), (&two, "say:x"), (&three, open)] {
            let run = rig.run(thread, text).await;
            assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
        }
        assert!(!is_stopped(&rig, &rig.thread).await, "{processes:?}: the second thread's went");
        assert_eq!(rig.run(&four, "say:x").await.status, RunStatus::Completed);
        assert!(is_stopped(&rig, &rig.thread).await, "{processes:?}");
        assert!(!is_stopped(&rig, &three).await, "{processes:?}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_child_process_that_does_not_end_keeps_its_agent_for_a_limited_time() {
    let rig = Rig::with(&[], |launch| {
        launch.children_count = true;
        launch.children_limit = Duration::from_millis(600);
        launch.idle_stop = Some(Duration::from_millis(100));
    })
    .await;
    let child = start_child(&rig, &rig.thread).await;
    until_async("the agent is stopped", async || is_stopped(&rig, &rig.thread).await).await;
    until("the child is ended with it", || rustix::process::test_kill_process(child).is_err())
        .await;
    rig.end().await;
}
