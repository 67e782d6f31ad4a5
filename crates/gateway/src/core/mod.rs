//! The base of the gateway: settings, ports, meters, log references. Nothing here depends on other modules of the gateway.

pub(crate) mod audit;
pub(crate) mod callback_secrets;
pub(crate) mod connected_clients;
pub(crate) mod descriptors;
pub(crate) mod exposure;
pub(crate) mod lifecycle;
pub(crate) mod log_ref;
pub(crate) mod log_throttle;
pub(crate) mod meters;
pub mod metric_names;
pub(crate) mod not_found;
pub(crate) mod opened_folders;
pub(crate) mod options;
pub(crate) mod ports;
pub(crate) mod process_usage;
pub(crate) mod render_turns;
pub(crate) mod scheme;
