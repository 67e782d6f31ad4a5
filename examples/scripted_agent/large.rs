//! What is large: text, a tool's content, and what a permission is asked for.

use serde_json::{Value, json};

/// What says this much, as updates: a text, or a tool call that ends with that content and a small one behind it.
pub(crate) fn updates(kind: &str, bytes: usize, call: &str) -> Vec<Value> {
    let much = "m".repeat(bytes);
    if kind == "text" {
        let content = json!({ "type": "text", "text": much });
        return vec![
            json!({ "sessionUpdate": "agent_message_chunk", "messageId": call, "content": content, "extra": [1.50] }),
        ];
    }
    let content = json!([{ "type": "diff", "path": "/large", "oldText": null, "newText": much }]);
    vec![
        json!({ "sessionUpdate": "tool_call", "toolCallId": call, "title": "Write much", "kind": "edit", "status": "pending" }),
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "status": "completed", "content": content, "_meta": { "kept": true } }),
    ]
}

/// A question about so large a change.
pub(crate) fn question(session: &str, bytes: usize) -> Value {
    let content =
        json!([{ "type": "diff", "path": "/large", "oldText": "", "newText": "q".repeat(bytes) }]);
    json!({
        "sessionId": session,
        "toolCall": { "toolCallId": "large", "title": "Change much", "kind": "edit", "content": content },
        "options": [
            { "optionId": "once", "name": "Allow", "kind": "allow_once" },
            { "optionId": "no", "name": "Reject", "kind": "reject_once" },
        ],
    })
}
