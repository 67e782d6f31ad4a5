//! The probe's agent. It keeps its memory itself, like a remote agent or a child process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use serde_json::json;
use trilogue_domain::event::{Body, MessageEvent, Original};
use trilogue_domain::lock;
use trilogue_domain::{AgentCard, Error, Failure, Json, Message, MessageId, Result, Role};
use trilogue_runtime::{Backend, EmitError, Ending, Input, MemoryState, Rewind, RunContext, Turn};

use super::dialect::Notification;
use crate::parts::chat_card;

/// A backend that keeps each conversation in a separate session, and answers with the number of texts that it remembers.
///
/// It receives exactly the texts that it missed: the count would show a text that came twice or never.
#[derive(Clone, Debug)]
pub struct ProbeAgent {
    card: AgentCard,
    rewind: Rewind,
    process: Arc<Process>,
}

#[derive(Debug, Default)]
struct Process {
    /// The texts of each session, both sides, oldest first.
    sessions: Mutex<HashMap<String, Vec<String>>>,
    begun: AtomicU64,
}

// === impl ProbeAgent ===

impl ProbeAgent {
    pub fn new(name: &str, rewind: Rewind) -> Result<Self> {
        let card = chat_card(name, &["text/plain"], &["text/plain"]);
        Ok(Self { card, rewind, process: Arc::default() })
    }

    /// The texts that it remembers of a session, both sides, oldest first.
    pub fn remembered_texts(&self, session: &str) -> Vec<String> {
        self.process.lock().get(session).cloned().unwrap_or_default()
    }

    pub fn forget(&self) {
        self.process.lock().clear();
    }

    async fn session(&self, context: &RunContext) -> Result<String, Failure> {
        if let MemoryState::Bound { binding, missed } =
            context.memory_state(usize::MAX).await.map_err(|error| to_failure(&error))?
            && self.process.has_session(&binding.remote)
        {
            self.process.add_texts(&binding.remote, missed.messages.iter().map(Message::text));
            return Ok(binding.remote);
        }
        let session = self.process.begin();
        context.bind(&session, Json::empty_object()).await.map_err(|_| stopped_failure())?;
        let history = context.history().await.map_err(|error| to_failure(&error))?;
        self.process.add_texts(&session, history.iter().map(Message::text));
        Ok(session)
    }
}

#[async_trait]
impl Backend for ProbeAgent {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn rewind(&self) -> Rewind {
        self.rewind
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let asked = match turn {
            Turn::Start { input: Input::Messages(messages) } => {
                messages.iter().map(Message::text).collect::<Vec<_>>().join("\n")
            }
            Turn::Start { input: Input::Value(value) } => value.as_str().to_owned(),
            Turn::Resume { .. } | Turn::Rejoin { .. } => {
                return Err(failure("invalid_input", "probe never suspends"));
            }
        };
        let session = self.session(&context).await?;
        let count = self.process.add_texts(&session, [asked]);
        let answer = format!("{count} texts remembered");
        for (body, original) in answer_events(&answer, count).map_err(|error| to_failure(&error))? {
            context.emit(body, original).await.map_err(|error| match error {
                EmitError::Stopped => stopped_failure(),
                EmitError::Refused(error) => to_failure(&error),
            })?;
        }
        self.process.add_texts(&session, [answer]);
        Ok(Ending::Completed)
    }
}

// === impl Process ===

impl Process {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<String>>> {
        lock(&self.sessions)
    }

    fn has_session(&self, session: &str) -> bool {
        self.lock().contains_key(session)
    }

    fn begin(&self) -> String {
        let session = format!("session-{}", self.begun.fetch_add(1, Ordering::Relaxed) + 1);
        self.lock().insert(session.clone(), Vec::new());
        session
    }

    fn add_texts(&self, session: &str, texts: impl IntoIterator<Item = String>) -> usize {
        let mut sessions = self.lock();
        let known = sessions.entry(session.to_owned()).or_default();
        known.extend(texts);
        known.len()
    }
}

/// The events of an answer: one of Trilogue's own, then the peer's events with their originals.
fn answer_events(text: &str, count: usize) -> Result<Vec<(Body, Option<Original>)>> {
    let message = MessageId::generate();
    let notifications = [
        Notification::Think("counting".to_owned()),
        Notification::Unknown("wobble".to_owned(), json!({"count": count})),
        Notification::Say { message: message.as_str().to_owned(), text: text.to_owned() },
    ];
    let started =
        MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None };
    let mut events = vec![(Body::Message(started), None)];
    for notification in &notifications {
        let (body, original) = notification.event()?;
        events.push((body, Some(original)));
    }
    events.push((Body::Message(MessageEvent::Completed { message }), None));
    Ok(events)
}

fn to_failure(error: &Error) -> Failure {
    failure(error.code().as_str(), error.message())
}

fn stopped_failure() -> Failure {
    failure("agent_failed", "the run was stopped")
}

fn failure(code: &str, message: &str) -> Failure {
    Failure { code: code.to_owned(), message: message.to_owned(), transient: false, data: None }
}
