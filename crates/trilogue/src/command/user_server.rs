//! The server that `trilogue connect` and `trilogue wrap` start when none runs.

use clap::Args;
use trilogue::config;
use trilogue::local::{LogFile, StartedBy, start, user_options};
use trilogue::{Agents, App};

use crate::command::server_command::{Signals, bind, claim, run, user_server_dir};
use crate::terminal::exit::Result;
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
        let dir = user_server_dir()?;
        let mut local_listener = match claim(&dir, StartedBy::OnDemand).await? {
            Ok(local_listener) => local_listener,
            // The starter finds the other server.
            Err(by) => {
                let who = by.map_or_else(String::new, |by| format!(": {by}"));
                print::note(&format!("this user's server runs already{who}"));
                return Ok(());
            }
        };
        let options = user_options(&dir)?;
        if let Some(file) = start::config_file() {
            local_listener.set_config(&file);
        }
        config::check(&options)?;
        let _log = trilogue::server::logging::start(&options.log)?;
        let listeners = bind(&options, true).await?;
        // Its starter writes standard error there.
        local_listener.set_log(&dir.log());
        let app = App::build_behind(local_listener, &options, Agents::new(), listeners).await?;
        for address in app.addresses() {
            print::note(&format!("listening: http://{address}"));
        }
        tokio::spawn(LogFile::at(dir.log()).keep_bounded());
        Box::pin(run(app, signals, options.log.format)).await
    }
}
