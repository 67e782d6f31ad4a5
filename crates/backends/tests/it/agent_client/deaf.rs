//! An agent that stops reading does not block its callers.

use std::time::{Duration, Instant};

use trilogue_domain::{Json, RunStatus};

use super::rig::{Rig, until, until_async};

/// The longest that a notification may take: its own limit of five seconds, and as much again for a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(10);
/// More output than the pipe holds without a reader.
const SCRIPT: &str = "say:listening\ndeaf:24";

async fn deaf(grace: Duration) -> (Rig, trilogue_domain::ThreadId, trilogue_store::rows::RunRow) {
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| {
        launch.cancel_grace = Some(grace);
    })
    .await;
    let thread = rig.thread().await;
    let begun = rig.begin(&thread, SCRIPT).await;
    let run = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    until_async("it listens no more", async || {
        rig.reply_text(&run).await.contains("heard nothing")
    })
    .await;
    (rig, thread, run)
}

#[tokio::test]
async fn it_is_cancelled_and_ended_in_time_and_the_thread_goes_on() {
    let (rig, thread, run) = deaf(Duration::from_millis(200)).await;
    let began = Instant::now();
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    until("its process is ended", || rig.children.count() == 0).await;
    assert_eq!(rig.run(&thread, "say:on").await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn it_is_ended_when_its_run_is_dropped() {
    let (rig, _, _) = deaf(Duration::from_secs(3_600)).await;
    let report = rig.runtime.drain(Duration::from_millis(100)).await;
    assert_eq!(report.abandoned.len(), 1);
    until("its process is ended", || rig.children.count() == 0).await;
    rig.end().await;
}

#[tokio::test]
async fn who_tells_it_something_waits_for_a_moment_only() {
    let (rig, thread, run) = deaf(Duration::from_millis(200)).await;
    let context = rig.context(&thread).await;
    let caller = super::rig::caller("{}");
    for thread in [Some(&context), None] {
        let told = rig.sessions().notify(thread, &caller, "_scripted/told", Json::empty_object());
        tokio::time::timeout(TOLD_WITHIN, told).await.unwrap();
    }
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    rig.end().await;
}
