//! One run of an agent, without a sandbox and under `strace`.

use std::path::Path;
use std::time::Duration;

use trilogue::config::{List, Log, LogFormat, Options, Socket, Span};
use trilogue::local::LocalListener;
use trilogue::{Agents, App};
use trilogue_backends::child::ChildTrace;
use trilogue_wire::native::{Json, RunInput};

use crate::command::globals::Globals;
use crate::command::server_command::bind;
use crate::conversation::remote::RemoteServer;
use crate::conversation::{Conversation, NativeAgent, RemoteAgent as _, Target, ViewArguments};
use crate::terminal::exit::{CliError, Result};

/// How long the agent may take to stop after its run, in seconds.
const STOP_SECONDS: u64 = 2;
/// The most output of `strace` on the disk, in bytes.
const MAX_TRACE_BYTES: u64 = 1024 * 1024 * 1024;
/// How often its size is looked at.
const SIZE_INTERVAL: Duration = Duration::from_secs(1);

/// A run at a temporary server.
pub(super) struct TracedRun<'a> {
    pub(super) options: Options,
    pub(super) agent: &'a str,
    pub(super) prompt: &'a str,
    /// Settings of the run.
    pub(super) settings: Option<Json>,
    pub(super) limit: Duration,
}

// === impl TracedRun ===

impl TracedRun<'_> {
    /// Runs the agent, and ends all of its processes. What it says goes to standard error.
    pub(super) async fn execute(mut self, globals: &Globals, trace: &ChildTrace) -> Result {
        self.options.server.listen = List(vec![([127, 0, 0, 1], 0).into()]);
        self.options.server.socket = Socket::Off;
        self.options.server.shutdown_deadline = Span::seconds(STOP_SECONDS);
        self.options.log = Log { format: LogFormat::Text, level: "warn".to_owned() };
        let _log = trilogue::server::logging::start(&self.options.log)?;
        let listeners = bind(&self.options, false).await?;
        let built =
            App::build_behind(LocalListener::Off, &self.options, Agents::new(), listeners).await;
        let app = built?;
        let token_files = app.token_files().to_vec();
        let token = token_files.first().map(std::fs::read_to_string).transpose();
        let token = token
            .map_err(|error| CliError::failure(format!("the token cannot be read: {error}")))?
            .unwrap_or_default();
        let url = app.addresses().first().map(|address| format!("http://{address}"));
        let end_agents = app.end_agents();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(app.run(async move { drop(stopped.await) }));
        let mut globals = globals.of(&url.unwrap_or_default(), token.trim());
        globals.json = false;
        let ran = tokio::select! {
            ran = self.converse(&globals) => ran,
            () = tokio::time::sleep(self.limit) => Err(CliError::failure(format!(
                "the run did not end within {}", Span(self.limit)
            )).hint("give it more time with --timeout")),
            () = until_large(&trace.folder) => Err(CliError::failure(format!(
                "the agent does too much: its calls fill {MAX_TRACE_BYTES} bytes"
            )).hint("give a prompt with less work")),
        };
        end_agents();
        drop(stop);
        let served = serving.await;
        for file in token_files {
            // The token died with its store.
            drop(std::fs::remove_file(file));
        }
        ran?;
        served.map_err(|_| CliError::failure("the temporary server ended with a panic"))??;
        Ok(())
    }

    async fn converse(&self, globals: &Globals) -> Result {
        let server = RemoteServer::find(globals)?;
        let target = Target {
            agent: self.agent.to_owned(),
            config: self.settings.clone(),
            thread: None,
            is_ephemeral: true,
        };
        let agent = NativeAgent::open(&server, target).await?;
        let input = RunInput::Text(self.prompt.to_owned());
        let view = ViewArguments::aside();
        Conversation::hold(&agent, input, &view, globals).await.map(drop)
    }
}

/// Waits until the files of a folder are too large. Errors leave the decision to the reader of the files.
async fn until_large(folder: &Path) {
    loop {
        tokio::time::sleep(SIZE_INTERVAL).await;
        let entries = folder.read_dir().into_iter().flatten().flatten();
        let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
        if sizes.sum::<u64>() > MAX_TRACE_BYTES {
            return;
        }
    }
}
