//! Drives the real binary: a server it starts, and commands against it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, with what they saw"
)]

mod approval;
mod commands;
mod docs;
mod harness;
mod library;
mod lifecycle;
mod offline;
mod output;
mod terminal;
