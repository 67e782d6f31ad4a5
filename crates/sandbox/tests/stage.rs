//! A holder as the outer stage of a real agent. This program is the server, and starts itself as the stage.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test without the harness")]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
mod held;

fn main() -> ExitCode {
    if let Some(outcome) = trilogue_sandbox::run_stage() {
        return outcome.unwrap_or(ExitCode::from(trilogue_sandbox::NOT_STARTED));
    }
    #[cfg(target_os = "linux")]
    held::run_tests();
    ExitCode::SUCCESS
}
