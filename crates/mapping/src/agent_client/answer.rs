//! Answers to a hosted agent's requests: consent is never guessed, and invalid answers are refused.

use trilogue_domain::error::Violation;
use trilogue_domain::{Answer, Interrupt, InterruptKind, Json, Message};
use trilogue_wire::agent_client::{ElicitationValue, Map, Rules, read_checked};

use super::client_question::is_elicitation;
use crate::communication::{is_words, parse_consent};
use crate::shape::Properties;

/// The answer that declines.
pub(super) const NO: &str = "false";
/// The answer that an address was visited.
pub(super) const YES: &str = "true";
/// The answer that leaves a question unanswered.
pub(super) const NOTHING: &str = "null";

/// Whether an interrupt only asks for consent: to visit an address, or by a form without fields.
pub(super) fn is_consent(interrupt: &Interrupt) -> bool {
    match interrupt.kind {
        InterruptKind::Url => true,
        InterruptKind::Form if is_elicitation(interrupt) => {
            let schema = interrupt.schema.as_ref().map(Json::to_value).unwrap_or_default();
            Properties::of(&schema).is_none_or(|fields| fields.all.is_empty())
        }
        _ => false,
    }
}

/// Converts a prompt to the answer to a request for consent: only a plain word for yes, without attachment, consents. An empty prompt leaves the request unanswered, and any other text declines.
pub(super) fn consent(interrupt: &Interrupt, message: &Message) -> Answer {
    let is_words = message.parts.iter().all(is_words);
    let words = message.text();
    let answer = match parse_consent(&words) {
        Some(true) if is_words && interrupt.kind == InterruptKind::Url => YES,
        Some(true) if is_words => "{}",
        _ if is_words && words.trim().is_empty() && is_elicitation(interrupt) => NOTHING,
        _ => NO,
    };
    Json::parse(answer).map_or_else(|_| Answer::Json(Json::null()), Answer::Json)
}

/// Returns the values of a hosted agent's form, to be checked against its compiled schema. `None` for other interrupts, and if the answer declines or leaves the form unanswered.
/// Fails if the agent could not get the answer without a change of meaning.
pub fn form_values<'a>(
    interrupt: &Interrupt,
    answer: &'a Answer,
) -> Result<Option<&'a Json>, Violation> {
    let Answer::Json(json) = answer else { return Ok(None) };
    if !is_elicitation(interrupt) || matches!(json.as_str(), NO | NOTHING) {
        return Ok(None);
    }
    if interrupt.kind == InterruptKind::Url {
        return match json.as_str() {
            YES => Ok(None),
            _ => Err(Violation {
                path: String::new(),
                message: "must be true, or false to decline".to_owned(),
            }),
        };
    }
    match read_checked::<Map<ElicitationValue>>(json.as_str().trim(), Rules::Lenient) {
        Ok(_) => Ok(Some(json)),
        Err(why) => Err(Violation { path: why.path, message: why.message }),
    }
}
