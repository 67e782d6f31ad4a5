//! `trilogue cancel`.

use clap::Args;

use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::Result;
use crate::terminal::{print, safe};

/// Cancel a run.
#[derive(Args, Debug)]
pub(crate) struct Cancel {
    /// The run.
    run: String,
    /// Return at once instead of waiting for the run's end.
    #[arg(long)]
    no_wait: bool,
}

// === impl Cancel ===

impl Cancel {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let id = short_id::run(&client, &self.run).await?;
        let mut run = client.cancel_run(&id).await?;
        if !self.no_wait && !run.status.is_terminal() {
            run = client.wait_for_run(&id).await?;
        }
        if globals.json {
            return print::json(&run);
        }
        print::out(&format!("{}: {}\n", safe::line(&run.id), run.status.as_str()))
    }
}
