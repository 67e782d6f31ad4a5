use super::metadata::json_object;
use super::object::object;
use super::part::check;
use super::time::when;
use super::{Json, MessagePart, OptionalTime, Role};
use crate::json::member::{defaulted, required};
use crate::json::{Path, Rules, Style, Violation, scan};

object! {
    /// An ordered, multi-modal message.
    pub open struct Message: Default {
        role: Role = stated_role;
        /// In the order in which they are shown; may be empty.
        parts: Vec<MessagePart> = required;
        #[serde(skip_serializing_if = "OptionalTime::is_absent")]
        created_at: OptionalTime = when;
        /// `null` while the message grows.
        #[serde(skip_serializing_if = "OptionalTime::is_absent")]
        completed_at: OptionalTime = when;
        /// The message's id, a Trilogue extension. Other implementations ignore it, like every unknown member of a message.
        #[serde(skip_serializing_if = "Option::is_none")]
        extension as "x_trilogue": Option<Json> = json_object;
    } flags {
        /// Whether a peer sent no role.
        is_role_missing;
    }
    finish hold;
}

// === impl Message ===

impl Message {
    /// Returns a user's message. The server that receives it sets its times.
    pub fn user(parts: Vec<MessagePart>) -> Self {
        Self { parts, ..Self::default() }
    }

    pub fn text(text: &str) -> Self {
        Self::user(vec![MessagePart::text(text)])
    }

    /// Returns the joined content of its `text/plain` parts.
    pub fn plain_text(&self) -> String {
        self.parts.iter().filter_map(MessagePart::plain_text).collect()
    }

    pub fn check(&self, rules: Rules) -> Result<(), Violation> {
        let at = Path::root(rules, Style::Exact);
        if let Role::Named(name) = &self.role
            && !Role::is_name(name)
        {
            return Role::parse_at(&self.role.to_string(), &at.key("role")).map(drop);
        }
        if at.is_strict() {
            check_members(self, &at)?;
        }
        let parts = at.key("parts");
        self.parts.iter().enumerate().try_for_each(|(place, part)| check(part, &parts.index(place)))
    }
}

impl From<MessagePart> for Message {
    fn from(part: MessagePart) -> Self {
        Self::user(vec![part])
    }
}

/// Checks a message that a peer sent.
fn hold(mut message: Message, json: &str, at: &Path<'_>) -> Result<Message, Violation> {
    message.is_role_missing =
        scan::member(json, "role").is_none_or(|member| member.value == "null");
    if at.is_strict() {
        check_members(&message, at)?;
    }
    Ok(message)
}

/// Strict rules refuse members of a message that a receiver would ignore.
fn check_members(message: &Message, at: &Path<'_>) -> Result<(), Violation> {
    match message.extra.iter().next() {
        None => Ok(()),
        Some((name, _)) => {
            Err(at.key(name).violation("is not a member of a message of the protocol"))
        }
    }
}

/// Reads a peer's message without a role as a user's.
fn stated_role(json: Option<&str>, at: &Path<'_>) -> Result<Role, Violation> {
    if at.is_lenient() {
        return defaulted(json, at);
    }
    if json.is_none() {
        return Err(at.violation("is missing; every message has a role"));
    }
    required(json, at)
}
