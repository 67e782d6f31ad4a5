//! An agent that keeps sessions of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use trilogue_domain::{AgentCard, Code, Failure, Json, MessageId, ThreadId};
use trilogue_runtime::{
    Backend, CallError, Client, Ending, Input, MemoryState, Rewind, RunContext, RunRequest,
    Sessions, ThreadChoice, ThreadContext, Turn,
};

use crate::fixture::{Scripted, TestServer, new_run, say};

/// An agent that keeps sessions, forgets them on request, and executes its input.
#[derive(Debug)]
pub struct Keeper {
    inner: Scripted,
    pub forgotten: Mutex<Vec<ThreadId>>,
    /// How often it was asked to forget.
    pub told: AtomicUsize,
    /// Forgetting waits for a permit of this semaphore.
    pub may_forget: Semaphore,
    pub gate: Semaphore,
}

/// Adds such an agent, named `keeper`, to a server.
pub async fn with_keeper(server: TestServer) -> (TestServer, Arc<Keeper>) {
    let keeper = Arc::new(Keeper::new(Semaphore::MAX_PERMITS));
    server.runtime.register(keeper.clone()).unwrap();
    (server, keeper)
}

pub fn keeps(thread: &ThreadId, text: &str) -> RunRequest {
    let agent = trilogue_domain::AgentName::parse("keeper").unwrap();
    RunRequest { agent, ..new_run(text, ThreadChoice::Existing(thread.clone())) }
}

// === impl Keeper ===

impl Keeper {
    pub fn new(may_forget: usize) -> Self {
        Self {
            inner: Scripted::new("keeper", false),
            forgotten: Mutex::default(),
            told: AtomicUsize::new(0),
            may_forget: Semaphore::new(may_forget),
            gate: Semaphore::new(0),
        }
    }

    async fn word(&self, word: &str, prompt: &MessageId, context: &RunContext) {
        let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
        match verb {
            "say" => say(context, rest).await,
            "gate" => self.gate.acquire().await.unwrap().forget(),
            "commit" => context.commit().await.unwrap(),
            "bind" => context.bind(rest, Json::empty_object()).await.unwrap(),
            "alias" => context.alias(prompt, &MessageId::parse(rest).unwrap()),
            "standing" => {
                let standing = match context.memory_state(usize::MAX).await.unwrap() {
                    MemoryState::Unbound => "unbound".to_owned(),
                    MemoryState::Bound { binding, missed } => {
                        format!("{} missed {}", binding.remote, missed.messages.len())
                    }
                    MemoryState::Rewound { binding } => format!("{} rewound", binding.remote),
                };
                say(context, &standing).await;
            }
            "client" => {
                let info = context.client().and_then(|profile| profile.info);
                say(context, info.as_ref().map_or("none", Json::as_str)).await;
            }
            "call" => {
                let told = match context.call_client(rest, Json::empty_object()).await {
                    Ok(result) => result.as_str().to_owned(),
                    Err(error) => error.to_string(),
                };
                say(context, &told).await;
            }
            other => panic!("no such word: {other}"),
        }
    }
}

#[async_trait]
impl Backend for Keeper {
    fn card(&self) -> &AgentCard {
        &self.inner.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn rewind(&self) -> Rewind {
        Rewind::Prime
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Turn::Start { input: Input::Messages(messages) } = turn else {
            panic!("{turn:?}");
        };
        let prompt = messages.last().unwrap();
        for word in prompt.text().split_whitespace() {
            if word == "fail" {
                return Err(Failure::of(Code::AgentFailed, "it was told to"));
            }
            self.word(word, &prompt.id, &context).await;
        }
        Ok(Ending::Completed)
    }
}

#[async_trait]
impl Sessions for Keeper {
    fn dialect(&self) -> (&str, u32) {
        ("keeping", 1)
    }

    async fn greet(&self, _caller: &Arc<dyn Client>) -> Result<Json, CallError> {
        Ok(Json::empty_object())
    }

    async fn open(
        &self,
        thread: &ThreadContext,
        _caller: &Arc<dyn Client>,
        params: Json,
    ) -> Result<Json, CallError> {
        let remote = params.to_value()["remote"].as_str().unwrap().to_owned();
        let bound = thread.bind(&remote, Json::empty_object()).await;
        bound.map(|()| Json::null()).map_err(|_| CallError::not_connected())
    }

    async fn call(
        &self,
        _thread: Option<&ThreadContext>,
        _caller: &Arc<dyn Client>,
        method: &str,
        _params: Json,
    ) -> Result<Json, CallError> {
        Err(CallError::new(CallError::METHOD_NOT_FOUND, method))
    }

    async fn notify(
        &self,
        _thread: Option<&ThreadContext>,
        _caller: &Arc<dyn Client>,
        _method: &str,
        _params: Json,
    ) {
    }

    async fn close(&self, _thread: &ThreadContext) {}

    async fn forget(&self, thread: &ThreadContext) {
        self.told.fetch_add(1, Ordering::SeqCst);
        self.may_forget.acquire().await.unwrap().forget();
        self.forgotten.lock().unwrap().push(thread.thread().clone());
    }
}
