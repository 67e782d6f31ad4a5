//! The ports of the store. Callers see these traits and never an engine.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use trilogue_domain::content::BlobRef;
use trilogue_domain::error::{Code, Error, Result};
use trilogue_domain::port::Clock;
use trilogue_domain::{
    AgentName, CheckpointId, CheckpointKey, ConfigurationId, IdKind, InterruptId, MessageId,
    PrincipalId, RunId, RunKey, Scope, ShortId, TenantId, ThreadActivity, ThreadId, ThreadKey,
    Timestamp, TokenId,
};

use crate::core::agent_difference::{NodeAgents, differences};
use crate::core::steady_clock::SteadyClock;
use crate::news::Peers;
use crate::record::Frame;
use crate::rows::{
    BindingRow, CheckpointRow, Claim, ConfigurationFilter, ConfigurationRow, DeadLetter,
    IdempotencyKey, IdempotencyRow, InterruptFilter, InterruptRow, Listing, MessageRow, Page,
    QueueItem, QueueKind, RetentionPolicy, RetryDecision, RunFilter, RunRow, SignInLinkRow,
    ThreadFilter, ThreadRow, TokenRow,
};

pub trait Store:
    Append + Nodes + Read + Housekeeping + Queue + Tokens + Configurations + Admin + Peers
{
}

impl<T: Append + Nodes + Read + Housekeeping + Queue + Tokens + Configurations + Admin + Peers>
    Store for T
{
}

/// One atomic change of one thread: frames, and the rows that change with them.
#[derive(Clone, Debug)]
pub struct Batch {
    pub thread: ThreadKey,
    pub epoch: u64,
    /// The last thread number before this; the frames continue it.
    pub expected_last: u64,
    /// The frames, in order. May be empty. At most [`trilogue_domain::limits::MAX_BATCH_BYTES`], beside one that [`Frame::is_large`].
    pub frames: Vec<Arc<Frame>>,
    pub changes: Vec<Change>,
    /// Blobs that the frames name; stored before with [`Append::put_blob`].
    pub blobs: Vec<BlobRef>,
    /// Whether this makes room or ends something: admitted while the disk is full.
    pub vital: bool,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// Writes a thread row; search rows follow its metadata.
    Thread(ThreadRow),
    /// Writes a run row; search rows follow its metadata.
    Run(Box<RunRow>),
    /// Writes a message row. An id that another run of the thread holds is left there and this row is dropped.
    Message(MessageRow),
    /// Gives the thread's message with the first id the second one as its alias. Does nothing when there is no such message.
    Alias(MessageId, MessageId),
    Checkpoint(CheckpointRow),
    Interrupt(Box<InterruptRow>),
    Binding(BindingRow),
    Idempotency(IdempotencyRow),
    Offer(QueueItem),
    /// Removes an item of the thread's tenant from the queue even if a worker holds it.
    Withdraw(QueueKind, String),
    /// Removes a run with its frames, messages, interrupts, idempotency, queue items, and blobs that nothing else names.
    /// Checkpoints that it made stay as links of the path, without value.
    RemoveRun(RunKey),
    RemoveThread,
}

#[async_trait]
pub trait Append: Send + Sync + fmt::Debug {
    /// A new thread key, never reused. Keys tell nothing of age: a later one may be smaller, from another process.
    fn next_thread_key(&self) -> ThreadKey;
    /// A new run key, never reused.
    fn next_run_key(&self) -> RunKey;
    /// A new checkpoint key, never reused.
    fn next_checkpoint_key(&self) -> CheckpointKey;

    /// The id under which this process owns threads, where the store lists its processes.
    fn node(&self) -> Option<&str> {
        None
    }

    /// Appends atomically: the only compare-and-swap. When it returns, the batch is as durable as the store promises, and readers can see it.
    /// Errors: `ownership_lost` when epoch or expected number do not fit; `disk_full`, `store_read_only`, `store_corrupt`, `thread_quarantined`; `already_exists` when an id is taken. Nothing of the batch is stored then.
    async fn append(&self, batch: Batch) -> Result<()>;

    /// Stores large content before the frame that names it. Storing the same bytes again is free.
    /// Errors: `blob_too_large`, and as [`Append::append`].
    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef>;

    /// Takes a thread over for `node`: the epoch grows when another node held it.
    /// Errors: `thread_not_found`; `thread_elsewhere`, naming the address, when a live node owns the thread; and as [`Append::append`].
    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread>;

    /// Takes a thread over for this node, which has an agent, from another one that lives and does not have it, so that a run of the agent can begin here. Does nothing where the owner has the agent.
    /// Errors: `thread_elsewhere` without an address while the thread has an open run; and as [`Append::append`].
    async fn take_for_agent(&self, thread: &ThreadRow, agent: &AgentName) -> Result<()> {
        let _ = (thread, agent);
        Ok(())
    }
}

/// What the nodes of a store arrange among themselves. Where one process holds the store there is nothing to arrange.
#[async_trait]
pub trait Nodes: Send + Sync + fmt::Debug {
    /// Whether this node hands its threads over and takes no others, as [`Self::set_draining`] had it.
    fn is_draining(&self) -> bool {
        false
    }

    /// Has this node hand its threads over, or take threads again. While no other node can take them, it goes on as before.
    /// Errors: `invalid_request` where one process holds the store; and as [`Append::append`].
    async fn set_draining(&self, draining: bool) -> Result<()> {
        let _ = draining;
        Err(no_nodes())
    }

    /// Passes where this node may take a thread that nobody owns.
    /// Errors: `thread_elsewhere`, naming the address of a node that takes it, while this one drains.
    async fn check_takes(&self, thread: ThreadKey) -> Result<()> {
        let _ = thread;
        Ok(())
    }

    /// Gives a thread up that this node owns under this epoch: to the live node of this name, or to whoever asks for it next.
    /// Errors: `not_found` where no live node that takes threads has the name; `invalid_request` where one process holds the store; `ownership_lost`; and as [`Append::append`].
    async fn hand_over(&self, thread: ThreadKey, epoch: u64, to: Option<&str>) -> Result<()> {
        let _ = (thread, epoch, to);
        Err(no_nodes())
    }

    /// Gives all threads up that this node owns, but for these. Returns how many.
    /// Fails as [`Append::append`].
    async fn hand_over_all_but(&self, but: &[ThreadKey]) -> Result<u64> {
        let _ = but;
        Ok(0)
    }
}

fn no_nodes() -> Error {
    Error::new(Code::InvalidRequest, "no other server shares this store")
        .hint("several servers can share a store in PostgreSQL: see [cluster] in the configuration")
}

#[derive(Clone, Debug)]
pub struct OwnedThread {
    /// The thread, with the epoch to write under.
    pub thread: ThreadRow,
    /// The last number of its log; zero when it is empty.
    pub last: u64,
    /// Its runs that have not ended, oldest first, with [`RunRow::last_run_number`] as the log has it now.
    pub open_runs: Vec<RunRow>,
    /// Its interrupts that are pending, oldest first.
    pub pending: Vec<InterruptRow>,
    /// Whether another node owned it before.
    pub is_taken_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    /// Only events of this run; its run numbers count then.
    pub run: Option<RunKey>,
    /// Events after this number; thread numbers, or run numbers when `run` is set.
    pub after: u64,
    /// Stop after the frame with which the sum of frame sizes passes this many bytes; at least one frame is given.
    pub max_bytes: usize,
}

/// Reading, always through a scope. Faces have only this.
#[async_trait]
pub trait Read: Send + Sync + fmt::Debug {
    async fn thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>>;
    /// The thread that a caller names: by its id, or by the caller's own name for it ([`Scope::own_thread_id`]).
    async fn named_thread(&self, scope: &Scope, name: &ThreadId) -> Result<Option<ThreadRow>> {
        if let Some(row) = self.thread(scope, name).await? {
            return Ok(Some(row));
        }
        match scope.own_thread_id(name) {
            Some(id) => self.thread(scope, &id).await,
            None => Ok(None),
        }
    }
    /// A thread by key, as a row that names it has it.
    async fn thread_of(&self, scope: &Scope, key: ThreadKey) -> Result<Option<ThreadRow>>;
    /// Threads, newest first; ephemeral ones are left out.
    /// Errors: `filter_too_broad`.
    async fn threads(
        &self,
        scope: &Scope,
        filter: &ThreadFilter,
        page: &Page,
    ) -> Result<Listing<ThreadRow>>;
    /// Why a thread that was listed is closed. `None` when it is not damaged.
    fn damage(&self, _thread: ThreadKey) -> Option<String> {
        None
    }
    /// A damaged thread whose row can still be read, so that it can be shown and erased. `None` for any other.
    async fn damaged_thread(&self, _scope: &Scope, _id: &ThreadId) -> Result<Option<ThreadRow>> {
        Ok(None)
    }
    /// The activity of threads, in the order of the keys; [`ThreadActivity::Idle`] for one that is not visible.
    async fn activities(&self, scope: &Scope, threads: &[ThreadKey])
    -> Result<Vec<ThreadActivity>>;
    async fn run(&self, scope: &Scope, id: &RunId) -> Result<Option<RunRow>>;
    /// A run by key, as an event that names it has it.
    async fn run_of(&self, scope: &Scope, key: RunKey) -> Result<Option<RunRow>>;
    /// Runs, newest first.
    /// Errors: `filter_too_broad`.
    async fn runs(&self, scope: &Scope, filter: &RunFilter, page: &Page)
    -> Result<Listing<RunRow>>;
    async fn interrupt(&self, scope: &Scope, id: &InterruptId) -> Result<Option<InterruptRow>>;
    async fn interrupts(
        &self,
        scope: &Scope,
        filter: &InterruptFilter,
        page: &Page,
    ) -> Result<Listing<InterruptRow>>;
    /// The visible ids that an abbreviation means, ephemeral threads' too, at most `limit`. One that equals it is the only one.
    /// By their last group, ids are looked for among the newest [`trilogue_domain::limits::MAX_SHORT_ID_CANDIDATES`] UUIDs of the tenant, by the times in them.
    async fn meant_ids(
        &self,
        scope: &Scope,
        kind: IdKind,
        short: &ShortId,
        limit: usize,
    ) -> Result<Vec<String>>;
    /// The message of a thread with this id, if its run is visible. The thread itself need not be.
    async fn message(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &MessageId,
    ) -> Result<Option<MessageRow>>;
    /// A message of a thread that the caller has looked up: by its id, else by its alias.
    async fn message_in(&self, thread: ThreadKey, id: &MessageId) -> Result<Option<MessageRow>>;
    async fn checkpoint(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &CheckpointId,
    ) -> Result<Option<CheckpointRow>>;
    /// The path of a visible thread from `from` (or the head) back to its beginning, newest first, at most `limit` checkpoints. A path of unknown length is read with a [`crate::PathReader`].
    async fn path(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        from: Option<CheckpointKey>,
        limit: usize,
    ) -> Result<Vec<CheckpointRow>>;
    async fn binding(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        agent: &AgentName,
    ) -> Result<Option<BindingRow>>;

    /// Committed frames of a thread that the caller has looked up, oldest first; empty at the end of the log.
    /// The first frame may begin before the range: the caller skips those events.
    /// Errors: `thread_quarantined` when a frame does not match its checksum.
    async fn frames(&self, thread: ThreadKey, range: Range) -> Result<Vec<Arc<Frame>>>;

    /// The last number of a thread's log, also when another process wrote it; zero when it is empty. A read that begins later includes it.
    async fn last_number(&self, thread: ThreadKey) -> Result<u64>;

    /// Attaches a reader: its thread's newest frames stay in memory until the tail is dropped, and it is woken by commits.
    fn tail(&self, thread: ThreadKey) -> Tail;

    /// A blob that a frame of this visible thread names.
    /// Errors: `thread_quarantined` when its bytes do not match its hash.
    async fn blob(&self, thread: ThreadKey, blob: &BlobRef) -> Result<Option<Bytes>>;
    /// A blob by its hash alone, when a frame of this visible thread names it.
    async fn blob_by_hash(
        &self,
        thread: ThreadKey,
        hash: &[u8; 32],
    ) -> Result<Option<(BlobRef, Bytes)>>;

    async fn dead_deliveries(&self, scope: &Scope, page: &Page) -> Result<Listing<DeadLetter>>;
}

#[derive(Debug)]
pub struct Tail {
    /// The last committed thread number; changes after every commit. Closed when the thread is removed while it is read.
    /// It may begin with zero: an engine looks the number up behind the call, and wakes the reader then. [`Read::last_number`] waits for it.
    pub committed: watch::Receiver<u64>,
    pub guard: Box<dyn TailGuard>,
}

pub trait TailGuard: Send + Sync + fmt::Debug {}

/// What recovery, queue workers and retention need: not bound to a scope, and handed to the runtime only.
#[async_trait]
pub trait Housekeeping: Send + Sync + fmt::Debug {
    /// Threads that have a run which has not ended, and that no other live node owns.
    async fn open_threads(&self) -> Result<Vec<ThreadKey>>;
    /// Those of [`Self::open_threads`] whose owner is gone: nobody carries their runs on.
    async fn abandoned_threads(&self) -> Result<Vec<ThreadKey>> {
        Ok(Vec::new())
    }
    async fn thread_by_key(&self, key: ThreadKey) -> Result<Option<ThreadRow>>;
    async fn run_by_key(&self, key: RunKey) -> Result<Option<RunRow>>;
    async fn checkpoint_by_key(&self, key: CheckpointKey) -> Result<Option<CheckpointRow>>;
    /// The use of an idempotency key that is not older than [`trilogue_domain::limits::IDEMPOTENCY_KEPT`].
    async fn idempotency(
        &self,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>>;
    /// The idempotency keys that a run was created or answered under, in no order.
    async fn idempotency_of_run(
        &self,
        thread: ThreadKey,
        run: &RunId,
    ) -> Result<Vec<IdempotencyRow>>;
    /// Terminal runs that the policy removes, oldest first, at most `limit`; and forgets idempotency rows that are too old.
    async fn expired_runs(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunRow>>;
    /// Removes a quarantined thread with all its data, without reading the damaged part, and returns its key. `None` when no thread of this id is quarantined in the scope.
    /// Fails as [`Append::append`].
    async fn erase_quarantined(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>>;
    /// Removes those of these threads that are ephemeral, undamaged and without an open run, with all their data, in one transaction. Returns them.
    /// An owner that still has such a thread in memory gets `ownership_lost` for its next append.
    /// Fails as [`Append::append`].
    async fn remove_ephemeral(&self, threads: &[ThreadKey]) -> Result<Vec<ThreadKey>>;
    /// Quarantines a damaged thread: it is not read or written until the next start.
    fn quarantine(&self, thread: ThreadKey, why: &str);
}

/// The durable queue. Items are offered with [`Change::Offer`].
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Claims items that are due, oldest first, until `lease_until`.
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>>;
    /// `false` when the claim no longer holds the item.
    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool>;
    /// Removes a finished item. `false` when the claim no longer holds it.
    async fn finish(&self, claim: &Claim) -> Result<bool>;
    /// Schedules a retry or gives the item up. `false` when the claim no longer holds it.
    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool>;
    /// When the next item of this kind falls due or its lease ends.
    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>>;
    /// Puts a dead item of this scope's tenant back, due now. `false` when there is none.
    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool>;
    /// Makes every live item due earlier by this: the clock was set back, and the items have times from before.
    async fn bring_forward(&self, _by: Duration) -> Result<()> {
        Ok(())
    }
    /// Notified when an item is offered.
    fn offered(&self) -> Arc<tokio::sync::Notify>;
}

#[async_trait]
pub trait Tokens: Send + Sync + fmt::Debug {
    async fn put_token(&self, token: TokenRow) -> Result<()>;
    /// The token with this hash, expired ones included.
    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>>;
    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>>;
    /// Removes a token. `None` when there is none of this id in the tenant.
    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>>;
    /// Keeps a link for signing in until it is used or expires; unless the store is of one process, they outlive this one.
    /// Errors: `overloaded` when [`trilogue_domain::limits::MAX_SIGN_IN_LINKS`] wait to be used.
    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()>;
    /// The link with the hash of this code, which stays. `None` if it is unknown or has expired.
    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>>;
    /// Takes the link with the hash of this code: it works no more, in any process. `None` where there is none, or it has expired.
    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>>;
    /// Whether a principal still has a token with any right; scheduled work is checked with it.
    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<trilogue_domain::Rights>;
}

/// Configured instances of agents. One that has expired is not there.
#[async_trait]
pub trait Configurations: Send + Sync + fmt::Debug {
    /// Stores a new instance.
    /// Errors: `already_exists` when its tenant has the id; as [`Append::append`].
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()>;
    /// Changes an instance of the scope as a whole. `false` when there is none.
    async fn update_configuration(&self, scope: &Scope, row: ConfigurationRow) -> Result<bool>;
    async fn configuration(
        &self,
        scope: &Scope,
        id: &ConfigurationId,
        now: Timestamp,
    ) -> Result<Option<ConfigurationRow>>;
    async fn configurations(
        &self,
        scope: &Scope,
        filter: &ConfigurationFilter,
        page: &Page,
        now: Timestamp,
    ) -> Result<Listing<ConfigurationRow>>;
    /// Removes an instance. `false` when there is none in the scope.
    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool>;
    /// Removes up to `limit` expired instances, the longest expired first. Returns how many.
    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize>;
}

#[async_trait]
pub trait Admin: Send + Sync + fmt::Debug {
    /// How durable a returned append is: `fsync`, `buffered` or `memory`.
    fn durability(&self) -> &'static str;
    /// Fails when the store takes no writes, with the reason.
    /// Errors: `store_read_only`, `store_corrupt`, `disk_full`.
    fn health(&self) -> Result<()>;
    /// What a store that takes writes still has to do before it is ready for a usual load, in a few words.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// The time that everyone who shares the store agrees on: what is due is due by it. It advances evenly while the machine's clock jumps.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SteadyClock::system())
    }
    async fn stats(&self) -> Result<Stats>;
    /// The nodes that share the store, by name; none where one process holds it.
    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        Ok(Vec::new())
    }
    /// Tells the other nodes which agents this one has, in place of what it told before. Does nothing where one process holds the store.
    /// Errors: `store_unavailable`; it is told with the next sign of life then.
    async fn tell_agents(&self, agents: Vec<NodeAgent>) -> Result<()> {
        let _ = agents;
        Ok(())
    }
    /// Another live node that has an agent by this name, or by another text that means it.
    async fn node_with_agent(&self, agent: &str) -> Result<Option<NodeAddress>> {
        let _ = agent;
        Ok(None)
    }
    /// The name of the live node with this id, as a thread's row has it; `None` while only one node uses the store. It may be as old as a sign of life.
    fn node_name(&self, id: &str) -> Option<String> {
        let _ = id;
        None
    }
    /// Writes a consistent copy to a new file while the store is in use.
    /// Errors: `invalid_request` where the engine has no file; `already_exists` when `to` exists.
    async fn backup(&self, to: &Path) -> Result<()>;
    /// Makes everything durable and closes. Later calls fail.
    async fn close(&self) -> Result<()>;
}

/// A node that shares the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRow {
    /// Made anew at each start.
    pub id: String,
    /// Unique among live nodes.
    pub name: String,
    /// Where the other nodes reach it: a web address.
    pub address: String,
    pub version: String,
    /// Since its last sign of life, by the database's clock.
    pub silent_for: Duration,
    pub is_alive: bool,
    /// Whether it hands its threads over and takes no others.
    pub is_draining: bool,
    /// Whether it is this process.
    pub is_this: bool,
    /// How many threads with an open run it owns.
    pub open_threads: u64,
    /// The agents that it has, by name; `None` where it has not told them.
    pub agents: Option<Vec<NodeAgent>>,
}

/// Where a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAddress {
    /// Unique among live nodes.
    pub name: String,
    /// A web address.
    pub address: String,
}

// === impl NodeAddress ===

impl NodeAddress {
    /// The error of a request that belongs to this node; `message` says why, with its name.
    pub(crate) fn elsewhere(self, message: fn(&str) -> String) -> Error {
        let Self { name, address } = self;
        Error::new(Code::ThreadElsewhere, message(&name.escape_debug().to_string()))
            .hint(format!("send the request to {address}"))
            .node(address)
    }
}

/// An agent, as the node that has it tells the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAgent {
    pub name: String,
    /// A digest of what clients see of it and rely on; `None` where lists leave it out, so that nodes need not agree about it.
    pub digest: Option<String>,
    /// Other texts that mean it in a request, ids in lower case.
    pub also: Vec<String>,
}

/// An agent that only some live nodes have, or that some describe in another way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentDifference {
    pub agent: String,
    /// The names of the nodes that have it; those that describe it in the same way are together.
    pub variants: Vec<Vec<String>>,
    /// The names of the nodes that lack it.
    pub missing_on: Vec<String>,
}

/// What the live ones of these nodes do not agree about. A node that has not told its agents is left out.
#[must_use]
pub fn agent_differences(nodes: &[NodeRow]) -> Vec<AgentDifference> {
    let told = |node: &'_ NodeRow| node.is_alive && node.agents.is_some();
    let told: Vec<_> = nodes
        .iter()
        .filter(|node| told(node))
        .map(|node| NodeAgents {
            node: &node.name,
            version: &node.version,
            agents: node.agents.as_deref().unwrap_or_default(),
        })
        .collect();
    differences(&told)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub threads: u64,
    pub runs: u64,
    pub bytes: u64,
    pub cache_bytes: u64,
    pub quarantined: u64,
    /// Acknowledged commits that a start did not find again, and when it last missed some.
    pub lost_commits: u64,
    pub lost_at: Option<Timestamp>,
    /// Commits since the start.
    pub commits: u64,
    /// Frames appended since the start.
    pub frames: u64,
    pub schema_version: u32,
}
