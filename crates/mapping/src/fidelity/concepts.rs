//! Finds the table's concepts in an event.

use trilogue_domain::content::{Content, Part, PartMetadata};
use trilogue_domain::event::{
    Body, Event, InterruptEvent, MessageEvent, RunEvent, StateEvent, ThreadEvent,
};
use trilogue_domain::{InterruptKind, Outcome};
use trilogue_wire::native::FidelityRow;

use super::{PROTOCOLS, TABLE, protocol_row};

const END: &[&str] = &["end"];
const OUTPUT: &[&str] = &["input or output by schema"];

/// Returns a protocol's support of the concepts in an event, in the order of the table; empty for an unknown protocol.
pub fn rows_of(event: &Event, protocol: &str) -> Vec<FidelityRow> {
    let Some(column) = PROTOCOLS.iter().position(|(name, _)| *name == protocol) else {
        return Vec::new();
    };
    let concepts = concepts(event);
    let rows = TABLE.iter().filter(|row| concepts.contains(&row.concept));
    rows.map(|row| protocol_row(protocol, row, column)).collect()
}

fn concepts(event: &Event) -> Vec<&'static str> {
    let mut concepts = match &event.body {
        Body::Run(event) => of_run(event).to_vec(),
        Body::Message(event) => of_message(event),
        Body::Tool(_) => vec!["tool call"],
        Body::Interrupt(InterruptEvent::Raised(interrupt)) => vec![of_interrupt(&interrupt.kind)],
        Body::Interrupt(_) => Vec::new(),
        Body::State(event) => of_state(event).to_vec(),
        Body::Thread(ThreadEvent::HeadMoved { .. }) => vec!["checkpoints"],
        Body::Thread(_) => vec!["conversation"],
        Body::Opaque => vec!["unknown variants"],
    };
    if matches!(event.body, Body::Tool(_)) && event.original.is_some() {
        concepts.push("kind, locations, diffs and terminals of a tool call");
    }
    concepts
}

fn of_run(event: &RunEvent) -> &'static [&'static str] {
    match event {
        RunEvent::Created { .. } => &["one execution", "its id", "settings of a run"],
        RunEvent::Started | RunEvent::Resumed => &["one execution"],
        RunEvent::Cancelling { .. } => &["cancel"],
        RunEvent::Result(_) => OUTPUT,
        RunEvent::Ended(Outcome::Failed(_)) => &["end", "failure"],
        RunEvent::Ended(Outcome::Cancelled { .. }) => &["end", "cancel"],
        RunEvent::Ended(_) => END,
    }
}

fn of_message(event: &MessageEvent) -> Vec<&'static str> {
    match event {
        MessageEvent::Started { .. } => vec!["message id", "several input messages, roles"],
        MessageEvent::Delta { .. } => vec!["text", "streamed text"],
        MessageEvent::Part { part, .. } => of_part(part),
        MessageEvent::Completed { .. } => vec!["message id"],
        MessageEvent::Thought { .. } => vec!["thought"],
    }
}

fn of_part(part: &Part) -> Vec<&'static str> {
    let kind = part.content_type.split('/').next().unwrap_or_default();
    let mut concepts = vec![match (&part.content, kind) {
        (Content::Url(_), _) => "link",
        (_, "image" | "audio") => "image, audio",
        (Content::Text(_) | Content::Empty, _) => "text",
        (Content::Bytes(_) | Content::Blob(_), _) => "embedded resource",
    }];
    if part.name.is_some() {
        concepts.push("named artifact");
    }
    concepts.extend(match &part.metadata {
        Some(PartMetadata::Citation(_)) => Some("citation"),
        Some(PartMetadata::Trajectory(_)) => Some("tool call"),
        Some(PartMetadata::Other(_)) => Some("annotations"),
        None => None,
    });
    concepts
}

fn of_interrupt(kind: &InterruptKind) -> &'static str {
    match kind {
        InterruptKind::Permission => "permission",
        InterruptKind::Form | InterruptKind::Url => "form, url",
        InterruptKind::Message | InterruptKind::Custom(_) => "an agent's own interrupt",
    }
}

fn of_state(event: &StateEvent) -> &'static [&'static str] {
    match event {
        StateEvent::Values(_) => &["state"],
        StateEvent::Output(_) => OUTPUT,
        StateEvent::Plan(_) => &["plan"],
        StateEvent::PlanUpdated { .. } | StateEvent::PlanRemoved { .. } => &["plan by id"],
        StateEvent::Subagent(_) => &["sub-agent"],
        StateEvent::Custom { .. } => &["usage, modes, commands"],
    }
}

#[cfg(test)]
mod tests {
    use trilogue_domain::{Code, Timestamp};

    use super::*;

    /// Lists every concept that an event can contain. A match above without an entry here does not fail, but a misspelt one does.
    #[test]
    fn every_concept_is_in_the_table() {
        let source = include_str!("concepts.rs");
        let (code, _) = source.split_once("#[cfg(test)]").unwrap();
        let named: Vec<_> = code.split('"').skip(1).step_by(2).collect();
        let others = ["image", "audio"];
        for concept in named.iter().filter(|it| !others.contains(it)) {
            assert!(TABLE.iter().any(|row| row.concept == *concept), "{concept}");
        }
        assert!(named.len() > 20, "{named:?}");
    }

    #[test]
    fn an_end_by_cancellation_is_an_end_and_a_cancellation() {
        let outcome = Outcome::Cancelled { reason: Some(Code::RunRolledBack) };
        let event = Event {
            number: 1,
            run_number: 1,
            run: None,
            at: Timestamp::from_micros(0),
            body: Body::Run(RunEvent::Ended(outcome)),
            original: None,
        };
        let rows = rows_of(&event, "client");
        let concepts: Vec<_> = rows.iter().map(|row| row.concept.as_str()).collect();
        assert_eq!(concepts, ["end", "cancel"]);
        assert!(rows_of(&event, "nobody").is_empty());
    }
}
