//! The terminals of a workspace: commands that an agent runs.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use trilogue_wire::agent_client::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::command::{self, Running};
use super::{Grants, Place, refusal};

/// The time in which the terminals that are made are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The terminals of a workspace. Clones have the same.
#[derive(Clone)]
pub(super) struct Terminals(Arc<Shared>);

struct Shared {
    place: Arc<Place>,
    grants: Arc<Grants>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By id, until they are released.
    open: HashMap<String, Arc<Running>>,
    /// When those of the last minute were made.
    made: VecDeque<Instant>,
    is_closed: bool,
}

// === impl Terminals ===

impl Terminals {
    pub(super) fn new(place: Arc<Place>, grants: Arc<Grants>) -> Self {
        Self(Arc::new(Shared { place, grants, state: Mutex::default() }))
    }

    /// Starts a command.
    pub(super) async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let terminals = self.clone();
        // Starting a process waits for the system.
        let made = tokio::task::spawn_blocking(move || terminals.start(&request));
        let id = made.await.map_err(|_| refusal::lost())??;
        Ok(refusal::result(&CreateTerminalResponse::new(id)))
    }

    /// Nothing is started behind a close, and never more than may be.
    fn start(&self, request: &CreateTerminalRequest) -> Result<String, ErrorObject> {
        let Shared { place, grants, .. } = &*self.0;
        let mut state = self.state();
        state.admit(grants)?;
        let running = command::start(place, grants, request)?;
        let id = uuid::Uuid::new_v4().to_string();
        state.made.push_back(Instant::now());
        state.open.insert(id.clone(), Arc::new(running));
        Ok(id)
    }

    /// What a terminal shows.
    pub(super) fn output(&self, request: &TerminalOutputRequest) -> Result<Vec<u8>, ErrorObject> {
        let running = self.find(&request.terminal_id)?;
        let (text, truncated) = running.output();
        let mut response = TerminalOutputResponse::new(text, truncated);
        response.exit_status = running.ended();
        Ok(refusal::result(&response))
    }

    /// Waits until a command ended.
    pub(super) async fn wait(
        &self,
        request: &WaitForTerminalExitRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let running = self.find(&request.terminal_id)?;
        let status = running.wait().await.ok_or_else(refusal::lost)?;
        let mut response = WaitForTerminalExitResponse::new();
        response.exit_code = status.exit_code;
        response.signal = status.signal;
        Ok(refusal::result(&response))
    }

    /// Ends a command. Its terminal stays.
    pub(super) async fn kill(&self, request: &KillTerminalRequest) -> Result<Vec<u8>, ErrorObject> {
        self.find(&request.terminal_id)?.end(self.0.grants.limits.kill_grace).await;
        Ok(refusal::result(&KillTerminalResponse::new()))
    }

    /// Ends a command and forgets its terminal.
    pub(super) async fn release(
        &self,
        request: &ReleaseTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let id = &request.terminal_id;
        let running = self.state().open.remove(id).ok_or_else(|| refusal::not_found(id))?;
        running.end(self.0.grants.limits.kill_grace).await;
        Ok(refusal::result(&ReleaseTerminalResponse::new()))
    }

    /// Ends all of them at once.
    pub(super) async fn close(&self) {
        let open: Vec<_> = {
            let mut state = self.state();
            state.is_closed = true;
            state.open.drain().map(|(_, running)| running).collect()
        };
        let grace = self.0.grants.limits.kill_grace;
        join_all(open.iter().map(|running| running.end(grace))).await;
    }

    fn find(&self, id: &str) -> Result<Arc<Running>, ErrorObject> {
        self.state().open.get(id).cloned().ok_or_else(|| refusal::not_found(id))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Terminals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminals").field("open", &self.state().open.len()).finish_non_exhaustive()
    }
}

// === impl State ===

impl State {
    /// Whether one more may be made.
    fn admit(&mut self, grants: &Grants) -> Result<(), ErrorObject> {
        if self.is_closed {
            return Err(refusal::lost());
        }
        let limits = &grants.limits;
        let most = limits.max_terminals;
        if self.open.len() >= most {
            return Err(refusal::refused(format!(
                "there are {most} terminals, which is the most; release one"
            )));
        }
        let now = Instant::now();
        while self.made.front().is_some_and(|made| now.duration_since(*made) >= MINUTE) {
            self.made.pop_front();
        }
        let most = limits.max_terminals_per_minute;
        if self.made.len() >= most {
            return Err(refusal::refused(format!(
                "{most} terminals were made within a minute, which is the most"
            )));
        }
        Ok(())
    }
}
