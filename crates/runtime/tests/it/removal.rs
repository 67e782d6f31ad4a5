//! Removal of runs and threads: rolled back, removed, erased while idle, and by the retention of stateless runs.

use std::time::Duration;

use trilogue_domain::port::Clock;
use trilogue_domain::{Answer, Body, Code, Json, Outcome, RunStatus};
use trilogue_runtime::{AnswerTo, Options, RunRequest, ThreadChoice, ThreadPatch};
use trilogue_store::Range;
use trilogue_store::rows::{MessageRow, Page, RetentionPolicy, RunFilter, ThreadFilter};

use crate::fixture::{TestServer, alice, new_run, on, scope, until};
use crate::keeper::{keeps, with_keeper};

const ROLLED_BACK: Option<Outcome> = Some(Outcome::Cancelled { reason: Some(Code::RunRolledBack) });

async fn servers() -> [TestServer; 2] {
    [TestServer::memory().await, TestServer::sqlite().await]
}

#[tokio::test]
async fn a_run_is_rolled_back_wherever_it_is() {
    for server in servers().await {
        for script in ["say:x commit until-cancelled", "ask", "suspend:say:x", "forever"] {
            let thread = server.thread().await;
            let at_work = server.submit(on(&thread, script)).await;
            let queued = server.submit(on(&thread, "say:y")).await;
            if matches!(script, "ask" | "suspend:say:x") {
                // The first run waits and has given up its turn.
                queued.settled.wait().await.unwrap();
                let waits = server.stored(&at_work.run).await;
                assert_eq!(waits.status, RunStatus::Interrupted);
                server.runtime.roll_back(&alice(), &at_work.run.id).await.unwrap();
            } else {
                server.runtime.roll_back(&alice(), &queued.run.id).await.unwrap();
                assert!(server.is_gone(&queued.run).await);
                assert_eq!(queued.settled.wait().await.unwrap().outcome, ROLLED_BACK);
                if script == "forever" {
                    continue;
                }
                let by = alice();
                let (waited, gone) = tokio::join!(
                    at_work.settled.wait(),
                    server.runtime.roll_back(&by, &at_work.run.id)
                );
                gone.unwrap();
                assert_eq!(waited.unwrap().outcome, ROLLED_BACK);
            }
            assert!(server.is_gone(&at_work.run).await, "{script}");
            let again = server.runtime.roll_back(&alice(), &at_work.run.id).await.unwrap_err();
            assert_eq!(again.code(), Code::RunNotFound);
            let next = server.run("history", ThreadChoice::Existing(thread)).await;
            assert!(!server.output_text(&next).await.contains(script), "{script}");
        }
    }
}

#[tokio::test]
async fn a_run_that_has_ended_is_not_rolled_back() {
    for server in servers().await {
        let thread = server.thread().await;
        let ended = server.run("say:x", ThreadChoice::Existing(thread)).await;
        let error = server.runtime.roll_back(&alice(), &ended.id).await.unwrap_err();
        assert_eq!(error.code(), Code::RunEnded);
        assert_eq!(server.stored(&ended).await.outcome, Some(Outcome::Completed));
    }
}

#[tokio::test]
async fn a_run_that_is_being_cancelled_can_still_be_rolled_back() {
    for server in servers().await {
        let thread = server.thread().await;
        let at_work = server.submit(on(&thread, "until-cancelled gate")).await;
        let cancelling = server.runtime.cancel(&alice(), &at_work.run.id).await.unwrap();
        assert_eq!(cancelling.status, RunStatus::Cancelling);
        let runtime = server.runtime.clone();
        let id = at_work.run.id.clone();
        let rolling = tokio::spawn(async move { runtime.roll_back(&alice(), &id).await });
        until("it was asked for", || async {
            server.stored(&at_work.run).await.cancel_reason == Some(Code::RunRolledBack)
        })
        .await;
        server.agent.gate.add_permits(1);
        rolling.await.unwrap().unwrap();
        assert_eq!(at_work.settled.wait().await.unwrap().outcome, ROLLED_BACK);
        assert!(server.is_gone(&at_work.run).await);
    }
}

#[tokio::test]
async fn a_stateless_run_is_rolled_back_with_its_thread() {
    for server in servers().await {
        for script in ["until-cancelled", "suspend:say:x"] {
            let submitted = server.submit(new_run(script, ThreadChoice::Stateless)).await;
            if script != "until-cancelled" {
                submitted.settled.wait().await.unwrap();
            }
            server.runtime.roll_back(&alice(), &submitted.run.id).await.unwrap();
            assert!(server.is_gone(&submitted.run).await);
            let thread = server.store.thread(&scope(), &submitted.run.thread_id).await.unwrap();
            assert_eq!(thread, None);
        }
    }
}

#[tokio::test]
async fn one_of_several_that_end_a_run_wins_and_the_others_are_told() {
    for server in servers().await {
        for _ in 0..20 {
            let thread = server.thread().await;
            let waits = server.run("suspend:say:x", ThreadChoice::Existing(thread)).await;
            let (by, id) = (alice(), waits.id.clone());
            let answer = Answer::Json(Json::null());
            let (answered, cancelled, rolled_back) = tokio::join!(
                server.runtime.answer(&by, AnswerTo::Run(id.clone()), answer),
                server.runtime.cancel(&by, &id),
                server.runtime.roll_back(&by, &id),
            );
            let told = [
                answered.map(drop).map_err(|error| error.code()),
                cancelled.map(drop).map_err(|error| error.code()),
                rolled_back.map_err(|error| error.code()),
            ];
            let refusals = [
                Code::RunEnded,
                Code::RunNotFound,
                Code::InterruptResolved,
                Code::InterruptMismatch,
            ];
            for outcome in told.iter().filter_map(|told| told.as_ref().err()) {
                assert!(refusals.contains(outcome), "{told:?}");
            }
            let left = server.store.run(&scope(), &waits.id).await.unwrap();
            assert_eq!(left.is_none(), told[2].is_ok(), "{told:?}");
        }
    }
}

#[tokio::test]
async fn of_several_who_remove_a_run_one_does() {
    for server in servers().await {
        let ended = server.run("say:x", ThreadChoice::Existing(server.main.clone())).await;
        let (by, id) = (alice(), ended.id.clone());
        let (one, two) =
            tokio::join!(server.runtime.remove_run(&by, &id), server.runtime.remove_run(&by, &id));
        let told = [one, two].map(|told| told.map_err(|error| error.code()));
        assert!(told.contains(&Ok(())) && told.contains(&Err(Code::RunNotFound)), "{told:?}");
        let row = server.store.thread(&scope(), &server.main).await.unwrap().unwrap();
        let range = Range { run: None, after: 0, max_bytes: 1 << 20 };
        let frames = server.store.frames(row.key, range).await.unwrap();
        let events = frames.iter().flat_map(|frame| frame.events().unwrap());
        let removals = events.filter(|event| {
            matches!(
                event.body,
                Body::Thread(trilogue_domain::event::ThreadEvent::RunRemoved { .. })
            )
        });
        assert_eq!(removals.count(), 1);
    }
}

#[tokio::test]
async fn a_thread_is_erased_only_while_it_is_idle() {
    for server in servers().await {
        let at_work = server.submit(on(&server.main, "gate suspend:say:x")).await;
        let busy = server.runtime.erase_idle_thread(&alice(), &server.main).await.unwrap_err();
        assert_eq!(busy.code(), Code::ThreadBusy);
        server.agent.gate.add_permits(1);
        let waits = at_work.settled.wait().await.unwrap();
        assert_eq!(waits.status, RunStatus::Interrupted);
        let mut scheduled = on(&server.main, "say:later");
        scheduled.not_before = Some(server.clock.now().after(Duration::from_secs(60)));
        let scheduled = server.submit(scheduled).await.run;
        let busy = server.runtime.erase_idle_thread(&alice(), &server.main).await.unwrap_err();
        assert_eq!(busy.code(), Code::ThreadBusy);
        server.runtime.cancel(&alice(), &scheduled.id).await.unwrap();
        server.runtime.erase_idle_thread(&alice(), &server.main).await.unwrap();
        assert!(server.is_gone(&waits).await, "what waits goes with its thread");
        assert_eq!(server.store.thread(&scope(), &server.main).await.unwrap(), None);
        let gone = server.runtime.erase_idle_thread(&alice(), &server.main).await.unwrap_err();
        assert_eq!(gone.code(), Code::ThreadNotFound);
    }
}

#[tokio::test]
async fn a_state_is_set_only_while_the_thread_is_idle_where_that_is_asked_for() {
    for server in servers().await {
        let at_work = server.submit(on(&server.main, "gate")).await;
        let patch = |values: Option<&'static str>, metadata: Option<&'static str>, if_idle| {
            let json = |text: &'static str| Json::parse(text).unwrap();
            let (values, metadata) = (values.map(json), metadata.map(json));
            ThreadPatch { values, metadata, if_idle, ..ThreadPatch::default() }
        };
        let change = async |patch: ThreadPatch| {
            let changed = server.runtime.patch_thread(&alice(), &server.main, patch).await;
            changed.map(|row| row.metadata.to_value()).map_err(|error| error.code())
        };
        let both = patch(Some("{}"), Some(r#"{"a":1}"#), true);
        assert_eq!(change(both.clone()).await, Err(Code::ThreadBusy));
        let row = server.store.thread(&scope(), &server.main).await.unwrap().unwrap();
        assert_eq!(row.metadata.to_value(), serde_json::json!({}), "nothing was changed");
        let metadata = patch(None, Some(r#"{"b":1}"#), true);
        assert_eq!(change(metadata).await, Ok(serde_json::json!({"b": 1})));
        assert!(change(patch(Some("{}"), None, false)).await.is_ok());
        server.agent.gate.add_permits(1);
        at_work.settled.wait().await.unwrap();
        assert_eq!(change(both).await, Ok(serde_json::json!({"a": 1, "b": 1})));
    }
}

/// Options that remove stateless runs after an hour, with retention running all the time.
fn hourly() -> Options {
    Options {
        retention: RetentionPolicy {
            max_age: None,
            max_stateless_age: Some(Duration::from_secs(3600)),
            max_runs_per_thread: None,
            max_runs_per_tenant: None,
        },
        retention_interval: Duration::from_millis(5),
        ..Options::default()
    }
}

#[tokio::test]
async fn removals_by_retention_share_commits() {
    let server = TestServer::sqlite_with(hourly()).await;
    for _ in 0..60 {
        server.run("say:x", ThreadChoice::Stateless).await;
    }
    let before = server.store.stats().await.unwrap();
    assert_eq!(before.runs, 60);
    server.clock.advance(Duration::from_secs(3601));
    until("all are gone", || async { server.store.stats().await.unwrap().runs == 0 }).await;
    let made = server.store.stats().await.unwrap().commits - before.commits;
    assert!(made < 10, "{made} commits for 60 removals");
}

#[tokio::test]
async fn retention_tells_agents_that_keep_sessions() {
    for server in [TestServer::with(hourly()).await, TestServer::sqlite_with(hourly()).await] {
        let (server, keeper) = with_keeper(server).await;
        let new =
            RunRequest { thread: ThreadChoice::Stateless, ..keeps(&server.main, "bind:s say:x") };
        let run = server.submit(new).await.settled.wait().await.unwrap();
        server.clock.advance(Duration::from_secs(3601));
        until("the agent was told", || async { !keeper.forgotten.lock().unwrap().is_empty() })
            .await;
        assert!(server.is_gone(&run).await);
        assert_eq!(*keeper.forgotten.lock().unwrap(), [run.thread_id]);
    }
}

#[tokio::test]
async fn a_stateless_run_leaves_itself_alone_and_goes_in_its_time() {
    for server in [TestServer::with(hourly()).await, TestServer::sqlite_with(hourly()).await] {
        let usual = server.run("say:x", ThreadChoice::Existing(server.main.clone())).await;
        let mut new = new_run(r#"say:x set:{"n":1}"#, ThreadChoice::Stateless);
        new.request = Some(Json::parse(r#"{"agent_id":"x"}"#).unwrap());
        let trilogue_runtime::Input::Messages(messages) = &new.input else { panic!() };
        let message = messages[0].id.clone();
        let run = server.submit(new.clone()).await.settled.wait().await.unwrap();
        assert!(run.stateless && run.request == new.request);
        let row = server.store.thread(&scope(), &run.thread_id).await.unwrap().unwrap();
        assert!(row.ephemeral && row.head.is_none());
        let found: Option<MessageRow> =
            server.store.message(&scope(), &run.thread_id, &message).await.unwrap();
        assert_eq!(found, None);
        let all = ThreadFilter::default();
        let listed = server.store.threads(&scope(), &all, &Page::default()).await.unwrap();
        assert_eq!(listed.rows.len(), 1);
        let waits = server.run("suspend:say:x", ThreadChoice::Stateless).await;
        server.clock.advance(Duration::from_secs(3599));
        let newer = server.run("say:y", ThreadChoice::Stateless).await;
        assert_eq!(server.output_text(&run).await, "x", "it can be read until then");
        server.clock.advance(Duration::from_secs(2));
        until("it is gone", || server.is_gone(&run)).await;
        let kept =
            server.store.runs(&scope(), &RunFilter::default(), &Page::default()).await.unwrap();
        let kept: Vec<_> = kept.rows.iter().map(|row| &row.id).collect();
        assert_eq!(kept, [&newer.id, &waits.id, &usual.id]);
        assert_eq!(server.store.thread(&scope(), &run.thread_id).await.unwrap(), None);
    }
}
