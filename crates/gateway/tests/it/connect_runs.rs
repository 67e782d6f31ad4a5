//! Stateless runs: create, read, wait, search, cancel, delete.

use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::until;

use crate::connect::{BASE, Face, NOBODY, expected_refusal, refusal, run_body};
use crate::rig::{LIMIT, text};

#[tokio::test]
async fn a_run_is_pending_first_and_its_output_is_there_any_number_of_times() {
    let face = Face::start().await;
    let mut body = run_body("say", "hello");
    body["metadata"] = json!({"k": "v"});
    let reply = face.post("/runs", &body).await;
    let run = reply.json();
    assert_eq!((reply.status, text(&run, "/status")), (200, "pending"));
    let id = text(&run, "/run_id");
    assert_eq!(reply.headers["x-run-id"], id);
    assert_eq!(reply.headers["content-location"], format!("{BASE}/runs/{id}"));
    assert_eq!(run["creation"]["input"], body["input"]);
    assert_eq!(run["creation"]["metadata"], json!({"k": "v"}));
    assert_eq!(run["creation"]["on_disconnect"], "cancel");
    assert_eq!(run["creation"]["multitask_strategy"], "reject");
    assert_eq!(run["creation"]["on_completion"], "delete");
    assert_eq!(run["creation"]["agent_id"], run["agent_id"]);
    let done = face.get_ok(&format!("/runs/{id}/wait")).await;
    assert_eq!(done["run"]["status"], "success");
    assert_eq!(done["run"]["creation"], run["creation"]);
    assert_eq!(done["output"]["type"], "result");
    assert_eq!(done["output"]["values"], json!({"message": "hello"}));
    assert_eq!(face.get_ok(&format!("/runs/{id}/wait")).await, done);
    assert_eq!(face.get_ok(&format!("/runs/{id}")).await, done["run"]);
    assert_eq!(face.get_ok(&format!("/runs/{id}/output")).await, done["output"]);
}

#[tokio::test]
async fn creating_and_waiting_is_one_request() {
    let face = Face::start().await;
    let reply = face.post("/runs/wait", &run_body("say", "hello")).await;
    let done = reply.json();
    assert_eq!(done["output"]["values"], json!({"message": "hello"}), "{done}");
    let id = text(&done, "/run/run_id");
    assert_eq!(reply.headers["x-run-id"], id);
    assert_eq!(face.get_ok(&format!("/runs/{id}/wait")).await, done);
}

#[tokio::test]
async fn the_documents_forms_of_a_request_are_taken() {
    let face = Face::start().await;
    let wait = async |body: Value| face.post_ok("/runs/wait", &body).await;
    let plain = wait(json!({"agent_id": "plain", "message": "hi"})).await;
    assert_eq!(plain["output"]["values"]["message"], "hi", "{plain}");
    assert_eq!(plain["run"]["creation"]["message"], "hi");
    let text_only = wait(json!({"agent_id": "plain", "input": "hi"})).await;
    assert_eq!(text_only["output"]["values"]["message"], "hi");
    let shout = wait(json!({"agent_id": "primitive", "input": "hi"})).await;
    assert_eq!(shout["output"]["values"], "HI");
    for config in [json!({"style": "formal"}), json!({"configurable": {"style": "formal"}})] {
        let body = json!({"input": {"do": "config"}, "config": config});
        let done = wait(body).await;
        assert_eq!(done["output"]["values"]["message"], r#"{"style":"formal"}"#, "{done}");
        assert_eq!(done["run"]["creation"]["config"], config);
    }
    let both = json!({"agent_id": "plain", "input": {"message": "a"}, "message": "b"});
    let refused = face.post("/runs/wait", &both).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "input_schema_violation"));
    let mixture = json!({"input": {"do": "config"}, "config": {"tags": [], "style": "formal"}});
    let refused = face.post("/runs/wait", &mixture).await;
    assert_eq!(refusal(&refused), expected_refusal(422, "config_schema_violation"));
}

#[tokio::test]
async fn every_end_of_a_run_has_its_output() {
    let face = Face::start().await;
    for (word, kind, code) in [
        ("fail", "error", "agent_error"),
        ("declared", "error", "out_of_paper"),
        ("bad output", "error", "output_schema_violation"),
        ("bad state", "error", "thread_state_schema_violation"),
        ("bad update", "error", "stream_update_schema_violation"),
        ("ask else", "error", "interrupt_schema_violation"),
        ("ask", "interrupt", ""),
    ] {
        let done = face.post_ok("/runs/wait", &run_body(word, "")).await;
        assert_eq!(text(&done, "/output/type"), kind, "{word}: {done}");
        if kind == "interrupt" {
            assert_eq!(done["run"]["status"], "interrupted");
            assert_eq!(done["output"]["interrupt"], json!({"approval": {"question": "shall I?"}}));
            assert_eq!(done["output"]["interrupt_type"], "approval");
            assert_eq!(done["output"]["interrupt_payload"], json!({"question": "shall I?"}));
            continue;
        }
        assert_eq!(done["run"]["status"], "error");
        assert_eq!(text(&done, "/output/code"), code, "{done}");
        assert_eq!(done["output"]["run_id"], done["run"]["run_id"]);
    }
    let declared = face.post_ok("/runs/wait", &run_body("declared", "")).await;
    assert_eq!(declared["output"]["transient"], true);
    assert_eq!(declared["output"]["data"], json!({"tray": 2}));
    assert!(declared["output"]["errcode"].as_u64().unwrap() >= 10_000);
}

#[tokio::test]
async fn large_input_and_output_come_whole() {
    let face = Face::start().await;
    let large = "ä".repeat(60_000);
    let body = json!({"agent_id": "primitive", "input": large});
    let done = face.post_ok("/runs/wait", &body).await;
    assert_eq!(text(&done, "/output/values").len(), 120_000);
    assert_eq!(text(&done, "/run/creation/input"), large);
    let id = text(&done, "/run/run_id");
    assert_eq!(face.get_ok(&format!("/runs/{id}")).await, done["run"]);
    let plain = json!({"agent_id": "plain", "input": {"message": large}});
    let done = face.post_ok("/runs/wait", &plain).await;
    assert_eq!(text(&done, "/run/creation/input/messages/0/content"), large);
    assert_eq!(text(&done, "/output/values/message"), large, "the agent got it whole");
    let thread = face.thread().await;
    let puppet = json!({"agent_id": "puppet", "input": {"message": large}});
    let done = face.post_ok(&format!("/threads/{thread}/runs/wait"), &puppet).await;
    assert_eq!(text(&done, "/output/values/message"), large);
    let shorter = "x".repeat(50_000);
    let plain = json!({"agent_id": "plain", "input": {"message": shorter}});
    let done = face.post_ok("/runs/wait", &plain).await;
    assert_eq!(text(&done, "/output/values/message"), shorter);
    assert_eq!(done["run"]["creation"]["input"], plain["input"]);
}

#[tokio::test]
async fn a_run_that_is_kept_has_a_thread_and_another_has_none() {
    let face = Face::start().await;
    let mut body = run_body("say", "hello");
    let gone = face.post_ok("/runs/wait", &body).await;
    if let Some(thread) = gone["run"]["thread_id"].as_str() {
        let reply = face.get(&format!("/threads/{thread}")).await;
        assert_eq!(refusal(&reply), expected_refusal(404, "thread_not_found"));
    }
    body["on_completion"] = json!("keep");
    let kept = face.post_ok("/runs/wait", &body).await;
    let thread = text(&kept, "/run/thread_id");
    let shown = face.get_ok(&format!("/threads/{thread}")).await;
    assert_eq!(shown["values"], json!({"messages": ["hello"]}));
    let listed = face.post_ok("/threads/search", &json!({})).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[tokio::test]
async fn runs_are_searched_newest_first() {
    let face = Face::start().await;
    let mut ids = Vec::new();
    for number in 0..4 {
        let word = if number == 2 { "fail" } else { "say" };
        let mut body = run_body(word, "x");
        body["metadata"] = json!({"n": number % 2, "who": "me", "deep": {"a": [1]}});
        let done = face.post_ok("/runs/wait", &body).await;
        ids.push(text(&done, "/run/run_id").to_owned());
    }
    face.post_ok("/runs/wait", &json!({"agent_id": "plain", "input": "x"})).await;
    let found = async |body: Value| {
        let runs = face.post_ok("/runs/search", &body).await;
        let id = |run: &Value| text(run, "/run_id").to_owned();
        runs.as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    let newest_first: Vec<_> = ids.iter().rev().cloned().collect();
    assert_eq!(found(json!({"agent_id": "actor"})).await, newest_first);
    assert_eq!(found(json!({})).await.len(), 5);
    assert_eq!(
        found(json!({"agent_id": "actor", "limit": 1, "offset": 1})).await,
        newest_first[1..2]
    );
    assert_eq!(found(json!({"metadata": {"n": 1}})).await, [ids[3].clone(), ids[1].clone()]);
    assert_eq!(found(json!({"metadata": {"who": "me", "deep": {"a": [1]}}})).await.len(), 4);
    assert_eq!(found(json!({"status": "error"})).await, [ids[2].clone()]);
    assert_eq!(found(json!({"status": "pending"})).await, Vec::<String>::new());
    assert_eq!(found(json!({"agent_id": NOBODY})).await, Vec::<String>::new());
    for bad in [json!({"status": "running"}), json!({"limit": 0}), json!({"metadata": "x"})] {
        let reply = face.post("/runs/search", &bad).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
}

#[tokio::test]
async fn a_cancelled_run_is_an_error_and_cancelling_it_again_changes_nothing() {
    let face = Face::start().await;
    let id = face.begin("/runs", &run_body("sleep", "")).await;
    assert_eq!(face.get_ok(&format!("/runs/{id}")).await["status"], "pending");
    let cancel = format!("/runs/{id}/cancel?wait=true");
    assert_eq!(face.post(&cancel, &Value::Null).await.status, 204);
    let done = face.get_ok(&format!("/runs/{id}/wait")).await;
    assert_eq!(done["run"]["status"], "error");
    assert_eq!(
        (done["output"]["errcode"].clone(), text(&done, "/output/code")),
        (json!(5), "run_cancelled")
    );
    for query in ["", "?wait=1", "?action=interrupt&wait=false", "?action=rollback"] {
        let reply = face.post(&format!("/runs/{id}/cancel{query}"), &Value::Null).await;
        assert_eq!(reply.status, 204, "{query}");
    }
    assert_eq!(face.get_ok(&format!("/runs/{id}/wait")).await, done);
    for bad in ["?action=stop", "?wait=maybe"] {
        let reply = face.post(&format!("/runs/{id}/cancel{bad}"), &Value::Null).await;
        assert_eq!(refusal(&reply), expected_refusal(422, "validation_error"), "{bad}");
    }
}

#[tokio::test]
async fn a_rolled_back_run_tells_who_waits_and_is_gone() {
    let face = Face::start().await;
    let id = face.begin("/runs", &run_body("sleep", "")).await;
    let wait = format!("/runs/{id}/wait");
    let cancel = format!("/runs/{id}/cancel?action=rollback&wait=true");
    let cancelling = async {
        // The two requests race: the wait returns the cancelled run, or finds it gone.
        face.post(&cancel, &Value::Null).await
    };
    let (waited, cancelled) = tokio::join!(face.get(&wait), cancelling);
    assert_eq!(cancelled.status, 204);
    if waited.status == 200 {
        let done = waited.json();
        assert_eq!(done["output"]["errcode"], 6, "{done}");
    } else {
        assert_eq!(refusal(&waited), expected_refusal(404, "run_not_found"));
    }
    assert_eq!(
        refusal(&face.get(&format!("/runs/{id}")).await),
        expected_refusal(404, "run_not_found")
    );
    let again = face.post(&cancel, &Value::Null).await;
    assert_eq!(refusal(&again), expected_refusal(404, "run_not_found"));
}

#[tokio::test]
async fn a_run_is_deleted_once_whatever_it_does() {
    let face = Face::start().await;
    for word in ["say", "sleep", "ask"] {
        let id = face.begin("/runs", &run_body(word, "x")).await;
        let path = format!("/runs/{id}");
        let all = (0..4).map(|_| face.delete(&path));
        let replies = futures_util::future::join_all(all).await;
        let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        statuses.sort_unstable();
        // A request during the removal gets 404 once the run is gone.
        assert!(statuses[0] == 204 && statuses.iter().all(|it| [204, 404].contains(it)), "{word}");
        assert_eq!(face.delete(&path).await.status, 404, "{word}");
        assert_eq!(refusal(&face.get(&path).await), expected_refusal(404, "run_not_found"));
    }
}

#[tokio::test]
async fn the_same_request_under_one_key_is_one_run() {
    let face = Face::start().await;
    let body = run_body("say", "hello").to_string();
    let send = async |body: &str, path: &str| {
        let headers = [("idempotency-key", "k-1")];
        let body = bytes::Bytes::from(body.to_owned());
        face.send_raw(&face.client, Method::POST, path, &headers, body).await
    };
    let first = send(&body, "/runs").await;
    let again = send(&body, "/runs").await;
    assert_eq!(first.json()["run_id"], again.json()["run_id"]);
    assert_eq!(again.headers["idempotent-replay"], "true");
    let other = send(&run_body("say", "other").to_string(), "/runs").await;
    assert_eq!(refusal(&other), expected_refusal(422, "idempotency_mismatch"));
}

#[tokio::test]
async fn who_waits_for_a_run_that_is_deleted_is_told_that_it_is_gone() {
    let face = Face::start().await;
    let sleep = run_body("sleep", "x");
    let (waited, deleted) = tokio::join!(face.post("/runs/wait", &sleep), async {
        let begun = async || {
            let runs = face.post_ok("/runs/search", &json!({})).await;
            runs.pointer("/0/run_id").and_then(Value::as_str).map(ToOwned::to_owned)
        };
        let id = until("the run", LIMIT, begun).await.unwrap();
        face.delete(&format!("/runs/{id}")).await
    });
    assert_eq!(deleted.status, 204);
    let waited = waited.json();
    assert_eq!(waited["output"]["errcode"], 6, "{waited}");
}
