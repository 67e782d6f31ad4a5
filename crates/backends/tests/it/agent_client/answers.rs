//! Questions whose caller no longer waits, and options that are never chosen automatically.

use std::time::Duration;

use trilogue_backends::permission::Rules;
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Body, Code, Resolution, RunStatus};
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use super::rig::{Rig, until, until_async};

async fn pending(rig: &Rig, run: &RunRow) -> usize {
    let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, thread: None };
    let page = Page { limit: 10, after: None, skip: 0 };
    rig.store.interrupts(&rig.by.scope(), &filter, &page).await.unwrap().rows.len()
}

/// The resolutions of a run's questions.
async fn resolutions(rig: &Rig, run: &RunRow) -> Vec<Resolution> {
    let events = rig.events(run).await.into_iter();
    let resolved = events.filter_map(|event| match event.body {
        Body::Interrupt(InterruptEvent::Resolved { resolution, .. }) => Some(resolution),
        _ => None,
    });
    resolved.collect()
}

async fn wait_for_end(rig: &Rig, run: &RunRow) -> RunRow {
    let now = async || rig.store.run(&rig.by.scope(), &run.id).await.unwrap().unwrap();
    until_async("the run ends", async || now().await.status.is_terminal()).await;
    now().await
}

#[tokio::test]
async fn what_an_agent_takes_back_is_asked_of_nobody_any_more() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "take-back:200\nslow").await;
    assert_eq!(run.status, RunStatus::Interrupted);
    // While the turn is still in progress.
    let is_over = async || pending(&rig, &run).await == 0 && !rig.reply_text(&run).await.is_empty();
    until_async("nobody is asked", is_over).await;
    let row = rig.store.run(&rig.by.scope(), &run.id).await.unwrap().unwrap();
    assert_eq!(row.status, RunStatus::Running);
    assert_eq!(rig.reply_text(&run).await, "permission refused: -32800");
    let withdrawn = Resolution::Withdrawn { reason: Code::InterruptResolved };
    assert_eq!(resolutions(&rig, &run).await, [withdrawn]);
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    rig.end().await;
}

#[tokio::test]
async fn a_question_that_outlives_its_turn_moves_to_the_next_run() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "leave:200").await;
    let run = wait_for_end(&rig, &run).await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "left"));
    assert_eq!(pending(&rig, &run).await, 0);
    assert!(matches!(*resolutions(&rig, &run).await, [Resolution::Withdrawn { .. }]));
    // The agent still waits for the answer, so the next prompt asks again.
    let next = rig.run(&rig.thread, "say:on").await;
    assert_eq!(wait_for_end(&rig, &next).await.status, RunStatus::Completed);
    assert!(matches!(*resolutions(&rig, &next).await, [Resolution::Withdrawn { .. }]));
    rig.end().await;
}

#[tokio::test]
async fn a_cancelled_permission_is_cancelled_and_nothing_is_chosen() {
    let heard = "{store}-heard";
    for kinds in
        ["allow_once,reject_always", "allow_always,reject_always", "reject_once,allow_once"]
    {
        let rig = Rig::new(&["--heard", heard]).await;
        let run = rig.run(&rig.thread, &format!("choose:{kinds}")).await;
        assert_eq!(run.status, RunStatus::Interrupted);
        let run = rig.cancel(&run).await;
        assert_eq!(run.status, RunStatus::Cancelled);
        assert_eq!(rig.reply_text(&run).await, "permission: cancelled", "{kinds}");
        assert_eq!(resolutions(&rig, &run).await, [Resolution::Cancelled]);
        let heard = std::fs::read_to_string(rig.path("sessions-heard")).unwrap();
        assert!(heard.contains(r#""result":{"outcome":{"outcome":"cancelled"}}"#), "{heard}");
        assert!(heard.contains(r#""method":"session/cancel""#), "{heard}");
        assert!(!heard.contains(r#""outcome":"selected""#), "{heard}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_permission_that_nobody_answers_in_time_is_rejected_once_or_cancelled() {
    for (kinds, said, status) in [
        ("allow_once,reject_always,reject_once", "permission: reject_once", RunStatus::Completed),
        ("allow_once,reject_always", "permission: cancelled", RunStatus::Cancelled),
        ("allow_once,allow_always", "permission: cancelled", RunStatus::Cancelled),
    ] {
        let options = trilogue_runtime::Options {
            interrupt_deadline: Duration::from_millis(100),
            ..trilogue_runtime::Options::default()
        };
        let rig = Rig::with_options(&[], Rules::default(), options, |_| {}).await;
        let run = rig.run(&rig.thread, &format!("choose:{kinds}")).await;
        let run = wait_for_end(&rig, &run).await;
        assert_eq!((run.status, &*rig.reply_text(&run).await), (status, said), "{kinds}");
        rig.end().await;
    }
}

#[tokio::test]
async fn a_question_goes_with_the_process_that_asked_it() {
    let rig = Rig::new(&["--load", "--store", "{store}"]).await;
    let run = rig.run(&rig.thread, "pid\nchoose:allow_once,reject_once").await;
    let pid = rig.reply_text(&run).await;
    let killed = std::process::Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.unwrap().success());
    until("the child is gone", || rig.children.count() == 0).await;
    let run = wait_for_end(&rig, &run).await;
    assert_eq!(run.status, RunStatus::Failed);
    assert_eq!(pending(&rig, &run).await, 0);
    assert_eq!(resolutions(&rig, &run).await.len(), 1);
    rig.end().await;
}
