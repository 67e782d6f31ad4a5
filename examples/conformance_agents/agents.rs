//! The agents, named and behaving as the official client suites expect them.

use std::time::Duration;

use trilogue::Agents;
use trilogue_sdk::prelude::*;

use crate::connect;

/// How long `slow_echo` takes for each message.
const PAUSE: Duration = Duration::from_secs(1);

/// A PNG of one pixel.
const PIXEL: [u8; 69] = [
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53,
    0xde, 0x00, 0x00, 0x00, 0x0c, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x60, 0x68, 0x68, 0x00,
    0x00, 0x01, 0x84, 0x01, 0x01, 0x68, 0x72, 0xf3, 0x8f, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e,
    0x44, 0xae, 0x42, 0x60, 0x82,
];

struct Echo;
struct SlowEcho;
struct HistoryEcho;
struct Awaiter;
struct Failer;
struct Raiser;
struct Sessioner;
struct MimeTypes;
struct Base64Encoding;
struct ArtifactProducer;

/// Every agent.
pub(crate) fn all() -> Agents {
    Agents::new()
        .with(Echo)
        .with(SlowEcho)
        .with(HistoryEcho)
        .with(Awaiter)
        .with(Failer)
        .with(Raiser)
        .with(Sessioner)
        .with(MimeTypes)
        .with(Base64Encoding)
        .with(ArtifactProducer)
        .with(connect::Echo)
        .with(connect::Mock)
        .with(connect::Counter)
}

/// The messages that a turn brings.
fn given(turn: &Turn) -> &[Message] {
    turn.input().map_or(&[], Input::messages)
}

fn wrong_question() -> AgentError {
    AgentError::invalid_input("this is a question that nobody can answer")
}

#[async_trait]
impl Agent for Echo {
    fn card(&self) -> Card {
        Card::chat("echo", "Returns each message.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        for message in given(&turn) {
            context.repeat(message).await?;
        }
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for SlowEcho {
    fn card(&self) -> Card {
        Card::chat("slow_echo", "Returns each message after a second.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        for message in given(&turn) {
            context.wait(PAUSE).await?;
            context.repeat(message).await?;
        }
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for HistoryEcho {
    fn card(&self) -> Card {
        Card::chat("history_echo", "Returns the history of the session, then each message.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        for message in &context.history().await? {
            context.repeat(message).await?;
        }
        for message in given(&turn) {
            context.repeat(message).await?;
        }
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for Awaiter {
    fn card(&self) -> Card {
        Card::chat("awaiter", "Awaits a message, over restarts too.")
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        match turn {
            Turn::Start { .. } => Outcome::suspended(Question::message(""), Json::null()),
            Turn::Resume { .. } => {
                context.part(Part::text("empty")).await?;
                Ok(Outcome::Completed)
            }
        }
    }
}

#[async_trait]
impl Agent for Failer {
    fn card(&self) -> Card {
        Card::chat("failer", "Ends with an error.")
    }

    async fn run(&self, _: Turn, _: Context) -> Result<Outcome, AgentError> {
        Err(wrong_question())
    }
}

#[async_trait]
impl Agent for Raiser {
    fn card(&self) -> Card {
        Card::chat("raiser", "Fails before it says anything.")
    }

    async fn run(&self, _: Turn, _: Context) -> Result<Outcome, AgentError> {
        Err(wrong_question())
    }
}

#[async_trait]
impl Agent for Sessioner {
    fn card(&self) -> Card {
        Card::chat("sessioner", "Says which session it is in.")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        context.part(Part::text(context.thread().as_str())).await?;
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for MimeTypes {
    fn card(&self) -> Card {
        Card::chat("mime_types", "Answers in several content types.")
            .reads(["text/plain", "application/json"])
            .writes(["text/html", "application/json", "application/javascript", "text/css"])
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let part = |content_type: &str, text: &str| Part {
            content_type: content_type.into(),
            ..Part::text(text)
        };
        context.part(part("text/html", "<h1>HTML Content</h1>")).await?;
        context.part(part("application/json", r#"{"key": "value"}"#)).await?;
        context.part(part("application/javascript", "console.log('Hello');")).await?;
        context.part(part("text/css", "body { color: red; }")).await?;
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for Base64Encoding {
    fn card(&self) -> Card {
        Card::chat("base64_encoding", "Answers with bytes and text.")
            .writes(["image/png", "text/plain"])
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let image = Part::bytes("image/png", PIXEL.to_vec());
        context.say([image, Part::text("This is plain text")]).await?;
        Ok(Outcome::Completed)
    }
}

#[async_trait]
impl Agent for ArtifactProducer {
    fn card(&self) -> Card {
        Card::chat("artifact_producer", "Answers with text and artifacts.")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let data = Part {
            content_type: "application/json".into(),
            ..Part::text(r#"{"results": [1, 2, 3], "status": "complete"}"#)
        };
        context.part(Part::text("Processing with artifacts")).await?;
        context.artifact("text-result.txt", Part::text("This is a text artifact result")).await?;
        context.artifact("data.json", data).await?;
        context.artifact("image.png", Part::bytes("image/png", PIXEL.to_vec())).await?;
        Ok(Outcome::Completed)
    }
}
