//! How a connection begins.

use std::sync::Arc;

use trilogue_domain::Json;
use trilogue_mapping::agent_client as mapping;
use trilogue_runtime::ClientProfile;
use trilogue_wire::agent_client::{
    InitializeRequest, InitializeResponse, Rules, read_json, splice,
};

use super::calls::{SessionClient, error_object};
use super::link::{Answer, Link, Met};
use super::request::read;

/// Tells the client what the agent is, and remembers what the client is. Asked again, the answer is the same.
pub(super) async fn initialize(link: &Arc<Link>, params: &str) -> Answer {
    let request: InitializeRequest = read(link, params)?;
    if let Some(met) = link.met() {
        return Ok(met.result.clone());
    }
    let member = |name: &str| {
        let found = splice::get(params, &[name]).filter(|json| json.starts_with('{'));
        found.and_then(|json| Json::parse(json.to_owned()).ok())
    };
    let profile = ClientProfile {
        dialect: mapping::UPDATE.into(),
        version: mapping::VERSION,
        capabilities: member("clientCapabilities").unwrap_or_else(Json::empty_object),
        info: request.client_info.as_ref().and_then(|_| member("clientInfo")),
    };
    let backend = link.backend().map_err(|error| mapping::error_object(&error))?;
    let hosted = match backend.sessions() {
        Some(sessions) => {
            let can = request.client_capabilities.clone().unwrap_or_default();
            let caller = SessionClient::of(link, profile.clone(), can);
            let said = sessions.meet(&caller).await.map_err(|error| error_object(&error))?;
            let wire = trilogue_mapping::native::json(&said);
            read_json::<InitializeResponse>(&wire, Rules::Lenient).ok()
        }
        None => None,
    };
    let response = mapping::initialize_result(backend.card(), hosted.as_ref());
    let can = response.agent_capabilities.as_ref();
    let prompt = can.and_then(|can| can.prompt.clone()).unwrap_or_default();
    let servers = can.and_then(|can| can.mcp.clone()).unwrap_or_default();
    let result = serde_json::to_vec(&response).unwrap_or_else(|_| b"{}".to_vec());
    link.meet(Met {
        profile,
        client: request.client_capabilities.unwrap_or_default(),
        prompt,
        servers,
        result: result.clone(),
    });
    Ok(result)
}
