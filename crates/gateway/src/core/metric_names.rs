//! The metrics of `/metrics`: their names, and a table of their meanings.

use std::fmt::Write as _;

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use trilogue_runtime::metric_names as runtime;

pub const READY: &str = "trilogue_ready";
pub const AGENT_AVAILABLE: &str = "trilogue_agent_available";
/// Counted by the backends.
pub const UNREACHED_REMOTES: &str = "trilogue_remote_unreached_total";
pub const REQUESTS: &str = "trilogue_http_requests_total";
pub const REQUEST_SECONDS: &str = "trilogue_http_request_seconds";
pub const REFUSED: &str = "trilogue_http_refused_total";
pub const REFUSED_PEERS: &str = "trilogue_http_refused_peers_total";
pub const REFUSED_CONNECTIONS: &str = "trilogue_http_refused_connections_total";
pub const RELIEVED_CONNECTIONS: &str = "trilogue_http_relieved_connections_total";
pub const ACCEPT_FAILURES: &str = "trilogue_http_accept_failures_total";
pub const STALLED_RESPONSES: &str = "trilogue_http_stalled_responses_total";
pub const BODY_BYTES: &str = "trilogue_http_body_bytes";
pub const REFUSED_BODIES: &str = "trilogue_http_refused_bodies_total";
pub const RESPONSE_BYTES: &str = "trilogue_http_response_bytes";
pub const REFUSED_RESPONSES: &str = "trilogue_http_refused_responses_total";
pub const OPEN_DESCRIPTORS: &str = "trilogue_open_descriptors";
pub const MAX_DESCRIPTORS: &str = "trilogue_max_descriptors";
pub const CONNECTIONS: &str = "trilogue_http_connections";
pub const STREAMS: &str = "trilogue_event_streams";
pub const STREAM_SECONDS: &str = "trilogue_event_stream_seconds";
pub const STREAM_BYTES: &str = "trilogue_event_stream_bytes_total";
pub const FRAMES_RENDERED: &str = "trilogue_frames_rendered_total";
pub const PANICS: &str = "trilogue_http_panics_total";
pub const REPEATED_IDS: &str = "trilogue_client_repeated_ids_total";
/// Counted by the backends.
pub const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";
pub const DELIVERIES: &str = "trilogue_callback_deliveries_total";
/// Counted by the runtime.
pub const POSTPONED_DELIVERIES: &str = "trilogue_callback_postponed_total";
/// Counted by the backends.
pub const REFUSED_PROCESSES: &str = "trilogue_agent_processes_refused_total";
/// Counted by the backends.
pub const STOPPED_PROCESSES: &str = "trilogue_agent_processes_stopped_total";
/// Counted by the backends.
pub const PROCESS_STARTS: &str = "trilogue_agent_process_starts_total";
/// Counted by the backends.
pub const PROCESS_FAILURES: &str = "trilogue_agent_process_failures_total";
/// Counted by the backends.
pub const NETWORK_CONNECTIONS: &str = "trilogue_network_connections_total";
/// Counted by the backends.
pub const NETWORK_BYTES: &str = "trilogue_network_bytes_total";
/// Counted by the backends.
pub const MODEL_REQUESTS: &str = "trilogue_model_requests_total";
/// Counted by the backends.
pub const MODEL_TOKENS: &str = "trilogue_model_tokens_total";
/// Counted by the backends.
pub const MODEL_COST: &str = "trilogue_model_cost_microdollars_total";
pub const AGENT_PROCESSES: &str = "trilogue_agent_processes";
pub const AGENT_MEMORY: &str = "trilogue_agent_memory_bytes";
pub const RUNS: &str = "trilogue_runs";
pub const QUESTIONS: &str = "trilogue_questions";
pub const OLDEST_QUEUED: &str = "trilogue_queue_oldest_seconds";
pub const COMMITS: &str = "trilogue_store_commits_total";
pub const STORE_SIZE: &str = "trilogue_store_size_bytes";
pub const STORE_THREADS: &str = "trilogue_store_threads";
pub const STORE_RUNS: &str = "trilogue_store_runs";
pub const QUARANTINED: &str = "trilogue_store_quarantined_threads";
pub const LOST_COMMITS: &str = "trilogue_store_lost_commits";
pub const TAIL_CACHE: &str = "trilogue_store_cache_bytes";
/// Counted by the program.
pub const LOG_LINES_LEFT_OUT: &str = "trilogue_log_lines_left_out_total";
pub const OTLP_EXPORTED: &str = "trilogue_otlp_exported_total";
pub const OTLP_DROPPED: &str = "trilogue_otlp_dropped_total";
pub const RESIDENT_BYTES: &str = "process_resident_memory_bytes";
pub const CPU_SECONDS: &str = "process_cpu_seconds_total";
pub const START_TIME: &str = "process_start_time_seconds";

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub about: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    Counter,
    Gauge,
    /// A histogram of seconds for the server's own work.
    Short,
    /// A histogram of seconds for the work of agents and people.
    Long,
    /// A histogram of numbers.
    Count,
}

/// All metrics, in the order of the reference page.
pub const METRICS: &[Metric] = &[
    gauge(READY, &[], "1 while the server takes work, as `/readyz` says, else 0"),
    counter(runtime::RUNS_STARTED, &["agent"], "Runs whose agent began to work"),
    counter(
        runtime::RUNS_ENDED,
        &["agent", "outcome"],
        "Runs that ended: `completed`, `failed`, `cancelled` or `timed_out`",
    ),
    counter(
        runtime::RUN_FAILURES,
        &["code"],
        "Runs that failed, by error code; an agent's own codes count as `other`",
    ),
    gauge(
        RUNS,
        &["agent", "status"],
        "Runs that have not ended: `scheduled`, `queued`, `running` or `waiting` for an answer",
    ),
    long(
        runtime::RUN_SECONDS,
        &["agent"],
        "Time from the agent's start to the run's end, with the waits for answers",
    ),
    long(
        runtime::QUEUE_SECONDS,
        &["agent"],
        "Time from when a run could begin to its agent's start",
    ),
    long(
        runtime::FIRST_EVENT_SECONDS,
        &["agent"],
        "Time from the agent's start to its first event",
    ),
    long(
        runtime::FIRST_MESSAGE_SECONDS,
        &["agent"],
        "Time from the agent's start to the first word of its first message",
    ),
    gauge(
        OLDEST_QUEUED,
        &[],
        "How many seconds the run has waited that has waited for its turn longest; 0 when none waits",
    ),
    counter(
        runtime::QUESTIONS_ASKED,
        &["agent", "kind"],
        "Questions that agents asked: `permission`, `message`, `form`, `url` or `custom`",
    ),
    counter(
        runtime::QUESTIONS_ENDED,
        &["agent", "how"],
        "Questions that ended: `answered`, `timed_out`, `cancelled` or `withdrawn`",
    ),
    gauge(QUESTIONS, &["agent"], "Questions that wait for an answer"),
    long(runtime::ANSWER_SECONDS, &["agent"], "Time from a question to its answer"),
    gauge(
        AGENT_AVAILABLE,
        &["agent"],
        "1 while an agent can be used, else 0; for agents at other servers, and for programs once one has started, wants a sign-in or failed. 0 while a program needs a sign-in or has never started and failed too often",
    ),
    gauge(AGENT_PROCESSES, &["agent"], "Processes of a hosted agent"),
    gauge(AGENT_MEMORY, &["agent"], "Memory of these processes and of what they started, in bytes"),
    counter(PROCESS_STARTS, &["agent"], "Processes of a hosted agent that were started"),
    counter(
        PROCESS_FAILURES,
        &["agent"],
        "Processes of a hosted agent that did not start, or exited by themselves before a turn had completed",
    ),
    counter(
        NETWORK_CONNECTIONS,
        &["agent", "outcome"],
        "Connections of hosted agents through the broker: `open`, `listed` or `answered` ones reached their host; `refused`, `ceiling`, `address`, `mismatch`, `unreachable` and `limit` ones did not",
    ),
    counter(
        NETWORK_BYTES,
        &["agent", "direction"],
        "Bytes of these connections: `sent` by the agent or `received`",
    ),
    counter(
        MODEL_REQUESTS,
        &["agent"],
        "Requests of hosted agents to providers of models, with `keys`",
    ),
    counter(
        MODEL_TOKENS,
        &["agent", "kind"],
        "Tokens of these requests, as the providers report them: `input`, `output`, `cached_read` or `cache_write`",
    ),
    counter(
        MODEL_COST,
        &["agent"],
        "What these requests cost by the price table, in millionths of a dollar",
    ),
    counter(
        REFUSED_PROCESSES,
        &[],
        "Agent processes that were not started because all processes use up the budget",
    ),
    counter(
        STOPPED_PROCESSES,
        &[],
        "Idle agent processes that were stopped because others needed the budget",
    ),
    counter(
        IGNORED_LINES,
        &["agent", "reason"],
        "Lines of hosted agents that were ignored, by reason: `noise` is not a message, `too_long` is above `max_line`, `replaced_bytes` is not UTF-8 and its message was kept, the others are invalid messages",
    ),
    counter(UNREACHED_REMOTES, &[], "Requests that did not reach the server of an agent"),
    short(
        runtime::COMMIT_SECONDS,
        &[],
        "Time from the hand-over of an append to the store until it is durable",
    ),
    Metric {
        kind: MetricKind::Count,
        ..gauge(runtime::COMMIT_EVENTS, &[], "Events of one append")
    },
    counter(runtime::COMMIT_FAILURES, &["code"], "Appends that failed, by error code"),
    counter(runtime::STORE_EVENTS, &[], "Events that were appended"),
    counter(runtime::STORE_BYTES, &[], "Bytes of the frames that were appended"),
    counter(COMMITS, &[], "Transactions of the store; one can hold appends of several threads"),
    gauge(STORE_SIZE, &[], "Size of the store, in bytes"),
    gauge(STORE_THREADS, &[], "Threads in the store"),
    gauge(STORE_RUNS, &[], "Runs in the store"),
    gauge(QUARANTINED, &[], "Threads that are closed because their data is damaged"),
    gauge(LOST_COMMITS, &[], "Acknowledged changes that the store has lost"),
    gauge(TAIL_CACHE, &[], "Size of the cache of the newest events, in bytes"),
    counter(
        REQUESTS,
        &["face", "operation", "route", "status"],
        "Requests that were answered, by protocol, operation, route and status class",
    ),
    short(
        REQUEST_SECONDS,
        &["face", "operation", "route"],
        "Time until the response of a request began",
    ),
    counter(
        REFUSED,
        &["code"],
        "Requests that were refused before routing or for their credentials",
    ),
    counter(
        REFUSED_PEERS,
        &[],
        "Connections that were closed because they came from outside the trusted proxies",
    ),
    counter(
        REFUSED_CONNECTIONS,
        &[],
        "Connections that were closed because their peer had its share",
    ),
    counter(
        RELIEVED_CONNECTIONS,
        &[],
        "Connections that were closed to make room for new ones: idle ones, and those without a token",
    ),
    counter(ACCEPT_FAILURES, &[], "Connections that could not be accepted"),
    counter(
        STALLED_RESPONSES,
        &[],
        "Responses on HTTP/2 that were abandoned because the client took nothing of them",
    ),
    gauge(BODY_BYTES, &[], "Bytes of request bodies that the server holds"),
    counter(
        REFUSED_BODIES,
        &[],
        "Request bodies that were refused because the server held as many bytes as it may",
    ),
    gauge(RESPONSE_BYTES, &[], "Bytes of responses that clients have not taken yet"),
    counter(
        REFUSED_RESPONSES,
        &[],
        "Responses that were refused because clients had not taken others",
    ),
    counter(PANICS, &[], "Requests whose handler panicked"),
    counter(REPEATED_IDS, &[], "Requests of clients whose id another one had at the time"),
    gauge(CONNECTIONS, &[], "Open connections"),
    gauge(STREAMS, &[], "Open event streams"),
    long(STREAM_SECONDS, &[], "How long event streams were open"),
    counter(STREAM_BYTES, &[], "Bytes of rendered events put on streams"),
    counter(FRAMES_RENDERED, &[], "Frames that were rendered"),
    counter(DELIVERIES, &["outcome"], "Callback deliveries"),
    counter(
        POSTPONED_DELIVERIES,
        &["kind"],
        "Callbacks and notices that were put off because their target or principal has its share of deliveries",
    ),
    counter(
        LOG_LINES_LEFT_OUT,
        &[],
        "Lines that are not in the log because they came faster than they could be written, or the log could not be written",
    ),
    counter(OTLP_EXPORTED, &[], "Runs whose spans the collector of traces took"),
    counter(
        OTLP_DROPPED,
        &["reason"],
        "Runs that are not in the traces: the queue was full (`queue_full`), the `collector` took none, or the `log` could not be read",
    ),
    gauge(OPEN_DESCRIPTORS, &[], "Open file descriptors of the process"),
    gauge(MAX_DESCRIPTORS, &[], "The most file descriptors that the process may have"),
    gauge(RESIDENT_BYTES, &[], "Memory of the process, in bytes; on Linux"),
    counter(CPU_SECONDS, &[], "Processor time of the process, in seconds; on Linux"),
    gauge(START_TIME, &[], "When the server started, in seconds since 1970"),
];

const HEAD: &str = "\
<!-- Generated from `trilogue_gateway::metric_names`. Do not edit. -->

# Metrics

Look up a metric of `GET /metrics` here. The route speaks the text format of Prometheus and needs a token with the right `read`.
[Operate a server](../operating.md#monitor) names those to watch.

- A counter begins with zero at the start of the server. A metric with labels appears with its first event; so do those of a route, with its first request.
- A histogram has the series `_bucket`, `_sum` and `_count`. Its unit stands in its name.
- Labels have few values: agents, protocols, routes and codes. No label holds an id.
- Where [servers share a store](../cluster.md), every metric also has the label `node`, with the name of the server.

| metric | type | labels | meaning |
|---|---|---|---|
";

/// Returns the text of `docs/reference/metrics.md`.
#[must_use]
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    for metric in METRICS {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, about) = (metric.name, metric.kind.as_str(), metric.about);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| `{name}` | {kind} | {} | {about} |", labels.join(", "));
    }
    out
}

pub(crate) fn describe() {
    for Metric { name, kind, about, .. } in METRICS.iter().copied() {
        let unit = match name {
            _ if name.contains("_bytes") => Unit::Bytes,
            _ if name.contains("_seconds") => Unit::Seconds,
            _ => Unit::Count,
        };
        match kind {
            MetricKind::Counter => describe_counter!(name, unit, about),
            MetricKind::Gauge => describe_gauge!(name, unit, about),
            _ => describe_histogram!(name, unit, about),
        }
    }
}

// === impl MetricKind ===

impl MetricKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Short | Self::Long | Self::Count => "histogram",
        }
    }

    /// Returns the upper bounds of a histogram's buckets.
    pub(crate) fn buckets(self) -> Option<&'static [f64]> {
        match self {
            Self::Counter | Self::Gauge => None,
            Self::Short => Some(&[
                0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
                5.0, 30.0,
            ]),
            Self::Long => Some(&[
                0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0,
                3_600.0, 14_400.0, 86_400.0,
            ]),
            Self::Count => Some(&[1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0]),
        }
    }
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    about: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Counter, labels, about }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { kind: MetricKind::Gauge, ..counter(name, labels, about) }
}

const fn short(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { kind: MetricKind::Short, ..counter(name, labels, about) }
}

const fn long(name: &'static str, labels: &'static [&'static str], about: &'static str) -> Metric {
    Metric { kind: MetricKind::Long, ..counter(name, labels, about) }
}
