//! Large content: it is logged unchanged up to the limit of a line, later lines are not lost, and no run fails because of it.

use serde_json::{Value, json};
use trilogue_backends::agent_client::Processes;
use trilogue_domain::event::{MessageEvent, StateEvent, ToolEvent, ToolStatus};
use trilogue_domain::{Body, Content, RunStatus, ThreadId};

use super::rig::Rig;

const MIB: usize = 1024 * 1024;

#[tokio::test]
async fn a_large_update_is_logged_as_it_came() {
    let rig = Rig::new(&["--heard", "{store}-heard"]).await;
    for (kind, bytes) in [("text", 2 * MIB), ("tool", 2 * MIB), ("think", MIB), ("plan", 10 * MIB)]
    {
        let run = rig.run(&rig.thread, &format!("large:{kind}:{bytes}\nsay:behind it")).await;
        assert_eq!(run.status, RunStatus::Completed, "{kind}: {:?}", run.outcome);
        let originals = rig.originals(&run).await;
        let large = originals.iter().find(|original| original.len() > bytes).unwrap();
        let update: Value = serde_json::from_str(large).unwrap();
        let member = match kind {
            "tool" => &update["update"]["content"][0]["content"]["text"],
            "plan" => &update["update"]["entries"][0]["content"],
            _ => &update["update"]["content"]["text"],
        };
        assert_eq!(member.as_str().unwrap(), "ä".repeat(bytes / 2), "{kind}");
        assert!(rig.reply_text(&run).await.ends_with("behind it"), "{kind}");
        assert!(rig.custom(&run, "update_too_large").await.is_empty(), "{kind}");
    }
    rig.end().await;
}

#[tokio::test]
async fn large_content_is_stored_as_blobs_and_stays_in_its_original() {
    let rig = Rig::new(&[]).await;
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(160_000) });
    let chunk = json!({ "sessionUpdate": "agent_message_chunk", "content": image });
    let small = json!({ "type": "content", "content": { "type": "text", "text": "small" } });
    let large = json!({ "type": "content", "content": image });
    let tool = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "k", "content": [small, large],
    });
    let run = rig.run(&rig.thread, &format!("raw:{chunk}\nraw:{tool}")).await;
    assert_eq!(run.status, RunStatus::Completed);
    let mut found = Vec::new();
    for event in rig.events(&run).await {
        let Some(original) = event.original else { continue };
        let parts = match event.body {
            Body::Message(MessageEvent::Part { part, .. }) => vec![part],
            Body::Tool(ToolEvent::Updated { content, .. }) => content,
            _ => continue,
        };
        assert!(original.bytes.len() > 160_000);
        for part in parts {
            let Content::Blob(blob) = part.content else {
                found.push(part.as_text().unwrap().len());
                continue;
            };
            found.push(rig.store.blob(run.thread, &blob).await.unwrap().unwrap().len());
        }
    }
    assert_eq!(found, [120_000, "small".len(), 120_000]);
    rig.end().await;
}

#[tokio::test]
async fn large_content_of_a_call_that_ends_with_it_is_stored_as_blobs_too() {
    let rig = Rig::new(&[]).await;
    let image = json!({ "type": "image", "mimeType": "image/png", "data": "A".repeat(160_000) });
    let update = |kind: &str, call: &str| {
        json!({
            "sessionUpdate": kind, "toolCallId": call, "title": "Look", "status": "failed",
            "content": [{ "type": "content", "content": image }], "rawOutput": { "code": 1 },
        })
    };
    let begin = json!({ "sessionUpdate": "tool_call", "toolCallId": "one", "title": "Look" });
    let lines = [begin, update("tool_call_update", "one"), update("tool_call", "two")];
    let script: Vec<_> = lines.iter().map(|line| format!("raw:{line}")).collect();
    let run = rig.run(&rig.thread, &script.join("\n")).await;
    let mut found = Vec::new();
    for event in rig.events(&run).await {
        let Body::Tool(tool) = event.body else { continue };
        // Only the event with the blob has the content, also in its original.
        let size = event.original.unwrap().bytes.len();
        found.push(match tool {
            ToolEvent::Started { call, title, .. } => (call, title, size < 1_000),
            ToolEvent::Updated { call, content } => {
                let Content::Blob(blob) = &content[0].content else { panic!("{content:?}") };
                let bytes = rig.store.blob(run.thread, blob).await.unwrap().unwrap();
                (call, bytes.len().to_string(), size > 160_000)
            }
            ToolEvent::Ended { call, status, output } => {
                assert_eq!(status, ToolStatus::Failed);
                (call, output.unwrap().as_str().to_owned(), size < 1_000)
            }
        });
    }
    let of = |call: &str| {
        let event = |what: &str| (call.to_owned(), what.to_owned(), true);
        [event("Look"), event("120000"), event("{\"code\":1}")]
    };
    assert_eq!(found, [of("one"), of("two")].concat());
    rig.end().await;
}

#[tokio::test]
async fn a_call_that_one_update_begins_and_ends_has_an_end() {
    let rig = Rig::new(&[]).await;
    let output = json!([{ "type": "content", "content": { "type": "text", "text": "made" } }]);
    let call = |id: &str, status: &str| {
        json!({
            "sessionUpdate": "tool_call", "toolCallId": id, "title": "T", "status": status,
            "content": output,
        })
    };
    let script = format!("raw:{}\nraw:{}", call("a", "completed"), call("b", "failed"));
    let run = rig.run(&rig.thread, &script).await;
    let events = rig.events(&run).await;
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Tool(ToolEvent::Ended { call, status, output }) => {
                Some((call.as_str(), *status, output.as_ref().unwrap().to_value()))
            }
            _ => None,
        })
        .collect();
    let expected =
        [("a", ToolStatus::Completed, output.clone()), ("b", ToolStatus::Failed, output)];
    assert_eq!(ends, expected);
    rig.end().await;
}

#[tokio::test]
async fn what_is_larger_than_that_is_logged_as_far_as_it_can_be() {
    let rig = Rig::with(&[], |launch| launch.max_line_bytes = 64 * MIB).await;
    for kind in ["text", "tool", "plan"] {
        let bytes = 18 * MIB;
        let run = rig.run(&rig.thread, &format!("large:{kind}:{bytes}\nsay:behind it")).await;
        assert_eq!(run.status, RunStatus::Completed, "{kind}: {:?}", run.outcome);
        let messages = rig.messages(&run).await;
        assert_eq!(messages.last().unwrap().text(), "behind it");
        let gaps = rig.custom(&run, "update_too_large").await;
        match kind {
            "text" => assert_eq!(messages[0].text(), "ä".repeat(bytes / 2)),
            "tool" => {
                let events = rig.events(&run).await;
                let ended = events.iter().filter(|event| {
                    let Body::Tool(ToolEvent::Ended { status, .. }) = &event.body else {
                        return false;
                    };
                    *status == ToolStatus::Completed
                });
                assert_eq!(ended.count(), 1);
            }
            _ => assert_eq!(gaps.len(), 1),
        }
    }
    rig.end().await;
}

/// The last event of a turn is its result. If the log refuses a large result, it has a gap instead.
#[tokio::test]
async fn a_result_that_the_log_refuses_leaves_a_gap() {
    let rig = Rig::with(&[], |launch| launch.max_line_bytes = 64 * MIB).await;
    let small = rig.run(&rig.thread, "much:answer:1000\nsay:a small result").await;
    assert!(rig.custom(&small, "update_too_large").await.is_empty());
    let run = rig.run(&rig.thread, &format!("much:answer:{}\nsay:before it", 18 * MIB)).await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    assert_eq!(rig.reply_text(&run).await, "before it");
    let gaps = rig.custom(&run, "update_too_large").await;
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].to_value()["bytes"].as_u64().unwrap() > 18 * MIB as u64, "{gaps:?}");
    rig.end().await;
}

/// The events of a thread's log about lines that were too long.
async fn oversize_events(rig: &Rig, thread: &ThreadId) -> Vec<Value> {
    let events = rig.log(thread).await.into_iter();
    let told = events.filter_map(|event| match event.body {
        Body::State(StateEvent::Custom { kind, data }) if kind == "line_too_long" => {
            Some(data.to_value())
        }
        _ => None,
    });
    told.collect()
}

#[tokio::test]
async fn a_line_that_is_too_long_is_told_of_where_it_was_said() {
    let limit = 100_000;
    let rig = Rig::with(&["--load", "--store", "{store}"], |launch| launch.max_line_bytes = limit);
    let rig = rig.await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "say:before\noversize:200000\nlarge:text:200000\nsay:behind").await;
    assert_eq!(run.status, RunStatus::Completed, "{:?}", run.outcome);
    assert_eq!(rig.reply_text(&run).await, "before\nbehind");
    let told = json!({ "limit": limit, "method": "session/update" });
    assert_eq!(oversize_events(&rig, &thread).await, [told.clone(), told.clone()]);
    let events = rig.events(&run).await;
    let place =
        |fits: fn(&Body) -> bool| events.iter().position(|event| fits(&event.body)).unwrap();
    let gap = place(
        |body| matches!(body, Body::State(StateEvent::Custom { kind, .. }) if kind == "line_too_long"),
    );
    let ended = place(|body| matches!(body, Body::Run(trilogue_domain::event::RunEvent::Ended(_))));
    assert!(gap < ended);
    // An oversize request is answered with an error instead.
    let run = rig.run(&thread, "much:ask:200000").await;
    assert_eq!(run.status, RunStatus::Failed, "{:?}", run.outcome);
    assert_eq!(oversize_events(&rig, &thread).await.len(), 2);
    // A replayed oversize line is logged once.
    rig.run(&thread, "crash:0").await;
    let run = rig.run(&thread, "say:again").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "again"));
    assert_eq!(rig.custom(&run, "session_restarted").await, []);
    assert_eq!(oversize_events(&rig, &thread).await.len(), 2);
    rig.end().await;
}

#[tokio::test]
async fn among_several_sessions_a_line_that_is_too_long_is_whose_turn_is_at_work() {
    let rig = Rig::with(&[], |launch| {
        launch.max_line_bytes = 100_000;
        launch.processes = Processes::Shared;
    });
    let rig = rig.await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    rig.run(&one, "say:x").await;
    let run = rig.run(&two, "oversize:200000\nsay:behind").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "behind"));
    assert_eq!(oversize_events(&rig, &one).await, [Value::Null; 0]);
    assert_eq!(oversize_events(&rig, &two).await.len(), 1);
    // With two active sessions, the line belongs to the named one, or to none.
    let waits = rig.run(&one, "permission").await;
    assert_eq!(waits.status, RunStatus::Interrupted);
    let run = rig.run(&two, "oversize:200000\nlarge:text:200000\nsay:behind").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "behind"));
    assert_eq!(oversize_events(&rig, &one).await, [Value::Null; 0]);
    assert_eq!(oversize_events(&rig, &two).await.len(), 2);
    rig.cancel(&waits).await;
    rig.end().await;
}
