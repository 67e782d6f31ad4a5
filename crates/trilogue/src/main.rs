//! One agent, every ACP: the command line.

mod arguments;
mod attach;
mod command;
mod conversation;
mod exit;
mod globals;
#[cfg(test)]
mod hints;
mod receiver;
mod remote;
mod server_command;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::arguments::{Arguments, Command};
use crate::exit::{CliError, Exit, Result};
use crate::terminal::print;

/// Tokio's variable for the number of worker threads.
const THREADS: &str = "TOKIO_WORKER_THREADS";

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are data, a wrong command line is not: clap knows which stream is whose.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    match execute(&arguments) {
        Ok(()) => Exit::Success.into(),
        Err(error) => {
            print::error(&error);
            error.exit.into()
        }
    }
}

fn execute(arguments: &Arguments) -> Result {
    let serving =
        matches!(arguments.command, Command::Demo(_) | Command::Serve(_) | Command::UserServer(_));
    // A command only waits for one server: one thread is enough.
    let mut runtime = match serving {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    if serving && std::env::var_os(THREADS).is_none() {
        runtime.worker_threads(threads());
    }
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(format!("cannot start the event loop: {error}")))?;
    let done = runtime.block_on(Box::pin(dispatch(arguments)));
    // A question at the terminal may still wait for a key; leaving does not wait for it.
    runtime.shutdown_background();
    done
}

/// How many threads serve: one for each core but one. Agents, clients and the disk want that one, and work that goes from thread to thread
/// costs more than the last thread brings.
fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.saturating_sub(1).max(1)
}

async fn dispatch(arguments: &Arguments) -> Result {
    let globals = &arguments.globals;
    match &arguments.command {
        Command::Demo(demo) => demo.execute(globals).await,
        Command::Serve(serve) => serve.execute(globals).await,
        Command::Connect(connect) => connect.execute(globals).await,
        Command::Wrap(wrap) => wrap.execute(globals).await,
        Command::UserServer(server) => server.execute().await,
        Command::Run(run) => run.execute(globals).await,
        Command::Chat(chat) => chat.execute(globals).await,
        Command::Agents(agents) => agents.execute(globals).await,
        Command::Threads(threads) => threads.execute(globals).await,
        Command::Runs(runs) => runs.execute(globals).await,
        Command::Tail(tail) => tail.execute(globals).await,
        Command::Cancel(cancel) => cancel.execute(globals).await,
        Command::Inbox(inbox) => inbox.execute(globals).await,
        Command::Approve(approve) => approve.execute(globals).await,
        Command::Token(token) => token.execute(globals).await,
        Command::Webhooks(webhooks) => webhooks.execute(globals).await,
        Command::Status(status) => status.execute(globals).await,
        Command::Backup(backup) => backup.execute(globals).await,
        Command::Restore(restore) => restore.execute(globals).await,
        Command::Completions(completions) => completions.execute(),
        Command::ConfigDocs => print::out(&trilogue::config::reference()),
    }
}
