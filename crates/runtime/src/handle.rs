//! The runtime's handle, which faces call.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::port::{CheckOutput, Clock, Deliver, Fetch, ReadOriginal};
use trilogue_domain::{
    AgentCard, AgentName, Answer, Body, Code, Error, InterruptId, Json, Message, Principal,
    PrincipalId, RunId, Scope, ThreadId, ThreadKey,
};
use trilogue_store::rows::{
    IdempotencyRow, InterruptFilter, InterruptRow, Page, RunRow, ThreadRow,
};
use trilogue_store::{Batch, Change, Draft, PeerMessage, PeerNews, Store};

use crate::agent_registry::AgentRegistry;
use crate::answer::{check_extra, check_logged};
use crate::backend::{Availability, Backend, ProcessFailure};
use crate::callback::WorkerKind;
use crate::client::{AttachGuard, Client};
use crate::creator;
use crate::monitor::OpenRunCounts;
use crate::owner::{self, Envelope, stopped_error, unexpected};
use crate::part::{check_metadata, outline_all};
use crate::presence::{ActivePresence, Presence};
use crate::request::{AnswerKey, AnswerTo, NewThread, Options, RuntimeStatus};
use crate::row_changes::RowNews;
use crate::services::Services;
use crate::session::ThreadContext;
use crate::shown::ShownQuestions;
use crate::step::{AnswerTarget, Command, Reply, not_pending_error};
use crate::submit::{check_editor_metadata, check_messages, idempotency_key};
use crate::workers;

/// The most threads that are recovered at a start, or drained at a stop, at once.
pub(crate) const MAX_OWNERS_AT_ONCE: usize = 64;
/// How long a start waits for one thread's recovery. A slower recovery continues in the background.
const RECOVERY_LIMIT: Duration = Duration::from_secs(30);

/// The owners of threads, and the workers next to them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Runtime(Arc<RuntimeInner>);

/// A handle that does not keep the runtime alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakRuntime(Weak<RuntimeInner>);

#[derive(Debug)]
struct RuntimeInner {
    services: Arc<Services>,
    agents: Arc<AgentRegistry>,
    shown_questions: Arc<ShownQuestions>,
    closing: CancellationToken,
}

// === impl Runtime ===

impl Runtime {
    /// Recovers what a previous process left, and starts the workers. Fails if the store cannot be read.
    pub async fn start(
        options: Options,
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn Backend>>,
        clock: Arc<dyn Clock>,
        originals: Arc<dyn ReadOriginal>,
    ) -> Result<Self> {
        let agents = Arc::new(AgentRegistry::of(agents));
        let spawn_owner = owner::spawner(Arc::clone(&agents));
        let services = Services::new(options, store, clock, originals, spawn_owner);
        let closing = CancellationToken::new();
        let shown = Arc::default();
        let runtime =
            Self(Arc::new(RuntimeInner { services, agents, shown_questions: shown, closing }));
        // Before the recovery: a recovered run can call other agents at once.
        runtime.take_calls();
        let services = runtime.services();
        let threads = services.store.open_threads().await?;
        stream::iter(threads)
            .for_each_concurrent(MAX_OWNERS_AT_ONCE, |thread| runtime.recover(thread))
            .await;
        services.set_recovered();
        // A store whose runs are only cancelled keeps everything else: retention follows the settings of its server.
        if !runtime.services().options.cancels_open_runs {
            workers::start(&runtime);
        }
        Ok(runtime)
    }

    /// Loads a thread that a process left open, so that its owner decides about the runs.
    pub(crate) async fn recover(&self, thread: ThreadKey) {
        let recovered = async {
            self.services().load(thread).await?;
            self.record_lost_subagent(thread).await
        };
        match tokio::time::timeout(RECOVERY_LIMIT, recovered).await {
            Ok(Ok(())) => {}
            // A thread that ended with its run was removed by the load; another node may have been faster.
            Ok(Err(error))
                if matches!(error.code(), Code::ThreadNotFound | Code::ThreadElsewhere) => {}
            // A damaged thread stays unchanged and does not keep the others from starting.
            Ok(Err(error)) => tracing::error!(%thread, %error, "a thread could not be recovered"),
            Err(_) => tracing::warn!(%thread, "a thread takes long to be recovered"),
        }
    }

    /// Starts the worker that delivers callbacks; it ends when the runtime drains.
    pub fn deliver_with(&self, sender: Arc<dyn Deliver>) {
        crate::callback::start(self, WorkerKind::Callbacks, sender);
    }

    /// Starts the worker that sends notices of new interrupts, if [`Options::notify`] is set; it ends when the runtime drains.
    /// The item's reference is an object with `thread_id`, `run_id`, `agent` and `interrupt`; the item is removed when the interrupt is resolved.
    pub fn notify_with(&self, sender: Arc<dyn Deliver>) {
        crate::callback::start(self, WorkerKind::Notices, sender);
    }

    /// Sets the reader of addresses in client histories. Call it right after the start: without it such histories are refused.
    pub fn fetch_with(&self, fetch: Arc<dyn Fetch>) {
        self.services().external.set_fetch(fetch);
    }

    /// Sets the checker for runs with rules. Call it right after the start: without it such runs are refused.
    pub fn check_output_with(&self, check: Arc<dyn CheckOutput>) {
        self.services().external.set_check(check);
    }

    /// Subscribes to row changes. Changes of a thread arrive in order; changes of other nodes are best effort; a slow receiver gets `Lagged`.
    #[must_use]
    pub fn watch_rows(&self) -> tokio::sync::broadcast::Receiver<RowNews> {
        self.services().row_changes.watch()
    }

    /// Subscribes to messages of other nodes; `None` if one process holds the store.
    #[must_use]
    pub fn subscribe_to_peers(&self) -> Option<tokio::sync::broadcast::Receiver<PeerNews>> {
        self.services().store.subscribe()
    }

    /// Returns how many runs of each agent have not ended.
    #[must_use]
    pub fn open_runs(&self) -> OpenRunCounts {
        let agents = self.registry().iter().map(|agent| &agent.card().name);
        self.services().monitor.counts(agents, self.services().clock.now())
    }

    /// Returns the agents that lists show, by name. A wrapped command that never started is left out.
    #[must_use]
    pub fn agents(&self) -> Vec<&AgentCard> {
        let mut cards = self.listed_agents();
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        cards
    }

    /// Like [`Self::agents`], in the order in which they joined.
    #[must_use]
    pub fn listed_agents(&self) -> Vec<&AgentCard> {
        let listed = self.registry().iter().filter(|agent| agent.is_listed());
        listed.map(|agent| agent.card()).collect()
    }

    pub fn agent(&self, name: &AgentName) -> Result<&AgentCard> {
        Ok(self.registry().backend(name)?.card())
    }

    /// Returns the card that clients see of an agent, with what a hosted agent has reported about itself.
    #[must_use]
    pub fn visible_card<'a>(&self, card: &'a AgentCard) -> Cow<'a, AgentCard> {
        let learned = self.registry().get(&card.name).and_then(|agent| agent.learned_card());
        learned.map_or(Cow::Borrowed(card), Cow::Owned)
    }

    /// Returns whether an agent can be used now, or `None` if this is unknown before its first use.
    #[must_use]
    pub fn availability(&self, name: &AgentName) -> Option<Availability> {
        self.registry().get(name)?.availability()
    }

    /// Returns how a process of an agent last failed, if no turn has completed since. For callers with the right `server`.
    #[must_use]
    pub fn last_failure(&self, name: &AgentName) -> Option<ProcessFailure> {
        self.registry().get(name)?.last_failure()
    }

    /// Whether an agent's sessions work in the folder that their client names.
    #[must_use]
    pub fn takes_folder(&self, name: &AgentName) -> bool {
        let agent = self.registry().get(name);
        agent.and_then(|agent| agent.sessions()).is_some_and(|sessions| sessions.takes_folder())
    }

    /// Returns all agents, listed or not, in the order in which they joined.
    #[must_use]
    pub fn all_agents(&self) -> Vec<&AgentCard> {
        self.registry().iter().map(|agent| agent.card()).collect()
    }

    /// Checks a configuration for runs of an agent; fails with `agent_not_found`, `config_schema_violation`.
    pub fn check_config(&self, agent: &AgentName, config: &Json) -> Result<()> {
        self.registry().backend(agent)?.check_config(config)
    }

    /// Adds an agent; fails with `already_exists` if its name is taken, `overloaded` if there are too many agents.
    pub fn register(&self, agent: Arc<dyn Backend>) -> Result<()> {
        self.registry().join(agent)
    }

    /// Resolves when an agent has joined since the last call. Only one task may wait at a time.
    pub async fn wait_for_agent(&self) {
        self.registry().joined.notified().await;
    }

    /// Returns an agent's backend, for operations of its own dialect beyond runs; fails with `agent_not_found`.
    pub fn backend(&self, name: &AgentName) -> Result<&Arc<dyn Backend>> {
        self.registry().backend(name)
    }

    /// Attaches a client to a thread that the caller has looked up, until the guard is dropped: the client can take the agent's calls.
    #[must_use]
    pub fn attach(&self, thread: &ThreadRow, client: Arc<dyn Client>) -> AttachGuard {
        self.services().controllers.attach(thread.key, client)
    }

    /// Returns the context of a looked-up thread, for an agent's work outside of runs.
    #[must_use]
    pub fn thread_context(&self, thread: &ThreadRow, agent: &AgentName) -> ThreadContext {
        ThreadContext {
            services: Arc::clone(self.services()),
            thread: thread.key,
            id: thread.id.clone(),
            scope: Scope { tenant: thread.tenant.clone(), owner: None },
            agent: agent.clone(),
            parent: None,
        }
    }

    /// Creates a thread; fails with `already_exists`, or if the store fails.
    pub async fn create_thread(&self, by: &Principal, new: NewThread) -> Result<ThreadRow> {
        self.check_open()?;
        check_editor_metadata(by, new.metadata.as_ref(), new.has_checked_settings)?;
        self.check_own_name(by, &new).await?;
        let row = self.new_thread_row(by, &new, false)?;
        self.services().store.check_takes(row.key).await?;
        let event = trilogue_domain::event::ThreadEvent::Created {
            thread: row.id.clone(),
            metadata: row.metadata.clone(),
            copied_from: None,
        };
        self.append_new(&row, &[Body::Thread(event)], Vec::new()).await?;
        Ok(row)
    }

    /// Answers an interrupt. The thread's owner serialises answers: the second one fails.
    /// Errors: `interrupt_not_found`, `run_not_found`, `interrupt_resolved`, `interrupt_mismatch`, `answer_invalid`, `event_too_large` above [`trilogue_domain::limits::MAX_ANSWER_BYTES`], and the store's errors.
    pub async fn answer(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
    ) -> Result<InterruptRow> {
        self.answer_with(by, to, answer, None).await
    }

    /// Like [`Self::answer`], with an additional object of the answer, which the asking agent gets too.
    /// Fails as [`Self::answer`], and with `event_too_large` if that object is larger than [`trilogue_domain::limits::MAX_ANSWER_EXTRA_BYTES`], or the answer with it than [`trilogue_domain::limits::MAX_ANSWER_BYTES`].
    pub async fn answer_with(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
        extra: Option<Json>,
    ) -> Result<InterruptRow> {
        self.answer_whole(by, to, answer, extra, None).await
    }

    /// Answers an interrupt with a message. The run's log has the message before the resolution, and the thread lists it like the messages of an input. The agent gets only the answer.
    ///
    /// The key is stored with the answer, so that [`Self::find_by_idempotency_key`] finds the run when the client sends the message again.
    /// Fails as [`Self::answer`]; with `already_exists` if the key was used before; and as a run with this message as its input.
    pub async fn answer_with_message(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
        message: Message,
        key: Option<AnswerKey>,
    ) -> Result<InterruptRow> {
        let max_part_metadata = self.services().options.max_part_metadata_bytes;
        check_messages(std::slice::from_ref(&message), max_part_metadata)?;
        self.answer_whole(by, to, answer, None, Some((Box::new(message), key))).await
    }

    async fn answer_whole(
        &self,
        by: &Principal,
        to: AnswerTo,
        answer: Answer,
        extra: Option<Json>,
        message: Option<(Box<Message>, Option<AnswerKey>)>,
    ) -> Result<InterruptRow> {
        let scope = by.scope();
        check_extra(extra.as_ref())?;
        if let Answer::Message(parts) = &answer {
            check_metadata(parts, self.services().options.max_part_metadata_bytes)?;
        }
        let store = &self.services().store;
        let (thread, run, target) = match to {
            AnswerTo::Interrupt(id) => {
                let row = store.interrupt(&scope, &id).await?.ok_or_else(|| {
                    Error::new(Code::InterruptNotFound, format!("interrupt '{id}' not found"))
                })?;
                self.check_answer(&row, &answer)?;
                match self.open_question(&scope, row).await? {
                    Ok(row) => (row.thread, row.run_id, AnswerTarget::Interrupt(row.interrupt.id)),
                    Err(ended) => {
                        let error = not_pending_error(None);
                        return Err(self.name_pending(&scope, &ended, error).await);
                    }
                }
            }
            AnswerTo::Run(id) => {
                let row = self.run_row(&scope, &id).await?;
                let shown = self.0.shown_questions.last(&by.id, &id);
                let left = match row.status.is_terminal() {
                    true => self.question_left_by(&scope, &row, shown.as_ref()).await?,
                    false => None,
                };
                let pending = match &left {
                    Some(_) => None,
                    None => self.pending_target(&scope, &id, shown.as_ref()).await?,
                };
                if let Some(row) = left.as_ref().or(pending.as_ref()) {
                    self.check_answer(row, &answer)?;
                }
                match (left, shown) {
                    (Some(open), _) => {
                        let target = AnswerTarget::Interrupt(open.interrupt.id);
                        (open.thread, open.run_id, target)
                    }
                    (None, Some(shown)) => (row.thread, id, AnswerTarget::Interrupt(shown)),
                    (None, None) => (row.thread, id, AnswerTarget::FirstOf(row.key)),
                }
            }
        };
        check_logged(by, &answer, extra.as_ref())?;
        let (mut said, key) = message.unzip();
        if let Some(said) = &mut said {
            outline_all(store.as_ref(), &scope, std::slice::from_mut(&mut **said)).await?;
        }
        let idempotency = key.flatten().map(|key| {
            Box::new(IdempotencyRow {
                key: idempotency_key(by, &key.agent, &key.text),
                request: key.request,
                run: run.clone(),
                message: said.as_ref().map(|said| said.id.clone()),
                thread,
                created_at: self.services().clock.now(),
            })
        });
        let by = by.clone();
        let named = match &target {
            AnswerTarget::Interrupt(id) => Some(id.clone()),
            AnswerTarget::FirstOf(_) => None,
        };
        let command = Command::Answer { to: target, answer, extra, said, idempotency, by };
        match self.change(thread, command).await {
            Ok(Reply::Interrupt(row)) => Ok(*row),
            Ok(_) => Err(unexpected()),
            // The other node may not know what was shown here, so name the interrupt.
            Err(error) if error.code() == Code::ThreadElsewhere => Err(match named {
                Some(id) => error.pending(id),
                None => error,
            }),
            Err(error) if error.code() == Code::InterruptResolved => {
                Err(self.name_pending(&scope, &run, error).await)
            }
            Err(error) => Err(error),
        }
    }

    /// Records, here and on the other nodes, that this principal was shown this interrupt of this run: its next answer without an interrupt id is for it.
    pub fn record_shown_question(&self, to: &PrincipalId, run: &RunId, interrupt: &InterruptId) {
        let services = self.services();
        if let Some(shown) = self.0.shown_questions.record(to, run, interrupt, services.clock.now())
        {
            services.store.publish(PeerMessage::Shown(shown));
        }
    }

    /// Returns the record of questions that principals were shown.
    pub(crate) fn questions(&self) -> &Arc<ShownQuestions> {
        &self.0.shown_questions
    }

    /// Returns the interrupt of this run that this principal was last shown, if it is still remembered.
    #[must_use]
    pub fn last_shown(&self, to: &PrincipalId, run: &RunId) -> Option<InterruptId> {
        self.0.shown_questions.last(to, run)
    }

    /// Marks the thread as having a connected client that can answer, until the guard is dropped.
    #[must_use]
    pub fn present(&self, thread: ThreadKey) -> Presence {
        self.services().present(thread)
    }

    /// Marks the thread as opened by a client that can answer. The client counts until it has been silent for as long as a question waits.
    #[must_use]
    pub fn active(&self, thread: ThreadKey) -> ActivePresence {
        ActivePresence::new(self.services(), thread)
    }

    #[must_use]
    pub fn status(&self) -> RuntimeStatus {
        let services = self.services();
        RuntimeStatus {
            running: services.runs_at_work(),
            owners: services.owner_count(),
            draining: services.draining.load(Ordering::Acquire),
        }
    }

    pub(crate) fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(&self.0))
    }

    pub(crate) fn registry(&self) -> &Arc<AgentRegistry> {
        &self.0.agents
    }

    /// Checks that the creator of a run may still see what the run does: who may run agents sees it, and who may read.
    /// Errors: `forbidden`; as reading.
    pub async fn check_creator_sees(&self, row: &RunRow) -> Result<()> {
        creator::check_creator_sees(self.services(), row).await
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.0.services
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.services().draining.load(Ordering::Acquire) {
            return Err(Error::new(Code::ShuttingDown, "the server is shutting down")
                .hint("send the request again when it is back"));
        }
        Ok(())
    }

    /// Sends a command to a thread's owner.
    pub(crate) async fn change(&self, thread: ThreadKey, command: Command) -> Result<Reply> {
        let (reply, done) = oneshot::channel();
        let request = Envelope::Change { command: Box::new(command), reply };
        self.services().send(thread, request).await?;
        done.await.map_err(|_| stopped_error())?
    }

    /// Checks that the caller calls no thread by the name of a new one. It may have one that it made with a token that sees all threads: the store does not compare these ids.
    /// Errors: `already_exists`.
    pub(crate) async fn check_own_name(&self, by: &Principal, new: &NewThread) -> Result<()> {
        let (scope, store) = (by.scope(), &self.services().store);
        let Some(name) = &new.id else { return Ok(()) };
        if scope.own_thread_id(name).is_none() || store.named_thread(&scope, name).await?.is_none()
        {
            return Ok(());
        }
        Err(Error::new(Code::AlreadyExists, format!("you have a thread '{name}' already")))
    }

    pub(crate) async fn thread_row(&self, scope: &Scope, id: &ThreadId) -> Result<ThreadRow> {
        self.services()
            .store
            .named_thread(scope, id)
            .await?
            .ok_or_else(|| Error::new(Code::ThreadNotFound, format!("thread '{id}' not found")))
    }

    pub(crate) async fn run_row(&self, scope: &Scope, id: &RunId) -> Result<RunRow> {
        self.services()
            .store
            .run(scope, id)
            .await?
            .ok_or_else(|| Error::new(Code::RunNotFound, format!("run '{id}' not found")))
    }

    /// Stores a new thread with its first events and other rows.
    pub(crate) async fn append_new(
        &self,
        row: &ThreadRow,
        events: &[Body],
        others: Vec<Change>,
    ) -> Result<()> {
        let services = self.services();
        let mut draft = Draft::default();
        for event in events {
            draft.push(row.created_at, event, None)?;
        }
        let mut changes = vec![Change::Thread(row.clone())];
        changes.extend(others);
        let batch = Batch {
            thread: row.key,
            epoch: row.epoch,
            expected_last: 0,
            frames: draft.seal(row.key, None, 1, 0, &services.originals),
            changes,
            blobs: Vec::new(),
            vital: false,
        };
        services.append(batch, Some(row)).await
    }

    /// Returns the interrupt that an answer to a run is for: the shown one if it is pending, otherwise the oldest pending one.
    async fn pending_target(
        &self,
        scope: &Scope,
        run: &RunId,
        shown: Option<&InterruptId>,
    ) -> Result<Option<InterruptRow>> {
        let filter = InterruptFilter { thread: None, run: Some(run.clone()), pending: true };
        let mut page = Page::default();
        let mut oldest = None;
        loop {
            let listing = self.services().store.interrupts(scope, &filter, &page).await?;
            let mut rows = listing.rows;
            if let Some(place) = rows.iter().position(|row| Some(&row.interrupt.id) == shown) {
                return Ok(Some(rows.swap_remove(place)));
            }
            oldest = rows.pop().or(oldest);
            page.after = listing.next;
            if page.after.is_none() {
                // A shown interrupt that is not pending was already answered.
                return Ok(oldest.filter(|_| shown.is_none()));
            }
        }
    }

    fn check_answer(&self, row: &InterruptRow, answer: &Answer) -> Result<()> {
        row.interrupt.check(answer)?;
        match self.registry().backend(&row.agent) {
            Ok(backend) => backend.check_answer(&row.interrupt, answer),
            // The agent is not configured any more; the run reports that itself.
            Err(_) => Ok(()),
        }
    }

    /// Adds the id of the oldest open question to the error of an answer that did not match: one of the run, or one of a sub-agent that the run asked too.
    async fn name_pending(&self, scope: &Scope, run: &RunId, error: Error) -> Error {
        let filter = InterruptFilter { thread: None, run: Some(run.clone()), pending: true };
        let store = &self.services().store;
        let Ok(mut listing) = store.interrupts(scope, &filter, &Page::default()).await else {
            return error;
        };
        if let Some(row) = listing.rows.pop() {
            return not_pending_error(Some(&row.interrupt.id));
        }
        let left = self.passed_questions(scope, run).await.unwrap_or_default();
        left.first().map_or(error, |left| {
            let id = &left.asked.interrupt.id;
            let hint =
                format!("a sub-agent still waits for the interrupt '{id}': name it in the answer");
            not_pending_error(Some(id)).hint(hint)
        })
    }
}

// === impl WeakRuntime ===

impl WeakRuntime {
    pub(crate) fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(Runtime)
    }
}

/// Cancels every run of a store that has not ended, as `run_not_restored`. No agent is there, so nothing of them starts. For a store that was restored or copied: its runs were accepted elsewhere, with the rights, rules and folders of there.
///
/// Returns how many threads had such runs. Fails as loading a thread, and with `run_not_ended` if a run is still open then.
pub async fn cancel_open_runs(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    originals: Arc<dyn ReadOriginal>,
) -> Result<usize> {
    let open = store.open_threads().await?.len();
    let options = Options { cancels_open_runs: true, ..Options::default() };
    let runtime = Runtime::start(options, Arc::clone(&store), Vec::new(), clock, originals).await?;
    runtime.drain(RECOVERY_LIMIT).await;
    match store.open_threads().await?.len() {
        0 => Ok(open),
        left => Err(Error::new(
            Code::RunNotEnded,
            format!("runs of {left} threads could not be cancelled"),
        )),
    }
}
