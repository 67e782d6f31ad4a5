//! `trilogue wrap`.

use clap::Args;
use trilogue_wire::native::local::{Wish, WrapCommand};

use crate::command::connect::ProxyArguments;
use crate::exit::{CliError, Result};
use crate::globals::Globals;
use crate::terminal::print;

/// Connect an editor to any agent command; the editor launches this instead of the command.
///
/// The command must speak the Agent Client Protocol on its standard input and output. This user's server starts it in the current folder with the current environment, which the server keeps in memory only.
/// Its sessions become threads: they outlive the editor, and `trilogue threads`, `tail`, `inbox` and `approve` work with them.
#[derive(Args, Debug)]
pub(crate) struct Wrap {
    /// The agent's name. By default it is derived from the command and the folder. Two commands cannot have one name while the server runs.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    proxy: ProxyArguments,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

// === impl Wrap ===

impl Wrap {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let cwd = std::env::current_dir().map_err(|error| {
            CliError::failed(format!("cannot find the working folder: {error}"))
        })?;
        let cwd = cwd.into_os_string().into_string().map_err(|cwd| {
            let cwd = cwd.to_string_lossy().into_owned();
            CliError::usage(format!("the working folder '{cwd}' is not UTF-8"))
        })?;
        let mut env = std::collections::BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            match (name.into_string(), value.into_string()) {
                (Ok(name), Ok(value)) => drop(env.insert(name, value)),
                (Ok(name), Err(_)) | (Err(_), Ok(name)) => {
                    let name = crate::terminal::safe::visible(&name);
                    print::note(&format!(
                        "left out of the command's environment because it is not UTF-8: {name}"
                    ));
                }
                (Err(_), Err(_)) => {}
            }
        }
        let command =
            WrapCommand { name: self.name.clone(), command: self.command.clone(), cwd, env };
        self.proxy.relay(Wish::Wrap(command), globals).await
    }
}
