//! `greeter`: welcomes its user in an output that grows, and remembers the name.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use trilogue_sdk::prelude::*;

use super::name;

pub const NAME: &str = "greeter";
/// How many of the paces of [`super::Options`] the greeter waits between two outputs: clients show a growing output at most every 50 ms.
pub const PACES: u32 = 4;
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024;
/// The most messages that the state keeps. The oldest turns are removed first.
pub const MAX_STATE_MESSAGES: usize = 100;

const WELCOME: &str = "Hello, how can I help you today";

/// Answers word by word. Each output replaces the one before; the thread's state is the list of messages.
#[derive(Clone, Copy, Debug)]
pub struct Greeter {
    pace: Duration,
}

#[derive(Deserialize, Default)]
struct Greeting {
    #[serde(default)]
    message: String,
}

// === impl Greeter ===

impl Greeter {
    #[must_use]
    pub fn new(pace: Duration) -> Self {
        Self { pace }
    }
}

#[async_trait]
impl Agent for Greeter {
    fn card(&self) -> Card {
        let state = json!({
            "type": "array",
            "description": "What was said, user and agent in turn",
            "items": { "type": "string" },
        });
        Card::schema(
            NAME,
            "Welcomes you in an output that grows, and remembers your name.",
            message("What the user says"),
        )
        .version("1.0.0")
        .output(message("What the agent says"))
        .state(state)
        .streams(true, false)
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let Turn::Start { input } = turn else {
            return Err(AgentError::invalid_input("the greeter asks nothing"));
        };
        let Greeting { message: said } = input.parse()?;
        if said.len() > MAX_MESSAGE_BYTES {
            let size = said.len();
            let why = format!("the message has {size} bytes; {MAX_MESSAGE_BYTES} is the most");
            return Err(AgentError::invalid_input(why));
        }
        let mut state: Vec<String> = context.state().await?;
        let greeting = || name::introduced(&said).map(|name| name::greeting(&name));
        let reply = name::recalled(&said, &state).or_else(greeting);
        let reply = reply.unwrap_or_else(|| WELCOME.to_owned());
        for step in steps(&reply) {
            context.output_so_far(json!({ "message": step })).await?;
            context.commit().await?;
            context.wait(self.pace).await?;
        }
        state.extend([said, reply.clone()]);
        state.drain(..state.len().saturating_sub(MAX_STATE_MESSAGES));
        context.set_state(json!(state)).await?;
        context.result(json!({ "message": reply })).await?;
        Ok(Outcome::Completed)
    }
}

fn message(description: &str) -> Value {
    json!({
        "type": "object",
        "properties": { "message": { "type": "string", "description": description } },
    })
}

/// The beginnings of a reply, each one word longer, without the whole reply. A word of one letter comes together with the next.
fn steps(reply: &str) -> impl Iterator<Item = &str> {
    let ends = reply.match_indices(' ').map(|(end, _)| end);
    let steps = ends.filter_map(|end| reply.get(..end));
    steps.filter_map(|step| {
        let last = step.rsplit(' ').next()?;
        (last.chars().count() > 1).then(|| step.trim_end_matches(|c: char| !c.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_grows_by_words() {
        let welcome = ["Hello", "Hello, how", "Hello, how can", "Hello, how can I help"];
        assert_eq!(steps(WELCOME).take(4).collect::<Vec<_>>(), welcome);
        assert_eq!(steps(WELCOME).last(), Some("Hello, how can I help you"));
        assert_eq!(steps("Hello").count(), 0);
    }
}
