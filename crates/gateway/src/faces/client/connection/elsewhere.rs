//! Threads that another node owns. A prompt has the thread brought here, where the editor and its files are; what concerns a run at work is sent to its owner.

use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Error, InterruptId, Json, Message, RunId, ThreadId};
use trilogue_mapping::native::{interrupt, json};
use trilogue_runtime::{AnswerKey, AnswerTo, ThreadPatch};
use trilogue_store::rows::{InterruptRow, ThreadRow};
use trilogue_wire::native;

use super::ClientConnection;
use crate::http::forward::{self, TakeOverWait};
use crate::http::node_client::NodeClient;

// === impl ClientConnection ===

impl ClientConnection {
    /// Makes this node the owner of a thread. While the thread is at work on another node, waits until its run has ended; where that node is gone, until the thread can be taken over.
    /// Errors: as the thread's owner refuses, and as loading the thread.
    pub(crate) async fn bring(&self, thread: &ThreadRow) -> Result<()> {
        let Some(nodes) = &self.state.node_client else { return Ok(()) };
        let mut wait = TakeOverWait::begin();
        loop {
            let elsewhere = match self.runtime().take(thread).await {
                Err(error) if error.other_node().is_some() => error,
                taken => return taken,
            };
            let address = elsewhere.other_node().unwrap_or_default();
            match nodes.hand_over(&self.principal, address, &thread.id).await {
                Ok(true) => {}
                Ok(false) if wait.pause().await => {}
                Ok(false) => return Err(forward::unreachable(address, forward::OWNS_THREAD)),
                // It has waited for the run for some time already.
                Err(error) if error.code() == Code::ThreadBusy => wait = TakeOverWait::begin(),
                // Its owner has changed meanwhile.
                Err(error) if error.code() == Code::ThreadElsewhere && wait.pause().await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Cancels a run, wherever it is at work. Fails as [`trilogue_runtime::Runtime::cancel`].
    pub(crate) async fn cancel_run(&self, run: &RunId) -> Result<()> {
        let by = &self.principal;
        match self.elsewhere(self.runtime().cancel(by, run).await.map(drop))? {
            None => Ok(()),
            Some((nodes, address)) => nodes.cancel(by, &address, run).await,
        }
    }

    /// Answers an interrupt, wherever its run waits. Returns its row where that is here. Fails as [`trilogue_runtime::Runtime::answer_with`].
    pub(crate) async fn answer(
        &self,
        id: &InterruptId,
        answer: &Answer,
        extra: Option<Json>,
    ) -> Result<Option<InterruptRow>> {
        let (to, given) = (AnswerTo::Interrupt(id.clone()), answer.clone());
        match self.runtime().answer_with(&self.principal, to, given, extra.clone()).await {
            Ok(row) => Ok(Some(row)),
            Err(error) => match self.elsewhere(Err(error))? {
                None => Ok(None),
                Some(owner) => self.answer_there(owner, id, answer, extra).await.map(|()| None),
            },
        }
    }

    /// Answers an interrupt with a message of the session. Another node gets the answer alone. Fails as [`trilogue_runtime::Runtime::answer_with_message`].
    pub(crate) async fn answer_with_message(
        &self,
        id: &InterruptId,
        answer: &Answer,
        message: Message,
        key: Option<AnswerKey>,
    ) -> Result<()> {
        let (to, given) = (AnswerTo::Interrupt(id.clone()), answer.clone());
        let runtime = self.runtime();
        let answered = runtime.answer_with_message(&self.principal, to, given, message, key).await;
        match self.elsewhere(answered.map(drop))? {
            None => Ok(()),
            Some(owner) => self.answer_there(owner, id, answer, None).await,
        }
    }

    async fn answer_there(
        &self,
        (nodes, address): (&NodeClient, String),
        id: &InterruptId,
        answer: &Answer,
        extra: Option<Json>,
    ) -> Result<()> {
        let row = self.read().interrupt(&self.principal.scope(), id).await?;
        let missing =
            || Error::new(Code::InterruptNotFound, format!("there is no interrupt '{id}'"));
        let given = interrupt::given(answer, &row.ok_or_else(missing)?.thread_id);
        let mut body = serde_json::to_value(given).unwrap_or_default();
        if let (Some(extra), Some(members)) = (extra, body.as_object_mut()) {
            members.insert("extra".to_owned(), extra.to_value());
        }
        nodes.answer(&self.principal, &address, id, &body).await
    }

    /// Changes the metadata of a thread, wherever it is. Fails as [`trilogue_runtime::Runtime::patch_thread`].
    pub(crate) async fn patch_metadata(&self, thread: &ThreadId, metadata: Json) -> Result<()> {
        let by = &self.principal;
        let wire = native::ThreadPatch {
            metadata: Some(json(&metadata)),
            ..native::ThreadPatch::default()
        };
        let patch = ThreadPatch { metadata: Some(metadata), ..ThreadPatch::default() };
        let patched = self.runtime().patch_thread(by, thread, patch).await;
        match self.elsewhere(patched.map(drop))? {
            None => Ok(()),
            Some((nodes, address)) => nodes.patch(by, &address, thread, &wire).await,
        }
    }

    /// Erases a thread, wherever it is. Fails as [`trilogue_runtime::Runtime::erase_thread`].
    pub(crate) async fn erase_thread(&self, thread: &ThreadId) -> Result<()> {
        let by = &self.principal;
        match self.elsewhere(self.runtime().erase_thread(by, thread).await)? {
            None => Ok(()),
            Some((nodes, address)) => nodes.erase(by, &address, thread).await,
        }
    }

    /// Where a change belongs that was refused here because another node owns the thread.
    fn elsewhere(&self, changed: Result<()>) -> Result<Option<(&NodeClient, String)>> {
        match (changed, &self.state.node_client) {
            (Err(error), Some(nodes)) => match error.other_node() {
                Some(address) => Ok(Some((nodes, address.to_owned()))),
                None => Err(error),
            },
            (changed, _) => changed.map(|()| None),
        }
    }
}
