//! Checks whether a request comes from a program of a hosted agent: it has its user's access, and must not decide in the user's name.
//!
//! A node that forwards a request adds what it knows of the caller's connection. These headers only narrow what a caller may do, so a client that forges them
//! gains nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::time::Instant;
use trilogue_domain::{Code, Error, Right};

use crate::core::ports::AgentProcesses;

/// The addresses of a connection: the peer's and the server's.
pub(crate) type ConnectionEnds = (SocketAddr, SocketAddr);

/// The header in which a node that forwards a request describes its caller: [`AGENT`], or the connection of the request.
pub(crate) const FORWARDED_CALLER: HeaderName =
    HeaderName::from_static("trilogue-forwarded-caller");
/// The header in which a proxy in front of this server names both ends of the caller's connection to it: two addresses, each followed by its port.
const PROXIED_CALLER: HeaderName = HeaderName::from_static("trilogue-proxied-caller");
/// The caller is a program of an agent.
const AGENT: &str = "agent";
/// The most forwarding headers that are read; a request with more counts as one of an agent.
const MAX_WORDS: usize = 8;

/// How long it counts that no agent's program has a connection. A program can pass its connection on to another one, as when it
/// starts that, and the next request may come from there. That it is an agent's program counts as long as the connection.
const OTHER_PROGRAM_KEPT: Duration = Duration::from_secs(10);
/// The most looks at processes at a time. Each one takes a thread, and reads what all programs of the user have open.
const MAX_LOOKS: usize = 4;

static LOOKS: Semaphore = Semaphore::const_new(MAX_LOOKS);

/// The connection of a caller, and what is known of the program at its other end.
#[derive(Debug)]
pub(crate) struct CallerConnection {
    pub(crate) ends: ConnectionEnds,
    /// Whether it is an agent's program, and when the look began. Requests that come meanwhile wait for the same look.
    kept: Mutex<Option<(bool, Instant)>>,
}

/// Looks for the process of a caller, at most once per request. What is known of the connection itself is kept with it; what
/// others say of the caller is looked at for each request, because a proxy or a node sends the requests of many.
#[derive(Clone, Debug)]
pub(crate) struct AgentCheck {
    connection: Option<Arc<CallerConnection>>,
    agents: Arc<dyn AgentProcesses>,
    found: Arc<OnceCell<bool>>,
}

/// A forwarding node's description of a caller.
#[derive(Clone, PartialEq, Eq, Debug)]
enum ForwardedCaller {
    Agent,
    Peer {
        ends: ConnectionEnds,
        machine: String,
    },
    /// A caller of the proxy in front of this server.
    Proxied(ConnectionEnds),
}

// === impl CallerConnection ===

impl CallerConnection {
    pub(crate) fn new(ends: ConnectionEnds) -> Arc<Self> {
        Arc::new(Self { ends, kept: Mutex::default() })
    }

    async fn is_of_agent(&self, agents: &Arc<dyn AgentProcesses>) -> bool {
        let mut kept = self.kept.lock().await;
        let now = Instant::now();
        if let Some((is_of_agent, found_at)) = *kept
            && (is_of_agent || now.duration_since(found_at) < OTHER_PROGRAM_KEPT)
        {
            return is_of_agent;
        }
        *kept = None;
        let ((peer, server), agents) = (self.ends, Arc::clone(agents));
        // Without an answer, the caller may be an agent's program.
        let Some(found) = look(move || agents.find_peer(peer, server)).await else { return true };
        if found.is_lasting {
            *kept = Some((found.is_of_agent, now));
        }
        found.is_of_agent
    }
}

/// Looks at processes. This reads files of the system, so it must not block the runtime. `None` if the look failed.
async fn look<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let permit = LOOKS.acquire().await.ok()?;
    let looking = tokio::task::spawn_blocking(move || {
        let found = look();
        drop(permit);
        found
    });
    looking.await.ok()
}

// === impl AgentCheck ===

impl AgentCheck {
    pub(crate) fn new(
        connection: Option<Arc<CallerConnection>>,
        agents: &Arc<dyn AgentProcesses>,
    ) -> Self {
        Self { connection, agents: Arc::clone(agents), found: Arc::default() }
    }

    /// Whether a program of an agent sent the request, to this node or to one that forwarded it.
    pub(crate) async fn is_of_agent(&self, headers: &HeaderMap) -> bool {
        *self.found.get_or_init(|| self.check_processes(headers)).await
    }

    /// The same, but looks at processes only if this server has agents. For requests that decide nothing for a person: the look costs
    /// more than most of them, and a server without agents can only meet those of other servers.
    pub(crate) async fn is_of_known_agent(&self, headers: &HeaderMap) -> bool {
        let is_forwarded = headers.contains_key(FORWARDED_CALLER);
        (is_forwarded || self.agents.counts().0 > 0) && self.is_of_agent(headers).await
    }

    /// Whether an earlier check found that a program of an agent sent the request.
    pub(crate) fn was_of_agent(&self) -> bool {
        self.found.get().is_some_and(|found| *found)
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.ends().map(|(peer, _)| peer)
    }

    async fn check_processes(&self, headers: &HeaderMap) -> bool {
        let Some(forwarded) = forwarded(headers) else { return true };
        if forwarded.contains(&ForwardedCaller::Agent) {
            return true;
        }
        if let Some(connection) = &self.connection
            && connection.is_of_agent(&self.agents).await
        {
            return true;
        }
        if forwarded.is_empty() {
            return false;
        }
        let agents = Arc::clone(&self.agents);
        let looked = look(move || {
            let here = agents.machine();
            let mut known = forwarded.into_iter().filter_map(|caller| match caller {
                ForwardedCaller::Agent => None,
                // A proxy of another machine names no connection of this one.
                ForwardedCaller::Proxied(ends) => Some(ends),
                ForwardedCaller::Peer { ends, machine } => {
                    let is_here = !here.is_empty() && machine == here;
                    (is_here || !is_loopback(ends.0.ip())).then_some(ends)
                }
            });
            known.any(|(peer, server)| agents.find_peer(peer, server).is_of_agent)
        });
        looked.await.unwrap_or(true)
    }

    fn ends(&self) -> Option<ConnectionEnds> {
        self.connection.as_ref().map(|connection| connection.ends)
    }

    /// Tells the next node what this one knows. A request that only reads needs no look at processes.
    pub(crate) async fn add_caller_header(&self, headers: &mut HeaderMap, only_reads: bool) {
        // The next node looks again where it matters: it gets both ends of the connection.
        let is_agent = !only_reads && self.is_of_known_agent(headers).await;
        let proxied = proxied(headers);
        // The next node has a proxy of its own.
        headers.remove(PROXIED_CALLER);
        let words = match proxied {
            Some(proxied) if !is_agent => {
                let machine = self.agents.machine();
                let known = self.ends().into_iter().chain(proxied);
                known.map(|(peer, server)| format!("{peer} {server} {machine}")).collect()
            }
            _ => vec![AGENT.to_owned()],
        };
        for word in words.iter().filter_map(|word| HeaderValue::from_str(word).ok()) {
            headers.append(FORWARDED_CALLER, word);
        }
    }
}

/// A program of an agent has its user's tokens, and must not decide in the user's name.
pub(crate) fn refused_agent(right: Option<Right>) -> Error {
    if right == Some(Right::Answer) {
        let message = "a program of a hosted agent cannot answer questions";
        return Error::new(Code::Forbidden, message).hint("answer from outside of the agent");
    }
    let message = "a program of a hosted agent cannot do this in its user's name";
    Error::new(Code::Forbidden, message).hint("send the request from outside of the agent")
}

/// What other nodes and the proxy said; `None` if it cannot be read, or is too much.
fn forwarded(headers: &HeaderMap) -> Option<Vec<ForwardedCaller>> {
    let words = headers.get_all(FORWARDED_CALLER);
    if words.iter().count() > MAX_WORDS {
        return None;
    }
    let proxied = proxied(headers)?.into_iter().map(|ends| Some(ForwardedCaller::Proxied(ends)));
    words.iter().map(|word| read(word.to_str().ok()?)).chain(proxied).collect()
}

/// What the proxy said; `None` if it cannot be read, or is too much.
fn proxied(headers: &HeaderMap) -> Option<Vec<ConnectionEnds>> {
    let words = headers.get_all(PROXIED_CALLER);
    if words.iter().count() > MAX_WORDS {
        return None;
    }
    let address = |host: &str, port: &str| {
        // A proxy may write an IPv6 address without brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(SocketAddr::new(host.parse().ok()?, port.parse().ok()?))
    };
    let ends = |word: &str| {
        let parts: Vec<_> = word.split(' ').collect();
        let [peer, peer_port, server, server_port] = parts[..] else { return None };
        Some((address(peer, peer_port)?, address(server, server_port)?))
    };
    words.iter().map(|word| ends(word.to_str().ok()?)).collect()
}

fn read(word: &str) -> Option<ForwardedCaller> {
    if word == AGENT {
        return Some(ForwardedCaller::Agent);
    }
    let mut parts = word.splitn(3, ' ');
    let ends = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    // A node that does not know its machine says nothing of it.
    let machine = parts.next().unwrap_or_default().to_owned();
    Some(ForwardedCaller::Peer { ends, machine })
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use trilogue_domain::port::PeerFinding;

    use super::*;

    /// The agents of this machine, as each look finds them.
    struct AgentsFound<F>(F);

    impl<F> fmt::Debug for AgentsFound<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("AgentsFound").finish_non_exhaustive()
        }
    }

    impl<F: Fn(ConnectionEnds) -> PeerFinding + Send + Sync> AgentProcesses for AgentsFound<F> {
        fn has_process(&self, _: u32) -> bool {
            false
        }

        fn find_peer(&self, peer: SocketAddr, server: SocketAddr) -> PeerFinding {
            (self.0)((peer, server))
        }

        fn machine(&self) -> String {
            "here/1".to_owned()
        }

        fn counts(&self) -> (usize, usize) {
            (1, 0)
        }

        fn list(&self) -> Vec<trilogue_wire::native::AgentProcess> {
            Vec::new()
        }

        fn stderr(&self, _: u32) -> Option<trilogue_wire::native::ProcessStderr> {
            None
        }
    }

    /// One agent, which has this connection.
    fn one_agent(ends: ConnectionEnds) -> Arc<dyn AgentProcesses> {
        Arc::new(AgentsFound(move |found| PeerFinding::lasting(found == ends)))
    }

    fn check_of(ends: ConnectionEnds, agents: &Arc<dyn AgentProcesses>) -> AgentCheck {
        AgentCheck::new(Some(CallerConnection::new(ends)), agents)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_of_a_connection_is_kept_with_it_for_a_limited_time() {
        let (lasting, passing) = (PeerFinding::lasting, PeerFinding::passing);
        let findings = [passing(true), passing(false), lasting(false), lasting(true)];
        let looks = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&looks);
        let next = move |_| findings[count.fetch_add(1, Ordering::Relaxed)];
        let agents: Arc<dyn AgentProcesses> = Arc::new(AgentsFound(next));
        let connection =
            CallerConnection::new((([127, 0, 0, 1], 1).into(), ([127, 0, 0, 1], 2).into()));
        let is_of_agent = async || {
            let check = AgentCheck::new(Some(Arc::clone(&connection)), &agents);
            (check.is_of_agent(&HeaderMap::new()).await, looks.load(Ordering::Relaxed))
        };
        // What the next look may not find is never kept.
        assert_eq!(is_of_agent().await, (true, 1));
        assert_eq!(is_of_agent().await, (false, 2));
        assert_eq!(is_of_agent().await, (false, 3));
        tokio::time::advance(OTHER_PROGRAM_KEPT / 2).await;
        assert_eq!(is_of_agent().await, (false, 3));
        // Its program may have passed it on.
        tokio::time::advance(OTHER_PROGRAM_KEPT / 2).await;
        assert_eq!(is_of_agent().await, (true, 4));
        tokio::time::advance(100 * OTHER_PROGRAM_KEPT).await;
        assert_eq!(is_of_agent().await, (true, 4));
    }

    #[tokio::test]
    async fn what_nodes_and_proxies_say_of_a_caller_counts_and_only_narrows() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let far = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
        for (words, is_of_agent) in [
            (vec![], false),
            (vec!["agent"], true),
            (vec!["127.0.0.1:1 127.0.0.1:2 here/1"], true),
            (vec!["127.0.0.1:1 127.0.0.1:2 elsewhere/1"], false),
            (vec!["127.0.0.1:3 127.0.0.1:2 here/1"], false),
            (vec!["127.0.0.1:1 127.0.0.1:2"], false),
            (vec!["127.0.0.1:3 127.0.0.1:2 here/1", "127.0.0.1:1 127.0.0.1:2 here/1"], true),
            (vec!["nonsense"], true),
        ] {
            let mut headers = HeaderMap::new();
            for word in &words {
                headers.append(FORWARDED_CALLER, HeaderValue::from_static(word));
            }
            let agents = one_agent((at(1), at(2)));
            let check = check_of((at(9), at(8)), &agents);
            assert_eq!(check.is_of_agent(&headers).await, is_of_agent, "{words:?}");
            // The next node decides the same.
            check.add_caller_header(&mut headers, false).await;
            let next = check_of((at(7), at(8)), &agents);
            assert_eq!(next.is_of_agent(&headers).await, is_of_agent, "{words:?}");
        }
        for (word, is_of_agent) in [
            ("127.0.0.1 1 127.0.0.1 2", true),
            ("127.0.0.1 3 127.0.0.1 2", false),
            ("::1 3 [::1] 2", false),
            ("unix: 0 127.0.0.1 2", true),
            ("", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(PROXIED_CALLER, HeaderValue::from_static(word));
            let agents = one_agent((at(1), at(2)));
            let check = check_of((at(9), at(8)), &agents);
            assert_eq!(check.is_of_agent(&headers).await, is_of_agent, "{word:?}");
            // The next node decides the same, although a proxy in front of it names this node instead.
            let check = check_of((at(9), at(8)), &agents);
            check.add_caller_header(&mut headers, true).await;
            headers.insert(PROXIED_CALLER, HeaderValue::from_static("10.0.0.1 5 10.0.0.2 6"));
            let next = check_of((at(7), at(8)), &agents);
            assert_eq!(next.is_of_agent(&headers).await, is_of_agent, "{word:?}");
        }
        let agents = one_agent((far(1), far(2)));
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_CALLER, HeaderValue::from_static("10.0.0.1:1 10.0.0.1:2 there"));
        assert!(AgentCheck::new(None, &agents).is_of_agent(&headers).await);
        let many = (0..=MAX_WORDS).map(|_| HeaderValue::from_static("10.0.0.9:1 10.0.0.1:2 x"));
        headers.clear();
        for word in many {
            headers.append(FORWARDED_CALLER, word);
        }
        assert!(AgentCheck::new(None, &agents).is_of_agent(&headers).await);
    }
}
