//! The server that `trilogue connect` and `trilogue wrap` start when none runs.

use clap::Args;
use trilogue::config::{self, List, Log, LogFormat, Options, Socket};
use trilogue::local::{LocalListener, LogFile, UserServerDir, start};
use trilogue::{Agents, App, Listeners};
use trilogue_domain::Code;

use crate::command::demo::built_in;
use crate::exit::{CliError, Result};
use crate::server_command::{Signals, run};
use crate::terminal::print;

/// Run the server that `connect` and `wrap` start when none runs.
///
/// It reads `trilogue/trilogue.toml` in the user's configuration folder; without that file it has the built-in agents. Relative paths begin in the per-user state folder.
#[derive(Args, Debug)]
pub(crate) struct UserServer {}

// === impl UserServer ===

impl UserServer {
    pub(crate) async fn execute(&self) -> Result {
        start::detach();
        let signals = Signals::listen()?;
        let dir = UserServerDir::of_user().map_err(|error| {
            CliError::usage(format!("cannot find the state folder: {error}"))
                .hint("set XDG_STATE_HOME")
        })?;
        let local_listener = {
            let dir = dir.clone();
            tokio::task::spawn_blocking(move || LocalListener::open_on_demand(&dir)).await
        };
        let local_listener = match local_listener {
            Ok(LocalListener::Failed(error)) => {
                return Err(CliError::failed(format!(
                    "cannot use {}: {error}",
                    dir.folder().display()
                )));
            }
            // The starter finds the other server.
            Ok(LocalListener::Taken(_)) => {
                print::note("this user's server runs already");
                return Ok(());
            }
            Ok(local_listener) => local_listener,
            Err(_) => return Err(CliError::failed("cannot read the per-user folder")),
        };
        let options = options(&dir)?;
        config::check(&options)?;
        trilogue::logging::start(&options.log)?;
        let listeners = listen(&options).await?;
        let app = App::build_behind(local_listener, &options, Agents::new(), listeners).await?;
        for address in app.addresses() {
            print::note(&format!("listening: http://{address}"));
        }
        tokio::spawn(LogFile::at(dir.log()).keep_bounded());
        Box::pin(run(app, signals, options.log.format)).await
    }
}

fn options(dir: &UserServerDir) -> Result<Options> {
    let mut options = match start::config_file() {
        Some(file) => config::load(&file)?.options,
        None => {
            let mut options = Options {
                agents: built_in(),
                log: Log { format: LogFormat::Text, level: "info".to_owned() },
                ..Options::default()
            };
            let store = dir.folder().join("trilogue.db");
            options.store.url = format!("sqlite:{}", store.display());
            options
        }
    };
    options.server.socket = Socket::On;
    Ok(options)
}

/// Listens at the configured addresses, or on any free loopback port where one of them is in use.
async fn listen(options: &Options) -> Result<Listeners> {
    match Listeners::bind(&options.server).await {
        Err(error) if error.code() == Code::AlreadyExists => {
            print::note(&format!("{}: listening on any free port", error.message()));
            let mut server = options.server.clone();
            server.listen = List(vec![([127, 0, 0, 1], 0).into()]);
            Ok(Listeners::bind(&server).await?)
        }
        bound => Ok(bound?),
    }
}
