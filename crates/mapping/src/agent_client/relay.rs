use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use trilogue_domain::ThreadId;
use trilogue_domain::json::mended;
use trilogue_wire::agent_client::splice::{self, decode, get, items, members};
use trilogue_wire::agent_client::{UpdateGate, update_kind};
use uuid::Uuid;

use super::{NAMESPACE, NOTIFICATION, UPDATE};

pub(super) const SESSION_UPDATE: &str = "session/update";
const LINE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":";
const PARAMS: &[u8] = b",\"params\":";

/// The condition under which a client gets a notification.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gate {
    Always,
    /// A user's message: all clients except its sender get it, while it is live.
    UserMessage,
    Notices,
    NoNotices,
    Compaction,
    /// A plan without an id. Clients without `plan` get the merged plan instead while there are plans with ids.
    Plan,
    /// A plan with an id: clients with `plan` get it unchanged, others the merged plan.
    PlanById,
    /// Sub-agents and the messages between sessions: clients with `subagents` get them.
    Subagents,
    /// Suggested prompts: clients with `session.promptSuggestions` get them, and only while they are live.
    PromptSuggestions,
    /// The agent's own cursors: no client gets them, because the server copies sessions itself.
    AgentCursors,
    /// A visited address is done: clients with `elicitation.url` get it, and only while it is live.
    Visited,
    /// It has boolean options: clients with `session.configOptions.boolean` get it unchanged, others the result of [`without_booleans`].
    BooleanConfig,
    /// A tool call that refers to another session: clients with `subagents` get it unchanged, others the result of [`without_sessions`].
    ToolSession,
    /// The agent's title of the session: clients get it unchanged, unless a client has set another title: then the result of [`without_title`].
    Title,
    /// An unknown or invalid update: clients skip what they cannot read.
    Opaque,
}

/// Makes params without what a client cannot show.
pub type Reduction = fn(&[u8]) -> Vec<u8>;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdFormat {
    #[default]
    Any,
    /// UUIDs: any other id becomes a UUID derived from it and its session.
    Uuid,
}

/// Relays originals to the clients of one session: each is scanned once and copied once; only the caller's buffer is allocated.
#[derive(Clone, Debug)]
pub struct Relay {
    thread: ThreadId,
    session: Arc<str>,
    ids: IdFormat,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelayedMessage<'a> {
    pub method: Cow<'a, str>,
    pub gate: Gate,
}

// === impl Gate ===

impl Gate {
    /// What clients get of the params of a `session/update` behind this gate, if it is closed for them. `None` if they get nothing, or another update.
    #[must_use]
    pub fn reduction(self) -> Option<Reduction> {
        match self {
            Self::BooleanConfig => Some(without_booleans),
            Self::ToolSession => Some(without_sessions),
            Self::Title => Some(without_title),
            _ => None,
        }
    }
}

// === impl Relay ===

impl Relay {
    pub fn new(thread: &ThreadId, ids: IdFormat) -> Self {
        let session = Value::from(thread.as_str()).to_string();
        Self { thread: thread.clone(), session: session.into(), ids }
    }

    /// Adds the params of an original with the session's id put back. Returns `None`, and adds nothing, if clients do not get the original.
    ///
    /// A notification without params adds nothing either.
    pub fn push_into<'a>(
        &self,
        dialect: &str,
        bytes: &'a [u8],
        out: &mut Vec<u8>,
    ) -> Option<RelayedMessage<'a>> {
        match dialect {
            UPDATE => {
                let gate = self.push_update(std::str::from_utf8(bytes).ok()?, out);
                Some(RelayedMessage { method: Cow::Borrowed(SESSION_UPDATE), gate })
            }
            NOTIFICATION => {
                let (method, params) = notification(std::str::from_utf8(bytes).ok()?)?;
                let method = decode(method)?;
                self.push_params(params.unwrap_or_default(), out);
                let gate = gate_of_method(&method);
                Some(RelayedMessage { method, gate })
            }
            _ => None,
        }
    }

    /// Adds the whole notification as a line, newline included. Returns `None`, and adds nothing, if clients do not get the original.
    pub fn push_line_into(&self, dialect: &str, bytes: &[u8], out: &mut Vec<u8>) -> Option<Gate> {
        let json = std::str::from_utf8(bytes).ok()?;
        let gate = match dialect {
            UPDATE => {
                out.reserve(bytes.len() + self.session.len() + 64);
                out.extend_from_slice(LINE);
                out.extend_from_slice(b"\"session/update\"");
                out.extend_from_slice(PARAMS);
                self.push_update(json, out)
            }
            NOTIFICATION => {
                let (method, params) = notification(json)?;
                let gate = gate_of_method(&decode(method)?);
                out.extend_from_slice(LINE);
                out.extend_from_slice(method.as_bytes());
                if let Some(params) = params {
                    out.extend_from_slice(PARAMS);
                    self.push_params(params, out);
                }
                gate
            }
            _ => return None,
        };
        out.extend_from_slice(b"}\n");
        Some(gate)
    }

    pub fn thread(&self) -> &ThreadId {
        &self.thread
    }

    pub(super) fn session_json(&self) -> &str {
        &self.session
    }

    pub(super) fn shown_id<'a>(&self, id: &'a str) -> Cow<'a, str> {
        shown_id(self.ids, self.thread.as_str(), id)
    }

    fn push_update(&self, params: &str, out: &mut Vec<u8>) -> Gate {
        let params = self.with_shown_id(params);
        if let Some(place) = splice::leading_session(&params) {
            let (head, rest) = (params.get(..place.start), params.get(place.end..));
            let (head, rest) = (head.unwrap_or_default(), rest.unwrap_or_default());
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(self.session.as_bytes());
            out.extend_from_slice(rest.as_bytes());
            if let Some(gate) = leading_gate(rest) {
                return gate;
            }
            return get(&params, &["update"]).map_or(Gate::Opaque, gate_of);
        }
        // Clients refuse a whole line with an unpaired surrogate. The usual form of params has no code points, and was relayed above.
        let params = mended(&params);
        let (mut from, mut gate) = (0, Gate::Opaque);
        for member in members(&params) {
            match &*member.key {
                "sessionId" => {
                    from = self.push_session(&params, from, &member, out);
                }
                "update" => gate = gate_of(member.value),
                _ => {}
            }
        }
        out.extend_from_slice(params.as_bytes().get(from..).unwrap_or_default());
        gate
    }

    fn push_params(&self, params: &str, out: &mut Vec<u8>) {
        let params = &*mended(params);
        let mut from = 0;
        // An id that was not cut out is not the session's.
        let is_cut =
            |member: &splice::Member<'_>| member.key == "sessionId" && member.value == "\"\"";
        for member in members(params).filter(is_cut) {
            from = self.push_session(params, from, &member, out);
        }
        out.extend_from_slice(params.as_bytes().get(from..).unwrap_or_default());
    }

    /// Adds everything up to this member, and the session's id instead of its value.
    fn push_session(
        &self,
        params: &str,
        from: usize,
        member: &splice::Member<'_>,
        out: &mut Vec<u8>,
    ) -> usize {
        out.extend_from_slice(params.as_bytes().get(from..member.span.start).unwrap_or_default());
        out.extend_from_slice(self.session.as_bytes());
        member.span.end
    }

    fn with_shown_id<'a>(&self, params: &'a str) -> Cow<'a, str> {
        if self.ids == IdFormat::Any {
            return Cow::Borrowed(params);
        }
        let Some(id) = splice::message_id(params).filter(|id| !id.is_empty()) else {
            return Cow::Borrowed(params);
        };
        match self.shown_id(&id) {
            Cow::Borrowed(_) => Cow::Borrowed(params),
            Cow::Owned(id) => {
                splice::put_message_id(params, &id).map_or(Cow::Borrowed(params), Cow::Owned)
            }
        }
    }
}

fn notification(original: &str) -> Option<(&str, Option<&str>)> {
    let (mut method, mut params) = (None, None);
    for member in members(original) {
        match &*member.key {
            "method" => method = Some(member.value),
            "params" => params = Some(member.value),
            _ => {}
        }
    }
    Some((method?, params))
}

fn gate_of_method(method: &str) -> Gate {
    if method == "elicitation/complete" { Gate::Visited } else { Gate::Always }
}

/// Returns the gate of an update whose kind directly follows the session's id; `None` if more must be read.
fn leading_gate(rest: &str) -> Option<Gate> {
    let kind = rest.strip_prefix(",\"update\":{\"sessionUpdate\":\"")?;
    let gate = gate_of_kind(kind.get(..kind.find('"')?)?);
    if gate == Gate::ToolSession {
        // An escaped word needs the full check.
        let is_plain = !kind.contains("\"session\"") && !kind.contains("\\u");
        return is_plain.then_some(Gate::Always);
    }
    // These kinds need their content checked too.
    (gate != Gate::BooleanConfig && gate != Gate::Opaque).then_some(gate)
}

pub(super) fn gate_of(update: &str) -> Gate {
    let kind = members(update).find(|member| member.key == "sessionUpdate");
    let Some(kind) = kind.and_then(|kind| decode(kind.value)) else { return Gate::Opaque };
    match gate_of_kind(&kind) {
        Gate::BooleanConfig if !has_booleans(update) => Gate::Always,
        Gate::ToolSession if !has_sessions(update) => Gate::Always,
        gate => gate,
    }
}

/// Returns the gate of an update of this kind with any content.
fn gate_of_kind(kind: &str) -> Gate {
    let Some(known) = update_kind(kind) else { return Gate::Opaque };
    match known.gate {
        UpdateGate::Notices => Gate::Notices,
        UpdateGate::Compaction => Gate::Compaction,
        UpdateGate::Plan => Gate::PlanById,
        UpdateGate::Subagents => Gate::Subagents,
        UpdateGate::PromptSuggestions => Gate::PromptSuggestions,
        UpdateGate::Cursors => Gate::AgentCursors,
        UpdateGate::Open => match kind {
            "config_option_update" => Gate::BooleanConfig,
            "plan" => Gate::Plan,
            "session_info_update" => Gate::Title,
            "tool_call" | "tool_call_update" => Gate::ToolSession,
            _ => Gate::Always,
        },
    }
}

fn has_booleans(update: &str) -> bool {
    get(update, &["configOptions"]).is_some_and(|options| items(options).any(is_boolean))
}

fn has_sessions(update: &str) -> bool {
    get(update, &["content"]).is_some_and(|content| items(content).any(is_session))
}

fn is_session(content: &str) -> bool {
    splice::get_text(content, &["type"]).is_some_and(|kind| kind == "session")
}

fn is_boolean(option: &str) -> bool {
    splice::get_text(option, &["type"]).is_some_and(|kind| kind == "boolean")
}

/// Returns the params of a `config_option_update` without boolean options, for clients that cannot display them.
pub fn without_booleans(params: &[u8]) -> Vec<u8> {
    without_items(&["update", "configOptions"], params, is_boolean)
}

/// Returns the params of a tool call's update without references to other sessions, for clients that show no sub-agents.
pub fn without_sessions(params: &[u8]) -> Vec<u8> {
    without_items(&["update", "content"], params, is_session)
}

/// Returns the params of a `session_info_update` without its title.
pub fn without_title(params: &[u8]) -> Vec<u8> {
    let params = std::str::from_utf8(params).unwrap_or_default();
    splice::remove(params, &["update", "title"]).into_owned().into_bytes()
}

/// Returns the result of a request that opens a session or sets an option, without boolean options.
pub fn result_without_booleans(result: &str) -> Vec<u8> {
    without_items(&["configOptions"], result.as_bytes(), is_boolean)
}

fn without_items(path: &[&str], json: &[u8], is_left_out: fn(&str) -> bool) -> Vec<u8> {
    let stripped = std::str::from_utf8(json).ok().and_then(|json| {
        let kept: Vec<_> = items(get(json, path)?).filter(|item| !is_left_out(item)).collect();
        splice::set(json, path, &format!("[{}]", kept.join(",")))
    });
    stripped.map_or_else(|| json.to_vec(), String::into_bytes)
}

/// Returns the shown form of a message id. An id that must become a UUID becomes the same one everywhere in the session.
pub fn shown_id<'a>(format: IdFormat, session: &str, id: &'a str) -> Cow<'a, str> {
    // The parser accepts four spellings of a UUID; clients expect the one with hyphens.
    let is_uuid = || id.len() == 36 && Uuid::try_parse(id).is_ok();
    if format == IdFormat::Any || is_uuid() {
        return Cow::Borrowed(id);
    }
    Cow::Owned(derive_uuid(session, id).hyphenated().to_string())
}

/// Returns the UUID of a name within a namespace of its own.
pub(super) fn derive_uuid(within: &str, name: &str) -> Uuid {
    let namespace =
        Uuid::try_parse(within).unwrap_or_else(|_| Uuid::new_v5(&NAMESPACE, within.as_bytes()));
    Uuid::new_v5(&namespace, name.as_bytes())
}
