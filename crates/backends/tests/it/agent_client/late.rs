//! An agent's output outside of turns becomes a separate message.

use serde_json::{Value, json};
use trilogue_domain::event::MessageEvent;
use trilogue_domain::{Body, Event, MessageId, RunStatus, Transcript};
use trilogue_runtime::NewThread;

use super::rig::{Rig, text_of};
use crate::harness::DEADLINE;

/// A chunk, with an id if the agent gives it one.
fn chunk(kind: &str, id: Option<&str>, text: &str) -> Value {
    let mut chunk = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    if let Some(id) = id {
        chunk["messageId"] = json!(id);
    }
    chunk
}

/// Waits for the first event outside of runs with this text.
async fn wait_for_text(rig: &Rig, thread: &trilogue_domain::ThreadId, text: &str) -> Event {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let said = rig.log(thread).await.into_iter().find(|event| {
            event.run.is_none()
                && event.original.as_ref().is_some_and(|it| text_of(it).contains(text))
        });
        if let Some(said) = said {
            return said;
        }
        assert!(tokio::time::Instant::now() < end, "{text} was not said");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn message_of(event: &Event) -> MessageId {
    match &event.body {
        Body::Message(said) => said.message().unwrap().clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn words_behind_a_turn_are_a_message_that_is_found_by_its_id() {
    let rig = Rig::new(&[]).await;
    let mut ids = Vec::new();
    for (number, given) in [None, None, Some("theirs")].into_iter().enumerate() {
        let file = rig.path(&format!("go-{number}"));
        let once = |kind: &str, text: &str| {
            format!("once:{}:{}", file.display(), chunk(kind, given, text))
        };
        let (one, two) = (format!("one {number}"), format!("two {number}"));
        let lines = [
            "say:in the turn".to_owned(),
            once("agent_message_chunk", &one),
            once("agent_message_chunk", &two),
            once("agent_thought_chunk", &format!("hm {number}")),
        ];
        let run = rig.run(&rig.thread, &lines.join("\n")).await;
        assert_eq!(
            (run.status, &*rig.reply_text(&run).await),
            (RunStatus::Completed, "in the turn")
        );
        std::fs::write(&file, "").unwrap();
        wait_for_text(&rig, &rig.thread, &format!("hm {number}")).await;
        let (first, second) = (
            wait_for_text(&rig, &rig.thread, &one).await,
            wait_for_text(&rig, &rig.thread, &two).await,
        );
        let id = message_of(&first);
        assert_eq!(message_of(&second), id);
        let told: Value = serde_json::from_str(&text_of(&first.original.unwrap())).unwrap();
        assert_eq!(told["update"]["messageId"], id.as_str());
        if let Some(given) = given {
            assert_eq!(id.as_str(), given);
        }
        // It begins before its text and ends before other output.
        let log = rig.log(&rig.thread).await;
        let of_it: Vec<_> = log
            .iter()
            .filter(
                |event| matches!(&event.body, Body::Message(said) if said.message() == Some(&id)),
            )
            .collect();
        assert!(matches!(of_it[0].body, Body::Message(MessageEvent::Started { .. })));
        assert!(matches!(of_it[3].body, Body::Message(MessageEvent::Completed { .. })));
        assert!(of_it.iter().all(|event| event.run.is_none()) && of_it.len() == 4);
        let mut transcript = Transcript::default();
        of_it.iter().for_each(|event| transcript.push(event));
        let message = transcript.into_messages().remove(0);
        assert_eq!((message.text(), message.role.is_user()), (format!("{one}{two}"), false));
        // The message is found where it begins, and a copy that ends with it ends with the turn.
        let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
        let found = rig.store.message_in(row.key, &id).await.unwrap().unwrap();
        assert_eq!((found.position, found.run), (of_it[0].number, run.key));
        let new = NewThread::default();
        let copy = rig.runtime.copy_thread_until(&rig.by, &rig.thread, &id, new).await.unwrap();
        let messages = rig
            .log(&copy.id)
            .await
            .into_iter()
            .filter(|event| matches!(&event.body, Body::Message(MessageEvent::Started { .. })));
        assert_eq!(messages.count(), 2 * (number + 1));
        ids.push(id);
    }
    // All ids are different.
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    rig.end().await;
}

#[tokio::test]
async fn what_goes_on_behind_a_turn_with_its_own_id_is_the_message_that_it_was() {
    let rig = Rig::new(&[]).await;
    let file = rig.path("go");
    let more = chunk("agent_message_chunk", Some("m"), " and more");
    let said = chunk("agent_message_chunk", Some("m"), "said");
    let run = rig.run(&rig.thread, &format!("raw:{said}\nonce:{}:{more}", file.display())).await;
    assert_eq!(rig.started_message_ids(&run).await, ["m"]);
    std::fs::write(&file, "").unwrap();
    assert_eq!(message_of(&wait_for_text(&rig, &rig.thread, "and more").await).as_str(), "m");
    let begun = rig.log(&rig.thread).await.into_iter().filter(|event| {
        matches!(&event.body, Body::Message(MessageEvent::Started { message, .. }) if message.as_str() == "m")
    });
    assert_eq!(begun.count(), 1);
    let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
    let found = rig.store.message_in(row.key, &MessageId::parse("m").unwrap()).await.unwrap();
    assert_eq!(found.unwrap().run, run.key);
    rig.end().await;
}
