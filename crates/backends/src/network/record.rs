//! Connections as events of the log, and as counts.

use metrics::counter;
use serde_json::json;
use trilogue_broker::{ConnectionKind, ConnectionRecord};
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Json};

/// The kind of the event about a connection.
const CONNECTION: &str = "network_connection";
/// Counts the connections of agents through the broker, by agent and outcome.
const CONNECTIONS: &str = "trilogue_network_connections_total";
/// Counts the bytes of these connections, by agent and direction.
const BYTES: &str = "trilogue_network_bytes_total";

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

pub(crate) fn count_connection(agent: &str, record: &ConnectionRecord) {
    let outcome = record.outcome.as_str();
    counter!(CONNECTIONS, "agent" => agent.to_owned(), "outcome" => outcome).increment(1);
    for (direction, bytes) in [("sent", record.sent_bytes), ("received", record.received_bytes)] {
        counter!(BYTES, "agent" => agent.to_owned(), "direction" => direction).increment(bytes);
    }
}
