//! What the connections of all agents share.

use std::time::Duration;

use trilogue_egress::Client;

use crate::prices::PriceTable;

/// How long the head of a request may take, also on an idle connection.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct BrokerState {
    /// Connects agents to hosts.
    pub(crate) hosts: Client,
    /// Connects to the providers that the operator has named.
    pub(crate) providers: Client,
    pub(crate) prices: PriceTable,
    /// How long a tunnel may carry nothing.
    pub(crate) idle: Duration,
}
