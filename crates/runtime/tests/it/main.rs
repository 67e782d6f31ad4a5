//! The runtime over real stores, with agents that are scripted by the test.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(unreachable_pub, reason = "modules of one test binary")]

mod allocations;
mod callbacks;
mod clients;
mod fixture;
mod given;
mod interrupts;
mod keeper;
mod large;
mod messages;
mod much;
mod notices;
mod output;
mod outside;
mod recovery;
mod references;
mod removal;
mod runs;
mod schedule;
mod sessions;
mod states;
mod strategies;
mod threads;
mod withdrawn;
