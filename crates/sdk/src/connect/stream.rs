use std::time::Duration;

use trilogue_wire::agent_connect::{ErrorUpdate, InterruptUpdate, ValuesUpdate};
use trilogue_wire::native::Json;

use super::new_run::Mode;
use super::source::{Given, Seen, Source};
use super::{
    Client, Fault, NewRun, Resume, RunAt, RunOutput, RunStatus, RunWaitResponse, StreamPayload,
    fault, read,
};
use crate::client::call::Call;
use crate::client::events::EVENT_STREAM;
use crate::client::{ClientError, Method, Response};

/// How many signs of life without an event come before the run is asked how it stands: some servers never end a stream. Doubles each time.
const FIRST_CHECK: u32 = 6;
/// How many connections without an event come before the run is waited for instead.
const MAX_FRUITLESS: u32 = 2;
/// The id before every other: whoever names it is given all that the server still has.
const BEGINNING: &str = "0";

/// The events of a run in order, each once, until the run has ended or waits for an answer: the last event says which. A break is healed.
///
/// Values replace each other, so after a break those in between may be missing. Of a server that ends its streams without a last event, or has no streams at all, the last event is made of what the run's output is then.
#[derive(Debug)]
pub struct RunStream {
    client: Client,
    /// The run's thread; none for a stateless run.
    thread: Option<String>,
    run: Option<String>,
    /// What creates the run: sent again while nobody has said which run it is, where it has a key.
    create: Option<Box<NewRun>>,
    /// The id of the last event.
    cursor: Option<String>,
    /// Only what happens from now on is of interest, as long as there is no cursor.
    only_new: bool,
    seen: Seen,
    source: Option<Source>,
    /// The last event, made here.
    made: Option<Box<Streamed>>,
    /// Attempts since the server's last sign of life.
    attempts: u32,
    /// Connections in a row that ended without an event.
    fruitless: u32,
    /// Signs of life since the last event.
    quiet: u32,
    /// At how many of them the run is asked next.
    check_at: u32,
    /// Whether the server was asked before, so that the next attempt waits.
    tried: bool,
    /// How long the server wants us to wait before the next attempt.
    retry: Option<Duration>,
    state: State,
}

/// One event of a stream.
#[derive(Clone, PartialEq, Debug)]
pub struct Streamed {
    /// Its id, where the server gives one.
    pub id: Option<String>,
    /// What it says.
    pub event: StreamPayload,
    /// The same as the server wrote it.
    pub json: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Events come.
    Open,
    /// The run waits for an answer.
    Asked,
    /// It still waited when it was last looked at, and somebody else answers.
    Waiting,
    Over,
}

// === impl RunStream ===

impl RunStream {
    pub(super) async fn create(client: Client, new: NewRun) -> Result<Self, ClientError> {
        let mut stream = Self::new(client, new.thread.clone(), None);
        match stream.client.start(&new, Mode::Stream).await {
            Ok(response) => {
                stream.create = new.idempotency_key.is_some().then(|| Box::new(new));
                stream.began(response)?;
            }
            Err(error) if fault(&error).is_some_and(|fault| streams_nothing(fault, &new)) => {
                let waited = stream.client.run_and_wait(new).await?;
                stream.settle(waited)?;
            }
            Err(error) => return Err(error),
        }
        Ok(stream)
    }

    pub(super) fn join(client: Client, at: RunAt, after: Option<&str>) -> Self {
        let stream = Self::new(client, at.thread, Some(at.run));
        Self { cursor: after.map(str::to_owned), tried: false, ..stream }
    }

    pub(super) fn resumed(client: Client, at: RunAt) -> Self {
        let stream = Self::new(client, at.thread, Some(at.run));
        Self { only_new: true, tried: false, ..stream }
    }

    fn new(client: Client, thread: Option<String>, run: Option<String>) -> Self {
        Self {
            client,
            thread,
            run,
            create: None,
            cursor: None,
            only_new: false,
            seen: Seen::default(),
            source: None,
            made: None,
            attempts: 0,
            fruitless: 0,
            quiet: 0,
            check_at: FIRST_CHECK,
            tried: true,
            retry: None,
            state: State::Open,
        }
    }

    /// The run, as soon as the server has named it.
    #[must_use]
    pub fn run(&self) -> Option<RunAt> {
        let run = self.run.clone()?;
        Some(RunAt { thread: self.thread.clone(), run })
    }

    /// The id of the last event, where the server gives ids: what a later stream can begin after.
    #[must_use]
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Answers what the run asks; the stream goes on with what it does then.
    ///
    /// # Errors
    /// What the server refuses; a run that nobody has named yet.
    pub async fn resume(&mut self, answer: impl Into<Resume>) -> Result<(), ClientError> {
        let Some(at) = self.run() else {
            return Err(ClientError::Unexpected("no event has named the run yet".to_owned()));
        };
        self.client.resume(at, answer).await?;
        self.go_on(State::Open);
        Ok(())
    }

    /// Goes on after a question without answering it: somebody else does, or did.
    pub fn wait_on(&mut self) {
        if self.state == State::Asked {
            self.go_on(State::Waiting);
        }
    }

    /// The next event; `None` when the run has ended, or waits for an answer and nobody has given one.
    ///
    /// May be dropped and called again: nothing is lost.
    ///
    /// # Errors
    /// What the server refuses or says in a way that cannot be understood; a server that stays away for [`Options::attempts`](crate::client::Options::attempts) attempts.
    pub async fn next(&mut self) -> Result<Option<Streamed>, ClientError> {
        while matches!(self.state, State::Open | State::Waiting) {
            if let Some(made) = self.made.take() {
                self.note(&made.event);
                return Ok(Some(*made));
            }
            let Some(source) = &mut self.source else {
                self.connect().await?;
                continue;
            };
            match source.next().await {
                Given::Event { id, json } => {
                    if let Some(event) = self.take(id, json)? {
                        return Ok(Some(event));
                    }
                }
                Given::Retry(delay) => self.retry = Some(delay),
                Given::SignOfLife => self.alive().await?,
                Given::End => self.broken(None).await?,
                Given::Torn(error) => self.broken(Some(error)).await?,
            }
        }
        Ok(None)
    }

    fn go_on(&mut self, state: State) {
        (self.state, self.source, self.made) = (state, None, None);
        (self.tried, self.attempts, self.fruitless) = (false, 0, 0);
    }

    /// Takes the stream of a request that created the run.
    fn began(&mut self, response: Response) -> Result<(), ClientError> {
        self.run = self.run.take().or_else(|| response.run_id.clone());
        self.listen(response)
    }

    fn listen(&mut self, response: Response) -> Result<(), ClientError> {
        let kind = response.content_type.as_deref();
        if !kind.is_some_and(|kind| kind.starts_with(EVENT_STREAM)) {
            return Err(ClientError::Unexpected(format!("no event stream but {kind:?}")));
        }
        self.source = Some(Source::new(response.body, self.client.options()));
        Ok(())
    }

    /// Takes in an event; `None` for one that came before.
    fn take(&mut self, id: String, json: String) -> Result<Option<Streamed>, ClientError> {
        if !self.seen.add(&id, &json) {
            return Ok(None);
        }
        let event: StreamPayload = read(json.as_bytes())?;
        let id = Some(id).filter(|id| !id.is_empty());
        if id.is_some() {
            self.cursor.clone_from(&id);
        }
        self.note(&event);
        Ok(Some(Streamed { id, event, json }))
    }

    /// Notes what an event means for the stream.
    fn note(&mut self, event: &StreamPayload) {
        let run = match event {
            StreamPayload::Values(update) => Some(&update.run_id),
            StreamPayload::Custom(update) => update.run_id.as_ref(),
            StreamPayload::Interrupt(update) => Some(&update.run_id),
            StreamPayload::Error(update) => Some(&update.error.run_id),
        };
        if self.run.is_none() {
            self.run = run.cloned();
        }
        (self.attempts, self.fruitless) = (0, 0);
        (self.quiet, self.check_at) = (0, FIRST_CHECK);
        self.state = match event {
            StreamPayload::Interrupt(_) => State::Asked,
            StreamPayload::Error(_) => State::Over,
            other if other.status() != RunStatus::Pending => State::Over,
            _ => State::Open,
        };
        if self.state != State::Open {
            self.source = None;
        }
    }

    /// A sign of life. After many without an event the run is asked how it stands.
    async fn alive(&mut self) -> Result<(), ClientError> {
        self.attempts = 0;
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet < self.check_at {
            return Ok(());
        }
        let Some(at) = self.run() else { return Ok(()) };
        self.look(at).await?;
        self.check_at = self.check_at.saturating_mul(2);
        Ok(())
    }

    /// Decides what the end of a connection means. `None` where it ended as HTTP wants.
    async fn broken(&mut self, torn: Option<ClientError>) -> Result<(), ClientError> {
        self.source = None;
        let gives_up = self.attempts >= self.client.options().attempts;
        match (torn, self.run()) {
            (torn, None) if gives_up || self.create.is_none() => Err(torn.unwrap_or_else(|| {
                ClientError::Unexpected("the stream of a new run has no event".to_owned())
            })),
            (_, None) => Ok(()),
            (Some(error), Some(_)) if gives_up => Err(error),
            (Some(_), Some(_)) => Ok(()),
            (None, Some(at)) => {
                // The last event is missing: perhaps the server does not send one.
                self.fruitless = self.fruitless.saturating_add(1);
                self.look(at).await
            }
        }
    }

    /// Asks how the run stands, and makes the last event where it is no longer at work.
    async fn look(&mut self, at: RunAt) -> Result<(), ClientError> {
        let status = match self.client.run(at.clone()).await {
            Ok(run) => run.status,
            Err(error) if error.is_transient() => return Ok(()),
            Err(error) => return Err(error),
        };
        let waits = status == RunStatus::Interrupted && self.state == State::Waiting;
        let works = status == RunStatus::Pending && self.fruitless < MAX_FRUITLESS;
        if waits || works {
            return Ok(());
        }
        self.wait(at).await
    }

    async fn wait(&mut self, at: RunAt) -> Result<(), ClientError> {
        let waited = self.client.wait(at).await?;
        self.settle(waited)
    }

    /// Makes the last event of what a wait answered.
    fn settle(&mut self, waited: RunWaitResponse) -> Result<(), ClientError> {
        let named = waited.run.as_ref().map(|run| run.run_id.clone());
        self.run = self.run.take().or(named);
        let run_id = self.run.clone().unwrap_or_default();
        let status = waited.run.map(|run| run.status);
        let event = match waited.output {
            Some(RunOutput::Result(result)) => StreamPayload::Values(ValuesUpdate {
                run_id,
                status: RunStatus::Success,
                values: result.values.unwrap_or_else(Json::null),
                messages: result.messages,
                result: None,
            }),
            Some(RunOutput::Interrupt(asked)) => {
                let status = RunStatus::Interrupted;
                StreamPayload::Interrupt(InterruptUpdate { run_id, status, asked })
            }
            Some(RunOutput::Error(error)) => {
                let status = match status {
                    Some(RunStatus::Timeout) => RunStatus::Timeout,
                    _ => RunStatus::Error,
                };
                StreamPayload::Error(ErrorUpdate { status, error })
            }
            None => {
                return Err(ClientError::Unexpected("the run has no output".to_owned()));
            }
        };
        let json = serde_json::to_string(&event)
            .map_err(|error| ClientError::Unexpected(error.to_string()))?;
        self.source = None;
        self.made = Some(Box::new(Streamed { id: None, event, json }));
        Ok(())
    }

    async fn connect(&mut self) -> Result<(), ClientError> {
        let attempts = self.client.options().attempts;
        loop {
            if std::mem::replace(&mut self.tried, true) {
                let failed = self.attempts.max(self.fruitless);
                let wait = self.client.options().wait_after(failed, self.retry);
                tokio::time::sleep(wait).await;
            }
            self.attempts = self.attempts.saturating_add(1);
            match self.open().await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() && self.attempts < attempts => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn open(&mut self) -> Result<(), ClientError> {
        let Some(at) = self.run() else {
            let Some(new) = &self.create else {
                return Err(ClientError::Unexpected(
                    "the stream broke before its run was known".to_owned(),
                ));
            };
            let response = self.client.start(new, Mode::Stream).await?;
            return self.began(response);
        };
        match self.client.send(self.join_call(&at)).await {
            Ok(response) => self.listen(response),
            Err(error) if fault(&error).is_some_and(Fault::is_not_implemented) => {
                self.wait(at).await
            }
            Err(error) => Err(error),
        }
    }

    fn join_call(&self, at: &RunAt) -> Call {
        let call = at.call(&self.client, Method::Get, Some("stream"));
        let call = call.header("accept", EVENT_STREAM);
        match &self.cursor {
            Some(cursor) => call.header("last-event-id", cursor),
            None if self.only_new => call,
            None => call.header("last-event-id", BEGINNING),
        }
    }
}

/// Whether the server, or the agent, has no streams of any kind.
fn streams_nothing(fault: &Fault, new: &NewRun) -> bool {
    let refused = fault.code.as_deref() == Some("stream_mode_not_supported");
    fault.is_not_implemented() || (refused && new.request.stream_mode.is_none())
}
