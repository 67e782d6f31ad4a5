//! Content of runs: large, encoded, annotated, strict.

use serde_json::{Value, json};
use trilogue_gateway::Options;

use crate::communication::{
    BASE, both, get, kinds, last_text, post, reach, run, served, stream_of, user_input, with,
};
use crate::rig::text;

#[tokio::test]
async fn more_than_fits_an_answer_is_refused_and_can_be_streamed() {
    let rig = with(Options { max_output_bytes: 64 * 1024, ..Options::default() }).await;
    let client = rig.alice();
    let parts: Vec<_> = (0..8)
        .map(|_| json!({"content_type": "text/plain", "content": "x".repeat(10_000)}))
        .collect();
    let body =
        json!({"agent_name": "echo", "input": [{"role": "user", "parts": parts}], "mode": "async"});
    let reply = post(&client, "/runs", &body).await;
    assert_eq!(reply.status, 202, "{}", reply.json());
    let id = text(&reply.json(), "/run_id").to_owned();
    let streamed = stream_of(&client, &id).await;
    assert_eq!(kinds(&streamed).last(), Some(&"run.completed"));
    for path in [format!("/runs/{id}"), format!("/runs/{id}/events")] {
        let reply = get(&client, &path).await;
        assert_eq!((reply.status, reply.code().as_str()), (413, "invalid_input"), "{path}");
        assert_eq!(text(&reply.json(), "/data/reason"), "body_too_large");
    }
}

#[tokio::test]
async fn large_content_is_inlined_and_its_link_works_too() {
    let (_rig, client) = served().await;
    let done = run(&client, "large", "x").await;
    assert_eq!(text(&done, "/output/0/parts/0/content").len(), 100 * 1024);
    assert_eq!(text(&done, "/output/0/parts/1/content_encoding"), "base64");
    let streamed = stream_of(&client, text(&done, "/run_id")).await;
    assert_eq!(streamed.last().unwrap().1["run"], done);
    let session = text(&done, "/session_id");
    let sha = {
        use sha2::{Digest, Sha256};
        let hash = Sha256::digest("x".repeat(100 * 1024));
        hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let reply = get(&client, &format!("/sessions/{session}/blobs/{sha}")).await;
    assert_eq!((reply.status, reply.body.len()), (200, 100 * 1024));
    assert_eq!(reply.headers["content-security-policy"], "default-src 'none'; sandbox");
    assert_eq!(reply.headers["content-disposition"], "attachment");
    let sent = run(&client, "echo", &"y".repeat(100 * 1024)).await;
    assert_eq!(last_text(&sent).len(), 100 * 1024);
}

#[tokio::test]
async fn a_link_works_where_the_session_has_an_id_that_is_no_uuid() {
    let rig = with(Options { max_output_bytes: 64 * 1024, ..Options::default() }).await;
    let client = rig.alice();
    for thread in ["mail box", "00000000-0000-4000-8000-00000000000A"] {
        let body = json!({
            "agent": "large", "input": "x", "thread_id": thread, "create_thread": true,
        });
        let reply = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        let id = text(&reply, "/id");
        reach(&client, id, "completed").await;
        let done = get(&client, &format!("/runs/{id}")).await.ok().unwrap();
        let link = text(&done, "/output/0/parts/0/content_url");
        let path = link.strip_prefix(&format!("http://{}", rig.address)).unwrap();
        let reply = client.get(path).await.unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, 100 * 1024), "{path}");
    }
}

#[tokio::test]
async fn agents_are_held_to_a_strict_mounts_rules_and_shown_by_them() {
    let rig = both().await;
    let client = rig.alice();
    let run_on = async |base: &str, content: &str| {
        let body = json!({"agent_name": "sloppy", "input": user_input(content), "mode": "sync"});
        client.post(&format!("{base}/runs"), &body).await.unwrap().ok().unwrap()
    };
    let lax = run_on(BASE, "").await;
    assert_eq!(text(&lax, "/status"), "completed");
    assert_eq!(text(&lax, "/output/0/parts/1/content_type"), "no type");
    assert_eq!(lax["output"][0]["parts"][0]["content"], Value::Null);
    let strict = run_on("/strict", "").await;
    assert_eq!(text(&strict, "/status"), "failed");
    assert_eq!(text(&strict, "/error/code"), "server_error");
    assert_eq!(text(&strict, "/error/data/reason"), "output_invalid");
    assert!(text(&strict, "/error/message").contains("content_type"), "{strict}");
    let fine = run_on("/strict", "annotate").await;
    assert_eq!(text(&fine, "/status"), "completed", "{fine}");
    assert_eq!(fine["output"][0]["parts"][0]["content"], "");
    let id = text(&lax, "/run_id");
    let shown = client.get(&format!("/strict/runs/{id}")).await.unwrap().ok().unwrap();
    assert_eq!(shown["output"][0]["parts"][0]["content"], "");
    assert_eq!(shown["output"][0]["parts"][1], lax["output"][0]["parts"][1]);
}

#[tokio::test]
async fn a_strict_mount_refuses_members_of_a_message_that_the_protocol_does_not_have() {
    let rig = both().await;
    let client = rig.alice();
    let part = json!({"content_type": "text/plain", "content": "x", "kept": 1});
    for (member, is_known) in [("zzz", false), ("metadata", false), ("x_trilogue", true)] {
        let message = json!({"role": "user", "parts": [part], member: {"k": 1}});
        let body = json!({"agent_name": "echo", "input": [message], "mode": "sync"});
        let lax = client.post(&format!("{BASE}/runs"), &body).await.unwrap();
        assert_eq!(lax.status, 200, "{}", lax.json());
        let strict = client.post("/strict/runs", &body).await.unwrap();
        assert_eq!(strict.status, if is_known { 200 } else { 422 }, "{}", strict.json());
        if !is_known {
            let message = format!("input[0].{member} is not a member of a message");
            assert!(text(&strict.json(), "/message").contains(&message), "{}", strict.json());
        }
    }
}

/// The message is the agent's input, and the agent says its parts again.
#[tokio::test]
async fn members_of_a_message_that_the_protocol_does_not_have_reach_the_agent_and_every_reader() {
    let (_rig, client) = served().await;
    let thread = uuid::Uuid::new_v4().to_string();
    let further = json!({"zzz": {"b": 1.5, "a": [null]}, "metadata": {"k": 1}});
    let mut message =
        json!({"role": "user", "parts": [{"content_type": "text/plain", "content": "x"}]});
    message.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    let body =
        json!({"agent_name": "echo", "session_id": thread, "input": [message], "mode": "sync"});
    let run = post(&client, "/runs", &body).await.ok().unwrap();
    let has_further = |message: &Value| {
        assert_eq!(
            (&message["zzz"], &message["metadata"]),
            (&further["zzz"], &further["metadata"]),
            "{message}"
        );
    };
    has_further(&run["output"][0]);
    assert_eq!(run["output"][0]["parts"][0]["content"], "x");
    assert!(!run["output"][0]["parts"].to_string().contains("zzz"), "{run}");
    let streamed = stream_of(&client, text(&run, "/run_id")).await;
    let completed = streamed.iter().find(|(_, event)| event["type"] == "message.completed");
    has_further(&completed.unwrap().1["message"]);

    let mut message = json!({"role": "user", "content": "y"});
    message.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
    let body = json!({"agent_id": "echo", "input": {"messages": [message]}});
    let path = format!("/connect/threads/{thread}/runs/wait");
    let reply = client.post(&path, &body).await.unwrap().ok().unwrap();
    let messages = reply["output"]["values"]["messages"].as_array().unwrap();
    assert!(messages.iter().any(|message| message["role"] == "assistant"), "{reply}");
    messages.iter().for_each(has_further);

    let session = get(&client, &format!("/sessions/{thread}")).await.ok().unwrap();
    for address in session["history"].as_array().unwrap() {
        let (_, path) = address.as_str().unwrap().split_once("/communication").unwrap();
        let message = get(&client, path).await.ok().unwrap();
        assert_eq!(message["zzz"], further["zzz"], "{message}");
    }
}

#[tokio::test]
async fn base64_and_unknown_members_come_back_as_they_were_sent() {
    let (_rig, client) = served().await;
    let parts = json!([
        {"content": "aGk=", "content_type": "image/png", "content_encoding": "base64"},
        {"content": "x", "content_type": "a/zzz", "z": {"b": 1.0, "a": [2]}, "y": null},
        {"content": "x", "content_type": "text/plain", "metadata": {"kind": "citation", "start_index": -3, "end_index": 7}},
        {"content_type": "text/plain", "metadata": {"kind": "trajectory", "tool_name": "t", "tool_input": {"a": 1}, "duration_ms": 12, "own": {"b": [1.5]}}},
    ]);
    let body =
        json!({"agent_name": "echo", "input": [{"role": "user", "parts": parts}], "mode": "sync"});
    let done = post(&client, "/runs", &body).await.ok().unwrap();
    assert_eq!(text(&done, "/status"), "completed", "{done}");
    for (place, sent) in parts.as_array().unwrap().iter().enumerate() {
        let got = &done["output"][0]["parts"][place];
        for (key, value) in sent.as_object().unwrap() {
            match value {
                Value::Object(members) if key == "metadata" => {
                    for (key, value) in members {
                        assert_eq!(got["metadata"][key], *value, "{got}");
                    }
                }
                value => assert_eq!(got[key], *value, "{got}"),
            }
        }
    }
}

#[tokio::test]
async fn an_answer_reads_the_same_with_all_metadata_removed() {
    let (_rig, client) = served().await;
    let done = run(&client, "talker", "x").await;
    let read = |run: &Value| -> String {
        let parts = run["output"].as_array().unwrap().iter().flat_map(|message| {
            message["parts"].as_array().unwrap().iter().filter_map(|part| part["content"].as_str())
        });
        parts.collect()
    };
    let mut bare = done.clone();
    for message in bare["output"].as_array_mut().unwrap() {
        for part in message["parts"].as_array_mut().unwrap() {
            part["metadata"] = Value::Null;
        }
    }
    assert_eq!(read(&bare), read(&done));
    assert!(read(&bare).starts_with("one two"));
}
