//! `trilogue connect`.

use clap::Args;
use trilogue::config::{self, Span};
use trilogue::local::UserServerDir;
use trilogue::local::proxy::{
    self, ProxyNotice, RECONNECT_LIMIT, REMOTE_RECONNECT_LIMIT, RemoteEndpoint, ServerLink,
    ServerPlace, Stdio,
};
use trilogue::local::start::{self, Starter};
use trilogue_domain::{Code, Error};
use trilogue_wire::native::local::{AgentTarget, Attach};

use crate::command::globals::Globals;
use crate::conversation::remote::RemoteServer;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, safe};

/// Connect an editor to one of the server's agents.
///
/// The editor launches this command and speaks the Agent Client Protocol on its standard input and output.
/// The agent runs in this user's server. The command starts one when none runs. Sessions outlive the editor, and the editor only notices a pause when the server restarts.
/// With --url, the agent runs in that server, and the editor only notices a pause when this machine sleeps or has no network. `trilogue login` saves the token for it.
#[derive(Args, Debug)]
pub(crate) struct Connect {
    /// The agent's name.
    #[arg(value_name = "AGENT")]
    agent: String,
    #[command(flatten)]
    proxy: ProxyArguments,
}

/// How the server is found.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ProxyArguments {
    /// How long to wait for a server that has gone away. By default a minute for this user's server, and a day for one at another address.
    #[arg(long, value_name = "DURATION")]
    give_up_after: Option<Span>,
}

// === impl Connect ===

impl Connect {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        // Editors launch it in the folder of their sessions.
        let here =
            std::env::current_dir().ok().and_then(|cwd| cwd.into_os_string().into_string().ok());
        let wish = AgentTarget::Attach(Attach { agent: self.agent.clone(), cwd: here });
        self.proxy.relay(wish, globals).await
    }
}

// === impl ProxyArguments ===

impl ProxyArguments {
    /// Relays between the editor and the agent until the editor is gone.
    pub(crate) async fn relay(&self, wish: AgentTarget, globals: &Globals) -> Result {
        let link = match globals.remote_server() {
            Some(_) => self.remote_link(wish, globals)?,
            None => self.link(wish, globals)?,
        };
        let mut said = None;
        let tell = |told: &ProxyNotice| {
            if let ProxyNotice::Refused(error) = told {
                said = Some(error.clone());
            }
            report_notice(told);
        };
        proxy::run(link, Stdio::open(), tell).await.map_err(|error| {
            let was_said = said.as_ref() == Some(&error);
            let failed = to_cli_error(error);
            if was_said { CliError::silent(failed.exit) } else { failed }
        })
    }

    /// Makes the server have an agent, and returns its name there.
    pub(crate) async fn register(&self, wish: AgentTarget, globals: &Globals) -> Result<String> {
        let opened = self.link(wish, globals)?.register().await.map_err(to_cli_error)?;
        Ok(opened.agent)
    }

    /// A link to the server that --url names.
    fn remote_link(&self, wish: AgentTarget, globals: &Globals) -> Result<ServerLink> {
        let (url, token) = RemoteServer::find(globals)?.for_connection()?;
        let endpoint = RemoteEndpoint::new(&url, token).map_err(to_cli_error)?;
        Ok(ServerLink {
            server: ServerPlace::Remote(endpoint),
            wish,
            reconnect_limit: self.give_up_after.map_or(REMOTE_RECONNECT_LIMIT, |span| span.0),
            client: uuid::Uuid::new_v4().to_string(),
        })
    }

    /// A link to this user's server on this machine.
    pub(crate) fn link(&self, wish: AgentTarget, globals: &Globals) -> Result<ServerLink> {
        let only = "commands can only be wrapped by this user's server on this machine, not by";
        let elsewhere = "; to use an agent of that server: trilogue connect AGENT --url URL; to wrap a command there, launch this on that machine, for example with ssh";
        globals.require_users_server(only, elsewhere)?;
        let dir = UserServerDir::of_user().map_err(|error| {
            CliError::usage(format!("cannot find the state folder: {error}"))
                .hint("set XDG_STATE_HOME")
        })?;
        let program = start::this_program().map_err(|error| {
            CliError::failure(format!("cannot find this program's own file: {error}"))
        })?;
        Ok(ServerLink {
            server: ServerPlace::User {
                dir,
                starter: Starter {
                    program,
                    arguments: vec!["user-server".to_owned()],
                    inherit: inherited(),
                },
            },
            wish,
            reconnect_limit: self.give_up_after.map_or(RECONNECT_LIMIT, |span| span.0),
            client: uuid::Uuid::new_v4().to_string(),
        })
    }
}

fn to_cli_error(error: Error) -> CliError {
    let is_unreachable = error.code() == Code::PeerUnavailable;
    let failed = CliError::from(error);
    let exit = if is_unreachable { ExitStatus::Unreachable } else { failed.exit };
    CliError { exit, ..failed }
}

/// Reports the connection's state on standard error: standard output is the editor's.
fn report_notice(told: &ProxyNotice) {
    match told {
        ProxyNotice::Refused(error) => print::error(&CliError::from(error.clone())),
        ProxyNotice::Lost => print::note("the connection to the server is lost: reconnecting"),
        ProxyNotice::TooLong(limit) => print::note(&format!(
            "the agent sent a message of more than {limit} bytes, which was dropped; raise the agent's max_line to allow it"
        )),
        ProxyNotice::Connected { agent, version, is_again } => {
            if *is_again {
                print::note(&format!("connected to '{}' again", safe::visible(agent)));
            }
            if version != env!("CARGO_PKG_VERSION") {
                print::note(&format!(
                    "the server has version {} and this program {}: restart the server to update it",
                    safe::visible(version),
                    env!("CARGO_PKG_VERSION"),
                ));
            }
        }
    }
}

/// The variables that the configured agents inherit. The server reports a configuration that cannot be read.
fn inherited() -> Vec<String> {
    let loaded = start::config_file().and_then(|file| config::load(&file).ok());
    let agents = loaded.into_iter().flat_map(|loaded| loaded.options.agents.into_values());
    agents.flat_map(|agent| agent.inherit.0).collect()
}
