//! The names of the metrics, each with what it counts. `/metrics` shows them.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// 1 while the server takes work, as `/readyz` says.
pub const READY: &str = "trilogue_ready";
/// 1 while an agent can be used, by agent; only for agents of which that is known before they are used.
pub const AGENT_AVAILABLE: &str = "trilogue_agent_available";
/// Requests that did not reach the server of an agent. The backends count them.
pub const UNREACHED_REMOTES: &str = "trilogue_remote_unreached_total";
pub const REQUESTS: &str = "trilogue_http_requests_total";
pub const REQUEST_SECONDS: &str = "trilogue_http_request_seconds";
pub const REFUSED: &str = "trilogue_http_refused_total";
pub const REFUSED_PEERS: &str = "trilogue_http_refused_peers_total";
/// Connections that were closed because their peer had its share, which has no idle one.
pub const REFUSED_CONNECTIONS: &str = "trilogue_http_refused_connections_total";
/// Connections that were closed to make room for new ones.
pub const RELIEVED_CONNECTIONS: &str = "trilogue_http_relieved_connections_total";
pub const ACCEPT_FAILURES: &str = "trilogue_http_accept_failures_total";
pub const STALLED_RESPONSES: &str = "trilogue_http_stalled_responses_total";
pub const BODY_BYTES: &str = "trilogue_http_body_bytes";
pub const REFUSED_BODIES: &str = "trilogue_http_refused_bodies_total";
pub const OPEN_DESCRIPTORS: &str = "trilogue_open_descriptors";
pub const MAX_DESCRIPTORS: &str = "trilogue_max_descriptors";
pub const CONNECTIONS: &str = "trilogue_http_connections";
pub const STREAMS: &str = "trilogue_event_streams";
pub const STREAM_BYTES: &str = "trilogue_event_stream_bytes_total";
pub const FRAMES_RENDERED: &str = "trilogue_frames_rendered_total";
pub const PANICS: &str = "trilogue_http_panics_total";
pub const REPEATED_IDS: &str = "trilogue_client_repeated_ids_total";
/// Lines of hosted agents that were let go by, by agent and by kind: `noise`, which was no message, and `oversize`.
pub const IGNORED_LINES: &str = "trilogue_agent_ignored_lines_total";
pub const DELIVERIES: &str = "trilogue_callback_deliveries_total";
/// Callbacks and notices that were put off, by kind. The runtime counts them.
pub const POSTPONED_DELIVERIES: &str = "trilogue_callback_postponed_total";
/// Starts that the budget of agent processes refused. The backends count them.
pub const REFUSED_PROCESSES: &str = "trilogue_agent_processes_refused_total";
/// Idle processes that were stopped for others. The backends count them.
pub const STOPPED_PROCESSES: &str = "trilogue_agent_processes_stopped_total";

pub(crate) fn describe() {
    describe_gauge!(READY, "Whether the server takes work: 1 or 0, as /readyz says");
    describe_gauge!(
        AGENT_AVAILABLE,
        "Whether an agent behind another server can be used: 1 or 0, by agent"
    );
    describe_counter!(UNREACHED_REMOTES, "Requests that did not reach the server of an agent");
    describe_counter!(REQUESTS, "Requests that were answered, by operation and status class");
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "How long requests took until their response began, by operation"
    );
    describe_counter!(
        REFUSED,
        "Requests that were refused before routing or for their credentials, by code"
    );
    describe_counter!(
        REFUSED_PEERS,
        "Connections that were closed because they came from outside the trusted proxies"
    );
    describe_counter!(
        REFUSED_CONNECTIONS,
        "Connections that were closed because their peer had its share"
    );
    describe_counter!(
        RELIEVED_CONNECTIONS,
        "Connections that were closed to make room for new ones: idle ones, and those without a token"
    );
    describe_counter!(ACCEPT_FAILURES, "Connections that could not be accepted");
    describe_counter!(
        STALLED_RESPONSES,
        "Responses on HTTP/2 that were abandoned because the client took nothing of them"
    );
    describe_gauge!(BODY_BYTES, Unit::Bytes, "Bytes of request bodies that the server holds");
    describe_counter!(
        REFUSED_BODIES,
        "Request bodies that were refused because the server held as many bytes as it may"
    );
    describe_gauge!(OPEN_DESCRIPTORS, "Open file descriptors of the process");
    describe_gauge!(MAX_DESCRIPTORS, "The most file descriptors that the process may have");
    describe_gauge!(CONNECTIONS, "Open connections");
    describe_gauge!(STREAMS, "Open event streams");
    describe_counter!(STREAM_BYTES, Unit::Bytes, "Bytes of rendered events put on streams");
    describe_counter!(FRAMES_RENDERED, "Frames that were rendered");
    describe_counter!(PANICS, "Requests whose handler panicked");
    describe_counter!(REPEATED_IDS, "Requests of clients whose id another one had at the time");
    describe_counter!(
        IGNORED_LINES,
        "Lines of hosted agents that were let go by, by agent and by kind"
    );
    describe_counter!(DELIVERIES, "Callback deliveries, by outcome");
    describe_counter!(
        POSTPONED_DELIVERIES,
        "Callbacks and notices that were put off because their target or principal has its share of deliveries, by kind"
    );
    describe_counter!(
        REFUSED_PROCESSES,
        "Agent processes that were not started because all processes use up the budget"
    );
    describe_counter!(
        STOPPED_PROCESSES,
        "Idle agent processes that were stopped because others needed the budget"
    );
}
