//! Prompts that a hosted agent repeats as messages of the user: a client that has the prompt must not get it again.

use trilogue_domain::RunKey;
use trilogue_mapping::agent_client::UPDATE;
use trilogue_wire::agent_client::splice;

/// The longest prompt that is remembered, in bytes of its text.
const MAX_PROMPT_BYTES: usize = 256 * 1024;
/// What an agent sends once it works on a prompt. It repeats the prompt before that.
const WORK: [&str; 5] =
    ["agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan"];

/// The prompt of a run that the client has, until the agent works on it.
#[derive(Debug, Default)]
pub(super) struct PromptEcho {
    run: Option<RunKey>,
    /// The text that the agent has not repeated yet.
    text: String,
    /// The images and other blocks of the prompt that the agent has not repeated yet.
    blocks: usize,
}

// === impl PromptEcho ===

impl PromptEcho {
    /// Notes an update with a block of the user's message that the client gets.
    pub(super) fn show(&mut self, run: Option<RunKey>, params: &[u8]) {
        if self.run != run {
            *self = Self { run, ..Self::default() };
        }
        match text_of(params) {
            Some(text) if self.text.len() + text.len() <= MAX_PROMPT_BYTES => {
                self.text.push_str(&text);
            }
            Some(_) => self.text.clear(),
            None => self.blocks += 1,
        }
    }

    /// Whether an original repeats a part of the prompt.
    pub(super) fn takes(&mut self, run: Option<RunKey>, dialect: &str, original: &[u8]) -> bool {
        if self.run.is_none() || self.run != run || dialect != UPDATE {
            return false;
        }
        let params = std::str::from_utf8(original).unwrap_or_default();
        match splice::get_text(params, &["update", "sessionUpdate"]).as_deref() {
            Some("user_message_chunk") => self.takes_block(text_of(original).as_deref()),
            Some(kind) if WORK.contains(&kind) => {
                *self = Self::default();
                false
            }
            _ => false,
        }
    }

    fn takes_block(&mut self, text: Option<&str>) -> bool {
        let Some(text) = text else {
            let is_known = self.blocks > 0;
            self.blocks = self.blocks.saturating_sub(1);
            return is_known;
        };
        // Agents trim what they repeat.
        match self.text.trim_start().strip_prefix(text.trim()) {
            Some(rest) => {
                self.text = rest.to_owned();
                true
            }
            None => false,
        }
    }
}

/// Returns the text of a chunk; `None` for another block.
fn text_of(params: &[u8]) -> Option<String> {
    let params = std::str::from_utf8(params).ok()?;
    let text = splice::get_text(params, &["update", "content", "text"])?;
    Some(text.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RUN: Option<RunKey> = Some(RunKey(1));

    fn chunk(kind: &str, content: &serde_json::Value) -> Vec<u8> {
        let update = json!({ "sessionUpdate": kind, "content": content });
        json!({ "sessionId": "", "update": update }).to_string().into_bytes()
    }

    fn user(text: &str) -> Vec<u8> {
        chunk("user_message_chunk", &json!({ "type": "text", "text": text }))
    }

    #[test]
    fn a_repeated_prompt_is_taken_in_pieces_and_only_once() {
        let image = chunk("user_message_chunk", &json!({ "type": "image", "data": "" }));
        let mut echo = PromptEcho::default();
        assert!(!echo.takes(RUN, UPDATE, &user("hello")), "the client does not have it");
        echo.show(RUN, &user("hello "));
        echo.show(RUN, &user("world\n"));
        echo.show(RUN, &image);
        assert!(!echo.takes(Some(RunKey(2)), UPDATE, &user("hello")));
        assert!(!echo.takes(RUN, UPDATE, &user("context")), "the agent says more than the prompt");
        for part in [user("hello "), user("wor"), user("ld"), image.clone()] {
            assert!(echo.takes(RUN, UPDATE, &part));
        }
        assert!(!echo.takes(RUN, UPDATE, &user("hello")));
        assert!(!echo.takes(RUN, UPDATE, &image));
    }

    #[test]
    fn an_agent_that_works_repeats_no_prompt() {
        let mut echo = PromptEcho::default();
        echo.show(RUN, &user("hello"));
        let text = json!({ "type": "text", "text": "x" });
        assert!(!echo.takes(RUN, UPDATE, &chunk("agent_message_chunk", &text)));
        assert!(!echo.takes(RUN, UPDATE, &user("hello")));
    }
}
