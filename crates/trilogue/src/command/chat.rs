//! `trilogue chat`.

use clap::Args;
use futures_util::FutureExt as _;
use tokio::signal::unix::Signal;
use trilogue_sdk::ThreadId;
use trilogue_wire::native::RunInput;

use crate::command::ad_hoc::AdHocArguments;
use crate::command::globals::Globals;
use crate::conversation::attach;
use crate::conversation::between_turns::BetweenTurns;
use crate::conversation::remote::{RemoteServer, ServerProtocol};
use crate::conversation::run_settings::SettingArguments;
use crate::conversation::{
    Conversation, RemoteAgent, Target, ViewArguments, termination, unless_interrupted, with_agent,
};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{ask, print, safe};

const PROMPT: &str = "> ";
const HELP: &str = "\
@path    attach a file, anywhere in a line
/help    show this
/quit    leave; so does Ctrl-D
Ctrl-C   ask the agent to stop; twice, or while nothing runs: leave
Other lines are for the agent, also those with another command of its own.";

/// Talk to an agent, line by line. Empty lines are skipped; `/quit` or the end of the input ends it, `/help` says what else there is.
///
/// A file that a line names as `@path` is attached to the message, if the line is typed at a terminal.
#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// The agent: one of the server, or a known one. Leave it out with --command.
    agent: Option<String>,
    /// Continue this thread, which is created if it is missing.
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Attach a file or an address to the first message. May be given several times.
    #[arg(long, value_name = "FILE|URL")]
    attach: Vec<String>,
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

// === impl Chat ===

impl Chat {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let (server, protocol, target) = unless_interrupted(self.prepare(globals)).await?;
        let thread = target.thread.clone().unwrap_or_default();
        with_agent!(&server, protocol, target, |agent| Box::pin(
            self.talk(&agent, &thread, globals)
        )
        .await)
    }

    /// Finds the agent and its server, which may have to be started.
    async fn prepare(&self, globals: &Globals) -> Result<(RemoteServer, ServerProtocol, Target)> {
        if let (Some(agent), true) = (&self.agent, self.ad_hoc.has_command()) {
            let agent = safe::visible(agent);
            return Err(CliError::usage(format!("'{agent}' and a command exclude each other"))
                .hint("leave the name out"));
        }
        let agent = self.ad_hoc.agent(self.agent.as_deref(), globals).await?;
        let server = RemoteServer::find(globals)?;
        let protocol = server.protocol(globals, self.protocol).await;
        let folder = agent
            .folder(&self.ad_hoc, &server, (protocol, globals), self.thread.as_deref())
            .await?;
        let generated = || ThreadId::generate().as_str().to_owned();
        let thread = self.thread.clone().unwrap_or_else(generated);
        let target = Target {
            agent: agent.name,
            config: self.settings.config(folder)?,
            thread: Some(thread),
            is_ephemeral: false,
        };
        Ok((server, protocol, target))
    }

    async fn talk(&self, agent: &impl RemoteAgent, thread: &str, globals: &Globals) -> Result {
        // First: a signal between two steps counts too.
        let mut termination = termination()?;
        unless_interrupted(agent.check()).await?;
        let thread = agent.noted_thread(thread);
        print::note(&format!("thread: {thread}"));
        if print::can_ask() {
            print::note("/help shows what you can type");
        }
        let mut lines = InputLines { attach: &self.attach };
        while let Some(input) = next_input(agent, &mut lines, &mut termination).await? {
            let ended = Conversation::hold(agent, input, &self.view, globals).await.map(drop);
            if is_terminated(&mut termination) {
                // Ctrl-C ends a turn, and SIGTERM the chat.
                return ended.and(Err(CliError::silent(ExitStatus::Interrupted)));
            }
            keep_talking(ended)?;
        }
        if print::can_ask() {
            let name = self.ad_hoc.agent_arguments(self.agent.as_deref());
            let elsewhere = globals.url_option();
            print::hint(&format!(
                "continue with `trilogue chat {name} --thread {thread}{elsewhere}`"
            ));
        }
        Ok(())
    }
}

/// The user's next message. Meanwhile a person sees what happens on the thread.
async fn next_input(
    agent: &impl RemoteAgent,
    lines: &mut InputLines<'_>,
    termination: &mut Signal,
) -> Result<Option<RunInput>> {
    // A pipe's lines do not wait for each other.
    let stream = agent.events_between_turns().filter(|_| print::can_ask());
    let mut between = BetweenTurns::new(stream);
    let mut next = std::pin::pin!(lines.next(termination));
    loop {
        tokio::select! {
            biased;
            input = &mut next => return input,
            event = between.next() => between.show(&event, PROMPT)?,
        }
    }
}

/// The user's messages, line by line.
struct InputLines<'a> {
    /// What is attached to the next message.
    attach: &'a [String],
}

// === impl InputLines ===

impl InputLines<'_> {
    async fn next(&mut self, termination: &mut Signal) -> Result<Option<RunInput>> {
        while let Some(text) = ask::next_line(PROMPT, termination).await? {
            match text.trim() {
                "" => {}
                "/quit" => return Ok(None),
                // Only a person needs help: a line from a pipe is for the agent.
                "/help" if print::can_ask() => print::note(HELP),
                _ => {
                    let attach = std::mem::take(&mut self.attach);
                    // Text from a pipe may have another author.
                    return attach::message(text, print::can_ask(), attach).map(Some);
                }
            }
        }
        Ok(None)
    }
}

/// Whether SIGTERM came since the last look.
fn is_terminated(termination: &mut Signal) -> bool {
    termination.recv().now_or_never().is_some()
}

/// Without a person at the terminal, a run that failed or was cancelled ends the chat. With one, it ends only its turn.
fn keep_talking(turn: Result) -> Result {
    match turn {
        Err(error) if print::can_ask() && ends_only_its_turn(&error) => {
            print::error(&error);
            Ok(())
        }
        ended => ended,
    }
}

fn ends_only_its_turn(error: &CliError) -> bool {
    matches!(error.exit, ExitStatus::Failed | ExitStatus::Cancelled)
        || (error.exit == ExitStatus::Interrupted && !error.message.is_empty())
}
