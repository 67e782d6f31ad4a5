//! Ids of messages: which message they name, how long they are valid, and which are assigned if an agent gives none.

use serde_json::Value;
use trilogue_domain::Body;
use trilogue_domain::MessageId;
use trilogue_domain::event::MessageEvent;
use uuid::Uuid;

use super::rig::Rig;

async fn pieces(rig: &Rig, run: &trilogue_store::rows::RunRow) -> Vec<(String, Option<String>)> {
    let originals = rig.originals(run).await;
    let pieces = originals.iter().filter_map(|original| {
        let value: Value = serde_json::from_str(original).unwrap();
        let update = value.get("update")?;
        let kind = update["sessionUpdate"].as_str()?;
        let kind = kind.strip_suffix("_chunk")?.to_owned();
        Some((kind, update.get("messageId").and_then(Value::as_str).map(str::to_owned)))
    });
    pieces.collect()
}

const SCRIPT: &str = "chunks:3\nthink:a\nthink:b\nsay:c\ntool\nsay:d\nuser:e\nsay:f";

#[tokio::test]
async fn pieces_without_an_id_get_one_that_lasts_as_long_as_the_message() {
    for flags in [["--ids", "none"], ["--ids", "null"]] {
        let rig = Rig::new(&flags).await;
        let run = rig.run(&rig.thread, SCRIPT).await;
        let pieces = pieces(&rig, &run).await;
        let ids: Vec<_> = pieces.iter().map(|(_, id)| id.clone().unwrap()).collect();
        for id in &ids {
            let uuid = Uuid::parse_str(id).unwrap();
            assert_eq!((uuid.get_version_num(), uuid.to_string()), (5, id.clone()));
        }
        // Three pieces of one message, two of one thought, and after that a new one each.
        let mut groups = ids.clone();
        groups.dedup();
        assert_eq!(groups.len(), 6, "{pieces:?}");
        let distinct: std::collections::HashSet<_> = groups.iter().collect();
        assert_eq!(distinct.len(), 6);
        assert_eq!((ids[0] == ids[2], ids[3] == ids[4]), (true, true));
        let said: Vec<_> = pieces.iter().filter(|(kind, _)| kind == "agent_message").collect();
        let mut said: Vec<_> = said.into_iter().map(|(_, id)| id.clone().unwrap()).collect();
        said.dedup();
        assert_eq!(rig.started_message_ids(&run).await, said);

        // Only the id was added.
        let first = rig.originals(&run).await.remove(0);
        let id = &ids[0];
        let expected = match flags[1] {
            "null" => format!(
                r#"{{"sessionId":"","update":{{"content":{{"text":"c0 ","type":"text"}},"messageId":"{id}","sessionUpdate":"agent_message_chunk"}}}}"#
            ),
            _ => format!(
                r#"{{"sessionId":"","update":{{"content":{{"text":"c0 ","type":"text"}},"sessionUpdate":"agent_message_chunk","messageId":"{id}"}}}}"#
            ),
        };
        assert_eq!(first, expected);

        // The next prompt begins a new message.
        let run = rig.run(&rig.thread, "say:next").await;
        assert_ne!(rig.started_message_ids(&run).await[0], *said.last().unwrap());
        rig.end().await;
    }
}

#[tokio::test]
async fn pieces_stay_without_ids_where_that_is_wanted_and_messages_are_told_apart_all_the_same() {
    let rig = Rig::with(&["--no-ids"], |launch| launch.assign_message_ids = false).await;
    let run = rig.run(&rig.thread, SCRIPT).await;
    assert!(pieces(&rig, &run).await.iter().all(|(_, id)| id.is_none()));
    let messages = rig.messages(&run).await;
    let texts: Vec<_> = messages.iter().map(trilogue_domain::Message::text).collect();
    assert_eq!(texts, ["c0 c1 c2 ", "c", "d", "f"]);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_s_ids_are_kept_and_one_that_comes_again_in_another_turn_gets_an_alias() {
    let rig = Rig::new(&["--ids", "counter"]).await;
    let thread = rig.thread().await;
    let first = rig.run(&thread, "two").await;
    assert_eq!(rig.started_message_ids(&first).await, ["m1", "m2"]);
    let second = rig.run(&thread, "two").await;
    let begun = rig.started_message_ids(&second).await;
    assert!(begun.iter().all(|id| Uuid::parse_str(id).is_ok()), "{begun:?}");
    let said = pieces(&rig, &second).await;
    // Clients get the ids by which the messages are found.
    let told: std::collections::HashSet<_> =
        said.iter().filter_map(|(_, id)| id.as_deref()).collect();
    assert_eq!(told, begun.iter().map(String::as_str).collect());
    // In another thread the ids are free.
    let other = rig.thread().await;
    let third = rig.run(&other, "two").await;
    assert_eq!(rig.started_message_ids(&third).await, ["m1", "m2"]);
    rig.end().await;
}

/// A chunk with this id.
fn chunk(kind: &str, id: &str, text: &str) -> String {
    let update = serde_json::json!({
        "sessionUpdate": kind, "messageId": id, "content": { "type": "text", "text": text },
    });
    format!("raw:{update}\n")
}

/// Thoughts follow the rule for the ids of messages: kept, renamed if taken, found by the agent's id and by the server's, and valid as the end of a copy.
#[tokio::test]
async fn a_thought_has_an_id_as_a_message_has() {
    const THINKS: &str = "agent_thought_chunk";
    let rig = Rig::new(&[]).await;
    let thread = rig.thread().await;
    let script = [
        chunk(THINKS, "T", "first "),
        chunk(THINKS, "T", "thought"),
        chunk("agent_message_chunk", "A", "says "),
        chunk(THINKS, "A", "thinks again"),
        chunk("agent_message_chunk", "A", "more"),
        chunk(THINKS, "L", "the last"),
    ]
    .concat();
    let run = rig.run(&thread, script.trim_end()).await;
    let thoughts = async |run: &trilogue_store::rows::RunRow| {
        let events = rig.events(run).await;
        let thoughts = events.into_iter().filter_map(|event| match event.body {
            Body::Message(MessageEvent::Thought { message, text }) => {
                Some((message.unwrap(), text.to_string()))
            }
            _ => None,
        });
        thoughts.collect::<Vec<_>>()
    };
    let found = thoughts(&run).await;
    let renamed = found[2].0.clone();
    let id = |text: &str| MessageId::parse(text).unwrap();
    assert!(Uuid::parse_str(renamed.as_str()).is_ok(), "the message has this id: {renamed}");
    let ids: Vec<_> = found.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids, [id("T"), id("T"), renamed.clone(), id("L")]);
    assert_eq!(rig.started_message_ids(&run).await, ["A"]);
    // The updates for clients have the same ids.
    let sent: Vec<_> = pieces(&rig, &run).await.into_iter().filter_map(|(_, id)| id).collect();
    assert_eq!(sent, ["T", "T", "A", renamed.as_str(), "A", "L"]);
    let row = rig.store.thread(&rig.by.scope(), &thread).await.unwrap().unwrap();
    let message_in = async |id: &MessageId| rig.store.message_in(row.key, id).await.unwrap();
    for known in [id("T"), renamed.clone(), id("L"), id("A")] {
        assert_eq!(message_in(&known).await.unwrap().id, known);
    }
    assert_eq!(message_in(&renamed).await.unwrap().alias, Some(id("A")));

    // A copy ends with the thought's last chunk.
    let new = trilogue_runtime::NewThread::default;
    for (until, expected) in [(id("T"), 2), (renamed, 3), (id("L"), 4)] {
        let copy = rig.runtime.copy_thread_until(&rig.by, &thread, &until, new()).await.unwrap();
        let filter =
            trilogue_store::rows::RunFilter { thread: Some(copy.id.clone()), ..Default::default() };
        let runs = rig.store.runs(&rig.by.scope(), &filter, &Default::default()).await.unwrap();
        assert_eq!(thoughts(&runs.rows[0]).await, found[..expected], "{until}");
        assert!(rig.store.message_in(copy.key, &until).await.unwrap().is_some(), "{until}");
    }
    // In the next turn the ids are taken; in another thread they are free.
    let again = rig.run(&thread, chunk(THINKS, "T", "x").trim_end()).await;
    let again = thoughts(&again).await.remove(0).0;
    assert_ne!(again, id("T"));
    assert_eq!(message_in(&again).await.unwrap().alias, Some(id("T")));
    let other = rig.thread().await;
    let other = rig.run(&other, chunk(THINKS, "T", "x").trim_end()).await;
    assert_eq!(thoughts(&other).await[0].0, id("T"));
    rig.end().await;
}

#[tokio::test]
async fn a_prompt_carries_the_id_of_the_user_s_message_and_another_one_becomes_an_alias() {
    let rig = Rig::new(&["--user-id", "own"]).await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "prompt").await;
    let events = rig.events(&run).await;
    let user = events.iter().find_map(|event| match &event.body {
        Body::Message(MessageEvent::Started { message, role, .. }) if role.is_user() => {
            Some(message.clone())
        }
        _ => None,
    });
    let user = user.unwrap();
    let prompt: Value = serde_json::from_str(&rig.reply_text(&run).await).unwrap();
    assert_eq!(prompt["messageId"], user.as_str());
    assert_eq!(prompt.get("_meta"), None);
    let result = rig.custom(&run, "turn_result").await.remove(0).to_value();
    let own = result["userMessageId"].as_str().unwrap();
    assert_ne!(own, user.as_str());
    let row = rig.store.thread(&rig.by.scope(), &thread).await.unwrap().unwrap();
    let found = rig.store.message_in(row.key, &MessageId::parse(own).unwrap()).await.unwrap();
    assert_eq!(found.unwrap().id, user);
    rig.end().await;

    let rig = Rig::with(&[], |launch| launch.send_message_id = false).await;
    let prompt: Value = serde_json::from_str(&rig.reply_to("prompt").await).unwrap();
    assert_eq!(prompt.get("messageId"), None);
    rig.end().await;
}
