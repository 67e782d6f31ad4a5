//! Await and resume: in three modes, with every way to name the question, and across protocols.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::Client;

use crate::communication::{
    BASE, answer, answer_of, begin, events, get, kinds, last_text, mount, on_disk, post, reach,
    run, run_of, served, start, stream_of, streamed, with,
};
use crate::rig::{Rig, text, user};

const RUNS: &str = "/communication/runs";

/// A run that waits, with the id of its question.
async fn create_waiting_run(client: &Client, agent: &str) -> (Value, String) {
    let reply = post(client, "/runs", &run_of(agent, "x", "sync")).await;
    let run = reply.json();
    assert_eq!((reply.status, text(&run, "/status")), (200, "awaiting"), "{run}");
    (run, reply.headers["interrupt-id"].to_str().unwrap().to_owned())
}

async fn resume(client: &Client, run: &str, body: &Value) -> trilogue_testkit::Reply {
    post(client, &format!("/runs/{run}"), body).await
}

#[tokio::test]
async fn a_run_waits_and_goes_on_in_every_mode() {
    for rig in [start().await, on_disk().await] {
        goes_on(rig).await;
    }
}

async fn goes_on(rig: Rig) {
    let client = rig.alice();
    for mode in ["sync", "async", "stream"] {
        for agent in ["awaiter", "asker"] {
            let (asked, _) = create_waiting_run(&client, agent).await;
            let id = text(&asked, "/run_id");
            assert_eq!(text(&asked, "/await_request/type"), "message");
            assert_eq!(text(&asked, "/await_request/message/role"), format!("agent/{agent}"));
            let given = if agent == "awaiter" { "Bob" } else { "go" };
            let before = stream_of(&client, id).await;
            assert_eq!(kinds(&before), ["run.created", "run.in-progress", "run.awaiting"]);
            assert_eq!(before[2].1["run"], asked);
            let body = answer(given, mode);
            let path = format!("{RUNS}/{id}");
            let run_id = match mode {
                "stream" => {
                    let reply = streamed(&client, Method::POST, &path, &[], &body).await;
                    let after = events(&reply);
                    assert_eq!(
                        kinds(&after),
                        [
                            "run.in-progress",
                            "message.created",
                            "message.part",
                            "message.completed",
                            "run.completed"
                        ]
                    );
                    assert_eq!(after[0].1["run"]["await_request"], Value::Null);
                    let mut all = before;
                    all.extend(after);
                    assert_eq!(stream_of(&client, id).await, all);
                    reply.headers["run-id"].clone()
                }
                "async" => {
                    let reply = resume(&client, id, &body).await;
                    assert_eq!(reply.status, 202);
                    let on = reply.json();
                    assert_eq!(text(&on, "/status"), "in-progress");
                    assert_eq!((&on["await_request"], &on["output"]), (&Value::Null, &json!([])));
                    reply.headers["run-id"].clone()
                }
                _ => {
                    let reply = resume(&client, id, &body).await;
                    assert_eq!((reply.status, text(&reply.json(), "/status")), (200, "completed"));
                    reply.headers["run-id"].clone()
                }
            };
            assert_eq!(run_id, id);
            let done = reach(&client, id, "completed").await;
            assert_eq!(last_text(&done), given);
            assert_eq!(done["await_request"], Value::Null);
        }
    }
}

#[tokio::test]
async fn a_message_that_is_awaited_is_asked_for_with_its_own_parts_alone() {
    let (_rig, client) = served().await;
    let (asked, _) = create_waiting_run(&client, "awaiter").await;
    assert_eq!(asked["await_request"]["message"]["parts"], json!([]));
    let nothing =
        json!({"await_resume": {"type": "message", "message": {"role": "user", "parts": []}}});
    let done = resume(&client, text(&asked, "/run_id"), &nothing).await;
    assert_eq!((done.status, last_text(&done.json())), (200, "empty"));
}

#[tokio::test]
async fn a_resume_is_refused_in_order_body_run_state() {
    let (_rig, client) = served().await;
    let unknown = "00000000-0000-4000-8000-000000000000";
    let (asked, _) = create_waiting_run(&client, "awaiter").await;
    let done = run(&client, "echo", "x").await;
    let working = begin(&client, "sleeper").await;
    let (waits, done) = (text(&asked, "/run_id"), text(&done, "/run_id"));
    let fine = answer("x", "sync");
    let wrong_type = json!({"await_resume": {"type": "other", "message": {"role": "user", "parts": []}}, "mode": "sync"});
    let wrong_mode =
        json!({"await_resume": {"message": {"role": "user", "parts": []}}, "mode": "turbo"});
    for (run, body, status, code) in [
        ("abc", &fine, 422, "invalid_input"),
        (unknown, &json!({}), 422, "invalid_input"),
        (unknown, &fine, 404, "not_found"),
        (waits, &json!({"mode": "sync"}), 422, "invalid_input"),
        (waits, &wrong_type, 422, "invalid_input"),
        (waits, &wrong_mode, 422, "invalid_input"),
        (done, &fine, 403, "server_error"),
        (done, &wrong_mode, 422, "invalid_input"),
        (&working, &fine, 403, "server_error"),
    ] {
        let reply = resume(&client, run, body).await;
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{run} {body}");
    }
    // None of these requests was an answer.
    reach(&client, waits, "awaiting").await;
}

#[tokio::test]
async fn of_two_answers_the_second_is_told() {
    let (_rig, client) = served().await;
    let (asked, interrupt) = create_waiting_run(&client, "awaiter").await;
    let id = text(&asked, "/run_id");
    let body = answer("x", "async");
    let replies = (0..4).map(|_| resume(&client, id, &body));
    let replies = futures_util::future::join_all(replies).await;
    let mut statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 403, 403, 403]);
    reach(&client, id, "completed").await;
    let headers = [("interrupt-id", interrupt.as_str())];
    let body = Bytes::from(answer("x", "sync").to_string());
    let late = client.send(Method::POST, &format!("{RUNS}/{id}"), &headers, body).await.unwrap();
    assert_eq!(late.status, 403);
}

#[tokio::test]
async fn an_answer_without_a_name_is_for_what_was_shown_last() {
    let rig = start().await;
    rig.token("alpha", "bob", user(), false).await;
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    let (asked, first) = create_waiting_run(&alice, "two").await;
    let id = text(&asked, "/run_id");
    assert!(text(&asked, "/await_request/message/parts/0/content").contains("first?"));
    // Alice has seen the first question; Bob answers it, and the run waits for the second.
    let reply = resume(&bob, id, &answer("go", "sync")).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert_eq!(text(&reply.json(), "/status"), "awaiting");
    let second = reply.headers["interrupt-id"].to_str().unwrap().to_owned();
    assert_ne!(first, second);
    // Alice's answer is for the first question, which is gone, even though another one is pending.
    let refused = resume(&alice, id, &answer("go", "sync")).await;
    assert_eq!(refused.status, 403);
    assert_eq!(text(&refused.json(), "/data/interrupt_id"), second);
    assert_eq!(refused.headers["interrupt-id"], second.as_str());
    // A third principal has seen no question, and a question was resolved before.
    rig.token("alpha", "carol", user(), false).await;
    let carol = rig.as_("alpha", "carol");
    let refused = resume(&carol, id, &answer("go", "sync")).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/data/interrupt_id")),
        (403, second.as_str())
    );
    let named = json!([{"content": "halt", "x_trilogue": {"interrupt_id": second}}]);
    let body = answer_of(named);
    let done = resume(&carol, id, &body).await;
    assert_eq!((done.status, last_text(&done.json())), (200, "go+halt"));
}

#[tokio::test]
async fn an_answer_names_its_interrupt_in_the_message_or_in_a_header() {
    let (_rig, client) = served().await;
    let send = async |id: &str, header: &str, parts: Value| {
        let body = answer_of(parts).to_string();
        let headers = [("interrupt-id", header)];
        client
            .send(Method::POST, &format!("{RUNS}/{id}"), &headers, Bytes::from(body))
            .await
            .unwrap()
    };
    let (asked, interrupt) = create_waiting_run(&client, "asker").await;
    let id = text(&asked, "/run_id");
    assert_eq!(text(&asked, "/await_request/message/parts/0/x_trilogue/interrupt_id"), interrupt);
    let both = json!([{"content": "go", "x_trilogue": {"interrupt_id": interrupt}}]);
    assert_eq!(send(id, "another", both.clone()).await.status, 422);
    let refused = send(id, "another", json!([{"content": "go"}])).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/data/interrupt_id")),
        (403, interrupt.as_str())
    );
    let done = send(id, &interrupt, both).await;
    assert_eq!((done.status, last_text(&done.json())), (200, "go"));
}

#[tokio::test]
async fn a_mount_may_ask_that_answers_to_permissions_name_them() {
    let mounts = vec![mount(BASE, false, true)];
    let rig = with(mounts).await;
    let client = rig.alice();
    let (asked, interrupt) = create_waiting_run(&client, "asker").await;
    let id = text(&asked, "/run_id");
    let refused = resume(&client, id, &answer("go", "sync")).await;
    assert_eq!(
        (refused.status, text(&refused.json(), "/data/interrupt_id")),
        (403, interrupt.as_str())
    );
    let named = json!([{"content": "go", "x_trilogue": {"interrupt_id": interrupt}}]);
    let body = answer_of(named);
    assert_eq!(resume(&client, id, &body).await.status, 200);
    let (asked, _) = create_waiting_run(&client, "awaiter").await;
    let free = resume(&client, text(&asked, "/run_id"), &answer("x", "sync")).await;
    assert_eq!(free.status, 200);
}

#[tokio::test]
async fn a_permission_is_answered_by_id_name_word_or_json_and_by_nothing_else() {
    let (_rig, client) = served().await;
    let text_part = |content: &str| json!([{"content": content}]);
    let json_part = |content: Value| json!([{"content": content.to_string(), "content_type": "application/json"}]);
    for (parts, chosen) in [
        (text_part("go"), "go"),
        (text_part("Go Ahead"), "go"),
        (text_part("rather not"), "halt"),
        (text_part("yes"), "go"),
        (text_part("No"), "halt"),
        (json_part(json!({"option_id": "go"})), "go"),
    ] {
        let (asked, _) = create_waiting_run(&client, "asker").await;
        let body = answer_of(parts);
        let reply = resume(&client, text(&asked, "/run_id"), &body).await;
        assert_eq!(reply.status, 200, "{body} {}", reply.json());
        assert_eq!(last_text(&reply.json()), chosen, "{body}");
    }
    let (asked, interrupt) = create_waiting_run(&client, "asker").await;
    for parts in [text_part("maybe"), json!([]), json_part(json!({"option_id": "x"}))] {
        let body = answer_of(parts);
        let reply = resume(&client, text(&asked, "/run_id"), &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{body}");
    }
    let still = get(&client, &format!("/runs/{}", text(&asked, "/run_id"))).await;
    assert_eq!(still.headers["interrupt-id"], interrupt.as_str());
}

#[tokio::test]
async fn a_form_is_answered_with_json() {
    let (_rig, client) = served().await;
    let (asked, interrupt) = create_waiting_run(&client, "form").await;
    let parts = asked["await_request"]["message"]["parts"].as_array().unwrap();
    assert_eq!(text(&parts[0], "/content"), "how many?");
    let shown: Value = serde_json::from_str(text(&parts[1], "/content")).unwrap();
    assert_eq!(text(&parts[1], "/content_type"), "application/json");
    assert_eq!(
        (text(&shown, "/interrupt_id"), text(&shown, "/kind")),
        (interrupt.as_str(), "form")
    );
    assert!(shown["schema"]["properties"]["count"].is_object());
    let content = json!({"count": 3}).to_string();
    let parts = json!([{"content": content, "content_type": "application/json"}]);
    let body = answer_of(parts);
    let done = resume(&client, text(&asked, "/run_id"), &body).await;
    assert_eq!((done.status, last_text(&done.json())), (200, content.as_str()));
}

#[tokio::test]
async fn what_is_asked_on_one_face_is_answered_on_the_other() {
    let (_rig, client) = served().await;
    // A run through this protocol, answered through `/api/v1`.
    let (asked, interrupt) = create_waiting_run(&client, "asker").await;
    let path = format!("/api/v1/interrupts/{interrupt}/answer");
    client.post(&path, &json!({"option": "halt"})).await.unwrap().ok().unwrap();
    let done = reach(&client, text(&asked, "/run_id"), "completed").await;
    assert_eq!(last_text(&done), "halt");
    // A run through `/api/v1`, answered through this protocol.
    let body = json!({"agent": "asker", "input": "x"});
    let asked = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let id = text(&asked, "/id");
    let seen = get(&client, &format!("/runs/{id}")).await;
    assert_eq!(seen.headers["interrupt-id"], text(&asked, "/interrupts/0/id"));
    let done = resume(&client, id, &answer("yes", "sync")).await;
    assert_eq!((done.status, last_text(&done.json())), (200, "go"));
    let native = client.get(&format!("/api/v1/runs/{id}")).await.unwrap().ok().unwrap();
    assert_eq!(text(&native, "/status"), "completed");
}

#[tokio::test]
async fn a_session_whose_run_waits_takes_another_unless_the_agent_keeps_its_turn() {
    let (_rig, client) = served().await;
    let (asked, _) = create_waiting_run(&client, "awaiter").await;
    let mut more = run_of("echo", "meanwhile", "sync");
    more["session_id"] = asked["session_id"].clone();
    assert_eq!(last_text(&post(&client, "/runs", &more).await.ok().unwrap()), "meanwhile");
    let done = resume(&client, text(&asked, "/run_id"), &answer("later", "sync")).await;
    assert_eq!(last_text(&done.json()), "later");
    let (held, interrupt) = create_waiting_run(&client, "holder").await;
    more["session_id"] = held["session_id"].clone();
    let refused = post(&client, "/runs", &more).await;
    assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_input"));
    let refused = refused.json();
    assert_eq!(text(&refused, "/data/reason"), "thread_waiting");
    assert_eq!(text(&refused, "/data/interrupt_id"), interrupt);
}

#[tokio::test]
async fn who_may_not_answer_resumes_nothing() {
    let rig = start().await;
    let rights = [trilogue_domain::Right::Read, trilogue_domain::Right::Run].into_iter().collect();
    rig.token("alpha", "dave", rights, false).await;
    let (asked, _) = create_waiting_run(&rig.alice(), "awaiter").await;
    let reply =
        resume(&rig.as_("alpha", "dave"), text(&asked, "/run_id"), &answer("x", "sync")).await;
    assert_eq!((reply.status, reply.code().as_str()), (403, "server_error"));
}

#[tokio::test]
async fn a_stream_ends_with_the_question_and_one_behind_it_lives_on() {
    let (_rig, client) = served().await;
    let reply = streamed(&client, Method::POST, RUNS, &[], &run_of("awaiter", "x", "stream")).await;
    let asked = events(&reply);
    assert_eq!(kinds(&asked), ["run.created", "run.in-progress", "run.awaiting"]);
    let id = text(&asked[0].1, "/run/run_id").to_owned();
    let behind = tokio::spawn({
        let (client, path, last) =
            (client.clone(), format!("{RUNS}/{id}/events"), asked[2].0.clone());
        async move {
            let headers = [("accept", "text/event-stream"), ("last-event-id", last.as_str())];
            streamed(&client, Method::GET, &path, &headers, &Value::Null).await
        }
    });
    assert_eq!(resume(&client, &id, &answer("on", "sync")).await.status, 200);
    let after = events(&behind.await.unwrap());
    assert_eq!(kinds(&after).first(), Some(&"run.in-progress"));
    assert_eq!(kinds(&after).last(), Some(&"run.completed"));
}
