use std::time::Duration;

use super::new_run::Mode;
use super::{
    CancelAction, Client, NewRun, Resume, Run, RunSearchRequest, RunStream, RunWaitResponse, fault,
    read,
};
use crate::client::call::RequestBuilder;
use crate::client::resumable::EVENT_STREAM;
use crate::client::{ClientError, Method, Response};

const NO_CONTENT: u16 = 204;

/// The address of a run. A stateless run needs only its id.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunAt {
    /// The thread that the run was created on; `None` for a stateless run.
    pub thread: Option<String>,
    /// The id of the run.
    pub run: String,
}

// === impl RunAt ===

impl RunAt {
    /// Returns the address of the run with this id on this thread.
    #[must_use]
    pub fn on_thread(thread: impl Into<String>, run: impl Into<String>) -> Self {
        Self { thread: Some(thread.into()), run: run.into() }
    }

    pub(super) fn call(
        &self,
        client: &Client,
        method: Method,
        end: Option<&str>,
    ) -> RequestBuilder {
        let thread = self.thread.as_deref().map(|thread| ["threads", thread]);
        let path: Vec<_> =
            thread.iter().flatten().copied().chain(["runs", &self.run]).chain(end).collect();
        client.call(method, &path)
    }
}

impl From<&str> for RunAt {
    fn from(run: &str) -> Self {
        Self { thread: None, run: run.to_owned() }
    }
}

impl From<String> for RunAt {
    fn from(run: String) -> Self {
        Self { thread: None, run }
    }
}

// === impl Client ===

impl Client {
    /// Creates a run and returns its current state.
    pub async fn create_run(&self, new: impl Into<NewRun>) -> Result<Run, ClientError> {
        let response = self.start(&new.into(), Mode::Create).await?;
        read(&self.endpoint.whole(response).await?)
    }

    /// Creates a run and waits until it has ended or waits for an answer. By default, a broken connection cancels the run.
    ///
    /// # Errors
    /// The server's error. A failed run is not an error.
    pub async fn run_and_wait(
        &self,
        new: impl Into<NewRun>,
    ) -> Result<RunWaitResponse, ClientError> {
        let response = self.start(&new.into(), Mode::Wait).await?;
        read(&self.endpoint.whole(response).await?)
    }

    /// Creates a run and streams it until it has ended or waits for an answer.
    ///
    /// The stream continues after a break. Therefore the run also continues, unless the request sets `on_disconnect`. If the run has an idempotency key, its request is sent again even if the response was lost.
    pub async fn run_stream(&self, new: impl Into<NewRun>) -> Result<RunStream, ClientError> {
        RunStream::create(self.clone(), new.into().for_stream()).await
    }

    /// Creates a run and waits until it has ended or waits for an answer. Returns a stream with one event, for servers that can only wait. The run continues after a break, unless the request sets `on_disconnect`. The run's id is unknown until the event arrives.
    #[must_use]
    pub fn run_awaited(&self, new: impl Into<NewRun>) -> RunStream {
        RunStream::awaited(self.clone(), new.into().for_stream())
    }

    /// Returns the stateless runs that match, newest first.
    pub async fn search_runs(&self, request: &RunSearchRequest) -> Result<Vec<Run>, ClientError> {
        self.search(&["runs", "search"], request).await
    }

    /// Returns one run.
    pub async fn run(&self, at: impl Into<RunAt>) -> Result<Run, ClientError> {
        self.fetch(at.into().call(self, Method::Get, None)).await
    }

    /// Waits until a run has ended or waits for an answer. Has no time limit and reconnects after a break.
    ///
    /// # Errors
    /// `run_not_found`; a server that is unavailable for [`Options::attempts`](crate::client::Options::attempts) attempts.
    pub async fn wait(&self, at: impl Into<RunAt>) -> Result<RunWaitResponse, ClientError> {
        let at = at.into();
        let mut failed = 0;
        loop {
            match self.fetch(at.call(self, Method::Get, Some("wait")).without_time_limit()).await {
                Err(error) if error.is_transient() && failed + 1 < self.options().attempts => {
                    tokio::time::sleep(self.options().wait_after(failed, None)).await;
                    failed += 1;
                }
                waited => return waited,
            }
        }
    }

    /// Waits like [`Client::wait`], at most for this duration. Returns `None` if the run is still running then. The duration has a resolution of one millisecond. The reference server ignores it and waits longer.
    pub async fn wait_within(
        &self,
        at: impl Into<RunAt>,
        limit: Duration,
    ) -> Result<Option<RunWaitResponse>, ClientError> {
        let call = at.into().call(self, Method::Get, Some("wait")).without_time_limit();
        let call = call.query("timeout", Some(&seconds(limit)));
        let response = self.send(call.header("accept", "application/json")).await?;
        if response.status == NO_CONTENT {
            return Ok(None);
        }
        read(&self.endpoint.whole(response).await?).map(Some)
    }

    /// Returns a run as a stream that continues after a break, until the run has ended or waits for an answer. It contains all events that the server still has, or the events after this id.
    #[must_use]
    pub fn join(&self, at: impl Into<RunAt>, after: Option<&str>) -> RunStream {
        RunStream::join(self.clone(), at.into(), after)
    }

    /// Answers an interrupted run and returns its current state.
    ///
    /// # Errors
    /// `run_not_interrupted`, `resume_schema_violation`, `run_not_found`.
    pub async fn resume(
        &self,
        at: impl Into<RunAt>,
        answer: impl Into<Resume>,
    ) -> Result<Run, ClientError> {
        let call = at.into().call(self, Method::Post, None).json(&answer.into().body())?;
        self.fetch(call).await
    }

    /// Answers an interrupted run and streams its further events.
    pub async fn resume_stream(
        &self,
        at: impl Into<RunAt>,
        answer: impl Into<Resume>,
    ) -> Result<RunStream, ClientError> {
        let at = at.into();
        self.resume(at.clone(), answer).await?;
        Ok(RunStream::resumed(self.clone(), at))
    }

    /// Cancels a run, or cancels it and removes it with its results. With `wait`, the response arrives after the run has stopped.
    pub async fn cancel(
        &self,
        at: impl Into<RunAt>,
        wait: bool,
        action: CancelAction,
    ) -> Result<(), ClientError> {
        let call = at.into().call(self, Method::Post, Some("cancel"));
        let call = if wait { call.without_time_limit() } else { call };
        let call = call.query("wait", wait.then_some("true"));
        let named = (action != CancelAction::default()).then_some(action.as_str());
        self.send(call.query("action", named)).await.map(drop)
    }

    /// Removes a run. A running run is cancelled first.
    pub async fn delete_run(&self, at: impl Into<RunAt>) -> Result<(), ClientError> {
        self.send(at.into().call(self, Method::Delete, None)).await.map(drop)
    }

    /// Sends the request for a run. If the server does not support stream modes, sends it once more without them.
    pub(super) async fn start(&self, new: &NewRun, mode: Mode) -> Result<Response, ClientError> {
        let call = |new: &NewRun| {
            let accept = if mode == Mode::Stream { EVENT_STREAM } else { "application/json" };
            let call = new.call(self, mode)?.header("accept", accept);
            Ok::<_, ClientError>(if mode == Mode::Wait { call.without_time_limit() } else { call })
        };
        match self.send(call(new)?).await {
            Err(error) if new.request.stream_mode.is_some() && rejects_modes(&error) => {
                let mut plain = new.clone();
                plain.request.stream_mode = None;
                self.send(call(&plain)?).await
            }
            sent => sent,
        }
    }
}

fn rejects_modes(error: &ClientError) -> bool {
    fault(error).is_some_and(|fault| fault.rejects("stream_mode"))
}

/// Formats seconds with milliseconds, if any.
fn seconds(limit: Duration) -> String {
    match limit.subsec_millis() {
        0 => limit.as_secs().to_string(),
        millis => format!("{}.{millis:03}", limit.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_seconds() {
        for (millis, text) in [(0, "0"), (2_000, "2"), (1_050, "1.050"), (500, "0.500")] {
            assert_eq!(seconds(Duration::from_millis(millis)), text);
        }
    }
}
