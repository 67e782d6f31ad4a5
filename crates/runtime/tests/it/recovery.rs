//! After a crash: nothing is executed again in silence, nothing stays in progress.

use std::sync::atomic::Ordering;
use std::time::Duration;

use trilogue_domain::{Answer, Code, Json, Outcome, RunStatus};
use trilogue_runtime::{AnswerTo, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page};

use crate::fixture::{House, alice, new_run, scope};

#[tokio::test]
async fn every_run_is_accounted_for() {
    let house = House::sqlite().await;
    let mut runs = Vec::new();
    for script in ["say:done", "commit forever", "ask", "suspend:say:later"] {
        let thread = house.thread().await;
        let submitted = house
            .runtime
            .submit(&alice(), new_run(script, ThreadChoice::Existing(thread.clone())))
            .await
            .unwrap();
        if script != "commit forever" {
            submitted.settled.wait().await.unwrap();
        }
        runs.push(submitted.run);
        if script == "commit forever" {
            let queued = house
                .runtime
                .submit(&alice(), new_run("say:queued", ThreadChoice::Existing(thread)))
                .await
                .unwrap();
            runs.push(queued.run);
        }
    }
    let house = house.crash().await;
    let queued = house.runtime.settled(&alice(), &runs[2].id).await.unwrap();
    assert_eq!(
        (queued.status, house.said(&queued).await),
        (RunStatus::Completed, "queued".to_owned())
    );
    assert_eq!(house.agent.turns.load(Ordering::SeqCst), 1, "only the queued run was started");
    assert_eq!(house.stored(&runs[0]).await.status, RunStatus::Completed);
    for lost in [&runs[1], &runs[3]] {
        let Some(Outcome::Failed(failure)) = house.stored(lost).await.outcome else {
            panic!("{lost:?}")
        };
        assert_eq!((failure.code.as_str(), failure.transient), (Code::AgentLost.as_str(), true));
    }
    assert_eq!(house.stored(&runs[4]).await.status, RunStatus::Interrupted);
    let filter = InterruptFilter { pending: true, ..Default::default() };
    let pending = house.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows;
    assert_eq!(pending.len(), 1);
    let answer = Answer::Json(Json::parse("5").unwrap());
    house
        .runtime
        .answer(&alice(), AnswerTo::Interrupt(pending[0].interrupt.id.clone()), answer)
        .await
        .unwrap();
    let resumed = house.runtime.settled(&alice(), &runs[4].id).await.unwrap();
    assert_eq!(house.said(&resumed).await, "5later");
}

#[tokio::test]
async fn draining_keeps_what_waits_and_reports_what_it_abandoned() {
    let house = House::sqlite().await;
    let (one, two) = (house.thread().await, house.thread().await);
    let waiting = house.run("suspend:say:later", ThreadChoice::Existing(one)).await;
    let stuck = house
        .runtime
        .submit(&alice(), new_run("forever", ThreadChoice::Existing(two)))
        .await
        .unwrap();
    let report = house.runtime.drain(Duration::from_millis(50)).await;
    assert_eq!(
        (&report.abandoned[..], &report.waiting[..]),
        (&[stuck.run.id.clone()][..], &[waiting.id.clone()][..])
    );
    let refused = house
        .runtime
        .submit(&alice(), new_run("say:x", ThreadChoice::Ephemeral))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.code(), Code::ShuttingDown);
    let Some(Outcome::Failed(failure)) = house.stored(&stuck.run).await.outcome else { panic!() };
    assert_eq!(failure.code, Code::AgentLost.as_str());
    let house = house.crash().await;
    assert_eq!(house.stored(&waiting).await.status, RunStatus::Interrupted);
}

#[tokio::test]
async fn draining_lets_runs_end() {
    let house = House::memory().await;
    let thread = house.thread().await;
    let at_work = house
        .runtime
        .submit(&alice(), new_run("gate say:done", ThreadChoice::Existing(thread)))
        .await
        .unwrap();
    let runtime = house.runtime.clone();
    let draining = tokio::spawn(async move { runtime.drain(Duration::from_secs(10)).await });
    house.agent.gate.add_permits(1);
    assert_eq!(draining.await.unwrap(), trilogue_runtime::DrainReport::default());
    assert_eq!(at_work.settled.wait().await.unwrap().status, RunStatus::Completed);
}
