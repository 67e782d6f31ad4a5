//! `echo`: answers with its input.

use trilogue_sdk::prelude::*;

pub const NAME: &str = "echo";

/// Answers each input message with one message of the same parts.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

#[async_trait]
impl Agent for Echo {
    fn card(&self) -> Card {
        Card::chat(NAME, "Says what it hears: each message comes back with its parts unchanged.")
            .version("1.0.0")
            .writes(["*/*"])
            .streams(true, false)
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        if let Turn::Start { input: Input::Messages(messages) } = turn {
            for message in messages {
                context.say(message.parts).await?;
            }
        }
        Ok(Outcome::Completed)
    }
}
