//! The rights that a client's messages need: those that the other protocols need for the same act.

use trilogue_domain::Right;
use trilogue_mapping::agent_client as mapping;
use trilogue_wire::agent_client::method;
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::connection::ClientConnection;
use super::request::is_attach;
use crate::core::audit::{AuditActor, AuditEvent, audit};

/// The subject of audit lines about methods that the protocol does not have.
const EXTENSION: &str = "extension";

/// Checks that the client may send a message of this method. Writes an audit line if it may not.
pub(super) fn check(connection: &ClientConnection, name: &str) -> Result<(), ErrorObject> {
    let needed = match is_attach(connection, name) {
        true => &[Right::Read],
        false => needed(name),
    };
    needed.iter().try_for_each(|right| require(connection, *right, name))
}

/// Checks that the client has this right, which the method needs because of its parameters.
pub(super) fn require(
    connection: &ClientConnection,
    right: Right,
    name: &str,
) -> Result<(), ErrorObject> {
    connection.principal.require(right).map_err(|error| {
        audit_refusal(connection, name, error.message());
        mapping::error_object(&error)
    })
}

fn needed(name: &str) -> &'static [Right] {
    match name {
        "session/list" | "session/load" | "session/resume" | "session/status" | "session/close" => {
            &[Right::Read]
        }
        "session/new" | "session/fork" | "session/prompt" | "session/cancel"
        | "session/options" | "session/set_title" | "session/archive" | "session/unarchive" => {
            &[Right::Run]
        }
        // The agent's account is the server's.
        "session/delete" | "authenticate" | "logout" => &[Right::Admin],
        // Settings can keep the agent from asking. So can a method that the server does not know.
        _ => &[Right::Run, Right::Answer],
    }
}

/// Writes an audit line of a refused message.
pub(super) fn audit_refusal(connection: &ClientConnection, name: &str, why: &str) {
    let Some(left_out) = connection.state.refusals.count(&connection.principal) else { return };
    let actor = AuditActor::new(&connection.principal, connection.origin.token());
    let subject = if method(name).is_some() { name } else { EXTENSION };
    let detail = format!("agent {}; {why}; {left_out} left out before", connection.agent);
    audit(AuditEvent::RequestRefused, Some(actor), subject, &detail);
}
