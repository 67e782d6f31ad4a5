//! One contract that runs on every engine, then the tests of single engines.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper that meets what it did not expect fails the test that called it"
)]

mod admin;
mod append;
mod bad_database;
mod blobs;
mod bucket;
mod concurrency;
mod configurations;
mod copy;
mod erasure;
mod filters;
mod harness;
mod history;
mod idempotency;
mod large;
mod memory;
mod model;
mod nodes;
mod paging;
mod postgres;
mod queue;
mod queue_line;
mod reading;
mod retention;
#[path = "../fixtures/rows.rs"]
mod rows;
mod scope;
#[path = "../fixtures/services.rs"]
mod services;
mod short_ids;
mod sqlite;
mod tail;
mod thread_agents;
mod thread_status;
mod tokens;
