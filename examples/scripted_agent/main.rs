//! An agent of the Agent Client Protocol that does what its prompts say: the other side of tests, and a playground for clients.
//!
//! ```text
//! cargo build -p trilogue-examples --example scripted_agent
//! trilogue wrap -- target/debug/examples/scripted_agent --load --store /tmp/sessions
//! ```
//!
//! Every line of a prompt's text is one instruction; see [`turn`]. A line that is none is said back.

mod agent;
mod content;
mod ears;
mod large;
mod openings;
mod session;
mod tools;
mod trials;
mod turn;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use trilogue_sdk::agent_client::peer::{Options, Peer};

use agent::Scripted;
use ears::Ears;

/// Does what its prompts say, over standard input and output.
#[derive(Parser, Clone, Debug)]
#[command(name = "scripted_agent")]
struct Arguments {
    /// Open sessions again with `session/load`.
    #[arg(long)]
    load: bool,
    /// Open sessions again with `session/resume`.
    #[arg(long)]
    resume: bool,
    /// Keep sessions in this folder, so that another process finds them.
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
    /// When the history is told after `session/load`.
    #[arg(long, value_enum, default_value_t = Replay::Before)]
    replay: Replay,
    /// Answer `session/load` with this error.
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    load_error: Option<i32>,
    /// Say everything that opens a session before its answer.
    #[arg(long)]
    early_updates: bool,
    /// What ids the pieces of messages have.
    #[arg(long, value_enum, default_value_t = Ids::Uuid)]
    ids: Ids,
    /// The same as `--ids none`.
    #[arg(long)]
    no_ids: bool,
    /// What is answered as `userMessageId`.
    #[arg(long, value_enum, default_value_t = UserId::Echo)]
    user_id: UserId,
    /// Offer the modes `ask` and `code`.
    #[arg(long)]
    modes: bool,
    /// Offer the options `model` and `verbose`.
    #[arg(long)]
    config: bool,
    /// Announce commands when a session is opened.
    #[arg(long)]
    commands: bool,
    /// Take images, audio and embedded resources.
    #[arg(long)]
    media: bool,
    /// Ask to be authenticated with these methods before sessions. May be given several times.
    #[arg(long, value_name = "METHOD")]
    auth: Vec<String>,
    /// What happens to a prompt while another is at work.
    #[arg(long, value_enum, default_value_t = Busy::Queue)]
    busy: Busy,
    /// The version that `initialize` is answered with.
    #[arg(long, default_value_t = 1)]
    protocol: u16,
    /// Wait so many milliseconds before the first answer.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    slow_start: u64,
    /// End with this exit code before the first answer.
    #[arg(long, value_name = "CODE")]
    die_at_start: Option<u8>,
    /// Start a process that goes on by itself, and write its id there.
    #[arg(long, value_name = "FILE")]
    stray: Option<PathBuf>,
    /// Go on when standard input ends.
    #[arg(long)]
    ignore_eof: bool,
    /// Write the process id there.
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,
    /// Write everything that comes there, one message a line: requests and notifications as they are, and answers with the method that was asked.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write what comes there, byte for byte.
    #[arg(long, value_name = "FILE")]
    heard: Option<PathBuf>,
    #[command(flatten)]
    openings: openings::Openings,
}

/// When the history is told after `session/load`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Replay {
    /// Before the answer.
    Before,
    /// After the answer.
    Late,
    /// The first of it before the answer, and the rest piece by piece after it.
    Split,
    /// Never.
    Never,
}

/// What ids the pieces of messages have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Ids {
    /// A UUID for each message.
    Uuid,
    /// `m1`, `m2`… in each turn again.
    Counter,
    /// None.
    None,
    /// `null`.
    Null,
}

/// What is answered as `userMessageId`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum UserId {
    /// What the prompt said.
    Echo,
    /// An id of its own.
    Own,
    /// Nothing.
    None,
}

/// What happens to a prompt while another is at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Busy {
    /// It waits.
    Queue,
    /// It is refused.
    Reject,
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.no_ids {
        arguments.ids = Ids::None;
    }
    if let Err(error) = prepare(&arguments) {
        tools::complain(&format!("cannot start: {error}"));
        return ExitCode::FAILURE;
    }
    if let Some(code) = arguments.die_at_start {
        tools::complain("this agent was told to die at its start");
        return ExitCode::from(code);
    }
    tokio::time::sleep(Duration::from_millis(arguments.slow_start)).await;
    let ignores_eof = arguments.ignore_eof;
    let ears = match Ears::new(arguments.heard.as_ref()) {
        Ok(ears) => ears,
        Err(error) => {
            tools::complain(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let agent = Arc::new(Scripted::new(arguments));
    let peer = Peer::start(ears, tokio::io::stdout(), agent, Options::agent());
    peer.ended().await;
    if ignores_eof {
        std::future::pending::<()>().await;
    }
    peer.close();
    peer.flushed().await;
    // Reading standard input cannot be given up, and the runtime would wait for it.
    std::process::exit(0);
}

fn prepare(arguments: &Arguments) -> std::io::Result<()> {
    if let Some(file) = &arguments.pid_file {
        std::fs::write(file, std::process::id().to_string())?;
    }
    if let Some(file) = &arguments.stray {
        let mut stray = std::process::Command::new("setsid");
        let stray = stray
            .args(["sleep", "1000"])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()?;
        std::fs::write(file, stray.id().to_string())?;
    }
    if let Some(folder) = &arguments.store {
        std::fs::create_dir_all(folder)?;
    }
    Ok(())
}
