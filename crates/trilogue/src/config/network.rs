//! What hosted agents reach over the network at most.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_broker::HostPattern;
use trilogue_egress::Cidr;

use super::list::List;
use super::quantity::Span;

/// What hosted agents with a `network` of hosts reach at most.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// The hosts beyond which no agent gets, also not by its settings or by the answers of people, in the form of `agents.NAME.network`. Not set: no such limit.
    pub ceiling: Option<List<HostPattern>>,
    /// Private addresses or blocks that agents may reach if their `network` names the host, such as `127.0.0.1` or `10.0.0.0/8`. They always reach public addresses, and never the metadata service of a cloud.
    pub allow_addresses: List<Cidr>,
    /// How long a tunnel of an agent may carry nothing.
    pub idle: Span,
    /// A file with prices of models, before those that come with the program: a line `date`, and a line for each model with the beginning of its name and the dollars for a million tokens of input, output, cached input and written cache, with tabs in between.
    pub prices: Option<String>,
}

// === impl Network ===

impl Default for Network {
    fn default() -> Self {
        Self {
            ceiling: None,
            allow_addresses: List::default(),
            idle: Span(Duration::from_secs(600)),
            prices: None,
        }
    }
}
