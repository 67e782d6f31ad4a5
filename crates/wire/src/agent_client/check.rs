//! Checks messages against the other side's capabilities.

use super::{
    ClientCapabilities, ContentBlock, McpCapabilities, McpServer, PromptCapabilities,
    ResourceContents, SessionConfigOption, SessionUpdate, SystemPrompt, SystemPromptCapabilities,
    SystemPromptMode, Violation, update_kind,
};
use crate::encoded_bytes::decode_base64;

/// Checks that the agent supports every block of a prompt, and that bytes are base64 in one of its forms. Every agent supports text and links to resources.
pub fn check_prompt(
    prompt: &[ContentBlock],
    agent: Option<&PromptCapabilities>,
) -> Result<(), Violation> {
    for (index, block) in prompt.iter().enumerate() {
        let (needed, has): (_, fn(&PromptCapabilities) -> bool) = match block {
            ContentBlock::Text(_) | ContentBlock::ResourceLink(_) => continue,
            ContentBlock::Image(_) => ("image", |agent| agent.image),
            ContentBlock::Audio(_) => ("audio", |agent| agent.audio),
            ContentBlock::Resource(_) => ("embeddedContext", |agent| agent.embedded_context),
            ContentBlock::Other(_) => {
                return Err(Violation::new(
                    format!("/prompt/{index}/type"),
                    "must be one of text image audio resource_link resource",
                ));
            }
        };
        if !agent.is_some_and(has) {
            let kind = block.kind();
            return Err(Violation::new(
                format!("/prompt/{index}"),
                format!("is of the type {kind}, which needs promptCapabilities.{needed}"),
            ));
        }
        if let Some((member, text)) = encoded_bytes(block)
            && decode_base64(text).is_none()
            && !is_cut_example(text)
        {
            let path = format!("/prompt/{index}/{member}");
            return Err(Violation::new(path, "must be base64"));
        }
    }
    Ok(())
}

/// Returns the base64 member of a block, with its path.
fn encoded_bytes(block: &ContentBlock) -> Option<(&'static str, &str)> {
    match block {
        ContentBlock::Image(image) => Some(("data", &image.data)),
        ContentBlock::Audio(audio) => Some(("data", &audio.data)),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::Blob(blob) => Some(("resource/blob", &blob.blob)),
            ResourceContents::Text(_) => None,
        },
        _ => None,
    }
}

/// Returns `true` if the text is shortened base64, as in the examples of the protocol's documents.
fn is_cut_example(text: &str) -> bool {
    let is_of_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.strip_suffix("...")
        .is_some_and(|begin| !begin.is_empty() && begin.bytes().all(is_of_alphabet))
}

/// Checks that the agent supports every MCP server. Every agent can start programs.
pub fn check_mcp_servers(
    servers: &[McpServer],
    agent: Option<&McpCapabilities>,
) -> Result<(), Violation> {
    for (index, server) in servers.iter().enumerate() {
        let path = || format!("/mcpServers/{index}");
        let needed = match server {
            McpServer::Stdio(_) => continue,
            McpServer::Http(_) if agent.is_some_and(|agent| agent.http) => continue,
            McpServer::Sse(_) if agent.is_some_and(|agent| agent.sse) => continue,
            McpServer::Http(_) => "http",
            McpServer::Sse(_) => "sse",
            McpServer::Other(_) => {
                let message = "must be http, sse or a program";
                return Err(Violation::new(format!("{}/type", path()), message));
            }
        };
        let message = format!("needs mcpCapabilities.{needed}");
        return Err(Violation::new(path(), message));
    }
    Ok(())
}

/// Checks that the agent takes a system prompt: its mode, and text only.
pub fn check_system_prompt(
    prompt: &SystemPrompt,
    agent: Option<&SystemPromptCapabilities>,
) -> Result<(), Violation> {
    const PATH: &str = "/systemPrompt";
    let Some(agent) = agent else {
        return Err(Violation::new(PATH, "needs sessionCapabilities.systemPrompt"));
    };
    let can_override = agent.mode.as_ref().is_some_and(|mode| mode.r#override.is_some());
    let mode = format!("{PATH}/mode");
    match &prompt.mode {
        SystemPromptMode::Append => {}
        SystemPromptMode::Override if can_override => {}
        SystemPromptMode::Override => {
            let message = "needs sessionCapabilities.systemPrompt.mode.override";
            return Err(Violation::new(mode, message));
        }
        SystemPromptMode::Other(_) => {
            return Err(Violation::new(mode, "must be append or override"));
        }
    }
    if prompt.content.is_empty() {
        return Err(Violation::new(format!("{PATH}/content"), "must not be empty"));
    }
    match prompt.content.iter().position(|block| !matches!(block, ContentBlock::Text(_))) {
        None => Ok(()),
        Some(index) => Err(Violation::new(format!("{PATH}/content/{index}"), "must be text")),
    }
}

/// Returns `true` if a path is absolute on any operating system. The other side's system is unknown.
pub fn is_absolute(path: &str) -> bool {
    match path.as_bytes() {
        [b'/', ..] | [b'\\', b'\\', ..] => true,
        [drive, b':', b'/' | b'\\', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

// === impl SessionUpdate ===

impl SessionUpdate {
    pub fn is_for(&self, client: &ClientCapabilities) -> bool {
        update_kind(self.kind()).is_none_or(|kind| kind.gate.is_open(client))
    }
}

// === impl SessionConfigOption ===

impl SessionConfigOption {
    pub fn is_for(&self, client: &ClientCapabilities) -> bool {
        let options = client.session.as_ref().and_then(|session| session.config_options.as_ref());
        match self {
            Self::Boolean(_) => options.is_some_and(|options| options.boolean.is_some()),
            Self::Select(_) | Self::Other(_) => true,
        }
    }
}
