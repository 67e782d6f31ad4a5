//! The task of a session: handles the items of its queue one after the other.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use trilogue_domain::event::{MessageEvent, Original};
use trilogue_domain::{Body, Error, MessageId, RunId};
use trilogue_mapping::agent_client::{
    KnownCall, ToolCalls, body_of_update, is_about_size, line_too_long, logged_notification,
    oversize_notice, split_oversize, title_of, update_original, without_priming_title,
};
use trilogue_runtime::{EmitError, RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::{Notification, Request};
use trilogue_wire::agent_client::splice;

use super::answer::{PERMISSION_METHOD, RequestAnswerer, TurnScope};
use super::modes::SessionModes;
use super::replay::Replay;
use super::transcript::{
    MessageIds, OutsideUpdate, TurnTranscript, UsedIds, derived_id, derived_thought_id, name_piece,
    update_kind,
};
use crate::agent_client::launch::Launch;
use crate::agent_client::routing::{OversizeLine, SessionItem, TurnEnd, TurnSummary};
use crate::output_warning::OutputWarning;

const UPDATE_METHOD: &str = "session/update";
/// The updates about a session's settings. An agent repeats them whenever it opens a session.
const SETTINGS: [&str; 3] =
    ["available_commands_update", "config_option_update", "current_mode_update"];
/// The updates that an agent sends at any time. They do not prove that it works on a prompt.
const BACKGROUND: [&str; 6] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    "notice",
];

/// Logs an agent's updates in a session, and answers its requests.
pub(super) struct SessionActor {
    assigns_ids: bool,
    thread: ThreadContext,
    answerer: Arc<RequestAnswerer>,
    turn: Option<CurrentTurn>,
    /// Names chunks outside of turns.
    message_ids: MessageIds,
    used_ids: UsedIds,
    tool_calls: ToolCalls,
    last_run: Option<RunId>,
    late_message: Option<MessageId>,
    /// The newest thought outside of turns: the agent's id of it, and this server's.
    late_thought: Option<(String, MessageId)>,
    /// Hashes of the newest settings, by kind.
    settings: HashMap<String, u64>,
    replay: Option<Replay>,
    modes: SessionModes,
}

struct CurrentTurn {
    context: RunContext,
    transcript: TurnTranscript,
    scope: TurnScope,
    /// Whether the agent has sent an update or a request in the turn.
    has_worked: bool,
    /// Why the log refused an event. The run fails with this error.
    refused: Option<Error>,
    is_stopped: bool,
    warning: OutputWarning,
}

// === impl SessionActor ===

impl SessionActor {
    pub(super) fn new(
        launch: &Launch,
        thread: ThreadContext,
        answerer: RequestAnswerer,
        modes: SessionModes,
    ) -> Self {
        Self {
            assigns_ids: launch.assign_message_ids,
            thread,
            answerer: Arc::new(answerer),
            turn: None,
            message_ids: MessageIds::new(launch.assign_message_ids),
            used_ids: UsedIds::default(),
            tool_calls: ToolCalls::default(),
            last_run: None,
            late_message: None,
            late_thought: None,
            settings: HashMap::new(),
            replay: None,
            modes,
        }
    }

    /// Runs until the session is closed or its process has exited.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<SessionItem>) {
        // One item at a time, so that the log has the agent's order.
        while let Some(item) = items.recv().await {
            match item {
                SessionItem::Notification { notification, _bytes } => {
                    self.on_notification(notification).await
                }
                SessionItem::Request { request, _bytes } => self.on_request(request),
                SessionItem::Oversize(line) => self.oversize(&line).await,
                SessionItem::Response => self.modes.discard_outdated(),
                SessionItem::Begin { context, user } => {
                    self.end_late_message().await;
                    // Only now: an open message outside of runs must end before the run's events.
                    self.begin(context, user);
                }
                // The turn may have stopped waiting.
                SessionItem::Finish { end, done } => drop(done.send(self.finish(end).await)),
                SessionItem::Replay => self.replay = Some(Replay::default()),
                SessionItem::Reopened { may_still_replay } => {
                    self.replay = self.replay.take().filter(|_| may_still_replay);
                    self.replay.iter_mut().for_each(|replay| replay.set_opened_at(Instant::now()));
                }
                SessionItem::ReplayEnd { is_expected, ends } => {
                    let until = self.replay.as_ref().and_then(|replay| replay.ends(is_expected));
                    // The caller may have stopped waiting.
                    let _: Result<(), Option<Instant>> = ends.send(until);
                }
            }
        }
        self.end_late_message().await;
    }

    fn begin(&mut self, context: RunContext, user: MessageId) {
        let (run, agent) = (context.run().clone(), context.agent().as_str());
        let transcript = TurnTranscript::new(run.clone(), agent, user, self.assigns_ids);
        // A prompt ends the replay: the updates after it are new.
        self.replay = None;
        self.message_ids.end();
        self.last_run = Some(run);
        self.turn = Some(CurrentTurn {
            context,
            transcript,
            scope: TurnScope::default(),
            has_worked: false,
            refused: None,
            is_stopped: false,
            warning: OutputWarning::default(),
        });
    }

    async fn finish(&mut self, end: TurnEnd) -> TurnSummary {
        let Some(mut turn) = self.turn.take() else { return TurnSummary::default() };
        // End the open requests first: a client must not answer for a turn that is over.
        turn.scope.end(end);
        let is_broken = end == TurnEnd::Broken;
        self.tool_calls.end_turn(is_broken);
        let last = turn.transcript.finish(is_broken, &mut self.used_ids);
        // A stopped run accepts no further events.
        for body in last.into_iter().filter(|_| !turn.is_stopped) {
            match turn.context.emit(body, None).await {
                Ok(()) => {}
                Err(EmitError::Stopped) => break,
                Err(EmitError::Refused(error)) => {
                    turn.refused.get_or_insert(error);
                }
            }
        }
        TurnSummary { has_worked: turn.has_worked, refused: turn.refused }
    }

    fn on_request(&mut self, request: Request) {
        let turn = self.turn.as_mut().map(|turn| {
            turn.has_worked = true;
            (turn.context.clone(), turn.scope.clone())
        });
        let known = match request.method() {
            // Read the state here, in order: later updates may change the call.
            PERMISSION_METHOD => self.tool_calls.permission(request.params().as_str()),
            _ => KnownCall::default(),
        };
        // Answered in a task: a person may take long, and later updates must not wait for that.
        Arc::clone(&self.answerer).answer(request, known, turn);
    }

    async fn on_notification(&mut self, notification: Notification) {
        let params = notification.params.as_str();
        if notification.method != UPDATE_METHOD {
            let (body, original) = logged_notification(&notification.method, params);
            return self.log(body, Some(original)).await;
        }
        // An unreadable update may be about any call, so no call counts as completely known after it.
        let Some((params, _)) = splice::cut_session(params) else {
            return self.tool_calls.mark_all_stale();
        };
        let kind = update_kind(&params);
        let params = match kind {
            "session_info_update" => without_priming_title(params),
            _ => params,
        };
        // Before the replay is filtered: its updates change the modes too.
        self.modes.apply_update(kind, &params);
        let is_repeated = self.is_repeated_setting(kind, &params);
        if self.replay.as_mut().is_some_and(|replay| replay.takes(kind, Instant::now()))
            && (is_repeated || !SETTINGS.contains(&kind))
        {
            return self.tool_calls.replay(kind, &params);
        }
        // Before the event is logged: a later permission request relies on the call's complete state.
        self.tool_calls.update(kind, &params);
        let Some(turn) = &mut self.turn else {
            return self.log_outside_turn(kind, params).await;
        };
        // This decides whether a failed prompt may be repeated.
        turn.has_worked |= !BACKGROUND.contains(&kind);
        // If the store cannot answer, the id counts as taken: another id is safe, a duplicate is not.
        if let Some(id) = turn.transcript.begun_message_id(kind, &params, &self.used_ids)
            && turn.context.has_message(&id).await.unwrap_or(true)
        {
            self.used_ids.add([id]);
        }
        let logged = turn.transcript.update(kind, params, &self.used_ids);
        for (body, original) in logged.events {
            turn.log(body, original).await;
        }
        // After the events, because the log accepts an alias only for a message that has begun.
        if let Some((message, alias)) = &logged.alias {
            turn.context.alias(message, alias);
        }
    }

    /// Logs an update outside of turns. Its chunks become a separate message.
    async fn log_outside_turn(&mut self, kind: &str, params: String) {
        let OutsideUpdate { params, message, ends } = self.message_ids.outside_turn(kind, params);
        let mut body = body_of_update(&params);
        if ends {
            self.end_late_message().await;
        }
        if let Body::Message(MessageEvent::Thought { .. }) = body {
            return self.log_late_thought(body, params).await;
        }
        if let (Some(id), Some(run)) = (message, self.last_run.clone())
            && let Body::Message(
                MessageEvent::Delta { message: named, .. }
                | MessageEvent::Part { message: named, .. },
            ) = &mut body
        {
            let message = MessageId::parse(&id).unwrap_or_else(|_| derived_id(&run, &id));
            *named = message.clone();
            self.begin_late_message(message, &run).await;
        }
        self.log(body, Some(update_original(params))).await;
    }

    /// Logs a piece of a thought outside of turns. If its id is already taken, the thought gets another, as in a turn.
    async fn log_late_thought(&mut self, mut body: Body, mut params: String) {
        let id = splice::message_id(&params).map(|id| id.into_owned()).unwrap_or_default();
        let mut late = self.late_thought.take().filter(|(given, _)| *given == id);
        if late.is_none()
            && let Some(run) = self.last_run.clone()
        {
            let theirs = MessageId::parse(&id).ok();
            let is_used = theirs.as_ref().is_none_or(|theirs| self.used_ids.has(theirs));
            let derived = derived_thought_id(&run, &id);
            let mut named = theirs.filter(|_| !is_used).unwrap_or_else(|| derived.clone());
            if !self.begin_late_thought(&named, &run).await && named != derived {
                named = derived;
                self.begin_late_thought(&named, &run).await;
            }
            self.used_ids.add([named.clone()]);
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

    /// Begins a message outside of turns, unless it has already begun.
    async fn begin_late_message(&mut self, message: MessageId, last_run: &RunId) {
        if self.late_message.as_ref() == Some(&message) {
            return;
        }
        self.end_late_message().await;
        if self.used_ids.has(&message) {
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
        self.used_ids.add([message]);
    }

    async fn end_late_message(&mut self) {
        if let Some(message) = self.late_message.take() {
            self.log(Body::Message(MessageEvent::Completed { message }), None).await;
        }
    }

    /// Logs an oversize line. A replayed one was logged before.
    async fn oversize(&mut self, line: &OversizeLine) {
        let may_be = |name: &str| line.method.as_ref().is_none_or(|method| method == name);
        let may_be_update = may_be(UPDATE_METHOD);
        if may_be_update || may_be(PERMISSION_METHOD) {
            self.tool_calls.mark_all_stale();
        }
        if !line.is_logged {
            return;
        }
        if may_be_update
            && self.replay.as_mut().is_some_and(|replay| replay.takes_unreadable(Instant::now()))
        {
            return;
        }
        if let Some(turn) = &mut self.turn {
            turn.has_worked = true;
        }
        self.log(line_too_long(line.limit, line.method.as_deref()), None).await;
    }

    /// Whether a setting equals the last one of its kind. Remembers it.
    fn is_repeated_setting(&mut self, kind: &str, params: &str) -> bool {
        if !SETTINGS.contains(&kind) {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        params.hash(&mut hasher);
        let hash = hasher.finish();
        self.settings.insert(kind.to_owned(), hash) == Some(hash)
    }

    async fn log(&mut self, body: Body, original: Option<Original>) {
        if let Some(turn) = &mut self.turn {
            return turn.log(body, original).await;
        }
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

// === impl CurrentTurn ===

impl CurrentTurn {
    async fn log(&mut self, body: Body, original: Option<Original>) {
        // After a refused event, no later one is logged: the run fails with the first error.
        if self.is_stopped || self.refused.is_some() {
            return;
        }
        if let Some(title) = title_of(&body) {
            self.context.title(title.as_deref());
        }
        self.warning.note(&body, &self.context);
        // The first try needs no copies and does not wait; it succeeds if there is space.
        let emitted = match self.context.try_emit(&body, original.as_ref()) {
            Ok(true) => return,
            Ok(false) => self.context.emit(body.clone(), original.clone()).await,
            Err(error) => Err(error),
        };
        let emitted = match emitted {
            Err(EmitError::Refused(error)) if is_about_size(&error) => {
                self.emit_smaller(body, original.as_ref()).await
            }
            emitted => emitted,
        };
        match emitted {
            Ok(()) => {}
            Err(EmitError::Stopped) => self.is_stopped = true,
            Err(EmitError::Refused(error)) => self.refused = Some(error),
        }
    }

    /// Logs a smaller event instead of one that is too large: size alone never ends a run.
    async fn emit_smaller(&self, body: Body, original: Option<&Original>) -> Result<(), EmitError> {
        for body in split_oversize(body, original) {
            match self.context.emit(body, None).await {
                Err(EmitError::Refused(error)) if is_about_size(&error) => {
                    self.context.emit(oversize_notice(original), None).await?;
                }
                emitted => emitted?,
            }
        }
        Ok(())
    }
}
