//! Every form of a tool's content can be read back from the log unchanged.

use serde_json::{Value, json};
use trilogue_domain::RunStatus;
use trilogue_domain::event::ToolEvent;
use trilogue_domain::{Body, Input, Json};

use super::rig::{Rig, settle};

/// Every block of the Model Context Protocol of 2025-06-18, with all its members.
fn blocks() -> Vec<Value> {
    let annotations = json!({ "audience": ["user", "assistant"], "priority": 0.75, "lastModified": "2025-06-18T09:30:00Z", "_meta": { "why": null } });
    let meta = json!({ "example.com/n": 1.0, "deep": [{ "b": 1, "a": [null, true, 1e3] }] });
    let resource = |mut contents: Value| {
        contents["_meta"] = meta.clone();
        json!({ "type": "resource", "resource": contents })
    };
    let mut blocks = vec![
        json!({ "type": "text", "text": "plain \u{1f600} \u{0}\n" }),
        json!({ "type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png" }),
        json!({ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" }),
        json!({ "type": "image", "data": "this is not base64!", "mimeType": "image/png", "uri": "file:///a.png" }),
        json!({ "type": "resource_link", "uri": "file:///a.pdf", "name": "a.pdf", "title": "A", "description": "a file", "mimeType": "application/pdf", "size": 1024 }),
        resource(json!({ "uri": "file:///a.py", "mimeType": "text/x-python", "text": "print(1)" })),
        resource(
            json!({ "uri": "file:///a.bin", "mimeType": "application/octet-stream", "blob": "AAEC" }),
        ),
        resource(json!({ "uri": "file:///b", "text": "" })),
        json!({ "type": "from_the_future", "later": [1.50] }),
    ];
    for block in &mut blocks {
        block["annotations"] = annotations.clone();
        block["_meta"] = meta.clone();
    }
    blocks
}

#[tokio::test]
async fn every_block_of_a_tool_s_output_is_read_back_as_it_was_told() {
    let rig = Rig::new(&[]).await;
    let content: Vec<_> = blocks()
        .into_iter()
        .map(|block| json!({ "type": "content", "content": block, "_meta": { "n": 1 } }))
        .chain([
            json!({ "type": "diff", "path": "/a", "oldText": null, "newText": "x", "_meta": {} }),
            json!({ "type": "terminal", "terminalId": "t" }),
        ])
        .collect();
    let updates = [
        json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Look", "kind": "read", "status": "pending", "content": content, "_meta": { "x": 1 } }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "content": content }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": content, "rawOutput": { "content": blocks() } }),
    ];
    let script: Vec<_> = updates.iter().map(|update| format!("raw:{update}")).collect();
    let run = rig.run(&rig.thread, &script.join("\n")).await;
    assert_eq!(run.status, RunStatus::Completed);
    let originals = rig.originals(&run).await;
    let told = originals.iter().filter_map(|original| {
        let value: Value = serde_json::from_str(original).unwrap();
        value.get("update").cloned()
    });
    assert_eq!(told.collect::<Vec<_>>(), updates);
    // Clients of other protocols get the output too.
    let events = rig.events(&run).await;
    let output = events.iter().find_map(|event| match &event.body {
        Body::Tool(ToolEvent::Ended { output, .. }) => output.clone(),
        _ => None,
    });
    assert_eq!(output.unwrap().to_value(), json!({ "content": blocks() }));
    rig.end().await;
}

#[tokio::test]
async fn what_stands_beside_a_prompt_comes_to_the_agent() {
    let rig = Rig::new(&[]).await;
    let Input::Messages(mut messages) = crate::harness::user_input("prompt") else { panic!() };
    let extra = Json::parse(r#"{"extra":{"b":1,"a":[1.50]},"_x":null}"#.to_owned()).unwrap();
    trilogue_mapping::agent_client::keep_extra(&mut messages[0], &extra);
    let run = settle(rig.begin_with(&rig.thread, Input::Messages(messages)).await).await;
    let prompt: Value = serde_json::from_str(&rig.reply_text(&run).await).unwrap();
    assert_eq!(
        (&prompt["extra"], prompt.get("_x")),
        (&json!({ "b": 1, "a": [1.50] }), Some(&Value::Null))
    );
    assert_eq!(prompt["prompt"][0]["text"], "prompt");
    assert!(prompt["sessionId"].as_str().unwrap().starts_with("scripted-"));
    rig.end().await;
}
