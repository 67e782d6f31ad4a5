//! The runtime over real stores, with agents that are scripted by the test.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(unreachable_pub, reason = "modules of one test binary")]

mod callbacks;
mod fixture;
mod given;
mod interrupts;
mod output;
mod outside;
mod recovery;
mod references;
mod removal;
mod runs;
mod schedule;
mod states;
mod strategies;
mod threads;
