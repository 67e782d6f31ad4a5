//! Rows: the primary data in addition to the log. They change only in an append's transaction, and only at boundaries.

use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::interrupt::Resolution;
use trilogue_domain::{
    AgentName, Callback, CheckpointId, CheckpointKey, ClientHistory, ConfigurationId, Interrupt,
    InterruptId, Json, MessageId, Outcome, ParentRun, Principal, PrincipalId, Provenance, Rights,
    Role, RunAudit, RunId, RunKey, RunStatus, Scope, StartedBy, TenantId, ThreadId, ThreadKey,
    Timestamp, TokenId, limits,
};

pub use crate::filter::{ConfigurationFilter, InterruptFilter, RunFilter, ThreadFilter};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadRow {
    /// Its integer; unique in the store.
    pub key: ThreadKey,
    /// Its id; unique in the tenant.
    pub id: ThreadId,
    pub tenant: TenantId,
    pub owner: PrincipalId,
    pub metadata: Json,
    pub created_at: Timestamp,
    /// When one of its rows changed last.
    pub updated_at: Timestamp,
    /// The checkpoint at the end of the thread's history.
    pub head: Option<CheckpointKey>,
    pub owner_node: String,
    /// Grows by one with every change of owner; a writer with an older epoch is refused.
    pub epoch: u64,
    /// Whether it exists for one run only and is not listed.
    pub ephemeral: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRow {
    /// Its integer; unique in the store.
    pub key: RunKey,
    /// Its id; unique in the tenant.
    pub id: RunId,
    pub thread: ThreadKey,
    pub thread_id: ThreadId,
    pub tenant: TenantId,
    pub principal: PrincipalId,
    pub agent: AgentName,
    pub status: RunStatus,
    pub created_at: Timestamp,
    /// When its agent was first started.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub outcome: Option<Outcome>,
    /// The checkpoint it was based on when it last took its turn.
    pub base: Option<CheckpointKey>,
    pub metadata: Json,
    pub config: Option<Json>,
    /// The state that a suspended agent resumes from.
    pub saved: Option<Json>,
    pub has_turn: bool,
    /// The answered interrupt whose answer the agent has not received yet: the run must still be started.
    pub pending_answer: Option<InterruptId>,
    /// Whether any of its interrupts was ever resolved.
    pub ever_resolved: bool,
    /// Earliest start.
    pub not_before: Option<Timestamp>,
    /// The last of its run numbers at the time of writing this row.
    pub last_run_number: u64,
    /// The name of the rules for its agent's output. `None` means no rules.
    pub rules: Option<Arc<str>>,
    pub callback: Option<Callback>,
    /// The creating request, in the form of its face; at most [`trilogue_domain::limits::MAX_KEPT_REQUEST_BYTES`] bytes.
    pub request: Option<Json>,
    /// Whether its thread was made for it, is not listed and keeps no state. Retention has a separate age for such runs.
    pub stateless: bool,
    /// The reason while it is being cancelled. With `run_rolled_back` it is removed once it has ended.
    pub cancel_reason: Option<Code>,
    /// The run whose agent called this one's. This run ends at the latest with that agent's turn.
    pub parent: Option<ParentRun>,
    /// The provenance that other servers receive for this run.
    pub provenance: Option<Box<Provenance>>,
    /// The prefix of the mount that created it, if its callbacks use that mount.
    pub mount: Option<Arc<str>>,
    /// Who requested it.
    pub audit: Option<Box<RunAudit>>,
    /// Who started it, if no request did.
    pub started_by: Option<StartedBy>,
}

/// A configured instance: settings of an agent under a separate id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigurationRow {
    /// Its id; unique in the tenant.
    pub id: ConfigurationId,
    pub tenant: TenantId,
    pub owner: PrincipalId,
    pub agent: AgentName,
    /// A label for people.
    pub name: Option<String>,
    /// The settings; at most [`trilogue_domain::limits::MAX_CONFIGURATION_BYTES`] bytes.
    pub config: Json,
    pub metadata: Json,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// From this time the instance counts as missing.
    pub expires_at: Option<Timestamp>,
}

/// The position of a message in the log, which holds its content. The row is written once the message is complete, or earlier if its run ends or suspends or the message gets an alias.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageRow {
    /// Its id; unique in the thread.
    pub id: MessageId,
    pub tenant: TenantId,
    pub thread: ThreadKey,
    pub run: RunKey,
    pub role: Role,
    /// A thread number at or before that of its last event. A search for the message starts there.
    pub position: u64,
    /// Its agent's id for it.
    pub alias: Option<MessageId>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckpointRow {
    /// Its integer; unique in the store.
    pub key: CheckpointKey,
    pub id: CheckpointId,
    pub thread: ThreadKey,
    /// The checkpoint before it on the path.
    pub parent: Option<CheckpointKey>,
    /// The run that made it. `None` for a patch.
    pub run: Option<RunKey>,
    /// The thread number up to which the log is folded into it.
    pub position: u64,
    /// The state. `None` if it is derived from the messages on the path.
    pub value: Option<Json>,
    pub created_at: Timestamp,
    /// The history that a client sent. On the path it precedes the run's messages.
    pub client_history: Option<ClientHistory>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterruptRow {
    pub interrupt: Interrupt,
    pub tenant: TenantId,
    /// The creator of the run.
    pub principal: PrincipalId,
    pub thread: ThreadKey,
    pub thread_id: ThreadId,
    pub run: RunKey,
    pub run_id: RunId,
    pub agent: AgentName,
    pub raised_at: Timestamp,
    /// How it ended. `None` while it is pending.
    pub resolution: Option<Resolution>,
    pub resolved_at: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingRow {
    pub thread: ThreadKey,
    pub agent: AgentName,
    pub remote: String,
    pub capabilities: Json,
    /// The checkpoint up to which the agent has seen the thread.
    pub last_seen: Option<CheckpointKey>,
}

/// An idempotency key that was used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdempotencyRow {
    pub key: IdempotencyKey,
    pub request: [u8; 32],
    /// The run that the request created or answered.
    pub run: RunId,
    /// The message of the request, if it had one.
    pub message: Option<MessageId>,
    /// The thread, for erasure.
    pub thread: ThreadKey,
    pub created_at: Timestamp,
}

/// The unique part of an idempotency row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IdempotencyKey {
    pub tenant: TenantId,
    pub principal: PrincipalId,
    pub agent: AgentName,
    /// The key that the client chose, at most [`trilogue_domain::limits::MAX_ID_BYTES`] bytes.
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenRow {
    pub id: TokenId,
    /// A label for people.
    pub label: String,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    pub tenant: TenantId,
    pub principal: PrincipalId,
    /// What it may do.
    pub rights: Rights,
    /// Whether it sees only rows that its principal created.
    pub own: bool,
    pub created_at: Timestamp,
    /// Invalid from this time on.
    pub expires_at: Option<Timestamp>,
    /// The browser's sign-in token, if this token belongs to its session. Both end together.
    pub session_of: Option<TokenId>,
}

/// What the valid tokens of a principal permit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrincipalRights {
    /// With what the principal has created.
    pub own: Rights,
    /// With what others have created too.
    pub anywhere: Rights,
}

/// A link that signs a browser in, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignInLinkRow {
    /// SHA-256 of its code.
    pub code: [u8; 32],
    /// The hash of the token that the session will act for.
    pub token: [u8; 32],
    pub expires_at: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueItem {
    pub kind: QueueKind,
    /// Unique within the tenant and kind: offering the key again replaces the item. A callback whose reference has `run` and `number` can be claimed only when it has the lowest number of its run's callbacks, not counting dead ones. If it is offered again while it is held, the offer waits until its holder is done.
    /// An item is removed with its run if its key is the id of the run or of one of its interrupts, or if its reference is an object with the run's key as `run`.
    pub key: String,
    pub due: Timestamp,
    pub tenant: TenantId,
    /// The principal that the work acts for. Its rights are checked again when the item falls due.
    pub principal: PrincipalId,
    /// The thread it belongs to, for erasure.
    pub thread: Option<ThreadKey>,
    pub reference: Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum QueueKind {
    /// A run whose start time has come.
    ScheduledRun,
    /// An interrupt whose deadline has come.
    Deadline,
    Callback,
    /// Runs to remove by age or count.
    Retention,
    /// Notify of a new interrupt.
    Notify,
}

/// A queue item that a worker holds until its lease ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    pub id: i64,
    /// Grows with every claim, so that an older holder cannot finish the item.
    pub fence: u64,
    /// How often it was claimed, including this time.
    pub attempts: u32,
    pub item: QueueItem,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetter {
    pub id: i64,
    pub attempts: u32,
    pub error: String,
    pub item: QueueItem,
}

/// What happens to a claimed item that was not finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RetryDecision {
    /// Try again at this time.
    RetryAt(Timestamp),
    /// Claim it again at this time. The item was not attempted, so the claim does not count as an attempt.
    Postpone(Timestamp),
    /// Keep it on the dead-letter list.
    Dead,
}

/// A part of a listing. Listings are newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// At most this many rows, up to [`trilogue_domain::limits::MAX_PAGE_ROWS`].
    pub limit: usize,
    /// Begin after the row with this key: the `next` of the previous page.
    pub after: Option<i64>,
    /// Leave out this many matching rows from there.
    pub skip: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing<T> {
    pub rows: Vec<T>,
    /// Pass this as [`Page::after`] for the next page. `None` on the last page.
    pub next: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetentionPolicy {
    pub max_age: Option<Duration>,
    pub max_stateless_age: Option<Duration>,
    pub max_runs_per_thread: Option<u64>,
    pub max_runs_per_tenant: Option<u64>,
}

// === impl ThreadRow ===

impl ThreadRow {
    /// A thread without metadata, in its first epoch and owned by no node.
    pub fn new(
        key: ThreadKey,
        id: ThreadId,
        tenant: TenantId,
        owner: PrincipalId,
        at: Timestamp,
    ) -> Self {
        Self {
            key,
            id,
            tenant,
            owner,
            metadata: Json::empty_object(),
            created_at: at,
            updated_at: at,
            head: None,
            owner_node: String::new(),
            epoch: 1,
            ephemeral: false,
        }
    }
}

// === impl RunRow ===

impl RunRow {
    /// The time from which its agent could have begun.
    #[must_use]
    pub fn due(&self) -> Timestamp {
        self.not_before.map_or(self.created_at, |at| at.max(self.created_at))
    }

    /// A queued run of this thread, without any optional member.
    pub fn new(
        key: RunKey,
        id: RunId,
        thread: &ThreadRow,
        principal: PrincipalId,
        agent: AgentName,
        at: Timestamp,
    ) -> Self {
        Self {
            key,
            id,
            thread: thread.key,
            thread_id: thread.id.clone(),
            tenant: thread.tenant.clone(),
            principal,
            agent,
            status: RunStatus::Queued,
            created_at: at,
            started_at: None,
            ended_at: None,
            outcome: None,
            base: None,
            metadata: Json::empty_object(),
            config: None,
            saved: None,
            has_turn: false,
            pending_answer: None,
            ever_resolved: false,
            not_before: None,
            last_run_number: 0,
            rules: None,
            callback: None,
            request: None,
            stateless: false,
            cancel_reason: None,
            parent: None,
            provenance: None,
            mount: None,
            audit: None,
            started_by: None,
        }
    }
}

// === impl QueueKind ===

impl QueueKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScheduledRun => "scheduled_run",
            Self::Deadline => "deadline",
            Self::Callback => "callback",
            Self::Retention => "retention",
            Self::Notify => "notify",
        }
    }

    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::ScheduledRun, Self::Deadline, Self::Callback, Self::Retention, Self::Notify]
            .into_iter()
            .find(|kind| kind.as_str() == text)
    }
}

// === impl ConfigurationRow ===

impl ConfigurationRow {
    pub(crate) fn is_seen(&self, scope: &Scope, now: Timestamp) -> bool {
        scope.can_see(&self.tenant, &self.owner) && self.expires_at.is_none_or(|end| now < end)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bytes = self.config.as_bytes().len();
        if bytes > limits::MAX_CONFIGURATION_BYTES {
            return Err(Error::new(
                Code::InvalidRequest,
                format!(
                    "the configuration has {bytes} bytes; {} is the most",
                    limits::MAX_CONFIGURATION_BYTES
                ),
            ));
        }
        Ok(())
    }
}

// === impl TokenRow ===

impl TokenRow {
    /// The principal that acts with it.
    #[must_use]
    pub fn to_principal(&self) -> Principal {
        Principal {
            tenant: self.tenant.clone(),
            id: self.principal.clone(),
            rights: self.rights,
            own: self.own,
        }
    }

    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}

// === impl PrincipalRights ===

impl PrincipalRights {
    /// Adds up the tokens of a principal that are valid at this time.
    pub(crate) fn of_tokens<'a>(
        tokens: impl Iterator<Item = &'a TokenRow>,
        now: Timestamp,
    ) -> Self {
        let valid: Vec<_> = tokens.filter(|token| token.is_valid(now)).collect();
        let rights_where = |is_wanted: fn(&TokenRow) -> bool| {
            let wanted = valid.iter().filter(|token| is_wanted(token));
            wanted.flat_map(|token| token.rights.iter()).collect()
        };
        Self { own: rights_where(|_| true), anywhere: rights_where(|token| !token.own) }
    }
}

// === impl Page ===

impl Default for Page {
    fn default() -> Self {
        Self { limit: trilogue_domain::limits::DEFAULT_PAGE_ROWS, after: None, skip: 0 }
    }
}
