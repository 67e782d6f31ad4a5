//! Instructions of clients for agents.

use serde_json::{Value, json};
use trilogue_domain::{Json, SystemPrompt, SystemPromptAbility};
use trilogue_wire::agent_client as wire;

/// Returns the capability of an agent in the server.
pub(super) fn capability(
    ability: Option<SystemPromptAbility>,
) -> Option<wire::SystemPromptCapabilities> {
    let mode = match ability? {
        SystemPromptAbility::Append => None,
        SystemPromptAbility::AppendOrOverride => Some(wire::SystemPromptModes {
            r#override: Some(wire::Supported::default()),
            ..wire::SystemPromptModes::default()
        }),
    };
    Some(wire::SystemPromptCapabilities { mode, ..wire::SystemPromptCapabilities::default() })
}

/// Converts a client's instructions, of which each block is a paragraph.
pub fn system_prompt(prompt: &wire::SystemPrompt) -> SystemPrompt {
    let texts = prompt.content.iter().filter_map(|block| match block {
        wire::ContentBlock::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    SystemPrompt {
        overrides: prompt.mode == wire::SystemPromptMode::Override,
        text: texts.collect::<Vec<_>>().join("\n\n"),
    }
}

/// Converts instructions to their form in a thread's metadata.
pub fn system_prompt_metadata(prompt: &SystemPrompt) -> Value {
    json!({ "mode": if prompt.overrides { "override" } else { "append" }, "text": prompt.text })
}

/// Reads the instructions in a thread's metadata.
pub fn system_prompt_in(metadata: &Json) -> Option<SystemPrompt> {
    let metadata = metadata.to_value();
    let found = metadata.get(trilogue_domain::thread::SYSTEM_PROMPT_MEMBER)?;
    let text = found.get("text")?.as_str()?.to_owned();
    Some(SystemPrompt { overrides: found.get("mode")?.as_str()? == "override", text })
}
