//! Translates events and questions of the Agent Communication Protocol into those that the terminal renders.

use serde_json::Value;
use trilogue_domain::{Body, Error, Role, Timestamp};
use trilogue_mapping::communication::RemoteRun;
use trilogue_mapping::native::event;
use trilogue_sdk::ThreadId;
use trilogue_sdk::client::{ClientError, Refusal};
use trilogue_wire::agent_communication::{
    self as wire, AwaitRequest, CitationMetadata, ContentEncoding as Encoding, Metadata, Run,
    TrajectoryMetadata,
};
use trilogue_wire::native::{
    Citation, ContentEncoding, Event, EventBody, Interrupt, Json, MessagePart, OtherMetadata,
    Outcome, Part, PartMetadata, PermissionOption, RunEnded, RunError, RunStatus, StateCustom,
    StatePlan, StatePlanRemoved, StatePlanUpdated, StateSubagent, Trajectory,
};

use super::super::{plain_interrupt, unnumbered};

/// The member in which our own servers name a question.
const EXTENSION: &str = "x_trilogue";

#[derive(Debug)]
pub(super) struct EventTranslator {
    /// Finds the new content of each event: official servers repeat parts, and send some only in a message's first or last event.
    messages: RemoteRun,
    /// For links to large content, which this protocol does not need.
    thread: ThreadId,
    /// The text just before, in the same message.
    last_text: String,
}

// === impl EventTranslator ===

impl Default for EventTranslator {
    fn default() -> Self {
        // Some servers give an agent's messages the role `user`.
        let messages = RemoteRun::new("", Role::Agent);
        Self { messages, thread: ThreadId::generate(), last_text: String::new() }
    }
}

impl EventTranslator {
    /// The terminal's events; none for one that it does not render.
    ///
    /// # Errors
    /// If a value is nested too deep.
    pub(super) fn events(&mut self, event: wire::Event) -> Result<Vec<Event>, Error> {
        let ended = match &event {
            wire::Event::Generic { generic } => {
                return Ok(vec![unnumbered(update(generic.clone()))]);
            }
            wire::Event::RunCompleted { run }
            | wire::Event::RunFailed { run }
            | wire::Event::RunCancelled { run } => {
                Some(EventBody::RunEnded(RunEnded { outcome: outcome((**run).clone()) }))
            }
            _ => None,
        };
        let bodies = self.messages.push(event)?;
        let shown = bodies.into_iter().filter_map(|body| self.translate(body));
        let mut events: Vec<_> = shown.collect();
        events.extend(ended.map(unnumbered));
        Ok(events)
    }

    fn translate(&mut self, body: Body) -> Option<Event> {
        let event = trilogue_domain::Event {
            number: 0,
            run: None,
            run_number: 0,
            at: Timestamp::from_micros(0),
            body,
            original: None,
        };
        let body = event::event(&event, 0, None, &self.thread).body;
        match &body {
            EventBody::MessageDelta(delta) => self.last_text.push_str(&delta.text),
            EventBody::MessagePart(MessagePart { part, .. }) => {
                let before = std::mem::take(&mut self.last_text);
                if !before.is_empty() && repeats(part, &before) {
                    return None;
                }
                self.last_text.push_str(part.as_text().unwrap_or_default());
            }
            _ => self.last_text.clear(),
        }
        Some(unnumbered(body))
    }
}

/// A run's question. Our own servers describe it in a part of JSON; any other server's takes a message.
pub(super) fn interrupt(request: AwaitRequest) -> Interrupt {
    let parts = request.message.parts;
    let id = parts.first().and_then(named_interrupt).unwrap_or_default();
    let (mut prompt, mut described) = (Vec::new(), Value::Null);
    for part in parts {
        match description(&part) {
            Some(found) => described = found,
            None => prompt.push(part_of(part)),
        }
    }
    let member = |name: &str| described.get(name).filter(|value| !value.is_null());
    let options = member("options").cloned().unwrap_or_default();
    let options: Option<Vec<PermissionOption>> = serde_json::from_value(options).ok();
    let kind = member("kind").and_then(Value::as_str).unwrap_or("message").to_owned();
    Interrupt {
        prompt,
        payload: member("payload").map_or_else(Json::null, Json::from_value),
        options: options.unwrap_or_default(),
        schema: member("schema").map(Json::from_value),
        ..plain_interrupt(id, kind)
    }
}

fn named_interrupt(part: &wire::MessagePart) -> Option<String> {
    let extension = part.extra.get(EXTENSION)?.to_value();
    extension.get("interrupt_id")?.as_str().map(str::to_owned)
}

fn description(part: &wire::MessagePart) -> Option<Value> {
    let content = part.content.as_deref().filter(|_| part.content_type == "application/json")?;
    let described: Value = serde_json::from_str(content).ok()?;
    let is_ours = described.get("interrupt_id").is_some() && described.get("kind").is_some();
    is_ours.then_some(described)
}

/// Whether a part is a value whose text came just before: Trilogue servers send the answer of an agent with an output schema in both forms.
fn repeats(part: &Part, text: &str) -> bool {
    let is_value = part.content_type == "application/json" && part.name.is_none();
    let content = part.content.as_deref().filter(|_| is_value);
    let value = content.and_then(|content| serde_json::from_str::<Value>(content).ok());
    let members = value.as_ref().and_then(Value::as_object);
    members.is_some_and(|members| members.len() == 1 && members.values().any(|it| it == text))
}

fn part_of(part: wire::MessagePart) -> Part {
    Part {
        content_type: part.content_type,
        content: part.content,
        content_encoding: match part.content_encoding {
            Encoding::Plain => None,
            Encoding::Base64 => Some(ContentEncoding::Base64),
        },
        content_url: part.content_url,
        blob: None,
        name: part.name,
        metadata: part.metadata.map(metadata),
        extra: None,
    }
}

fn metadata(metadata: Metadata) -> PartMetadata {
    match metadata {
        Metadata::Citation(citation) => {
            let CitationMetadata { start_index, end_index, url, title, description, .. } = citation;
            PartMetadata::Citation(Citation { start_index, end_index, url, title, description })
        }
        Metadata::Trajectory(step) => {
            let TrajectoryMetadata { message, tool_name, tool_input, tool_output, .. } = step;
            PartMetadata::Trajectory(Trajectory { message, tool_name, tool_input, tool_output })
        }
        Metadata::Other(value) => PartMetadata::Other(OtherMetadata { value }),
    }
}

/// Reads a generic update: a plan or an agent's own update as Trilogue servers write them, otherwise the whole object.
fn update(generic: Json) -> EventBody {
    let members = generic.to_value();
    let kind = members.get("kind").and_then(Value::as_str);
    if kind == Some("plan")
        && let Ok(plan) = generic.read::<StatePlan>()
    {
        return EventBody::StatePlan(plan);
    }
    if kind == Some("plan_updated")
        && let Ok(plan) = generic.read::<StatePlanUpdated>()
    {
        return EventBody::StatePlanUpdated(plan);
    }
    if kind == Some("plan_removed")
        && let Ok(plan) = generic.read::<StatePlanRemoved>()
    {
        return EventBody::StatePlanRemoved(plan);
    }
    if kind == Some("subagent")
        && let Some(data) = members.get("data")
        && let Ok(subagent) = Json::from_value(data).read::<StateSubagent>()
    {
        return EventBody::StateSubagent(subagent);
    }
    match (kind, members.get("data")) {
        (Some(kind), Some(data)) => EventBody::StateCustom(StateCustom {
            kind: kind.to_owned(),
            data: Json::from_value(data),
        }),
        _ => EventBody::StateCustom(StateCustom { kind: "update".to_owned(), data: generic }),
    }
}

fn outcome(run: Run) -> Outcome {
    let status = match run.status {
        wire::RunStatus::Completed => RunStatus::Completed,
        wire::RunStatus::Cancelled => RunStatus::Cancelled,
        _ => RunStatus::Failed,
    };
    let Some(error) = run.error else { return Outcome { status, reason: None, error: None } };
    let data = error.data.clone();
    let error = ClientError::Refused(Box::new(Refusal::new(None, error)));
    let code = error.code().unwrap_or_default().to_owned();
    if status == RunStatus::Failed && code == trilogue_domain::Code::AwaitTimeout.as_str() {
        return Outcome { status: RunStatus::TimedOut, reason: Some(code), error: None };
    }
    let (message, transient) = (error.to_string(), error.is_transient());
    let error = RunError { code, message, transient, data };
    Outcome { status, reason: None, error: Some(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: &str) -> Option<EventBody> {
        let event = wire::read(json.as_bytes(), wire::Rules::Lenient).unwrap();
        let events = EventTranslator::default().events(event).unwrap();
        events.into_iter().next().map(|event| event.body)
    }

    fn request(parts: &str) -> AwaitRequest {
        let json =
            format!(r#"{{"type":"message","message":{{"role":"agent/x","parts":[{parts}]}}}}"#);
        wire::read(json.as_bytes(), wire::Rules::Lenient).unwrap()
    }

    fn outcome_of(status: &str, error: &str) -> Outcome {
        let json = format!(
            r#"{{"type":"run.{status}","run":{{"run_id":"2a4496e1-b907-4b65-9cec-2ae5658024fe","agent_name":"x","session_id":null,"status":"{status}","await_request":null,"output":[],"error":{error},"created_at":"2026-11-20T23:50:09Z","finished_at":null}}}}"#
        );
        match event(&json) {
            Some(EventBody::RunEnded(ended)) => ended.outcome,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_have_the_agents_role_whatever_the_server_says() {
        let created =
            r#"{"type":"message.created","message":{"role":"user","parts":[{"content":"x"}]}}"#;
        let Some(EventBody::MessageStarted(started)) = event(created) else { panic!() };
        assert_eq!(started.role, "agent");
    }

    #[test]
    fn a_value_that_repeats_the_text_before_it_is_not_rendered() {
        let mut translation = EventTranslator::default();
        let mut shows = |part: &str| {
            let json = format!(r#"{{"type":"message.part","part":{part}}}"#);
            let event = wire::read(json.as_bytes(), wire::Rules::Lenient).unwrap();
            let events = translation.events(event).unwrap();
            events.iter().any(|event| !matches!(event.body, EventBody::MessageStarted(_)))
        };
        let text = r#"{"content":"Hi"}"#;
        let value = |content: &str| {
            let content = Value::from(content);
            format!(r#"{{"content_type":"application/json","content":{content}}}"#)
        };
        assert!(shows(text) && !shows(&value(r#"{"message":"Hi"}"#)));
        assert!(shows(&value(r#"{"message":"Hi"}"#)), "no text came just before");
        assert!(shows(r#"{"content":"H"}"#) && shows(r#"{"content":"i"}"#));
        assert!(!shows(&value(r#"{"message":"Hi"}"#)), "the text came in pieces");
        assert!(shows(text) && shows(&value(r#"{"message":"Ho"}"#)));
        assert!(shows(text) && shows(&value(r#"{"message":"Hi","more":1}"#)));
        assert!(shows(text) && shows(&value("7")));
    }

    #[test]
    fn a_described_question_keeps_its_kind_and_any_other_takes_a_message() {
        let ours = interrupt(request(
            r#"{"content":"Send it?","x_trilogue":{"interrupt_id":"i-7"}},{"content_type":"application/json","content":"{\"interrupt_id\":\"i-7\",\"kind\":\"permission\",\"payload\":{\"to\":\"ada\"},\"options\":[{\"id\":\"allow\",\"name\":\"Allow\",\"effect\":\"allow\",\"always\":false}],\"schema\":null}"}"#,
        ));
        assert_eq!((ours.id.as_str(), ours.kind.as_str()), ("i-7", "permission"));
        assert_eq!(ours.prompt.len(), 1);
        assert_eq!(ours.options[0].id, "allow");
        assert_eq!((ours.payload.as_str(), ours.schema), (r#"{"to":"ada"}"#, None));

        let other = interrupt(request(r#"{"content_type":"application/json","content":"{}"}"#));
        assert_eq!((other.id.as_str(), other.kind.as_str()), ("", "message"));
        assert_eq!(other.prompt.len(), 1);
        assert_eq!(interrupt(request("")).prompt, []);
    }

    #[test]
    fn plans_and_custom_updates_are_recognised() {
        let plan = r#"{"type":"generic","generic":{"kind":"plan","entries":[{"content":"a","status":"pending"}]}}"#;
        assert!(matches!(event(plan), Some(EventBody::StatePlan(plan)) if plan.entries.len() == 1));
        for (generic, kind, data) in [
            (r#"{"kind":"progress","data":{"done":1}}"#, "progress", r#"{"done":1}"#),
            (r#"{"kind":"plan","entries":7}"#, "update", r#"{"kind":"plan","entries":7}"#),
            (r#"{"a":1}"#, "update", r#"{"a":1}"#),
        ] {
            let body = event(&format!(r#"{{"type":"generic","generic":{generic}}}"#));
            let Some(EventBody::StateCustom(update)) = body else { panic!("{body:?}") };
            assert_eq!((update.kind.as_str(), update.data.as_str()), (kind, data));
        }
    }

    #[test]
    fn an_end_has_its_reason() {
        assert_eq!(outcome_of("completed", "null").status, RunStatus::Completed);
        assert_eq!(outcome_of("cancelled", "null").status, RunStatus::Cancelled);
        let failed = outcome_of(
            "failed",
            r#"{"code":"server_error","message":"no","data":{"reason":"mail.lost","transient":true}}"#,
        );
        let error = failed.error.unwrap();
        assert_eq!((error.code.as_str(), error.transient), ("mail.lost", true));
        let plain = outcome_of("failed", r#"{"code":"invalid_input","message":"no","data":null}"#);
        assert_eq!(plain.error.unwrap().code, "invalid_input");
        let silent = outcome_of(
            "failed",
            r#"{"code":"server_error","message":"no","data":{"reason":"await_timeout"}}"#,
        );
        assert_eq!(silent.status, RunStatus::TimedOut);
    }
}
