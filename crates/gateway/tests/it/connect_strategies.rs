//! A new run on a busy thread, and runs that start later.

use serde_json::{Value, json};

use crate::connect::{Face, expected_refusal, refusal, run_body};
use crate::rig::text;

fn strategy(word: &str, words: &str, strategy: &str) -> Value {
    let mut body = run_body(word, words);
    body["multitask_strategy"] = json!(strategy);
    body
}

/// A thread with one message and a run that holds.
async fn busy(face: &Face) -> (String, String) {
    let runs = format!("/threads/{}/runs", face.thread().await);
    face.post_ok(&format!("{runs}/wait"), &run_body("say", "a")).await;
    let held = face.begin(&runs, &run_body("hold", "b")).await;
    (runs, held)
}

async fn state(face: &Face, runs: &str) -> Value {
    let thread = runs.strip_suffix("/runs").unwrap();
    face.get_ok(thread).await["values"]["messages"].clone()
}

#[tokio::test]
async fn a_busy_thread_rejects_by_default() {
    let face = Face::start().await;
    let (runs, held) = busy(&face).await;
    for body in [run_body("say", "c"), strategy("say", "c", "reject")] {
        for path in ["", "/wait", "/stream"] {
            let refused = face.post(&format!("{runs}{path}"), &body).await;
            assert_eq!(refusal(&refused), expected_refusal(409, "thread_busy"));
            assert_eq!(refused.json()["transient"], true);
        }
    }
    let all = face.get_ok(&runs).await;
    assert_eq!(all.as_array().unwrap().len(), 2, "nothing was created");
    face.gate.add_permits(1);
    let done = face.get_ok(&format!("{runs}/{held}/wait")).await;
    assert_eq!(done["output"]["values"]["message"], "a b");
    face.post_ok(&format!("{runs}/wait"), &run_body("say", "c")).await;
}

#[tokio::test]
async fn enqueued_runs_take_their_turns() {
    let face = Face::start().await;
    let (runs, held) = busy(&face).await;
    let second = face.begin(&runs, &strategy("say", "c", "enqueue")).await;
    let third = face.begin(&runs, &strategy("say", "d", "enqueue")).await;
    assert_eq!(face.get_ok(&format!("{runs}/{third}")).await["phase"], "queued");
    face.gate.add_permits(1);
    for (run, message) in [(held, "a b"), (second, "a b c"), (third, "a b c d")] {
        let done = face.get_ok(&format!("{runs}/{run}/wait")).await;
        assert_eq!(done["output"]["values"]["message"], message, "{done}");
    }
}

#[tokio::test]
async fn an_interrupting_run_cancels_all_that_is_in_flight() {
    let face = Face::start().await;
    let (runs, held) = busy(&face).await;
    let queued = face.begin(&runs, &strategy("say", "c", "enqueue")).await;
    let done = face.post_ok(&format!("{runs}/wait"), &strategy("say", "d", "interrupt")).await;
    assert_eq!(done["output"]["values"]["message"], "a d", "{done}");
    for run in [held, queued] {
        let gone = face.get_ok(&format!("{runs}/{run}/wait")).await;
        assert_eq!(gone["run"]["status"], "error");
        assert_eq!(gone["output"]["errcode"], 5, "{gone}");
    }
    assert_eq!(state(&face, &runs).await, json!(["a", "d"]));
}

#[tokio::test]
async fn a_rollback_removes_all_that_is_in_flight() {
    let face = Face::start().await;
    let (runs, held) = busy(&face).await;
    let queued = face.begin(&runs, &strategy("say", "c", "enqueue")).await;
    let done = face.post_ok(&format!("{runs}/wait"), &strategy("say", "d", "rollback")).await;
    assert_eq!(done["output"]["values"]["message"], "a d", "{done}");
    for run in [held, queued] {
        let reply = face.get(&format!("{runs}/{run}")).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "run_not_found"));
    }
    assert_eq!(face.get_ok(&runs).await.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_unknown_strategy_is_refused() {
    let face = Face::start().await;
    let runs = format!("/threads/{}/runs", face.thread().await);
    let refused = face.post(&runs, &strategy("say", "x", "merge")).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "validation_error"));
    assert_eq!(text(&refused.json(), "/data/path"), "/multitask_strategy");
    assert_eq!(face.get_ok(&runs).await, json!([]));
}

#[tokio::test]
async fn a_run_without_a_thread_needs_no_strategy() {
    let face = Face::start().await;
    face.begin("/runs", &strategy("sleep", "", "reject")).await;
    let done = face.post_ok("/runs/wait", &strategy("say", "x", "reject")).await;
    assert_eq!(done["run"]["status"], "success");
}

#[tokio::test]
async fn a_run_starts_when_its_time_has_come() {
    let face = Face::start().await;
    let thread = face.thread().await;
    let runs = format!("/threads/{thread}/runs");
    let mut later = run_body("say", "late");
    later["after_seconds"] = json!(3600);
    let run = face.post_ok(&runs, &later).await;
    assert_eq!((text(&run, "/status"), text(&run, "/phase")), ("pending", "scheduled"));
    assert_eq!(run["creation"]["after_seconds"], 3600);
    assert_eq!(face.get_ok(&format!("/threads/{thread}")).await["status"], "busy");
    let refused = face.post(&runs, &run_body("say", "now")).await;
    assert_eq!(refusal(&refused), expected_refusal(409, "thread_busy"));
    let path = format!("{runs}/{}", text(&run, "/run_id"));
    assert_eq!(face.post(&format!("{path}/cancel?wait=true"), &Value::Null).await.status, 204);
    assert_eq!(face.get_ok(&path).await["status"], "error");
    later["after_seconds"] = json!(1);
    let done = face.post_ok(&format!("{runs}/wait"), &later).await;
    assert_eq!(done["output"]["values"]["message"], "late");
    for bad in [json!(-1), json!(31_536_001), json!("1"), json!(1.5)] {
        later["after_seconds"] = bad.clone();
        let refused = face.post(&runs, &later).await;
        assert_eq!(refusal(&refused), expected_refusal(422, "validation_error"), "{bad}");
    }
}
