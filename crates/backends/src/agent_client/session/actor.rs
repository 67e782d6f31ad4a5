//! The task of a session: handles the items of its queue one after the other.

use std::collections::HashMap;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};

use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use trilogue_domain::event::{Original, StateEvent, SubagentState};
use trilogue_domain::{Body, Json, MessageId};
use trilogue_mapping::agent_client::{
    KnownCall, SUBAGENT_UPDATE, ToolCalls, body_of_update, ignored_line, line_too_long,
    logged_notification, other_message, replaced_bytes, update_original, with_content_ids,
    without_priming_title, work_report,
};
use trilogue_runtime::{RunContext, ThreadContext};
use trilogue_sdk::agent_client::peer::{IgnoredReason, Notification, RawJson, Request};
use trilogue_wire::agent_client::splice;

use super::answer::{PERMISSION_METHOD, RequestAnswerer, RequestWork, WorkRun};
use super::background::{
    AgentState, OpenRequests, StartOutcome, StartingSessions, WaitingItems, shows_work, state_of,
};
use super::family::{Family, FamilyParts};
use super::log_without_run::LogWithoutRun;
use super::modes::SessionModes;
use super::open_work::{OpenWork, WorkKind};
use super::replay::Replay;
use super::session::Session;
use super::split_text::{JoinedUpdates, SplitText};
use super::transcript::{LoggedUpdate, UsedIds, is_session_message, update_kind};
use crate::agent_client::launch::Launch;
use crate::agent_client::routing::{
    AnsweredTurn, IgnoredLine, NetworkQuestion, OversizeLine, SessionItem, TurnEnd, TurnSummary,
    WorkStop,
};

const UPDATE_METHOD: &str = "session/update";
const STATE_UPDATE: &str = "state_update";
/// The updates about a session's settings. An agent repeats them whenever it opens a session.
const SETTINGS: [&str; 3] =
    ["available_commands_update", "config_option_update", "current_mode_update"];
/// The updates that an agent sends at any time. They do not prove that it works on a prompt.
const BACKGROUND: [&str; 7] = [
    "available_commands_update",
    "config_option_update",
    "current_mode_update",
    "session_info_update",
    "usage_update",
    "notice",
    "prompt_suggestions_update",
];
/// The kind of the event that tells clients that the server has stopped the agent.
const AGENT_STOPPED: &str = "agent_stopped";

/// The most connections that are logged in a turn, or between two turns. Further ones are only counted.
const MAX_LOGGED_CONNECTIONS: usize = 1_000;
/// The most ignored lines that are logged in a turn, or between two turns. Further ones are only counted.
pub(super) const MAX_LOGGED_LINES: usize = 256;

/// Logs an agent's updates in a session, and answers its requests.
pub(super) struct SessionActor {
    pub(super) launch: Arc<Launch>,
    pub(super) answerer: Arc<RequestAnswerer>,
    /// What is logged now: a prompt's turn, or a run that the agent started.
    pub(super) work: Option<OpenWork>,
    /// The run of `work`, for the questions that outlive it.
    pub(super) current: watch::Sender<Option<WorkRun>>,
    requests: OpenRequests,
    /// What waits for a run that the agent starts.
    waiting: WaitingItems,
    pub(super) starting: Arc<StartingSessions>,
    session: Arc<OnceLock<Weak<Session>>>,
    /// Whether the session is open: the agent's work outside of prompts can get runs.
    is_open: bool,
    pub(super) outside: LogWithoutRun,
    used_ids: UsedIds,
    tool_calls: ToolCalls,
    /// Whether the process knows that tool calls are open.
    has_open_calls: bool,
    /// Hashes of the newest settings, by kind.
    settings: HashMap<String, u64>,
    split: SplitText,
    /// How many ignored lines were logged since the last turn began or ended.
    pub(super) logged_lines: usize,
    /// The same for connections.
    logged_connections: usize,
    pub(super) replay: Option<Replay>,
    modes: SessionModes,
    pub(super) family: Family,
    /// What the agent last reported about the work of this session, if it is a sub-agent's.
    pub(super) reported: Option<SubagentState>,
}

pub(super) struct ActorParts {
    pub(super) launch: Arc<Launch>,
    pub(super) thread: ThreadContext,
    pub(super) answerer: RequestAnswerer,
    pub(super) modes: SessionModes,
    pub(super) starting: Arc<StartingSessions>,
    /// The session itself, once it is open.
    pub(super) session: Arc<OnceLock<Weak<Session>>>,
    pub(super) family: FamilyParts,
    /// The replay in which the session is opened.
    pub(super) replay: Option<Replay>,
    /// Whether the session is open from the beginning.
    pub(super) is_open: bool,
}

/// Why the actor continues.
enum Wake {
    Item(Option<SessionItem>),
    Start(StartOutcome),
    Time,
}

// === impl SessionActor ===

impl SessionActor {
    pub(super) fn new(parts: ActorParts) -> Self {
        let ActorParts { launch, thread, answerer, modes, starting, session, .. } = parts;
        let ActorParts { family, replay, is_open, .. } = parts;
        Self {
            answerer: Arc::new(answerer),
            work: None,
            current: watch::Sender::new(None),
            requests: OpenRequests::default(),
            waiting: WaitingItems::new(),
            starting,
            session,
            is_open,
            outside: LogWithoutRun::new(thread, launch.assign_message_ids),
            used_ids: UsedIds::default(),
            tool_calls: ToolCalls::default(),
            has_open_calls: false,
            settings: HashMap::new(),
            split: SplitText::default(),
            logged_lines: 0,
            logged_connections: 0,
            replay,
            modes,
            family: Family::new(family),
            reported: None,
            launch,
        }
    }

    /// Starts its task. Not an async function: the actor starts those of its sub-agents, and a future cannot contain itself.
    pub(super) fn spawn(self, items: mpsc::Receiver<SessionItem>) {
        tokio::spawn(self.run(items));
    }

    /// Runs until the session is closed or its process has exited.
    async fn run(mut self, mut items: mpsc::Receiver<SessionItem>) {
        // One item at a time, so that the log has the agent's order.
        loop {
            self.note_open_calls();
            let wake_at = self.next_wake();
            let wake = tokio::select! {
                biased;
                item = items.recv() => Wake::Item(item),
                outcome = self.waiting.outcome() => Wake::Start(outcome),
                () = sleep_until_some(wake_at) => Wake::Time,
            };
            match wake {
                Wake::Item(Some(item)) => self.handle(item).await,
                Wake::Item(None) => break,
                Wake::Start(StartOutcome::Accepted | StartOutcome::Later) => {}
                Wake::Start(StartOutcome::Never) => self.log_waiting_outside().await,
                Wake::Time => self.on_time().await,
            }
            self.start_if_due();
        }
        self.log_waiting_outside().await;
        self.finish(TurnEnd::Broken).await;
        self.clear_state().await;
        self.outside.end_message().await;
        self.answerer.release_terminals(&self.outside.thread);
    }

    async fn handle(&mut self, item: SessionItem) {
        match item {
            SessionItem::NewSubagent { new, notification, _bytes } => {
                self.open_subagent(new, &notification).await;
                let update = SessionItem::Notification { notification, _bytes };
                // One step deep: an update opens nothing.
                Box::pin(self.handle(update)).await;
            }
            SessionItem::Network(question) if !question.is_checked => {
                self.check_network_question(question);
            }
            SessionItem::Notification { .. }
            | SessionItem::Request { .. }
            | SessionItem::Network(_)
            | SessionItem::Work(_)
            | SessionItem::Ignored { .. }
            | SessionItem::Oversize(_) => {
                self.retire_if_over().await;
                match self.waits_behind(&item) {
                    true => self.wait_for_run(item).await,
                    false => self.take_message(item).await,
                }
            }
            SessionItem::NetworkUse(body) => self.log_network_use(*body).await,
            SessionItem::Response => self.modes.discard_outdated(),
            SessionItem::Begin { context, user, logged } => {
                // The run that the agent started has given way to the prompt.
                self.finish(TurnEnd::Completed).await;
                // A prompt ends the replay: the updates after it are new.
                self.replay = None;
                let kind = WorkKind::Prompt { is_answered: false, idle: CancellationToken::new() };
                self.begin(context, user, kind).await;
                if let Some(work) = &mut self.work {
                    // What waited proves nothing about the prompt.
                    work.has_worked = logged.is_some();
                    work.logged = logged;
                    work.kind =
                        WorkKind::Prompt { is_answered: false, idle: CancellationToken::new() };
                }
            }
            SessionItem::Answered { end, done } => drop(done.send(self.record_answer(end))),
            SessionItem::BeginBackground { context, done } => {
                self.retire_if_over().await;
                if self.work.is_some() {
                    // The prompt was faster: it has taken what waited.
                    drop(done.send(TurnSummary::default()));
                } else {
                    let (last_sign, ends_at) = (Instant::now(), None);
                    let kind = WorkKind::Background { done, last_sign, ends_at };
                    self.begin(context, MessageId::generate(), kind).await;
                }
            }
            SessionItem::CancelBackground { grace } => {
                if let Some(work) = &mut self.work {
                    work.record_cancel(grace);
                }
            }
            // The turn may have stopped waiting.
            SessionItem::Finish { end, done } => drop(done.send(self.finish(end).await)),
            SessionItem::Replay => self.replay = Some(Replay::default()),
            SessionItem::ParentClosed => {
                self.log_waiting_outside().await;
                // The run first: its process may be stopped next, with which it would be lost.
                self.reported = None;
                self.finish_as(TurnEnd::Broken, Some(WorkStop::Cancelled)).await;
                self.clear_state().await;
            }
            SessionItem::ReplayOver => {
                self.replay = None;
                self.family.subagents().end_replay().await;
            }
            SessionItem::Reopened { may_still_replay } => {
                self.family.subagents().record_reopened(may_still_replay).await;
                self.replay = self.replay.take().filter(|_| may_still_replay);
                self.replay.iter_mut().for_each(|replay| replay.set_opened_at(Instant::now()));
            }
            SessionItem::ReplayEnd { is_expected, ends } => {
                let until = self.replay.as_ref().and_then(|replay| replay.ends(is_expected));
                // The caller may have stopped waiting.
                let _: Result<(), Option<Instant>> = ends.send(until);
            }
            SessionItem::Opened => self.is_open = true,
            SessionItem::ProcessEnded => {
                self.answerer.release_terminals(&self.outside.thread);
                for (subagent, params) in self.family.clear_states() {
                    let thread = &self.outside.thread;
                    if matches!(thread.is_subagent_state_cleared(&subagent).await, Ok(true)) {
                        // By a server that stops.
                        continue;
                    }
                    let body = body_of_update(&params);
                    // Not in the open run: the server may have ended that before it stopped the agent.
                    self.outside.log(body, Some(update_original(params))).await;
                }
                if self.work.as_ref().is_some_and(OpenWork::is_background) {
                    self.finish_as(TurnEnd::Broken, Some(WorkStop::ProcessEnded)).await;
                }
            }
            SessionItem::Stopping { reason, done } => {
                let data = Json::from_value(&json!({ "reason": reason }));
                let kind = AGENT_STOPPED.to_owned();
                self.log(Body::State(StateEvent::Custom { kind, data }), None).await;
                // The caller may have stopped waiting.
                let _: Result<(), ()> = done.send(());
            }
        }
    }

    /// Handles a message of the agent, or lets it wait for a run.
    async fn take_message(&mut self, item: SessionItem) {
        match item {
            SessionItem::Notification { ref notification, .. } => {
                let is_handled = self.on_notification(notification).await;
                if !is_handled {
                    self.wait_for_run(item).await;
                }
            }
            // Until the session is open, the agent may need the answer for the opening itself.
            SessionItem::Request { request, .. } if self.takes_requests() => {
                self.on_request(request);
            }
            SessionItem::Network(question) if self.takes_requests() => {
                self.on_network_question(question);
            }
            SessionItem::Request { .. } | SessionItem::Network(_) => self.wait_for_run(item).await,
            SessionItem::Work(ref report) => {
                if self.is_replayed() {
                    // What it did before a restart says nothing about its work now.
                } else if self.starts_work(report) {
                    self.wait_for_run(item).await;
                } else {
                    self.record_report(report.clone()).await;
                }
            }
            SessionItem::Ignored { line, .. } => self.ignored(line).await,
            SessionItem::Oversize(line) => self.oversize(&line).await,
            _ => {}
        }
    }

    /// Whether the agent's requests belong to the open work, or can get no run. What it asks after its answer belongs to its next run: the clients of the answered one wait for no question.
    fn takes_requests(&self) -> bool {
        let is_next = self.work.as_ref().is_none_or(OpenWork::ends_with_request);
        !is_next || !self.gets_runs()
    }

    /// Whether a message waits because earlier ones wait for a run: the order of work stays. Settings do not wait.
    fn waits_behind(&self, item: &SessionItem) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        match item {
            SessionItem::Notification { notification, .. } => {
                let Some(cut) = splice::cut(notification.params.as_str()) else { return false };
                let kind = update_kind(&cut.params);
                kind == SUBAGENT_UPDATE
                    || shows_work(kind, &cut.params)
                    || state_of(kind, &cut.params).is_some()
            }
            SessionItem::Request { .. } | SessionItem::Network(_) => self.gets_runs(),
            _ => true,
        }
    }

    /// Keeps an item until a run begins.
    async fn wait_for_run(&mut self, item: SessionItem) {
        self.touch();
        self.waiting.push(item);
        if self.waiting.is_full() {
            self.log_waiting_outside().await;
        }
    }

    /// Tells the process whether tool calls are open: its agent may come back to them after the answer.
    fn note_open_calls(&mut self) {
        let are_any = self.tool_calls.has_open();
        if are_any != self.has_open_calls
            && let Some(session) = self.session.get().and_then(Weak::upgrade)
        {
            session.inbox().set_open_calls(are_any);
            self.has_open_calls = are_any;
        }
    }

    /// Begins to log in a run, first what has waited for it.
    async fn begin(&mut self, context: RunContext, user: MessageId, kind: WorkKind) {
        self.outside.record_run(context.run().clone()).await;
        let work = OpenWork::new(context.clone(), user, self.launch.assign_message_ids, kind);
        let scope = work.scope.clone();
        self.work = Some(work);
        // Only now: questions that outlived their run are asked in this one.
        self.current.send_replace(Some(WorkRun { context, scope }));
        self.waiting.record_begin();
        for item in self.waiting.take() {
            self.take_message(item).await;
        }
    }

    fn record_answer(&mut self, end: TurnEnd) -> AnsweredTurn {
        let Some(work) = &mut self.work else { return AnsweredTurn::default() };
        let WorkKind::Prompt { is_answered, idle } = &mut work.kind else {
            return AnsweredTurn::default();
        };
        *is_answered = true;
        let idle = idle.clone();
        // A client must not answer for a turn that is over. Questions stay open.
        work.scope.end(end);
        self.tool_calls.end_turn(end == TurnEnd::Broken);
        let (has_worked, refused) = (work.has_worked, work.refused.clone());
        let summary = TurnSummary { has_worked, refused, stop: None };
        AnsweredTurn { summary, idle }
    }

    async fn finish(&mut self, end: TurnEnd) -> TurnSummary {
        self.finish_as(end, None).await
    }

    /// Ends the work, in the way that the agent reports.
    pub(super) async fn finish_as(&mut self, end: TurnEnd, stop: Option<WorkStop>) -> TurnSummary {
        self.flush_split().await;
        (self.logged_lines, self.logged_connections) = (0, 0);
        let Some(mut work) = self.work.take() else { return TurnSummary::default() };
        self.current.send_replace(None);
        let end = if work.is_cancelled() { TurnEnd::Broken } else { end };
        if !matches!(work.kind, WorkKind::Prompt { is_answered: true, .. }) {
            self.tool_calls.end_turn(end == TurnEnd::Broken);
        }
        if work.is_background() && self.is_reported_at_work() {
            // Before the end of the run: nothing shows it at work that has no run. What it reported before does not make its next work endless either.
            self.clear_state().await;
        }
        if end == TurnEnd::Completed && self.requests.has_question() {
            self.waiting.expect_question();
        }
        work.stop = stop;
        work.finish(end, &mut self.used_ids).await
    }

    /// Ends the work whose run was completed for another one.
    async fn retire_if_over(&mut self) {
        if self.work.as_ref().is_some_and(OpenWork::is_over) {
            self.finish(TurnEnd::Completed).await;
        }
    }

    /// Returns the open work for a request of the agent, which is a sign of work.
    fn request_work(&mut self) -> Option<RequestWork> {
        let work = self.work.as_mut()?;
        work.has_worked = true;
        work.record_sign(None);
        // What the agent asks for can have effects before it sends anything that is logged.
        work.context.store_kept();
        let run = WorkRun { context: work.context.clone(), scope: work.scope.clone() };
        Some(RequestWork { run, next: self.current.subscribe() })
    }

    /// Answers a question that a person has answered before for this thread or for the agent. Otherwise puts it into the queue again.
    fn check_network_question(&self, mut question: NetworkQuestion) {
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return };
        let (thread, answerer) = (self.outside.thread.thread().clone(), Arc::clone(&self.answerer));
        question.is_checked = true;
        tokio::spawn(async move {
            if let Some(question) = answerer.answer_network_by_rule(question, thread).await {
                session.inbox().put(SessionItem::Network(question)).await;
            }
        });
    }

    /// Logs a connection, up to a number in each turn and between two.
    async fn log_network_use(&mut self, body: Body) {
        self.logged_connections += 1;
        if self.logged_connections <= MAX_LOGGED_CONNECTIONS {
            self.log(body, None).await;
        }
    }

    fn on_network_question(&mut self, question: NetworkQuestion) {
        // Without a run, no person can be asked: dropping the question refuses it.
        if let Some(work) = self.request_work() {
            let thread = self.outside.thread.thread().clone();
            Arc::clone(&self.answerer).answer_network(question, (thread, work), &self.requests);
        }
    }

    fn on_request(&mut self, request: Request) {
        let work = self.request_work();
        let mut params = request.params().clone();
        let known = match request.method() {
            PERMISSION_METHOD => {
                let family = &self.family;
                let named = with_content_ids(params.as_str().to_owned(), "toolCall", |id| {
                    family.thread_of(id)
                });
                params = RawJson::parse(named).unwrap_or(params);
                // Read the state here, in order: later updates may change the call.
                self.tool_calls.permission(params.as_str())
            }
            _ => KnownCall::default(),
        };
        // Answered in a task: a person may take long, and later updates must not wait for that.
        Arc::clone(&self.answerer).answer(request, params, known, work, &self.requests);
    }

    /// Logs a notification. Returns `false` if it waits for a run.
    async fn on_notification(&mut self, notification: &Notification) -> bool {
        let params = notification.params.as_str();
        if notification.method != UPDATE_METHOD {
            let (body, original) = logged_notification(&notification.method, params);
            self.log(body, Some(original)).await;
            return true;
        }
        // An unreadable update may be about any call, so no call counts as completely known after it.
        if self.work.is_none() && self.waiting.gets_runs() && self.waits_as_work(params) {
            return false;
        }
        let line = self.split.take_line(params);
        let Some(cut) = splice::cut(params) else {
            self.tool_calls.mark_all_stale();
            return true;
        };
        let may_be_split = cut.may_have_code_points || line.is_some() || self.split.is_holding();
        let params = cut.params;
        let kind = update_kind(&params);
        let params = match kind {
            "session_info_update" => without_priming_title(params),
            _ => params,
        };
        let is_new_subagent = kind == SUBAGENT_UPDATE && self.family.is_new(&params);
        let Some(params) = self.with_thread_ids(kind, params).await else { return true };
        if is_new_subagent && self.replay.is_some() {
            // The log has no such sub-agent, although this may be a replay.
            self.on_update(kind, params).await;
            return true;
        }
        // Before the replay is filtered: its updates change the modes too.
        self.modes.apply_update(kind, &params);
        let is_repeated = self.is_repeated_setting(kind, &params);
        if self.replay.as_mut().is_some_and(|replay| replay.takes(kind, Instant::now()))
            && (is_repeated || !SETTINGS.contains(&kind))
        {
            self.tool_calls.replay(kind, &params);
            return true;
        }
        if !may_be_split {
            return self.on_update(kind, params).await;
        }
        let JoinedUpdates { earlier, update } = self.split.join(kind, params, line.as_deref());
        if let Some((kind, params)) = earlier {
            self.on_update(kind, params).await;
        }
        match (update, &mut self.work) {
            (Some(params), _) => self.on_update(kind, params).await,
            (None, Some(work)) => {
                work.has_worked = true;
                work.record_sign(None);
                true
            }
            (None, None) => true,
        }
    }

    /// Whether an update shows work that has no run yet and is new, not a replay.
    fn waits_as_work(&mut self, params: &str) -> bool {
        let Some(cut) = splice::cut(params) else { return false };
        let kind = update_kind(&cut.params);
        // What is known of a sub-agent can change at any time. A new one is work.
        let is_work = match kind {
            SUBAGENT_UPDATE => self.replay.is_none() && self.family.is_new(&cut.params),
            _ => shows_work(kind, &cut.params),
        };
        is_work && !self.replay.as_mut().is_some_and(|it| it.takes(kind, Instant::now()))
    }

    /// Logs the first half of a character whose second half did not come.
    async fn flush_split(&mut self) {
        let Some((kind, params)) = self.split.flush() else { return };
        let Some(work) = &mut self.work else {
            return self.outside.update(kind, params, &mut self.used_ids).await;
        };
        for (body, original) in work.transcript.update(kind, params, &self.used_ids).events {
            work.log(body, original).await;
        }
    }

    /// Logs an update that is not a replay. Returns `false` if it belongs to the next run.
    async fn on_update(&mut self, kind: &'static str, params: String) -> bool {
        // Before the event is logged: a later permission request relies on the call's complete state.
        self.tool_calls.update(kind, &params);
        let is_received = is_session_message(kind)
            && self.family.receives(kind, &params, self.outside.thread.thread());
        let Some(work) = &mut self.work else {
            self.touch();
            self.log_outside(kind, params).await;
            return true;
        };
        let state = state_of(kind, &params);
        // Most updates are messages, and are not searched for a report.
        let reports = kind == STATE_UPDATE && self.family.is_subagent();
        let update = reports.then(|| splice::get(&params, &["update"])).flatten();
        let report = update.and_then(work_report);
        // This decides whether a failed prompt may be repeated.
        work.has_worked |= !is_background(kind);
        work.record_sign(state);
        // If the store cannot answer, the id counts as taken: another id is safe, a duplicate is not.
        if let Some(id) = work.transcript.begun_message_id(kind, &params, &self.used_ids)
            && work.is_taken(&id).await
        {
            self.used_ids.add([id]);
        }
        let logged = match is_session_message(kind) {
            true if is_received => work.transcript.session_message(kind, params, &self.used_ids),
            true => LoggedUpdate::of(other_message(kind, &params)),
            false => work.transcript.update(kind, params, &self.used_ids),
        };
        for (body, original) in logged.events {
            work.log(body, original).await;
        }
        if work.has_missed() {
            // The run was completed meanwhile, so the update belongs to the next one.
            self.finish(TurnEnd::Completed).await;
            return !self.gets_runs();
        }
        // After the events, because the log accepts an alias only for a message that has begun.
        if let Some((message, alias)) = &logged.alias {
            work.context.alias(message, alias);
        }
        if let Some(report) = report {
            self.record_report(report).await;
        } else if state == Some(AgentState::Idle) && work.is_background() {
            self.finish(TurnEnd::Completed).await;
        }
        true
    }

    /// Logs an update that no run logs.
    async fn log_outside(&mut self, kind: &str, params: String) {
        match is_session_message(kind) {
            true => self.outside.log(other_message(kind, &params), None).await,
            false => self.outside.update(kind, params, &mut self.used_ids).await,
        }
    }

    /// Logs input that is not a message, or the line of the next message if that is not UTF-8.
    async fn ignored(&mut self, line: IgnoredLine) {
        let IgnoredLine { reason, shown, length } = line;
        if reason == IgnoredReason::ReplacedBytes && shown.len() == length {
            self.split.expect(shown.clone());
            let (body, original) = replaced_bytes(shown);
            return self.log(body, Some(original)).await;
        }
        self.logged_lines += 1;
        if self.logged_lines <= MAX_LOGGED_LINES {
            self.log(ignored_line(reason.word(), &shown, length), None).await;
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
        if let Some(work) = &mut self.work {
            work.has_worked = true;
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

    pub(super) async fn log(&mut self, body: Body, original: Option<Original>) {
        match &mut self.work {
            Some(work) => work.log(body, original).await,
            None => self.outside.log(body, original).await,
        }
    }

    /// Logs what waits without a run: none can begin, or too much waits, or it has waited for too long.
    async fn log_waiting_outside(&mut self) {
        for item in self.waiting.take() {
            match item {
                SessionItem::Notification { notification, .. } => {
                    let Some(cut) = splice::cut(notification.params.as_str()) else { continue };
                    let kind = update_kind(&cut.params);
                    let params = self.with_thread_ids(kind, cut.params).await;
                    let Some(params) = params else { continue };
                    self.tool_calls.update(kind, &params);
                    self.log_outside(kind, params).await;
                }
                SessionItem::Work(report) => self.record_report(report).await,
                SessionItem::Request { request, .. } => self.on_request(request),
                SessionItem::Network(question) => self.on_network_question(question),
                SessionItem::Ignored { line, .. } => self.ignored(line).await,
                SessionItem::Oversize(line) => self.oversize(&line).await,
                _ => {}
            }
        }
    }

    async fn on_time(&mut self) {
        let quiet_at = self.quiet_at();
        if quiet_at.is_some_and(|at| at <= Instant::now()) {
            self.finish(TurnEnd::Completed).await;
        }
        if self.waiting.is_overdue(self.launch.client_wait) {
            self.log_waiting_outside().await;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let waiting = self.waiting.next_wake(self.launch.client_wait);
        self.quiet_at().into_iter().chain(waiting).min()
    }

    /// When the work ends if nothing happens until then. Work that the agent reports as unfinished has no such time.
    fn quiet_at(&self) -> Option<Instant> {
        let work = self.work.as_ref()?;
        if self.is_reported_at_work() && !work.is_cancelled() {
            return None;
        }
        work.quiet_at(&self.requests, self.launch.background_quiet)
    }

    fn start_if_due(&mut self) {
        let Some(session) = self.session.get().filter(|_| self.is_open && self.work.is_none())
        else {
            return;
        };
        let parent = self.family.parent_run().map(|run| run.context);
        self.waiting.start_if_due(&self.outside.thread, parent, &self.starting, session);
    }

    /// Whether the agent's work outside of prompts can get runs.
    pub(super) fn gets_runs(&self) -> bool {
        self.is_open && self.waiting.gets_runs()
    }

    /// Notes a sign of work at the process: it counts as idle from then on.
    fn touch(&self) {
        if let Some(session) = self.session.get().and_then(Weak::upgrade) {
            session.process().touch();
        }
    }
}

/// Whether an agent sends updates of this kind at any time, also in the middle of a message.
pub(super) fn is_background(kind: &str) -> bool {
    BACKGROUND.contains(&kind)
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
