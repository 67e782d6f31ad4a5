//! Agents that call other agents.

use std::time::Duration;

use trilogue_domain::{Answer, Code, InterruptId, Json, Outcome, ParentRun, Resolution, RunStatus};
use trilogue_runtime::{AnswerTo, Options, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, RunFilter, RunRow};

use crate::fixture::{House, alice, on, principal, scope, until};

/// Returns the runs that this run called, newest first.
async fn children(house: &House, parent: &RunRow) -> Vec<RunRow> {
    let listing = house.store.runs(&scope(), &RunFilter::default(), &Page::default()).await;
    let mut rows = listing.unwrap().rows;
    rows.retain(|row| row.parent.as_ref().is_some_and(|it| it.run == parent.id));
    rows
}

async fn child(house: &House, parent: &RunRow) -> RunRow {
    until("the child is accepted", || async { !children(house, parent).await.is_empty() }).await;
    children(house, parent).await.swap_remove(0)
}

async fn pending(house: &House, run: &RunRow) -> Vec<InterruptId> {
    let filter = InterruptFilter { thread: None, run: Some(run.id.clone()), pending: true };
    let listing = house.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap();
    listing.rows.into_iter().map(|row| row.interrupt.id).collect()
}

async fn question(house: &House, run: &RunRow) -> InterruptId {
    until("the run asks", || async { !pending(house, run).await.is_empty() }).await;
    pending(house, run).await.swap_remove(0)
}

fn json(text: &str) -> Answer {
    Answer::Json(Json::parse(text.to_owned()).unwrap())
}

async fn has_status(house: &House, run: &RunRow, status: RunStatus) {
    until("the run has this status", || async { house.stored(run).await.status == status }).await;
}

#[tokio::test]
async fn a_call_is_a_run_on_a_thread_of_its_own_that_names_its_caller() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let parent = house.run("call:child/say:hello", ThreadChoice::Existing(thread)).await;
        assert_eq!(house.said(&parent).await, "completed:hello");
        let child = child(&house, &parent).await;
        let named = ParentRun { run: parent.id.clone(), thread: parent.thread_id.clone() };
        assert_eq!(child.parent, Some(named));
        assert_eq!((&child.principal, &child.tenant), (&parent.principal, &parent.tenant));
        assert_ne!(child.thread, parent.thread);
        let thread = house.store.thread(&scope(), &child.thread_id).await.unwrap().unwrap();
        let metadata = thread.metadata.to_value();
        assert_eq!(metadata["parent_run_id"], parent.id.as_str());
        assert_eq!(metadata["parent_thread_id"], parent.thread_id.as_str());
        assert!(!thread.ephemeral);
        let failed = house.run("call:child/say:x+fail:no", ThreadChoice::Ephemeral).await;
        assert_eq!(house.said(&failed).await, "failed:x");
    }
}

#[tokio::test]
async fn a_question_of_the_child_is_answered_at_either_run() {
    let house = House::sqlite().await;
    for script in ["ask", "suspend:say:on"] {
        for at_the_child in [false, true] {
            let thread = house.thread().await;
            let script = format!("call:child/{script}");
            let parent = house.submit(on(&thread, &script)).await.run;
            let child = child(&house, &parent).await;
            let (above, below) = (question(&house, &parent).await, question(&house, &child).await);
            let (to, other) = if at_the_child { (&below, &above) } else { (&above, &below) };
            let to = AnswerTo::Interrupt(to.clone());
            house.runtime.answer(&principal("bob"), to, json("7")).await.unwrap();
            until("the parent ends", || async {
                house.stored(&parent).await.status == RunStatus::Completed
            })
            .await;
            assert!(house.said(&parent).await.starts_with("completed:7"), "{script}");
            let other = house.store.interrupt(&scope(), other).await.unwrap().unwrap();
            let resolution = other.resolution.unwrap();
            let Resolution::Answered { by, .. } = &resolution else { panic!("{resolution:?}") };
            assert_eq!(by.as_str(), "bob");
        }
    }
}

#[tokio::test]
async fn a_caller_can_answer_by_itself() {
    let house = House::memory().await;
    let parent = house.run("call-here:child/ask", ThreadChoice::Ephemeral).await;
    assert_eq!(house.said(&parent).await, "completed:\"mine\"");
    let child = child(&house, &parent).await;
    let log = format!("{:?}", house.events(&child).await);
    assert!(log.contains("agent:script"), "{log}");
    assert!(!format!("{:?}", house.events(&parent).await).contains("Raised"));
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_both_runs() {
    let options = Options { interrupt_deadline: Duration::from_millis(50), ..Options::default() };
    let house = House::with(options).await;
    let parent = house.submit(on(&house.main, "call:child/ask")).await.run;
    has_status(&house, &parent, RunStatus::TimedOut).await;
    let child = child(&house, &parent).await;
    until("the child ends", || async { house.stored(&child).await.status.is_terminal() }).await;
}

#[tokio::test]
async fn a_child_ends_with_its_caller() {
    let house = House::sqlite().await;
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
        let thread = house.thread().await;
        let parent = house.submit(on(&thread, script)).await.run;
        let child = child(&house, &parent).await;
        if cancels {
            until("the child is at work or waits", || async {
                house.stored(&child).await.status != RunStatus::Queued
            })
            .await;
            house.runtime.cancel(&alice(), &parent.id).await.unwrap();
        }
        has_status(&house, &child, RunStatus::Cancelled).await;
        assert_eq!(house.stored(&child).await.outcome, parent_ended, "{script}");
        house.agent.gate.add_permits(1);
        if cancels {
            has_status(&house, &parent, RunStatus::Cancelled).await;
        }
    }
}

#[tokio::test]
async fn chains_and_numbers_of_calls_have_limits() {
    let options =
        Options { max_call_depth: 3, max_calls_per_run: 1, max_running: 1, ..Options::default() };
    let house = House::with(options).await;
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
        let parent = house.run(script, ThreadChoice::Ephemeral).await;
        assert_eq!(house.said(&parent).await, said, "{script}");
    }
}

/// In every state of a child when the server stops, its caller is lost, so the child is cancelled.
#[tokio::test]
async fn children_do_not_outlive_a_crash() {
    let house = House::sqlite().await;
    let mut runs = Vec::new();
    for script in ["suspend:say:x", "say:x+forever", "ask"] {
        let thread = house.thread().await;
        let parent = house.submit(on(&thread, &format!("call:child/{script}"))).await.run;
        let child = child(&house, &parent).await;
        until("the child is at work or waits", || async {
            house.stored(&child).await.status != RunStatus::Queued
        })
        .await;
        runs.push((parent, child));
    }
    let house = house.crash().await;
    for (parent, child) in &runs {
        let parent = house.stored(parent).await;
        let Some(Outcome::Failed(failure)) = &parent.outcome else { panic!("{parent:?}") };
        assert_eq!(failure.code, "agent_lost");
        let child = house.stored(child).await;
        let reason = Some(Code::ParentEnded);
        assert_eq!(child.outcome, Some(Outcome::Cancelled { reason }), "{child:?}");
        assert!(pending(&house, &child).await.is_empty());
        assert_eq!(children(&house, &parent).await.len(), 1);
    }
}
