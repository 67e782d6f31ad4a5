//! The command line: its commands and their options.

use clap::{Parser, Subcommand};

use crate::command::globals::Globals;
use crate::command::{
    agents, approve, backup, cancel, chat, completions, connect, copy, demo, doctor, fidelity,
    inbox, init, login, logs, new, nodes, restore, run, runs, serve, status, stop, tail, threads,
    token, top, ui, user_server, webhooks, wrap,
};

const AFTER_HELP: &str = "\
To begin, start your server with `trilogue demo`. Then, in another terminal:
  trilogue run echo Hello

Exit codes:
  0    success
  1    the run or the request failed
  2    wrong usage, input or configuration
  3    the run needs an answer
  4    not found
  5    token missing, unknown, or without the right
  6    server unreachable
  7    conflict: already exists, or in another state
  8    the run was cancelled elsewhere
  130  interrupted by Ctrl-C";

/// One agent, every ACP: a durable server for agents, and its command line.
#[derive(Parser, Debug)]
#[command(name = "trilogue", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum CliCommand {
    /// Start this user's server with the built-in agents, and print what to try.
    Demo(demo::Demo),
    /// Write a configuration file with comments, and show how to connect your editor. Needs no server.
    Init(init::Init),
    /// Start the server that a configuration file describes.
    Serve(serve::Serve),
    /// Connect an editor to one of the server's agents, with the Agent Client Protocol on standard input and output.
    Connect(connect::Connect),
    /// Connect an editor to a known agent or any agent command, and make its sessions durable and visible to other clients.
    Wrap(wrap::Wrap),
    /// Run the server that `connect` and `wrap` start when none runs.
    #[command(hide = true)]
    UserServer(user_server::UserServer),
    /// Run an agent and show its answer.
    Run(run::Run),
    /// Talk to an agent, line by line.
    Chat(chat::Chat),
    /// List the agents, those known by name, or add one.
    Agents(agents::AgentsCommand),
    /// Write a new agent from a template. Needs no server.
    New(new::New),
    /// List, show, export, copy or erase threads.
    Threads(threads::Threads),
    /// List or show runs.
    Runs(runs::Runs),
    /// Show the events of a thread or a run.
    Tail(tail::TailCommand),
    /// Cancel a run.
    Cancel(cancel::Cancel),
    /// List open questions.
    Inbox(inbox::InboxCommand),
    /// Answer a run's question.
    Approve(approve::Approve),
    /// Watch questions, runs, threads and agents' processes on one live screen.
    Top(top::Top),
    /// Create, list or revoke tokens.
    Token(token::Token),
    /// Save a token for a server at another address.
    Login(login::Login),
    /// Receive callbacks, or list and retry those that a server could not deliver.
    Webhooks(webhooks::Webhooks),
    /// Show the state of the server.
    Status(status::Status),
    /// List the servers that share the store, or take one out.
    Nodes(nodes::NodesCommand),
    /// Open the inspector in the browser.
    Ui(ui::Ui),
    /// Stop this user's server.
    Stop(stop::Stop),
    /// Show the log of this user's server.
    Logs(logs::Logs),
    /// Check this user's set-up, and say what to do.
    Doctor(doctor::Doctor),
    /// Write a backup of the running server's store to a local file.
    Backup(backup::Backup),
    /// Verify a backup, or restore it. Needs no server.
    Restore(restore::Restore),
    /// Copy a store between SQLite and PostgreSQL, and verify the copy. Needs no server.
    ///
    /// All threads, runs, questions and work that waits keep their ids and states; tokens too with --with-tokens. It is one transaction: an interrupted copy leaves nothing.
    ///
    /// A server that uses FROM can keep running, but data that it stores after the copy began is not copied. For a final copy, stop the server first.
    Copy(copy::CopyCommand),
    /// Show what each protocol carries, or what comes through from one to another. Needs no server.
    Fidelity(fidelity::FidelityCommand),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
    /// Print the reference of the configuration file.
    #[command(hide = true)]
    ConfigDocs,
}
