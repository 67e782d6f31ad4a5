//! The server with an allocator that counts: it shows how many allocations an update costs, on all threads together.
//!
//! `trilogue-counted serve --config FILE` serves the configured agents, and one more agent that answers with the count so
//! far.

use std::alloc::System;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use trilogue::sdk::prelude::{Agent, AgentError, Card, Context, Outcome, Turn, async_trait};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Says how often this process has asked for memory.
#[derive(Clone, Copy, Debug)]
struct Allocations;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match serve(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: &[String]) -> Result<()> {
    let [command, option, file] = arguments else { bail!("expected `serve --config FILE`") };
    if (command.as_str(), option.as_str()) != ("serve", "--config") {
        bail!("expected `serve --config FILE`");
    }
    let loaded = trilogue::config::load(Path::new(file))?;
    Ok(trilogue::serve(Allocations, loaded.options).await?)
}

// === impl Allocations ===

#[async_trait]
impl Agent for Allocations {
    fn card(&self) -> Card {
        Card::chat("allocations", "Says how often this process has asked for memory.")
    }

    async fn run(&self, _: Turn, context: Context) -> Result<Outcome, AgentError> {
        let counted = ALLOCATOR.stats();
        // Memory that grows is asked for again.
        context.text((counted.allocations + counted.reallocations).to_string()).await?;
        Ok(Outcome::Completed)
    }
}

#[expect(clippy::print_stderr, reason = "why it ends is for the one who started it")]
fn say(line: &str) {
    eprintln!("{line}");
}
