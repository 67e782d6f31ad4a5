//! Threads that another node owns. A prompt moves its thread to this node, which has the editor and its files; requests about an active run go to the run's owner.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use trilogue_domain::error::Result;
use trilogue_domain::{Answer, Code, Error, InterruptId, Json, Message, RunId, ThreadId};
use trilogue_mapping::native::{interrupt, json};
use trilogue_runtime::{AnswerKey, AnswerTo, ThreadPatch};
use trilogue_store::rows::{InterruptRow, ThreadRow};
use trilogue_wire::native;

use super::ClientConnection;
use crate::http::forward::{OtherNode, TakeOverWait};
use crate::http::node_client::NodeClient;

// === impl ClientConnection ===

impl ClientConnection {
    /// Makes this node the owner of a thread. If the thread is active on another node, waits for the end of its run; if that node has failed, waits until the thread can be taken over.
    /// Errors: those of the thread's owner, and of loading the thread.
    pub(crate) async fn take_over_thread(&self, thread: &ThreadRow) -> Result<()> {
        let Some(nodes) = &self.state.node_client else { return Ok(()) };
        let mut wait = TakeOverWait::begin();
        loop {
            let taken = self.runtime().take(thread).await;
            let Some(node) = taken.as_ref().err().and_then(OtherNode::owner) else { return taken };
            match nodes.hand_over(&self.principal, &node, &thread.id).await {
                Ok(true) => {}
                Ok(false) if wait.pause().await => {}
                Ok(false) => return Err(node.unreachable()),
                // The handover has already waited for the run once.
                Err(error) if error.code() == Code::ThreadBusy => wait = TakeOverWait::begin(),
                // The owner has changed meanwhile.
                Err(error) if error.code() == Code::ThreadElsewhere && wait.pause().await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Cancels a run on the node that owns its thread. Errors: as [`trilogue_runtime::Runtime::cancel`].
    pub(crate) async fn cancel_run(&self, run: &RunId) -> Result<()> {
        let by = &self.principal;
        let here = || self.runtime().cancel(by, run);
        let there = |nodes: Arc<NodeClient>, node: OtherNode| async move {
            nodes.cancel(by, &node, run).await
        };
        self.run_at_owner(here, there).await.map(drop)
    }

    /// Answers an interrupt on the node that owns its thread. Returns its row if that is this node. Errors: as [`trilogue_runtime::Runtime::answer_with`].
    pub(crate) async fn answer(
        &self,
        id: &InterruptId,
        answer: &Answer,
        extra: Option<Json>,
    ) -> Result<Option<InterruptRow>> {
        let (by, to) = (&self.principal, || AnswerTo::Interrupt(id.clone()));
        let here = || self.runtime().answer_with(by, to(), answer.clone(), extra.clone());
        self.run_at_owner(here, self.forward_answer(id, answer, extra.as_ref())).await
    }

    /// Answers an interrupt with a message of the session. Another node gets only the answer. Errors: as [`trilogue_runtime::Runtime::answer_with_message`].
    pub(crate) async fn answer_with_message(
        &self,
        id: &InterruptId,
        answer: &Answer,
        message: Message,
        key: Option<AnswerKey>,
    ) -> Result<()> {
        let (by, to) = (&self.principal, || AnswerTo::Interrupt(id.clone()));
        let here = || {
            let (answer, message, key) = (answer.clone(), message.clone(), key.clone());
            self.runtime().answer_with_message(by, to(), answer, message, key)
        };
        self.run_at_owner(here, self.forward_answer(id, answer, None)).await.map(drop)
    }

    /// Changes a thread's metadata on the node that owns it. Errors: as [`trilogue_runtime::Runtime::patch_thread`].
    pub(crate) async fn patch_metadata(&self, thread: &ThreadId, metadata: Json) -> Result<()> {
        let by = &self.principal;
        let here = || {
            let patch = ThreadPatch {
                metadata: Some(metadata.clone()),
                has_checked_settings: true,
                ..ThreadPatch::default()
            };
            self.runtime().patch_thread(by, thread, patch)
        };
        let there = |nodes: Arc<NodeClient>, node: OtherNode| {
            let patch = native::ThreadPatch {
                metadata: Some(json(&metadata)),
                ..native::ThreadPatch::default()
            };
            async move { nodes.patch(by, &node, thread, &patch).await }
        };
        self.run_at_owner(here, there).await.map(drop)
    }

    /// Erases a thread on the node that owns it. Errors: as [`trilogue_runtime::Runtime::erase_thread`].
    pub(crate) async fn erase_thread(&self, thread: &ThreadId) -> Result<()> {
        let by = &self.principal;
        let here = || self.runtime().erase_thread(by, thread);
        let there = |nodes: Arc<NodeClient>, node: OtherNode| async move {
            nodes.erase(by, &node, thread).await
        };
        self.run_at_owner(here, there).await.map(drop)
    }

    /// Makes a change here, or sends it to the thread's owner: then the result is `None`. If that node has failed, waits until the thread is taken over.
    async fn run_at_owner<T, H, E>(
        &self,
        here: impl Fn() -> H,
        there: impl Fn(Arc<NodeClient>, OtherNode) -> E,
    ) -> Result<Option<T>>
    where
        H: Future<Output = Result<T>>,
        E: Future<Output = Result<bool>>,
    {
        let wait = TakeOverWait::begin();
        loop {
            let elsewhere = match here().await {
                Err(error) => error,
                done => return done.map(Some),
            };
            let (Some(nodes), Some(node)) = (&self.state.node_client, OtherNode::owner(&elsewhere))
            else {
                return Err(elsewhere);
            };
            if there(Arc::clone(nodes), node.clone()).await? {
                return Ok(None);
            }
            if !wait.pause().await {
                return Err(node.unreachable());
            }
        }
    }

    /// Sends an answer to the owner of its thread.
    fn forward_answer<'a>(
        &'a self,
        id: &'a InterruptId,
        answer: &'a Answer,
        extra: Option<&'a Json>,
    ) -> impl Fn(Arc<NodeClient>, OtherNode) -> BoxFuture<'a, Result<bool>> {
        move |nodes, node| {
            Box::pin(async move {
                let row = self.read().interrupt(&self.principal.scope(), id).await?;
                let row = row.ok_or_else(|| {
                    Error::new(Code::InterruptNotFound, format!("interrupt '{id}' not found"))
                })?;
                let given = interrupt::answer_given(answer, &row.thread_id);
                let mut body = serde_json::to_value(given).unwrap_or_default();
                if let (Some(extra), Some(members)) = (extra, body.as_object_mut()) {
                    members.insert("extra".to_owned(), extra.to_value());
                }
                nodes.answer(&self.principal, &node, id, &body).await
            })
        }
    }
}
