//! How long threads are unavailable after a fault of a node: the threads that it owns, and the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::json;
use tokio::sync::watch;
use trilogue_testkit::Client;

use crate::cluster::{Cluster, Fault, FaultRecord};

/// The prefix of the names of the measured threads.
pub(crate) const THREADS: &str = "pause-";
/// The interval between the changes of a thread.
const EVERY: Duration = Duration::from_millis(10);
/// The time limit for a change before the client tries another node.
const PATIENCE: Duration = Duration::from_millis(500);

/// The times of the successful changes, by thread.
type Moments = BTreeMap<String, Vec<Instant>>;

/// The measurements over all rounds.
#[derive(Default, Debug)]
pub(crate) struct Pauses {
    unaffected: Vec<(Duration, Fault)>,
    affected: Vec<(Duration, Fault)>,
}

/// One thread that is changed all the time, through nodes without a fault.
#[derive(Debug)]
struct Pulse {
    thread: String,
    nodes: Vec<Client>,
    struck: watch::Receiver<BTreeSet<usize>>,
    /// The node that gets the first request, and so owns the thread then.
    first: usize,
}

// === impl Pauses ===

impl Pauses {
    /// Changes a thread of each node until a client is closed.
    pub(crate) async fn pulse(cluster: &Pulses, round: u64, until: &Client) -> Moments {
        let beats = (0..cluster.nodes.len()).map(|first| {
            let pulse = Pulse {
                thread: format!("{THREADS}{round}-{first}"),
                nodes: cluster.nodes.clone(),
                struck: cluster.struck.clone(),
                first,
            };
            pulse.beat(until)
        });
        futures_util::future::join_all(beats).await.into_iter().collect()
    }

    /// Records the longest pause of each thread at each fault of a round.
    pub(crate) fn count(&mut self, moments: &Moments, strikes: &[FaultRecord]) {
        for (index, strike) in strikes.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| strikes[before].ended);
            for (thread, moments) in moments {
                let Some(pause) = longest(moments, strike, before) else { continue };
                match strike.affects(thread) {
                    true => self.affected.push((pause, strike.fault)),
                    false => self.unaffected.push((pause, strike.fault)),
                }
            }
        }
    }

    pub(crate) fn lines(&mut self) -> String {
        let mut line = |what: &str, of: fn(&mut Self) -> &mut Vec<(Duration, Fault)>| {
            let pauses = of(self);
            pauses.sort_unstable_by_key(|(pause, _)| *pause);
            let at = |part: usize| {
                let place = (pauses.len() * part).div_ceil(100).saturating_sub(1);
                pauses.get(place).map_or(0, |(pause, _)| pause.as_millis())
            };
            let fault = pauses.last().map(|(_, fault)| fault);
            format!(
                "threads of {what} stood still for {} ms at most (at {fault:?}), p99 {} ms, p50 {} ms ({} pauses)",
                at(100),
                at(99),
                at(50),
                pauses.len()
            )
        };
        let affected = line("a struck node", |pauses| &mut pauses.affected);
        let unaffected = line("other nodes", |pauses| &mut pauses.unaffected);
        format!("{affected}\n{unaffected}")
    }
}

/// The longest time between two changes that overlaps with a strike. Skips pauses that began before the previous strike was over.
fn longest(moments: &[Instant], strike: &FaultRecord, before: Option<Instant>) -> Option<Duration> {
    let pairs = moments.iter().zip(moments.iter().skip(1));
    let during = pairs.filter(|(from, to)| **to > strike.began && **from < strike.ended);
    let its_own = during.filter(|(from, _)| before.is_none_or(|before| **from > before));
    its_own.map(|(from, to)| to.duration_since(*from)).max()
}

/// The nodes through which threads are changed, and those that have a fault now.
#[derive(Debug)]
pub(crate) struct Pulses {
    nodes: Vec<Client>,
    struck: watch::Receiver<BTreeSet<usize>>,
}

// === impl Pulses ===

impl Pulses {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self { nodes: cluster.clients(), struck: cluster.faulty_nodes() }
    }
}

// === impl Pulse ===

impl Pulse {
    async fn beat(mut self, until: &Client) -> (String, Vec<Instant>) {
        let (mut moments, mut next, mut number) = (Vec::new(), self.first, 0_u64);
        let created = json!({"id": self.thread});
        while !until.is_closed() {
            if self.struck.borrow().contains(&(next % self.nodes.len())) {
                next += 1;
            }
            let asked = next % self.nodes.len();
            let node = &self.nodes[asked];
            number += 1;
            let change = async {
                if moments.is_empty() {
                    node.post("/api/v1/threads", &created).await?;
                }
                let body = Bytes::from(json!({"metadata": {"n": number}}).to_string());
                let path = format!("/api/v1/threads/{}", self.thread);
                node.send(Method::PATCH, &path, &[], body).await?.ok()
            };
            let is_taken = tokio::select! {
                taken = tokio::time::timeout(PATIENCE, change) => matches!(taken, Ok(Ok(_))),
                // Tries another node at once: the test measures the thread, not the node that forwards the request.
                _ = self.struck.wait_for(|struck| struck.contains(&asked)) => false,
            };
            match is_taken {
                true => moments.push(Instant::now()),
                // Another node may succeed.
                false => next += 1,
            }
            tokio::time::sleep(EVERY).await;
        }
        (self.thread, moments)
    }
}
