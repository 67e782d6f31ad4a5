//! A model for coding agents on a loopback socket. It answers in the dialect of chat completions, as a test scripts it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use trilogue_domain::lock;

use crate::loopback::Loopback;

pub const NAME: &str = "fake-model";
const PIECE: usize = 4;

#[derive(Debug)]
pub struct Model {
    loopback: Loopback,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    asked: Mutex<Vec<Value>>,
}

/// The tool that is called when the last user message contains these words.
#[derive(Clone, Debug)]
struct Rule {
    words: String,
    tool: String,
    arguments: Value,
}

// === impl Model ===

impl Model {
    pub async fn start() -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let models = json!({"object": "list", "data": [{"id": NAME, "object": "model"}]});
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(models) }))
            .route("/v1/chat/completions", post(complete))
            .with_state(Arc::clone(&shared));
        Ok(Self { loopback: Loopback::serve(router).await?, shared })
    }

    pub fn url(&self) -> String {
        format!("{}/v1", self.loopback.url())
    }

    /// Makes the model call this tool, if it is offered, when a user's message contains these words.
    pub fn calls(&self, words: &str, tool: &str, arguments: Value) {
        let rule = Rule { words: words.to_owned(), tool: tool.to_owned(), arguments };
        lock(&self.shared.rules).push(rule);
    }

    pub fn requests(&self) -> Vec<Value> {
        lock(&self.shared.asked).clone()
    }
}

// === impl Shared ===

impl Shared {
    /// The rule that fits a request; `None` if the last message is the result of a tool.
    fn rule(&self, request: &Value) -> Option<Rule> {
        let last = request["messages"].as_array()?.last()?;
        let text = last["content"].to_string();
        let offered = request["tools"].as_array()?;
        let is_offered =
            |rule: &Rule| offered.iter().any(|tool| tool["function"]["name"] == rule.tool.as_str());
        let rules = lock(&self.rules);
        let fits =
            |rule: &&Rule| last["role"] == "user" && text.contains(&rule.words) && is_offered(rule);
        rules.iter().find(fits).cloned()
    }
}

async fn complete(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Response {
    let rule = shared.rule(&request);
    lock(&shared.asked).push(request.clone());
    let (deltas, reason) = match rule {
        Some(rule) => (call(&rule), "tool_calls"),
        None => (text("It is done."), "stop"),
    };
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
    if request["stream"] != true {
        let mut message = json!({"role": "assistant", "content": "It is done."});
        if let Some(calls) = deltas[0].get("tool_calls") {
            message = json!({"role": "assistant", "content": null, "tool_calls": calls});
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": reason});
        return Json(whole("chat.completion", &choice, Some(&usage))).into_response();
    }
    let chunk = |delta: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        whole("chat.completion.chunk", &choice, None)
    };
    let mut events: Vec<String> = deltas.into_iter().map(|each| chunk(each).to_string()).collect();
    let end = json!({"index": 0, "delta": {}, "finish_reason": reason});
    events.push(whole("chat.completion.chunk", &end, Some(&usage)).to_string());
    events.push("[DONE]".to_owned());
    let events = events.into_iter().map(|data| Ok::<_, Infallible>(Event::default().data(data)));
    Sse::new(futures_util::stream::iter(events)).into_response()
}

fn whole(object: &str, choice: &Value, usage: Option<&Value>) -> Value {
    json!({
        "id": "chat-1", "object": object, "created": 1, "model": NAME,
        "choices": [choice], "usage": usage,
    })
}

fn text(text: &str) -> Vec<Value> {
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters.chunks(PIECE).map(|piece| piece.iter().collect::<String>());
    pieces.map(|piece| json!({"role": "assistant", "content": piece})).collect()
}

fn call(rule: &Rule) -> Vec<Value> {
    let function = json!({"name": rule.tool, "arguments": rule.arguments.to_string()});
    let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
    vec![json!({"role": "assistant", "content": null, "tool_calls": [call]})]
}
