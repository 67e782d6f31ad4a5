//! Sessions, and what was said in them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use trilogue_sdk::agent_client::peer::Peer;

use crate::tools;

/// How often it is looked whether a file is there.
const LOOKED_EVERY: Duration = Duration::from_millis(5);
/// The pause before each update that is said again slowly: far less than what shows a client that nothing more comes.
const SLOWLY: Duration = Duration::from_millis(2);

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    id: String,
    /// What it was opened with.
    opening: Value,
    store: Option<PathBuf>,
    /// Held by the turn that is at work.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Every update that a client has to be told again.
    said: Vec<Value>,
    cancel: CancellationToken,
    model: String,
    verbose: bool,
    /// What is said after the turn.
    later: Vec<Later>,
}

/// What is said after a turn.
#[derive(Debug)]
pub(crate) struct Later {
    /// How long after it.
    pub(crate) time: Duration,
    /// Not before this file is there.
    pub(crate) file: Option<PathBuf>,
    pub(crate) update: Value,
}

// === impl Session ===

impl Session {
    pub(crate) fn new(opening: Value, store: Option<PathBuf>) -> Arc<Self> {
        let id = format!("scripted-{}", uuid::Uuid::new_v4());
        let session = Self::of(id, opening, store, Vec::new());
        session.keep(None);
        session
    }

    /// A session that lies in the store.
    pub(crate) fn stored(opening: Value, store: Option<&Path>) -> Option<Arc<Self>> {
        let id = opening["sessionId"].as_str()?.to_owned();
        let said = std::fs::read_to_string(store?.join(&id)).ok()?;
        let said = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Some(Self::of(id, opening, store.map(Path::to_owned), said))
    }

    fn of(id: String, opening: Value, store: Option<PathBuf>, said: Vec<Value>) -> Arc<Self> {
        let cancel = CancellationToken::new();
        let (model, later) = ("small".to_owned(), Vec::new());
        let state = State { said, cancel, model, verbose: false, later };
        let (turn, state) = (tokio::sync::Mutex::default(), Mutex::new(state));
        Arc::new(Self { id, opening, store, turn, state })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn opening(&self) -> &Value {
        &self.opening
    }

    pub(crate) fn turn(&self) -> &tokio::sync::Mutex<()> {
        &self.turn
    }

    /// How many updates were said so far.
    pub(crate) fn length(&self) -> usize {
        self.lock().said.len()
    }

    /// Is cancelled with every prompt that is at work or waits now.
    pub(crate) fn cancelled(&self) -> CancellationToken {
        self.lock().cancel.clone()
    }

    pub(crate) fn cancel(&self) {
        let next = CancellationToken::new();
        std::mem::replace(&mut self.lock().cancel, next).cancel();
    }

    /// Says something and keeps it.
    pub(crate) async fn update(&self, peer: &Peer, update: Value) {
        self.note(update.clone());
        self.send(peer, &update).await;
    }

    /// Keeps something as said.
    pub(crate) fn note(&self, update: Value) {
        self.keep(Some(&update));
        self.lock().said.push(update);
    }

    async fn send(&self, peer: &Peer, update: &Value) {
        let params = json!({ "sessionId": self.id, "update": update });
        // Without a client there is nobody to be told.
        drop(peer.notify("session/update", &params).await);
    }

    /// Says everything again.
    pub(crate) async fn replay(&self, peer: &Peer) {
        let said = self.lock().said.clone();
        for update in said {
            self.send(peer, &update).await;
        }
    }

    /// Says the first half again, and how much that was.
    pub(crate) async fn replay_first(&self, peer: &Peer) -> usize {
        let said = self.lock().said.clone();
        let half = said.len() / 2;
        for update in said.iter().take(half) {
            self.send(peer, update).await;
        }
        half
    }

    /// Says the rest again, with a pause before each.
    pub(crate) async fn replay_slowly(&self, peer: &Peer, from: usize) {
        let said = self.lock().said.clone();
        for update in said.iter().skip(from) {
            tokio::time::sleep(SLOWLY).await;
            self.send(peer, update).await;
        }
    }

    /// Says something when the turn is over.
    pub(crate) fn say_later(&self, later: Later) {
        self.lock().later.push(later);
    }

    /// The turn is over.
    pub(crate) async fn say_what_is_late(&self, peer: &Peer) {
        let later = std::mem::take(&mut self.lock().later);
        for Later { time, file, update } in later {
            tokio::time::sleep(time).await;
            while file.as_ref().is_some_and(|file| !file.exists()) {
                tokio::time::sleep(LOOKED_EVERY).await;
            }
            self.update(peer, update).await;
        }
    }

    pub(crate) fn set_option(&self, params: &Value) {
        let mut state = self.lock();
        match &params["value"] {
            Value::Bool(verbose) => state.verbose = *verbose,
            value => state.model = value.as_str().unwrap_or_default().to_owned(),
        }
    }

    pub(crate) fn options(&self) -> Value {
        let state = self.lock();
        let models =
            json!([{ "value": "small", "name": "Small" }, { "value": "large", "name": "Large" }]);
        json!([
            { "id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": state.model, "options": models },
            { "id": "verbose", "name": "Verbose", "type": "boolean", "currentValue": state.verbose },
        ])
    }

    fn keep(&self, update: Option<&Value>) {
        if let Some(folder) = &self.store {
            let line = update.map(Value::to_string);
            tools::append(&folder.join(&self.id), line.as_deref().unwrap_or(""));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
