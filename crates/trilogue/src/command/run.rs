//! `trilogue run`.

use std::io::{IsTerminal as _, Read as _};

use clap::Args;
use trilogue_domain::limits;
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::native::{InputMessage, InputPart, Json, RunCreate, RunInput};

use crate::arguments::Globals;
use crate::attach;
use crate::conversation::{Conversation, Showing};
use crate::exit::{Result, Stop};
use crate::remote;
use crate::terminal::{print, safe};

/// Run an agent and show what it says.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The agent.
    agent: String,
    /// What to say; `-` reads it from standard input, and so does leaving it out where that is a pipe.
    text: Option<String>,
    /// Give the agent this JSON value instead of a message.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["text", "attach"])]
    input: Option<String>,
    /// Run on this thread; it is made when there is none. By default on a new one.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Run on a thread of its own that is not listed.
    #[arg(long, conflicts_with = "thread")]
    ephemeral: bool,
    /// Settings of the agent for this run.
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Add a file or an address to the message. May be given several times.
    #[arg(long, value_name = "FILE|URL")]
    attach: Vec<String>,
    /// Start the run, print its id and leave.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    showing: Showing,
}

// === impl Run ===

impl Run {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let mut new = RunCreate::new(&self.agent, self.input()?);
        new.config = self.config.as_deref().map(|text| json("--config", text)).transpose()?;
        if !self.ephemeral {
            let made = || ThreadId::generate().as_str().to_owned();
            new.thread_id = Some(self.thread.clone().unwrap_or_else(made));
            new.create_thread = true;
        }
        let client = remote::open(globals)?;
        if self.no_wait {
            let run = client.start_run(new).await?;
            if globals.json {
                return print::json(&run);
            }
            print::out(&format!("{}\n", safe::line(&run.id)))?;
            print::hint(&format!(
                "see it with `trilogue tail {} --follow{}`",
                safe::line(&run.id),
                globals.elsewhere()
            ));
            return Ok(());
        }
        let run = RunId::generate().as_str().to_owned();
        let thread = new.thread_id.clone();
        let conversation = Conversation::new(client, run, &self.showing, globals)?;
        conversation.hold(new).await?;
        if let (Some(thread), None, true) = (thread, &self.thread, print::can_ask()) {
            print::hint(&format!("go on with --thread {thread}"));
        }
        Ok(())
    }

    fn input(&self) -> Result<RunInput> {
        if let Some(text) = &self.input {
            return Ok(RunInput::Value(json("--input", text)?));
        }
        let text = match self.text.as_deref() {
            Some("-") => read_input()?,
            Some(text) => text.to_owned(),
            None if !std::io::stdin().is_terminal() => read_input()?,
            None => {
                return Err(Stop::usage("there is nothing to say to the agent")
                    .hint("give a text: trilogue run AGENT \"TEXT\""));
            }
        };
        if self.attach.is_empty() {
            return Ok(RunInput::Text(text));
        }
        let mut parts = vec![InputPart::text(text)];
        for source in &self.attach {
            parts.push(attach::part(source)?);
        }
        Ok(RunInput::Messages(vec![InputMessage { parts, ..InputMessage::default() }]))
    }
}

/// Reads an option that is JSON.
pub(crate) fn json(option: &str, text: &str) -> Result<Json> {
    Json::parse(text).map_err(|error| Stop::usage(format!("{option} is no JSON: {error}")))
}

/// Everything on standard input, without a line end at its end.
fn read_input() -> Result<String> {
    let limit = limits::DEFAULT_MAX_BODY_BYTES;
    let mut text = String::new();
    std::io::stdin()
        .take(limit as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| Stop::usage(format!("standard input cannot be read: {error}")))?;
    if text.len() > limit {
        return Err(Stop::usage(format!("standard input has more than {limit} bytes")));
    }
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    Ok(text)
}
