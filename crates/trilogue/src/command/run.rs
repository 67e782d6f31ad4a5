//! `trilogue run`.

use std::io::{IsTerminal as _, Read as _};

use clap::Args;
use trilogue_domain::limits;
use trilogue_sdk::client::Client;
use trilogue_sdk::communication::NewRun;
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::agent_communication::{ContentEncoding as Encoding, Message, MessagePart, Uuid};
use trilogue_wire::native::{ContentEncoding, InputMessage, InputPart, Json, RunCreate, RunInput};

use crate::arguments::Globals;
use crate::attach;
use crate::conversation::{Conversation, Showing, communication};
use crate::exit::{Result, Stop};
use crate::remote::{Protocol, Server};
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
    /// How to talk to the server. Left alone, another server than the usual one is asked what it speaks.
    #[arg(long, value_enum, default_value_t, value_name = "PROTOCOL")]
    protocol: Protocol,
    #[command(flatten)]
    showing: Showing,
}

// === impl Run ===

impl Run {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let server = Server::find(globals)?;
        match server.protocol(globals, self.protocol).await {
            Protocol::Communication => self.communicate(&server, globals).await,
            Protocol::Auto | Protocol::Native => self.run(server.native(), globals).await,
        }
    }

    /// Runs the agent of one of our servers.
    async fn run(&self, client: Client, globals: &Globals) -> Result {
        let mut new = RunCreate::new(&self.agent, self.input()?);
        new.config = self.config.as_deref().map(|text| json("--config", text)).transpose()?;
        if !self.ephemeral {
            let made = || ThreadId::generate().as_str().to_owned();
            new.thread_id = Some(self.thread.clone().unwrap_or_else(made));
            new.create_thread = true;
        }
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

    /// Runs the agent of any server of the Agent Communication Protocol.
    async fn communicate(&self, server: &Server, globals: &Globals) -> Result {
        if self.ephemeral {
            return Err(Stop::usage("--ephemeral: this server's protocol lists no threads at all")
                .hint("leave --ephemeral out"));
        }
        let mut new = NewRun::new(&self.agent, messages(self.input()?));
        let config = self.config.as_deref().map(|text| json("--config", text)).transpose()?;
        new.request.config = config;
        if let Some(thread) = &self.thread {
            new = new.in_session(session_of(thread)?);
        }
        if self.no_wait {
            let run = server.communication().run_async(new).await?;
            if globals.json {
                return print::json(&run);
            }
            return print::out(&format!("{}\n", run.run_id));
        }
        let conversation = communication::Conversation::new(server, &self.showing, globals)?;
        let session = conversation.hold(new).await?;
        if let (Some(session), None, true) = (session, &self.thread, print::can_ask()) {
            print::hint(&format!("go on with --thread {session}"));
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

/// The session that `--thread` names: the protocol's threads have no other ids than UUIDs.
pub(crate) fn session_of(thread: &str) -> Result<Uuid> {
    thread.parse().map_err(|_| {
        Stop::usage(format!(
            "--thread {}: this server's threads have UUIDs as ids",
            safe::visible(thread)
        ))
        .hint("give a UUID, any for a new thread, or leave --thread out")
    })
}

/// The input as the messages of the Agent Communication Protocol.
fn messages(input: RunInput) -> Vec<Message> {
    match input {
        RunInput::Text(text) => vec![Message::text(&text)],
        RunInput::Value(value) => vec![MessagePart::json(&value).into()],
        RunInput::Messages(messages) => messages
            .into_iter()
            .map(|message| Message::user(message.parts.into_iter().map(part).collect()))
            .collect(),
    }
}

fn part(part: InputPart) -> MessagePart {
    let content_encoding = match part.content_encoding {
        Some(ContentEncoding::Base64) => Encoding::Base64,
        Some(ContentEncoding::Plain) | None => Encoding::Plain,
    };
    MessagePart {
        name: part.name,
        content_type: part.content_type.unwrap_or_else(|| "text/plain".to_owned()),
        content: part.content,
        content_encoding,
        content_url: part.content_url,
        ..MessagePart::default()
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
