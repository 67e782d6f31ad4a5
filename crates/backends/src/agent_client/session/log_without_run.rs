//! Logs updates that belong to no run: settings, and work on a thread that gets no run for it. Chunks become a separate message.

use trilogue_domain::event::{MessageEvent, Original};
use trilogue_domain::{Body, Error, MessageId, RunId};
use trilogue_mapping::agent_client::{
    body_of_update, is_about_size, logged_update, oversize_notice, split_oversize, title_of,
    update_original,
};
use trilogue_runtime::ThreadContext;
use trilogue_wire::agent_client::splice;

use super::transcript::{
    MessageIds, OutsideUpdate, UsedIds, derived_id, derived_thought_id, name_piece,
};

#[derive(Debug)]
pub(super) struct LogWithoutRun {
    pub(super) thread: ThreadContext,
    /// Names chunks outside of runs.
    message_ids: MessageIds,
    last_run: Option<RunId>,
    late_message: Option<MessageId>,
    /// The newest thought outside of runs: the agent's id of it, and this server's.
    late_thought: Option<(String, MessageId)>,
}

// === impl LogWithoutRun ===

impl LogWithoutRun {
    pub(super) fn new(thread: ThreadContext, assigns: bool) -> Self {
        Self {
            thread,
            message_ids: MessageIds::new(assigns),
            last_run: None,
            late_message: None,
            late_thought: None,
        }
    }

    /// Notes that a run begins: what follows outside of runs comes after it.
    pub(super) async fn record_run(&mut self, run: RunId) {
        // An open message outside of runs must end before the run's events.
        self.end_message().await;
        self.message_ids.end();
        self.last_run = Some(run);
    }

    /// Logs an update outside of runs. Its chunks become a separate message.
    pub(super) async fn update(&mut self, kind: &str, params: String, used: &mut UsedIds) {
        let OutsideUpdate { params, message, ends } = self.message_ids.outside_turn(kind, params);
        if ends {
            self.end_message().await;
        }
        if matches!(kind, "tool_call" | "tool_call_update") {
            for (body, original) in logged_update(params) {
                self.log(body, Some(original)).await;
            }
            return;
        }
        let mut body = body_of_update(&params);
        if let Body::Message(MessageEvent::Thought { .. }) = body {
            return self.log_late_thought(body, params, used).await;
        }
        if let (Some(id), Some(run)) = (message, self.last_run.clone())
            && let Body::Message(
                MessageEvent::Delta { message: named, .. }
                | MessageEvent::Part { message: named, .. },
            ) = &mut body
        {
            let message = MessageId::parse(&id).unwrap_or_else(|_| derived_id(&run, &id));
            *named = message.clone();
            self.begin_late_message(message, &run, used).await;
        }
        self.log(body, Some(update_original(params))).await;
    }

    /// Logs a piece of a thought outside of runs. If its id is already taken, the thought gets another, as in a turn.
    async fn log_late_thought(&mut self, mut body: Body, mut params: String, used: &mut UsedIds) {
        let id = splice::message_id(&params).map(|id| id.into_owned()).unwrap_or_default();
        let mut late = self.late_thought.take().filter(|(given, _)| *given == id);
        if late.is_none()
            && let Some(run) = self.last_run.clone()
        {
            let theirs = MessageId::parse(&id).ok();
            let is_used = theirs.as_ref().is_none_or(|theirs| used.has(theirs));
            let derived = derived_thought_id(&run, &id);
            let mut named = theirs.filter(|_| !is_used).unwrap_or_else(|| derived.clone());
            if !self.begin_late_thought(&named, &run).await && named != derived {
                named = derived;
                self.begin_late_thought(&named, &run).await;
            }
            used.add([named.clone()]);
            late = Some((id.clone(), named));
        }
        if let Some((_, named)) = &late {
            if named.as_str() != id
                && let Some(renamed) = splice::put_message_id(&params, named.as_str())
            {
                params = renamed;
            }
            name_piece(&mut body, named.clone());
        }
        self.late_thought = late;
        self.log(body, Some(update_original(params))).await;
    }

    /// Whether the thread had no message or thought with this id before.
    async fn begin_late_thought(&self, id: &MessageId, last_run: &RunId) -> bool {
        self.thread.begin_thought(id, last_run).await.unwrap_or_else(|error| {
            let thread = self.thread.thread();
            tracing::debug!(%thread, %error, "a thought outside of a run was not begun");
            true
        })
    }

    /// Begins a message outside of runs, unless it has already begun.
    async fn begin_late_message(
        &mut self,
        message: MessageId,
        last_run: &RunId,
        used: &mut UsedIds,
    ) {
        if self.late_message.as_ref() == Some(&message) {
            return;
        }
        self.end_message().await;
        if used.has(&message) {
            return;
        }
        match self.thread.begin_message(&message, last_run).await {
            Ok(true) => self.late_message = Some(message.clone()),
            Ok(false) => {}
            Err(error) => {
                let thread = self.thread.thread();
                tracing::debug!(%thread, %error, "a message outside of a run was not begun");
                return;
            }
        }
        used.add([message]);
    }

    pub(super) async fn end_message(&mut self) {
        if let Some(message) = self.late_message.take() {
            self.log(Body::Message(MessageEvent::Completed { message }), None).await;
        }
    }

    pub(super) async fn log(&mut self, body: Body, original: Option<Original>) {
        // The copies are kept for a smaller event, in case this one is too large for the log.
        let (event, copy) = (body.clone(), original.clone());
        let noted = match title_of(&body) {
            Some(title) => self.thread.append_title_event(event, copy, title.as_deref()).await,
            None => self.thread.append_event(event, copy).await,
        };
        let noted = match noted {
            Err(error) if is_about_size(&error) => self.note_smaller(body, original.as_ref()).await,
            noted => noted,
        };
        if let Err(error) = noted {
            let thread = self.thread.thread();
            tracing::debug!(%thread, %error, "an update outside of a run was not logged");
        }
    }

    async fn note_smaller(&self, body: Body, original: Option<&Original>) -> Result<(), Error> {
        for body in split_oversize(body, original) {
            match self.thread.append_event(body, None).await {
                Err(error) if is_about_size(&error) => {
                    self.thread.append_event(oversize_notice(original), None).await?;
                }
                noted => noted?,
            }
        }
        Ok(())
    }
}
