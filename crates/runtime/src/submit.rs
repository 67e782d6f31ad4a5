//! Accepting a run: the checks and look-ups before its thread's owner gets it.

use std::sync::Arc;

use tokio::sync::oneshot;
use trilogue_domain::error::Result;
use trilogue_domain::{
    AgentName, Code, Error, InputKind, Json, Message, Principal, Right, RunAudit, RunId, Scope,
    ThreadId, ThreadKey, limits,
};
use trilogue_store::rows::{IdempotencyKey, IdempotencyRow, RunRow, ThreadRow};

use crate::backend::Backend;
use crate::execute::{check_kept, check_state};
use crate::handle::Runtime;
use crate::owner::{Envelope, Owner, stopped_error};
use crate::part::{self, names_content, outline_all};
use crate::request::{
    ChildOf, NewThread, RunCaller, RunRequest, SettledReceiver, Submitted, ThreadChoice,
};
use crate::state::ThreadState;
use crate::step::Submit;
use crate::subagent_member::{SUBAGENT_MEMBERS, check_takes_requests};
use trilogue_domain::Input;

/// The retries when another request creates the thread or the idempotency key meanwhile.
const RACES: usize = 3;

/// The members of a thread's metadata with the settings and the folders of its editor.
const EDITOR_MEMBERS: [&str; 3] =
    ["trilogue.config", "trilogue.cwd", "trilogue.additional_directories"];

/// A run's input, in the form that its agent takes.
#[derive(Clone, Debug)]
struct Admitted {
    input: Input,
    /// The messages that a value was converted from.
    said: Vec<Message>,
}

enum TargetThread {
    New(Box<ThreadRow>, bool),
    Stored(Box<ThreadRow>),
}

// === impl Admitted ===

impl Admitted {
    /// Returns the messages of the input, or those sent with an input value.
    fn messages(&self) -> &[Message] {
        match &self.input {
            Input::Messages(messages) => messages,
            Input::Value(_) => &self.said,
        }
    }
}

// === impl Runtime ===

impl Runtime {
    /// Accepts a run. Returns when that is durable; with [`RunRequest::synchronous`] it may return before, and only [`Submitted::settled`] is durable.
    /// Errors: `agent_not_found`, `thread_not_found`, `invalid_input`, `thread_state_incompatible`, `thread_busy`, `thread_waiting`, `idempotency_mismatch`, `already_exists`, `overloaded`, `shutting_down`, and what storing can fail with.
    pub async fn submit(&self, by: &Principal, new: RunRequest) -> Result<Submitted> {
        self.submit_after(by, new, false, None).await
    }

    /// As [`Runtime::submit`], for a run that another run's agent calls.
    pub(crate) async fn submit_child(
        &self,
        by: &Principal,
        new: RunRequest,
        child: ChildOf,
    ) -> Result<Submitted> {
        self.submit_after(by, new, false, Some(child)).await
    }

    /// As [`Runtime::submit`], after [`Runtime::find_by_idempotency_key`] has found that the run is new: the key is not looked up again.
    pub async fn submit_skipping_key_lookup(
        &self,
        by: &Principal,
        new: RunRequest,
    ) -> Result<Submitted> {
        self.submit_after(by, new, true, None).await
    }

    async fn submit_after(
        &self,
        by: &Principal,
        mut new: RunRequest,
        mut is_unknown: bool,
        child: Option<ChildOf>,
    ) -> Result<Submitted> {
        let child = child.as_ref();
        self.check_open()?;
        if let Some(id) = &new.id {
            by.scope().check_chosen_id(id.as_str())?;
        }
        let backend = Arc::clone(self.registry().backend(&new.agent)?);
        self.services().check_provenance(&new)?;
        if !backend.is_native() {
            backend.learn(by, &new.input).await;
        }
        if let Some(config) = new.config.take() {
            new.config = Some(backend.authorize(&new.caller(by), config).await?);
        } else if !new.folders.is_empty() {
            // The backend learns which folders the caller has opened.
            backend.authorize(&new.caller(by), Json::empty_object()).await?;
        }
        let given = std::mem::replace(&mut new.input, Input::Messages(Vec::new()));
        let admitted = self.admitted(&new, given, backend.as_ref())?;
        let admitted = if part::are_small(admitted.messages()) {
            admitted
        } else {
            // Seldom, and larger than all the rest of this future.
            Box::pin(self.outline_input(by, admitted)).await?
        };
        if !may_be_a_race(&new) {
            return self.try_submit(by, &new, admitted, backend.as_ref(), child).await;
        }
        let mut last = None;
        for _ in 0..RACES {
            // A request that came in between has taken the key: the append fails, and the next try finds it.
            let was_unknown = std::mem::take(&mut is_unknown);
            if !was_unknown
                && let Some(known) = Box::pin(self.find_by_idempotency_key(by, &new)).await?
            {
                return Ok(known);
            }
            match self.try_submit(by, &new, admitted.clone(), backend.as_ref(), child).await {
                Err(error) if error.code() == Code::AlreadyExists => {
                    last = Some(error);
                }
                Err(error) if was_unknown => {
                    // A refused request may be the twin of one that came in between and took the room.
                    return match Box::pin(self.find_by_idempotency_key(by, &new)).await {
                        Ok(Some(known)) => Ok(known),
                        Ok(None) | Err(_) => Err(error),
                    };
                }
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| Error::new(Code::Internal, "the run was not accepted")))
    }

    /// Checks that this caller may give runs of the agent a configuration. Fails with `agent_not_found` or `forbidden`.
    pub async fn authorize_config(
        &self,
        caller: &RunCaller<'_>,
        agent: &AgentName,
        config: &Json,
    ) -> Result<()> {
        let backend = self.registry().backend(agent)?;
        backend.authorize(caller, config.clone()).await.map(drop)
    }

    /// Checks what does not depend on the thread: agent, input, configuration and their sizes. Fails as [`Runtime::submit`].
    pub async fn admit(&self, by: &Principal, new: &RunRequest) -> Result<()> {
        self.check_open()?;
        let backend = self.registry().backend(&new.agent)?;
        if let Some(config) = &new.config {
            backend.authorize(&new.caller(by), config.clone()).await?;
        }
        self.admitted(new, new.input.clone(), backend.as_ref()).map(drop)
    }

    fn admitted(&self, new: &RunRequest, given: Input, backend: &dyn Backend) -> Result<Admitted> {
        let (metadata, config) = (new.metadata.as_ref(), new.config.as_ref());
        let max_part_metadata = self.services().options.max_part_metadata_bytes;
        let said = match (&given, &backend.card().input) {
            (Input::Messages(messages), InputKind::Schema(_)) => messages.clone(),
            _ => Vec::new(),
        };
        let input = backend.admit(given, config)?;
        self.check_kept(new)?;
        check_size(&input, metadata, max_part_metadata)?;
        check_messages(&said, max_part_metadata)?;
        if let Some(rules) = &new.rules {
            self.services().external.checks(rules)?;
        }
        Ok(Admitted { input, said })
    }

    /// Checks the sizes of the data that is stored with the run.
    fn check_kept(&self, new: &RunRequest) -> Result<()> {
        let address = new.callback.as_ref().map_or(0, |callback| callback.url.len());
        let request = new.request.as_ref().map_or(0, |request| request.as_bytes().len());
        for (what, bytes, most) in [
            ("address of the callback", address, limits::MAX_CALLBACK_URL_BYTES),
            ("request that is kept", request, limits::MAX_KEPT_REQUEST_BYTES),
        ] {
            if bytes > most {
                let message = format!("the {what} has {bytes} bytes; {most} is the most");
                return Err(Error::new(Code::InvalidRequest, message));
            }
        }
        let latest = self.services().clock.now().after(limits::MAX_SCHEDULE_AHEAD);
        if new.not_before.is_some_and(|at| at > latest) {
            let most = limits::MAX_SCHEDULE_AHEAD.as_secs();
            return Err(Error::new(
                Code::InvalidRequest,
                format!("the run is scheduled more than {most} seconds ahead"),
            ));
        }
        Ok(())
    }

    /// Checks that a principal leaves room for the scheduled runs of others.
    fn check_schedule(&self, by: &Principal, new: &RunRequest) -> Result<()> {
        let services = self.services();
        let (now, most) = (services.clock.now(), services.options.max_scheduled_per_principal);
        if new.not_before.is_none_or(|at| at <= now)
            || services.monitor.scheduled_of(by, now) < most
        {
            return Ok(());
        }
        let message =
            format!("{most} runs of yours are scheduled, which is the most for one principal");
        Err(Error::new(Code::Overloaded, message)
            .hint("cancel one; an operator may raise `runtime.max_scheduled_runs_per_principal`"))
    }

    /// Checks that a principal leaves memory and places in queues to the runs of others.
    pub(crate) fn check_open_runs(&self, by: &Principal) -> Result<()> {
        let services = self.services();
        let most = services.options.max_open_runs_per_principal;
        if services.monitor.open_runs_of(by) < most {
            return Ok(());
        }
        let message =
            format!("{most} runs of yours have not ended, which is the most for one principal");
        Err(Error::new(Code::Overloaded, message).hint(
            "wait until one ends, or cancel one; an operator may raise `runtime.max_open_runs_per_principal`",
        ))
    }

    async fn try_submit(
        &self,
        by: &Principal,
        new: &RunRequest,
        admitted: Admitted,
        backend: &dyn Backend,
        child: Option<&ChildOf>,
    ) -> Result<Submitted> {
        self.check_open_runs(by)?;
        self.check_schedule(by, new)?;
        let place = self.target_thread(by, new).await?;
        let services = self.services();
        if let (TargetThread::New(row, _), None) = (&place, child) {
            services.store.check_takes(row.key).await?;
        }
        if let TargetThread::Stored(thread) = &place {
            check_takes_requests(thread)?;
            if thread.owner_node != services.node {
                services.store.take_for_agent(thread, &new.agent).await?;
            }
            // The head may move until the run has its turn: then this is checked again.
            let scope = Scope { tenant: thread.tenant.clone(), owner: None };
            let store = services.store.as_ref();
            check_state(store, &scope, &thread.id, thread.head, backend).await?;
            if new.request.is_some() {
                let (agents, head) = (self.registry(), thread.head);
                check_kept(store, &scope, agents, &thread.id, head, backend).await?;
            }
        }
        let (thread, create_thread, claims_thread) = match &place {
            TargetThread::New(row, chosen) => (row.as_ref(), true, *chosen),
            TargetThread::Stored(row) => (row.as_ref(), false, false),
        };
        let row = self.new_row(by, new, thread, child);
        let deferred = new.synchronous
            && backend.is_native()
            && new.idempotency.is_none()
            && new.id.is_none()
            && !claims_thread
            // Content outside the log is found through the log.
            && !names_content(&admitted.input);
        let idempotency = self.key_row(by, new, &row, admitted.messages());
        let Admitted { input, said } = admitted;
        let submit = Box::new(Submit {
            claims_ids: claims_thread || new.id.is_some() || idempotency.is_some(),
            row,
            input,
            said,
            native: backend.is_native(),
            create_thread,
            strategy: new.strategy,
            may_remove_of_others: new.may_remove_of_others,
            when_waiting: new.when_waiting,
            when_holding: new.when_holding,
            idempotency,
            opening: None,
        });
        let (settled, ended) = oneshot::channel();
        let place = match place {
            TargetThread::New(row, _) if deferred => {
                let state = ThreadState::new(*row, services.options.max_queued_runs_per_thread);
                let (run, log) = {
                    let owner = Owner::of_new_thread(services, self.registry(), state);
                    Box::pin(owner.accept(submit, settled)).await?
                };
                return Ok(Submitted {
                    run,
                    created: true,
                    message: None,
                    settled: SettledReceiver(ended),
                    log,
                });
            }
            place => place,
        };
        let (reply, accepted) = oneshot::channel();
        let envelope = Envelope::Submit { submit, deferred, reply, settled };
        match place {
            TargetThread::New(row, _) => {
                let state = ThreadState::new(*row, services.options.max_queued_runs_per_thread);
                let owner = Owner::of_new_thread(services, self.registry(), state).start_serving();
                owner.send(envelope).await.map_err(|_| stopped_error())?;
            }
            TargetThread::Stored(row) => services.send(row.key, envelope).await?,
        }
        let run = accepted.await.map_err(|_| stopped_error())??;
        Ok(Submitted {
            run,
            created: true,
            message: None,
            settled: SettledReceiver(ended),
            log: None,
        })
    }

    async fn target_thread(&self, by: &Principal, new: &RunRequest) -> Result<TargetThread> {
        match &new.thread {
            ThreadChoice::Existing(id) => {
                let row = self.thread_row(&by.scope(), id).await?;
                Ok(TargetThread::Stored(Box::new(row)))
            }
            ThreadChoice::Ensure(thread) => {
                if let Some(id) = &thread.id
                    && let Some(row) = self.services().store.named_thread(&by.scope(), id).await?
                {
                    return Ok(TargetThread::Stored(Box::new(row)));
                }
                check_editor_metadata(by, thread.metadata.as_ref(), thread.has_checked_settings)?;
                let row = self.new_thread_row(by, thread, false)?;
                Ok(TargetThread::New(Box::new(row), thread.id.is_some()))
            }
            ThreadChoice::Ephemeral | ThreadChoice::Stateless => {
                let row = self.new_thread_row(by, &NewThread::default(), true)?;
                Ok(TargetThread::New(Box::new(row), false))
            }
        }
    }

    pub(crate) fn new_thread_row(
        &self,
        by: &Principal,
        new: &NewThread,
        ephemeral: bool,
    ) -> Result<ThreadRow> {
        let services = self.services();
        let metadata = new.metadata.clone().unwrap_or_else(Json::empty_object);
        check_metadata(&metadata)?;
        let now = services.clock.now();
        let own = new.id.as_ref().and_then(|name| by.scope().own_thread_id(name));
        Ok(ThreadRow {
            metadata,
            owner_node: services.node.clone(),
            ephemeral,
            ..ThreadRow::new(
                services.store.next_thread_key(),
                own.or_else(|| new.id.clone()).unwrap_or_else(ThreadId::generate),
                by.tenant.clone(),
                by.id.clone(),
                now,
            )
        })
    }

    fn new_row(
        &self,
        by: &Principal,
        new: &RunRequest,
        thread: &ThreadRow,
        child: Option<&ChildOf>,
    ) -> RunRow {
        let services = self.services();
        RunRow {
            parent: child.map(|child| child.parent.clone()),
            provenance: new.provenance.clone(),
            audit: Some(Box::new(RunAudit {
                principal: by.id.clone(),
                thread: thread.id.clone(),
                token: new.token.clone(),
                source: new.source,
                can_answer: new.caller(by).can_answer,
            })),
            mount: new.mount.clone(),
            metadata: new.metadata.clone().unwrap_or_else(Json::empty_object),
            config: new.config.clone(),
            not_before: new.not_before,
            rules: new.rules.clone(),
            callback: new.callback.clone(),
            request: new.request.clone(),
            stateless: matches!(new.thread, ThreadChoice::Stateless),
            ..RunRow::new(
                child.map_or_else(|| services.store.next_run_key(), |child| child.key),
                new.id.clone().unwrap_or_else(RunId::generate),
                thread,
                by.id.clone(),
                new.agent.clone(),
                services.clock.now(),
            )
        }
    }

    /// The run that this idempotency key created before; fails with `idempotency_mismatch`, or as reading.
    pub async fn find_by_idempotency_key(
        &self,
        by: &Principal,
        new: &RunRequest,
    ) -> Result<Option<Submitted>> {
        let Some((text, request)) = &new.idempotency else { return Ok(None) };
        let services = self.services();
        let key = idempotency_key(by, &new.agent, text);
        let Some(row) = services.store.idempotency(&key, services.clock.now()).await? else {
            return Ok(None);
        };
        if row.request != *request {
            return Err(Error::new(
                Code::IdempotencyMismatch,
                "the idempotency key was used with another request",
            )
            .hint("use a new key for a new request"));
        }
        let scope = Scope { tenant: by.tenant.clone(), owner: None };
        let run = self.run_row(&scope, &row.run).await?;
        let (sender, receiver) = oneshot::channel();
        let runtime = self.clone();
        let waited = run.clone();
        tokio::spawn(async move {
            // The receiver is gone if the caller does not wait for the end.
            drop(sender.send(runtime.wait_until_row_settled(waited).await));
        });
        let (settled, message) = (SettledReceiver(receiver), row.message);
        Ok(Some(Submitted { run, created: false, message, settled, log: None }))
    }

    /// The idempotency keys that a run was created or answered under, as far as they are remembered. Fails as reading.
    pub async fn keys_of(&self, thread: ThreadKey, run: &RunId) -> Result<Vec<IdempotencyRow>> {
        self.services().store.idempotency_of_run(thread, run).await
    }

    fn key_row(
        &self,
        by: &Principal,
        new: &RunRequest,
        row: &RunRow,
        messages: &[Message],
    ) -> Option<IdempotencyRow> {
        let (text, request) = new.idempotency.as_ref()?;
        let message = messages.first().map(|message| message.id.clone());
        Some(IdempotencyRow {
            key: idempotency_key(by, &new.agent, text),
            request: *request,
            run: row.id.clone(),
            message,
            thread: row.thread,
            created_at: row.created_at,
        })
    }

    async fn outline_input(&self, by: &Principal, mut admitted: Admitted) -> Result<Admitted> {
        let store = self.services().store.as_ref();
        let scope = by.scope();
        let messages = match &mut admitted.input {
            Input::Messages(messages) => messages,
            Input::Value(_) => &mut admitted.said,
        };
        outline_all(store, &scope, messages).await?;
        Ok(admitted)
    }
}

pub(crate) fn idempotency_key(by: &Principal, agent: &AgentName, text: &str) -> IdempotencyKey {
    IdempotencyKey {
        tenant: by.tenant.clone(),
        principal: by.id.clone(),
        agent: agent.clone(),
        text: text.to_owned(),
    }
}

/// Whether a taken id may have been created by another request meanwhile.
fn may_be_a_race(new: &RunRequest) -> bool {
    new.idempotency.is_some()
        || matches!(&new.thread, ThreadChoice::Ensure(thread) if thread.id.is_some())
}

fn check_size(input: &Input, metadata: Option<&Json>, max_part_metadata: usize) -> Result<()> {
    if let Some(metadata) = metadata {
        check_metadata(metadata)?;
    }
    let messages = match input {
        Input::Messages(messages) => messages,
        Input::Value(value) if value.as_bytes().len() > limits::MAX_EVENT_BYTES / 2 => {
            return Err(Error::new(
                Code::EventTooLarge,
                format!(
                    "the input value has {} bytes; {} is the most",
                    value.as_bytes().len(),
                    limits::MAX_EVENT_BYTES / 2
                ),
            ));
        }
        Input::Value(_) => return Ok(()),
    };
    check_messages(messages, max_part_metadata)
}

pub(crate) fn check_messages(messages: &[Message], max_part_metadata: usize) -> Result<()> {
    if messages.len() > limits::MAX_MESSAGES_PER_INPUT {
        return Err(Error::new(
            Code::TooManyParts,
            format!(
                "the input has {} messages; {} is the most",
                messages.len(),
                limits::MAX_MESSAGES_PER_INPUT
            ),
        ));
    }
    for message in messages {
        part::check_metadata(&message.parts, max_part_metadata)?;
    }
    match messages.iter().find(|message| message.parts.len() > limits::MAX_PARTS_PER_MESSAGE) {
        Some(message) => Err(Error::new(
            Code::TooManyParts,
            format!(
                "a message has {} parts; {} is the most",
                message.parts.len(),
                limits::MAX_PARTS_PER_MESSAGE
            ),
        )),
        None => Ok(()),
    }
}

/// The first member of a thread's metadata that decides over what its editor's runs may do, and where.
#[must_use]
pub fn editor_member(metadata: &Json) -> Option<&'static str> {
    let metadata = metadata.to_value();
    EDITOR_MEMBERS.into_iter().find(|member| metadata.get(*member).is_some())
}

/// Checks that only who runs the server writes the members for editors, unless the face has checked them.
pub(crate) fn check_editor_metadata(
    by: &Principal,
    metadata: Option<&Json>,
    has_checked_settings: bool,
) -> Result<()> {
    let has = |member: &&str| metadata.is_some_and(|it| it.to_value().get(member).is_some());
    if let Some(member) = SUBAGENT_MEMBERS.iter().find(|member| has(member)) {
        let message = format!("only an agent sets the member '{member}' of a thread's metadata");
        return Err(Error::new(Code::Forbidden, message).hint("leave it out"));
    }
    let is_free = has_checked_settings || by.require(Right::Server).is_ok();
    let metadata = metadata.filter(|_| !is_free);
    let Some(member) = metadata.and_then(editor_member) else { return Ok(()) };
    let message = format!("the member '{member}' of a thread's metadata is for its editor");
    Err(Error::new(Code::Forbidden, message)
        .hint("leave it out, or use a token with the right 'server'"))
}

pub(crate) fn check_metadata(metadata: &Json) -> Result<()> {
    if !metadata.is_object() {
        return Err(Error::new(Code::InvalidRequest, "'metadata' is not a JSON object"));
    }
    if metadata.as_bytes().len() > limits::MAX_METADATA_BYTES {
        return Err(Error::new(
            Code::InvalidRequest,
            format!("the metadata has more than {} bytes", limits::MAX_METADATA_BYTES),
        ));
    }
    Ok(())
}
