//! Agents for the tests of the Agent Connect Protocol.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use trilogue_backends::NativeAgent;
use trilogue_backends::builtin::{Greeter, MailComposer};
use trilogue_domain::Json;
use trilogue_runtime::Backend;
use trilogue_sdk::{
    Agent, AgentError, Card, Context, Input, Interrupt, Outcome, Question, Turn, agent_fn,
};

#[derive(Debug)]
struct Actor {
    /// Each permit lets one run that holds continue.
    gate: Arc<Semaphore>,
}

pub(crate) fn all(gate: &Arc<Semaphore>) -> Vec<Arc<dyn Backend>> {
    vec![
        served(Actor { gate: Arc::clone(gate) }),
        served(MailComposer::default()),
        served(Greeter::new(Duration::from_millis(100))),
        served(
            agent_fn("plain", "", plain).with_card(
                Card::chat("plain", "says what it is told")
                    .without_threads()
                    .without_callbacks()
                    .streams(false, false),
            ),
        ),
        served(agent_fn("primitive", "", primitive).with_card(primitive_card())),
        served(agent_fn("counter", "", count).with_card(count_card())),
        served(agent_fn("secretive", "", keep_to_itself).with_card(Card::schema(
            "secretive",
            "keeps to itself",
            json(&json!({"type": "object"})),
        ))),
    ]
}

fn served(agent: impl Agent) -> Arc<dyn Backend> {
    Arc::new(NativeAgent::new(agent).unwrap())
}

fn json(value: &Value) -> Json {
    Json::from_value(value)
}

fn question() -> Interrupt {
    let payload = json(&json!({"question": "shall I?"}));
    Question::custom("approval").payload(payload).try_into().unwrap()
}

#[async_trait]
impl Agent for Actor {
    fn card(&self) -> Card {
        let input = json!({
            "type": "object",
            "required": ["do"],
            "properties": {"do": {"type": "string"}, "text": {"type": "string"}}
        });
        let output = json!({
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}}
        });
        let config = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "style": {"enum": ["formal", "friendly"]},
                "pace": {"type": "integer"},
                "key": {"type": "string", "writeOnly": true}
            }
        });
        let state = json!({
            "type": "object",
            "properties": {"messages": {"type": "array"}, "topic": {"type": "string"}}
        });
        let update = json!({
            "type": "object",
            "required": ["step"],
            "properties": {"step": {"type": "integer"}}
        });
        let asked = json!({
            "type": "object",
            "required": ["question"],
            "properties": {"question": {"type": "string"}}
        });
        let answer = json!({
            "type": "object",
            "required": ["approved"],
            "properties": {"approved": {"type": "boolean"}}
        });
        let details = json!({"type": "object", "required": ["tray"]});
        Card::schema("actor", "does what its input says", json(&input))
            .title("org.test.actor")
            .version("1.2.0")
            .output(json(&output))
            .config(json(&config))
            .state(json(&state))
            .update(json(&update))
            .streams(true, true)
            .interrupt("approval", json(&asked), json(&answer))
            .error_with_data("out_of_paper", "The tray is empty.", true, json(&details))
    }

    async fn run(&self, turn: Turn, context: Context) -> Result<Outcome, AgentError> {
        let given = match turn {
            Turn::Start { input } => input.parse::<Value>()?,
            Turn::Resume { answer, saved, .. } => {
                let saved = saved.to_value();
                if saved["more"].as_u64().is_some_and(|more| more > 0) {
                    let more = json!({"more": saved["more"].as_u64().unwrap_or(0) - 1});
                    return Outcome::suspended(question(), json(&more));
                }
                return say(&context, &format!("{answer:?}")).await;
            }
        };
        let text = given["text"].as_str().unwrap_or_default();
        match given["do"].as_str().unwrap_or_default() {
            "say" => remember(&context, text).await,
            "config" => {
                let config = context.config_json().map_or("none", Json::as_str).to_owned();
                say(&context, &config).await
            }
            "sleep" => {
                context.cancelled().await;
                Err(AgentError::run_stopped())
            }
            "hold" => {
                let permit = tokio::select! {
                    permit = self.gate.acquire() => permit,
                    () = context.cancelled() => return Err(AgentError::run_stopped()),
                };
                permit.unwrap().forget();
                remember(&context, text).await
            }
            "fail" => Err(AgentError::agent_failed("as told")),
            "declared" => {
                Err(AgentError::new("out_of_paper", "no paper")
                    .with_data(json(&json!({"tray": 2}))))
            }
            "ask" => Outcome::suspended(question(), json(&json!({"more": 0}))),
            "ask twice" => Outcome::suspended(question(), json(&json!({"more": 1}))),
            "ask else" => {
                let other: Interrupt =
                    Question::custom("undeclared").payload(Json::null()).try_into().unwrap();
                Outcome::suspended(other, Json::null())
            }
            "stream" => {
                for step in 0..3 {
                    context.custom("progress", json(&json!({"step": step}))).await?;
                    let so_far = json!({"message": "x".repeat(step + 1)});
                    context.output_so_far(json(&so_far)).await?;
                    context.commit().await?;
                }
                say(&context, "xxx!").await
            }
            "bad output" => {
                context.result(json(&json!({"wrong": 1}))).await?;
                Ok(Outcome::Completed)
            }
            "bad state" => {
                context.set_state(json(&json!({"messages": "none"}))).await?;
                say(&context, "kept?").await
            }
            "bad update" => {
                context.custom("progress", json(&json!({"step": "one"}))).await?;
                say(&context, "told?").await
            }
            _ => say(&context, &"x".repeat(200_000)).await,
        }
    }
}

async fn say(context: &Context, text: &str) -> Result<Outcome, AgentError> {
    context.result(json(&json!({"message": text}))).await?;
    Ok(Outcome::Completed)
}

async fn remember(context: &Context, text: &str) -> Result<Outcome, AgentError> {
    let mut state: Value = context.state().await?;
    let mut messages = state["messages"].as_array().cloned().unwrap_or_default();
    messages.push(json!(text));
    let said: Vec<_> = messages.iter().filter_map(Value::as_str).collect();
    let said = said.join(" ");
    if !state.is_object() {
        state = json!({});
    }
    state["messages"] = Value::Array(messages);
    context.set_state(json(&state)).await?;
    say(context, &said).await
}

async fn plain(turn: Turn, context: Context) -> Result<(), AgentError> {
    context.text(turn.text()).await
}

fn primitive_card() -> Card {
    let string = json!({"type": "string"});
    Card::schema("primitive", "takes and gives a string", json(&string)).output(json(&string))
}

async fn primitive(turn: Turn, context: Context) -> Result<(), AgentError> {
    let text: String = turn.input().map(Input::parse).transpose()?.unwrap_or_default();
    context.result(json(&json!(text.to_uppercase()))).await
}

fn count_card() -> Card {
    let state = json!({"type": "object", "required": ["count"]});
    Card::schema("counter", "counts", json(&json!({"type": "object"}))).state(json(&state))
}

async fn count(_: Turn, context: Context) -> Result<(), AgentError> {
    let state: Value = context.state().await?;
    let count = state["count"].as_u64().unwrap_or(0) + 1;
    context.set_state(json(&json!({"count": count}))).await?;
    context.result(json(&json!({"count": count}))).await
}

async fn keep_to_itself(_: Turn, context: Context) -> Result<(), AgentError> {
    context.set_state(json(&json!({"secret": true}))).await?;
    context.result(json(&json!({"done": true}))).await
}
