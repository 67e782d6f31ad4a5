//! The command line and the output of a program that embeds the library as a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use crate::config::{self, List, Options};

/// How [`serve`](crate::server::serve) runs: [`Options`], or what the program's command line says.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    pub(crate) options: Options,
}

/// The command line of a program that serves agents.
#[derive(Parser, Debug)]
struct Arguments {
    /// Listen on this address, such as 127.0.0.1:8000. Repeat it for several; port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Read the settings from this file. Without one, threads are kept in memory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// === impl Serve ===

impl ServeOptions {
    /// Reads `--listen ADDRESS` and `--config FILE` from the program's command line. Ends the program with a message for `--help`, and for arguments that it does not know.
    ///
    /// # Errors
    /// When the configuration file cannot be read or has an invalid setting.
    pub fn from_args() -> Result<Self> {
        Arguments::parse().into_serve()
    }
}

impl From<Options> for ServeOptions {
    fn from(options: Options) -> Self {
        Self { options }
    }
}

// === impl Arguments ===

impl Arguments {
    fn into_serve(self) -> Result<ServeOptions> {
        let mut options = match &self.config {
            None => Options::in_memory(),
            Some(path) => config::load(path).map(|loaded| loaded.options).map_err(|error| {
                let failed = Error::new(Code::InvalidRequest, error.to_string());
                match error.hint {
                    Some(hint) => failed.hint(hint),
                    None => failed,
                }
            })?,
        };
        if !self.listen.is_empty() {
            options.server.listen = List(self.listen);
        }
        Ok(options.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arguments: &[&str]) -> Result<ServeOptions> {
        let all = std::iter::once("program").chain(arguments.iter().copied());
        Arguments::try_parse_from(all).unwrap().into_serve()
    }

    #[test]
    fn a_command_line_says_where_to_listen_and_what_to_read() {
        let bare = served(&[]).unwrap().options;
        assert_eq!(bare, Options::in_memory());

        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listening = served(&["--listen", "127.0.0.1:0"]).unwrap().options;
        assert_eq!(listening.server.listen, List(vec![address]));

        let missing = served(&["--config", "/nowhere/trilogue.toml"]).unwrap_err();
        assert_eq!(missing.code(), Code::InvalidRequest);
        assert!(missing.message().contains("/nowhere/trilogue.toml"), "{missing}");
    }
}
