//! The command line: its commands and their options.

use clap::{Args, Parser, Subcommand};
use trilogue::local::{UserServerDir, start};
use trilogue_wire::native::Json;
use url::Url;

use crate::attach::is_local;
use crate::command::{
    agents, approve, backup, cancel, chat, completions, connect, demo, inbox, restore, run, runs,
    serve, status, tail, threads, token, user_server, webhooks, wrap,
};
use crate::exit::{CliError, Result};
use crate::terminal::safe;

/// The default server, where this user has none of their own.
const DEFAULT_URL: &str = "http://127.0.0.1:7878";

const AFTER_HELP: &str = "\
Exit codes:
  0  success                               5  token missing, unknown, or without the right
  1  the run or the request failed         6  server unreachable
  2  wrong usage, input or configuration   7  conflict: already exists, or in another state
  3  the run needs an answer               8  the run was cancelled elsewhere
  4  not found                           130  interrupted by Ctrl-C";

/// One agent, every ACP: a durable server for agents, and its command line.
#[derive(Parser, Debug)]
#[command(name = "trilogue", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Every command")]
pub(crate) struct Globals {
    /// Print the server's objects as JSON to standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The server's address. By default this user's running server, else http://127.0.0.1:7878. `run`, `chat` and `agents` also talk to servers of the Agent Communication Protocol and the Agent Connect Protocol.
    #[arg(long, global = true, env = "TRILOGUE_URL", value_name = "URL")]
    url: Option<String>,
    /// The token. By default the one that the server at this address wrote for this user.
    #[arg(
        long,
        global = true,
        env = "TRILOGUE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start a server with the built-in agents and print what to try.
    Demo(demo::Demo),
    /// Start the server that a configuration file describes.
    Serve(serve::Serve),
    /// Connect an editor to one of the server's agents, with the Agent Client Protocol on standard input and output.
    Connect(connect::Connect),
    /// Connect an editor to any agent command, and make its sessions durable and visible to other clients.
    Wrap(wrap::Wrap),
    /// Run the server that `connect` and `wrap` start when none runs.
    #[command(hide = true)]
    UserServer(user_server::UserServer),
    /// Run an agent and show its answer.
    Run(run::Run),
    /// Talk to an agent, line by line.
    Chat(chat::Chat),
    /// List the agents.
    Agents(agents::Agents),
    /// List, show, export, copy or erase threads.
    Threads(threads::Threads),
    /// List or show runs.
    Runs(runs::Runs),
    /// Show the events of a thread or a run.
    Tail(tail::Tail),
    /// Cancel a run.
    Cancel(cancel::Cancel),
    /// List open questions.
    Inbox(inbox::Inbox),
    /// Answer a run's question.
    Approve(approve::Approve),
    /// Create, list or revoke tokens.
    Token(token::Token),
    /// Receive callbacks, or list and retry those that a server could not deliver.
    Webhooks(webhooks::Webhooks),
    /// Show the state of the server.
    Status(status::Status),
    /// Write a backup of the running server's store to a local file.
    Backup(backup::Backup),
    /// Verify a backup, or restore it. Needs no server.
    Restore(restore::Restore),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Print the reference of the configuration file.
    #[command(hide = true)]
    ConfigDocs,
}

// === impl Globals ===

impl Globals {
    /// The server that an option or a variable names. An empty variable names none.
    fn named(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// The server to talk to: the named one, else this user's, else the default address.
    pub(crate) fn server(&self) -> String {
        let users = || start::running(&UserServerDir::of_user().ok()?)?.url();
        self.named().map(str::to_owned).or_else(users).unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// The named server, unless it is this user's own.
    pub(crate) fn another_server(&self) -> Option<&str> {
        let users = || start::running(&UserServerDir::of_user().ok()?)?.url();
        self.named().filter(|url| match users() {
            Some(users) => !is_same(url, &users),
            // It may have ended because it was idle; then it is started again.
            None => !Url::parse(url).is_ok_and(|url| is_local(&url)),
        })
    }

    /// Whether a server other than the default one is named.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.named().is_some_and(|url| url.trim_end_matches('/') != DEFAULT_URL)
    }

    /// The option with which a suggested command reaches the same server, with a space before it.
    pub(crate) fn elsewhere(&self) -> String {
        let from_environment = |url: &str| std::env::var("TRILOGUE_URL").is_ok_and(|it| it == url);
        match self.named() {
            Some(url) if !from_environment(url) => {
                format!(" --url {}", safe::visible(url))
            }
            _ => String::new(),
        }
    }
}

/// Parses an option's JSON.
pub(crate) fn json(option: &str, text: &str) -> Result<Json> {
    Json::parse(text).map_err(|error| CliError::usage(format!("{option} is not JSON: {error}")))
}

/// Whether both are addresses of one server. The local machine has several names.
fn is_same(url: &str, other: &str) -> bool {
    let (Ok(one), Ok(two)) = (Url::parse(url), Url::parse(other)) else { return url == other };
    let is_one_host = one.host() == two.host() || (is_local(&one) && is_local(&two));
    is_one_host && one.port_or_known_default() == two.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_the_same_server() {
        for (one, two, same) in [
            ("http://127.0.0.1:7878", "http://localhost:7878/", true),
            ("http://[::1]:7878", "http://127.0.0.1:7878", true),
            ("http://127.0.0.1:7878", "http://127.0.0.1:7879", false),
            ("http://example.com:7878", "http://127.0.0.1:7878", false),
            ("http://example.com", "http://example.com:80/", true),
        ] {
            assert_eq!(is_same(one, two), same, "{one} {two}");
        }
    }

    #[test]
    fn suggested_commands_name_the_named_server() {
        let elsewhere = |arguments: &[&str]| {
            let all = ["trilogue", "status"].iter().chain(arguments);
            Arguments::try_parse_from(all).unwrap().globals.elsewhere()
        };
        for url in [DEFAULT_URL, "http://127.0.0.1:7879"] {
            assert_eq!(elsewhere(&["--url", url]), format!(" --url {url}"));
        }
        assert_eq!(elsewhere(&["--url", ""]), "");
    }
}
