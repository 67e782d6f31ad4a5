//! Everything that a message can hold.

use serde_json::{Value, json};

/// One content block of each form, with everything that may stand in it.
pub(crate) fn blocks() -> Vec<Value> {
    let annotations =
        json!({ "audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z" });
    vec![
        json!({ "type": "text", "text": "plain" }),
        json!({ "type": "text", "text": "annotated", "annotations": annotations, "_meta": { "n": 1.0 } }),
        json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=", "uri": "file:///a.png" }),
        json!({ "type": "audio", "mimeType": "audio/wav", "data": "UklGRg==" }),
        json!({ "type": "resource", "resource": { "uri": "file:///a.py", "mimeType": "text/x-python", "text": "print(1)" } }),
        json!({ "type": "resource", "resource": { "uri": "file:///a.bin", "mimeType": "application/octet-stream", "blob": "AAEC" } }),
        json!({ "type": "resource_link", "uri": "file:///a.pdf", "name": "a.pdf", "mimeType": "application/pdf", "title": "A", "description": "a file", "size": 1_024_000 }),
    ]
}

/// One update of each kind that is no message and no tool call.
pub(crate) fn states() -> Vec<Value> {
    vec![
        json!({ "sessionUpdate": "plan", "entries": [{ "content": "look", "priority": "high", "status": "pending" }] }),
        json!({ "sessionUpdate": "available_commands_update", "availableCommands": [{ "name": "help", "description": "Helps." }] }),
        json!({ "sessionUpdate": "current_mode_update", "currentModeId": "code" }),
        json!({ "sessionUpdate": "usage_update", "used": 10, "size": 100, "cost": { "amount": 0.5, "currency": "USD" } }),
        json!({ "sessionUpdate": "session_info_update", "title": "A title" }),
        json!({ "sessionUpdate": "notice", "severity": "info", "title": "Look" }),
        json!({ "sessionUpdate": "compaction_update", "compactionId": "c", "status": "in_progress" }),
        json!({ "sessionUpdate": "config_option_update", "configOptions": [] }),
    ]
}

/// An update that nobody knows, with members in an unusual order and spelling.
pub(crate) fn unknown() -> &'static str {
    r#"{"later":[1e2,{"b":1,"a":2}],"sessionUpdate":"from_the_future","_meta":{"x":null}}"#
}
