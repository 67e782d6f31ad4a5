//! Rights that a run's creator has lost before the run, or what follows from it, has its turn.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::Right;
use trilogue_egress::Policy;
use trilogue_testkit::callback::Receiver;
use trilogue_testkit::{Client, until};

use crate::fountain::{Fountain, Hand, Step};
use crate::rig::{LIMIT, Rig, Setup, text};

async fn start() -> (Rig, Hand) {
    let (agent, hand) = Fountain::new();
    let callback_backoff = Some(Duration::from_millis(50));
    let setup = Setup {
        agents: vec![agent],
        egress: Policy::local(),
        callback_backoff,
        ..Setup::default()
    };
    (Rig::of(setup).await, hand)
}

/// A client with a token of its own, and the path under which that is revoked.
async fn token(rig: &Rig, principal: &str) -> (Client, String) {
    let new = json!({"label": principal, "principal": principal, "rights": ["read", "run"]});
    let made = rig.alice().post("/api/v1/tokens", &new).await.unwrap().ok().unwrap();
    let client = rig.stranger().with_token(text(&made, "/secret"));
    (client, format!("/api/v1/tokens/{}", text(&made, "/token/id")))
}

async fn run(client: &Client, agent: &str, input: &Value) -> String {
    run_on(client, agent, input, "t").await
}

async fn run_on(client: &Client, agent: &str, input: &Value, thread: &str) -> String {
    let body = json!({"agent": agent, "input": input, "thread_id": thread, "create_thread": true, "mode": "async"});
    let made = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    text(&made, "/id").to_owned()
}

/// The run, as soon as it has this status.
async fn with_status(rig: &Rig, run: &str, status: &str) -> Value {
    let (client, path) = (rig.alice(), format!("/api/v1/runs/{run}"));
    let found = until("the run's status", LIMIT, || async {
        let run = client.get(&path).await.ok()?.ok().ok()?;
        (run["status"] == status).then_some(run)
    });
    found.await.unwrap()
}

fn assert_forbidden(run: &Value) {
    assert_eq!(run["outcome"]["error"]["code"], "forbidden", "{run}");
    assert!(text(run, "/outcome/error/message").contains("bob"), "{run}");
}

#[tokio::test]
async fn a_queued_run_does_not_start_after_its_creators_token_is_revoked() {
    let (rig, hand) = start().await;
    let ((bob, bobs), (carl, _)) = (token(&rig, "bob").await, token(&rig, "carl").await);
    let first = run(&bob, "fountain", &json!({})).await;
    let queued = run(&bob, "fountain", &json!({})).await;
    let carls = run(&carl, "fountain", &json!({})).await;
    hand.sync().await;
    rig.revoke(&bobs).await;
    // What is at work is not stopped by a revocation.
    hand.take(Step::End(json!({"n": 1})));
    with_status(&rig, &first, "completed").await;
    assert_forbidden(&with_status(&rig, &queued, "failed").await);
    hand.take(Step::End(json!({"n": 2})));
    with_status(&rig, &carls, "completed").await;
}

#[tokio::test]
async fn a_queued_run_on_a_thread_of_others_does_not_start_with_a_token_that_does_not_see_it() {
    let (rig, hand) = start().await;
    let ((bob, bobs), (alice, _)) = (token(&rig, "bob").await, token(&rig, "alice").await);
    rig.token("alpha", "bob", [Right::Read, Right::Run].into_iter().collect(), true).await;
    // A UUID names the same thread for each principal.
    let thread = "0195c0de-0000-7000-8000-00000000000a";
    let first = run_on(&alice, "fountain", &json!({}), thread).await;
    let queued = run_on(&bob, "fountain", &json!({}), thread).await;
    hand.sync().await;
    rig.revoke(&bobs).await;
    hand.take(Step::End(json!({"n": 1})));
    with_status(&rig, &first, "completed").await;
    assert_forbidden(&with_status(&rig, &queued, "failed").await);
    // On a thread of its own, the token is enough.
    let own = rig.as_("alpha", "bob");
    let body = json!({"agent": "fountain", "input": {}, "mode": "async"});
    let made = own.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    hand.take(Step::End(json!({"n": 2})));
    with_status(&rig, text(&made, "/id"), "completed").await;
}

#[tokio::test]
async fn an_answered_run_does_not_go_on_after_its_creators_token_is_revoked() {
    let (rig, _hand) = start().await;
    let (bob, bobs) = token(&rig, "bob").await;
    let asks = run(&bob, "puppet", &json!("suspend")).await;
    with_status(&rig, &asks, "interrupted").await;
    rig.revoke(&bobs).await;
    let path = format!("/api/v1/runs/{asks}/answer");
    rig.alice().post(&path, &json!({"value": {}})).await.unwrap().ok().unwrap();
    let ended = with_status(&rig, &asks, "failed").await;
    assert_forbidden(&ended);
    assert!(!ended.to_string().contains("you may"), "{ended}");
}

#[tokio::test]
async fn a_callback_is_not_sent_after_its_creators_token_is_revoked() {
    let (rig, hand) = start().await;
    let receiver = Receiver::start().await.unwrap();
    let (bob, bobs) = token(&rig, "bob").await;
    let callback = json!({"url": receiver.url(), "events": ["status"]});
    let body = json!({"agent_id": "fountain", "input": {}, "callback": callback});
    let made = bob.post("/connect/runs", &body).await.unwrap().ok().unwrap();
    hand.take(Step::Ask);
    receiver.wait_for(1, LIMIT).await.unwrap();
    rig.revoke(&bobs).await;
    let path = format!("/api/v1/runs/{}/answer", text(&made, "/run_id"));
    rig.alice().post(&path, &json!({"value": {}})).await.unwrap().ok().unwrap();
    hand.take(Step::End(json!({"n": 1})));
    let dead = until("a dead delivery", LIMIT, || async {
        let dead = rig.alice().get("/api/v1/deliveries").await.ok()?.ok().ok()?;
        dead["items"].as_array()?.first().cloned()
    });
    let dead = dead.await.unwrap();
    assert!(dead.to_string().contains("'bob', who created the run, may not see it"), "{dead}");
    assert_eq!(receiver.deliveries().len(), 1);
}
