//! One agent, every ACP: the command line.

mod command;
mod conversation;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

use crate::command::arguments::{Arguments, CliCommand};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::print;

/// The allocator of the C library took a sixth of the instructions of a run: decision 24.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const THREADS: &str = "TOKIO_WORKER_THREADS";

fn main() -> ExitCode {
    // Before anything else: a stage becomes another program, and needs one thread.
    if let Some(ended) = trilogue::run_stage() {
        return ended.unwrap_or_else(|error| {
            print::error(&CliError::failure(format!("the sandbox could not be made: {error}")));
            ExitCode::from(trilogue::STAGE_FAILED)
        });
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(explained) = command::usual_commands::explain(&error) {
                print::error(&explained);
                return explained.exit.into();
            }
            // Help and version are data, a wrong command line is not: clap knows which stream is whose.
            let _ = error.print();
            return if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Success }.into();
        }
    };
    match execute(&arguments) {
        Ok(()) => ExitStatus::Success.into(),
        Err(error) => {
            let error = arguments.globals.explain_refusal(error);
            print::error(&error);
            error.exit.into()
        }
    }
}

fn execute(arguments: &Arguments) -> Result {
    // A command only waits for one server: one thread is enough.
    let threads = threads(&arguments.command);
    let mut runtime = match threads {
        Some(_) => tokio::runtime::Builder::new_multi_thread(),
        None => tokio::runtime::Builder::new_current_thread(),
    };
    if let Some(threads) = threads.filter(|_| std::env::var_os(THREADS).is_none()) {
        runtime.worker_threads(threads);
    }
    let runtime = runtime
        .enable_all()
        .build()
        .map_err(|error| CliError::failure(format!("cannot start the event loop: {error}")))?;
    let done = runtime.block_on(Box::pin(dispatch(arguments)));
    // A question at the terminal may still wait for a key; leaving does not wait for it.
    runtime.shutdown_background();
    done
}

/// Returns the number of threads that a command serves with, or `None` if the command serves no clients.
///
/// A server of requests uses every core. A user's own server runs between an editor and its agents. The agents need the last
/// core, and moving work between threads costs each turn more than that core gains. `docs/benchmarks.md` has the figures.
fn threads(command: &CliCommand) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match command {
        CliCommand::Demo(_) | CliCommand::Serve(_) => Some(cores),
        CliCommand::UserServer(_) => Some(cores.saturating_sub(1).max(1)),
        _ => None,
    }
}

async fn dispatch(arguments: &Arguments) -> Result {
    let globals = &arguments.globals;
    match &arguments.command {
        CliCommand::Demo(demo) => demo.execute(globals).await,
        CliCommand::Serve(serve) => serve.execute(globals).await,
        CliCommand::Connect(connect) => connect.execute(globals).await,
        CliCommand::Wrap(wrap) => wrap.execute(globals).await,
        CliCommand::UserServer(server) => server.execute().await,
        CliCommand::Run(run) => run.execute(globals).await,
        CliCommand::Chat(chat) => chat.execute(globals).await,
        CliCommand::Agents(agents) => agents.execute(globals).await,
        CliCommand::Init(init) => init.execute(globals),
        CliCommand::New(new) => new.execute(globals),
        CliCommand::Threads(threads) => threads.execute(globals).await,
        CliCommand::Runs(runs) => runs.execute(globals).await,
        CliCommand::Tail(tail) => tail.execute(globals).await,
        CliCommand::Cancel(cancel) => cancel.execute(globals).await,
        CliCommand::Inbox(inbox) => inbox.execute(globals).await,
        CliCommand::Approve(approve) => approve.execute(globals).await,
        CliCommand::Top(top) => top.execute(globals).await,
        CliCommand::Token(token) => token.execute(globals).await,
        CliCommand::Login(login) => login.execute(globals).await,
        CliCommand::Webhooks(webhooks) => webhooks.execute(globals).await,
        CliCommand::Status(status) => status.execute(globals).await,
        CliCommand::Nodes(nodes) => nodes.execute(globals).await,
        CliCommand::Ui(ui) => ui.execute(globals).await,
        CliCommand::Stop(stop) => stop.execute(globals).await,
        CliCommand::Logs(logs) => logs.execute(globals).await,
        CliCommand::Doctor(doctor) => doctor.execute(globals).await,
        CliCommand::Backup(backup) => backup.execute(globals).await,
        CliCommand::Restore(restore) => restore.execute(globals).await,
        CliCommand::Copy(copy) => copy.execute(globals).await,
        CliCommand::Fidelity(fidelity) => fidelity.execute(globals),
        CliCommand::Completions(completions) => completions.execute(),
        CliCommand::ConfigDocs => print::out(&trilogue::config::reference()),
    }
}
