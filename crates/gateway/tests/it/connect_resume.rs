//! Answers: their forms, the interrupt that they resolve, and refused answers.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::connect::{Face, expected_refusal, refusal, run_body};
use crate::rig::text;

/// A run that waits, stateless or on a thread; returns its path.
async fn create_waiting_run(face: &Face, on_thread: bool, word: &str) -> String {
    let base = if on_thread {
        format!("/threads/{}/runs", face.thread().await)
    } else {
        "/runs".to_owned()
    };
    let done = face.post_ok(&format!("{base}/wait"), &run_body(word, "")).await;
    assert_eq!(done["run"]["status"], "interrupted", "{done}");
    format!("{base}/{}", text(&done, "/run/run_id"))
}

#[tokio::test]
async fn an_answer_has_three_forms() {
    let face = Face::start().await;
    let id = |waits: &Value| text(waits, "/output/interrupt_id").to_owned();
    for on_thread in [false, true] {
        for form in 0..4 {
            let run = create_waiting_run(&face, on_thread, "ask").await;
            let waits = face.get_ok(&format!("{run}/wait")).await;
            let answer = json!({"approved": true});
            let body = match form {
                0 => answer,
                1 => json!({"approval": answer}),
                2 => json!({"interrupt_type": "approval", "resume_payload": answer}),
                _ => json!({
                    "interrupt_type": "approval", "resume_payload": answer,
                    "interrupt_id": id(&waits),
                }),
            };
            let reply = face.post(&run, &body).await;
            let resumed = reply.json();
            assert_eq!(
                (reply.status, resumed["status"].as_str()),
                (200, Some("pending")),
                "{resumed}"
            );
            assert_eq!(resumed["creation"], waits["run"]["creation"]);
            assert_eq!(reply.headers["x-run-id"], text(&resumed, "/run_id"));
            let done = face.get_ok(&format!("{run}/wait")).await;
            assert!(text(&done, "/output/values/message").contains("approved"), "{done}");
        }
    }
}

#[tokio::test]
async fn a_run_may_ask_several_times() {
    let face = Face::start().await;
    let run = create_waiting_run(&face, false, "ask twice").await;
    let answer = json!({"approved": false});
    let first = face.get(&format!("{run}/wait")).await;
    let first_id = first.headers["interrupt-id"].to_str().unwrap().to_owned();
    assert_eq!(first.json()["output"]["interrupt_id"], first_id);
    face.post_ok(&run, &answer).await;
    let second = face.get_ok(&format!("{run}/wait")).await;
    assert_eq!(second["output"]["type"], "interrupt");
    assert_ne!(second["output"]["interrupt_id"], first_id);
    let late = json!({
        "interrupt_type": "approval", "resume_payload": answer, "interrupt_id": first_id,
    });
    let refused = face.post(&run, &late).await;
    assert_eq!(refusal(&refused), expected_refusal(409, "run_not_interrupted"));
    assert_eq!(refused.json()["data"]["interrupt_id"], second["output"]["interrupt_id"]);
    face.post_ok(&run, &answer).await;
    let done = face.get_ok(&format!("{run}/wait")).await;
    assert_eq!(done["run"]["status"], "success");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_the_run_waits_on() {
    let face = Face::start().await;
    let run = create_waiting_run(&face, true, "ask").await;
    for bad in [
        json!({"approved": "yes"}),
        json!({}),
        json!(5),
        json!({"approval": {"approved": 1}}),
        json!({"interrupt_type": "other", "resume_payload": {"approved": true}}),
        json!({"interrupt_type": "approval", "resume_payload": {}}),
    ] {
        let reply = face.post(&run, &bad).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "resume_schema_violation"), "{bad}");
        assert!(!reply.json()["data"]["errors"].as_array().unwrap().is_empty(), "{bad}");
    }
    for malformed in ["", "{", "nonsense"] {
        let body = Bytes::from(malformed);
        let reply = face.send_raw(&face.client, Method::POST, &run, &[], body).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "invalid_json"), "{malformed}");
    }
    let headers = [("interrupt-id", "another")];
    let body = Bytes::from(r#"{"approved":true}"#);
    let reply = face.send_raw(&face.client, Method::POST, &run, &headers, body).await;
    assert_eq!(refusal(&reply), expected_refusal(409, "run_not_interrupted"));
    assert_eq!(face.get_ok(&run).await["status"], "interrupted");
    face.post_ok(&run, &json!({"approved": true})).await;
}

#[tokio::test]
async fn of_many_answers_one_wins() {
    let face = Face::start().await;
    for on_thread in [false, true] {
        let run = create_waiting_run(&face, on_thread, "ask").await;
        let answer = json!({"approved": true});
        let all = (0..8).map(|_| face.post(&run, &answer));
        let replies = futures_util::future::join_all(all).await;
        let won = replies.iter().filter(|reply| reply.status == 200).count();
        assert_eq!(won, 1);
        for lost in replies.iter().filter(|reply| reply.status != 200) {
            assert_eq!(
                refusal(lost),
                expected_refusal(409, "run_not_interrupted"),
                "{}",
                lost.json()
            );
        }
    }
}

#[tokio::test]
async fn a_run_that_does_not_wait_takes_no_answer() {
    let face = Face::start().await;
    let answer = json!({"approved": true});
    let done = face.post_ok("/runs/wait", &run_body("say", "x")).await;
    let ended = format!("/runs/{}", text(&done, "/run/run_id"));
    assert_eq!(
        refusal(&face.post(&ended, &answer).await),
        expected_refusal(409, "run_not_interrupted")
    );
    let works = format!("/runs/{}", face.begin("/runs", &run_body("sleep", "")).await);
    assert_eq!(
        refusal(&face.post(&works, &answer).await),
        expected_refusal(409, "run_not_interrupted")
    );
    assert_eq!(face.get_ok(&works).await["status"], "pending");
    let cancelled = create_waiting_run(&face, false, "ask").await;
    assert_eq!(face.post(&format!("{cancelled}/cancel?wait=true"), &Value::Null).await.status, 204);
    assert_eq!(
        refusal(&face.post(&cancelled, &answer).await),
        expected_refusal(409, "run_not_interrupted")
    );
}

#[tokio::test]
async fn a_newer_run_supersedes_one_that_waits() {
    let face = Face::start().await;
    let old = create_waiting_run(&face, true, "ask").await;
    let (runs, _) = old.rsplit_once('/').unwrap();
    let done = face.post_ok(&format!("{runs}/wait"), &run_body("say", "new")).await;
    assert_eq!(done["run"]["status"], "success", "{done}");
    let refused = face.post(&old, &json!({"approved": true})).await;
    assert_eq!(refusal(&refused), expected_refusal(409, "run_superseded"));
    let gone = face.get_ok(&format!("{old}/wait")).await;
    assert_eq!(gone["output"]["errcode"], 5, "{gone}");
}
