//! The agents that the suites of the Agent Connect Protocol talk to: JSON in, JSON out, each with a state.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trilogue_sdk::prelude::*;

/// The interrupt of [`Echo`].
const ECHO_INTERRUPT: &str = "echo_interrupt";
/// The interrupt of [`Mock`].
const MOCK_INTERRUPT: &str = "mock_interrupt";
/// How long [`Mock`] thinks, unless its configuration says otherwise, in milliseconds.
const MOCK_PAUSE_MS: u64 = 3_000;

/// Answers the last human message with the same words; its configuration chooses their case, and whether it asks first.
pub(crate) struct Echo;

/// Knows one answer, asks one question, fails in one way.
pub(crate) struct Mock;

/// Counts, showing each number as it comes, and remembers the sum over its thread.
pub(crate) struct Counter;

/// Input, output, state and questions of [`Echo`].
#[derive(Clone, Deserialize, Serialize)]
struct Talk {
    messages: Option<Vec<Said>>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Said {
    #[serde(rename = "type")]
    by: By,
    content: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    Human,
    Assistant,
    Ai,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EchoConfig {
    to_upper: bool,
    to_lower: bool,
    interrupt_count: u64,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Text {
    message: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct Asked {
    interrupt_message: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default)]
struct MockConfig {
    /// How long it thinks about the colour of the sky, in milliseconds.
    pause_ms: u64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    /// How far.
    #[schemars(range(max = 10_000))]
    count: u64,
    /// How long it takes for each number, in milliseconds.
    #[serde(default)]
    pause_ms: u64,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    count: u64,
}

#[derive(Serialize, JsonSchema)]
struct Step {
    step: u64,
}

/// What a thread has been counted up to, over its runs.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
struct Sum {
    total: u64,
}

// === impl Echo ===

#[async_trait]
impl Agent for Echo {
    fn card(&self) -> Card {
        let question = talk("what is asked, or how it goes on", true);
        Card::schema("org.agntcy.echo", "Repeats what it hears.", talk("what it hears", true))
            .version("0.1.0")
            .output(talk("everything that was said", false))
            .config(json!({
                "type": "object",
                "properties": {
                    "to_upper": {
                        "type": "boolean", "default": false,
                        "description": "repeats in capitals",
                    },
                    "to_lower": {
                        "type": "boolean", "default": false,
                        "description": "repeats in small letters; goes before to_upper",
                    },
                    "interrupt_count": {
                        "type": "integer", "minimum": 0, "maximum": 1000, "default": 0,
                        "description": "asks once before it answers where this is not 0",
                    },
                },
            }))
            .interrupt(ECHO_INTERRUPT, question.clone(), question)
            .without_callbacks()
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let config: EchoConfig = context.config()?;
        let talk = match turn {
            Turn::Start { input } => {
                let talk = config.repeat(input.parse()?);
                if config.interrupt_count > 0 {
                    let question = Question::custom(ECHO_INTERRUPT).payload(to_json(&talk)?);
                    return Outcome::suspended(question, Json::null());
                }
                talk
            }
            Turn::Resume { answer, .. } => config.repeat(answered(&answer)?),
        };
        let talk = to_json(&talk)?;
        context.set_state(talk.clone()).await?;
        context.result(talk).await?;
        Ok(Outcome::Completed)
    }
}

impl EchoConfig {
    /// What was said, and the last human message once more.
    fn repeat(&self, mut talk: Talk) -> Talk {
        let Some(messages) = &mut talk.messages else { return talk };
        let Some(last) = messages.iter().rfind(|said| said.by == By::Human) else { return talk };
        let content = match self {
            Self { to_lower: true, .. } => last.content.to_lowercase(),
            Self { to_upper: true, .. } => last.content.to_uppercase(),
            _ => last.content.clone(),
        };
        messages.push(Said { by: By::Assistant, content });
        talk
    }
}

/// The schema of messages, with its parts under `$defs`.
fn talk(description: &str, closed: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "messages": {
                "default": null,
                "anyOf": [
                    { "type": "array", "items": { "$ref": "#/$defs/Said" } },
                    { "type": "null" },
                ],
            },
        },
        "$defs": {
            "By": {
                "type": "string",
                "enum": ["human", "assistant", "ai"],
                "description": "who said it",
            },
            "Said": {
                "type": "object",
                "properties": {
                    "type": { "$ref": "#/$defs/By" },
                    "content": { "type": "string", "description": "the words" },
                },
                "required": ["type", "content"],
            },
        },
    });
    if closed {
        schema["additionalProperties"] = json!(false);
        schema["required"] = json!(["messages"]);
    }
    schema
}

/// The answer to a question of an agent's own kind.
fn answered<T: for<'de> Deserialize<'de>>(answer: &Answer) -> Result<T, AgentError> {
    match answer {
        Answer::Json(json) => from_json(json),
        _ => Err(AgentError::invalid_input("the answer is JSON")),
    }
}

// === impl Mock ===

#[async_trait]
impl Agent for Mock {
    fn card(&self) -> Card {
        Card::typed::<Text, Text>("org.agntcy.mock", "Knows one answer.")
            .id("3f1e2549-5799-4321-91ae-2a4881d55526")
            .version("0.0.1")
            .config(schema_of::<MockConfig>())
            .interrupt(MOCK_INTERRUPT, schema_of::<Asked>(), schema_of::<Text>())
            .streams(true, false)
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let answer = match turn {
            Turn::Start { input } => {
                let asked: Text = input.parse()?;
                match asked.message.as_str() {
                    "What's the color of the sky?" => {
                        let MockConfig { pause_ms } = context.config()?;
                        context.wait(Duration::from_millis(pause_ms)).await?;
                        Text { message: "The color of the sky is blue".to_owned() }
                    }
                    "Please interrupt" => {
                        let asked = Asked { interrupt_message: "How can I help you?".to_owned() };
                        let question = Question::custom(MOCK_INTERRUPT).payload(to_json(&asked)?);
                        return Outcome::suspended(question, Json::null());
                    }
                    "I don't feel too well." => {
                        let input = serde_json::to_value(&asked)?;
                        return Err(AgentError::failed(format!("error input: {input}")));
                    }
                    _ => asked,
                }
            }
            Turn::Resume { answer, .. } => answered(&answer)?,
        };
        let answer = to_json(&answer)?;
        context.set_state(answer.clone()).await?;
        context.result(answer).await?;
        Ok(Outcome::Completed)
    }
}

impl Default for MockConfig {
    fn default() -> Self {
        Self { pause_ms: MOCK_PAUSE_MS }
    }
}

// === impl Counter ===

#[async_trait]
impl Agent for Counter {
    fn card(&self) -> Card {
        Card::typed::<Order, Counted>("counter", "Counts.")
            .version("1.0.0")
            .state(schema_of::<Sum>())
            .update(schema_of::<Step>())
            .streams(true, true)
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let Turn::Start { input } = turn else {
            return Err(AgentError::invalid_input("a counter asks nothing"));
        };
        let Order { count, pause_ms } = input.parse()?;
        let Sum { total } = context.state().await?;
        for number in 1..=count {
            if pause_ms > 0 {
                context.wait(Duration::from_millis(pause_ms)).await?;
            }
            context.output_so_far(to_json(&Counted { count: number })?).await?;
            context.custom("step", to_json(&Step { step: number })?).await?;
        }
        context.set_state(to_json(&Sum { total: total + count })?).await?;
        context.result(to_json(&Counted { count })?).await?;
        Ok(Outcome::Completed)
    }
}
