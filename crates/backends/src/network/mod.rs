//! What hosted agents reach over the network, through the broker of the server.
//!
//! | file | what it does |
//! |---|---|
//! | `plan.rs` | the settings of an agent, and the variables by which its programs find the broker |
//! | `rules.rs` | the hosts that people have allowed |
//! | `record.rs` | connections as events of the log |

mod plan;
mod record;
mod rules;

pub use plan::{KeyPlan, KeySource, NetworkPlan, NotAKeySource};
pub(crate) use record::{connection_event, count_connection, count_usage, usage_event};
pub use rules::{NetworkRule, NetworkRules};
