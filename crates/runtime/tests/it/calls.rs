//! Agents that call other agents.

use std::time::Duration;

use trilogue_domain::{Answer, Code, InterruptId, Json, Outcome, ParentRun, Resolution, RunStatus};
use trilogue_runtime::{AnswerTo, Options, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, RunFilter, RunRow};

use crate::fixture::{TestServer, alice, on, principal, scope, until};

/// Returns the runs that this run called, newest first.
async fn children(server: &TestServer, parent: &RunRow) -> Vec<RunRow> {
    let listing = server.store.runs(&scope(), &RunFilter::default(), &Page::default()).await;
    let mut rows = listing.unwrap().rows;
    rows.retain(|row| row.parent.as_ref().is_some_and(|it| it.run == parent.id));
    rows
}

async fn child(server: &TestServer, parent: &RunRow) -> RunRow {
    until("the child is accepted", || async { !children(server, parent).await.is_empty() }).await;
    children(server, parent).await.swap_remove(0)
}

async fn pending(server: &TestServer, run: &RunRow) -> Vec<InterruptId> {
    let filter = InterruptFilter { thread: None, run: Some(run.id.clone()), pending: true };
    let listing = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap();
    listing.rows.into_iter().map(|row| row.interrupt.id).collect()
}

async fn question(server: &TestServer, run: &RunRow) -> InterruptId {
    until("the run asks", || async { !pending(server, run).await.is_empty() }).await;
    pending(server, run).await.swap_remove(0)
}

fn json(text: &str) -> Answer {
    Answer::Json(Json::parse(text.to_owned()).unwrap())
}

async fn has_status(server: &TestServer, run: &RunRow, status: RunStatus) {
    until("the run has this status", || async { server.stored(run).await.status == status }).await;
}

#[tokio::test]
async fn a_call_is_a_run_on_a_thread_of_its_own_that_names_its_caller() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let parent = server.run("call:child/say:hello", ThreadChoice::Existing(thread)).await;
        assert_eq!(server.output_text(&parent).await, "completed:hello");
        let child = child(&server, &parent).await;
        let named = ParentRun { run: parent.id.clone(), thread: parent.thread_id.clone() };
        assert_eq!(child.parent, Some(named));
        assert_eq!((&child.principal, &child.tenant), (&parent.principal, &parent.tenant));
        assert_ne!(child.thread, parent.thread);
        let thread = server.store.thread(&scope(), &child.thread_id).await.unwrap().unwrap();
        let metadata = thread.metadata.to_value();
        assert_eq!(metadata["parent_run_id"], parent.id.as_str());
        assert_eq!(metadata["parent_thread_id"], parent.thread_id.as_str());
        assert!(!thread.ephemeral);
        let failed = server.run("call:child/say:x+fail:no", ThreadChoice::Ephemeral).await;
        assert_eq!(server.output_text(&failed).await, "failed:x");
    }
}

#[tokio::test]
async fn a_question_of_the_child_is_answered_at_either_run() {
    let server = TestServer::sqlite().await;
    for script in ["ask", "suspend:say:on"] {
        for at_the_child in [false, true] {
            let thread = server.thread().await;
            let script = format!("call:child/{script}");
            let parent = server.submit(on(&thread, &script)).await.run;
            let child = child(&server, &parent).await;
            let (above, below) =
                (question(&server, &parent).await, question(&server, &child).await);
            let (to, other) = if at_the_child { (&below, &above) } else { (&above, &below) };
            let to = AnswerTo::Interrupt(to.clone());
            server.runtime.answer(&principal("bob"), to, json("7")).await.unwrap();
            until("the parent ends", || async {
                server.stored(&parent).await.status == RunStatus::Completed
            })
            .await;
            assert!(server.output_text(&parent).await.starts_with("completed:7"), "{script}");
            let other = server.store.interrupt(&scope(), other).await.unwrap().unwrap();
            let resolution = other.resolution.unwrap();
            let Resolution::Answered { by, .. } = &resolution else { panic!("{resolution:?}") };
            assert_eq!(by.as_str(), "bob");
        }
    }
}

#[tokio::test]
async fn a_caller_can_answer_by_itself() {
    let server = TestServer::memory().await;
    let parent = server.run("call-here:child/ask", ThreadChoice::Ephemeral).await;
    assert_eq!(server.output_text(&parent).await, "completed:\"mine\"");
    let child = child(&server, &parent).await;
    let log = format!("{:?}", server.events(&child).await);
    assert!(log.contains("agent:script"), "{log}");
    assert!(!format!("{:?}", server.events(&parent).await).contains("Raised"));
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_both_runs() {
    let options = Options { interrupt_deadline: Duration::from_millis(50), ..Options::default() };
    let server = TestServer::with(options).await;
    let parent = server.submit(on(&server.main, "call:child/ask")).await.run;
    has_status(&server, &parent, RunStatus::TimedOut).await;
    let child = child(&server, &parent).await;
    until("the child ends", || async { server.stored(&child).await.status.is_terminal() }).await;
}

#[tokio::test]
async fn a_child_ends_with_its_caller() {
    let server = TestServer::sqlite().await;
    let parent_ended = Some(Outcome::Cancelled { reason: Some(Code::ParentEnded) });
    // The caller is cancelled, ends with the call in another task, suspends, fails, or drops the call.
    for (script, cancels) in [
        ("call:child/say:x+until-cancelled", true),
        ("call:child/suspend:say:x", true),
        ("call-leave:child/until-cancelled", false),
        ("call-leave:child/until-cancelled suspend:say:x", false),
        ("call-leave:child/until-cancelled fail:x", false),
        ("call-drop:child/until-cancelled gate", false),
    ] {
        let thread = server.thread().await;
        let parent = server.submit(on(&thread, script)).await.run;
        let child = child(&server, &parent).await;
        if cancels {
            until("the child is at work or waits", || async {
                server.stored(&child).await.status != RunStatus::Queued
            })
            .await;
            server.runtime.cancel(&alice(), &parent.id).await.unwrap();
        }
        has_status(&server, &child, RunStatus::Cancelled).await;
        assert_eq!(server.stored(&child).await.outcome, parent_ended, "{script}");
        server.agent.gate.add_permits(1);
        if cancels {
            has_status(&server, &parent, RunStatus::Cancelled).await;
        }
    }
}

#[tokio::test]
async fn chains_and_numbers_of_calls_have_limits() {
    let options =
        Options { max_call_depth: 3, max_calls_per_run: 1, max_running: 1, ..Options::default() };
    let server = TestServer::with(options).await;
    for (script, said) in [
        ("call:nobody/say:x", "agent_not_found"),
        ("call:script/say:x", "call_refused"),
        ("call:child/call:script/say:x", "completed:call_refused"),
        ("call-again:script/say:x", "completed:x"),
        // One run is active at a time, and it is not the waiting one.
        ("call:child/call:private/say:x", "completed:completed:x"),
        ("call:child/call:private/call-again:child/say:x", "completed:completed:call_refused"),
        ("call-leave:child/until-cancelled call:private/say:x", "overloaded"),
    ] {
        let parent = server.run(script, ThreadChoice::Ephemeral).await;
        assert_eq!(server.output_text(&parent).await, said, "{script}");
    }
}

/// In every state of a child when the server stops, its caller is lost, so the child is cancelled.
#[tokio::test]
async fn children_do_not_outlive_a_crash() {
    let server = TestServer::sqlite().await;
    let mut runs = Vec::new();
    for script in ["suspend:say:x", "say:x+forever", "ask"] {
        let thread = server.thread().await;
        let parent = server.submit(on(&thread, &format!("call:child/{script}"))).await.run;
        let child = child(&server, &parent).await;
        until("the child is at work or waits", || async {
            server.stored(&child).await.status != RunStatus::Queued
        })
        .await;
        runs.push((parent, child));
    }
    let server = server.crash().await;
    for (parent, child) in &runs {
        let parent = server.stored(parent).await;
        let Some(Outcome::Failed(failure)) = &parent.outcome else { panic!("{parent:?}") };
        assert_eq!(failure.code, "agent_lost");
        let child = server.stored(child).await;
        let reason = Some(Code::ParentEnded);
        assert_eq!(child.outcome, Some(Outcome::Cancelled { reason }), "{child:?}");
        assert!(pending(&server, &child).await.is_empty());
        assert_eq!(children(&server, &parent).await.len(), 1);
    }
}
