//! `trilogue run`.

use std::io::{IsTerminal as _, Read as _};

use clap::Args;
use trilogue_domain::limits;
use trilogue_sdk::client::ClientError;
use trilogue_sdk::communication::NewRun;
use trilogue_sdk::connect;
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::agent_communication::{ContentEncoding as Encoding, Message, MessagePart, Uuid};
use trilogue_wire::native::{ContentEncoding, InputPart, Json, RunCreate, RunInput};

use crate::arguments::Globals;
use crate::attach;
use crate::conversation::{self, Conversation, Showing, communication};
use crate::exit::{Result, Stop};
use crate::input;
use crate::remote::{Protocol, Server};
use crate::terminal::{print, safe};

/// Run an agent and show what it says.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The agent.
    agent: String,
    /// What to say; `-` reads it from standard input, and so does leaving it out where that is a pipe. A file that is named here as `@path` is added to the message.
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
            Protocol::Connect => self.connect(&server, globals).await,
            Protocol::Auto | Protocol::Native => self.run(&server, globals).await,
        }
    }

    /// Runs the agent of one of our servers.
    async fn run(&self, server: &Server, globals: &Globals) -> Result {
        let client = server.native();
        let mut input = self.input()?;
        if !server.is_here() {
            attach::forget_places(&mut input);
        }
        let mut new = RunCreate::new(&self.agent, input);
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

    /// Runs the agent of any server of the Agent Connect Protocol: without a thread, unless one is named.
    async fn connect(&self, server: &Server, globals: &Globals) -> Result {
        let client = server.connect();
        let called = Called::find(&client, &self.agent).await?;
        let given = input::by_schema(self.input()?, called.input_schema().as_ref())?;
        let mut new = connect::NewRun::of(&called.id);
        new.request.input = Some(given);
        new.request.config = connect_config(self.config.as_deref())?;
        if let Some(thread) = &self.thread {
            ensure_thread(&client, thread).await?;
            new = new.on_thread(thread);
        }
        if self.no_wait {
            let run = client.create_run(new).await?;
            if globals.json {
                return print::json(&run);
            }
            return print::out(&format!("{}\n", safe::line(&run.run_id)));
        }
        let described = called.descriptor.as_ref();
        let showing = &self.showing;
        conversation::connect::Conversation::new(server, client, described, showing, globals)?
            .hold(new)
            .await
    }

    fn input(&self) -> Result<RunInput> {
        if let Some(text) = &self.input {
            return Ok(RunInput::Value(json("--input", text)?));
        }
        // What comes through a pipe may be somebody else's words, which name no files of the user.
        let (text, mentions) = match self.text.as_deref() {
            Some("-") => (read_input()?, false),
            Some(text) => (text.to_owned(), true),
            None if !std::io::stdin().is_terminal() => (read_input()?, false),
            None => {
                return Err(Stop::usage("there is nothing to say to the agent")
                    .hint("give a text: trilogue run AGENT \"TEXT\""));
            }
        };
        attach::said(text, mentions, &self.attach)
    }
}

/// An agent of a server of the Agent Connect Protocol.
#[derive(Debug)]
pub(crate) struct Called {
    /// What names it in requests.
    pub(crate) id: String,
    /// What it declares, where the server says that.
    pub(crate) descriptor: Option<connect::Descriptor>,
}

// === impl Called ===

impl Called {
    /// Finds an agent by its id or name. What may be the id of a configured instance is taken for one.
    ///
    /// # Errors
    /// Where there is no such agent, or the server cannot be asked.
    pub(crate) async fn find(client: &connect::Client, named: &str) -> Result<Self> {
        let id = match client.find_agent(named).await {
            Ok(agent) => agent.agent_id,
            Err(ClientError::Fault(fault))
                if fault.is_not_found() && !fault.is_foreign() && named.parse::<Uuid>().is_ok() =>
            {
                return Ok(Self { id: named.to_owned(), descriptor: None });
            }
            Err(error) => return Err(error.into()),
        };
        // Without it, questions are asked in less comfort.
        let descriptor = client.descriptor(&id).await.ok();
        Ok(Self { id, descriptor })
    }

    /// The schema of its input, where it is known.
    pub(crate) fn input_schema(&self) -> Option<serde_json::Value> {
        self.descriptor.as_ref().map(|descriptor| descriptor.specs.input.to_value())
    }
}

/// The configuration of a run, in the form of the published document: what has only the members of that form is in it already.
pub(crate) fn connect_config(text: Option<&str>) -> Result<Option<Json>> {
    const MEMBERS: [&str; 3] = ["tags", "recursion_limit", "configurable"];
    let Some(text) = text else { return Ok(None) };
    let config = json("--config", text)?;
    let is_wrapped = match config.to_value() {
        serde_json::Value::Object(members) => {
            !members.is_empty() && members.keys().all(|name| MEMBERS.contains(&name.as_str()))
        }
        _ => false,
    };
    if is_wrapped {
        return Ok(Some(config));
    }
    json("--config", &format!("{{\"configurable\":{}}}", config.as_str())).map(Some)
}

/// Makes a thread where there is none.
pub(crate) async fn ensure_thread(client: &connect::Client, thread: &str) -> Result {
    let new = connect::ThreadCreate {
        thread_id: Some(thread.to_owned()),
        if_exists: Some(connect::IfExists::DoNothing),
        ..connect::ThreadCreate::default()
    };
    client.create_thread(&new).await?;
    Ok(())
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
pub(crate) fn messages(input: RunInput) -> Vec<Message> {
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
