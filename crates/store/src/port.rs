//! The ports of the store. Callers see these traits and never an engine.

use std::collections::HashMap;
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
    PrincipalRights, QueueItem, QueueKind, RetentionPolicy, RetryDecision, RunFilter, RunRow,
    SignInLinkRow, ThreadFilter, ThreadRow, TokenRow,
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
    /// The frames, in order. May be empty. At most [`trilogue_domain::limits::MAX_BATCH_BYTES`], not counting one that [`Frame::is_large`].
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
    /// Writes a message row. Does nothing if another run of the thread already holds the id.
    Message(MessageRow),
    /// Gives the thread's message with the first id the second one as its alias. Does nothing if the message does not exist.
    Alias(MessageId, MessageId),
    Checkpoint(CheckpointRow),
    Interrupt(Box<InterruptRow>),
    Binding(BindingRow),
    Idempotency(IdempotencyRow),
    Offer(QueueItem),
    /// Removes an item of the thread's tenant from the queue even if a worker holds it.
    Withdraw(QueueKind, String),
    /// Removes a run with its frames, messages, interrupts, idempotency, queue items, and the blobs that nothing else names.
    /// Checkpoints that the run made stay as links of the path, without a value.
    RemoveRun(RunKey),
    RemoveThread,
}

#[async_trait]
pub trait Append: Send + Sync + fmt::Debug {
    /// A new thread key, never reused. Keys do not order threads by age: another process may give a smaller key later.
    fn next_thread_key(&self) -> ThreadKey;
    /// A new run key, never reused.
    fn next_run_key(&self) -> RunKey;
    /// A new checkpoint key, never reused.
    fn next_checkpoint_key(&self) -> CheckpointKey;

    /// The id under which this process owns threads. `None` if the store does not list its processes.
    fn node(&self) -> Option<&str> {
        None
    }

    /// Appends atomically: the only compare-and-swap. When it returns, the batch is as durable as the store promises, and readers can see it.
    /// Errors: `ownership_lost` if the epoch or the expected number does not match; `disk_full`, `store_read_only`, `store_corrupt`, `thread_quarantined`; `already_exists` if an id is taken. After an error, nothing of the batch is stored.
    async fn append(&self, batch: Batch) -> Result<()>;

    /// Stores large content before the frame that names it. Storing the same bytes again is free.
    /// Errors: `blob_too_large`, and as [`Append::append`].
    async fn put_blob(&self, tenant: &TenantId, bytes: Bytes, is_text: bool) -> Result<BlobRef>;

    /// Takes a thread over for `node`. The epoch grows if another node held it.
    /// Errors: `thread_not_found`; `thread_elsewhere`, naming the address, if a live node owns the thread; and as [`Append::append`].
    async fn acquire(&self, thread: ThreadKey, node: &str) -> Result<OwnedThread>;

    /// Takes a thread over for this node, which has the agent, from a live node that does not have it, so that a run of the agent can begin here. Does nothing if the owner has the agent.
    /// Errors: `thread_elsewhere` without an address while the thread has an open run; and as [`Append::append`].
    async fn take_for_agent(&self, thread: &ThreadRow, agent: &AgentName) -> Result<()> {
        let _ = (thread, agent);
        Ok(())
    }
}

/// What the nodes of a store arrange among themselves. A store that one process holds needs none of it.
#[async_trait]
pub trait Nodes: Send + Sync + fmt::Debug {
    /// Whether this node hands its threads over and takes no others, as last set by [`Self::set_draining`].
    fn is_draining(&self) -> bool {
        false
    }

    /// Starts or ends draining: a draining node hands its threads over. No effect while no other node can take over.
    /// Errors: `invalid_request` if one process holds the store; and as [`Append::append`].
    async fn set_draining(&self, draining: bool) -> Result<()> {
        let _ = draining;
        Err(no_nodes())
    }

    /// Succeeds if this node may take a thread without an owner.
    /// Errors: `thread_elsewhere`, naming the address of a node that takes it, while this one drains.
    async fn check_takes(&self, thread: ThreadKey) -> Result<()> {
        let _ = thread;
        Ok(())
    }

    /// Gives up a thread that this node owns under this epoch: to the live node of this name, or to the next node that receives a request for it.
    /// Errors: `not_found` if no live node that takes threads has the name; `invalid_request` if one process holds the store; `ownership_lost`; and as [`Append::append`].
    async fn hand_over(&self, thread: ThreadKey, epoch: u64, to: Option<&str>) -> Result<()> {
        let _ = (thread, epoch, to);
        Err(no_nodes())
    }

    /// Gives up all threads that this node owns, except these. Returns how many.
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
    /// Its runs that have not ended, oldest first. [`RunRow::last_run_number`] is the log's current value.
    pub open_runs: Vec<RunRow>,
    /// Its pending interrupts, oldest first.
    pub pending: Vec<InterruptRow>,
    /// Whether another node owned it before.
    pub is_taken_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    /// Returns only events of this run. `after` then counts run numbers.
    pub run: Option<RunKey>,
    /// Events after this number; thread numbers, or run numbers when `run` is set.
    pub after: u64,
    /// The bound on the sum of frame sizes, in bytes. Reading stops after the frame that exceeds it, so at least one frame is returned.
    pub max_bytes: usize,
}

/// Reads, always through a scope. Faces have only this trait.
#[async_trait]
pub trait Read: Send + Sync + fmt::Debug {
    async fn thread(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadRow>>;
    /// The thread that a caller names: by its id, or by the caller's alias for it ([`Scope::own_thread_id`]).
    async fn named_thread(&self, scope: &Scope, name: &ThreadId) -> Result<Option<ThreadRow>> {
        if let Some(row) = self.thread(scope, name).await? {
            return Ok(Some(row));
        }
        match scope.own_thread_id(name) {
            Some(id) => self.thread(scope, &id).await,
            None => Ok(None),
        }
    }
    /// A thread by the key in a row that names it.
    async fn thread_of(&self, scope: &Scope, key: ThreadKey) -> Result<Option<ThreadRow>>;
    /// Threads, newest first, without ephemeral ones.
    /// Errors: `filter_too_broad`.
    async fn threads(
        &self,
        scope: &Scope,
        filter: &ThreadFilter,
        page: &Page,
    ) -> Result<Listing<ThreadRow>>;
    /// Why a listed thread is closed. `None` if it is not damaged.
    fn damage(&self, _thread: ThreadKey) -> Option<String> {
        None
    }
    /// A damaged thread whose row can still be read, so that it can be shown and erased. `None` for every other thread.
    async fn damaged_thread(&self, _scope: &Scope, _id: &ThreadId) -> Result<Option<ThreadRow>> {
        Ok(None)
    }
    /// The activity of threads, in the order of the keys; [`ThreadActivity::Idle`] for one that is not visible.
    async fn activities(&self, scope: &Scope, threads: &[ThreadKey])
    -> Result<Vec<ThreadActivity>>;
    async fn run(&self, scope: &Scope, id: &RunId) -> Result<Option<RunRow>>;
    /// A run by the key in an event that names it.
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
    /// The visible ids that an abbreviation matches, those of ephemeral threads included, at most `limit`. An exact match is the only result.
    /// Ids are matched by their last group among the newest [`trilogue_domain::limits::MAX_SHORT_ID_CANDIDATES`] UUIDs of the tenant, by the times in the UUIDs.
    async fn resolve_short_id(
        &self,
        scope: &Scope,
        kind: IdKind,
        short: &ShortId,
        limit: usize,
    ) -> Result<Vec<String>>;
    /// The thread's message with this id, if its run is visible. The thread itself need not be visible.
    async fn message(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &MessageId,
    ) -> Result<Option<MessageRow>>;
    /// A message of a thread that the caller has looked up: by its id, otherwise by its alias.
    async fn message_in(&self, thread: ThreadKey, id: &MessageId) -> Result<Option<MessageRow>>;
    async fn checkpoint(
        &self,
        scope: &Scope,
        thread: &ThreadId,
        id: &CheckpointId,
    ) -> Result<Option<CheckpointRow>>;
    /// The path of a visible thread from `from` (or the head) back to its beginning, newest first, at most `limit` checkpoints. Use a [`crate::PathReader`] for a path of unknown length.
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
    /// The first frame may begin before the range. The caller skips those events.
    /// Errors: `thread_quarantined` if a frame does not match its checksum.
    async fn frames(&self, thread: ThreadKey, range: Range) -> Result<Vec<Arc<Frame>>>;

    /// The last number of a thread's log, also if another process wrote it. Zero if the log is empty. A read that begins later includes this number.
    async fn last_number(&self, thread: ThreadKey) -> Result<u64>;

    /// Attaches a reader. The thread's newest frames stay in memory until the tail is dropped, and commits wake the reader.
    fn tail(&self, thread: ThreadKey) -> Tail;

    /// A blob that a frame of this visible thread names.
    /// Errors: `thread_quarantined` if its bytes do not match its hash.
    async fn blob(&self, thread: ThreadKey, blob: &BlobRef) -> Result<Option<Bytes>>;
    /// A blob by its hash alone, if a frame of this visible thread names it.
    async fn blob_by_hash(
        &self,
        thread: ThreadKey,
        hash: &[u8; 32],
    ) -> Result<Option<(BlobRef, Bytes)>>;

    async fn dead_deliveries(&self, scope: &Scope, page: &Page) -> Result<Listing<DeadLetter>>;
}

#[derive(Debug)]
pub struct Tail {
    /// The last committed thread number; it changes after every commit. The channel closes if the thread is removed.
    /// The value may start at zero: the engine looks the number up in the background and then wakes the reader. [`Read::last_number`] waits for it.
    pub committed: watch::Receiver<u64>,
    pub guard: Box<dyn TailGuard>,
}

pub trait TailGuard: Send + Sync + fmt::Debug {}

/// What recovery, queue workers and retention need. It is not bound to a scope, so only the runtime gets it.
#[async_trait]
pub trait Housekeeping: Send + Sync + fmt::Debug {
    /// Threads with a run that has not ended, except threads that another live node owns.
    async fn open_threads(&self) -> Result<Vec<ThreadKey>>;
    /// The threads of [`Self::open_threads`] whose owner is gone, so that their runs make no progress.
    async fn abandoned_threads(&self) -> Result<Vec<ThreadKey>> {
        Ok(Vec::new())
    }
    async fn thread_by_key(&self, key: ThreadKey) -> Result<Option<ThreadRow>>;
    async fn run_by_key(&self, key: RunKey) -> Result<Option<RunRow>>;
    async fn checkpoint_by_key(&self, key: CheckpointKey) -> Result<Option<CheckpointRow>>;
    /// The use of an idempotency key, if it is not older than [`trilogue_domain::limits::IDEMPOTENCY_KEPT`].
    async fn idempotency(
        &self,
        key: &IdempotencyKey,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRow>>;
    /// The idempotency keys that created or answered a run, in no order.
    async fn idempotency_of_run(
        &self,
        thread: ThreadKey,
        run: &RunId,
    ) -> Result<Vec<IdempotencyRow>>;
    /// Terminal runs that the policy removes, oldest first, at most `limit`. Also deletes idempotency rows that are too old.
    async fn expired_runs(
        &self,
        policy: &RetentionPolicy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<RunRow>>;
    /// Removes a quarantined thread with all its data, without reading the damaged part, and returns its key. `None` if no thread with this id is quarantined in the scope.
    /// Fails as [`Append::append`].
    async fn erase_quarantined(&self, scope: &Scope, id: &ThreadId) -> Result<Option<ThreadKey>>;
    /// Removes the given threads that are ephemeral, undamaged and without an open run, with all their data, in one transaction. Returns the removed ones.
    /// An owner that still has such a thread in memory gets `ownership_lost` for its next append.
    /// Fails as [`Append::append`].
    async fn remove_ephemeral(&self, threads: &[ThreadKey]) -> Result<Vec<ThreadKey>>;
    /// Quarantines a damaged thread: it is neither read nor written until the next start.
    fn quarantine(&self, thread: ThreadKey, why: &str);
}

/// The durable queue. Items are offered with [`Change::Offer`].
#[async_trait]
pub trait Queue: Send + Sync + fmt::Debug {
    /// Claims due items, oldest first, until `lease_until`.
    async fn claim(
        &self,
        kind: QueueKind,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Claim>>;
    /// Extends a claim. Returns `false` if the claim no longer holds the item.
    async fn extend(&self, claim: &Claim, lease_until: Timestamp) -> Result<bool>;
    /// Removes a finished item. Returns `false` if the claim no longer holds it.
    async fn finish(&self, claim: &Claim) -> Result<bool>;
    /// Schedules a retry, or gives the item up. Returns `false` if the claim no longer holds it.
    async fn abandon(&self, claim: &Claim, how: RetryDecision, error: &str) -> Result<bool>;
    /// When the next item of this kind falls due or its lease ends.
    async fn next_due(&self, kind: QueueKind) -> Result<Option<Timestamp>>;
    /// Puts a dead item of this scope's tenant back, due now. Returns `false` if the tenant has no dead item with this id.
    async fn revive(&self, scope: &Scope, id: i64, now: Timestamp) -> Result<bool>;
    /// Makes every live item due earlier by this duration: after the clock was set back, items still have times from before.
    async fn bring_forward(&self, _by: Duration) -> Result<()> {
        Ok(())
    }
    /// Notified when an item is offered.
    fn offer_signal(&self) -> Arc<tokio::sync::Notify>;
}

#[async_trait]
pub trait Tokens: Send + Sync + fmt::Debug {
    async fn put_token(&self, token: TokenRow) -> Result<()>;
    /// The token with this hash, even if it has expired.
    async fn token(&self, hash: &[u8; 32]) -> Result<Option<TokenRow>>;
    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>>;
    /// Removes a token. `None` if the tenant has no token with this id.
    async fn revoke_token(&self, tenant: &TenantId, id: &TokenId) -> Result<Option<TokenRow>>;
    /// Keeps a sign-in link until it is used or expires. Links outlive this process, unless one process holds the store.
    /// Errors: `overloaded` if [`trilogue_domain::limits::MAX_SIGN_IN_LINKS`] unused links exist, or [`trilogue_domain::limits::MAX_SIGN_IN_LINKS_PER_TOKEN`] of this token.
    async fn put_sign_in_link(&self, link: SignInLinkRow, now: Timestamp) -> Result<()>;
    /// The link with the hash of this code, without using it up. `None` if it is unknown or has expired.
    async fn sign_in_link(&self, code: &[u8; 32], now: Timestamp) -> Result<Option<SignInLinkRow>>;
    /// Takes the link with the hash of this code; it then works in no process any more. `None` if it is unknown or has expired.
    async fn take_sign_in_link(
        &self,
        code: &[u8; 32],
        now: Timestamp,
    ) -> Result<Option<SignInLinkRow>>;
    /// What a principal may do by its valid tokens. Delayed work is checked with it.
    async fn rights_of(
        &self,
        tenant: &TenantId,
        principal: &PrincipalId,
        now: Timestamp,
    ) -> Result<PrincipalRights>;
}

/// Configured instances of agents. An expired instance counts as missing.
#[async_trait]
pub trait Configurations: Send + Sync + fmt::Debug {
    /// Stores a new instance.
    /// Errors: `already_exists` if its tenant has the id; and as [`Append::append`].
    async fn create_configuration(&self, row: ConfigurationRow) -> Result<()>;
    /// Replaces an instance of the scope. Returns `false` if the scope has no instance with this id.
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
    /// Removes an instance. Returns `false` if the scope has no instance with this id.
    async fn remove_configuration(&self, scope: &Scope, id: &ConfigurationId) -> Result<bool>;
    /// Removes up to `limit` expired instances, the longest expired first. Returns how many.
    async fn expire_configurations(&self, now: Timestamp, limit: usize) -> Result<usize>;
}

#[async_trait]
pub trait Admin: Send + Sync + fmt::Debug {
    /// How durable a returned append is: `fsync`, `buffered` or `memory`.
    fn durability(&self) -> &'static str;
    /// Fails if the store takes no writes, with the reason.
    /// Errors: `store_read_only`, `store_corrupt`, `disk_full`.
    fn health(&self) -> Result<()>;
    /// What a store that takes writes still has to do before it is ready for a normal load, in a few words. `None` if it is ready.
    fn waits_for(&self) -> Option<String> {
        None
    }
    /// The time that all processes of the store agree on: it decides what is due. It advances evenly while the machine's clock jumps.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SteadyClock::system())
    }
    async fn stats(&self) -> Result<Stats>;
    /// The nodes that share the store, by name. Empty if one process holds it.
    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        Ok(Vec::new())
    }
    /// Publishes this node's agents to the other nodes and replaces the earlier list. Does nothing if one process holds the store.
    /// Errors: `store_unavailable`; the next sign of life then publishes the list.
    async fn publish_agents(&self, agents: Vec<NodeAgent>) -> Result<()> {
        let _ = agents;
        Ok(())
    }
    /// Another live node that has an agent with this name, or with another text that means the agent.
    async fn node_with_agent(&self, agent: &str) -> Result<Option<NodeAddress>> {
        let _ = agent;
        Ok(None)
    }
    /// The names of the live nodes that own these threads. A thread that no live node owns is left out, and so are all while only one node uses the store.
    /// A thread's row names its owner as of its last change of epoch; a thread that was handed over has the new owner only here.
    /// The names may be as old as one sign of life.
    async fn owner_names(&self, threads: &[ThreadKey]) -> Result<HashMap<ThreadKey, String>> {
        let _ = threads;
        Ok(HashMap::new())
    }
    /// Writes a consistent copy to a new file while the store is in use.
    /// Errors: `invalid_request` if the engine has no file; `already_exists` if `to` exists.
    async fn backup(&self, to: &Path) -> Result<()>;
    /// Makes everything durable and closes the store. Later calls fail.
    async fn close(&self) -> Result<()>;
}

/// A node that shares the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeRow {
    /// Created anew at each start.
    pub id: String,
    /// Unique among live nodes.
    pub name: String,
    /// The web address at which the other nodes reach it.
    pub address: String,
    pub version: String,
    /// The time since its last sign of life, by the database's clock.
    pub silent_for: Duration,
    pub is_alive: bool,
    /// Whether it hands its threads over and takes no others.
    pub is_draining: bool,
    /// Whether it is this process.
    pub is_this: bool,
    /// How many threads with an open run it owns.
    pub open_threads: u64,
    /// Its agents, by name. `None` if it has not published them.
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
    /// The error of a request that belongs to this node. `message` gets the node's name and returns the reason.
    pub(crate) fn elsewhere(self, message: fn(&str) -> String) -> Error {
        let Self { name, address } = self;
        Error::new(Code::ThreadElsewhere, message(&name.escape_debug().to_string()))
            .hint(format!("send the request to {address}"))
            .node(name, address)
    }
}

/// An agent, as its node publishes it to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAgent {
    pub name: String,
    /// A digest of what clients see of the agent and rely on. `None` if lists leave the agent out: then nodes need not agree about it.
    pub digest: Option<String>,
    /// Other texts that mean the agent in a request. Ids are in lower case.
    pub also: Vec<String>,
}

/// An agent that only some live nodes have, or that nodes describe differently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentDifference {
    pub agent: String,
    /// The names of the nodes that have it, grouped by equal description.
    pub variants: Vec<Vec<String>>,
    /// The names of the nodes that lack it.
    pub missing_on: Vec<String>,
}

/// What the live ones of these nodes do not agree about. A node that has not published its agents is left out.
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
    /// Acknowledged commits that a start did not find again, and when a start last missed some.
    pub lost_commits: u64,
    pub lost_at: Option<Timestamp>,
    /// Commits since the start.
    pub commits: u64,
    /// Frames appended since the start.
    pub frames: u64,
    pub schema_version: u32,
}
