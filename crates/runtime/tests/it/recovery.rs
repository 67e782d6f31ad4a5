//! After a crash, no action is silently repeated, and no run stays active without a task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use trilogue_domain::port::Clock;
use trilogue_domain::{Answer, Callback, Code, Json, Outcome, RunStatus, ThreadActivity, ThreadId};
use trilogue_runtime::{AnswerTo, Options, RunRequest, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, QueueKind};

use crate::fixture::{TestServer, alice, new_run, on, scope, until};

const DRAIN_DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_run_is_accounted_for() {
    let server = TestServer::sqlite().await;
    let mut runs = Vec::new();
    for script in ["say:done", "commit forever", "ask", "suspend:say:later"] {
        let thread = server.thread().await;
        let submitted = server
            .runtime
            .submit(&alice(), new_run(script, ThreadChoice::Existing(thread.clone())))
            .await
            .unwrap();
        if script != "commit forever" {
            submitted.settled.wait().await.unwrap();
        }
        runs.push(submitted.run);
        if script == "commit forever" {
            let queued = server
                .runtime
                .submit(&alice(), new_run("say:queued", ThreadChoice::Existing(thread)))
                .await
                .unwrap();
            runs.push(queued.run);
        }
    }
    let server = server.crash().await;
    let queued = server.runtime.wait_until_settled(&alice(), &runs[2].id).await.unwrap();
    assert_eq!(
        (queued.status, server.output_text(&queued).await),
        (RunStatus::Completed, "queued".to_owned())
    );
    assert_eq!(server.agent.turns.load(Ordering::SeqCst), 1, "only the queued run was started");
    assert_eq!(server.stored(&runs[0]).await.status, RunStatus::Completed);
    for lost in [&runs[1], &runs[3]] {
        let Some(Outcome::Failed(failure)) = server.stored(lost).await.outcome else {
            panic!("{lost:?}")
        };
        assert_eq!((failure.code.as_str(), failure.transient), (Code::AgentLost.as_str(), true));
    }
    assert_eq!(server.stored(&runs[4]).await.status, RunStatus::Interrupted);
    let filter = InterruptFilter { pending: true, ..Default::default() };
    let pending = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows;
    assert_eq!(pending.len(), 1);
    let answer = Answer::Json(Json::parse("5").unwrap());
    server
        .runtime
        .answer(&alice(), AnswerTo::Interrupt(pending[0].interrupt.id.clone()), answer)
        .await
        .unwrap();
    let resumed = server.runtime.wait_until_settled(&alice(), &runs[4].id).await.unwrap();
    assert_eq!(server.output_text(&resumed).await, "5later");
}

/// A roll-back is a promise: if the server crashes while the agent is still stopping, the run is removed all the same.
#[tokio::test]
async fn a_roll_back_outlives_a_crash() {
    let options = Options { local_principal: Some(alice().id), ..Options::default() };
    let server = TestServer::sqlite_with(options.clone()).await;
    let thread = server.thread().await;
    let at_once = server.submit(on(&thread, "say:half commit until-cancelled gate")).await.run;
    let other = server.thread().await;
    let second = server.submit(on(&other, "say:half commit until-cancelled gate")).await.run;
    let stateless = new_run("say:half commit until-cancelled gate", ThreadChoice::Stateless);
    let stateless = server.submit(stateless).await.run;
    let kept = server.thread().await;
    let cancelled = server.submit(on(&kept, "commit until-cancelled gate")).await.run;
    // A run that is already being cancelled is rolled back too.
    for run in [&second, &cancelled] {
        server.runtime.cancel(&alice(), &run.id).await.unwrap();
    }
    for run in [&at_once, &second, &stateless] {
        let (runtime, id) = (server.runtime.clone(), run.id.clone());
        tokio::spawn(async move { runtime.roll_back(&alice(), &id).await });
        until("that is durable", || async {
            server.stored(run).await.cancel_reason == Some(Code::RunRolledBack)
        })
        .await;
    }
    let queued = server.submit(on(&thread, "history")).await.run;

    let server = server.crash_with(options).await;
    let ended = server.runtime.wait_until_settled(&alice(), &queued.id).await.unwrap();
    assert!(!server.output_text(&ended).await.contains("half"));
    for run in [&at_once, &second, &stateless] {
        assert!(server.is_gone(run).await, "{run:?}");
    }
    assert_eq!(server.store.thread(&scope(), &stateless.thread_id).await.unwrap(), None);
    let cancelled = server.stored(&cancelled).await;
    assert_eq!(cancelled.outcome, Some(Outcome::Cancelled { reason: None }));
    assert_eq!(cancelled.cancel_reason, None);
}

/// Each run in its state at the crash, and the effect on it, its thread, its path and its deliveries.
#[tokio::test]
async fn a_restart_keeps_runs_threads_checkpoints_and_deliveries() {
    let options = Options { local_principal: Some(alice().id), ..Options::default() };
    let server = TestServer::sqlite_with(options.clone()).await;
    let url: Arc<str> = "https://example.com/hook".into();
    let callback = Callback { url, status: true, values: false, updates: false };
    let told = |thread: &ThreadId, script: &str| RunRequest {
        callback: Some(callback.clone()),
        request: Some(Json::parse(r#"{"agent_id":"script"}"#).unwrap()),
        ..on(thread, script)
    };
    let mut threads = Vec::new();
    for _ in 0..4 {
        let thread = server.thread().await;
        server.run(r#"set:{"n":1} say:before"#, ThreadChoice::Existing(thread.clone())).await;
        threads.push(thread);
    }
    let running = server.submit(told(&threads[0], "say:half commit forever")).await.run;
    let pending = server.submit(told(&threads[0], "state")).await.run;
    let mut later = told(&threads[1], "state");
    later.not_before = Some(server.clock.now().after(Duration::from_secs(60)));
    let scheduled = server.submit(later).await.run;
    let waits =
        server.submit(told(&threads[2], "suspend:state")).await.settled.wait().await.unwrap();
    let due = server.submit(told(&threads[3], "say:done")).await.settled.wait().await.unwrap();
    until("the run is at work", || async { !server.output_text(&running).await.is_empty() }).await;
    let mut paths = Vec::new();
    for thread in &threads {
        paths.push(server.store.path(&scope(), thread, None, 9).await.unwrap());
    }

    let server = server.crash_with(options.clone()).await;
    let ended = server.runtime.wait_until_settled(&alice(), &pending.id).await.unwrap();
    assert_eq!(
        (ended.status, &*server.output_text(&ended).await),
        (RunStatus::Completed, r#"{"n":1}"#)
    );
    let lost = server.stored(&running).await;
    let Some(Outcome::Failed(failure)) = &lost.outcome else { panic!("{lost:?}") };
    assert!(failure.transient && failure.code == Code::AgentLost.as_str());
    assert_eq!(server.output_text(&lost).await, "half");
    let waiting = server.stored(&scheduled).await;
    assert_eq!((waiting.status, waiting.not_before), (RunStatus::Queued, scheduled.not_before));
    assert_eq!(server.stored(&waits).await.status, RunStatus::Interrupted);
    for run in [&lost, &waiting, &ended, &due] {
        let row = server.stored(run).await;
        assert_eq!((row.callback.as_ref(), row.request.is_some()), (Some(&callback), true));
    }
    let keys: Vec<_> = paths.iter().map(|path| path[0].thread).collect();
    let standings = server.store.activities(&scope(), &keys).await.unwrap();
    assert_eq!(
        standings,
        [
            ThreadActivity::Idle,
            ThreadActivity::Busy,
            ThreadActivity::Interrupted,
            ThreadActivity::Idle
        ]
    );
    for (thread, before) in threads.iter().zip(&paths) {
        let path = server.store.path(&scope(), thread, None, 9).await.unwrap();
        assert_eq!(path[path.len() - before.len()..], before[..], "the path went on from there");
    }

    let answer = Answer::Json(Json::null());
    server.runtime.answer(&alice(), AnswerTo::Run(waits.id.clone()), answer).await.unwrap();
    let resumed = server.runtime.wait_until_settled(&alice(), &waits.id).await.unwrap();
    assert_eq!(server.output_text(&resumed).await, r#"null{"n":1}"#);
    server.clock.advance(Duration::from_secs(61));
    let server = server.crash_with(options).await;
    let ended = server.runtime.wait_until_settled(&alice(), &scheduled.id).await.unwrap();
    assert_eq!(
        (ended.status, &*server.output_text(&ended).await),
        (RunStatus::Completed, r#"{"n":1}"#)
    );
    // The client gets a callback for each run, and two for the one that waited.
    let mut delivered = Vec::new();
    let now = server.clock.now();
    loop {
        let lease = now.after(Duration::from_secs(30));
        let claims = server.store.claim(QueueKind::Callback, now, lease, 9).await.unwrap();
        if claims.is_empty() {
            break;
        }
        for claim in claims {
            assert!(server.store.finish(&claim).await.unwrap());
            let run = claim.item.reference.to_value()["run_id"].as_str().unwrap().to_owned();
            delivered.push(run);
        }
    }
    delivered.sort();
    let mut expected: Vec<_> =
        [&running, &pending, &scheduled, &waits, &waits, &due].map(|run| run.id.to_string()).into();
    expected.sort();
    assert_eq!(delivered, expected);
}

#[tokio::test]
async fn draining_keeps_what_waits_and_reports_what_it_abandoned() {
    let server = TestServer::sqlite().await;
    let (one, two) = (server.thread().await, server.thread().await);
    let waiting = server.run("suspend:say:later", ThreadChoice::Existing(one)).await;
    let stuck = server
        .runtime
        .submit(&alice(), new_run("forever", ThreadChoice::Existing(two)))
        .await
        .unwrap();
    let report = server.runtime.drain(Duration::from_millis(50)).await;
    assert_eq!(
        (&report.abandoned[..], &report.waiting[..]),
        (&[stuck.run.id.clone()][..], &[waiting.id.clone()][..])
    );
    let refused = server
        .runtime
        .submit(&alice(), new_run("say:x", ThreadChoice::Ephemeral))
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.code(), Code::ShuttingDown);
    let Some(Outcome::Failed(failure)) = server.stored(&stuck.run).await.outcome else { panic!() };
    assert_eq!(failure.code, Code::AgentLost.as_str());
    let server = server.crash().await;
    assert_eq!(server.stored(&waiting).await.status, RunStatus::Interrupted);
}

#[tokio::test]
async fn draining_lets_runs_end() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let at_work = server
        .runtime
        .submit(&alice(), new_run("gate say:done", ThreadChoice::Existing(thread)))
        .await
        .unwrap();
    let runtime = server.runtime.clone();
    let draining = tokio::spawn(async move { runtime.drain(Duration::from_secs(10)).await });
    server.agent.gate.add_permits(1);
    assert_eq!(draining.await.unwrap(), trilogue_runtime::DrainReport::default());
    assert_eq!(at_work.settled.wait().await.unwrap().status, RunStatus::Completed);
}

/// Clients cannot answer a server that stops: a question that ends with the server does not delay the stop until its deadline.
#[tokio::test]
async fn draining_does_not_wait_for_answers_until_its_deadline() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let asking = server.submit(on(&thread, "ask")).await.settled.wait().await.unwrap();
    assert_eq!(asking.status, RunStatus::Interrupted);
    let other = server.thread().await;
    let asks_later = server.submit(on(&other, "gate ask")).await.run;
    let begun = std::time::Instant::now();
    let runtime = server.runtime.clone();
    let draining = tokio::spawn(async move { runtime.drain(DRAIN_DEADLINE).await });
    until("the question is withdrawn", || async {
        server.stored(&asking).await.status == RunStatus::Failed
    })
    .await;
    // New questions are refused at once from here on.
    server.agent.gate.add_permits(1);
    let report = draining.await.unwrap();
    assert!(begun.elapsed() < DRAIN_DEADLINE, "it took {:?}", begun.elapsed());
    assert_eq!((&report.abandoned[..], &report.waiting[..]), (&[asking.id.clone()][..], &[][..]));
    let Some(Outcome::Failed(failure)) = server.stored(&asking).await.outcome else { panic!() };
    assert_eq!(failure.code, Code::AgentLost.as_str());
    assert_eq!(server.stored(&asks_later).await.status, RunStatus::Failed);
}
