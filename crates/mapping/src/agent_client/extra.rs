//! Additional members of prompts and answers, kept for agents of this protocol.

use trilogue_domain::{Interrupt, InterruptKind, Json, Message, Resolution};
use trilogue_wire::agent_client::splice::{self, members};
use trilogue_wire::agent_client::{Extra, Json as WireJson, without_parameters};

use super::client_question::{is_elicitation, is_request};
use super::{PART_EXTENSION, PROTOCOL};

/// The member of a part's `extra` that contains them.
const PROMPT: &str = "prompt";
/// The known members of a prompt, with the alternative spellings of some agents.
const KNOWN: [&str; 5] = ["sessionId", "session_id", "prompt", "messageId", "message_id"];
/// The known members of a permission's answer; the first contains the choice.
const KNOWN_OF_PERMISSION: [&str; 2] = [OUTCOME, "_meta"];
/// The known members of the choice.
const KNOWN_OF_OUTCOME: [&str; 4] = [OUTCOME, "optionId", "option_id", "_meta"];
/// The known members of an elicitation's answer.
const KNOWN_OF_ELICITATION: [&str; 3] = ["action", "content", "_meta"];
const OUTCOME: &str = "outcome";

/// Returns the unknown members of a prompt, and its `_meta` without names of parameters. `None` if it has no such members, or they are nested too deep to keep.
pub fn extra_of_prompt(params: &str) -> Option<Json> {
    Json::parse_mended(unknown_members(&without_parameters(params), &KNOWN, None)?).ok()
}

/// Returns the additional members of a permission's answer, if a hosted agent asked with a request: at its root, and in `outcome`. `None` as for [`extra_of_prompt`].
pub fn extra_of_permission(interrupt: &Interrupt, result: &str) -> Option<Json> {
    if interrupt.kind != InterruptKind::Permission || !is_request(interrupt) {
        return None;
    }
    let chosen = splice::get(result, &[OUTCOME]).unwrap_or_default();
    let chosen = unknown_members(chosen, &KNOWN_OF_OUTCOME, None);
    let chosen = chosen.as_deref().map(|chosen| (OUTCOME, chosen));
    Json::parse_mended(unknown_members(result, &KNOWN_OF_PERMISSION, chosen)?).ok()
}

/// Returns the additional members of an elicitation's answer, if a hosted agent asked in the same form. `None` as for [`extra_of_prompt`].
pub fn extra_of_elicitation(interrupt: &Interrupt, result: &str) -> Option<Json> {
    if !is_elicitation(interrupt) {
        return None;
    }
    Json::parse_mended(unknown_members(result, &KNOWN_OF_ELICITATION, None)?).ok()
}

/// Returns the additional members of an answer: for its root, and for its `outcome`.
pub(super) fn extra_of_answer(resolution: &Resolution) -> (Extra, Extra) {
    let Resolution::Answered { extra: Some(extra), .. } = resolution else {
        return (Extra::new(), Extra::new());
    };
    let mut root = extra_of(extra.as_str());
    root.0.retain(|(name, _)| name != OUTCOME);
    (root, extra_of(splice::get(extra.as_str(), &[OUTCOME]).unwrap_or_default()))
}

fn extra_of(object: &str) -> Extra {
    let mut extra = Extra::new();
    for member in members(object) {
        if let Ok(value) = WireJson::parse(member.value) {
            extra.set(member.key.into_owned(), value);
        }
    }
    extra
}

/// Returns the members of an object except these, plus one more. `None` if no member remains.
fn unknown_members(object: &str, known: &[&str], more: Option<(&str, &str)>) -> Option<String> {
    let mut kept = String::new();
    let unknown = members(object).filter(|member| !known.contains(&&*member.key));
    let mut keep = |key: &str, value: &str| {
        kept.push(if kept.is_empty() { '{' } else { ',' });
        kept.push_str(&serde_json::Value::from(key).to_string());
        kept.push(':');
        kept.push_str(value);
    };
    unknown.for_each(|member| keep(&member.key, member.value));
    more.into_iter().for_each(|(key, value)| keep(key, value));
    if kept.is_empty() {
        return None;
    }
    kept.push('}');
    Some(kept)
}

/// Keeps a prompt's additional members in its message. A message without parts keeps none.
pub fn keep_extra(message: &mut Message, extra: &Json) {
    let Some(part) = message.parts.first_mut() else { return };
    let before = part.extra.as_ref().map_or("{}", Json::as_str);
    let kept = match splice::get(before, &[PART_EXTENSION]) {
        Some(_) => splice::set(before, &[PART_EXTENSION, PROMPT], extra.as_str()),
        None => {
            let ours = format!("{{\"protocol\":\"{PROTOCOL}\",\"{PROMPT}\":{}}}", extra.as_str());
            splice::set(before, &[PART_EXTENSION], &ours)
        }
    };
    if let Some(kept) = kept.and_then(|kept| Json::parse_mended(kept).ok()) {
        part.extra = Some(kept);
    }
}

/// Returns the additional members of the prompt that a message came as: an agent's prompt gets them from every source of the message.
pub fn extra_of_message(message: &Message) -> Option<Json> {
    let kept = message.parts.first()?.extra.as_ref()?;
    // Clients of other protocols can write `extra` themselves.
    extra_of_prompt(splice::get(kept.as_str(), &[PART_EXTENSION, PROMPT])?)
}
