//! What a client has to survive.
//!
//! | line | what happens |
//! |---|---|
//! | `respond:TEXT` | writes this instead of the prompt's answer, and waits to be cancelled. `ID` in it is the prompt's id, `SESSION` the session's, `¶` ends a line |
//! | `put:TEXT` | writes this, with the same words in it |
//! | `fail:JSON` | the turn ends with this error |
//! | `choose:KIND,KIND` | asks for permission with an option of each kind, named as its kind, and says what came |
//! | `may:KINDS:JSON` | the same about this tool call |
//! | `take-back:MS` | asks for permission and takes that back after a time |
//! | `leave:MS` | asks for permission and goes on after a time without the answer |
//! | `large:KIND:BYTES` | an update with a text of that length: `text`, `think`, `tool`, `plan` |
//! | `deaf:COUNT` | reads nothing any more and asks so many large questions; then never ends |

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use trilogue_sdk::agent_client::peer::{Call, CallFailure, Peer};
use trilogue_wire::agent_client::Json;
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use crate::ears;

/// How much each question of `deaf` holds, in bytes. Whoever refuses it says it again.
const LARGE: usize = 1024 * 1024;

/// The id of the prompt that came last, as JSON.
static LAST_PROMPT: Mutex<String> = Mutex::new(String::new());

/// Remembers the id of a prompt.
pub(crate) fn prompted(id: &str) {
    id.clone_into(&mut LAST_PROMPT.lock().unwrap_or_else(PoisonError::into_inner));
}

/// The id of the prompt that came last, as JSON.
pub(crate) fn last_prompt() -> String {
    LAST_PROMPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Writes lines as they are.
pub(crate) async fn put(peer: &Peer, session: &str, text: &str) {
    let id = last_prompt();
    let text = text.replace("ID", &id).replace("SESSION", session).replace('¶', "\n");
    // Without a client there is nobody to be told.
    drop(peer.send_raw(format!("{text}\n").as_bytes()).await);
}

/// The error that a turn is to end with.
pub(crate) fn error(json: &str) -> ErrorObject {
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    let code = value["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-32603);
    let error =
        ErrorObject::new(Code(code), value["message"].as_str().unwrap_or("failed").to_owned());
    match value.get("data") {
        Some(data) => error.data(Json::from_value(data)),
        None => error,
    }
}

/// Asks for permission, in one of several ways, and says what came of it.
pub(crate) async fn ask(peer: &Peer, session: &str, word: &str, rest: &str) -> String {
    let call =
        json!({ "toolCallId": "trial", "title": "Change a file", "kind": "edit" }).to_string();
    let (kinds, call) = match word {
        "choose" => (rest, &*call),
        "may" => rest.split_once(':').unwrap_or((rest, &call)),
        _ => ("allow_once,reject_once", &*call),
    };
    let call: Value = serde_json::from_str(call).unwrap_or_default();
    let options =
        kinds.split(',').map(|kind| json!({ "optionId": kind, "name": kind, "kind": kind }));
    let params = json!({
        "sessionId": session,
        "toolCall": call,
        "options": options.collect::<Vec<_>>(),
    });
    let call = match peer.begin("session/request_permission", &params).await {
        Ok(call) => call,
        Err(failed) => return format!("failed: {failed}"),
    };
    let time = Duration::from_millis(rest.parse().unwrap_or(0));
    match word {
        "leave" => {
            tokio::time::sleep(time).await;
            // The answer is nobody's any more.
            tokio::spawn(call);
            "left".to_owned()
        }
        "take-back" => {
            tokio::time::sleep(time).await;
            // It is answered all the same.
            drop(call.cancel());
            told(call).await
        }
        _ => told(call).await,
    }
}

async fn told(call: Call) -> String {
    match call.await {
        Ok(answer) => {
            let answer = answer.to_value();
            let outcome = &answer["outcome"];
            let chosen = outcome["optionId"].as_str().or(outcome["outcome"].as_str());
            format!("permission: {}", chosen.unwrap_or("nothing"))
        }
        Err(CallFailure::Refused(error)) => format!("permission refused: {}", error.code.0),
        Err(other) => format!("permission failed: {other}"),
    }
}

/// An update of a kind that holds a text of so many bytes.
pub(crate) fn large(rest: &str) -> Value {
    let (kind, bytes) = rest.split_once(':').unwrap_or((rest, "0"));
    let text = "ä".repeat(bytes.parse::<usize>().unwrap_or(0) / 2);
    let content = json!({ "type": "text", "text": text });
    match kind {
        "tool" => json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "large", "status": "completed",
            "content": [{ "type": "content", "content": content }],
        }),
        "plan" => json!({
            "sessionUpdate": "plan",
            "entries": [{ "content": text, "priority": "low", "status": "pending" }],
        }),
        "think" => json!({ "sessionUpdate": "agent_thought_chunk", "content": content }),
        _ => json!({ "sessionUpdate": "agent_message_chunk", "content": content }),
    }
}

/// Stops reading, and has the client write more than anybody takes.
pub(crate) async fn deafen(peer: &Peer, count: usize) {
    ears::stop_listening();
    let method = "x".repeat(LARGE);
    for number in 0..count {
        let line =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":\"deaf-{number}\",\"method\":\"_{method}\"}}\n");
        drop(peer.send_raw(line.as_bytes()).await);
    }
    peer.flushed().await;
}
