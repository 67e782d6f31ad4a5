//! The mail composer's descriptor: its input, state, output and interrupt.

use serde_json::{Value, json};

pub(super) const TITLE: &str = "org.agntcy.mailcomposer";
pub(super) const VERSION: &str = "0.0.1";
pub(super) const DESCRIPTION: &str = "This agent is able to collect user intent through a chat interface and compose wonderful emails based on that.";
/// The kind of its interrupt.
pub(super) const APPROVAL: &str = "mail_send_approval";
pub(super) const HOMEPAGE: &str =
    "https://github.com/agntcy/acp-spec/blob/main/docs/sample_acp_descriptors/mailcomposer.json";

/// Input and output: one message.
pub(super) fn message() -> Value {
    json!({
        "type": "object",
        "description": "Agent Input",
        "properties": {
            "message": { "type": "string", "description": "Last message of the chat from the user" },
        },
    })
}

pub(super) fn thread_state() -> Value {
    json!({
        "type": "object",
        "description": "The state of the agent",
        "properties": {
            "messages": {
                "type": "array",
                "description": "Full chat history",
                "items": { "type": "string", "description": "A message in the chat" },
            },
        },
    })
}

pub(super) fn config() -> Value {
    json!({
        "type": "object",
        "description": "The configuration of the agent",
        "properties": { "style": { "type": "string", "enum": ["formal", "friendly"] } },
    })
}

pub(super) fn approval_payload() -> Value {
    json!({
        "type": "object",
        "title": "Mail Approval Payload",
        "description": "Description of the email",
        "properties": {
            "subject": {
                "title": "Mail Subject",
                "description": "Subject of the email that is about to be sent",
                "type": "string",
            },
            "body": {
                "title": "Mail Body",
                "description": "Body of the email that is about to be sent",
                "type": "string",
            },
            "recipients": {
                "title": "Mail recipients",
                "description": "List of recipients of the email",
                "type": "array",
                "items": { "type": "string", "format": "email" },
            },
        },
        "required": ["subject", "body", "recipients"],
    })
}

pub(super) fn approval_answer() -> Value {
    json!({
        "type": "object",
        "title": "Email Approval Input",
        "description": "User Approval for this email",
        "properties": {
            "reason": {
                "title": "Approval Reason",
                "description": "Reason to approve or decline",
                "type": "string",
            },
            "approved": {
                "title": "Approval Decision",
                "description": "True if approved, False if declined",
                "type": "boolean",
            },
        },
        "required": ["approved"],
    })
}
