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

/// A session with an agent. Cheap to clone; its updates are kept until the last clone is dropped.
#[derive(Clone)]
pub struct Session {
    shared: Arc<SessionShared>,
}

/// A session that is being loaded: first its history, then the session.
pub struct SessionReplay {
    session: Session,
    call: Option<Call>,
    /// The result of the call.
    outcome: Option<Result<RawJson, Error>>,
}

/// The session's modes and options from the response that opened it.
pub(super) type Settings = (Option<SessionModeState>, Option<Vec<SessionConfigOption>>);

struct SessionShared {
    client: Client,
    id: String,
    updates: Arc<UpdateQueue>,
    /// Limits the session to one turn at a time.
    turns: Arc<Semaphore>,
    open_state: Mutex<OpenState>,
}

struct OpenState {
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
        let opened = Mutex::new(OpenState { settings, original });
        Self { shared: Arc::new(SessionShared { client, id, updates, turns, open_state: opened }) }
    }

    /// Returns the session's id, which the agent chose.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.id
    }

    /// Returns the connection of the session.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns the session's modes from when it was opened. Later changes arrive as updates.
    #[must_use]
    pub fn modes(&self) -> Option<SessionModeState> {
        self.open_state().settings.0.clone()
    }

    /// Returns the session's options from when it was opened or an option was set. Later changes by the agent arrive as updates.
    #[must_use]
    pub fn config_options(&self) -> Option<Vec<SessionConfigOption>> {
        self.open_state().settings.1.clone()
    }

    /// Returns the response that opened the session, as the agent wrote it.
    #[must_use]
    pub fn opened_with(&self) -> RawJson {
        self.open_state().original.clone()
    }

    /// Sends a prompt and begins a turn. The next turn can begin when this one has ended.
    ///
    /// # Errors
    /// [`Error::Lacks`] with the name of the capability, if the agent does not support the prompt's content; [`Error::Busy`]; [`Error::Closed`].
    pub async fn prompt(&self, prompt: impl Into<Prompt> + Send) -> Result<PromptTurn, Error> {
        let prompt = prompt.into();
        let client = &self.shared.client;
        let blocks = prompt.for_agent(&client.takes())?;
        let message_id = prompt.message_id.or_else(|| {
            client.options().sends_message_ids.then(|| uuid::Uuid::new_v4().to_string())
        });
        let permit = self.take_turn().await?;
        // The queue has a reader before the prompt is sent, so that the first updates count as updates of the turn.
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
                Err(self.error_of(failed))
            }
        }
    }

    /// Asks the agent to cancel the running turn, if any. Its updates still arrive, and it ends as cancelled. Open requests of the agent are answered as cancelled.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn cancel(&self) -> Result<(), Error> {
        self.shared.updates.turn().cancel();
        self.tell_cancelled().await
    }

    /// Waits for the next update outside of turns: commands, titles, modes, late text. Returns `None` when the connection has ended and every update was read.
    ///
    /// During a turn, read from the [`PromptTurn`]; this function takes updates away from it.
    pub async fn next_update(&self) -> Option<Update> {
        let peer = self.shared.client.peer();
        loop {
            if let Some(update) = self.shared.updates.pop() {
                return Some(update);
            }
            tokio::select! {
                biased;
                () = self.shared.updates.filled() => {}
                () = peer.wait_for_end() => return self.shared.updates.pop(),
            }
        }
    }

    /// Takes all unread updates outside of turns.
    pub fn take_updates(&self) -> Vec<Update> {
        std::iter::from_fn(|| self.shared.updates.pop()).collect()
    }

    /// Returns the number of updates that were dropped because they were not read.
    #[must_use]
    pub fn missed_updates(&self) -> u64 {
        self.shared.updates.missed()
    }

    /// Returns the user's messages on this connection, with the ids that the agent recorded. Pass them to [`SessionOptions::user_messages`] when you load the session again.
    #[must_use]
    pub fn user_messages(&self) -> UserMessages {
        self.shared.updates.users()
    }

    /// Sets the mode of the session.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the agent does not offer the mode; the error that the agent returns.
    pub async fn set_mode(&self, mode: &str) -> Result<(), Error> {
        let has = |modes: SessionModeState| modes.available_modes.iter().any(|it| it.id == mode);
        if !self.modes().is_some_and(has) {
            return Err(Error::Invalid(format!("unknown mode '{}'", mode.escape_debug())));
        }
        let request = SetSessionModeRequest::new(self.id(), mode);
        self.shared.client.request_of(self.id(), &request).await.map(drop)
    }

    /// Sets the value of an option. Returns all options, because one option may change others.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the agent does not offer the option; the error that the agent returns.
    pub async fn set_config_option(
        &self,
        option: &str,
        value: impl Into<SessionConfigValue> + Send,
    ) -> Result<Vec<SessionConfigOption>, Error> {
        let options = self.config_options().unwrap_or_default();
        if !options.iter().any(|known| known.id() == Some(option)) {
            return Err(Error::Invalid(format!("unknown option '{}'", option.escape_debug())));
        }
        let request = match value.into() {
            SessionConfigValue::Boolean(value) => {
                SetSessionConfigOptionRequest::boolean(self.id(), option, value)
            }
            value => SetSessionConfigOptionRequest::new(self.id(), option, value),
        };
        let answer = self.shared.client.request_of(self.id(), &request).await?;
        self.open_state().settings.1 = Some(answer.config_options.clone());
        Ok(answer.config_options)
    }

    /// Ends the session's work and lets the agent free its resources.
    ///
    /// # Errors
    /// [`Error::Lacks`]; the error that the agent returns.
    pub async fn close(&self) -> Result<(), Error> {
        self.shared.client.close_session(self.id()).await
    }

    pub(super) fn updates(&self) -> &UpdateQueue {
        &self.shared.updates
    }

    pub(super) fn error_of(&self, failed: CallFailure) -> Error {
        Error::of(failed, Some(self.id()))
    }

    pub(super) async fn tell_cancelled(&self) -> Result<(), Error> {
        let cancel = CancelNotification::new(self.id());
        let told = self.shared.client.peer().notify(CancelNotification::METHOD, &cancel).await;
        told.map_err(|failed| self.error_of(failed))
    }

    /// Takes the permit of a turn. Waits for a dropped turn to end; fails if another turn is still in use.
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

    fn open_state(&self) -> std::sync::MutexGuard<'_, OpenState> {
        lock(&self.shared.open_state)
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
            system_prompt: options.system_prompt,
            ..LoadSessionRequest::new(session, options.cwd, options.mcp_servers)
        };
        let updates = client.updates(options.user_messages);
        updates.begin_replay();
        client.router().open(session, &updates);
        let id = session.to_owned();
        let session = Session::new(client.clone(), id, updates, (None, None), RawJson::EMPTY);
        let call = client.peer().begin(LoadSessionRequest::METHOD, &request).await;
        let call = call.map_err(|failed| session.error_of(failed))?;
        Ok(Self { session, call: Some(call), outcome: None })
    }

    /// Waits for the next update of the replay. Returns `None` after the last update before the agent's response. Updates that some agents send later come from [`Session::next_update`].
    ///
    /// # Errors
    /// The error that the agent returns; [`Error::SessionLost`] if the agent does not know the session any more; [`Error::Overflow`].
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
                    self.outcome = Some(answer.map_err(|failed| self.session.error_of(failed)));
                }
            }
        }
    }

    /// Returns the rest as a stream. [`SessionReplay::finish`] returns the session afterwards.
    pub fn stream(&mut self) -> impl Stream<Item = Result<Update, Error>> + Send + '_ {
        stream::try_unfold(self, |replay| async move {
            Ok(replay.next().await?.map(|update| (update, replay)))
        })
    }

    /// Returns the session after the end of the replay. Drops unread updates.
    pub async fn finish(mut self) -> Result<Session, Error> {
        while self.next().await?.is_some() {}
        let answer = self.outcome.unwrap_or(Err(Error::Closed))?;
        let read: LoadSessionResponse = read_answer(&answer)?;
        {
            let mut opened = self.session.open_state();
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

/// Records a prompt with the id that the agent recorded.
pub(super) fn note(
    session: &Session,
    prompt: &[ContentBlock],
    id: Option<&str>,
    sent: Option<&str>,
) {
    session.updates().note(prompt, id, sent);
}
