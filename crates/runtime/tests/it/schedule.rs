//! Scheduled runs and retention.

use std::time::Duration;

use trilogue_domain::port::Clock;
use trilogue_domain::{Code, Outcome, Principal, PrincipalId, RunStatus};
use trilogue_runtime::{Options, ThreadChoice};
use trilogue_store::rows::RetentionPolicy;

use crate::fixture::{TestServer, alice, new_run, scope, until};

#[tokio::test]
async fn a_scheduled_run_survives_a_restart_and_is_refused_without_a_token() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let mut new = new_run("say:late", ThreadChoice::Existing(thread));
    new.not_before = Some(server.clock.now().after(Duration::from_secs(60)));
    let run = server.runtime.submit(&alice(), new).await.unwrap().run;
    assert_eq!(run.status, RunStatus::Queued);
    let server = server.crash().await;
    assert_eq!(server.stored(&run).await.status, RunStatus::Queued);
    server.clock.advance(Duration::from_secs(61));
    let server = server.crash().await;
    until("the run is decided", || async { server.stored(&run).await.status.is_terminal() }).await;
    // The run's creator has no token any more, so the schedule does not run in that name.
    let outcome = server.stored(&run).await.outcome;
    assert_eq!(outcome, Some(Outcome::Cancelled { reason: Some(Code::Forbidden) }));
}

#[tokio::test]
async fn a_scheduled_run_of_the_local_principal_runs_in_its_time() {
    let server =
        TestServer::with(Options { local_principal: Some(alice().id), ..Default::default() }).await;
    let thread = server.thread().await;
    let mut new = new_run("say:late", ThreadChoice::Existing(thread));
    new.not_before = Some(server.clock.now().after(Duration::from_millis(1)));
    let run = server.runtime.submit(&alice(), new).await.unwrap().run;
    server.clock.advance(Duration::from_secs(1));
    until("the run ends", || async { server.stored(&run).await.status.is_terminal() }).await;
    assert_eq!(server.output_text(&server.stored(&run).await).await, "late");
}

#[tokio::test]
async fn one_principal_schedules_a_limited_number_of_runs() {
    let options = Options { max_scheduled_per_principal: 2, ..Default::default() };
    let server = TestServer::with(options).await;
    let thread = server.thread().await;
    let bob = Principal { id: PrincipalId::parse("bob").unwrap(), ..alice() };
    let later = || {
        let mut new = new_run("say:late", ThreadChoice::Existing(thread.clone()));
        new.not_before = Some(server.clock.now().after(Duration::from_secs(60)));
        new
    };
    let first = server.runtime.submit(&alice(), later()).await.unwrap().run;
    server.runtime.submit(&alice(), later()).await.unwrap();
    let refused = server.runtime.submit(&alice(), later()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Overloaded);
    assert!(refused.hint_text().unwrap().contains("max_scheduled_runs_per_principal"));
    server.runtime.submit(&bob, later()).await.unwrap();
    server.runtime.cancel(&alice(), &first.id).await.unwrap();
    server.runtime.submit(&alice(), later()).await.unwrap();
}

#[tokio::test]
async fn one_principal_has_a_limited_number_of_runs_that_have_not_ended() {
    let options = Options {
        max_open_runs_per_principal: 2,
        local_principal: Some(alice().id),
        ..Default::default()
    };
    let server = TestServer::with(options).await;
    let bob = Principal { id: PrincipalId::parse("bob").unwrap(), ..alice() };
    let thread = server.thread().await;
    let asks = || new_run("suspend:say:x", ThreadChoice::Existing(thread.clone()));
    let waiting = server.run("suspend:say:x", ThreadChoice::Existing(thread.clone())).await;
    // It waits behind the first one.
    server.runtime.submit(&alice(), asks()).await.unwrap();
    for choice in [ThreadChoice::Existing(thread.clone()), ThreadChoice::Stateless] {
        let refused = server.runtime.submit(&alice(), new_run("say:x", choice)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Overloaded);
        assert!(refused.hint_text().unwrap().contains("max_open_runs_per_principal"));
    }
    server.runtime.submit(&bob, asks()).await.unwrap();
    server.runtime.cancel(&alice(), &waiting.id).await.unwrap();
    server.runtime.submit(&alice(), asks()).await.unwrap();
    // An erased thread has no open runs.
    server.runtime.erase_thread(&alice(), &thread).await.unwrap();
    let next = server.run("say:next", ThreadChoice::Stateless).await;
    assert_eq!(server.output_text(&next).await, "next");
}

#[tokio::test]
async fn retention_removes_old_runs_and_keeps_open_ones() {
    let server = TestServer::with(Options {
        retention: RetentionPolicy {
            max_age: Some(Duration::from_secs(10)),
            max_stateless_age: None,
            max_runs_per_thread: None,
            max_runs_per_tenant: None,
        },
        retention_interval: Duration::from_millis(5),
        ..Default::default()
    })
    .await;
    let thread = server.thread().await;
    let old = server.run("say:old", ThreadChoice::Existing(thread.clone())).await;
    let open = server.run("suspend:say:x", ThreadChoice::Existing(thread.clone())).await;
    server.clock.advance(Duration::from_secs(11));
    until("the old run is gone", || async {
        server.store.run(&scope(), &old.id).await.unwrap().is_none()
    })
    .await;
    assert_eq!(server.stored(&open).await.status, RunStatus::Interrupted);
    let next = server.run("history", ThreadChoice::Existing(thread)).await;
    assert_eq!(server.output_text(&next).await, "");
}
