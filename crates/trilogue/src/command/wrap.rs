//! `trilogue wrap`.

use clap::Args;
use trilogue_wire::native::local::{Wish, WrapCommand};

use crate::arguments::Globals;
use crate::command::connect::DoorArguments;
use crate::exit::{Result, Stop};
use crate::terminal::print;

/// Be the agent that a command is, for an editor, which launches this in the command's place.
///
/// The command has to speak the Agent Client Protocol on its standard input and output. It is started by this user's server, as it would be here: in this folder and with this environment, which the server keeps in memory only.
/// Its sessions are threads from then on: they outlive the editor, and `trilogue threads`, `tail`, `inbox` and `approve` work with them.
#[derive(Args, Debug)]
pub(crate) struct Wrap {
    /// What the agent is called. Without a name, the command and the folder make one: the same in the same folder. A name that another command has is refused while that is an agent: until the server ends.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    door: DoorArguments,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

// === impl Wrap ===

impl Wrap {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let cwd = std::env::current_dir()
            .map_err(|error| Stop::failed(format!("the working folder is gone: {error}")))?;
        let cwd = cwd.into_os_string().into_string().map_err(|cwd| {
            let cwd = cwd.to_string_lossy().into_owned();
            Stop::usage(format!("the working folder '{cwd}' is not UTF-8"))
        })?;
        let mut env = std::collections::BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => drop(env.insert(name, value)),
                (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                    let name = crate::terminal::safe::visible(&name);
                    print::note(&format!(
                        "left out of the command's environment, as it is not UTF-8: {name}"
                    ));
                }
                (Err(_), Err(_)) => {}
            }
        }
        let command =
            WrapCommand { name: self.name.clone(), command: self.command.clone(), cwd, env };
        self.door.relay(Wish::Wrap(command), globals).await
    }
}
