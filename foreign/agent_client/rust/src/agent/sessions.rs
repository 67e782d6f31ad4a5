//! The sessions of the agent.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// The modes of every session.
pub const MODES: [&str; 2] = ["ask", "code"];

/// The stored state of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    pub cwd: String,
    pub mode: String,
    pub model: String,
    /// The updates that a load replays.
    pub history: Vec<Value>,
    #[serde(skip)]
    pub cancelled: bool,
}

/// All sessions, and the capabilities that were negotiated for them.
#[derive(Debug)]
pub struct Sessions {
    state: Option<PathBuf>,
    open: Mutex<BTreeMap<String, Session>>,
    authenticated: AtomicBool,
    forms: AtomicBool,
}

// === impl Sessions ===

impl Sessions {
    pub fn from_arguments() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let state = words.iter().position(|word| word == "--state");
        Self {
            state: state.and_then(|at| words.get(at + 1)).map(PathBuf::from),
            open: Mutex::default(),
            authenticated: AtomicBool::new(!words.iter().any(|word| word == "--auth")),
            forms: AtomicBool::new(false),
        }
    }

    pub fn met(&self, forms: bool) {
        self.forms.store(forms, Ordering::Relaxed);
    }

    pub fn has_forms(&self) -> bool {
        self.forms.load(Ordering::Relaxed)
    }

    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }

    pub fn authenticate(&self, method: &str) -> Result<Value> {
        if method != "key" {
            return Err(Error::invalid_params().data(json!({"methodId": method})));
        }
        self.authenticated.store(true, Ordering::Relaxed);
        Ok(json!({}))
    }

    pub fn create(&self, cwd: &str) -> Result<Value> {
        if !self.is_authenticated() {
            return Err(Error::auth_required());
        }
        let id = Uuid::new_v4().to_string();
        let session = Session {
            cwd: cwd.to_owned(),
            mode: "ask".to_owned(),
            model: "small".to_owned(),
            history: Vec::new(),
            cancelled: false,
        };
        self.lock().insert(id.clone(), session);
        self.keep(&id)?;
        let mut setup = self.setup(&id)?;
        setup["sessionId"] = json!(id);
        Ok(setup)
    }

    /// The members of a response that opens a session.
    pub fn setup(&self, id: &str) -> Result<Value> {
        let session = self.change(id, |session| session.clone())?;
        let modes: Vec<Value> =
            MODES.iter().map(|mode| json!({"id": mode, "name": mode})).collect();
        let values = ["small", "large"].map(|value| json!({"value": value, "name": value}));
        Ok(json!({
            "modes": {"currentModeId": session.mode, "availableModes": modes},
            "configOptions": [{
                "id": "model", "name": "Model", "category": "model", "type": "select",
                "currentValue": session.model, "options": values,
            }],
        }))
    }

    pub fn history(&self, id: &str) -> Result<Vec<Value>> {
        self.change(id, |session| session.history.clone())
    }

    pub fn list(&self, cwd: Option<&str>) -> Value {
        let open = self.lock();
        let found: Vec<Value> = open
            .iter()
            .filter(|(_, session)| cwd.is_none_or(|cwd| session.cwd == cwd))
            .map(|(id, session)| json!({"sessionId": id, "cwd": session.cwd}))
            .collect();
        json!({"sessions": found})
    }

    pub fn close(&self, id: &str) -> Result<()> {
        self.change(id, |session| session.cancelled = true)?;
        self.lock().remove(id);
        Ok(())
    }

    /// Reads or changes a session; loads it from its file if it is not open.
    pub fn change<T>(&self, id: &str, change: impl FnOnce(&mut Session) -> T) -> Result<T> {
        let mut open = self.lock();
        if !open.contains_key(id)
            && let Some(session) = self.read(id)
        {
            open.insert(id.to_owned(), session);
        }
        match open.get_mut(id) {
            Some(session) => Ok(change(session)),
            None => Err(Error::new(-32002, "Resource not found").data(json!({"sessionId": id}))),
        }
    }

    pub fn keep(&self, id: &str) -> Result<()> {
        let Some(folder) = &self.state else { return Ok(()) };
        let session = self.change(id, |session| session.clone())?;
        let bytes = serde_json::to_vec(&session)?;
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join(format!("{id}.json")), bytes))
            .map_err(Error::into_internal_error)
    }

    fn read(&self, id: &str) -> Option<Session> {
        let file = self.state.as_ref()?.join(format!("{id}.json"));
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
