//! `trilogue chat`.

use clap::Args;
use trilogue_sdk::communication::NewRun;
use trilogue_sdk::connect;
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::agent_communication::Uuid;
use trilogue_wire::native::{Json, RunCreate, RunInput};

use super::run::{Called, connect_config, ensure_thread, json, messages, session_of};
use crate::arguments::Globals;
use crate::attach;
use crate::conversation::{self, Conversation, Showing, communication};
use crate::exit::{Exit, Result, Stop};
use crate::input;
use crate::remote::{Protocol, Server};
use crate::terminal::{ask, print, safe};

/// Talk to an agent, line by line. An empty line is nothing; `/quit` or the end of the input ends it.
///
/// A file that is named as `@path` on a line that is typed is added to the message.
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
    /// Add a file or an address to the first message. May be given several times.
    #[arg(long, value_name = "FILE|URL")]
    attach: Vec<String>,
    /// How to talk to the server. Left alone, another server than the usual one is asked what it speaks.
    #[arg(long, value_enum, default_value_t, value_name = "PROTOCOL")]
    protocol: Protocol,
    #[command(flatten)]
    showing: Showing,
}

// === impl Chat ===

impl Chat {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let server = Server::find(globals)?;
        match server.protocol(globals, self.protocol).await {
            Protocol::Communication => self.communicate(&server, globals).await,
            Protocol::Connect => self.connect(&server, globals).await,
            Protocol::Auto | Protocol::Native => self.talk(&server, globals).await,
        }
    }

    /// Talks to an agent of one of our servers.
    async fn talk(&self, server: &Server, globals: &Globals) -> Result {
        let client = server.native();
        let agent = client.agent(&self.agent).await?;
        let config = self.config()?;
        let made = || ThreadId::generate().as_str().to_owned();
        let thread = self.thread.clone().unwrap_or_else(made);
        print::note(&format!("thread: {}", safe::line(&thread)));
        let mut lines = self.lines();
        while let Some(mut input) = lines.next().await? {
            if !server.is_here() {
                attach::forget_places(&mut input);
            }
            let new = RunCreate {
                thread_id: Some(thread.clone()),
                create_thread: true,
                config: config.clone(),
                ..RunCreate::new(&agent.name, input)
            };
            let run = RunId::generate().as_str().to_owned();
            let turn = Conversation::new(client.clone(), run, &self.showing, globals)?;
            settle(turn.hold(new).await)?;
        }
        self.bye(&thread, globals);
        Ok(())
    }

    /// Talks to an agent of any server of the Agent Communication Protocol.
    async fn communicate(&self, server: &Server, globals: &Globals) -> Result {
        let agent = server.communication().agent(&self.agent).await?;
        let config = self.config()?;
        let made = || Ok(Uuid::generate());
        let session = self.thread.as_deref().map_or_else(made, session_of)?;
        print::note(&format!("thread: {session}"));
        let mut lines = self.lines();
        while let Some(input) = lines.next().await? {
            let mut new = NewRun::new(&agent.name, messages(input)).in_session(session);
            new.request.config.clone_from(&config);
            let turn = communication::Conversation::new(server, &self.showing, globals)?;
            settle(turn.hold(new).await.map(drop))?;
        }
        self.bye(&session.to_string(), globals);
        Ok(())
    }

    /// Talks to an agent of any server of the Agent Connect Protocol.
    async fn connect(&self, server: &Server, globals: &Globals) -> Result {
        let client = server.connect();
        let called = Called::find(&client, &self.agent).await?;
        let (config, schema) = (connect_config(self.config.as_deref())?, called.input_schema());
        let thread = self.thread.clone().unwrap_or_else(|| Uuid::generate().to_string());
        ensure_thread(&client, &thread).await?;
        print::note(&format!("thread: {}", safe::line(&thread)));
        let mut lines = self.lines();
        while let Some(input) = lines.next().await? {
            let mut new = connect::NewRun::of(&called.id).on_thread(&thread);
            new.request.input = Some(input::by_schema(input, schema.as_ref())?);
            new.request.config.clone_from(&config);
            let (client, described) = (client.clone(), called.descriptor.as_ref());
            let showing = &self.showing;
            let turn = conversation::connect::Conversation::new(
                server, client, described, showing, globals,
            )?;
            settle(turn.hold(new).await)?;
        }
        self.bye(&safe::line(&thread), globals);
        Ok(())
    }

    fn lines(&self) -> Lines<'_> {
        Lines { attach: &self.attach }
    }

    fn config(&self) -> Result<Option<Json>> {
        self.config.as_deref().map(|text| json("--config", text)).transpose()
    }

    fn bye(&self, thread: &str, globals: &Globals) {
        if print::can_ask() {
            print::hint(&format!(
                "go on with `trilogue chat {} --thread {thread}{}`",
                self.agent,
                globals.elsewhere()
            ));
        }
    }
}

/// What is said, line by line.
struct Lines<'a> {
    /// What is added to the next line.
    attach: &'a [String],
}

// === impl Lines ===

impl Lines<'_> {
    /// The next line that says something; `None` at the end.
    async fn next(&mut self) -> Result<Option<RunInput>> {
        while let Some(text) = ask::read_line("> ").await? {
            match text.trim() {
                "" => {}
                "/quit" => return Ok(None),
                _ => {
                    let attach = std::mem::take(&mut self.attach);
                    // What comes through a pipe may be somebody else's words.
                    return attach::said(text, print::can_ask(), attach).map(Some);
                }
            }
        }
        Ok(None)
    }
}

/// A run that failed or was cancelled ends its turn, not the conversation.
fn settle(turn: Result) -> Result {
    match turn {
        Err(stop) if print::can_ask() && goes_on(&stop) => {
            print::stop(&stop);
            Ok(())
        }
        ended => ended,
    }
}

fn goes_on(stop: &Stop) -> bool {
    matches!(stop.exit, Exit::Failed | Exit::Cancelled)
        || (stop.exit == Exit::Interrupted && !stop.message.is_empty())
}
