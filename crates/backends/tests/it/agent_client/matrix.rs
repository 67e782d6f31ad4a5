//! With any id of a piece, and any end of its turn, clients get the piece and its message is complete.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, RunStatus};
use trilogue_store::rows::RunRow;
use uuid::Uuid;

use super::rig::Rig;
use crate::harness::DEADLINE;

const OWN: &str = "6F9619FF-8B86-D011-B42D-00CF4FC964FF";

/// A piece of a message with this id.
fn piece(id: Option<&Value>, text: &str) -> String {
    let content = json!({ "type": "text", "text": text });
    let mut update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    if let Some(id) = id {
        update["messageId"] = id.clone();
    }
    format!("raw:{update}")
}

/// Runs two chunks of a message, and the end of the turn.
async fn play(rig: &Rig, id: Option<&Value>, stop: &str) -> RunRow {
    let thread = rig.thread().await;
    if id == Some(&json!("again")) {
        let run = rig.run(&thread, &piece(id, "first")).await;
        assert_eq!(rig.started_message_ids(&run).await, ["again"]);
    }
    let end = match stop {
        "cancelled" => "slow",
        "error" => "error:-32603:it broke",
        _ => "stop:end_turn",
    };
    let script = format!("{}\n{}\n{end}", piece(id, "one, "), piece(id, "two"));
    let begun = rig.begin(&thread, &script).await;
    let row = rig.store.run(&rig.by.scope(), &begun.run.id).await.unwrap().unwrap();
    if stop != "cancelled" {
        return super::rig::settle(begun).await;
    }
    let until = tokio::time::Instant::now() + DEADLINE;
    while rig.reply_text(&row).await != "one, two" {
        assert!(tokio::time::Instant::now() < until, "it says nothing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    rig.cancel(&row).await
}

#[tokio::test]
async fn every_form_of_id_with_every_end() {
    let forms = [
        ("UUID", Some(json!(OWN))),
        ("none", None),
        ("null", Some(Value::Null)),
        ("empty", Some(json!(""))),
        ("text", Some(json!("msg_01"))),
        ("duplicate", Some(json!("again"))),
        ("number", Some(json!(7))),
    ];
    let rig = Rig::new(&[]).await;
    for stop in ["end_turn", "cancelled", "error"] {
        for (form, id) in &forms {
            let what = format!("{form}, {stop}");
            let run = play(&rig, id.as_ref(), stop).await;
            let status = match stop {
                "cancelled" => RunStatus::Cancelled,
                "error" => RunStatus::Failed,
                _ => RunStatus::Completed,
            };
            assert_eq!((run.status, &*rig.reply_text(&run).await), (status, "one, two"), "{what}");
            let begun = rig.started_message_ids(&run).await;
            assert_eq!(begun.len(), 1, "{what}");
            match *form {
                "UUID" => assert_eq!(begun, [OWN], "{what}"),
                "text" => assert_eq!(begun, ["msg_01"], "{what}"),
                _ => {
                    let ours = Uuid::parse_str(&begun[0]).unwrap();
                    assert_eq!(ours.to_string(), begun[0], "{what}");
                }
            }
            // Clients get the same id in both pieces.
            let originals = rig.originals(&run).await;
            let told = originals.iter().filter_map(|original| {
                let value: Value = serde_json::from_str(original).unwrap();
                Some(value.get("update")?.get("messageId")?.as_str()?.to_owned())
            });
            assert_eq!(told.collect::<Vec<_>>(), [&*begun[0], &*begun[0]], "{what}");
            let completed = rig.events(&run).await.into_iter().filter(|event| {
                matches!(&event.body, Body::Message(MessageEvent::Completed { message }) if message.as_str() == begun[0])
            });
            assert_eq!(completed.count(), 1, "{what}");
        }
    }
    rig.end().await;
}
