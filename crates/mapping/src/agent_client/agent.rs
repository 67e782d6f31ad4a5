use super::system_prompt;
use serde_json::Value;
use trilogue_domain::AgentCard;
use trilogue_wire::agent_client::{
    AGENT_CAPABILITIES, AgentCapabilities, AuthMethod, Implementation, InitializeResponse,
    PROTOCOL_VERSION, PromptCapabilities, Rules, SessionCapabilities, Supported, read_checked,
    retain_served,
};

/// Returns the response to a client's `initialize`; `hosted` is a hosted agent's own response.
///
/// The server itself lists, loads, resumes, closes, deletes, copies, names and archives sessions, for every agent; other abilities exist if the hosted agent has them.
/// The agent's terminal authentication methods are left out: they would run another copy of it.
pub fn initialize_result(
    card: &AgentCard,
    hosted: Option<&InitializeResponse>,
) -> InitializeResponse {
    let mut answer = InitializeResponse::new(PROTOCOL_VERSION);
    let own = Implementation {
        title: card.title.clone(),
        ..Implementation::new(card.name.as_str(), card.version.as_str())
    };
    let Some(hosted) = hosted else {
        answer.agent_info = Some(own);
        answer.agent_capabilities = Some(AgentCapabilities {
            load_session: true,
            prompt: Some(prompts(card)),
            session: Some(SessionCapabilities {
                system_prompt: system_prompt::capability(card.abilities.system_prompt),
                ..sessions(None)
            }),
            ..AgentCapabilities::default()
        });
        return answer;
    };
    let hosted_capabilities = hosted.agent_capabilities.clone().unwrap_or_default();
    let mut capabilities = served(&hosted_capabilities);
    capabilities.load_session = true;
    capabilities.session = Some(sessions(capabilities.session.as_ref()));
    answer.agent_capabilities = Some(capabilities);
    answer.agent_info = Some(hosted.agent_info.clone().unwrap_or(own));
    let methods = hosted.auth_methods.iter();
    answer.auth_methods =
        methods.filter(|method| matches!(method, AuthMethod::Agent(_))).cloned().collect();
    answer.meta.clone_from(&hosted.meta);
    answer
}

/// Returns a hosted agent's capabilities without those that a client could not use through this server.
fn served(hosted: &AgentCapabilities) -> AgentCapabilities {
    let Ok(Value::Object(mut capabilities)) = serde_json::to_value(hosted) else {
        return AgentCapabilities::default();
    };
    retain_served(&mut capabilities, AGENT_CAPABILITIES);
    read_checked(&Value::Object(capabilities).to_string(), Rules::Lenient).unwrap_or_default()
}

/// Returns the session capabilities. A hosted agent's abilities beyond the protocol are not advertised, because they would create sessions outside of the log.
fn sessions(hosted: Option<&SessionCapabilities>) -> SessionCapabilities {
    let ours = || Some(Supported::default());
    SessionCapabilities {
        list: ours(),
        delete: ours(),
        resume: ours(),
        close: ours(),
        additional_directories: hosted.and_then(|hosted| hosted.additional_directories.clone()),
        system_prompt: hosted.and_then(|hosted| hosted.system_prompt.clone()),
        fork: ours(),
        status: ours(),
        title: ours(),
        archive: ours(),
        options: ours(),
        meta: hosted.and_then(|hosted| hosted.meta.clone()),
        ..SessionCapabilities::default()
    }
}

/// Returns the prompt capabilities by the agent's content types; an agent without any reads all.
fn prompts(card: &AgentCard) -> PromptCapabilities {
    let types = &card.input_content_types;
    let reads = |kind: &str| {
        types.is_empty()
            || types
                .iter()
                .any(|it| it == "*/*" || it == "*" || it.to_ascii_lowercase().starts_with(kind))
    };
    PromptCapabilities {
        image: reads("image/"),
        audio: reads("audio/"),
        // A resource is a named part, which every agent here accepts like an unnamed one.
        embedded_context: true,
        ..PromptCapabilities::default()
    }
}
