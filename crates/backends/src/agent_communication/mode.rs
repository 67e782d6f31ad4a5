//! The mode in which the agent's server begins and resumes runs: not every server streams.

use std::sync::atomic::{AtomicU8, Ordering};

use trilogue_runtime::RunContext;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::client::communication::{NewRun, Resume, RunStream};
use trilogue_wire::agent_communication::{RunMode, Uuid};

use super::AgentCommunication;

/// The statuses with which a server may refuse a mode that it does not support.
const NO_SUCH_MODE: [u16; 6] = [400, 405, 406, 415, 422, 501];

/// The best mode that the server is known to support.
#[derive(Debug, Default)]
pub(super) struct KnownMode(AtomicU8);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WorkingMode {
    /// The server was not asked yet.
    Unknown = 0,
    Stream = 1,
    Async = 2,
    Sync = 3,
}

// === impl AgentCommunication ===

impl AgentCommunication {
    /// Begins a run as a stream. If the server refuses that, begins it asynchronously and polls; if it refuses that too, begins it synchronously and waits for the end.
    /// `None` if the run here was stopped while it waited for a synchronous response: then the run's id is unknown.
    pub(super) async fn start_run(
        &self,
        new: &NewRun,
        context: &RunContext,
    ) -> Result<Option<RunStream>, ClientError> {
        let known = self.mode.get();
        let mut refused = None;
        if matches!(known, WorkingMode::Unknown | WorkingMode::Stream) {
            match self.client.run_stream(new.clone()).await {
                Err(error) if self.may_lack_mode(&error) => refused = Some(error),
                begun => return begun.inspect(|_| self.mode.set(WorkingMode::Stream)).map(Some),
            }
        }
        if known != WorkingMode::Sync {
            match self.client.run_async(new.clone()).await {
                Err(error) if is_mode_refusal(&error) => refused = refused.or(Some(error)),
                begun => {
                    let run = begun.inspect(|_| self.mode.set(WorkingMode::Async))?;
                    return Ok(Some(self.client.follow_run(run)));
                }
            }
        }
        let answer = tokio::select! {
            answer = self.client.run_sync(new.clone()) => answer,
            () = context.cancelled() => return Ok(None),
        };
        match (answer, refused) {
            (Ok(run), _) => {
                self.mode.set(WorkingMode::Sync);
                Ok(Some(self.client.follow_run(run)))
            }
            // It refuses the run in every mode: the first refusal has the reason.
            (Err(error), Some(refused)) if is_mode_refusal(&error) => Err(refused),
            (Err(error), _) => Err(error),
        }
    }

    /// Resumes a run with an answer, in the mode in which the server begins runs.
    pub(super) async fn resume_run(
        &self,
        run: Uuid,
        answer: &Resume,
    ) -> Result<RunStream, ClientError> {
        let resume = |mode| self.client.resume_as(run, answer.clone(), mode);
        match self.mode.get() {
            WorkingMode::Unknown => {}
            WorkingMode::Stream => return resume(RunMode::Stream).await,
            WorkingMode::Async => return resume(RunMode::Async).await,
            WorkingMode::Sync => return resume(RunMode::Sync).await,
        }
        let mut refused = None;
        for mode in [RunMode::Stream, RunMode::Async] {
            match resume(mode).await {
                Err(error) if self.may_lack_mode(&error) => refused = refused.or(Some(error)),
                resumed => return resumed,
            }
        }
        // If it refuses the answer in every mode, the first refusal has the reason.
        resume(RunMode::Sync).await.map_err(|error| refused.unwrap_or(error))
    }

    /// Whether a stream may have been refused because the server does not support streams.
    fn may_lack_mode(&self, error: &ClientError) -> bool {
        self.mode.get() == WorkingMode::Unknown && !self.is_ours() && is_mode_refusal(error)
    }
}

fn is_mode_refusal(error: &ClientError) -> bool {
    let ClientError::Refused(refusal) = error else { return false };
    refusal.status.is_some_and(|status| NO_SUCH_MODE.contains(&status))
}

// === impl KnownMode ===

impl KnownMode {
    fn get(&self) -> WorkingMode {
        match self.0.load(Ordering::Relaxed) {
            1 => WorkingMode::Stream,
            2 => WorkingMode::Async,
            3 => WorkingMode::Sync,
            _ => WorkingMode::Unknown,
        }
    }

    fn set(&self, mode: WorkingMode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}
