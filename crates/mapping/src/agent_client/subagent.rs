//! Sub-agents and the messages between sessions, from an agent's updates to events. The ids of sessions become those of threads here.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use trilogue_domain::event::{StateEvent, Subagent, SubagentState};
use trilogue_domain::{Body, Json, ThreadId};
use trilogue_wire::agent_client::splice::{self, get, get_text, items};

/// The update of a session that announces a sub-agent, or changes what is known of it.
pub const SUBAGENT_UPDATE: &str = "subagent_update";
/// The update with a message between two sessions, and the one with a piece of its content.
pub const SESSION_MESSAGE: &str = "session_message";
pub const SESSION_MESSAGE_CHUNK: &str = "session_message_chunk";

/// The most bytes of a sub-agent's title.
const MAX_TITLE_BYTES: usize = 1_024;
/// The most bytes of a sub-agent's description.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1_024;
/// The most bytes of all that is known of a sub-agent.
const MAX_SUBAGENT_BYTES: usize = 64 * 1_024;
/// The members that every logged update has, so that each describes the sub-agent completely.
const ALWAYS: [&str; 4] = ["title", "description", "capabilities", "state"];
/// The members of an update that do not describe the sub-agent.
const NOT_KEPT: [&str; 2] = ["sessionUpdate", "sessionId"];

/// What an agent's updates have said about a sub-agent so far: the members of the update.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SubagentDescription(Map<String, Value>);

/// The update is larger than a sub-agent's description may be, or not readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidDescription;

/// What an agent reports about the work of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkReport {
    pub state: SubagentState,
    /// Why the work failed.
    pub error: Option<String>,
}

// === impl SubagentDescription ===

impl SubagentDescription {
    /// Reads a stored description.
    pub fn read(json: &Json) -> Self {
        match json.to_value() {
            Value::Object(members) => Self(members),
            _ => Self::default(),
        }
    }

    /// The description without the state, which a restart makes unknown.
    pub fn to_json(&self) -> Json {
        let mut members = self.0.clone();
        members.remove("state");
        Json::from_value(&Value::Object(members))
    }

    /// Changes the description as an update says. Fails, and changes nothing, if it would become too large.
    pub fn apply(&mut self, update: &str) -> Result<(), InvalidDescription> {
        // Half a character in a member changes no other member.
        let update = Json::parse_mended(update.to_owned()).map_err(|_| InvalidDescription)?;
        let Value::Object(update) = update.to_value() else { return Err(InvalidDescription) };
        let mut members = self.0.clone();
        for (name, value) in update {
            if NOT_KEPT.contains(&name.as_str()) {
                continue;
            }
            match value {
                Value::Null => members.remove(&name),
                value => members.insert(name, value),
            };
        }
        let length = |name: &str| members.get(name).and_then(Value::as_str).map_or(0, str::len);
        let fits = length("title") <= MAX_TITLE_BYTES
            && length("description") <= MAX_DESCRIPTION_BYTES
            && Value::Object(members.clone()).to_string().len() <= MAX_SUBAGENT_BYTES;
        if !fits {
            return Err(InvalidDescription);
        }
        self.0 = members;
        Ok(())
    }

    /// The whole description as an update of the sub-agent's parent. `params` are those of the agent's own update, without the session's id.
    pub fn to_params(&self, params: &str, thread: &ThreadId) -> Option<String> {
        let mut update = self.0.clone();
        for name in ALWAYS {
            update.entry(name).or_insert(Value::Null);
        }
        update.insert("sessionId".to_owned(), thread.as_str().into());
        // The kind comes first: readers look for it at the beginning, and do not decode what is of another kind.
        let update = Value::Object(update).to_string();
        let update = update.strip_prefix('{')?;
        let update = format!("{{\"sessionUpdate\":\"{SUBAGENT_UPDATE}\",{update}");
        splice::set(params, &["update"], &update)
    }

    pub fn title(&self) -> Option<&str> {
        self.0.get("title")?.as_str()
    }

    /// The absolute path in which the sub-agent works, if it is not its parent's.
    pub fn cwd(&self) -> Option<&str> {
        self.0.get("cwd")?.as_str()
    }

    /// Whether its agent reported last that it works, or waits for a person.
    pub fn works(&self) -> bool {
        let report = self.0.get("state").and_then(|state| state.get("state"));
        report.is_some_and(|state| state == "running" || state == "requires_action")
    }

    /// Whether the sub-agent's work can be cancelled alone.
    pub fn can_cancel(&self) -> bool {
        self.0.get("capabilities").and_then(|it| it.get("cancel")).is_some_and(|it| it.is_object())
    }
}

/// Reads the state in an update: of `subagent_update` the member `state`, of `state_update` the update itself.
pub fn work_report(state: &str) -> Option<WorkReport> {
    let word = get_text(state, &["state"])?;
    let reason = get_text(state, &["stopReason"]).map(Cow::into_owned);
    let error = get_text(state, &["error", "message"]).map(Cow::into_owned);
    Some(WorkReport { state: SubagentState::from_text(&word, reason), error })
}

/// Reads a whole `subagent_update` with the id of a thread.
pub(super) fn subagent(update: &str) -> Option<Body> {
    let text = |name: &str| get_text(update, &[name]).map(Cow::into_owned);
    let cancel = get(update, &["capabilities", "cancel"]);
    Some(Body::State(StateEvent::Subagent(Subagent {
        thread: ThreadId::parse(&text("sessionId")?).ok()?,
        title: text("title"),
        description: text("description"),
        state: get(update, &["state"]).and_then(work_report).map(|report| report.state),
        can_cancel: cancel.is_some_and(|cancel| cancel.starts_with('{')),
    })))
}

/// Replaces the ids of sessions in an update by those of their threads. The reference to an unknown session is removed.
pub fn with_thread_ids(
    kind: &str,
    params: String,
    thread: impl Fn(&str) -> Option<ThreadId>,
) -> String {
    match kind {
        "tool_call" | "tool_call_update" => with_content_ids(params, "update", thread),
        SESSION_MESSAGE => {
            let mut params = params;
            for member in ["senderSessionId", "recipientSessionId"] {
                let path = ["update", member];
                let Some(session) = get_text(&params, &path).map(Cow::into_owned) else { continue };
                params = match thread(&session) {
                    Some(id) => splice::set_text(&params, &path, id.as_str()).unwrap_or(params),
                    None => splice::remove(&params, &path).into_owned(),
                };
            }
            params
        }
        _ => params,
    }
}

/// Replaces the ids of sessions in the content of the tool call in the member `call`, as [`with_thread_ids`].
pub fn with_content_ids(
    params: String,
    call: &str,
    thread: impl Fn(&str) -> Option<ThreadId>,
) -> String {
    // Few calls refer to sessions.
    if !params.contains("\"session\"") {
        return params;
    }
    let path = [call, "content"];
    let Some(content) = get(&params, &path).filter(|it| it.starts_with('[')) else {
        return params;
    };
    let mut is_changed = false;
    let mut kept = Vec::new();
    for item in items(content) {
        if get_text(item, &["type"]).as_deref() != Some("session") {
            kept.push(Cow::Borrowed(item));
            continue;
        }
        is_changed = true;
        let id = get_text(item, &["sessionId"]).and_then(|session| thread(&session));
        let named = id.and_then(|id| splice::set_text(item, &["sessionId"], id.as_str()));
        kept.extend(named.map(Cow::Owned));
    }
    if !is_changed {
        return params;
    }
    let content = format!("[{}]", kept.join(","));
    splice::set(&params, &path, &content).unwrap_or(params)
}

/// The updates with one block each that a message between sessions consists of: the message with its first block, and the further ones as chunks.
pub fn message_pieces(kind: &str, params: String) -> Vec<String> {
    let content = get(&params, &["update", "content"]).filter(|_| kind == SESSION_MESSAGE);
    let blocks: Vec<_> = content.map(|content| items(content).collect()).unwrap_or_default();
    let Some((first, others)) = blocks.split_first().filter(|(_, others)| !others.is_empty())
    else {
        return vec![params];
    };
    let id = get(&params, &["update", "messageId"]).unwrap_or("null");
    let head = splice::set(&params, &["update", "content"], &format!("[{first}]"));
    let chunk = |block: &&str| {
        let update = format!(
            "{{\"sessionUpdate\":\"{SESSION_MESSAGE_CHUNK}\",\"messageId\":{id},\"content\":{block}}}"
        );
        splice::set(&params, &["update"], &update)
    };
    head.into_iter().chain(others.iter().filter_map(chunk)).collect()
}

/// Whether an upsert of a message has content.
pub fn has_content(params: &str) -> bool {
    get(params, &["update", "content"]).is_some_and(|content| items(content).next().is_some())
}

/// The event of a message between sessions that is not the input of this one: the agent's own kind, with the whole update.
pub fn other_message(kind: &str, params: &str) -> Body {
    let update = get(params, &["update"]).unwrap_or("{}").to_owned();
    let data = Json::parse_mended(update).unwrap_or_else(|_| Json::from_value(&json!({})));
    Body::State(StateEvent::Custom { kind: kind.to_owned(), data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(session: &str) -> Option<ThreadId> {
        session.strip_prefix("known-").and_then(|id| ThreadId::parse(id).ok())
    }

    #[test]
    fn an_update_changes_only_the_members_that_it_names() {
        let mut known = SubagentDescription::default();
        let first = json!({
            "sessionUpdate": SUBAGENT_UPDATE, "sessionId": "s", "title": "Reads", "description": "Reads files",
            "capabilities": { "cancel": {} }, "state": { "state": "running" },
        });
        known.apply(&first.to_string()).unwrap();
        known
            .apply(r#"{"description":null,"state":{"state":"idle","stopReason":"error"}}"#)
            .unwrap();
        let params = json!({ "sessionId": "", "update": first }).to_string();
        let text = known.to_params(&params, &ThreadId::parse("t").unwrap()).unwrap();
        let whole: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(splice::get(&text, &["update"]).unwrap().find(SUBAGENT_UPDATE), Some(18));
        let update = whole["update"].to_string();
        let expected = Subagent {
            thread: ThreadId::parse("t").unwrap(),
            title: Some("Reads".to_owned()),
            description: None,
            state: Some(SubagentState::Idle { stop_reason: Some("error".to_owned()) }),
            can_cancel: true,
        };
        assert_eq!(subagent(&update), Some(Body::State(StateEvent::Subagent(expected))));
        assert_eq!(whole["update"]["description"], Value::Null);
        let before = known.clone();
        let long = json!({ "title": "x".repeat(MAX_TITLE_BYTES + 1) }).to_string();
        assert_eq!(known.apply(&long), Err(InvalidDescription));
        assert_eq!(known, before);
    }

    #[test]
    fn references_to_sessions_name_threads_or_are_removed() {
        let call = json!({ "update": { "sessionUpdate": "tool_call", "content": [
            { "type": "session", "sessionId": "known-a" },
            { "type": "session", "sessionId": "another" },
            { "type": "content", "content": { "type": "text", "text": "session" } },
        ] } });
        let read: Value =
            serde_json::from_str(&with_thread_ids("tool_call", call.to_string(), thread)).unwrap();
        let content = read["update"]["content"].as_array().unwrap();
        assert_eq!((content.len(), &content[0]["sessionId"]), (2, &json!("a")));
        let message = json!({ "update": { "messageId": "m", "senderSessionId": "known-a", "recipientSessionId": "b" } });
        let read = with_thread_ids(SESSION_MESSAGE, message.to_string(), thread);
        let read: Value = serde_json::from_str(&read).unwrap();
        assert_eq!(read["update"], json!({ "messageId": "m", "senderSessionId": "a" }));
    }

    #[test]
    fn each_block_of_a_message_is_an_update() {
        let message = json!({ "update": { "sessionUpdate": SESSION_MESSAGE, "messageId": "m", "content": [
            { "type": "text", "text": "one" }, { "type": "text", "text": "two" },
        ] } });
        let pieces = message_pieces(SESSION_MESSAGE, message.to_string());
        let pieces: Vec<Value> =
            pieces.iter().map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0]["update"]["content"][0]["text"], "one");
        let chunk = json!({
            "sessionUpdate": SESSION_MESSAGE_CHUNK, "messageId": "m", "content": { "type": "text", "text": "two" },
        });
        assert_eq!(pieces[1]["update"], chunk);
    }
}
