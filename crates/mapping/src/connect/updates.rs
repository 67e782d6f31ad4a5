//! An agent's custom updates, for the `custom` stream.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use trilogue_domain::event::{Event, InterruptEvent, Original, RunEvent, StateEvent};
use trilogue_domain::{AgentCard, Body, Json, RunId, ThreadId};
use trilogue_wire::agent_client::splice;

use super::EXTENSION;
use super::run::member;
use crate::agent_client::{carried_update, update_of};
use crate::native;

/// One run's updates. An agent with a schema for them streams only those; any other streams its events in the form of our own face, under `kind`.
#[derive(Clone, Debug)]
pub struct Updates {
    run_id: Arc<str>,
    thread: ThreadId,
    declares: bool,
    /// Whether the agent has started: earlier messages are input.
    has_started: bool,
}

// === impl Updates ===

impl Updates {
    pub fn new(card: &AgentCard, run: &RunId, thread: &ThreadId) -> Self {
        Self {
            run_id: Arc::from(run.as_str()),
            thread: thread.clone(),
            declares: card.update_schema.is_some(),
            has_started: false,
        }
    }

    /// Returns the `custom` event for the next event of the run, if there is one.
    pub fn push(&mut self, event: &Event) -> Option<Bytes> {
        match &event.body {
            Body::Run(RunEvent::Started) => {
                self.has_started = true;
                None
            }
            Body::State(StateEvent::Custom { kind, data }) => Some(self.custom(kind, data)),
            _ if self.declares || !self.has_started => None,
            Body::Opaque => Some(self.render(opaque(event.original.as_ref()).as_bytes(), None)),
            Body::Message(_)
            | Body::Tool(_)
            | Body::State(
                StateEvent::Plan(_)
                | StateEvent::PlanUpdated { .. }
                | StateEvent::PlanRemoved { .. }
                | StateEvent::Subagent(_),
            )
            | Body::Interrupt(InterruptEvent::RuleApplied { .. }) => {
                let update = self.render_event(event)?;
                Some(self.render(update.as_bytes(), None))
            }
            Body::Run(_) | Body::Interrupt(_) | Body::State(_) | Body::Thread(_) => None,
        }
    }

    /// Renders an update unchanged; one that is not an object is under `data`.
    fn custom(&self, kind: &str, data: &Json) -> Bytes {
        if data.is_object() {
            return self.render(data.as_bytes(), Some(kind));
        }
        let mut update = Vec::new();
        member(&mut update, "kind", Value::from(kind).to_string().as_bytes());
        member(&mut update, "data", data.as_bytes());
        update.push(b'}');
        self.render(&update, Some(kind))
    }

    /// Renders an event in the form of our own face, with its kind as `type`. Adds the original of a tool call or a plan, which contains more.
    fn render_event(&self, event: &Event) -> Option<String> {
        let mut update =
            serde_json::to_value(native::event::body(&event.body, &self.thread)).ok()?;
        let members = update.as_object_mut()?;
        let kind = members.remove("type")?;
        members.insert("kind".to_owned(), kind);
        let update = update.to_string();
        let original = event.original.as_ref().and_then(update_of);
        Some(match original.filter(|_| matches!(event.body, Body::Tool(_) | Body::State(_))) {
            Some(original) => splice::set(&update, &[EXTENSION], &carried_update(original))?,
            None => update,
        })
    }

    fn render(&self, update: &[u8], kind: Option<&str>) -> Bytes {
        let mut out = Vec::with_capacity(update.len() + 128);
        member(&mut out, "type", b"\"custom\"");
        member(&mut out, "run_id", Value::from(&*self.run_id).to_string().as_bytes());
        member(&mut out, "status", b"\"pending\"");
        member(&mut out, "update", update);
        if let Some(kind) = kind {
            member(&mut out, "kind", Value::from(kind).to_string().as_bytes());
        }
        out.push(b'}');
        Bytes::from(out)
    }
}

fn opaque(original: Option<&Original>) -> String {
    let Some(original) = original else { return json!({ "kind": "opaque" }).to_string() };
    let value = serde_json::from_slice::<Value>(&original.bytes).unwrap_or(Value::Null);
    json!({
        "kind": "opaque",
        "dialect": &*original.dialect,
        "version": original.version,
        "original": value,
    })
    .to_string()
}
