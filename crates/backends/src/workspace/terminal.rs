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

use super::command::{self, CommandGroup, RunningCommand};
use super::{Grants, Root, refusal};

const MINUTE: Duration = Duration::from_secs(60);

/// The terminals of a workspace. Clones share them.
#[derive(Clone)]
pub(super) struct Terminals(Arc<TerminalTable>);

struct TerminalTable {
    root: Arc<Root>,
    grants: Arc<Grants>,
    /// Stopped when the terminals are closed or their last clone is dropped.
    group: CommandGroup,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By id, until they are released.
    open: HashMap<String, Arc<RunningCommand>>,
    /// The number of terminals that are being started.
    starting: usize,
    /// The creation times of the last minute's terminals.
    created: VecDeque<Instant>,
    is_closed: bool,
}

/// Counts a terminal that is being created. A close waits for it.
struct CreateGuard {
    shared: Arc<TerminalTable>,
    _token: TaskTrackerToken,
}

// === impl Terminals ===

impl Terminals {
    pub(super) fn new(root: Arc<Root>, grants: Arc<Grants>) -> Self {
        let (group, state) = (CommandGroup::default(), Mutex::default());
        Self(Arc::new(TerminalTable { root, grants, group, state }))
    }

    /// Starts a command. Dropping the future stops the command, because no caller would know its id.
    pub(super) async fn create(
        &self,
        request: CreateTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let guard = CreateGuard::begin(&self.0)?;
        // Spawning a process blocks.
        let started = tokio::task::spawn_blocking(move || {
            let TerminalTable { root, grants, group, .. } = &*guard.shared;
            let running = command::start(root, grants, group, &request);
            (guard, running)
        });
        let (guard, running) = started.await.map_err(|_| refusal::shutting_down())?;
        let id = guard.finish(running?)?;
        Ok(refusal::result(&CreateTerminalResponse::new(id)))
    }

    pub(super) fn output(&self, request: &TerminalOutputRequest) -> Result<Vec<u8>, ErrorObject> {
        let running = self.find(&request.terminal_id)?;
        let (text, truncated) = running.output();
        let mut response = TerminalOutputResponse::new(text, truncated);
        response.exit_status = running.exit_status();
        Ok(refusal::result(&response))
    }

    pub(super) async fn wait(
        &self,
        request: &WaitForTerminalExitRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let running = self.find(&request.terminal_id)?;
        let status = running.wait().await.ok_or_else(refusal::shutting_down)?;
        let mut response = WaitForTerminalExitResponse::new();
        response.exit_code = status.exit_code;
        response.signal = status.signal;
        Ok(refusal::result(&response))
    }

    pub(super) async fn kill(&self, request: &KillTerminalRequest) -> Result<Vec<u8>, ErrorObject> {
        self.find(&request.terminal_id)?.stop().await;
        Ok(refusal::result(&KillTerminalResponse::new()))
    }

    /// Stops a command and removes its terminal.
    pub(super) async fn release(
        &self,
        request: &ReleaseTerminalRequest,
    ) -> Result<Vec<u8>, ErrorObject> {
        let id = &request.terminal_id;
        let running = self.0.state().open.remove(id).ok_or_else(|| refusal::not_found(id))?;
        running.stop().await;
        Ok(refusal::result(&ReleaseTerminalResponse::new()))
    }

    /// Stops all commands. Returns when no process of them is left.
    pub(super) async fn close(&self) {
        {
            let mut state = self.0.state();
            state.is_closed = true;
            state.open.clear();
        }
        let CommandGroup { stop, tasks } = &self.0.group;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }

    fn find(&self, id: &str) -> Result<Arc<RunningCommand>, ErrorObject> {
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

// === impl TerminalTable ===

impl TerminalTable {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for TerminalTable {
    fn drop(&mut self) {
        self.group.stop.cancel();
    }
}

// === impl CreateGuard ===

impl CreateGuard {
    /// Refuses a terminal after a close or above a limit.
    fn begin(shared: &Arc<TerminalTable>) -> Result<Self, ErrorObject> {
        let mut state = shared.state();
        state.admit(&shared.grants)?;
        state.starting += 1;
        drop(state);
        let _token = shared.group.tasks.token();
        Ok(Self { shared: Arc::clone(shared), _token })
    }

    fn finish(&self, running: RunningCommand) -> Result<String, ErrorObject> {
        let mut state = self.shared.state();
        if state.is_closed {
            return Err(refusal::shutting_down());
        }
        let id = uuid::Uuid::new_v4().to_string();
        state.created.push_back(Instant::now());
        state.open.insert(id.clone(), Arc::new(running));
        Ok(id)
    }
}

impl Drop for CreateGuard {
    fn drop(&mut self) {
        self.shared.state().starting -= 1;
    }
}

// === impl State ===

impl State {
    /// Whether one more may be created.
    fn admit(&mut self, grants: &Grants) -> Result<(), ErrorObject> {
        if self.is_closed {
            return Err(refusal::shutting_down());
        }
        let limits = &grants.limits;
        let most = limits.max_terminals;
        if self.open.len() + self.starting >= most {
            return Err(refusal::invalid_params(format!(
                "all {most} terminals are open; release one first"
            )));
        }
        let now = Instant::now();
        while self.created.front().is_some_and(|created| now.duration_since(*created) >= MINUTE) {
            self.created.pop_front();
        }
        let most = limits.max_terminals_per_minute;
        if self.created.len() + self.starting >= most {
            return Err(refusal::invalid_params(format!(
                "{most} terminals were created within a minute; wait before you create another"
            )));
        }
        Ok(())
    }
}
