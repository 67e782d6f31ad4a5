//! Logs the events of a run at another server, until it ends or asks a question.

use std::time::Duration;

use tokio::time::timeout;
use trilogue_domain::{Body, Failure};
use trilogue_runtime::{EmitError, Ending, RunContext};
use trilogue_sdk::client::{ClientError, TransportError};

use crate::output_warning::OutputWarning;

use super::message_ids::{RemoteIds, ReplacedId};
use super::turn::{RemoteEnding, RemoteTurn, RemoteUpdate};

/// How long a server may take to answer a cancellation.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// Follows a turn at another server to its end. Cancels the run there if it cannot be followed.
pub(super) async fn follow<T: RemoteTurn>(
    turn: T,
    context: &RunContext,
) -> Result<Ending, Failure> {
    let is_cancelling = context.is_cancelled();
    let warning = OutputWarning::default();
    let mut follower = TurnFollower {
        turn,
        context,
        is_state_saved: false,
        is_cancelling,
        is_cancel_sent: false,
        warning,
        ids: RemoteIds::default(),
        unlogged_events: 0,
    };
    match follower.ending().await {
        Ok(Some(ending)) => follower.settle(ending),
        Ok(None) => Ok(Ending::Completed),
        Err(failure) => {
            // The run may still be at work at the server, and its events have no reader now.
            follower.send_cancel().await;
            Err(failure)
        }
    }
}

struct TurnFollower<'a, T> {
    turn: T,
    context: &'a RunContext,
    /// Whether the state to find the run again after a restart was saved.
    is_state_saved: bool,
    is_cancelling: bool,
    /// Whether the cancellation was sent to the server.
    is_cancel_sent: bool,
    warning: OutputWarning,
    ids: RemoteIds,
    /// The events that logged nothing, such as a state that did not change.
    unlogged_events: u64,
}

impl<T: RemoteTurn> TurnFollower<'_, T> {
    /// Logs events until the turn ends, and returns how it ended there. Returns `None` if the run here was stopped first.
    /// Fails if the run cannot be followed any further.
    async fn ending(&mut self) -> Result<Option<RemoteEnding>, Failure> {
        loop {
            self.save_state()?;
            self.cancel().await;
            let next = tokio::select! {
                biased;
                next = self.turn.next() => next,
                () = self.context.cancelled(), if !self.is_cancelling => {
                    self.is_cancelling = true;
                    continue;
                }
            };
            self.save_state()?;
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => self.final_event().await?,
                Err(_) if self.is_cancelling => return Ok(None),
                Err(error) => return Err(self.turn.lost_failure(&error)),
            };
            let RemoteUpdate { mut bodies, ending } =
                self.turn.read(event).map_err(|error| self.output_failure(&error))?;
            if bodies.is_empty() {
                self.unlogged_events += 1;
                self.check_output()?;
            }
            tokio::select! {
                biased;
                // Content that was not fetched before the cancellation keeps its address.
                () = self.context.cancelled() => {}
                () = self.turn.remote().fetch_contents(&mut bodies, self.context) => {}
            }
            if !self.log(bodies).await? {
                return Ok(None);
            }
            if ending.is_some() {
                return Ok(ending);
            }
        }
    }

    fn save_state(&mut self) -> Result<(), Failure> {
        if !self.is_state_saved
            && let Some(saved) = self.turn.state_to_save()?
        {
            self.is_state_saved = true;
            self.context.keep(saved);
        }
        Ok(())
    }

    /// Sends a requested cancellation to the server, as soon as the server can receive it.
    async fn cancel(&mut self) {
        if self.is_cancelling {
            self.send_cancel().await;
        }
    }

    /// Asks the server to cancel the run, if [`RemoteTurn::can_cancel`]. Does so only once, and waits at most [`CANCEL_TIME`].
    async fn send_cancel(&mut self) {
        if !self.is_cancel_sent && self.turn.can_cancel() {
            self.is_cancel_sent = true;
            let told = timeout(CANCEL_TIME, self.turn.cancel()).await;
            let unanswered = || stream_error("the server does not answer");
            if let Err(error) = told.unwrap_or_else(|_| Err(unanswered())) {
                let (agent, run) = (self.context.agent(), self.turn.run());
                tracing::info!(%agent, run = ?run, %error, "a run at another server could not be cancelled");
            }
        }
    }

    /// Requests the state of the run after its stream ended without the run's end. Fails if the run is still at work.
    async fn final_event(&mut self) -> Result<T::Event, Failure> {
        let unknown = || stream_error("its stream ended, and the run has not");
        let found =
            self.turn.current_state().await.map_err(|error| self.turn.lost_failure(&error))?;
        found.ok_or_else(|| self.turn.lost_failure(&unknown()))
    }

    /// Logs the events of a turn, in order. Returns `false` if the run here was stopped.
    async fn log(&mut self, bodies: Vec<Body>) -> Result<bool, Failure> {
        for mut body in bodies {
            let replaced = self.ids.replace_taken(&mut body, self.context).await;
            let replaced = replaced.map_err(|error| self.output_failure(&error))?;
            self.warning.note(&body, self.context);
            match self.context.emit(body, None).await {
                Ok(()) => self.check_output()?,
                Err(EmitError::Stopped) => return Ok(false),
                Err(EmitError::Refused(error)) => return Err(self.output_failure(&error)),
            }
            // Set the alias after the event: a message that has not begun cannot have one in the log.
            if let Some(ReplacedId { own, here }) = replaced {
                self.context.alias(&here, &own);
            }
        }
        Ok(true)
    }

    /// Fails if the server has sent more than one turn may have.
    fn check_output(&self) -> Result<(), Failure> {
        let checked = self.context.check_remote_output(self.unlogged_events);
        checked.map_err(|error| self.output_failure(&error))
    }

    fn settle(&self, ending: RemoteEnding) -> Result<Ending, Failure> {
        match ending {
            RemoteEnding::Completed => Ok(Ending::Completed),
            RemoteEnding::Cancelled if self.is_cancelling => Ok(Ending::Completed),
            RemoteEnding::Cancelled => Err(self.turn.remote().run_failure(
                "the run was cancelled at the agent's server",
                self.turn.run().as_deref(),
            )),
            RemoteEnding::Failed(failure) => Err(failure),
            RemoteEnding::Suspended { interrupt, saved } => {
                Ok(Ending::Suspended { interrupt, saved })
            }
        }
    }

    fn output_failure(&self, error: &trilogue_domain::Error) -> Failure {
        self.turn.remote().output_failure(error, self.turn.run().as_deref())
    }
}

fn stream_error(message: &str) -> ClientError {
    ClientError::Transport(TransportError {
        message: message.to_owned(),
        hint: None,
        is_unreached: false,
    })
}
