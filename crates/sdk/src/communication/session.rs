use trilogue_wire::agent_communication::{self as wire, Run, Uuid};

use super::{Client, NewRun, RunStream};
use crate::client::ClientError;

/// A conversation that goes on wherever it is continued: each run may be on another server.
///
/// A server keeps its own version of a session. When a run goes to another server than the one before, its version is brought along: its history is a list of addresses, from which the other server reads.
#[derive(Clone, Debug)]
pub struct Session {
    /// The newest version that is known here.
    known: wire::Session,
    /// The server that has the newest version.
    last: Option<Client>,
    /// A server that may have a newer one: the answer to a run there was lost.
    unsure: Option<Client>,
}

// === impl Session ===

impl Session {
    /// A session that begins with its first run.
    #[must_use]
    pub fn new() -> Self {
        Self::continued(Uuid::generate())
    }

    /// The session with this id, as the server of its next run knows it.
    #[must_use]
    pub fn continued(id: Uuid) -> Self {
        wire::Session { id, history: Vec::new(), state: None }.into()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.known.id
    }

    /// The newest version that is known here, which runs since then may have made old: [`Session::refresh`].
    #[must_use]
    pub fn known(&self) -> &wire::Session {
        &self.known
    }

    /// As [`Client::run_sync`], in this session. The run's own session is replaced by it.
    ///
    /// # Errors
    /// As there; what keeps the session from being read on its last server.
    pub async fn run_sync(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<Run, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let run = on.run_sync(new).await;
        self.settle(on, run)
    }

    /// As [`Client::run_async`], in this session.
    pub async fn run_async(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<Run, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let run = on.run_async(new).await;
        self.settle(on, run)
    }

    /// As [`Client::run_stream`], in this session.
    pub async fn run_stream(
        &mut self,
        on: &Client,
        new: impl Into<NewRun>,
    ) -> Result<RunStream, ClientError> {
        let new = self.prepare(on, new.into()).await?;
        let stream = on.run_stream(new).await;
        self.settle(on, stream)
    }

    /// Reads the session from the server that has its newest version. What no server knows stays as it is.
    pub async fn refresh(&mut self) -> Result<&wire::Session, ClientError> {
        let last = self.last.clone();
        self.adopt(last).await?;
        Ok(&self.known)
    }

    /// Puts the session into a run: by its id where the server has the newest version, else whole.
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

    /// Takes over the newest version and says who had it: the server whose answer was lost, where it has one, else the last.
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
            // It was refused before the server looked at the session.
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
