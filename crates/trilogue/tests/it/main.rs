//! Drives the real binary: a server it starts, and commands against it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, with what they saw"
)]

mod agent_client_cli;
mod agent_client_examples;
mod agent_failures;
mod agent_registry;
mod agent_settings;
mod agents_trace;
mod approval;
mod audit;
mod background;
mod callback_receivers;
mod calls;
mod cli_protocols;
mod cluster;
mod commands;
mod communication;
mod communication_foreign;
mod communication_sdk;
mod connect_cli;
mod connect_editor;
mod connect_editor_restart;
mod connect_editor_whole;
mod connect_flows;
mod connect_foreign;
mod connect_remote;
mod connect_sdk;
mod consent;
#[cfg(target_os = "linux")]
mod control_groups;
mod copy;
#[cfg(target_os = "linux")]
mod descriptors;
mod docs;
mod exit_codes;
mod foreign;
mod harness;
mod hosted;
mod hosted_again;
mod hosted_content;
mod hostile_checkout;
mod init;
mod inspector;
mod known_agents;
mod library;
mod lifecycle;
mod message_log;
mod messages;
mod monitored;
mod mounts;
mod native_editor;
mod nodes;
mod notified;
mod offline;
mod one_server;
mod operating;
mod outlive;
mod output;
mod packages;
mod paste;
mod remote_setups;
mod request_rights;
mod screens;
mod sdk_server;
mod shell;
mod squatter;
mod subagents;
mod tables;
mod tearing_transport;
mod templates;
mod terminal;
mod terminated;
mod titles;
mod top;
mod user_server;
mod webhooks;
mod wrap;
