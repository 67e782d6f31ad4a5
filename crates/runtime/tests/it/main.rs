//! Tests the runtime over real stores, with agents that the tests script.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(unreachable_pub, reason = "modules of one test binary")]

mod allocations;
mod callbacks;
mod calls;
mod client_history;
mod clients;
mod fixture;
mod interrupts;
mod keeper;
mod large;
mod messages;
mod much;
mod notices;
mod output;
mod outside_of_runs;
mod recovery;
mod references;
mod removal;
mod runs;
mod schedule;
mod sessions;
mod slow_owners;
mod states;
mod strategies;
mod threads;
mod withdrawn;
