//! The effect of a new run on the runs in flight on its thread.

use std::time::Duration;

use trilogue_domain::port::Clock;
use trilogue_domain::{Code, Outcome, RunStatus, Strategy, ThreadId, limits};
use trilogue_runtime::{Options, RunRequest, Submitted, ThreadChoice, WhenHolding, WhenWaiting};
use trilogue_store::rows::QueueKind;

use crate::fixture::{TestServer, alice, new_run, on, until};

fn with(strategy: Strategy, new: RunRequest) -> RunRequest {
    RunRequest {
        strategy,
        when_waiting: WhenWaiting::Supersede,
        when_holding: WhenHolding::Strategy,
        ..new
    }
}

fn in_a_minute(server: &TestServer, new: RunRequest) -> RunRequest {
    let not_before = Some(server.clock.now().after(Duration::from_secs(60)));
    RunRequest { not_before, ..new }
}

/// Submits an active run, a queued one, and a scheduled one.
async fn in_flight(server: &TestServer, thread: &ThreadId) -> [Submitted; 3] {
    let at_work = server.submit(on(thread, "say:work commit until-cancelled")).await;
    let queued = server.submit(on(thread, "say:queued")).await;
    let scheduled = server.submit(in_a_minute(server, on(thread, "say:scheduled"))).await;
    until("the first is at work", || async { server.output_text(&at_work.run).await == "work" })
        .await;
    [at_work, queued, scheduled]
}

async fn servers() -> [TestServer; 2] {
    [TestServer::memory().await, TestServer::sqlite().await]
}

#[tokio::test]
async fn a_run_that_refuses_to_wait_is_refused_while_anything_is_in_flight() {
    for server in servers().await {
        let scheduled =
            server.submit(in_a_minute(&server, on(&server.main, "say:later"))).await.run;
        let reject = || with(Strategy::Reject, on(&server.main, "say:x"));
        assert_eq!(server.refusal_code(reject()).await, Code::ThreadBusy, "one is scheduled");
        assert_eq!(server.refusal_code(in_a_minute(&server, reject())).await, Code::ThreadBusy);
        server.runtime.cancel(&alice(), &scheduled.id).await.unwrap();
        let at_work = server.submit(on(&server.main, "gate")).await;
        assert_eq!(server.refusal_code(reject()).await, Code::ThreadBusy, "one is at work");
        server.agent.gate.add_permits(1);
        at_work.settled.wait().await.unwrap();
        // A run that waits for an answer is not in flight.
        let waiting =
            server.run("suspend:say:x", ThreadChoice::Existing(server.main.clone())).await;
        let run = server.submit(reject()).await.settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
        let outcome = server.stored(&waiting).await.outcome;
        assert_eq!(outcome, Some(Outcome::Cancelled { reason: Some(Code::RunSuperseded) }));
    }
}

#[tokio::test]
async fn an_interrupting_run_cancels_everything_in_flight_and_keeps_it() {
    for server in servers().await {
        server.run(r#"set:{"n":1}"#, ThreadChoice::Existing(server.main.clone())).await;
        let others = in_flight(&server, &server.main).await;
        let new = with(Strategy::Interrupt, on(&server.main, "state"));
        let run = server.submit(new).await.settled.wait().await.unwrap();
        assert_eq!(server.output_text(&run).await, r#"{"n":1}"#);
        for other in &others {
            let outcome = server.stored(&other.run).await.outcome;
            assert_eq!(outcome, Some(Outcome::Cancelled { reason: None }));
        }
        assert_eq!(server.output_text(&others[0].run).await, "work");
        assert_eq!(server.output_text(&others[1].run).await, "", "it never began");
    }
}

#[tokio::test]
async fn a_run_that_rolls_back_starts_from_the_state_before_everything_in_flight() {
    for server in servers().await {
        server.run(r#"set:{"n":1} say:before"#, ThreadChoice::Existing(server.main.clone())).await;
        let others = in_flight(&server, &server.main).await;
        let runs = others.each_ref().map(|other| other.run.clone());
        // Use the waiter from the submission: one that is registered now could come after the removal.
        let [at_work, ..] = others;
        let new = with(Strategy::Rollback, on(&server.main, "state history"));
        let (told, submitted) = tokio::join!(at_work.settled.wait(), server.submit(new));
        let expected = Outcome::Cancelled { reason: Some(Code::RunRolledBack) };
        assert_eq!(told.unwrap().outcome, Some(expected), "who waits is told before it goes");
        let run = submitted.settled.wait().await.unwrap();
        assert_eq!(server.output_text(&run).await, r#"{"n":1}set:{"n":1} say:before|before"#);
        for run in &runs {
            assert!(server.is_gone(run).await);
        }
    }
}

#[tokio::test]
async fn a_scheduled_run_applies_its_strategy_at_once_and_queues_when_it_is_due() {
    let options = Options { local_principal: Some(alice().id), ..Options::default() };
    for server in [TestServer::with(options.clone()).await, TestServer::sqlite_with(options).await]
    {
        let thread = server.thread().await;
        let [at_work, queued, scheduled] = in_flight(&server, &thread).await;
        let new = in_a_minute(&server, with(Strategy::Interrupt, on(&thread, "say:mine")));
        let mine = server.submit(new).await;
        assert_eq!(mine.run.status, RunStatus::Queued);
        for other in [&at_work, &queued, &scheduled] {
            let ended = server.runtime.wait_until_settled(&alice(), &other.run.id).await.unwrap();
            assert_eq!(ended.status, RunStatus::Cancelled);
        }
        assert_eq!(server.stored(&mine.run).await.status, RunStatus::Queued);
        // The run falls due while another is active: it waits for its turn and cancels none.
        let other = server.submit(on(&thread, "gate say:other")).await;
        server.clock.advance(Duration::from_secs(61));
        // The queued item wakes the worker, which does not use the test's clock.
        let elsewhere = server.thread().await;
        let wakes = in_a_minute(&server, on(&elsewhere, "say:x"));
        let not_before = Some(server.clock.now().after(Duration::from_millis(1)));
        server.submit(RunRequest { not_before, ..wakes }).await;
        server.clock.advance(Duration::from_secs(1));
        until("what was due is done", || async {
            server.store.next_due(QueueKind::ScheduledRun).await.unwrap().is_none()
        })
        .await;
        assert_eq!(server.stored(&mine.run).await.status, RunStatus::Queued);
        server.agent.gate.add_permits(1);
        for submitted in [other, mine] {
            let ended = submitted.settled.wait().await.unwrap();
            assert_eq!(ended.status, RunStatus::Completed);
        }
    }
}

#[tokio::test]
async fn those_that_wait_for_their_time_are_bounded_with_those_that_wait_for_their_turn() {
    let options = Options { max_queued_runs_per_thread: 3, ..Options::default() };
    let server = TestServer::with(options).await;
    for _ in 0..3 {
        server.submit(in_a_minute(&server, on(&server.main, "say:x"))).await;
    }
    assert_eq!(
        server.refusal_code(in_a_minute(&server, on(&server.main, "say:x"))).await,
        Code::Overloaded
    );
    // A run that starts at once does not count as waiting.
    let at_work = server.submit(on(&server.main, "gate")).await;
    assert_eq!(server.refusal_code(on(&server.main, "say:x")).await, Code::Overloaded);
    server.agent.gate.add_permits(1);
    at_work.settled.wait().await.unwrap();
}

#[tokio::test]
async fn a_run_is_not_scheduled_too_far_ahead() {
    let server = TestServer::memory().await;
    let at = |ahead| {
        let not_before = Some(server.clock.now().after(ahead));
        RunRequest { not_before, ..new_run("say:x", ThreadChoice::Stateless) }
    };
    let most = limits::MAX_SCHEDULE_AHEAD;
    assert_eq!(server.refusal_code(at(most + Duration::from_secs(1))).await, Code::InvalidRequest);
    assert_eq!(server.submit(at(most)).await.run.status, RunStatus::Queued);
}
