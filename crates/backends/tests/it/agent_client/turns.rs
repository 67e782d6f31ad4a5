//! The log has exactly the agent's output.

use serde_json::{Value, json};
use trilogue_domain::event::{MessageEvent, RunEvent, ToolEvent, ToolStatus};
use trilogue_domain::{Body, Outcome, RunStatus};

use super::rig::{Rig, until_async};
use crate::harness::failure;

async fn kinds(rig: &Rig, run: &trilogue_store::rows::RunRow) -> Vec<&'static str> {
    let events = rig.events(run).await;
    let start = events.iter().position(|event| matches!(event.body, Body::Run(RunEvent::Started)));
    events.iter().skip(start.unwrap() + 1).map(|event| event.body.name()).collect()
}

#[tokio::test]
async fn two_messages_in_a_row_are_two() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "two").await;
    assert_eq!(run.status, RunStatus::Completed);
    let message = ["message.started", "message.delta", "message.delta", "message.completed"];
    let expected: Vec<_> = message.iter().chain(&message[..3]).copied().collect();
    let kinds = kinds(&rig, &run).await;
    assert_eq!(kinds[..7], expected);
    // The last message is open for late output behind the result.
    assert_eq!(kinds[7..], ["state.custom", "message.completed", "run.ended"]);
    let messages = rig.messages(&run).await;
    let texts: Vec<_> = messages.iter().map(trilogue_domain::Message::text).collect();
    assert_eq!(texts, ["message one, to its end", "message two, to its end"]);
    assert!(messages.iter().all(|message| message.role.to_text() == "agent/scripted"));
    let result = rig.custom(&run, "turn_result").await.remove(0).to_value();
    assert_eq!(result["stopReason"], "end_turn");
    assert_eq!(rig.originals(&run).await.last().unwrap(), &result.to_string());
    rig.end().await;
}

#[tokio::test]
async fn every_update_is_logged_as_it_came_but_for_the_session_s_id() {
    let rig = Rig::new(&["--load", "--store", "{store}"]).await;
    let raw =
        r#"{"x":1e3,"sessionUpdate":"usage_update","used":1.0,"size":2,"y":[ 1 , {"b":0,"a":0}]}"#;
    let prompt = format!("blocks\nstates\ntool\nthink:hm\nuser:echo\nunknown\nraw:{raw}\nsay:end");
    let run = rig.run(&rig.thread, &prompt).await;
    assert_eq!(run.status, RunStatus::Completed);
    let originals = rig.originals(&run).await;
    assert!(originals.contains(&format!(r#"{{"update":{raw},"sessionId":""}}"#)));
    let unknown = r#"{"update":{"later":[1e2,{"b":1,"a":2}],"sessionUpdate":"from_the_future","_meta":{"x":null}},"sessionId":""}"#;
    assert!(originals.contains(&unknown.to_owned()));

    // The agent's own record of its output, after the user's input. It has no raw lines.
    let sessions = std::fs::read_dir(rig.path("sessions")).unwrap();
    let record = sessions.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let record: String = record.collect();
    let said = record.lines().filter(|line| !line.is_empty()).skip(1);
    let mut expected: Vec<String> =
        said.map(|update| format!(r#"{{"sessionId":"","update":{update}}}"#)).collect();
    assert_eq!(expected.len(), 7 + 8 + 3 + 2 + 1);
    let mut updates = originals.clone();
    updates.retain(|original| original.starts_with(r#"{"sessionId""#));
    assert_eq!(updates, expected);
    expected.clear();

    // Every form of block becomes a part.
    let parts = &rig.messages(&run).await[0].parts;
    let kinds: Vec<_> = parts.iter().map(|part| &*part.content_type).collect();
    assert_eq!(kinds.len(), 7, "{kinds:?}");
    assert!(kinds.contains(&"image/png") && kinds.contains(&"audio/wav"), "{kinds:?}");
    rig.end().await;
}

#[tokio::test]
async fn a_tool_call_names_the_message_that_triggered_it() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "tool\nsay:let me look\ntool\ntool-done").await;
    let events = rig.events(&run).await;
    let user = events.iter().find_map(|event| match &event.body {
        Body::Message(MessageEvent::Started { message, .. }) => Some(message.clone()),
        _ => None,
    });
    let agent = rig.messages(&run).await[0].id.clone();
    let triggers = events.iter().filter_map(|event| match &event.body {
        Body::Tool(ToolEvent::Started { message, tool, .. }) => {
            assert_eq!(tool, "read_file");
            Some(message.clone())
        }
        _ => None,
    });
    assert_eq!(triggers.collect::<Vec<_>>(), [user, Some(agent.clone()), Some(agent)]);
    let ended = events.iter().filter(|event| {
        matches!(event.body, Body::Tool(ToolEvent::Ended { status: ToolStatus::Completed, .. }))
    });
    assert_eq!(ended.count(), 3);
    rig.end().await;
}

#[tokio::test]
async fn noise_and_lines_that_are_too_long_kill_nothing() {
    let rig = Rig::with(&[], |launch| launch.max_line_bytes = 100_000).await;
    let run =
        rig.run(&rig.thread, "noise\noversize:200000\noversize:5000000\nsay:still here").await;
    assert_eq!(run.status, RunStatus::Completed);
    assert_eq!(rig.reply_text(&run).await, "nöise\nstill here");
    let run = rig.run(&rig.thread, "count").await;
    assert_eq!(run.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn a_long_answer_comes_whole_and_in_order() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "chunks:5000").await;
    let expected: String = (0..5_000).map(|number| format!("c{number} ")).collect();
    assert_eq!(rig.reply_text(&run).await, expected);
    rig.end().await;
}

#[tokio::test]
async fn how_a_turn_ends_is_how_its_run_ends() {
    let rig = Rig::new(&[]).await;
    for reason in ["max_tokens", "refusal", "from_the_future"] {
        let run = rig.run(&rig.thread, &format!("stop:{reason}")).await;
        assert_eq!(run.status, RunStatus::Completed, "{reason}");
        let result = rig.custom(&run, "turn_result").await.remove(0).to_value();
        assert_eq!(result["stopReason"], reason);
    }
    let run = rig.run(&rig.thread, "tool-open\nsay:half\nerror:-32603:it broke").await;
    assert_eq!(run.status, RunStatus::Failed);
    let failure = failure(&run);
    assert!(failure.message.contains("it broke"), "{failure:?}");
    let kinds = kinds(&rig, &run).await;
    assert_eq!(kinds[kinds.len() - 3..], ["message.completed", "tool.ended", "run.ended"]);
    assert_eq!(rig.run(&rig.thread, "say:on").await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn what_is_said_after_a_turn_belongs_to_the_thread() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "later:500:A late title").await;
    let late = loop {
        let log = rig.log(&rig.thread).await;
        let late = log.into_iter().find(|event| {
            event.original.as_ref().is_some_and(|it| super::rig::text_of(it).contains("late title"))
        });
        if let Some(late) = late {
            break late;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!((late.run, late.run_number), (None, 0));
    assert!(matches!(run.outcome, Some(Outcome::Completed)));
    rig.end().await;
}

#[tokio::test]
async fn what_the_agent_calls_its_session_is_kept_with_the_thread() {
    let rig = Rig::new(&[]).await;
    let called = async || {
        let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
        row.metadata.to_value().get("trilogue.agent_title").cloned()
    };
    let update = |title: Value| {
        format!("raw:{}", json!({ "sessionUpdate": "session_info_update", "title": title }))
    };
    let (one, two) = (update(json!("One")), update(json!("Two\u{1b}")));
    rig.run(&rig.thread, &format!("{one}\n{two}\nsay:x")).await;
    assert_eq!(called().await, Some(json!("Two")));
    // An update without a title keeps the title.
    let other = r#"raw:{"sessionUpdate":"session_info_update","updatedAt":"2026-01-01T00:00:00Z"}"#;
    rig.run(&rig.thread, other).await;
    assert_eq!(called().await, Some(json!("Two")));
    rig.run(&rig.thread, &update(Value::Null)).await;
    assert_eq!(called().await, None);
    // The update may also arrive between turns.
    rig.run(&rig.thread, "later:0:A late title").await;
    until_async("it has a title", async || called().await == Some(json!("A late title"))).await;
    rig.end().await;
}

#[tokio::test]
async fn what_is_in_no_protocol_passes_or_is_refused() {
    let rig = Rig::new(&[]).await;
    let run = rig.run(&rig.thread, "ext").await;
    assert_eq!(rig.reply_text(&run).await, "ext failed: -32601");
    let events = rig.events(&run).await;
    let said = events.iter().find(|event| {
        event.original.as_ref().is_some_and(|it| &*it.dialect == "agent-client/notification")
    });
    let said = said.unwrap();
    assert_eq!(said.body, Body::Opaque);
    let object: Value = serde_json::from_slice(&said.original.as_ref().unwrap().bytes).unwrap();
    let params = json!({ "sessionId": "", "later": [1.5, null] });
    assert_eq!(object, json!({ "method": "_scripted/said", "params": params }));
    rig.end().await;
}

#[tokio::test]
async fn an_image_that_is_larger_than_other_events_stays_where_it_was_told() {
    let rig = Rig::new(&[]).await;
    let data = "A".repeat(2 * 1024 * 1024);
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "image", "mimeType": "image/png", "data": data } });
    let run = rig.run(&rig.thread, &format!("raw:{update}\nsay:done")).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    let messages = rig.messages(&run).await;
    let trilogue_domain::Content::Blob(blob) = &messages[0].parts[0].content else {
        panic!("{:?}", messages[0].parts[0].content_type)
    };
    assert_eq!(blob.length, 2 * 1024 * 1024 / 4 * 3);
    rig.end().await;
}
