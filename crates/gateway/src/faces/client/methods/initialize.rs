//! `initialize`: the handshake.

use std::sync::Arc;

use trilogue_domain::{Json, Right};
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::ClientProfile;
use trilogue_wire::agent_client::{
    InitializeRequest, InitializeResponse, Rules, read_json, splice,
};

use super::super::asking::agent_calls::{AgentCalls, error_object};
use super::super::connection::{ClientConnection, Handshake};
use super::super::wire::lines::MethodResult;
use super::request::{backend_of, read};

/// Exchanges capabilities. A second `initialize` returns the same result.
pub(super) async fn initialize(connection: &Arc<ClientConnection>, params: &str) -> MethodResult {
    let request: InitializeRequest = read(connection, params)?;
    if let Some(handshake) = connection.handshake() {
        return Ok(handshake.result.clone());
    }
    let member = |name: &str| {
        let found = splice::get(params, &[name]).filter(|json| json.starts_with('{'));
        found.and_then(|json| Json::parse_mended(json.to_owned()).ok())
    };
    let profile = ClientProfile {
        dialect: mapping::UPDATE.into(),
        version: mapping::VERSION,
        capabilities: member("clientCapabilities").unwrap_or_else(Json::empty_object),
        info: request.client_info.as_ref().and_then(|_| member("clientInfo")),
        source: connection.origin.source(),
    };
    if let (Some(listing), Some(client)) = (&connection.listing, &request.client_info) {
        listing.set_name(client.title.as_ref().unwrap_or(&client.name), &client.version);
    }
    let backend = backend_of(connection)?;
    // A client that only observes starts no process. It needs nothing of the agent's greeting.
    let hosted = match backend.sessions().filter(|_| connection.may(Right::Run)) {
        Some(sessions) => {
            let capabilities = request.client_capabilities.clone().unwrap_or_default();
            let caller = AgentCalls::before_handshake(connection, profile.clone(), capabilities);
            let greeting = sessions.greet(&caller).await.map_err(|error| error_object(&error))?;
            let wire = trilogue_mapping::native::json(&greeting);
            read_json::<InitializeResponse>(&wire, Rules::Lenient).ok()
        }
        None => None,
    };
    let response = mapping::initialize_result(backend.card(), hosted.as_ref());
    let capabilities = response.agent_capabilities.as_ref();
    let prompt = capabilities.and_then(|it| it.prompt.clone()).unwrap_or_default();
    let servers = capabilities.and_then(|it| it.mcp.clone()).unwrap_or_default();
    let session = capabilities.and_then(|it| it.session.as_ref());
    let system_prompt = session.and_then(|session| session.system_prompt.clone());
    let own = hosted.as_ref().and_then(|it| it.agent_capabilities.as_ref()?.session.as_ref());
    let has_options = own.is_some_and(|session| session.options.is_some());
    let result = serde_json::to_string(&response).unwrap_or_else(|_| "{}".to_owned());
    let announced = connection.attach.as_ref().and_then(|attach| attach.put(&result));
    let result = announced.unwrap_or(result).into_bytes();
    connection.set_handshake(Handshake {
        profile,
        client: request.client_capabilities.unwrap_or_default(),
        prompt,
        servers,
        system_prompt,
        has_options,
        result: result.clone(),
    });
    Ok(result)
}
