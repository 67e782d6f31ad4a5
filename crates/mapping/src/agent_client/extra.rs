//! What a prompt carries beyond the members that mean something here: kept with its message, for an agent of this protocol.

use trilogue_domain::{Json, Message};
use trilogue_wire::agent_client::splice::{self, members};

use super::{PART_EXTENSION, PROTOCOL};

/// The member of what is kept in a part that holds it.
const PROMPT: &str = "prompt";
/// What means something here, and `_meta`, which goes to nobody. The other spellings are those that some agents read as the same.
const KNOWN: [&str; 6] = ["sessionId", "session_id", "prompt", "messageId", "message_id", "_meta"];

/// The members at the root of a prompt's params that mean nothing here. `None` where there are none, or they are nested too deep to keep.
#[must_use]
pub fn extra_of_prompt(params: &str) -> Option<Json> {
    let mut extra = String::new();
    for member in members(params).filter(|member| !KNOWN.contains(&&*member.key)) {
        extra.push(if extra.is_empty() { '{' } else { ',' });
        extra.push_str(&serde_json::to_string(&*member.key).ok()?);
        extra.push(':');
        extra.push_str(member.value);
    }
    if extra.is_empty() {
        return None;
    }
    extra.push('}');
    Json::parse(extra).ok()
}

/// Keeps in a message what its prompt carried beyond it. A message without parts keeps nothing.
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
    if let Some(kept) = kept.and_then(|kept| Json::parse(kept).ok()) {
        part.extra = Some(kept);
    }
}

/// What the prompt that a message came as carried beyond it: members to be added to the prompt that an agent gets, whatever way the message came.
#[must_use]
pub fn extra_of_message(message: &Message) -> Option<Json> {
    let kept = message.parts.first()?.extra.as_ref()?;
    // Clients of other protocols write `extra` themselves.
    extra_of_prompt(splice::get(kept.as_str(), &[PART_EXTENSION, PROMPT])?)
}
