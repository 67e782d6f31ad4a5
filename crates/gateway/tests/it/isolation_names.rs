//! Two principals that see only their own objects: an id that one of them chooses reveals nothing to the other.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use trilogue_domain::Principal;
use trilogue_runtime::Backend;
use trilogue_testkit::{Client, parts};

use crate::client_editor::EditorSocket;
use crate::fountain::Quick;
use crate::rig::{Rig, Setup, text, user};

/// The id that the first principal takes.
const TAKEN: &str = "merger-with-acme";
/// The UUID that is derived from that name, which an attacker can guess.
const TAKEN_UUID: &str = "886313e1-3b8a-5372-9b90-0c9aee199e5d";

/// A way to create a thread with a chosen id. Its result is the response without the parts that always differ.
#[derive(Clone, Copy, Debug)]
enum Way {
    Thread,
    Run,
    Copy,
    ConnectThread(&'static str),
    ConnectRun,
    Session,
    SessionHistory,
}

const WAYS: [Way; 8] = [
    Way::Thread,
    Way::Run,
    Way::Copy,
    Way::ConnectThread("raise"),
    Way::ConnectThread("do_nothing"),
    Way::ConnectRun,
    Way::Session,
    Way::SessionHistory,
];

// === impl Way ===

impl Way {
    /// Whether the protocol accepts only UUIDs.
    fn takes_uuids(self) -> bool {
        matches!(self, Self::Session | Self::SessionHistory)
    }

    async fn go(self, client: &Client, name: &str) -> (u16, Value) {
        let (path, body) = match self {
            Self::Thread => ("/api/v1/threads".to_owned(), json!({"id": name})),
            Self::Run => (
                "/api/v1/runs".to_owned(),
                json!({"agent": "puppet", "input": "hi", "thread_id": name, "create_thread": true}),
            ),
            Self::Copy => {
                let source = client.post("/api/v1/threads", &json!({})).await.unwrap();
                let source = source.ok().unwrap();
                (format!("/api/v1/threads/{}/copy", text(&source, "/id")), json!({"id": name}))
            }
            Self::ConnectThread(if_exists) => {
                ("/connect/threads".to_owned(), json!({"thread_id": name, "if_exists": if_exists}))
            }
            Self::ConnectRun => (
                format!("/connect/threads/{name}/runs/wait"),
                json!({
                    "agent_id": "puppet", "input": {"message": "hi"}, "if_not_exists": "create",
                }),
            ),
            Self::Session => (
                "/communication/runs".to_owned(),
                json!({"agent_name": "puppet", "input": [message()], "session_id": name}),
            ),
            Self::SessionHistory => (
                "/communication/runs".to_owned(),
                json!({
                    "agent_name": "puppet", "input": [message()],
                    "session": {"id": name, "history": [], "state": null},
                }),
            ),
        };
        let reply = client.post(&path, &body).await.unwrap();
        let body = serde_json::from_slice(&reply.body).unwrap_or(Value::Null);
        (reply.status, shape(body))
    }
}

fn message() -> Value {
    json!({"role": "user", "parts": [{"content_type": "text/plain", "content": "hi"}]})
}

/// The shape of a response without ids and times: member names, codes and the kinds of values.
fn shape(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let shaped = members.into_iter().map(|(name, value)| match name.as_str() {
                "code" | "status" | "type" | "title" => (name, value),
                _ => (name, shape(value)),
            });
            Value::Object(shaped.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(shape).collect()),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        other => other,
    }
}

async fn principals(rig: &Rig) -> (Client, Client) {
    rig.token("alpha", "owner", user(), true).await;
    rig.token("alpha", "curious", user(), true).await;
    (rig.as_("alpha", "owner"), rig.as_("alpha", "curious"))
}

#[tokio::test]
async fn an_id_that_another_principal_has_is_as_free_as_one_that_nobody_has() {
    for is_seen_by_all in [true, false] {
        for way in WAYS {
            let rig = Rig::start().await;
            let (owner, curious) = principals(&rig).await;
            let first = if is_seen_by_all { rig.alice() } else { owner };
            let (taken, free) = match way.takes_uuids() {
                true => (TAKEN_UUID, "5df41881-3aed-3515-88a7-2f4a814cf09e"),
                false => (TAKEN, "nobody-has-this"),
            };
            let made = way.go(&first, taken).await;
            assert!(made.0 < 300, "{way:?} {made:?}");
            let other = way.go(&curious, taken).await;
            let nobody = way.go(&curious, free).await;
            assert_eq!(other, nobody, "{way:?} {is_seen_by_all}");
            assert!(other.0 < 300, "{way:?} {other:?}");
            // The second time, both threads belong to the caller.
            assert_eq!(way.go(&curious, taken).await, way.go(&curious, free).await, "{way:?}");
        }
    }
}

#[tokio::test]
async fn a_name_means_the_callers_own_thread_on_every_face() {
    let rig = Rig::start().await;
    let (owner, curious) = principals(&rig).await;
    for (client, said) in [(&owner, "mine"), (&curious, "theirs")] {
        let body = json!({
            "agent": "puppet", "input": said, "thread_id": TAKEN, "create_thread": true,
        });
        let first = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        let again = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
        let id = text(&first, "/thread_id");
        assert_eq!(text(&again, "/thread_id"), id);
        for path in [TAKEN, id] {
            let thread = client.get(&format!("/api/v1/threads/{path}")).await.unwrap();
            assert_eq!(text(&thread.ok().unwrap(), "/id"), id);
            let thread = client.get(&format!("/connect/threads/{path}")).await.unwrap();
            assert_eq!(text(&thread.ok().unwrap(), "/thread_id"), id);
            let session = client.get(&format!("/communication/session/{path}")).await.unwrap();
            assert_eq!(text(&session.ok().unwrap(), "/id"), id);
        }
        let messages = client.get(&format!("/api/v1/threads/{TAKEN}/messages")).await.unwrap();
        let messages = messages.ok().unwrap().to_string();
        assert!(messages.contains(said), "{messages}");
        let patch = json!({"metadata": {"of": said}});
        let path = format!("/api/v1/threads/{TAKEN}");
        let patched = client
            .send(Method::PATCH, &path, &[], serde_json::to_vec(&patch).unwrap().into())
            .await
            .unwrap();
        assert_eq!(patched.ok().unwrap()["metadata"]["of"], said);
    }
    // A principal does not create a thread again that it created with a token that sees all threads.
    rig.token("alpha", "both", user(), false).await;
    let both = rig.as_("alpha", "both");
    both.post("/api/v1/threads", &json!({"id": "plain"})).await.unwrap().ok().unwrap();
    let narrow =
        json!({"label": "narrow", "principal": "both", "rights": ["read", "run"], "own": true});
    let narrow = rig.alice().post("/api/v1/tokens", &narrow).await.unwrap().ok().unwrap();
    let narrow = rig.stranger().with_token(text(&narrow, "/secret"));
    let again = narrow.post("/api/v1/threads", &json!({"id": "plain"})).await.unwrap();
    assert_eq!(again.code(), "already_exists");
    let found = narrow.get("/api/v1/threads/plain").await.unwrap().ok().unwrap();
    assert_eq!(text(&found, "/id"), "plain");
}

#[tokio::test]
async fn an_editor_learns_nothing_of_a_session_that_another_principal_named() {
    let rig = Rig::start().await;
    let curious = Principal { own: true, ..parts::principal("alpha", "curious") };
    let door = EditorSocket::for_principal(&rig, curious);
    let new = |session: &str| json!({"cwd": "/w", "mcpServers": [], "_meta": {"trilogue": {"session": session}}});
    // The ids that this principal chooses are names of its own.
    rig.alice().post("/api/v1/threads", &json!({"id": TAKEN})).await.unwrap().ok().unwrap();
    let mut editor = door.numbered("puppet").await;
    let taken = editor.call("session/new", new(TAKEN)).await;
    let free = editor.call("session/new", new("nobody-has-this")).await;
    assert_eq!(shape(taken.clone()), shape(free.clone()));
    assert_ne!(taken["result"]["sessionId"], TAKEN);
    let load = |session: &str| json!({"sessionId": session, "cwd": "/w", "mcpServers": []});
    let taken = editor.call("session/load", load(TAKEN)).await;
    let free = editor.call("session/load", load("nobody-has-this")).await;
    assert_eq!(shape(taken["error"].clone()), shape(free["error"].clone()));
}

#[tokio::test]
async fn a_random_uuid_is_kept_and_other_ids_of_runs_and_instances_are_refused() {
    let agents: Vec<Arc<dyn Backend>> = vec![Quick::new("second")];
    let rig = Rig::of(Setup { agents, ..Setup::default() }).await;
    let (owner, curious) = principals(&rig).await;
    let uuid = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d";
    let thread = owner.post("/api/v1/threads", &json!({"id": uuid})).await.unwrap();
    assert_eq!(text(&thread.ok().unwrap(), "/id"), uuid);
    let run = |id: &str| json!({"agent": "puppet", "input": "hi", "id": id});
    rig.alice().post("/api/v1/runs", &run("taken")).await.unwrap().ok().unwrap();
    for id in ["taken", "nobody-has-this", TAKEN_UUID] {
        let reply = curious.post("/api/v1/runs", &run(id)).await.unwrap();
        assert_eq!((reply.status, reply.code()), (400, "invalid_id".to_owned()), "{id}");
        let body = json!({"configuration_id": id});
        let reply = curious.post("/connect/agents/second/configurations", &body).await.unwrap();
        assert_eq!(reply.status, 422, "{id}");
        let detail = reply.json()["detail"].to_string();
        assert!(detail.contains("random UUID"), "{detail}");
    }
    let kept = curious.post("/api/v1/runs", &run(uuid)).await.unwrap().ok().unwrap();
    assert_eq!(text(&kept, "/id"), uuid);
}
