//! `trilogue run`.

use std::io::{IsTerminal as _, Read as _};

use clap::Args;
use trilogue_domain::limits;
use trilogue_wire::native::RunInput;

use crate::command::ad_hoc::AdHocArguments;
use crate::command::globals::{Globals, json};
use crate::conversation::attach;
use crate::conversation::remote::{RemoteServer, ServerProtocol};
use crate::conversation::run_settings::SettingArguments;
use crate::conversation::{
    Conversation, RemoteAgent, Target, ViewArguments, unless_interrupted, with_agent,
};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::{print, safe};

/// Run an agent and show its answer.
///
/// The agent is one of the server, a known one such as claude or gemini (see `trilogue agents known`), or any command of the Agent Client Protocol: `trilogue run --command 'python3 agent.py' "TEXT"`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The agent. Leave it out with --command.
    agent: Option<String>,
    /// The message. `-`, or no text while standard input is a pipe, reads it from there.
    text: Option<String>,
    /// Give the agent this JSON value instead of a message.
    #[arg(long, value_name = "JSON", conflicts_with_all = ["text", "attach"])]
    input: Option<String>,
    /// Run on this thread, which is created if it is missing. By default on a new one.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Run on a new thread that is not listed.
    #[arg(long, conflicts_with = "thread")]
    ephemeral: bool,
    /// Attach a file or an address to the message. May be given several times.
    #[arg(long, value_name = "FILE|URL")]
    attach: Vec<String>,
    /// Also attach the files that the text names as `@path`. Use this only for a text that you wrote yourself: the author of the text chooses the files.
    #[arg(long)]
    at_files: bool,
    /// Start the run, print its id and leave.
    #[arg(long)]
    no_wait: bool,
    /// The server's protocol. `auto` asks a server at another address than the default.
    #[arg(long, value_enum, default_value_t, value_name = "PROTOCOL")]
    protocol: ServerProtocol,
    #[command(flatten)]
    view: ViewArguments,
    #[command(flatten)]
    settings: SettingArguments,
    #[command(flatten)]
    ad_hoc: AdHocArguments,
}

// === impl Run ===

impl Run {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let (agent, text) = self.agent_and_text()?;
        let input = self.input(text)?;
        let (server, protocol, target) = unless_interrupted(self.prepare(agent, globals)).await?;
        with_agent!(&server, protocol, target, |agent| Box::pin(self.run(&agent, input, globals))
            .await)
    }

    /// Finds the agent and its server, which may have to be started.
    async fn prepare(
        &self,
        agent: Option<&str>,
        globals: &Globals,
    ) -> Result<(RemoteServer, ServerProtocol, Target)> {
        let agent = self.ad_hoc.agent(agent, globals).await?;
        let server = RemoteServer::find(globals)?;
        let protocol = server.protocol(globals, self.protocol).await;
        let folder = agent
            .folder(&self.ad_hoc, &server, (protocol, globals), self.thread.as_deref())
            .await?;
        let target = Target {
            agent: agent.name,
            config: self.settings.config(folder)?,
            thread: self.thread.clone(),
            is_ephemeral: self.ephemeral,
        };
        Ok((server, protocol, target))
    }

    async fn run(&self, agent: &impl RemoteAgent, input: RunInput, globals: &Globals) -> Result {
        if self.no_wait {
            let (id, run) = agent.start_detached(input).await?;
            if globals.json {
                return print::json(&run);
            }
            let id = safe::line(&id);
            print::out(&format!("{id}\n"))?;
            if let Some(command) = agent.tail_command(&id, globals) {
                print::hint(&format!("follow it with `{command}`"));
            }
            return Ok(());
        }
        let thread = Conversation::hold(agent, input, &self.view, globals).await?;
        if let (Some(thread), None, true) = (thread, &self.thread, print::can_ask()) {
            print::hint(&format!("continue with --thread {}", agent.noted_thread(&thread)));
        }
        Ok(())
    }

    /// The named agent, and the text. With a command, the only argument is the text.
    fn agent_and_text(&self) -> Result<(Option<&str>, Option<&str>)> {
        let (agent, text) = (self.agent.as_deref(), self.text.as_deref());
        match (agent, text) {
            (Some(_), Some(_)) if self.ad_hoc.has_command() => {
                Err(CliError::usage("an agent's name and a command exclude each other")
                    .hint("leave the name out"))
            }
            (text, None) if self.ad_hoc.has_command() => Ok((None, text)),
            both => Ok(both),
        }
    }

    fn input(&self, text: Option<&str>) -> Result<RunInput> {
        if let (Some(_), Some(_)) | (None, None) = (&self.input, text)
            && (self.input.is_some() || self.at_files)
        {
            return Err(match self.input {
                Some(_) => CliError::usage("--input and a text exclude each other"),
                None => CliError::usage("--at-files needs a text"),
            });
        }
        if let Some(text) = &self.input {
            return Ok(RunInput::Value(json("--input", text)?));
        }
        // Text from a pipe may have another author, so it never names files of the user.
        let text = match text {
            Some("-") if self.at_files => {
                return Err(CliError::usage("--at-files: standard input attaches no files")
                    .hint("name the files with --attach"));
            }
            Some("-") => read_input()?,
            Some(text) => text.to_owned(),
            None if !std::io::stdin().is_terminal() => read_input()?,
            None => {
                return Err(CliError::usage("the message for the agent is missing")
                    .hint("pass a text: trilogue run AGENT \"TEXT\""));
            }
        };
        attach::message(text, self.at_files, &self.attach)
    }
}

/// All of standard input, without line ends at its end.
fn read_input() -> Result<String> {
    let limit = limits::DEFAULT_MAX_BODY_BYTES;
    let mut text = String::new();
    std::io::stdin()
        .take(limit as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| CliError::usage(format!("cannot read standard input: {error}")))?;
    if text.len() > limit {
        return Err(CliError::usage(format!("standard input is larger than {limit} bytes")));
    }
    text.truncate(text.trim_end_matches(['\n', '\r']).len());
    Ok(text)
}
