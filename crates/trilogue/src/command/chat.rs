//! `trilogue chat`.

use clap::Args;
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::native::{RunCreate, RunInput};

use crate::arguments::Globals;
use crate::conversation::{Conversation, Showing};
use crate::exit::{Exit, Result, Stop};
use crate::remote;
use crate::terminal::{ask, print, safe};

/// Talk to an agent, line by line. An empty line is nothing; `/quit` or the end of the input ends it.
#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// The agent.
    agent: String,
    /// Go on with this thread; it is made when there is none.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Settings of the agent.
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    #[command(flatten)]
    showing: Showing,
}

// === impl Chat ===

impl Chat {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let agent = client.agent(&self.agent).await?;
        let config = self.config.as_deref().map(|text| super::run::json("--config", text));
        let config = config.transpose()?;
        let made = || ThreadId::generate().as_str().to_owned();
        let thread = self.thread.clone().unwrap_or_else(made);
        print::note(&format!("thread: {}", safe::line(&thread)));
        while let Some(text) = ask::read_line("> ").await? {
            match text.trim() {
                "" => continue,
                "/quit" => break,
                _ => {}
            }
            let new = RunCreate {
                thread_id: Some(thread.clone()),
                create_thread: true,
                config: config.clone(),
                ..RunCreate::new(&agent.name, RunInput::Text(text))
            };
            let run = RunId::generate().as_str().to_owned();
            let turn = Conversation::new(client.clone(), run, &self.showing, globals)?;
            match turn.hold(new).await {
                // A run that failed or was cancelled ends its turn, not the conversation.
                Err(stop) if print::can_ask() && goes_on(&stop) => print::stop(&stop),
                ended => ended?,
            }
        }
        if print::can_ask() {
            print::hint(&format!(
                "go on with `trilogue chat {} --thread {thread}{}`",
                self.agent,
                globals.elsewhere()
            ));
        }
        Ok(())
    }
}

fn goes_on(stop: &Stop) -> bool {
    matches!(stop.exit, Exit::Failed | Exit::Cancelled)
        || (stop.exit == Exit::Interrupted && !stop.message.is_empty())
}
