//! The command line: its commands and their options.

use clap::{Args, Parser, Subcommand};
use trilogue::local::{Place, start};
use url::Url;

use crate::attach::is_here;
use crate::command::{
    agents, approve, backup, cancel, chat, completions, connect, demo, inbox, restore, run, runs,
    serve, status, tail, threads, token, user_server, webhooks, wrap,
};
use crate::terminal::safe;

/// The server that commands talk to where nobody names another, and this user has none.
const DEFAULT_URL: &str = "http://127.0.0.1:7878";

/// What stands below `--help`.
const AFTER_HELP: &str = "\
Exit codes:
  0  done                                  5  token missing, unknown, or lacking a right
  1  the run or the request failed         6  server unreachable
  2  wrong usage, input or configuration   7  conflict: taken, or in another state
  3  waiting for an answer                 8  the run was cancelled elsewhere
  4  no such thing                       130  interrupted by Ctrl-C";

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
    /// Print the server's objects as JSON, and nothing else, to standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The server to talk to; by default this user's, where one runs, else the one at http://127.0.0.1:7878. `run` and `chat` talk to any server of the Agent Communication Protocol, too.
    #[arg(long, global = true, env = "TRILOGUE_URL", value_name = "URL")]
    url: Option<String>,
    /// The token to use; by default the one that the server on that address left for this user.
    #[arg(
        long,
        global = true,
        env = "TRILOGUE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Start a server with the built-in agents and print what to try.
    Demo(demo::Demo),
    /// Start the server that a configuration file describes.
    Serve(serve::Serve),
    /// Be an agent for an editor, which launches this: the Agent Client Protocol on standard input and output.
    Connect(connect::Connect),
    /// The same for any command that is such an agent itself: durable from then on, and seen by every other client.
    Wrap(wrap::Wrap),
    /// Be the server that `connect` and `wrap` start where none runs.
    #[command(hide = true)]
    UserServer(user_server::UserServer),
    /// Run an agent and show what it says.
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
    /// List what waits for an answer.
    Inbox(inbox::Inbox),
    /// Answer what a run waits for.
    Approve(approve::Approve),
    /// Create, list or revoke tokens.
    Token(token::Token),
    /// Receive callbacks here, or look after those that a server could not deliver.
    Webhooks(webhooks::Webhooks),
    /// Show the state of the server.
    Status(status::Status),
    /// Write a backup of the server's store to a file here, while the server runs.
    Backup(backup::Backup),
    /// Verify a backup, or put it in the place of a store. Works without a server.
    Restore(restore::Restore),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Print the reference of the configuration file.
    #[command(hide = true)]
    ConfigDocs,
}

// === impl Globals ===

impl Globals {
    /// The server that is named. A variable that is empty names none.
    fn named(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// The server to talk to: the one that is named; else this user's, wherever it listens; else the usual address.
    pub(crate) fn server(&self) -> String {
        let users = || start::running(&Place::of_user().ok()?)?.url();
        self.named().map(str::to_owned).or_else(users).unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// The server that is named, where it is another one than this user's.
    pub(crate) fn another_server(&self) -> Option<&str> {
        let users = || start::running(&Place::of_user().ok()?)?.url();
        self.named().filter(|url| match users() {
            Some(users) => !is_same(url, &users),
            // It may have been idle and ended: then it is started again.
            None => !Url::parse(url).is_ok_and(|url| is_here(&url)),
        })
    }

    /// Whether another server than the usual one is named.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.named().is_some_and(|url| url.trim_end_matches('/') != DEFAULT_URL)
    }

    /// What a further command needs beside its own arguments to reach the same server, with a space before it.
    pub(crate) fn elsewhere(&self) -> String {
        let from_environment = |url: &str| std::env::var("TRILOGUE_URL").is_ok_and(|it| it == url);
        // What nobody named is found again without a name. The usual one is another than this user's, where one runs.
        match self.named() {
            Some(url) if !from_environment(url) => {
                format!(" --url {}", safe::visible(url))
            }
            _ => String::new(),
        }
    }
}

/// Whether both are the address of one server. This machine has several names.
fn is_same(url: &str, other: &str) -> bool {
    let (Ok(one), Ok(two)) = (Url::parse(url), Url::parse(other)) else { return url == other };
    let is_one_host = one.host() == two.host() || (is_here(&one) && is_here(&two));
    is_one_host && one.port_or_known_default() == two.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_several_names() {
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
    fn a_further_command_names_the_server_that_was_named() {
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
