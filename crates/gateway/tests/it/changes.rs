//! Watching which threads, runs and interrupts change.

use serde_json::{Value, json};
use trilogue_domain::Rights;
use trilogue_testkit::client::Stream;

use crate::rig::{Rig, text};

const CHANGES: &str = "/api/v1/changes";

/// The next change of this kind.
async fn next(stream: &mut Stream, kind: &str) -> Value {
    loop {
        let event = stream.next().await.unwrap().unwrap();
        assert_eq!(event.id, None);
        let change: Value = serde_json::from_str(&event.data).unwrap();
        if change["kind"] == kind {
            return change;
        }
    }
}

#[tokio::test]
async fn a_question_is_seen_when_it_is_asked_and_when_it_is_answered() {
    let rig = Rig::start().await;
    let mut stream = rig.alice().stream(CHANGES, None).await.unwrap();
    let run = rig.run_on("asked", "suspend").await;
    assert_eq!(next(&mut stream, "thread").await["thread_id"], "asked");
    let created = next(&mut stream, "run").await;
    assert_eq!((&created["run_id"], &created["agent"]), (&run["id"], &json!("puppet")));
    let asked = next(&mut stream, "interrupt").await;
    assert_eq!(asked["interrupt_id"], run["interrupts"][0]["id"]);
    assert_eq!(asked["pending"], true);
    let path = format!("/api/v1/interrupts/{}/answer", text(&asked, "/interrupt_id"));
    rig.alice().post(&path, &json!({ "value": 1 })).await.unwrap().ok().unwrap();
    let answered = next(&mut stream, "interrupt").await;
    assert_eq!(answered["pending"], false);
    loop {
        if next(&mut stream, "run").await["status"] == "completed" {
            break;
        }
    }
    let path = "/api/v1/threads/asked";
    let gone = rig.alice().send(http::Method::DELETE, path, &[], bytes::Bytes::new()).await;
    assert_eq!(gone.unwrap().status, 204);
    assert_eq!(next(&mut stream, "thread_removed").await["thread_id"], "asked");
}

#[tokio::test]
async fn nobody_sees_what_others_change() {
    let rig = Rig::start().await;
    rig.token("beta", "mallory", Rights::all(), false).await;
    rig.token("alpha", "own", Rights::all(), true).await;
    for (tenant, principal) in [("beta", "mallory"), ("alpha", "own")] {
        let stranger = rig.as_(tenant, principal);
        let mut stream = stranger.stream(CHANGES, None).await.unwrap();
        rig.run_on("secret", "x").await;
        let own = stranger.post("/api/v1/threads", &json!({})).await.unwrap().ok().unwrap();
        let first = stream.next().await.unwrap().unwrap();
        assert!(first.data.contains(own["id"].as_str().unwrap()), "{}", first.data);
    }
}

#[tokio::test]
async fn a_revoked_token_watches_no_more() {
    let rig = Rig::start().await;
    let (client, path) = rig.short_lived().await;
    let mut stream = client.stream(CHANGES, None).await.unwrap();
    rig.revoke(&path).await;
    let last = stream.next().await.unwrap().unwrap();
    assert_eq!(last.event.as_deref(), Some("error"));
    assert!(stream.next().await.unwrap().is_none());
}
