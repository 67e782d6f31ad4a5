//! Leases of workspaces: while an agent works in a folder that several servers may share, a file in the folder marks that.
//!
//! A server takes a lease before it starts an agent for a thread in the folder, under the epoch of the thread: the store gives each
//! later owner of the thread a greater epoch. The files are in `.trilogue/leases`. Git ignores them, and they are removed with the last lease.
//!
//! # Invariants
//! - A server never writes the lease of another server. It removes a lease that has expired, or whose server and agent have both ended.
//! - No agent starts while there is a lease of the thread with a lower epoch. Its holder sees the new one within [`RENEW_EVERY`], kills
//!   its agent and removes its lease.
//! - Clocks are never compared: a lease has expired if its content has not changed for [`EXPIRES_AFTER`] by the clock of the server that waits.
//! - A holder that cannot renew its lease for [`GIVES_UP_AFTER`] kills its agent, before others treat the lease as expired.
//! - The agent of a server that stands still is suspended at the same time, by the [stage](trilogue_sandbox) of its sandbox. It continues with the next renewal.
//!
//! Without a sandbox, a paused server on another machine cannot stop its agent, which keeps working until the server continues.

mod record;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error, lock};
use trilogue_runtime::ThreadContext;
use trilogue_sandbox::LeaseFile;
use uuid::Uuid;

use super::folder;
use crate::child::{Child, ChildLease, Identity};
use record::{FoundLease, LeaseFolder, LeaseHolder};

/// How often a holder renews its lease and checks for a newer one.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// A lease has expired after this long without a change.
const EXPIRES_AFTER: Duration = Duration::from_secs(5);
/// How long a holder may fail to renew its lease before it kills its agent.
const GIVES_UP_AFTER: Duration = Duration::from_secs(3);
/// How often a server that waits for older leases checks them.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a server waits for older leases that are still renewed: their holders need time to kill their agents.
const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// A lease of a workspace for one thread. Released when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkspaceLease(Arc<LeaseState>);

/// Reports the loss of a lease, without holding the lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseWatch(Arc<LeaseState>);

/// The times of leases: the constants above, except in tests.
#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    renew_every: Duration,
    expires_after: Duration,
    gives_up_after: Duration,
    look_every: Duration,
    wait_limit: Duration,
}

#[derive(Debug)]
struct LeaseState {
    id: Uuid,
    folder: LeaseFolder,
    path: PathBuf,
    thread: String,
    epoch: u64,
    times: LeaseTimes,
    holder: Mutex<LeaseHolder>,
    /// The agent, which works until this lease is over.
    child: Mutex<Option<Child>>,
    /// The number of renewals.
    count: AtomicU64,
    renewed_at: Mutex<Instant>,
    /// Whether its file is removed permanently. Locked while the file is written.
    is_removed: Mutex<bool>,
    /// Cancelled when another server has the workspace, or may have it.
    lost: CancellationToken,
    released: CancellationToken,
}

// === impl WorkspaceLease ===

impl WorkspaceLease {
    /// Takes the lease of a folder for a thread that this node owns. Waits until the leases of its earlier owners are released or have expired. `None` if this server cannot write there: neither can its agents.
    /// Errors: `thread_elsewhere` if a later owner has a lease, `thread_busy` if an earlier one does not release its lease, `agent_failed` if the folder cannot be read, and as [`ThreadContext::epoch`].
    pub(crate) async fn take(
        node: &str,
        workspace: &Path,
        thread: &ThreadContext,
    ) -> Result<Option<Arc<Self>>> {
        let name = folder::name(thread.tenant(), thread.thread(), thread.key());
        let epoch = thread.epoch().await?;
        let holder = LeaseHolder::this_server(node);
        Self::take_as(holder, workspace, (name, epoch), LeaseTimes::default()).await
    }

    async fn take_as(
        holder: LeaseHolder,
        workspace: &Path,
        (thread, epoch): (String, u64),
        times: LeaseTimes,
    ) -> Result<Option<Arc<Self>>> {
        let folder = LeaseFolder::new(workspace, thread.clone());
        let id = Uuid::new_v4();
        let state = Arc::new(LeaseState {
            id,
            path: folder.path(epoch, id),
            folder,
            thread,
            epoch,
            times,
            holder: Mutex::new(holder),
            child: Mutex::new(None),
            count: AtomicU64::new(0),
            renewed_at: Mutex::new(Instant::now()),
            is_removed: Mutex::new(false),
            lost: CancellationToken::new(),
            released: CancellationToken::new(),
        });
        let lease = Arc::new(Self(Arc::clone(&state)));
        // No agent has started yet.
        if let Err(error) = state.on_disk(|state| state.write(Duration::ZERO)).await {
            let kind = error.kind();
            if matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
                tracing::debug!(workspace = %workspace.display(), %error, "a folder gets no lease");
                return Ok(None);
            }
            return Err(unreadable(workspace, &error));
        }
        tokio::spawn(keep(Arc::clone(&state)));
        state.wait_for_older(workspace).await?;
        Ok(Some(lease))
    }

    /// Names the agent's process in the lease, so that another server of this machine can kill it.
    pub(crate) async fn name_child(&self, child: &Child) {
        let leader = child.pid().and_then(Identity::of);
        lock(&self.0.holder).child = Some((child.instance(), leader));
        *lock(&self.0.child) = Some(child.clone());
        self.0.renew().await;
    }

    /// Whether the agent may continue. Checks for a newer lease, unless that was done just now: the server may have been paused.
    pub(crate) async fn is_held(&self) -> bool {
        let is_fresh = lock(&self.0.renewed_at).elapsed() < self.0.times.renew_every * 2;
        match self.0.lost.is_cancelled() {
            true => false,
            false => is_fresh || self.0.renew().await,
        }
    }

    pub(crate) fn watch(&self) -> LeaseWatch {
        LeaseWatch(Arc::clone(&self.0))
    }

    pub(crate) fn as_child_lease(&self) -> Weak<dyn ChildLease> {
        let lease: Weak<LeaseState> = Arc::downgrade(&self.0);
        lease
    }
}

impl Drop for WorkspaceLease {
    fn drop(&mut self) {
        self.0.remove();
    }
}

// === impl LeaseWatch ===

impl LeaseWatch {
    /// Returns `true` when the lease is lost, and `false` when it is released.
    pub(crate) async fn wait_for_loss(&self) -> bool {
        tokio::select! {
            biased;
            () = self.0.lost.cancelled() => true,
            () = self.0.released.cancelled() => false,
        }
    }

    /// Releases a lost lease, once no process of the agent is left.
    pub(crate) fn release(&self) {
        self.0.remove();
    }
}

// === impl LeaseState ===

impl LeaseState {
    /// Does blocking work with files, which may take long on a shared file system.
    async fn on_disk<T: Send + 'static>(
        self: &Arc<Self>,
        work: fn(&Self) -> io::Result<T>,
    ) -> io::Result<T> {
        let state = Arc::clone(self);
        let working = spawn_blocking(move || work(&state));
        match timeout(self.times.gives_up_after, working).await {
            Ok(worked) => worked.map_err(io::Error::other).and_then(|worked| worked),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Writes the lease, and lets the agent work until a time since boot.
    fn write(&self, until: Duration) -> io::Result<()> {
        let is_removed = lock(&self.is_removed);
        if *is_removed {
            return Ok(());
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let content = lock(&self.holder).to_content((&self.thread, self.epoch), count);
        self.folder.write(&self.path, &content)?;
        let child = lock(&self.child).clone();
        child.map_or(Ok(()), |child| child.extend_lease(self.id, until))
    }

    fn others(&self) -> io::Result<Vec<FoundLease>> {
        self.folder.others(&self.path)
    }

    /// Renews the lease, unless there is a newer one. Returns whether this one is the newest.
    fn write_unless_newer(&self) -> io::Result<bool> {
        // Before the write: if this server stands still now, others count from the write, and the agent from here.
        let until = LeaseFile::now() + self.times.gives_up_after;
        let is_newest = self.others()?.iter().all(|other| other.epoch <= self.epoch);
        if is_newest {
            self.write(until)?;
        }
        Ok(is_newest)
    }

    /// Renews the lease. Returns whether it is held.
    async fn renew(self: &Arc<Self>) -> bool {
        match self.on_disk(Self::write_unless_newer).await {
            Ok(true) => *lock(&self.renewed_at) = Instant::now(),
            Ok(false) => self.lose("another server has taken over the thread"),
            Err(error) => {
                tracing::debug!(path = %self.path.display(), %error, "a lease was not renewed");
                if lock(&self.renewed_at).elapsed() >= self.times.gives_up_after {
                    self.lose("the lease of its folder cannot be renewed");
                }
            }
        }
        !self.lost.is_cancelled()
    }

    fn lose(&self, why: &str) {
        if !self.lost.is_cancelled() {
            tracing::warn!(path = %self.path.display(), why, "an agent may not continue in its folder");
        }
        self.lost.cancel();
    }

    /// Waits until no earlier owner of the thread has a lease. Kills the agents of dead and paused owners on this machine.
    async fn wait_for_older(self: &Arc<Self>, workspace: &Path) -> Result<()> {
        let began = Instant::now();
        let mut seen: HashMap<PathBuf, (Vec<u8>, Instant)> = HashMap::new();
        loop {
            let others =
                self.on_disk(Self::others).await.map_err(|error| unreadable(workspace, &error))?;
            if self.lost.is_cancelled() || others.iter().any(|other| other.epoch > self.epoch) {
                return Err(taken_over_error());
            }
            let mut node = None;
            for older in others.into_iter().filter(|other| other.epoch < self.epoch) {
                let holder = LeaseHolder::of_content(&older.content);
                let now = Instant::now();
                let (content, since) =
                    seen.entry(older.path.clone()).or_insert((older.content.clone(), now));
                if *content != older.content {
                    (*content, *since) = (older.content, now);
                }
                let has_expired = since.elapsed() >= self.times.expires_after;
                if (has_expired || holder.is_gone()) && holder.kill_agent().await {
                    tracing::warn!(
                        path = %older.path.display(),
                        node = holder.node,
                        has_expired,
                        "the lease of a dead or paused server was removed"
                    );
                    self.folder.remove(&older.path);
                } else {
                    node = Some(holder.node);
                }
            }
            let Some(node) = node else { return Ok(()) };
            if began.elapsed() >= self.times.wait_limit {
                let node = node.escape_debug();
                let message = format!(
                    "the thread's agent on the server '{node}' does not stop working in its folder"
                );
                let hint = "wait until it has stopped, or stop that server";
                return Err(Error::new(Code::ThreadBusy, message).hint(hint));
            }
            sleep(self.times.look_every).await;
        }
    }

    fn remove(&self) {
        self.released.cancel();
        let mut is_removed = lock(&self.is_removed);
        if !std::mem::replace(&mut *is_removed, true) {
            self.folder.remove(&self.path);
            lock(&self.child).take().inspect(|child| child.end_lease(self.id));
        }
    }
}

impl ChildLease for LeaseState {
    fn release(&self) {
        self.remove();
    }
}

/// Renews a lease until it is lost or released.
async fn keep(state: Arc<LeaseState>) {
    let mut beat = interval(state.times.renew_every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = state.released.cancelled() => return,
            _ = beat.tick() => {}
        }
        if !state.renew().await {
            return;
        }
    }
}

/// The error of an agent's turn if another server has taken over its thread.
pub(crate) fn taken_over_error() -> Error {
    Error::new(Code::ThreadElsewhere, "another server has taken over the thread and its folder")
        .hint("send the request again")
}

fn unreadable(workspace: &Path, error: &io::Error) -> Error {
    let message =
        format!("the lease of the folder '{}' cannot be taken: {error}", workspace.display());
    Error::new(Code::AgentFailed, message).hint("check the folder's file system")
}

// === impl LeaseTimes ===

impl Default for LeaseTimes {
    fn default() -> Self {
        Self {
            renew_every: RENEW_EVERY,
            expires_after: EXPIRES_AFTER,
            gives_up_after: GIVES_UP_AFTER,
            look_every: LOOK_EVERY,
            wait_limit: WAIT_LIMIT,
        }
    }
}
