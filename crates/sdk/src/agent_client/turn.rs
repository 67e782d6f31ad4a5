use std::fmt;

use futures_util::stream::{self, Stream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trilogue_wire::agent_client::{ContentBlock, PromptResponse, StopReason};

use super::client::read_answer;
use super::error::Error;
use super::peer::{Call, RawJson};
use super::session::Session;
use super::update::{Messages, Update};

/// An agent's turn: what it says and does, and how it ends.
///
/// One that is dropped before its end is cancelled.
pub struct PromptTurn {
    session: Session,
    prompt: Vec<ContentBlock>,
    message_id: Option<String>,
    /// `None` when the agent has answered.
    call: Option<Call>,
    outcome: Option<Result<TurnEnd, Error>>,
    /// Cancelled with the turn.
    token: CancellationToken,
    /// When it is given up, since it was cancelled; how often that was said to the agent.
    deadline: Option<(Instant, u32)>,
    permit: Option<OwnedSemaphorePermit>,
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnEnd {
    /// Why.
    pub stop_reason: StopReason,
    /// The id by which the agent recorded what was prompted. `None` where it recorded none: the id that was sent then names nothing, and nothing may be built on it.
    pub user_message_id: Option<String>,
    /// The id that was sent, where the agent recorded another: it is the same message by its other name.
    pub alias: Option<String>,
    /// The answer as the agent wrote it.
    pub original: RawJson,
}

// === impl PromptTurn ===

impl PromptTurn {
    pub(super) fn new(
        session: Session,
        call: Call,
        prompt: Vec<ContentBlock>,
        message_id: Option<String>,
        permit: OwnedSemaphorePermit,
        token: CancellationToken,
    ) -> Self {
        Self {
            session,
            prompt,
            message_id,
            call: Some(call),
            outcome: None,
            token,
            deadline: None,
            permit: Some(permit),
        }
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The id that was sent with the prompt. Whether the agent recorded it is known at the end: see [`TurnEnd::user_message_id`].
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The next thing that the agent says or does. `None` at the end.
    ///
    /// May be dropped while it waits; nothing is lost.
    ///
    /// # Errors
    /// What the agent refuses with, [`Error::SessionLost`] and [`Error::AuthRequired`] among it; [`Error::Unresponsive`] where it was cancelled twice in vain; [`Error::Overflow`]; [`Error::Closed`].
    pub async fn next(&mut self) -> Result<Option<Update>, Error> {
        loop {
            if let Some(update) = self.session.updates().pop() {
                return Ok(Some(update));
            }
            if self.session.updates().take_overflow() {
                return Err(Error::Overflow);
            }
            let Some(call) = &mut self.call else {
                self.leave();
                return match &self.outcome {
                    Some(Err(_)) => self.outcome.take().unwrap_or(Err(Error::Closed)).map(|_| None),
                    _ => Ok(None),
                };
            };
            let grace = self.session.client().options().cancel_grace;
            let deadline = self.deadline;
            tokio::select! {
                biased;
                () = self.session.updates().filled() => {}
                answer = call => {
                    self.call = None;
                    let answer = answer.map_err(|failed| self.session.failed(failed));
                    self.outcome = Some(answer.and_then(|answer| self.ended(answer)));
                }
                () = self.token.cancelled(), if deadline.is_none() => {
                    self.deadline = Some((Instant::now() + grace, 1));
                }
                () = until(deadline) => {
                    if deadline.is_some_and(|(_, times)| times > 1) {
                        self.call = None;
                        self.outcome = Some(Err(Error::Unresponsive));
                    } else {
                        self.session.tell_cancelled().await?;
                        self.deadline = Some((Instant::now() + grace, 2));
                    }
                }
            }
        }
    }

    /// The rest as a stream; [`PromptTurn::outcome`] says afterwards how it ended.
    pub fn stream(&mut self) -> impl Stream<Item = Result<Update, Error>> + Send + '_ {
        stream::try_unfold(self, |turn| async move {
            Ok(turn.next().await?.map(|update| (update, turn)))
        })
    }

    /// Asks the agent to end the turn: see [`Session::cancel`]. Go on with [`PromptTurn::next`] to hear how it ends.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn cancel(&self) -> Result<(), Error> {
        self.token.cancel();
        self.session.tell_cancelled().await
    }

    /// How it ended; `None` while it goes on, and where it failed.
    #[must_use]
    pub fn outcome(&self) -> Option<&TurnEnd> {
        self.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok())
    }

    /// Hears the rest, and how it ends.
    pub async fn finish(self) -> Result<TurnEnd, Error> {
        self.collect().await.map(|(ended, _)| ended)
    }

    /// Hears the rest: how it ends, and the messages in it.
    pub async fn collect(mut self) -> Result<(TurnEnd, Messages), Error> {
        let mut messages = Messages::default();
        while let Some(update) = self.next().await? {
            messages.push(&update);
        }
        let ended = self.outcome.take().unwrap_or(Err(Error::Closed))?;
        Ok((ended, messages))
    }

    fn ended(&self, original: RawJson) -> Result<TurnEnd, Error> {
        let PromptResponse { stop_reason, user_message_id, .. } = read_answer(&original)?;
        let sent = self.message_id.as_deref();
        let id = user_message_id.as_deref();
        super::session::note(&self.session, &self.prompt, id, sent);
        let alias = sent.filter(|_| id.is_some() && id != sent).map(str::to_owned);
        Ok(TurnEnd { stop_reason, user_message_id, alias, original })
    }

    /// The session is free for the next turn.
    fn leave(&mut self) {
        if self.permit.take().is_some() {
            self.session.updates().leave();
        }
    }
}

impl Drop for PromptTurn {
    fn drop(&mut self) {
        let (Some(call), Some(permit)) = (self.call.take(), self.permit.take()) else {
            return self.leave();
        };
        self.session.updates().leave();
        self.token.cancel();
        let session = self.session.clone();
        let Ok(here) = tokio::runtime::Handle::try_current() else { return };
        here.spawn(async move {
            let grace = session.client().options().cancel_grace;
            // Nobody is left to hear how it ends; the next turn begins when it has, or is given up.
            if session.tell_cancelled().await.is_ok() {
                drop(tokio::time::timeout(grace, call).await);
            }
            drop(permit);
        });
    }
}

impl fmt::Debug for PromptTurn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptTurn")
            .field("session", &self.session)
            .field("message_id", &self.message_id)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

async fn until(deadline: Option<(Instant, u32)>) {
    match deadline {
        Some((at, _)) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
