//! `trilogue login`.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use clap::Args;
use trilogue::local::{login_file, token_file};
use trilogue_wire::native::{LoginBegin, LoginState};
use url::Url;

use crate::command::globals::Globals;
use crate::conversation::{remote, unless_interrupted};
use crate::terminal::exit::{CliError, Result};
use crate::terminal::{print, safe};

/// The longest token that is read, in bytes.
const MAX_TOKEN_BYTES: u64 = 4 * 1024;
/// The longest name of this machine that the server gets, in characters.
const MAX_LABEL: usize = 60;
/// The longest wait between two questions whether the code is approved, in seconds.
const MAX_INTERVAL_SECONDS: u64 = 30;
/// A value for a request that needs no token, so that no saved one is sent.
const NO_TOKEN: &str = "none";

/// Save a token for a server at another address.
///
/// At a terminal, it shows a code. Approve the code on that server with `trilogue token approve CODE`: the command waits for it, and saves the token in a file that only you can read. All commands with this --url then use it. You can also create the token on the server and give it to this command with --token or on standard input.
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
            None if io::stdin().is_terminal() => {
                let waiting = self.wait_for_approval(globals, &shown);
                unless_interrupted(waiting).await?
            }
            None => read_line()
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

impl Login {
    /// Shows a code, and waits until a person has approved it on the server.
    async fn wait_for_approval(&self, globals: &Globals, shown: &str) -> Result<String> {
        let client = remote::open(&globals.of(&self.server, NO_TOKEN))?;
        let label = machine_name();
        let login = client.begin_login(&LoginBegin { label }).await?;
        let code = safe::visible(&login.code);
        print::note(&format!("approve this code on the server of {shown} within ten minutes:"));
        print::out(&format!("{code}\n"))?;
        print::hint(&format!("there: `trilogue token approve {code}`"));
        let interval = Duration::from_secs(login.interval_seconds.clamp(1, MAX_INTERVAL_SECONDS));
        loop {
            tokio::time::sleep(interval).await;
            match client.collect_login(&login.secret).await {
                Ok(LoginState { token: Some(created), .. }) => return Ok(created.secret),
                Ok(_) => {}
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The name of this machine, if the system tells it.
fn machine_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.ok().or_else(|| std::env::var("HOSTNAME").ok())?;
    Some(name.trim().chars().filter(|it| !it.is_control()).take(MAX_LABEL).collect())
}

fn read_line() -> io::Result<String> {
    let mut line = String::new();
    let mut limited = io::Read::take(io::stdin().lock(), MAX_TOKEN_BYTES);
    limited.read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
