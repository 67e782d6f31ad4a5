//! The documents' rules for agents' output, for mounts that enforce them.

use std::fmt::Display;

use trilogue_domain::error::Result;
use trilogue_domain::event::{InterruptEvent, MessageEvent};
use trilogue_domain::port::CheckOutput;
use trilogue_domain::{Body, Code, Content, Error, Part};
use trilogue_wire::agent_communication::{Event, Message, MessagePart, Rules};

use super::part::is_undecoded;

pub const RULES: &str = "communication.strict";

/// Checks agents' output against the documents. A part with only metadata is shown with empty content and passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommunicationRules;

// === impl CommunicationRules ===

impl CheckOutput for CommunicationRules {
    fn check(&self, rules: &str, body: &Body) -> Result<()> {
        if rules != RULES {
            return Err(Error::new(Code::Internal, format!("unknown rules '{rules}'")));
        }
        match body {
            Body::Message(MessageEvent::Part { part, .. }) => check(part, "the part"),
            Body::Interrupt(InterruptEvent::Raised(interrupt)) => {
                let mut parts = interrupt.prompt.iter().enumerate();
                parts.try_for_each(|(place, part)| check(part, &format!("prompt[{place}]")))
            }
            _ => Ok(()),
        }
    }
}

/// Checks what is lost when an event of an agent's server is read into the vocabulary; the rest is checked there.
pub(super) fn check_event(event: &Event) -> Result<()> {
    match event {
        Event::MessageCreated { message } | Event::MessageCompleted { message } => {
            check_message(message)
        }
        Event::MessagePart { part } => check_wire_part(part),
        Event::RunAwaiting { run }
        | Event::RunCompleted { run }
        | Event::RunFailed { run }
        | Event::RunCancelled { run } => {
            let question = run.await_request.iter().map(|request| &request.message);
            run.output.iter().chain(question).try_for_each(check_message)
        }
        Event::RunCreated { .. }
        | Event::RunInProgress { .. }
        | Event::Generic { .. }
        | Event::Error { .. } => Ok(()),
    }
}

/// As [`check_event`], for a message: whether its members were stated, and which the protocol does not have.
fn check_message(message: &Message) -> Result<()> {
    if message.is_role_missing {
        return Err(invalid("the message", "role is missing; every message has a role"));
    }
    if let Some((name, _)) = message.extra.iter().next() {
        // The sender's name can be of any length, with any characters.
        let name: String = name.chars().take(64).collect();
        let why = format!("{} is not a member of a message of the protocol", name.escape_debug());
        return Err(invalid("the message", why));
    }
    message.parts.iter().try_for_each(check_wire_part)
}

/// As [`check_message`], for a part by itself.
fn check_wire_part(part: &MessagePart) -> Result<()> {
    if part.is_type_missing {
        return Err(invalid("the part", "content_type is missing; every part has a MIME type"));
    }
    Ok(())
}

fn invalid(what: &str, why: impl Display) -> Error {
    let message = format!("{what} of the agent breaks the mount's strict rules: {why}");
    Error::new(Code::OutputInvalid, message)
        .hint("mend the agent, or reach it through a mount without `strict = true`")
}

fn check(part: &Part, what: &str) -> Result<()> {
    let invalid = |why: String| invalid(what, why);
    if matches!(part.content, Content::Empty) {
        if part.name.is_some() {
            return Err(invalid("an artifact has no content".to_owned()));
        }
        if part.metadata.is_none() {
            return Err(invalid("it has neither content nor an address of it".to_owned()));
        }
    }
    if is_undecoded(part) {
        return Err(invalid("content is not valid base64".to_owned()));
    }
    // These rules depend only on the content's type and address.
    let (content, content_url) = match &part.content {
        Content::Url(url) => (None, Some(url.to_string())),
        _ => (Some(String::new()), None),
    };
    let wire = MessagePart {
        content_type: part.content_type.to_string(),
        content,
        content_url,
        ..MessagePart::default()
    };
    wire.check(Rules::Strict).map_err(|violation| invalid(violation.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trilogue_domain::{Citation, Json, MessageId, PartMetadata};

    use super::*;

    fn checked(part: Part) -> Result<(), Code> {
        let body = Body::Message(MessageEvent::Part { message: MessageId::generate(), part });
        CommunicationRules.check(RULES, &body).map_err(|error| error.code())
    }

    #[test]
    fn what_agents_say_is_held_to_the_rules_for_parts() {
        let citation = || PartMetadata::Citation(Citation::default());
        for part in [
            Part::text(""),
            Part::bytes("image/png", vec![1]),
            Part::url("image/png", "https://example.com/a.png"),
            Part::annotation(citation()),
        ] {
            assert_eq!(checked(part.clone()), Ok(()), "{part:?}");
        }
        for part in [
            Part::new("text/plain", Content::Empty),
            Part::annotation(citation()).with_name("a"),
            Part::new("zzz", Content::Text(Arc::from("x"))),
            Part::new("", Content::Text(Arc::from("x"))),
            Part::url("image/png", "a.png"),
        ] {
            assert_eq!(checked(part.clone()), Err(Code::OutputInvalid), "{part:?}");
        }
    }

    #[test]
    fn content_that_is_called_base64_is_base64() {
        let extra = r#"{"x_trilogue":{"content_encoding":"base64"}}"#;
        let extra = Json::parse(extra).unwrap();
        let brought = Part { extra: Some(extra), ..Part::text("%%%") };
        assert_eq!(checked(brought), Err(Code::OutputInvalid));
    }

    #[test]
    fn rules_of_another_name_are_no_rules() {
        assert!(CommunicationRules.check("other", &Body::Opaque).is_err());
    }
}
