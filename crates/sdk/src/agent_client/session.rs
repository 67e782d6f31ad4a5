use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::stream::{self, Stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use trilogue_domain::lock;
use trilogue_wire::agent_client::{
    CancelNotification, ContentBlock, LoadSessionRequest, LoadSessionResponse, NotificationParams,
    PromptRequest, RequestParams, SessionConfigOption, SessionConfigValue, SessionModeState,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};

use super::attachment::Prompt;
use super::client::{Client, SessionOptions, read_answer};
use super::error::Error;
use super::peer::{Call, CallFailure, RawJson};
use super::turn::PromptTurn;
use super::update::Update;
use super::update_queue::UpdateQueue;
use super::user_messages::UserMessages;

/// A session with an agent. Cheap to clone; what happens in it is heard until the last clone is dropped.
#[derive(Clone)]
pub struct Session {
    shared: Arc<SessionShared>,
}

/// A session that is opened again: everything that was said in it, and then the session.
pub struct SessionReplay {
    session: Session,
    call: Option<Call>,
    /// How it ended.
    outcome: Option<Result<RawJson, Error>>,
}

/// What the agent said of a session's modes and options when it was opened.
pub(super) type Settings = (Option<SessionModeState>, Option<Vec<SessionConfigOption>>);

struct SessionShared {
    client: Client,
    id: String,
    updates: Arc<UpdateQueue>,
    /// One turn at a time.
    turns: Arc<Semaphore>,
    opened: Mutex<Opened>,
}

struct Opened {
    settings: Settings,
    original: RawJson,
}

// === impl Session ===

impl Session {
    pub(super) fn new(
        client: Client,
        id: String,
        updates: Arc<UpdateQueue>,
        settings: Settings,
        original: RawJson,
    ) -> Self {
        let turns = Arc::new(Semaphore::new(1));
        let opened = Mutex::new(Opened { settings, original });
        Self { shared: Arc::new(SessionShared { client, id, updates, turns, opened }) }
    }

    /// Its id, which the agent chose.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// The connection that it is on.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Its modes as they were when it was opened; what changed since came as updates.
    #[must_use]
    pub fn modes(&self) -> Option<SessionModeState> {
        self.opened().settings.0.clone()
    }

    /// Its options as they were when it was opened or set last; what the agent changed since came as updates.
    #[must_use]
    pub fn config_options(&self) -> Option<Vec<SessionConfigOption>> {
        self.opened().settings.1.clone()
    }

    /// What the agent answered when it was opened, as it wrote it.
    #[must_use]
    pub fn opened_with(&self) -> RawJson {
        self.opened().original.clone()
    }

    /// Says something to the agent, which answers with a turn. The next one can begin when that is over.
    ///
    /// # Errors
    /// [`Error::Lacks`], naming the capability, where the agent does not take what is in the prompt; [`Error::Busy`]; [`Error::Closed`].
    pub async fn prompt(&self, prompt: impl Into<Prompt> + Send) -> Result<PromptTurn, Error> {
        let prompt = prompt.into();
        let client = &self.shared.client;
        let blocks = prompt.for_agent(&client.takes())?;
        let message_id = prompt.message_id.or_else(|| {
            client.options().sends_message_ids.then(|| uuid::Uuid::new_v4().to_string())
        });
        let permit = self.take_turn().await?;
        let token = self.shared.updates.begin_turn();
        let request = PromptRequest {
            message_id: message_id.clone(),
            ..PromptRequest::new(self.id(), blocks)
        };
        let begun = client.peer().begin(PromptRequest::METHOD, &request).await;
        match begun {
            Ok(call) => {
                Ok(PromptTurn::new(self.clone(), call, request.prompt, message_id, permit, token))
            }
            Err(failed) => {
                self.shared.updates.leave();
                Err(self.failed(failed))
            }
        }
    }

    /// Asks the agent to end the turn that is at work, if one is; its updates still come, and it ends as cancelled. Questions that wait for an answer are answered as cancelled.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn cancel(&self) -> Result<(), Error> {
        self.shared.updates.turn().cancel();
        self.tell_cancelled().await
    }

    /// The next thing that happened outside of turns: commands, titles, modes, late words. `None` when the connection has ended and everything was read.
    ///
    /// While a turn is at work its updates come from there, and this takes them away.
    pub async fn next_update(&self) -> Option<Update> {
        let peer = self.shared.client.peer();
        loop {
            if let Some(update) = self.shared.updates.pop() {
                return Some(update);
            }
            tokio::select! {
                biased;
                () = self.shared.updates.filled() => {}
                () = peer.ended() => return self.shared.updates.pop(),
            }
        }
    }

    /// What happened outside of turns and was not read yet.
    pub fn take_updates(&self) -> Vec<Update> {
        std::iter::from_fn(|| self.shared.updates.pop()).collect()
    }

    /// How many updates were let go because nobody read them while no turn was at work.
    #[must_use]
    pub fn missed_updates(&self) -> u64 {
        self.shared.updates.missed()
    }

    /// What the user said in it on this connection, and by which ids the agent knows it. To be given to [`SessionOptions::knowing`] when the session is loaded again.
    #[must_use]
    pub fn user_messages(&self) -> UserMessages {
        self.shared.updates.users()
    }

    /// Puts it into a mode.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the agent named no such mode; what it refuses with.
    pub async fn set_mode(&self, mode: &str) -> Result<(), Error> {
        let has = |modes: SessionModeState| modes.available_modes.iter().any(|it| it.id == mode);
        if !self.modes().is_some_and(has) {
            return Err(Error::Invalid(format!(
                "the session has no mode '{}'",
                mode.escape_debug()
            )));
        }
        let request = SetSessionModeRequest::new(self.id(), mode);
        self.shared.client.request_of(self.id(), &request).await.map(drop)
    }

    /// Gives an option a value. Gives all options afterwards: one may change others.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the agent named no such option; what it refuses with.
    pub async fn set_config_option(
        &self,
        option: &str,
        value: impl Into<SessionConfigValue> + Send,
    ) -> Result<Vec<SessionConfigOption>, Error> {
        let options = self.config_options().unwrap_or_default();
        if !options.iter().any(|known| known.id() == Some(option)) {
            return Err(Error::Invalid(format!(
                "the session has no option '{}'",
                option.escape_debug()
            )));
        }
        let request = match value.into() {
            SessionConfigValue::Boolean(value) => {
                SetSessionConfigOptionRequest::boolean(self.id(), option, value)
            }
            value => SetSessionConfigOptionRequest::new(self.id(), option, value),
        };
        let answer = self.shared.client.request_of(self.id(), &request).await?;
        self.opened().settings.1 = Some(answer.config_options.clone());
        Ok(answer.config_options)
    }

    /// Ends what it does, and lets the agent free what it holds for it.
    ///
    /// # Errors
    /// [`Error::Lacks`]; what the agent refuses with.
    pub async fn close(&self) -> Result<(), Error> {
        self.shared.client.close_session(self.id()).await
    }

    pub(super) fn updates(&self) -> &UpdateQueue {
        &self.shared.updates
    }

    pub(super) fn failed(&self, failed: CallFailure) -> Error {
        Error::of(failed, Some(self.id()))
    }

    pub(super) async fn tell_cancelled(&self) -> Result<(), Error> {
        let cancel = CancelNotification::new(self.id());
        let told = self.shared.client.peer().notify(CancelNotification::METHOD, &cancel).await;
        told.map_err(|failed| self.failed(failed))
    }

    /// A turn that was dropped is waited for; one that somebody holds is not.
    async fn take_turn(&self) -> Result<OwnedSemaphorePermit, Error> {
        let turns = Arc::clone(&self.shared.turns);
        if let Ok(permit) = Arc::clone(&turns).try_acquire_owned() {
            return Ok(permit);
        }
        if !self.shared.updates.turn().is_cancelled() {
            return Err(Error::Busy);
        }
        turns.acquire_owned().await.map_err(|_| Error::Closed)
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, Opened> {
        lock(&self.shared.opened)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).finish_non_exhaustive()
    }
}

// === impl SessionShared ===

impl Drop for SessionShared {
    fn drop(&mut self) {
        self.client.router().retire(&self.id, &self.updates);
        self.updates.leave();
    }
}

// === impl SessionReplay ===

impl SessionReplay {
    pub(super) async fn begin(
        client: &Client,
        session: &str,
        options: SessionOptions,
    ) -> Result<Self, Error> {
        let request = LoadSessionRequest {
            additional_directories: options.additional_directories,
            ..LoadSessionRequest::new(session, options.cwd, options.mcp_servers)
        };
        let updates = client.updates(options.user_messages);
        updates.begin_replay();
        client.router().open(session, &updates);
        let id = session.to_owned();
        let session = Session::new(client.clone(), id, updates, (None, None), RawJson::EMPTY);
        let call = client.peer().begin(LoadSessionRequest::METHOD, &request).await;
        let call = call.map_err(|failed| session.failed(failed))?;
        Ok(Self { session, call: Some(call), outcome: None })
    }

    /// The next thing that was said. `None` when everything was told that came before the agent's answer; what some agents tell afterwards comes from [`Session::next_update`].
    ///
    /// # Errors
    /// What the agent refuses with; [`Error::SessionLost`] where it does not know the session any more; [`Error::Overflow`].
    pub async fn next(&mut self) -> Result<Option<Update>, Error> {
        loop {
            if let Some(update) = self.session.updates().pop() {
                return Ok(Some(update));
            }
            if self.session.updates().take_overflow() {
                return Err(Error::Overflow);
            }
            let Some(call) = &mut self.call else {
                return match &mut self.outcome {
                    Some(Err(_)) => self.outcome.take().unwrap_or(Err(Error::Closed)).map(|_| None),
                    _ => Ok(None),
                };
            };
            tokio::select! {
                biased;
                () = self.session.updates().filled() => {}
                answer = call => {
                    self.call = None;
                    self.session.updates().end_replay();
                    self.outcome = Some(answer.map_err(|failed| self.session.failed(failed)));
                }
            }
        }
    }

    /// The rest as a stream; [`SessionReplay::finish`] gives the session afterwards.
    pub fn stream(&mut self) -> impl Stream<Item = Result<Update, Error>> + Send + '_ {
        stream::try_unfold(self, |replay| async move {
            Ok(replay.next().await?.map(|update| (update, replay)))
        })
    }

    /// The session, when everything was told; what was not read is let go.
    pub async fn finish(mut self) -> Result<Session, Error> {
        while self.next().await?.is_some() {}
        let answer = self.outcome.unwrap_or(Err(Error::Closed))?;
        let read: LoadSessionResponse = read_answer(&answer)?;
        {
            let mut opened = self.session.opened();
            opened.settings = (read.modes, read.config_options);
            opened.original = answer;
        }
        self.session.updates().leave();
        Ok(self.session)
    }
}

impl fmt::Debug for SessionReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionReplay").field("session", &self.session).finish_non_exhaustive()
    }
}

/// What a prompt was, to be noted when it is known by which id the agent recorded it.
pub(super) fn note(
    session: &Session,
    prompt: &[ContentBlock],
    id: Option<&str>,
    sent: Option<&str>,
) {
    session.updates().note(prompt, id, sent);
}
