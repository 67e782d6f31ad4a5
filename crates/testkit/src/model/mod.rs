//! A model for coding agents on a loopback socket. It answers as a test scripts it, in four dialects: chat completions, Anthropic's messages, OpenAI's responses
//! and Gemini's.

mod chat;
mod gemini;
mod messages;
mod responses;
mod script;

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use axum::extract::{Path, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::StreamExt as _;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use trilogue_domain::lock;

use crate::loopback::Loopback;
use crate::wait::until;

pub use script::Step;
use script::{Conversation, Script};

pub const NAME: &str = "fake-model";
/// What the model says without a script.
const USUAL_ANSWER: &str = "It is done.";
/// The characters of one piece of a text.
const PIECE: usize = 4;

#[derive(Debug)]
pub struct Model {
    loopback: Loopback,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    scripts: Mutex<Vec<Script>>,
    asked: Mutex<Vec<Value>>,
    open: watch::Sender<HashSet<String>>,
    reached: Mutex<HashSet<String>>,
}

/// The name and the data of an event of a stream. A name is empty where the dialect has none.
type NamedData = (&'static str, String);

/// How a dialect shows requests and answers.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    conversation: fn(&Value) -> Conversation,
    /// The events of a step: those before its gate, and those after it.
    events: fn(&Step, &Value) -> [Vec<NamedData>; 2],
    /// A step as one object, for requests that do not stream.
    whole: fn(&Step, &Value) -> Value,
}

// === impl Model ===

impl Model {
    pub async fn start() -> Result<Self> {
        let shared = Arc::new(Shared {
            scripts: Mutex::default(),
            asked: Mutex::default(),
            open: watch::Sender::default(),
            reached: Mutex::default(),
        });
        // Each dialect's client finds its own list.
        let models =
            json!({"object": "list", "data": [{"id": NAME, "object": "model"}], "models": []});
        let dialect = |dialect: Dialect| {
            post(move |State(shared): State<Arc<Shared>>, Json(request): Json<Value>| async move {
                shared.answer(dialect, &request)
            })
        };
        let gemini = post(
            |State(shared): State<Arc<Shared>>,
             Path(call): Path<String>,
             Json(mut request): Json<Value>| async move {
                request["stream"] = json!(call.ends_with(gemini::STREAMING_CALL));
                shared.answer(gemini::DIALECT, &request)
            },
        );
        let router = Router::new()
            .route("/v1/models", get(|| async { Json(models) }))
            .route("/v1/chat/completions", dialect(chat::DIALECT))
            .route("/v1/messages", dialect(messages::DIALECT))
            .route("/v1/messages/count_tokens", post(|| async { Json(json!({"input_tokens": 7})) }))
            .route("/v1/responses", dialect(responses::DIALECT))
            .route("/v1beta/models/{call}", gemini)
            .with_state(Arc::clone(&shared));
        Ok(Self { loopback: Loopback::serve(router).await?, shared })
    }

    /// The address of the API.
    pub fn url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// The address without a path.
    pub fn origin(&self) -> String {
        self.loopback.url()
    }

    /// Makes the model call this tool, if it is offered, when a user's message contains these words.
    pub fn calls(&self, words: &str, tool: &str, arguments: Value) {
        self.script(words, [Step::call(tool, arguments)]);
    }

    /// Makes the model answer a user's message that contains these words with these steps: one for each request of the turn. The first script that fits
    /// counts.
    pub fn script(&self, words: &str, steps: impl IntoIterator<Item = Step>) {
        let steps = steps.into_iter().collect();
        lock(&self.shared.scripts).push(Script { words: words.to_owned(), steps });
    }

    /// Lets the steps behind this gate continue.
    pub fn open(&self, gate: &str) {
        self.shared.open.send_if_modified(|open| open.insert(gate.to_owned()));
    }

    /// Waits until a step has reached this gate.
    pub async fn reach(&self, gate: &str, limit: Duration) -> Result<()> {
        until("a step at the gate", limit, || {
            let is_reached = lock(&self.shared.reached).contains(gate);
            async move { is_reached.then_some(()) }
        })
        .await
    }

    pub fn requests(&self) -> Vec<Value> {
        lock(&self.shared.asked).clone()
    }
}

// === impl Shared ===

impl Shared {
    fn answer(self: Arc<Self>, dialect: Dialect, request: &Value) -> Response {
        let conversation = (dialect.conversation)(request);
        let step = conversation.step(&lock(&self.scripts));
        let number = {
            let mut asked = lock(&self.asked);
            asked.push(request.clone());
            asked.len()
        };
        let mut step = step.unwrap_or_else(|| Step::text(USUAL_ANSWER));
        step.number = number;
        for (index, call) in step.calls.iter_mut().enumerate() {
            call.id = format!("call_{number}_{index}");
        }
        if request["stream"] != true {
            return Json((dialect.whole)(&step, request)).into_response();
        }
        let [before, after] = (dialect.events)(&step, request);
        let pace = step.pace;
        let wait = async move {
            if let Some(gate) = step.gate {
                lock(&self.reached).insert(gate.clone());
                // The sender is part of what this task owns.
                let _ = self.open.subscribe().wait_for(|open| open.contains(&gate)).await;
            }
            stream::iter(after)
        };
        let events = stream::iter(before).chain(stream::once(wait).flatten());
        let events = events.map(|(name, data)| {
            let event = Event::default().data(data);
            Ok::<_, Infallible>(if name.is_empty() { event } else { event.event(name) })
        });
        let events = events.then(move |event| async move {
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            event
        });
        Sse::new(events).into_response()
    }
}

/// The text in pieces.
fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(PIECE).map(|piece| piece.iter().collect()).collect()
}

/// The names in a list of tools.
fn names(tools: &Value, name: impl Fn(&Value) -> &Value) -> Vec<String> {
    let tools = tools.as_array().into_iter().flatten();
    tools.filter_map(|tool| name(tool).as_str().map(str::to_owned)).collect()
}

/// The text of a content: of a text, or of the parts of a list that have one.
fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    let texts: Vec<_> = parts.filter_map(|part| part["text"].as_str()).collect();
    texts.join("\n")
}
