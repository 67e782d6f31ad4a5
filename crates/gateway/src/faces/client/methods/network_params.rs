//! What a client over the network may choose when it opens a session: folders as in a run over HTTP, and no programs of this machine.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use trilogue_domain::{Code, Error, Json};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::RunCaller;
use trilogue_wire::agent_client::splice;
use trilogue_wire::jsonrpc::ErrorObject;

use super::super::connection::ClientConnection;
use super::rights::audit_refusal;

/// The members with which a client over the network opens a session. Agents read others as they like, for example as programs to start.
const KNOWN_MEMBERS: [&str; 7] = [
    "sessionId",
    "cwd",
    "additionalDirectories",
    "mcpServers",
    "systemPrompt",
    "configOptions",
    "cursorId",
];

/// Checks that the client may choose this working directory with these further ones.
pub(super) async fn check_folders(
    connection: &ClientConnection,
    method: &str,
    cwd: &str,
    further: &[String],
) -> Result<(), ErrorObject> {
    if connection.origin.is_local() {
        return Ok(());
    }
    let opened = connection.opened_folders();
    let caller = RunCaller::new(&connection.principal, connection.origin.source(), &opened);
    let mut folders = vec![cwd];
    folders.extend(further.iter().map(String::as_str));
    for folder in folders {
        // A run names its folder in its configuration.
        let config = Json::from_value(&json!({ "cwd": folder }));
        let checked =
            connection.runtime().authorize_config(&caller, &connection.agent, &config).await;
        if let Err(error) = checked {
            audit_refusal(connection, method, error.message());
            return Err(mapping::error_object(&error));
        }
    }
    Ok(())
}

/// Checks that no server in the parameters is a program, unless the settings allow programs of clients over the network.
pub(super) fn check_servers(
    connection: &ClientConnection,
    method: &str,
    params: &str,
) -> Result<(), ErrorObject> {
    if may_start_programs(connection) {
        return Ok(());
    }
    let servers = splice::get(params, &["mcpServers"]).unwrap_or("[]");
    let servers: Vec<Value> = serde_json::from_str(servers).unwrap_or_default();
    let Some(server) = servers.iter().find(|server| is_program(server)) else { return Ok(()) };
    let name = server["name"].as_str().unwrap_or_default().escape_debug();
    let message = format!(
        "`client.network_programs` does not allow the MCP server '{name}', which is a program on the server's machine"
    );
    audit_refusal(connection, method, &message);
    let error = Error::new(Code::Forbidden, message).hint(
        "leave it out, use a server with a `url`, or let the operator add it to the `mcp_servers` of the agent",
    );
    Err(mapping::error_object(&error))
}

/// Whether an agent can take this for a program.
fn is_program(server: &Value) -> bool {
    let has_address = matches!(server["type"].as_str(), Some("http" | "sse"));
    !has_address || server.get("command").is_some()
}

/// Returns the parameters of a client, with each member once: the agent then reads them as they were checked. Without programs, also without members that
/// only the agent understands.
pub(super) fn checkable<'a>(connection: &ClientConnection, params: &'a str) -> Cow<'a, str> {
    if connection.origin.is_local() {
        return params.into();
    }
    let mut members: Map<String, Value> = serde_json::from_str(params).unwrap_or_default();
    if !may_start_programs(connection) {
        members.retain(|name, _| KNOWN_MEMBERS.contains(&name.as_str()));
    }
    Value::Object(members).to_string().into()
}

fn may_start_programs(connection: &ClientConnection) -> bool {
    connection.origin.is_local() || connection.options().network_programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_command_is_a_program_whatever_it_says_of_itself() {
        for (server, expected) in [
            (json!({ "name": "s", "command": "/bin/s" }), true),
            (json!({ "type": "stdio", "name": "s", "url": "https://h" }), true),
            (json!({ "type": "http", "name": "s", "url": "https://h", "command": "/bin/s" }), true),
            (json!("/bin/s"), true),
            (json!({ "type": "http", "name": "s", "url": "https://h" }), false),
            (json!({ "type": "sse", "name": "s", "url": "https://h" }), false),
        ] {
            assert_eq!(is_program(&server), expected, "{server}");
        }
    }
}
