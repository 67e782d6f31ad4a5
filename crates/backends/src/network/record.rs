//! Connections as events of the log, and as counts.

use metrics::counter;
use serde_json::json;
use trilogue_broker::{ConnectionKind, ConnectionRecord, RequestUsage, TokenCounts};
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Json};

/// The kind of the event about a connection.
const CONNECTION: &str = "network_connection";
/// Counts the connections of agents through the broker, by agent and outcome.
const CONNECTIONS: &str = "trilogue_network_connections_total";
/// Counts the bytes of these connections, by agent and direction.
const BYTES: &str = "trilogue_network_bytes_total";

/// The kind of the event about the usage of a request to a provider of models.
const USAGE: &str = "model_usage";
/// Counts these requests, by agent.
const MODEL_REQUESTS: &str = "trilogue_model_requests_total";
/// Counts their tokens, by agent and kind.
const MODEL_TOKENS: &str = "trilogue_model_tokens_total";
/// Counts what they cost in millionths of a dollar, by agent.
const MODEL_COST: &str = "trilogue_model_cost_microdollars_total";

/// Returns the event about a connection. It has no content.
pub(crate) fn connection_event(record: &ConnectionRecord) -> Body {
    let mut data = json!({
        "host": record.host,
        "port": record.port,
        "kind": record.kind.as_str(),
        "outcome": record.outcome.as_str(),
        "sent_bytes": record.sent_bytes,
        "received_bytes": record.received_bytes,
        "duration_ms": u64::try_from(record.duration.as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(by) = &record.by {
        data["by"] = json!(by);
    }
    if let ConnectionKind::Key(name) = &record.kind {
        data["key"] = json!(name);
    }
    Body::State(StateEvent::Custom { kind: CONNECTION.to_owned(), data: Json::from_value(&data) })
}

/// Returns the event about a request to a provider of models. It has no content.
pub(crate) fn usage_event(usage: &RequestUsage) -> Body {
    let mut data = json!({
        "key": usage.key,
        "status": usage.status,
        "is_complete": usage.is_complete,
    });
    if let Some(model) = &usage.model {
        data["model"] = json!(model);
    }
    if let Some(tokens) = &usage.tokens {
        for (kind, count) in token_counts(tokens) {
            data[format!("{kind}_tokens")] = json!(count);
        }
    }
    if let Some(cost) = usage.cost_micros {
        data["cost_microdollars"] = json!(cost);
    }
    Body::State(StateEvent::Custom { kind: USAGE.to_owned(), data: Json::from_value(&data) })
}

pub(crate) fn count_usage(agent: &str, usage: &RequestUsage) {
    counter!(MODEL_REQUESTS, "agent" => agent.to_owned()).increment(1);
    for (kind, count) in usage.tokens.iter().flat_map(token_counts) {
        counter!(MODEL_TOKENS, "agent" => agent.to_owned(), "kind" => kind).increment(count);
    }
    if let Some(cost) = usage.cost_micros {
        counter!(MODEL_COST, "agent" => agent.to_owned()).increment(cost);
    }
}

fn token_counts(tokens: &TokenCounts) -> [(&'static str, u64); 4] {
    [
        ("input", tokens.input),
        ("output", tokens.output),
        ("cached_read", tokens.cached_read),
        ("cache_write", tokens.cache_write),
    ]
}

pub(crate) fn count_connection(agent: &str, record: &ConnectionRecord) {
    let outcome = record.outcome.as_str();
    counter!(CONNECTIONS, "agent" => agent.to_owned(), "outcome" => outcome).increment(1);
    for (direction, bytes) in [("sent", record.sent_bytes), ("received", record.received_bytes)] {
        counter!(BYTES, "agent" => agent.to_owned(), "direction" => direction).increment(bytes);
    }
}
