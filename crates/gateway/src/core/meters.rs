//! Meters, made once so that a request only adds to them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use trilogue_domain::Code;

use super::{descriptors, metric_names as names};

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS: &[f64] =
    &[0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// The classes of status codes, as labels.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The process has one recorder; servers started later in the same process share it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) refused_peers: Counter,
    pub(crate) refused_connections: Counter,
    pub(crate) relieved_connections: Counter,
    pub(crate) accept_failures: Counter,
    pub(crate) stalled_responses: Counter,
    pub(crate) connections: Level,
    pub(crate) streams: Level,
    pub(crate) stream_bytes: Counter,
    pub(crate) frames_rendered: Counter,
    pub(crate) panics: Counter,
    pub(crate) repeated_ids: Counter,
}

#[derive(Clone, Debug)]
pub(crate) struct OperationMeters {
    answered: [Counter; 5],
    seconds: Histogram,
}

/// A number of things that are there now.
#[derive(Debug)]
pub(crate) struct Level {
    now: AtomicU64,
    gauge: Gauge,
}

pub(crate) struct LevelGuard<'a>(&'a Level);

// === impl Meters ===

impl Meters {
    pub(crate) fn new() -> Self {
        recorder();
        Self {
            refused_peers: counter!(names::REFUSED_PEERS),
            refused_connections: counter!(names::REFUSED_CONNECTIONS),
            relieved_connections: counter!(names::RELIEVED_CONNECTIONS),
            accept_failures: counter!(names::ACCEPT_FAILURES),
            stalled_responses: counter!(names::STALLED_RESPONSES),
            connections: Level::new(gauge!(names::CONNECTIONS)),
            streams: Level::new(gauge!(names::STREAMS)),
            stream_bytes: counter!(names::STREAM_BYTES),
            frames_rendered: counter!(names::FRAMES_RENDERED),
            panics: counter!(names::PANICS),
            repeated_ids: counter!(names::REPEATED_IDS),
        }
    }

    pub(crate) fn refused(&self, code: Code) {
        counter!(names::REFUSED, "code" => code.as_str()).increment(1);
    }
}

// === impl OperationMeters ===

impl OperationMeters {
    pub(crate) fn new(operation: &'static str) -> Self {
        recorder();
        Self {
            answered: CLASSES.map(
                |class| counter!(names::REQUESTS, "operation" => operation, "status" => class),
            ),
            seconds: histogram!(names::REQUEST_SECONDS, "operation" => operation),
        }
    }

    pub(crate) fn answered(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let Some(counter) = self.answered.get(class) {
            counter.increment(1);
        }
        self.seconds.record(took.as_secs_f64());
    }
}

// === impl Level ===

impl Level {
    fn new(gauge: Gauge) -> Self {
        Self { now: AtomicU64::new(0), gauge }
    }

    pub(crate) fn get(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.now.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
    }

    pub(crate) fn remove(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
        self.gauge.decrement(1.0);
    }

    pub(crate) fn hold(&self) -> LevelGuard<'_> {
        self.add();
        LevelGuard(self)
    }
}

impl Drop for LevelGuard<'_> {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Notes whether an agent can be used.
pub(crate) fn set_available(agent: &str, is_available: bool) {
    gauge!(names::AGENT_AVAILABLE, "agent" => agent.to_owned()).set(if is_available {
        1.0
    } else {
        0.0
    });
}

/// The metrics in the exposition format of Prometheus, with what is measured when somebody looks; `None` when another recorder was installed first.
pub(crate) fn render(is_ready: bool, body_bytes: usize) -> Option<String> {
    gauge!(names::READY).set(if is_ready { 1.0 } else { 0.0 });
    gauge!(names::BODY_BYTES).set(body_bytes as f64);
    let set = |name: &'static str, count: Option<u64>| {
        if let Some(count) = count {
            gauge!(name).set(count as f64);
        }
    };
    set(names::OPEN_DESCRIPTORS, descriptors::open_count());
    set(names::MAX_DESCRIPTORS, descriptors::soft_limit());
    recorder().map(PrometheusHandle::render)
}

/// Folds recorded samples together, so that nobody has to ask for them to keep memory bounded.
pub(crate) fn upkeep() {
    if let Some(recorder) = recorder() {
        recorder.run_upkeep();
    }
}

fn recorder() -> Option<&'static PrometheusHandle> {
    let install = || {
        let handle = PrometheusBuilder::new().set_buckets(BUCKETS).ok()?.install_recorder().ok()?;
        names::describe();
        Some(handle)
    };
    RECORDER.get_or_init(install).as_ref()
}
