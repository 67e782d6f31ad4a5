use trilogue_wire::agent_communication::{self as wire, Run, Uuid};

use super::{Client, NewRun, RunStream};
use crate::client::ClientError;

/// A conversation across servers: each run may be on another server.
///
/// Each server keeps its own version of a session. When a run goes to another server than the previous run, the client sends the newest version with it. The history is a list of addresses from which the new server reads.
#[derive(Clone, Debug)]
pub struct Session {
    /// The newest version that this client knows.
    known: wire::Session,
    /// The server that has the newest version.
    last: Option<Client>,
    /// A server that may have a newer version, because the response of a run there was lost.
    unsure: Option<Client>,
}

// === impl Session ===

impl Session {
    /// Returns a session that begins with its first run.
    #[must_use]
    pub fn new() -> Self {
        Self::continued(Uuid::generate())
    }

    /// Returns the session with this id, as the server of its next run knows it.
    #[must_use]
    pub fn continued(id: Uuid) -> Self {
        wire::Session { id, history: Vec::new(), state: None }.into()
    }

    /// Returns the session's id.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.known.id
    }

    /// Returns the newest version that this client knows. Later runs may have changed it: see [`Session::refresh`].
    #[must_use]
    pub fn snapshot(&self) -> &wire::Session {
        &self.known
    }

    /// Runs like [`Client::run_sync`], in this session. This session replaces the run's own session.
    ///
    /// # Errors
    /// Like [`Client::run_sync`]; also if the session cannot be read from its last server.
    pub async fn run_sync(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<Run, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let run = on.run_sync(new).await;
        self.settle(on, run)
    }

    /// Runs like [`Client::run_async`], in this session.
    pub async fn run_async(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<Run, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let run = on.run_async(new).await;
        self.settle(on, run)
    }

    /// Runs like [`Client::run_stream`], in this session.
    pub async fn run_stream(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<RunStream, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let stream = on.run_stream(new).await;
        self.settle(on, stream)
    }

    /// Reads the session from the server that has its newest version. Keeps the current version if no server knows the session.
    pub async fn refresh(&mut self) -> Result<&wire::Session, ClientError> {
        let last = self.last.clone();
        self.adopt(last).await?;
        Ok(&self.known)
    }

    /// Adds the session to a run: by id if the server has the newest version, otherwise as a whole.
    async fn prepare(&mut self, on: &Client, new: NewRun) -> Result<NewRun, ClientError> {
        let there = self.last.as_ref().is_some_and(|last| last.is(on));
        let elsewhere = self.unsure.as_ref().is_some_and(|unsure| !unsure.is(on));
        if there && !elsewhere {
            return Ok(new.in_session(self.known.id));
        }
        let last = self.last.clone().unwrap_or_else(|| on.clone());
        let holder = self.adopt(Some(last)).await?;
        if holder.is_some_and(|holder| holder.is(on)) {
            return Ok(new.in_session(self.known.id));
        }
        Ok(new.with_session(self.known.clone()))
    }

    /// Takes over the newest version and returns its server. Tries the server whose response was lost first, then the last one.
    async fn adopt(&mut self, last: Option<Client>) -> Result<Option<Client>, ClientError> {
        for server in self.unsure.iter().chain(last.as_ref()) {
            match server.session(self.known.id).await {
                Ok(session) => {
                    self.known = session;
                    return Ok(Some(server.clone()));
                }
                Err(ClientError::Refused(refusal)) if refusal.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn settle<T>(&mut self, on: &Client, asked: Result<T, ClientError>) -> Result<T, ClientError> {
        match &asked {
            Ok(_) => (self.last, self.unsure) = (Some(on.clone()), None),
            // The server refused the run before it read the session.
            Err(ClientError::Refused(refusal)) if is_client_fault(refusal.status) => {}
            Err(_) => self.unsure = Some(on.clone()),
        }
        asked
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl From<wire::Session> for Session {
    fn from(known: wire::Session) -> Self {
        Self { known, last: None, unsure: None }
    }
}

fn is_client_fault(status: Option<u16>) -> bool {
    matches!(status, Some(400..=499))
}
