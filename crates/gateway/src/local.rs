//! The listener for programs on the same machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use trilogue_domain::Principal;

use crate::core::audit::{AuditActor, AuditEvent, FailureLimit, audit};
use crate::core::log_throttle::LogThrottle;
use crate::core::ports::AgentProcesses;
use crate::face::{LocalConnection, LocalFace};

/// The pause after a failed accept: the process may be out of file descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections of programs that run as the server's user.
pub(crate) struct LocalAcceptor {
    pub(crate) face: Arc<dyn LocalFace>,
    /// The principal of the programs.
    pub(crate) owner: Arc<Principal>,
    pub(crate) agent_processes: Arc<dyn AgentProcesses>,
    pub(crate) connections: Arc<watch::Sender<usize>>,
    pub(crate) tasks: TaskTracker,
    pub(crate) accept_end: CancellationToken,
    pub(crate) connections_end: CancellationToken,
    pub(crate) drop_connections: CancellationToken,
}

struct ConnectionGuard(Arc<watch::Sender<usize>>);

// === impl LocalAcceptor ===

impl LocalAcceptor {
    pub(crate) async fn run(self, listener: UnixListener) {
        let (failures, refusals) = (LogThrottle::default(), Arc::<FailureLimit>::default());
        let room = Arc::new(Semaphore::new(self.face.max_connections()));
        loop {
            let accepted = tokio::select! {
                () = self.accept_end.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) if is_same_user(&stream) => stream,
                Ok(_) => {
                    tracing::warn!("refused a local connection of another user");
                    continue;
                }
                Err(error) => {
                    if let Some(failures) = failures.count() {
                        tracing::warn!(%error, failures, "local connections could not be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let peer = stream.peer_cred().ok().and_then(|peer| u32::try_from(peer.pid()?).ok());
            let agents = Arc::clone(&self.agent_processes);
            let permit = Arc::clone(&room).try_acquire_owned();
            let guard = ConnectionGuard::new(&self.connections);
            let (principal, is_full) = (Arc::clone(&self.owner), permit.is_err());
            let (stop, refusals) = (self.connections_end.clone(), Arc::clone(&refusals));
            let (face, dropped) = (Arc::clone(&self.face), self.drop_connections.clone());
            self.tasks.spawn(async move {
                // The check reads system files, so it blocks.
                let is_agent = move || peer.is_some_and(|pid| agents.has_process(pid));
                let checked = tokio::task::spawn_blocking(is_agent);
                let is_agent = checked.await.unwrap_or(true);
                if is_agent {
                    audit_refusal(&refusals, &principal, peer);
                }
                let connection = LocalConnection { stream, principal, is_full, is_agent, stop };
                tokio::select! {
                    () = face.serve(connection) => {}
                    () = dropped.cancelled() => {}
                }
                // Moved into the task, so that they count the connection until it ends.
                drop((permit, guard));
            });
        }
    }
}

fn audit_refusal(refusals: &FailureLimit, principal: &Principal, peer: Option<u32>) {
    let Some(left_out) = refusals.count() else { return };
    let process = peer.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    let actor = AuditActor::new(principal, None);
    let detail = format!("process {process}; {left_out} left out before");
    audit(AuditEvent::AgentRefused, Some(actor), "local_connection", &detail);
}

fn is_same_user(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours)
}

// === impl ConnectionGuard ===

impl ConnectionGuard {
    fn new(connections: &Arc<watch::Sender<usize>>) -> Self {
        connections.send_modify(|count| *count += 1);
        Self(Arc::clone(connections))
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
