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

/// One turn of an agent: its updates and its end.
///
/// Dropping it before its end cancels it.
pub struct PromptTurn {
    session: Session,
    prompt: Vec<ContentBlock>,
    message_id: Option<String>,
    /// `None` after the agent has responded.
    call: Option<Call>,
    outcome: Option<Result<TurnEnd, Error>>,
    /// Cancelled with the turn.
    token: CancellationToken,
    /// The deadline of a cancelled turn, and how often the agent was asked to cancel it.
    deadline: Option<(Instant, u32)>,
    permit: Option<OwnedSemaphorePermit>,
}

/// How a turn ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TurnEnd {
    /// Why the turn ended.
    pub stop_reason: StopReason,
    /// The id under which the agent recorded the prompt. `None` if the agent recorded no id: then do not use the id that was sent.
    pub user_message_id: Option<String>,
    /// The id that was sent, if the agent recorded another one. Both ids name the same message.
    pub alias: Option<String>,
    /// The response as the agent wrote it.
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

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the id that was sent with the prompt. The end of the turn shows whether the agent recorded it: see [`TurnEnd::user_message_id`].
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// Waits for the next update. Returns `None` at the end of the turn.
    ///
    /// Cancel safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// The error that the agent returns, including [`Error::SessionLost`] and [`Error::AuthRequired`]; [`Error::Unresponsive`] if the turn did not end after two cancellations; [`Error::Overflow`]; [`Error::Closed`].
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
                // Updates come before the response, so that none is left when the turn ends.
                () = self.session.updates().filled() => {}
                answer = call => {
                    self.call = None;
                    let answer = answer.map_err(|failed| self.session.error_of(failed));
                    self.outcome = Some(answer.and_then(|answer| self.record_end(answer)));
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

    /// Returns the rest as a stream. [`PromptTurn::outcome`] returns afterwards how the turn ended.
    pub fn stream(&mut self) -> impl Stream<Item = Result<Update, Error>> + Send + '_ {
        stream::try_unfold(self, |turn| async move {
            Ok(turn.next().await?.map(|update| (update, turn)))
        })
    }

    /// Asks the agent to cancel the turn: see [`Session::cancel`]. Continue with [`PromptTurn::next`] until the turn ends.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub async fn cancel(&self) -> Result<(), Error> {
        self.token.cancel();
        self.session.tell_cancelled().await
    }

    /// Returns how the turn ended; `None` while it runs, and if it failed.
    #[must_use]
    pub fn outcome(&self) -> Option<&TurnEnd> {
        self.outcome.as_ref().and_then(|outcome| outcome.as_ref().ok())
    }

    /// Reads the rest and returns how the turn ended.
    pub async fn finish(self) -> Result<TurnEnd, Error> {
        self.collect().await.map(|(ended, _)| ended)
    }

    /// Reads the rest and returns how the turn ended, with its messages.
    pub async fn collect(mut self) -> Result<(TurnEnd, Messages), Error> {
        let mut messages = Messages::default();
        while let Some(update) = self.next().await? {
            messages.push(&update);
        }
        let ended = self.outcome.take().unwrap_or(Err(Error::Closed))?;
        Ok((ended, messages))
    }

    fn record_end(&self, original: RawJson) -> Result<TurnEnd, Error> {
        let PromptResponse { stop_reason, user_message_id, .. } = read_answer(&original)?;
        let sent = self.message_id.as_deref();
        let id = user_message_id.as_deref();
        super::session::note(&self.session, &self.prompt, id, sent);
        let alias = sent.filter(|_| id.is_some() && id != sent).map(str::to_owned);
        Ok(TurnEnd { stop_reason, user_message_id, alias, original })
    }

    /// Frees the session for the next turn.
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
            // The turn was dropped, so its end has no reader. The next turn begins when this one has ended or its grace period has elapsed.
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
