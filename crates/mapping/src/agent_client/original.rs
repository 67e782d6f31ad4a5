//! Reads an agent's originals.

use std::borrow::Cow;
use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, StateEvent, TURN_RESULT, ToolEvent, ToolStatus};
use trilogue_domain::limits::INLINE_CONTENT_BYTES;
use trilogue_domain::port::ReadOriginal;
use trilogue_domain::{Body, Code, Error, Json, MessageId, Original, Part};
use trilogue_wire::agent_client::splice::{self, decode, get, get_text, items, members};

use super::PROTOCOL;
use super::block::{citation_in, cite, extra, part_of};
use super::ignored::body_of_line;
use super::logged::update_original;
use super::plan;
use super::prompt::is_priming_text;
use super::subagent::{self, SUBAGENT_UPDATE};

pub const VERSION: u32 = 1;
/// The version of an update of a tool call whose event is its content alone. Its beginning and its end are events of the dialect [`PART`].
pub(super) const CONTENT_VERSION: u32 = 2;
/// The version of an update that begins a tool call which has ended, and whose event is the end. Its beginning is an event of the dialect [`PART`].
pub(super) const END_VERSION: u32 = 3;
/// The dialect of a `session/update`: its params, `"sessionId":""`.
pub const UPDATE: &str = "agent-client";
/// The dialect of an event that an update brings beside its own: the params of an update with a part of it. Clients get the whole update.
pub const PART: &str = "agent-client/part";
/// The dialect of any other notification: the object `{"method":…,"params":…}`, with `params.sessionId` emptied if present.
pub const NOTIFICATION: &str = "agent-client/notification";
/// The dialect of a whole line with bytes that are not UTF-8, unchanged. Its message is another event.
pub const LINE: &str = "agent-client/line";
/// The dialect of the result of a `session/prompt`, unchanged: it contains no session id.
pub const RESULT: &str = "agent-client/result";

/// The updates that become custom events, because only clients of this protocol understand them.
pub(super) const OWN: [&str; 9] = [
    "usage_update",
    "available_commands_update",
    "current_mode_update",
    "config_option_update",
    "session_info_update",
    "notice",
    "compaction_update",
    "compaction_summary_chunk",
    "prompt_suggestions_update",
];

/// The tool of a call that does not name one.
pub(super) const OTHER_TOOL: &str = "other";

#[derive(Clone, Copy, Debug, Default)]
pub struct OriginalReader;

/// The members of a tool call that events use, unchanged.
#[derive(Default)]
pub(super) struct ToolCallFields<'a> {
    id: Option<&'a str>,
    title: Option<&'a str>,
    name: Option<&'a str>,
    kind: Option<&'a str>,
    status: Option<&'a str>,
    content: Option<&'a str>,
    input: Option<&'a str>,
    output: Option<&'a str>,
}

// === impl OriginalReader ===

impl ReadOriginal for OriginalReader {
    fn read(&self, original: &Original) -> Result<Body> {
        let is_known = match &*original.dialect {
            UPDATE => matches!(original.version, VERSION | CONTENT_VERSION | END_VERSION),
            dialect => super::is_dialect(dialect) && original.version == VERSION,
        };
        if !is_known {
            let Original { dialect, version, bytes: _ } = original;
            return Err(Error::new(
                Code::InvalidRequest,
                format!("the dialect '{dialect}' of version {version} is not read here"),
            ));
        }
        if *original.dialect == *LINE {
            return Ok(body_of_line(&original.bytes));
        }
        let text = std::str::from_utf8(&original.bytes).map_err(|_| {
            Error::new(
                Code::InvalidJson,
                format!("an original of '{}' is not UTF-8", original.dialect),
            )
        })?;
        Ok(match &*original.dialect {
            UPDATE if original.version == CONTENT_VERSION => {
                event_of_call(text, |call| call.content_event())
            }
            UPDATE if original.version == END_VERSION => {
                event_of_call(text, |call| call.end_event())
            }
            UPDATE | PART => body_of_update(text),
            RESULT => own(TURN_RESULT, text).unwrap_or(Body::Opaque),
            _ => Body::Opaque,
        })
    }

    fn without_subagent_state(&self, described: &Original) -> Option<Original> {
        let text = std::str::from_utf8(&described.bytes).ok()?;
        let is_one = *described.dialect == *UPDATE
            && get_text(text, &["update", "sessionUpdate"]).as_deref() == Some(SUBAGENT_UPDATE);
        let cleared = splice::set(text, &["update", "state"], "null").filter(|_| is_one)?;
        Some(update_original(cleared))
    }
}

/// Returns the event of a `session/update` from its params. Unreadable ones are [`Body::Opaque`].
///
/// A chunk without a message id gets the nil UUID, and one whose id cannot be kept a UUID derived from it: the log has the valid id next to the original.
pub fn body_of_update(params: &str) -> Body {
    read_update(params).unwrap_or(Body::Opaque)
}

/// Returns one of the events of a tool call's update.
fn event_of_call(params: &str, event: impl FnOnce(ToolCallFields<'_>) -> Option<Body>) -> Body {
    let call = get(params, &["update"]).map(ToolCallFields::of);
    call.and_then(event).unwrap_or(Body::Opaque)
}

fn read_update(params: &str) -> Option<Body> {
    let update = get(params, &["update"])?;
    let (mut kind, mut content, mut message, mut meta) = (None, None, None, None);
    for member in members(update) {
        match &*member.key {
            "sessionUpdate" => kind = Some(member.value),
            "content" => content = Some(member.value),
            "messageId" => message = Some(member.value),
            "_meta" => meta = Some(member.value),
            _ => {}
        }
    }
    let kind = decode(kind?)?;
    match &*kind {
        "agent_message_chunk" => message_event(content?, message, meta),
        "agent_thought_chunk" => thought(content?, message),
        "tool_call" => ToolCallFields::of(update).start_event(),
        "tool_call_update" => ToolCallFields::of(update).change_event(),
        subagent::SUBAGENT_UPDATE => subagent::subagent(update),
        subagent::SESSION_MESSAGE => message_event(items(content?).next()?, message, None),
        subagent::SESSION_MESSAGE_CHUNK => message_event(content?, message, None),
        "plan" => plan::plan(update),
        "plan_update" => plan::plan_update(update),
        "plan_removed" => plan::plan_removed(update),
        kind if OWN.contains(&kind) => own(kind, update),
        _ => None,
    }
}

/// Returns the message event of a block. Text without annotations and citation continues its message, so that its pieces join; any other block is a part. `meta` is the chunk's, which can contain a citation like the block's.
fn message_event(block: &str, message: Option<&str>, meta: Option<&str>) -> Option<Body> {
    let message = message_id(message.and_then(decode).as_deref());
    let (mut is_text, mut text, mut has_more) = (false, None, false);
    for member in members(block) {
        match &*member.key {
            "type" => is_text = decode(member.value)? == "text",
            "text" => text = Some(member.value),
            "annotations" => has_more |= member.value.starts_with('{'),
            "_meta" => has_more |= citation_in(member.value).is_some(),
            _ => {}
        }
    }
    let cited = meta.and_then(citation_in);
    if is_text && !has_more && cited.is_none() {
        // An empty chunk adds nothing to a message, and begins none.
        let text = Arc::from(&*decode(text?).filter(|text| !text.is_empty())?);
        return Some(Body::Message(MessageEvent::Delta { message, text }));
    }
    let mut part = part_of(block)?;
    if let Some(cited) = cited {
        cite(&mut part, &cited);
    }
    Some(Body::Message(MessageEvent::Part { message, part }))
}

fn message_id(given: Option<&str>) -> MessageId {
    match given {
        None | Some("") => MessageId::from_uuid(uuid::Uuid::nil()),
        Some(id) => MessageId::parse(id).unwrap_or_else(|_| {
            MessageId::from_uuid(uuid::Uuid::new_v5(&super::NAMESPACE, id.as_bytes()))
        }),
    }
}

fn thought(block: &str, message: Option<&str>) -> Option<Body> {
    let (mut is_text, mut text) = (false, None);
    for member in members(block) {
        match &*member.key {
            "type" => is_text = decode(member.value)? == "text",
            "text" => text = Some(member.value),
            _ => {}
        }
    }
    let text = decode(text.filter(|_| is_text)?).filter(|text| !text.is_empty())?;
    let text = Arc::from(&*text);
    let message = message.and_then(decode).filter(|id| !id.is_empty());
    let message = message.map(|id| message_id(Some(&id)));
    Some(Body::Message(MessageEvent::Thought { message, text }))
}

fn own(kind: &str, data: &str) -> Option<Body> {
    let data = Json::parse_mended(data.to_owned()).ok()?;
    Some(Body::State(StateEvent::Custom { kind: kind.to_owned(), data }))
}

// === impl ToolCallFields ===

impl<'a> ToolCallFields<'a> {
    pub(super) fn of(update: &'a str) -> Self {
        let mut call = Self::default();
        for member in members(update) {
            let place = match &*member.key {
                "toolCallId" => &mut call.id,
                "title" => &mut call.title,
                "name" => &mut call.name,
                "kind" => &mut call.kind,
                "status" => &mut call.status,
                "content" => &mut call.content,
                "rawInput" => &mut call.input,
                "rawOutput" => &mut call.output,
                _ => continue,
            };
            *place = Some(member.value);
        }
        call
    }

    fn start_event(&self) -> Option<Body> {
        let (title, tool) = (decode(self.title?)?.into_owned(), self.tool());
        let input = self.input();
        Some(Body::Tool(ToolEvent::Started { call: self.id()?, tool, title, input, message: None }))
    }

    fn change_event(&self) -> Option<Body> {
        self.end_event().or_else(|| self.content_event())
    }

    /// `None` if it has not ended.
    pub(super) fn end_event(&self) -> Option<Body> {
        let (call, status) = (self.id()?, self.end()?);
        Some(Body::Tool(ToolEvent::Ended { call, status, output: self.output() }))
    }

    pub(super) fn content_event(&self) -> Option<Body> {
        let made = items(self.content.unwrap_or_default());
        let content = made.filter_map(part_of_tool).collect();
        Some(Body::Tool(ToolEvent::Updated { call: self.id()?, content }))
    }

    /// Whether the log keeps an image, a sound or a file in the content as a blob. Text and changes of files stay with the end of a call, which shows them.
    pub(super) fn has_large_media(&self) -> bool {
        let is_media = |item: &str| {
            let block = get_text(item, &["content", "type"]);
            item.len() > INLINE_CONTENT_BYTES && block.is_some_and(|kind| kind != "text")
        };
        let content = self.content.unwrap_or_default();
        content.len() > INLINE_CONTENT_BYTES && items(content).any(is_media)
    }

    /// The params of an update that begins this call, without its content and its end.
    pub(super) fn beginning(&self) -> String {
        let input = ("rawInput", self.input);
        let named = [("title", self.title), ("name", self.name), ("kind", self.kind), input];
        self.part("tool_call", named)
    }

    /// The params of an update that ends this call, without its content.
    pub(super) fn ending(&self) -> String {
        let members = [("status", self.status), ("rawOutput", self.output)];
        self.part("tool_call_update", members)
    }

    fn part<const N: usize>(&self, kind: &str, members: [(&str, Option<&str>); N]) -> String {
        let id = self.id.unwrap_or("\"\"");
        let mut params = format!(
            "{{\"sessionId\":\"\",\"update\":{{\"sessionUpdate\":\"{kind}\",\"toolCallId\":{id}"
        );
        for (name, value) in members {
            if let Some(value) = value {
                params.push_str(&format!(",\"{name}\":{value}"));
            }
        }
        params.push_str("}}");
        params
    }

    pub(super) fn title(&self) -> Option<Cow<'a, str>> {
        decode(self.title?)
    }

    pub(super) fn name(&self) -> Option<Cow<'a, str>> {
        decode(self.name?)
    }

    /// Returns the tool: its name, otherwise the call's kind, otherwise the call's title.
    pub(super) fn tool(&self) -> String {
        let kind = || self.kind.and_then(decode).filter(|kind| *kind != OTHER_TOOL);
        let known = self.name().or_else(kind).or_else(|| self.title());
        let known = known.filter(|tool| !tool.is_empty());
        known.map_or_else(|| OTHER_TOOL.to_owned(), Cow::into_owned)
    }

    pub(super) fn input(&self) -> Option<Json> {
        self.input.and_then(json)
    }

    pub(super) fn output(&self) -> Option<Json> {
        let content = || self.content.filter(|content| content.starts_with('[')).and_then(json);
        self.output.and_then(json).or_else(content)
    }

    /// Returns how the call has ended, if it has.
    pub(super) fn end(&self) -> Option<ToolStatus> {
        match self.status.and_then(decode).as_deref() {
            Some("completed") => Some(ToolStatus::Completed),
            Some("failed") => Some(ToolStatus::Failed),
            _ => None,
        }
    }

    fn id(&self) -> Option<String> {
        decode(self.id?).map(Cow::into_owned)
    }
}

/// Parses present JSON: `null` counts as absent.
fn json(raw: &str) -> Option<Json> {
    if raw == "null" { None } else { Json::parse_mended(raw.to_owned()).ok() }
}

/// Converts a tool call's content to a part: a block by its kind, other content as JSON.
pub(super) fn part_of_tool(item: &str) -> Option<Part> {
    let (mut kind, mut content) = (None, None);
    for member in members(item) {
        match &*member.key {
            "type" => kind = decode(member.value),
            "content" => content = Some(member.value),
            _ => {}
        }
    }
    let kind = kind?;
    if kind == "content" {
        return part_of(content?);
    }
    let mut part = Part::json(&Json::parse_mended(item.to_owned()).ok()?);
    part.extra = extra("\"tool_content\":true");
    Some(part)
}

/// Returns the session title in an event: the new one, or `Some(None)` if it is cleared.
pub fn title_of(body: &Body) -> Option<Option<String>> {
    let Body::State(StateEvent::Custom { kind, data }) = body else { return None };
    if kind != "session_info_update" {
        return None;
    }
    match get(data.as_str(), &["title"])? {
        "null" => Some(None),
        title => decode(title).map(|title| Some(title.into_owned())),
    }
}

/// Returns an update without its title if the agent derived the title from the text that this server puts before prompts.
pub fn without_priming_title(params: String) -> String {
    const TITLE: [&str; 2] = ["update", "title"];
    let is_ours = get_text(&params, &TITLE).is_some_and(|title| is_priming_text(&title));
    if is_ours { splice::remove(&params, &TITLE).into_owned() } else { params }
}

/// Returns the update in an original of this protocol.
pub(crate) fn update_of(original: &Original) -> Option<&str> {
    if *original.dialect != *UPDATE {
        return None;
    }
    get(std::str::from_utf8(&original.bytes).ok()?, &["update"])
}

/// Returns an update in the form that other protocols carry under their extension key.
pub(crate) fn carried_update(update: &str) -> String {
    format!("{{\"protocol\":\"{PROTOCOL}\",\"update\":{update}}}")
}

/// Like [`carried_update`], as the `extra` of a part.
pub(crate) fn carried(update: &str) -> Option<Json> {
    extra(&format!("\"update\":{update}"))
}
