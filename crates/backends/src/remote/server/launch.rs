//! The settings to start a server of agents: a command that gets a port.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use trilogue_domain::error::Result;
use trilogue_sdk::client::HttpTransport;

use crate::child::{InvalidSetting, Sandbox, check_program};
use crate::workspace::{PrivatePaths, make_folder, whole_folder};

/// The placeholder for the port in arguments, variables and the address.
pub const PORT_PLACEHOLDER: &str = "{port}";
/// The environment variable with the port.
pub const PORT_VARIABLE: &str = "PORT";
/// The address of a server without an address in its settings.
pub const DEFAULT_URL: &str = "http://127.0.0.1:{port}";

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerLaunch {
    /// The program and its arguments. They may contain [`PORT_PLACEHOLDER`].
    pub command: Vec<String>,
    pub cwd: PathBuf,
    /// Its environment variables. The values may contain [`PORT_PLACEHOLDER`].
    pub env: Vec<(String, String)>,
    /// The names of this server's variables that it gets in addition to [`crate::child::INHERITED`].
    pub inherit: Vec<String>,
    /// The address where it serves the protocol. Without [`PORT_PLACEHOLDER`], its port is fixed.
    pub url: String,
    /// How long it may take to answer after its start.
    pub start_timeout: Duration,
    pub sandbox: Sandbox,
    /// The files and folders of this server.
    pub private: PrivatePaths,
}

/// A launch with the placeholders replaced by one port.
pub(super) struct LaunchOnPort {
    pub(super) command: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) url: String,
}

// === impl ServerLaunch ===

impl ServerLaunch {
    /// Checks the settings.
    /// Errors: the first setting that prevents the server from being started or reached.
    pub fn check(&self) -> std::result::Result<(), InvalidSetting> {
        check_program(&self.command, &self.env, &self.inherit)?;
        self.sandbox.check(&self.private)?;
        let invalid = |why: String| InvalidSetting {
            key: "url",
            why,
            hint: format!("write it with its scheme and port, such as \"{DEFAULT_URL}\""),
        };
        HttpTransport::to(&self.on(1).url).map(drop).map_err(|error| invalid(error.message))
    }

    /// Creates the working folder if it is missing, for this user only, and returns its whole path.
    pub(super) async fn working_folder(&self) -> Result<PathBuf> {
        let folder = whole_folder(&self.cwd)?;
        make_folder(folder.clone(), false).await?;
        Ok(folder)
    }

    /// Returns the path of the address.
    pub(super) fn path(&self) -> String {
        HttpTransport::to(&self.on(1).url).map(|it| it.path().to_owned()).unwrap_or_default()
    }

    /// Returns the fixed port of the address, or a free port of this machine.
    ///
    /// Another program can take a free port before the server listens on it. Then the server fails and is started again on another port.
    pub(super) fn port(&self) -> io::Result<u16> {
        if self.url.contains(PORT_PLACEHOLDER) {
            return Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port());
        }
        let port = HttpTransport::to(&self.url).ok().and_then(|it| it.port());
        port.ok_or_else(|| io::Error::other("the address has no port"))
    }

    pub(super) fn on(&self, port: u16) -> LaunchOnPort {
        let port = port.to_string();
        let filled = |text: &String| text.replace(PORT_PLACEHOLDER, &port);
        let mut env: Vec<_> =
            self.env.iter().map(|(name, value)| (name.clone(), filled(value))).collect();
        if !env.iter().any(|(name, _)| name == PORT_VARIABLE) {
            env.push((PORT_VARIABLE.to_owned(), port.clone()));
        }
        let command = self.command.iter().map(filled).collect();
        LaunchOnPort { command, env, url: filled(&self.url) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(command: &[&str], url: &str) -> ServerLaunch {
        ServerLaunch {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            cwd: PathBuf::from("."),
            env: vec![("ADDRESS".to_owned(), "127.0.0.1:{port}".to_owned())],
            inherit: Vec::new(),
            url: url.to_owned(),
            start_timeout: Duration::from_secs(1),
            sandbox: Sandbox::default(),
            private: PrivatePaths::default(),
        }
    }

    #[test]
    fn the_port_is_put_in_its_places() {
        let launch = launch(&["serve", "--port={port}"], "http://127.0.0.1:{port}/acp");
        assert_eq!((launch.check(), launch.path().as_str()), (Ok(()), "/acp"));
        let on = launch.on(8123);
        assert_eq!(on.command, ["serve", "--port=8123"]);
        assert_eq!(on.url, "http://127.0.0.1:8123/acp");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(on.env, [pair("ADDRESS", "127.0.0.1:8123"), pair("PORT", "8123")]);
        assert_ne!(launch.port().unwrap(), 0);
    }

    #[test]
    fn an_address_without_a_place_for_the_port_has_its_own() {
        assert_eq!(launch(&["serve"], "http://127.0.0.1:8000").port().unwrap(), 8000);
        assert_eq!(launch(&["serve"], "http://127.0.0.1").port().unwrap(), 80);
    }

    #[test]
    fn what_cannot_be_started_or_reached_is_refused() {
        for (command, url, key) in [
            (&[][..], DEFAULT_URL, "command"),
            (&["serve --port {port}"], DEFAULT_URL, "command"),
            (&["serve"], "127.0.0.1:{port}", "url"),
            (&["serve"], "http://127.0.0.1:{prot}", "url"),
        ] {
            assert_eq!(launch(command, url).check().unwrap_err().key, key);
        }
    }
}
