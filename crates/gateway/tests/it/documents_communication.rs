//! Every example and rule of the Agent Communication Protocol's documents, on a default mount and on a strict one.

use http::Method;
use serde_json::{Map, Value, json};
use trilogue_testkit::{Client, documents};

use crate::communication::{BASE, both, events, streamed};
use crate::rig::text;

/// The mounts, with the member of the test data that has their refusals.
const MOUNTS: [(&str, &str); 2] = [(BASE, "default"), ("/strict", "strict")];

/// A part as servers write it, with every member.
fn whole(part: &Value) -> Value {
    let mut whole = json!({
        "name": null, "content_type": null, "content": null, "content_encoding": "plain",
        "content_url": null, "metadata": null,
    });
    let members = part.as_object().unwrap().iter();
    let members: Map<_, _> = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    whole.as_object_mut().unwrap().extend(members);
    if let Some(metadata) = part.get("metadata").and_then(Value::as_object) {
        let mut all = match metadata["kind"].as_str() {
            Some("citation") => {
                json!({"start_index": null, "end_index": null, "url": null, "title": null, "description": null})
            }
            _ => {
                json!({"message": null, "tool_name": null, "tool_input": null, "tool_output": null})
            }
        };
        all.as_object_mut().unwrap().extend(metadata.clone());
        whole["metadata"] = all;
    }
    whole
}

fn id_of(message: &Value) -> &str {
    let id = text(message, "/x_trilogue/message_id");
    assert!(uuid::Uuid::try_parse(id).is_ok(), "{message}");
    id
}

fn body(message: &Value, mode: &str) -> Value {
    json!({"agent_name": "echo", "input": [message], "mode": mode})
}

async fn check_all(rows: Vec<Value>) {
    let rig = both().await;
    let client = rig.alice();
    for row in rows {
        for (base, mount) in MOUNTS {
            match row.get(mount) {
                Some(place) => is_refused(&client, base, &row, place.as_str().unwrap()).await,
                None => comes_back(&client, base, &row).await,
            }
        }
    }
}

async fn is_refused(client: &Client, base: &str, row: &Value, place: &str) {
    for mode in ["sync", "async", "stream"] {
        let sent = body(&row["message"], mode);
        let reply = client.post(&format!("{base}/runs"), &sent).await.unwrap();
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{base} {row}");
        let why = reply.json();
        let place = format!("input[0].{place} ");
        assert!(text(&why, "/message").contains(&place), "{base} {row} {why}");
    }
}

/// An agent that repeats the message returns it at once, in a stream, and in the history.
async fn comes_back(client: &Client, base: &str, row: &Value) {
    let message = &row["message"];
    let parts: Value = message["parts"].as_array().unwrap().iter().map(whole).collect();
    let path = format!("{base}/runs");
    let reply = client.post(&path, &body(message, "sync")).await.unwrap();
    assert_eq!(reply.status, 200, "{base} {row} {}", reply.json());
    let run = reply.json();
    assert_eq!(run["status"], "completed", "{base} {row} {run}");
    let output = &run["output"][0];
    assert_eq!((&output["parts"], &output["role"]), (&parts, &json!("agent/echo")), "{base} {row}");

    let stream = streamed(client, Method::POST, &path, &[], &body(message, "stream")).await;
    let stream = events(&stream);
    let of = |kind: &str| -> Vec<&Value> {
        let of_kind = stream.iter().filter(|(_, event)| event["type"] == kind);
        of_kind.map(|(_, event)| event).collect()
    };
    let pieces: Value = of("message.part").iter().map(|event| event["part"].clone()).collect();
    assert_eq!(pieces, parts, "{base} {row}");
    let (created, completed) = (&of("message.created")[0], &of("message.completed")[0]);
    assert_eq!(id_of(&created["message"]), id_of(&completed["message"]));
    assert_eq!(of("run.completed")[0]["run"]["output"][0], completed["message"]);

    let session = format!("{base}/sessions/{}", text(&run, "/session_id"));
    let session = client.get(&session).await.unwrap().ok().unwrap();
    let history = session["history"].as_array().unwrap();
    assert_eq!(history.len(), 2, "{base} {row} {session}");
    for (address, role) in history.iter().zip([&message["role"], &json!("agent/echo")]) {
        let path = address.as_str().unwrap();
        let path = &path[path.find(base).unwrap()..];
        let kept = client.get(path).await.unwrap().ok().unwrap();
        assert_eq!((&kept["parts"], &kept["role"]), (&parts, role), "{base} {row}");
        assert!(path.ends_with(id_of(&kept)), "{path} {kept}");
    }
    assert!(history[1].as_str().unwrap().ends_with(id_of(output)));
}

#[tokio::test]
async fn the_documents_messages_come_back_or_are_refused() {
    check_all(documents::message_structure()).await;
}

#[tokio::test]
async fn the_documents_metadata_comes_back_or_is_refused() {
    check_all(documents::message_metadata()).await;
}
