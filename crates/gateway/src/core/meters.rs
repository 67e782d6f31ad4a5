//! Meters, created once so that a request only adds to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram, Label, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use trilogue_domain::{Code, Timestamp, lock};
use trilogue_runtime::{AgentRunCounts, OpenRunCounts};
use trilogue_store::Stats;
use trilogue_wire::native::AgentProcess;

use super::metric_names::{METRICS, MetricKind};
use super::{descriptors, metric_names as names, process_usage};

/// The classes of status codes, as labels.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The process has one recorder; later servers in the same process share it.
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
    pub(crate) stream_seconds: Histogram,
    pub(crate) frames_rendered: Counter,
    pub(crate) panics: Counter,
    pub(crate) repeated_ids: Counter,
}

/// The meters of an operation. A series exists from its first request on, because most routes of a server are never used.
#[derive(Debug)]
pub(crate) struct OperationMeters {
    labels: [Label; 3],
    answered: [OnceLock<Counter>; 5],
    seconds: OnceLock<Histogram>,
}

/// A gauge of the present number of things.
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
            stream_seconds: histogram!(names::STREAM_SECONDS),
            frames_rendered: counter!(names::FRAMES_RENDERED),
            panics: counter!(names::PANICS),
            repeated_ids: counter!(names::REPEATED_IDS),
        }
    }

    pub(crate) fn count_refusal(&self, code: Code) {
        counter!(names::REFUSED, "code" => code.as_str()).increment(1);
    }
}

// === impl OperationMeters ===

impl OperationMeters {
    /// Creates the meters of a face's operation at this route template.
    pub(crate) fn new(face: &'static str, operation: &'static str, route: &str) -> Self {
        recorder();
        let labels = [
            Label::from_static_parts("face", face),
            Label::from_static_parts("operation", operation),
            Label::new("route", route.to_owned()),
        ];
        Self { labels, answered: Default::default(), seconds: OnceLock::new() }
    }

    pub(crate) fn record_response(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(1);
        if let (Some(counter), Some(name)) = (self.answered.get(class), CLASSES.get(class)) {
            counter.get_or_init(|| self.counter(name)).increment(1);
        }
        let seconds = || histogram!(names::REQUEST_SECONDS, self.labels.to_vec());
        self.seconds.get_or_init(seconds).record(took.as_secs_f64());
    }

    fn counter(&self, class: &'static str) -> Counter {
        let mut labels = self.labels.to_vec();
        labels.push(Label::from_static_parts("status", class));
        counter!(names::REQUESTS, labels)
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

/// Records whether an agent can be used.
pub(crate) fn set_available(agent: &str, is_available: bool) {
    gauge!(names::AGENT_AVAILABLE, "agent" => agent.to_owned()).set(if is_available {
        1.0
    } else {
        0.0
    });
}

/// Installs the recorder of the process. Call it first: earlier meters count nothing. If servers share a store, every metric gets this name as label `node`.
pub fn install_recorder(node: Option<&str>) {
    RECORDER.get_or_init(|| install(node));
}

/// Records the resource use of hosted agents. An agent without processes keeps its rows, with zero.
pub(crate) fn set_processes(processes: &[AgentProcess]) {
    static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut used: BTreeMap<String, (u64, u64)> =
        lock(&SEEN).iter().map(|agent| (agent.clone(), (0, 0))).collect();
    for process in processes {
        let (count, bytes) = used.entry(process.agent.clone()).or_default();
        *count += 1;
        *bytes += process.memory_bytes;
    }
    for (agent, (count, bytes)) in &used {
        gauge!(names::AGENT_PROCESSES, "agent" => agent.clone()).set(*count as f64);
        gauge!(names::AGENT_MEMORY, "agent" => agent.clone()).set(*bytes as f64);
    }
    lock(&SEEN).extend(used.into_keys());
}

/// Records the runs that have not ended.
pub(crate) fn set_open_runs(open: &OpenRunCounts) {
    let oldest = open.oldest_queued.unwrap_or_default();
    gauge!(names::OLDEST_QUEUED).set(oldest.as_secs_f64());
    for (agent, counts) in &open.by_agent {
        let AgentRunCounts { scheduled, queued, running, waiting, questions } = *counts;
        for (status, count) in [
            ("scheduled", scheduled),
            ("queued", queued),
            ("running", running),
            ("waiting", waiting),
        ] {
            let agent = agent.as_str().to_owned();
            gauge!(names::RUNS, "agent" => agent, "status" => status).set(count as f64);
        }
        gauge!(names::QUESTIONS, "agent" => agent.as_str().to_owned()).set(questions as f64);
    }
}

/// Records the statistics of the store.
pub(crate) fn set_store(stats: &Stats) {
    counter!(names::COMMITS).absolute(stats.commits);
    for (name, count) in [
        (names::STORE_SIZE, stats.bytes),
        (names::STORE_THREADS, stats.threads),
        (names::STORE_RUNS, stats.runs),
        (names::QUARANTINED, stats.quarantined),
        (names::LOST_COMMITS, stats.lost_commits),
        (names::TAIL_CACHE, stats.cache_bytes),
    ] {
        gauge!(name).set(count as f64);
    }
}

/// Records when the server started.
pub(crate) fn set_start_time(started_at: Timestamp) {
    gauge!(names::START_TIME).set(started_at.as_micros() as f64 / 1e6);
}

/// Returns the metrics in Prometheus' exposition format, with the values that are measured on each read. Returns `None` if another recorder was installed first.
pub(crate) fn render(is_ready: bool, body_bytes: usize, response_bytes: usize) -> Option<String> {
    gauge!(names::READY).set(if is_ready { 1.0 } else { 0.0 });
    gauge!(names::BODY_BYTES).set(body_bytes as f64);
    gauge!(names::RESPONSE_BYTES).set(response_bytes as f64);
    let set = |name: &'static str, count: Option<u64>| {
        if let Some(count) = count {
            gauge!(name).set(count as f64);
        }
    };
    set(names::OPEN_DESCRIPTORS, descriptors::open_count());
    set(names::MAX_DESCRIPTORS, descriptors::soft_limit());
    set(names::RESIDENT_BYTES, process_usage::resident_bytes());
    if let Some(seconds) = process_usage::cpu_seconds() {
        // The counter takes whole seconds only.
        counter!(names::CPU_SECONDS).absolute(seconds as u64);
    }
    recorder().map(PrometheusHandle::render)
}

/// Folds recorded samples together, so that memory stays bounded even if no client reads the metrics.
pub(crate) fn upkeep() {
    if let Some(recorder) = recorder() {
        recorder.run_upkeep();
    }
}

fn recorder() -> Option<&'static PrometheusHandle> {
    RECORDER.get_or_init(|| install(None)).as_ref()
}

fn install(node: Option<&str>) -> Option<PrometheusHandle> {
    let mut builder = PrometheusBuilder::new();
    if let Some(node) = node {
        builder = builder.add_global_label("node", node);
    }
    for metric in METRICS {
        if let Some(buckets) = metric.kind.buckets() {
            let matcher = Matcher::Full(metric.name.to_owned());
            builder = builder.set_buckets_for_metric(matcher, buckets).ok()?;
        }
    }
    let handle = builder.install_recorder().ok()?;
    names::describe();
    for metric in METRICS {
        if metric.kind == MetricKind::Counter && metric.labels.is_empty() {
            // Register the metric at zero, so that an alarm sees the first event.
            drop(counter!(metric.name));
        }
    }
    Some(handle)
}
