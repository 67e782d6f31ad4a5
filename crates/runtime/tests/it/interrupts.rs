//! Interrupts: asking, answering from other clients, deadlines.

use std::sync::atomic::Ordering;
use std::time::Duration;

use trilogue_domain::{Answer, Code, InterruptId, Json, Outcome, RunStatus};
use trilogue_runtime::{AnswerTo, Options, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use crate::fixture::{TestServer, alice, new_run, on, principal, scope, until};

fn json(text: &'static str) -> Answer {
    Answer::Json(Json::parse(text).unwrap())
}

async fn pending(server: &TestServer, run: &RunRow) -> InterruptId {
    let filter = InterruptFilter { thread: None, run: Some(run.id.clone()), pending: true };
    let listing = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap();
    listing.rows.first().expect("an interrupt is pending").interrupt.id.clone()
}

#[tokio::test]
async fn a_question_is_answered_by_another_client() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        for script in ["say:a ask say:b", "say:a suspend:say:b"] {
            let thread = server.thread().await;
            let run = server.run(script, ThreadChoice::Existing(thread)).await;
            assert_eq!(run.status, RunStatus::Interrupted, "{script}");
            let id = pending(&server, &run).await;
            let row = server
                .runtime
                .answer(&principal("bob"), AnswerTo::Interrupt(id.clone()), json("7"))
                .await
                .unwrap();
            assert!(row.resolution.is_some());
            let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
            assert_eq!(run.status, RunStatus::Completed);
            assert_eq!(server.output_text(&run).await, "a7b");
            let late = server
                .runtime
                .answer(&alice(), AnswerTo::Interrupt(id), json("8"))
                .await
                .unwrap_err();
            assert_eq!(late.code(), Code::InterruptResolved);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_waits_hears_of_the_end_when_it_is_durable_and_of_nothing_before() {
    let server = TestServer::sqlite().await;
    for _ in 0..300 {
        let thread = server.thread().await;
        let run = server.run("suspend:say:b", ThreadChoice::Existing(thread)).await;
        let id = pending(&server, &run).await;
        // These tasks ask repeatedly while the run resumes and ends.
        let asks = (0..8).map(|_| {
            let (runtime, id) = (server.runtime.clone(), run.id.clone());
            tokio::spawn(async move {
                let mut heard = RunStatus::Interrupted;
                while heard == RunStatus::Interrupted {
                    heard = runtime.wait_until_settled(&alice(), &id).await.unwrap().status;
                }
                heard
            })
        });
        let asks: Vec<_> = asks.collect();
        server.runtime.answer(&alice(), AnswerTo::Interrupt(id), json("1")).await.unwrap();
        for asked in asks {
            assert_eq!(asked.await.unwrap(), RunStatus::Completed);
        }
    }
}

#[tokio::test]
async fn of_two_answers_at_once_exactly_one_counts() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let run = server.run("suspend:say:x", ThreadChoice::Existing(thread)).await;
    let id = pending(&server, &run).await;
    let answer = || {
        let (runtime, id) = (server.runtime.clone(), id.clone());
        async move { runtime.answer(&alice(), AnswerTo::Interrupt(id), json("1")).await }
    };
    let (one, two) = tokio::join!(answer(), answer());
    assert_eq!([one.is_ok(), two.is_ok()].iter().filter(|ok| **ok).count(), 1);
}

#[tokio::test]
async fn nobody_is_refused_for_the_sake_of_an_answer_that_was_not_stored() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let run = server.run("suspend:say:b", ThreadChoice::Existing(thread)).await;
        let id = pending(&server, &run).await;
        // This makes the next append of the thread's owner fail.
        server.store.acquire(run.thread, "another node").await.unwrap();
        let bob = principal("bob");
        let answer =
            |text| server.runtime.answer(&bob, AnswerTo::Interrupt(id.clone()), json(text));
        let (one, two) = tokio::join!(answer("1"), answer("2"));
        let codes = [one, two].map(|answered| answered.err().map(|error| error.code()));
        let is_taken = codes.contains(&None);
        assert!(is_taken || !codes.contains(&Some(Code::InterruptResolved)), "{codes:?}");
        if !is_taken {
            assert_eq!(pending(&server, &run).await, id);
            answer("3").await.unwrap();
        }
        let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
    }
}

#[tokio::test]
async fn an_answer_without_a_name_is_for_what_was_last_shown() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let run = server.run("ask ask", ThreadChoice::Existing(thread)).await;
    let first = pending(&server, &run).await;
    server.runtime.record_shown_question(&alice().id, &run.id, &first);
    server.runtime.answer(&principal("bob"), AnswerTo::Interrupt(first), json("1")).await.unwrap();
    let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
    let second = pending(&server, &run).await;
    let missed = server
        .runtime
        .answer(&alice(), AnswerTo::Run(run.id.clone()), json("2"))
        .await
        .unwrap_err();
    assert_eq!(missed.code(), Code::InterruptResolved);
    assert_eq!(missed.pending_interrupt(), Some(&second));
    let unshown = server
        .runtime
        .answer(&principal("carol"), AnswerTo::Run(run.id.clone()), json("2"))
        .await
        .unwrap_err();
    assert_eq!(unshown.code(), Code::InterruptMismatch);
    server.runtime.record_shown_question(&alice().id, &run.id, &second);
    server.runtime.answer(&alice(), AnswerTo::Run(run.id.clone()), json("2")).await.unwrap();
    let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
    assert_eq!(server.output_text(&run).await, "12");
}

#[tokio::test(start_paused = true)]
async fn a_question_times_out_only_while_nobody_is_connected() {
    let server = TestServer::with(Options {
        interrupt_deadline: Duration::from_millis(30),
        ..Default::default()
    })
    .await;
    let thread = server.thread().await;
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let presence = server.runtime.present(row.key);
    let run = server.run("ask", ThreadChoice::Existing(thread)).await;
    // The test's time is paused: several patiences pass while a client is connected.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Interrupted);
    drop(presence);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let run = server.stored(&run).await;
    assert_eq!(run.outcome, Some(Outcome::TimedOut { reason: Code::AwaitTimeout }));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stays_silent_does_not_hold_a_question_for_ever() {
    let server = TestServer::with(Options {
        interrupt_deadline: Duration::from_millis(30),
        attended_deadline: Duration::from_millis(200),
        ..Default::default()
    })
    .await;
    let thread = server.thread().await;
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let _presence = server.runtime.present(row.key);
    let run = server.run("ask", ThreadChoice::Existing(thread)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Interrupted);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let run = server.stored(&run).await;
    assert_eq!(run.outcome, Some(Outcome::TimedOut { reason: Code::AwaitTimeout }));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_nobody_uses_holds_no_question_beyond_its_deadline() {
    let deadline = Duration::from_millis(100);
    let server =
        TestServer::with(Options { interrupt_deadline: deadline, ..Default::default() }).await;
    let thread = server.thread().await;
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let window = server.runtime.active(row.key);
    let run = server.run("ask", ThreadChoice::Existing(thread)).await;
    for _ in 0..3 {
        tokio::time::sleep(deadline * 4 / 5).await;
        window.touch();
    }
    tokio::time::sleep(deadline * 4 / 5).await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Interrupted, "its user is there");
    tokio::time::sleep(deadline * 2).await;
    let run = server.stored(&run).await;
    assert_eq!(run.outcome, Some(Outcome::TimedOut { reason: Code::AwaitTimeout }));
}

#[tokio::test(start_paused = true)]
async fn a_window_that_nobody_uses_holds_no_suspended_run_beyond_its_deadline() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let window = server.runtime.active(row.key);
    let run = server.run("suspend-for:60", ThreadChoice::Existing(thread)).await;
    tokio::time::sleep(Duration::from_secs(45)).await;
    window.touch();
    server.clock.advance(minutes(2));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Interrupted, "its user is there");
    server.clock.advance(minutes(2));
    tokio::time::sleep(minutes(5)).await;
    let run = server.stored(&run).await;
    assert_eq!(run.outcome, Some(Outcome::TimedOut { reason: Code::AwaitTimeout }));
}

/// The deadline of a question that can outlive the process is an item of the durable queue.
#[tokio::test(start_paused = true)]
async fn a_client_that_stays_silent_does_not_hold_a_suspended_run_for_ever() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let server =
        TestServer::with(Options { attended_deadline: minutes(10), ..Default::default() }).await;
    let thread = server.thread().await;
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let _presence = server.runtime.present(row.key);
    let run = server.run("suspend-for:60", ThreadChoice::Existing(thread)).await;
    server.clock.advance(minutes(2));
    // The worker checks the queue every minute of this time.
    tokio::time::sleep(minutes(5)).await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Interrupted, "somebody may answer");
    server.clock.advance(minutes(9));
    tokio::time::sleep(minutes(5)).await;
    let run = server.stored(&run).await;
    assert_eq!(run.outcome, Some(Outcome::TimedOut { reason: Code::AwaitTimeout }));
}

#[tokio::test]
async fn a_waiting_native_run_gives_up_the_turn() {
    let server = TestServer::memory().await;
    let waiting = server.run("ask say:then", ThreadChoice::Existing(server.main.clone())).await;
    let other = server.run("say:between", ThreadChoice::Existing(server.main.clone())).await;
    assert_eq!(other.status, RunStatus::Completed);
    let id = pending(&server, &waiting).await;
    server.runtime.answer(&alice(), AnswerTo::Interrupt(id), json("1")).await.unwrap();
    let waited = server.runtime.wait_until_settled(&alice(), &waiting.id).await.unwrap();
    assert_eq!(server.output_text(&waited).await, "1then");
}

#[tokio::test]
async fn state_set_before_a_suspension_is_kept() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let run =
            server.run("set:{\"n\":1} suspend:say:x", ThreadChoice::Existing(thread.clone())).await;
        until("the owner has left", || async { server.runtime.status().owners == 0 }).await;
        let id = pending(&server, &run).await;
        server.runtime.answer(&alice(), AnswerTo::Interrupt(id), json("1")).await.unwrap();
        server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        let next = server.run("state", ThreadChoice::Existing(thread)).await;
        assert_eq!(server.output_text(&next).await, "{\"n\":1}");
    }
}

#[tokio::test]
async fn a_waiting_run_is_cancelled_at_once() {
    let server = TestServer::memory().await;
    for script in ["ask", "suspend:say:x"] {
        let submitted = server
            .runtime
            .submit(&alice(), new_run(script, ThreadChoice::Existing(server.main.clone())))
            .await
            .unwrap();
        let waiting = submitted.settled.wait().await.unwrap();
        server.runtime.cancel(&alice(), &waiting.id).await.unwrap();
        let run = server.runtime.wait_until_settled(&alice(), &waiting.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Cancelled, "{script}");
    }
}

/// A run that waits for an answer is not active: others start, and it resumes when a permit is free again.
#[tokio::test]
async fn a_waiting_run_does_not_keep_others_from_starting() {
    let server = TestServer::with(Options { max_running: 1, ..Options::default() }).await;
    let thread = server.thread().await;
    let waiting = server.submit(on(&thread, "ask")).await.settled.wait().await.unwrap();
    assert_eq!(waiting.status, RunStatus::Interrupted);
    let other = server.thread().await;
    let working = server.submit(on(&other, "gate say:done")).await;
    until("it is at work", || async { server.agent.turns.load(Ordering::SeqCst) == 2 }).await;

    let answer = Answer::Json(Json::parse("5").unwrap());
    server.runtime.answer(&alice(), AnswerTo::Run(waiting.id.clone()), answer).await.unwrap();
    let third = server.thread().await;
    let last = server.submit(on(&third, "say:last")).await;
    server.agent.gate.add_permits(1);
    assert_eq!(working.settled.wait().await.unwrap().status, RunStatus::Completed);
    let answered = server.runtime.wait_until_settled(&alice(), &waiting.id).await.unwrap();
    assert_eq!(server.output_text(&answered).await, "5");
    assert_eq!(last.settled.wait().await.unwrap().status, RunStatus::Completed);
}
