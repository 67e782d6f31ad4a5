//! The terminals of a workspace: commands that an agent runs.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use trilogue_domain::lock;
use trilogue_wire::agent_client::{
    CreateTerminalRequest, CreateTerminalResponse, KillTerminalRequest, KillTerminalResponse,
    ReleaseTerminalRequest, ReleaseTerminalResponse, TerminalOutputRequest, TerminalOutputResponse,
    WaitForTerminalExitRequest, WaitForTerminalExitResponse,
};
use trilogue_wire::jsonrpc::ErrorObject;

use super::command::{self, Family, Running};
use super::{Grants, Place, refusal};

/// The time in which the terminals that are made are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The terminals of a workspace. Clones have the same.
#[derive(Clone)]
pub(super) struct Terminals(Arc<Shared>);

struct Shared {
    place: Arc<Place>,
    grants: Arc<Grants>,
    /// What is ended when this is closed, or nobody is left who could name it.
    family: Family,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By id, until they are released.
    open: HashMap<String, Arc<Running>>,
    /// How many are being started.
    starting: usize,
    /// When those of the last minute were made.
    made: VecDeque<Instant>,
    is_closed: bool,
}

/// A place among the terminals for one that is being started. A close waits for it.
struct Starting {
    shared: Arc<Shared>,
    _token: TaskTrackerToken,
}

// === impl Terminals ===

impl Terminals {
    pub(super) fn new(place: Arc<Place>, grants: Arc<Grants>) -> Self {
        let (family, state) = (Family::default(), Mutex::default());
        Self(Arc::new(Shared { place, grants, family, state }))
    }

    /// Starts a command. Where this is dropped, the command is ended: nobody could name it.
    pub(super) async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let starting = Starting::begin(&self.0)?;
        // Starting a process waits for the system.
        let started = tokio::task::spawn_blocking(move || {
            let Shared { place, grants, family, .. } = &*starting.shared;
            let running = command::start(place, grants, family, &request);
            (starting, running)
        });
        let (starting, running) = started.await.map_err(|_| refusal::lost())?;
        let id = starting.finish(running?)?;
        Ok(refusal::result(&CreateTerminalResponse::new(id)))
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
        self.find(&request.terminal_id)?.end().await;
        Ok(refusal::result(&KillTerminalResponse::new()))
    }

    /// Ends a command and forgets its terminal.
    pub(super) async fn release(
        &self,
        request: &ReleaseTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let id = &request.terminal_id;
        let running = self.0.state().open.remove(id).ok_or_else(|| refusal::not_found(id))?;
        running.end().await;
        Ok(refusal::result(&ReleaseTerminalResponse::new()))
    }

    /// Ends all of them at once, and returns when nothing is left.
    pub(super) async fn close(&self) {
        {
            let mut state = self.0.state();
            state.is_closed = true;
            state.open.clear();
        }
        let Family { stop, tasks } = &self.0.family;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }

    fn find(&self, id: &str) -> Result<Arc<Running>, ErrorObject> {
        self.0.state().open.get(id).cloned().ok_or_else(|| refusal::not_found(id))
    }
}

impl fmt::Debug for Terminals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Terminals")
            .field("open", &self.0.state().open.len())
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.family.stop.cancel();
    }
}

// === impl Starting ===

impl Starting {
    /// Nothing is started behind a close, and never more than may be.
    fn begin(shared: &Arc<Shared>) -> Result<Self, ErrorObject> {
        let mut state = shared.state();
        state.admit(&shared.grants)?;
        state.starting += 1;
        drop(state);
        let _token = shared.family.tasks.token();
        Ok(Self { shared: Arc::clone(shared), _token })
    }

    /// Gives a terminal its name.
    fn finish(&self, running: Running) -> Result<String, ErrorObject> {
        let mut state = self.shared.state();
        if state.is_closed {
            return Err(refusal::lost());
        }
        let id = uuid::Uuid::new_v4().to_string();
        state.made.push_back(Instant::now());
        state.open.insert(id.clone(), Arc::new(running));
        Ok(id)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.shared.state().starting -= 1;
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
        if self.open.len() + self.starting >= most {
            return Err(refusal::refused(format!(
                "there are {most} terminals, which is the most; release one"
            )));
        }
        let now = Instant::now();
        while self.made.front().is_some_and(|made| now.duration_since(*made) >= MINUTE) {
            self.made.pop_front();
        }
        let most = limits.max_terminals_per_minute;
        if self.made.len() + self.starting >= most {
            return Err(refusal::refused(format!(
                "{most} terminals were made within a minute, which is the most"
            )));
        }
        Ok(())
    }
}
