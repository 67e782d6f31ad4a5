//! Agents that reach a broker and nothing else, as real processes. This program is the server, and starts itself as the stage.

#![expect(clippy::unwrap_used, clippy::panic, reason = "functions of tests fail by panicking")]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
#[path = "broker/mod.rs"]
mod reach;

fn main() -> ExitCode {
    if let Some(outcome) = trilogue_sandbox::run_stage() {
        #[expect(clippy::print_stderr, reason = "the server shows it")]
        return outcome.unwrap_or_else(|error| {
            eprintln!("{error}");
            ExitCode::from(trilogue_sandbox::NOT_STARTED)
        });
    }
    #[cfg(target_os = "linux")]
    reach::run_tests();
    ExitCode::SUCCESS
}
