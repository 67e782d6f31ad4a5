//! `trilogue connect`.

use clap::Args;
use trilogue::config::{self, Span};
use trilogue::local::Place;
use trilogue::local::proxy::{self, GIVE_UP, Link, Stdio, Told};
use trilogue::local::start::{self, Starter};
use trilogue_domain::Code;
use trilogue_wire::native::local::{Attach, Wish};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::terminal::{print, safe};

/// Be an agent for an editor, which launches this: the Agent Client Protocol on standard input and output.
///
/// The agent runs in this user's server: the one of `trilogue serve` or `trilogue demo`, or one that is started where none runs.
/// Sessions live there, so they outlive the editor; and when the server is restarted, the editor notices a pause and nothing else.
#[derive(Args, Debug)]
pub(crate) struct Connect {
    /// The agent's name.
    #[arg(value_name = "AGENT")]
    agent: String,
    #[command(flatten)]
    door: DoorArguments,
}

/// How the server is found.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoorArguments {
    /// How long a server that is gone is waited for.
    #[arg(long, value_name = "DURATION", default_value_t = Span(GIVE_UP))]
    give_up_after: Span,
}

// === impl Connect ===

impl Connect {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        // Editors launch it where their sessions will work.
        let here =
            std::env::current_dir().ok().and_then(|cwd| cwd.into_os_string().into_string().ok());
        let wish = Wish::Attach(Attach { agent: self.agent.clone(), cwd: here });
        self.door.relay(wish, globals).await
    }
}

// === impl DoorArguments ===

impl DoorArguments {
    /// Relays between the editor and the agent until the editor is gone.
    pub(crate) async fn relay(&self, wish: Wish, globals: &Globals) -> Result {
        if let Some(url) = globals.another_server() {
            let url = safe::visible(url);
            let message = format!(
                "an editor is connected to the server of this user on this machine only, and not to {url}"
            );
            return Err(Stop::usage(message).hint("leave --url out and TRILOGUE_URL unset; for an agent of another server, launch the command on that machine, such as with ssh"));
        }
        let place = Place::of_user().map_err(|error| {
            Stop::usage(format!("there is no state folder: {error}")).hint("set XDG_STATE_HOME")
        })?;
        let program = start::this_program().map_err(|error| {
            Stop::failed(format!("this program does not know where it lies: {error}"))
        })?;
        let link = Link {
            place,
            starter: Starter {
                program,
                arguments: vec!["user-server".to_owned()],
                inherit: inherited(),
            },
            wish,
            give_up: self.give_up_after.0,
            client: uuid::Uuid::new_v4().to_string(),
        };
        let mut said = None;
        let tell = |told: &Told| {
            if let Told::Refused(error) = told {
                said = Some(error.clone());
            }
            tell(told);
        };
        proxy::run(link, Stdio::open(), tell).await.map_err(|error| match error.code() {
            Code::PeerUnavailable => Stop { exit: Exit::Unreachable, ..Stop::from(error) },
            _ if said.as_ref() == Some(&error) => Stop::silent(Stop::from(error).exit),
            _ => Stop::from(error),
        })
    }
}

/// Says on standard error what becomes of the connection: standard output is the editor's.
fn tell(told: &Told) {
    match told {
        Told::Refused(error) => print::stop(&Stop::from(error.clone())),
        Told::Lost => print::note("the connection to the server is lost: waiting for it"),
        Told::TooLong(limit) => print::note(&format!(
            "a message of the agent's is longer than {limit} bytes and was not passed on; raise max_line of the agent to have longer ones"
        )),
        Told::Connected { agent, version, is_again } => {
            if *is_again {
                print::note(&format!("connected to '{}' again", safe::visible(agent)));
            }
            if version != env!("CARGO_PKG_VERSION") {
                print::note(&format!(
                    "the server has version {}, and this program {}: restart the server to have one",
                    safe::visible(version),
                    env!("CARGO_PKG_VERSION"),
                ));
            }
        }
    }
}

/// The variables that the agents of the configuration ask for. A configuration that cannot be read is for the server to complain about.
fn inherited() -> Vec<String> {
    let loaded = start::config_file().and_then(|file| config::load(&file).ok());
    let agents = loaded.into_iter().flat_map(|loaded| loaded.options.agents.into_values());
    agents.flat_map(|agent| agent.inherit.0).collect()
}
