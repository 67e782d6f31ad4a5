//! `trilogue login`.

use std::io::{self, BufRead as _, IsTerminal as _};

use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use trilogue::local::{login_file, token_file};
use url::Url;

use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::{print, safe};

/// The longest token that is read, in bytes.
const MAX_TOKEN_BYTES: u64 = 4 * 1024;

/// Save a token for a server at another address.
///
/// Create the token on that server: `trilogue token create --label laptop`. This command reads it from --token, from standard input or from the terminal, checks it with the server, and saves it in a file that only you can read. All commands with this --url then use it.
#[derive(Args, Debug)]
pub(crate) struct Login {
    /// The server's address, such as https://agents.example.com.
    #[arg(value_name = "SERVER")]
    server: String,
    /// Remove the saved token.
    #[arg(long)]
    forget: bool,
}

// === impl Login ===

impl Login {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let shown = safe::visible(self.server.trim_end_matches('/'));
        let url = Url::parse(&self.server)
            .map_err(|error| CliError::usage(format!("'{shown}' is not an address: {error}")))?;
        let state = token_file::state_dir().map_err(|error| {
            CliError::usage(format!("cannot find the state folder: {error}"))
                .hint("set XDG_STATE_HOME")
        })?;
        let unwritable = |error: io::Error| {
            CliError::failure(format!("the token's file cannot be changed: {error}"))
        };
        if self.forget {
            let had_one = login_file::forget(&state, &url).map_err(unwritable)?;
            print::note(&match had_one {
                true => format!(
                    "the token for {shown} is removed; it stays valid until it is revoked on the server"
                ),
                false => format!("no token is saved for {shown}"),
            });
            return Ok(());
        }
        let token = match globals.token.as_ref().filter(|token| !token.is_empty()) {
            Some(token) => token.clone(),
            None => read_token()
                .map_err(|error| CliError::failure(format!("the token cannot be read: {error}")))?,
        };
        if token.is_empty() {
            return Err(CliError::usage("no token was given").hint(
                "create one on the server with `trilogue token create --label NAME`, and enter it here",
            ));
        }
        let caller = remote::open(&globals.of(&self.server, &token))?.caller().await?;
        login_file::save(&state, &url, &token).map_err(unwritable)?;
        let principal = safe::visible(&caller.principal);
        print::note(&format!("saved the token of '{principal}' for {shown}"));
        Ok(())
    }
}

/// Reads a token from standard input; at a terminal, without showing it.
fn read_token() -> io::Result<String> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return read_line();
    }
    print::note("token: (it is not shown)");
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let line = read_line();
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    line
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    let mut limited = io::Read::take(io::stdin().lock(), MAX_TOKEN_BYTES);
    limited.read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
