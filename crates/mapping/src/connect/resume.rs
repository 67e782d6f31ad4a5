use std::collections::BTreeMap;

use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentCard, Answer, Code, Error, Interrupt, InterruptId, InterruptKind, Json, Part, Timestamp,
    Violation,
};
use trilogue_wire::agent_connect as wire;

use super::interrupt::answer_properties;
use super::message::{NO_BASE64, invalid_base64_in, read_message};
use crate::native::read_json;

/// Returns the answer in a body to this interrupt, and the interrupt that it names.
///
/// Three forms are accepted, in this order: an object of `interrupt_type` and `resume_payload`, optionally with `interrupt_id`; an object whose only member has the name of the interrupt's type, if that is not a property of the answer; the answer itself.
/// A permission accepts `{"option_id": …}` or the id as a string; a question for a message accepts a string, `{"message": …}` or a message of the protocol.
/// Errors: `answer_invalid` if the type is another one or the form does not fit; `invalid_id`, `json_too_deep`.
pub fn resume(
    card: &AgentCard,
    interrupt: &Interrupt,
    body: &Json,
) -> Result<(Option<InterruptId>, Answer)> {
    let (named, payload) = unwrap_answer(card, interrupt, body)?;
    let answer = match interrupt.kind {
        InterruptKind::Permission => Answer::Option(option(interrupt, &payload)?),
        InterruptKind::Message => message_answer(interrupt, payload)?,
        InterruptKind::Form | InterruptKind::Url | InterruptKind::Custom(_) => {
            Answer::Json(payload)
        }
    };
    Ok((named, answer))
}

fn unwrap_answer(
    card: &AgentCard,
    interrupt: &Interrupt,
    body: &Json,
) -> Result<(Option<InterruptId>, Json)> {
    let kind = interrupt.kind.as_str();
    let Some(members) = Members::of(body) else { return Ok((None, body.clone())) };
    if members.is_named_form() {
        let asked = members.text("interrupt_type").unwrap_or_default();
        if asked != kind {
            let shown: String = asked.chars().take(64).flat_map(char::escape_debug).collect();
            return Err(invalid_answer(
                interrupt,
                "/interrupt_type",
                &format!("is '{shown}', but the run waits for an answer to '{kind}'"),
            ));
        }
        let named = members.text("interrupt_id").map(|id| InterruptId::parse(&id)).transpose()?;
        let payload = members.0.get("resume_payload").cloned();
        return Ok((named, read_json(payload.unwrap_or_else(wire::Json::null))?));
    }
    // A question for a message accepts `{"message": …}` as its answer.
    if let Some(payload) = members.only(kind)
        && interrupt.kind != InterruptKind::Message
    {
        let declared = card.interrupts.iter().find(|declared| declared.kind == kind);
        let schema = interrupt.schema.as_ref().or(declared.map(|it| &it.answer_schema));
        if !answer_properties(schema).iter().any(|property| property == kind) {
            return Ok((None, read_json(payload.clone())?));
        }
    }
    Ok((None, body.clone()))
}

fn option(interrupt: &Interrupt, payload: &Json) -> Result<String> {
    let value = payload.to_value();
    let id = value.as_str().or_else(|| value.get("option_id").and_then(Value::as_str));
    match id {
        Some(id) => Ok(id.to_owned()),
        None => {
            let ids: Vec<_> = interrupt.options.iter().map(|option| option.id.as_str()).collect();
            Err(invalid_answer(interrupt, "", "names no option")
                .hint(format!("send {{\"option_id\": …}} with one of: {}", ids.join(", "))))
        }
    }
}

/// Returns a message's parts. Other JSON is an answer only if the interrupt has a schema.
fn message_answer(interrupt: &Interrupt, payload: Json) -> Result<Answer> {
    let mut value = payload.to_value();
    if let Value::Object(members) = &mut value
        && members.len() == 1
        && let Some(inner) = members.remove("message")
    {
        value = inner;
    }
    match value {
        Value::String(text) => return Ok(Answer::Message(vec![Part::text(text)])),
        Value::Object(mut members) if members.contains_key("content") => {
            members.entry("role").or_insert_with(|| "user".into());
            if let Ok(message) = serde_json::from_value::<wire::Message>(Value::Object(members)) {
                if let Some(content) = invalid_base64_in(&message) {
                    return Err(invalid_answer(interrupt, &content, NO_BASE64));
                }
                let read = read_message(message, Timestamp::default(), "")?;
                return Ok(Answer::Message(read.parts));
            }
        }
        _ => {}
    }
    if interrupt.schema.is_some() {
        return Ok(Answer::Json(payload));
    }
    Err(invalid_answer(interrupt, "", "is not a message")
        .hint("send {\"message\": \"…\"}, a string, or a message with 'content'"))
}

fn invalid_answer(interrupt: &Interrupt, path: &str, why: &str) -> Error {
    let subject = if path.is_empty() { "the answer" } else { path };
    let message = format!("{subject} {why}; the interrupt is '{}'", interrupt.id);
    Error::new(Code::AnswerInvalid, message)
        .violations(vec![Violation { path: path.to_owned(), message: why.to_owned() }])
}

struct Members(BTreeMap<String, wire::Json>);

// === impl Members ===

impl Members {
    fn of(body: &Json) -> Option<Self> {
        serde_json::from_str(body.as_str()).ok().map(Self)
    }

    /// Whether these are `interrupt_type`, `resume_payload` and optionally `interrupt_id`.
    fn is_named_form(&self) -> bool {
        let known = |key: &String| {
            matches!(key.as_str(), "interrupt_type" | "resume_payload" | "interrupt_id")
        };
        self.0.contains_key("resume_payload")
            && self.text("interrupt_type").is_some()
            && self.0.keys().all(known)
    }

    /// Returns the only member, if it has this name.
    fn only(&self, name: &str) -> Option<&wire::Json> {
        self.0.get(name).filter(|_| self.0.len() == 1)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.0.get(key).and_then(|value| value.read().ok())
    }
}
