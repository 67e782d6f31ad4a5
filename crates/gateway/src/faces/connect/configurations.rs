//! Configured instances: stored settings of an agent under an id that runs can name.

use std::time::Duration;

use http::StatusCode;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentCard, Code, ConfigurationId, Error, Json, Right, limits};
use trilogue_mapping::connect::{self as mapping, RunConfig};
use trilogue_mapping::native::json;
use trilogue_mapping::time;
use trilogue_store::rows::{ConfigurationFilter, ConfigurationRow};
use trilogue_wire::agent_connect as wire;

use super::parsed_request::{NO_RECURSION_LIMIT, with_warnings};
use super::{BASE, ConnectCall, ConnectRoute, fault, look_up, request};
use crate::core::audit::AuditEvent;
use crate::http::reply::Reply;
use crate::route::{Access, Verb, json_response, no_content, of};

const MAX_NAME_BYTES: usize = 256;

const NO_TAGS: &str = "'config.tags' has no effect on a configured instance";

const ONE: ConnectRoute = BASE
    .at("/agents/{agent_id}/configurations/{configuration_id}", |call| Box::pin(get(call)))
    .access(Access::Agent(Right::Read))
    .describe("connect_get_configuration", "One configured instance")
    .answers(&[json_response(200, "The instance.", of::<wire::Configuration>)])
    .errors(&[Code::AgentNotFound, Code::ConfigurationNotFound]);

const CREATE: ConnectRoute = ONE
    .post("/agents/{agent_id}/configurations", |call| Box::pin(create(call)))
    .access(Access::Agent(Right::Run))
    .describe("connect_create_configuration", "Configure an agent, for runs to come")
    .request(of::<wire::ConfigurationCreate>)
    .errors(&[
        Code::AgentNotFound,
        Code::AlreadyExists,
        Code::ConfigurationNotSupported,
        Code::ConfigInvalid,
    ]);

pub(crate) const ROUTES: &[ConnectRoute] = &[
    ONE,
    CREATE,
    CREATE
        .path("/configurations")
        .describe("connect_create_configuration_alias", "The same with the agent's id in the body"),
    ONE.verb(Verb::Patch)
        .handler(|call| Box::pin(patch(call)))
        .for_people()
        .access(Access::Agent(Right::Run))
        .describe(
            "connect_patch_configuration",
            "Change an instance; runs that exist keep what they were given",
        )
        .request(of::<wire::ConfigurationPatch>)
        .errors(&[Code::AgentNotFound, Code::ConfigurationNotFound, Code::ConfigInvalid]),
    ONE.verb(Verb::Delete)
        .handler(|call| Box::pin(delete(call)))
        .for_people()
        .access(Access::Agent(Right::Run))
        .describe("connect_delete_configuration", "Remove an instance")
        .answers(&[no_content("It is gone.")]),
    ONE.post("/agents/{agent_id}/configurations/search", |call| Box::pin(search(call)))
        .access(Access::Right(Right::Read))
        .describe("connect_search_configurations", "The instances of an agent, newest first")
        .request(of::<wire::ConfigurationSearchRequest>)
        .answers(&[json_response(200, "The instances.", of::<Vec<wire::Configuration>>)])
        .errors(&[Code::AgentNotFound]),
];

async fn create(call: ConnectCall) -> Result<Reply> {
    let body: wire::ConfigurationCreate = request::body_or_empty(&call)?;
    let path = call.param("agent_id");
    let named = if path.is_empty() { body.agent_id.as_deref() } else { Some(path) };
    let card = look_up::target(&call, named, None).await?.card;
    let keep = body.if_exists == Some(wire::IfExists::DoNothing);
    let mut warnings = Vec::new();
    let row = new_row(&call, card, body, &mut warnings)?;
    call.check_run_config(&call.state.runtime, &card.name, &row.config).await?;
    let port = &call.state.configurations;
    match port.create_configuration(row.clone()).await {
        Ok(()) => {
            audit(&call, AuditEvent::ConfigurationCreated, &row);
            Ok(with_warnings(configuration_reply(card, &row), &warnings))
        }
        Err(error) if error.code() == Code::AlreadyExists => {
            let existing = look_up::instance(&call, row.id.as_str()).await?;
            match existing.filter(|existing| keep && existing.agent == card.name) {
                Some(existing) => Ok(configuration_reply(card, &existing)),
                None => Ok(fault::respond_as("configuration_exists", &call, &error)),
            }
        }
        Err(error) => Err(error),
    }
}

async fn get(call: ConnectCall) -> Result<Reply> {
    let (card, row) = find_configuration(&call).await?;
    Ok(configuration_reply(card, &row))
}

async fn patch(call: ConnectCall) -> Result<Reply> {
    let body: wire::ConfigurationPatch = request::body_or_empty(&call)?;
    // Serialise changes; otherwise two changes would both start from the same old instance.
    let instance = call.param("configuration_id");
    let _turn = call.state.common.config_turns.turn(&call.principal().tenant, instance).await;
    let (card, mut row) = find_configuration(&call).await?;
    call.require_removal_of(Some(&row.owner)).await?;
    let now = call.state.clock.now();
    let mut warnings = Vec::new();
    if let Some(config) = &body.config {
        row.config = validate_config(&call, card, Some(config), &mut warnings)?;
        // Others run with it: what its writer may not do itself, it does not do through them.
        call.check_run_config(&call.state.runtime, &card.name, &row.config).await?;
    }
    if let Some(metadata) = request::metadata(body.metadata)? {
        row.metadata = request::merged(&row.metadata, &metadata)?;
    }
    if let Some(name) = body.name {
        row.name = Some(check_name(name)?);
    }
    row.updated_at = now;
    let port = &call.state.configurations;
    if !port.update_configuration(&call.scope(), row.clone()).await? {
        return Err(look_up::no_configuration(row.id.as_str()));
    }
    audit(&call, AuditEvent::ConfigurationChanged, &row);
    Ok(with_warnings(configuration_reply(card, &row), &warnings))
}

async fn delete(call: ConnectCall) -> Result<Reply> {
    let (_, row) = find_configuration(&call).await?;
    call.require_removal_of(Some(&row.owner)).await?;
    let port = &call.state.configurations;
    if !port.remove_configuration(&call.scope(), &row.id).await? {
        return Err(look_up::no_configuration(row.id.as_str()));
    }
    audit(&call, AuditEvent::ConfigurationRemoved, &row);
    Ok(Reply::no_content())
}

fn audit(call: &ConnectCall, event: AuditEvent, row: &ConfigurationRow) {
    let detail = format!("agent {}; of {}", row.agent, row.owner);
    call.audit(event, row.id.as_str(), &detail);
}

async fn search(call: ConnectCall) -> Result<Reply> {
    let body: wire::ConfigurationSearchRequest = request::body_or_empty(&call)?;
    let card = look_up::reached_agent(&call).await?;
    let filter = ConfigurationFilter {
        agent: card.name.clone(),
        metadata: request::members(body.metadata)?,
    };
    let page = request::page(body.limit, body.offset);
    let now = call.state.clock.now();
    let port = &call.state.configurations;
    let found = port.configurations(&call.scope(), &filter, &page, now).await?;
    Ok(Reply::ok(&found.rows.iter().map(|row| configuration(card, row)).collect::<Vec<_>>()))
}

/// Returns the instance that the path names, and its agent.
/// Errors: `agent_not_found`, `configuration_not_found`, `unauthenticated`.
async fn find_configuration(call: &ConnectCall) -> Result<(&AgentCard, ConfigurationRow)> {
    let card = look_up::reached_agent(call).await?;
    let id = call.param("configuration_id");
    let found = look_up::instance(call, id).await?.filter(|row| row.agent == card.name);
    Ok((card, found.ok_or_else(|| look_up::no_configuration(id))?))
}

fn new_row(
    call: &ConnectCall,
    card: &AgentCard,
    body: wire::ConfigurationCreate,
    warnings: &mut Vec<&'static str>,
) -> Result<ConfigurationRow> {
    if call.state.runtime.visible_card(card).config_schema.is_none() {
        return Err(Error::new(
            Code::ConfigurationNotSupported,
            format!("the agent '{}' takes no configuration", card.name),
        )
        .hint("its capabilities say so: 'configurations'"));
    }
    let by = call.principal();
    let now = call.state.clock.now();
    let id = body.configuration_id.as_deref().map(ConfigurationId::parse).transpose()?;
    if let Some(id) = &id {
        call.scope().check_chosen_id(id.as_str())?;
    }
    let lifetime = body.ttl_seconds.map(|ttl| Duration::from_secs(ttl.get().into()));
    let metadata = request::metadata(body.metadata)?;
    Ok(ConfigurationRow {
        id: id.unwrap_or_else(ConfigurationId::generate),
        tenant: by.tenant.clone(),
        owner: by.id.clone(),
        agent: card.name.clone(),
        name: body.name.map(check_name).transpose()?,
        config: validate_config(call, card, body.config.as_ref(), warnings)?,
        metadata: metadata.unwrap_or_else(Json::empty_object),
        created_at: now,
        updated_at: now,
        expires_at: lifetime.map(|lifetime| now.after(lifetime)),
    })
}

/// Returns settings that the agent accepts, in either form that a run takes.
/// Errors: `config_schema_violation`, `body_too_large`.
fn validate_config(
    call: &ConnectCall,
    card: &AgentCard,
    config: Option<&wire::Json>,
    warnings: &mut Vec<&'static str>,
) -> Result<Json> {
    let RunConfig { tags, recursion_limit, configurable } = mapping::config(config)?;
    warnings.extend((!tags.is_empty()).then_some(NO_TAGS));
    warnings.extend(recursion_limit.map(|_| NO_RECURSION_LIMIT));
    let config = configurable.unwrap_or_else(Json::empty_object);
    if config.as_bytes().len() > limits::MAX_CONFIGURATION_BYTES {
        let most = limits::MAX_CONFIGURATION_BYTES;
        return Err(Error::new(
            Code::BodyTooLarge,
            format!("'config' is larger than {most} bytes"),
        ));
    }
    call.state.runtime.check_config(&card.name, &config)?;
    Ok(config)
}

fn check_name(name: String) -> Result<String> {
    if name.len() > MAX_NAME_BYTES {
        let message = format!("'name' is longer than {MAX_NAME_BYTES} bytes");
        return Err(Error::new(Code::InvalidRequest, message));
    }
    Ok(name)
}

fn configuration_reply(card: &AgentCard, row: &ConfigurationRow) -> Reply {
    Reply::json(StatusCode::OK, &configuration(card, row))
}

fn configuration(card: &AgentCard, row: &ConfigurationRow) -> wire::Configuration {
    wire::Configuration {
        configuration_id: row.id.as_str().to_owned(),
        agent_id: mapping::agent_id(card),
        config: json(&mapping::shown_config(card, &row.config)),
        metadata: wire::Object::new(json(&row.metadata)).unwrap_or_default(),
        name: row.name.clone(),
        created_at: time(row.created_at),
        updated_at: time(row.updated_at),
        expires_at: row.expires_at.map(time),
    }
}
