//! The options that every command has, and the server that they name.

use clap::Args;
use trilogue::local::{UserServerDir, start};
use trilogue_wire::native::Json;
use url::Url;

use crate::conversation::attach::is_local;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::safe;

/// The default server, if this user has none of their own.
const DEFAULT_URL: &str = "http://127.0.0.1:7878";

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Every command")]
pub(crate) struct Globals {
    /// Print the server's objects as JSON to standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The server's address. By default this user's running server, else http://127.0.0.1:7878. `run`, `chat` and `agents` also talk to servers of the Agent Communication Protocol and the Agent Connect Protocol.
    #[arg(long, global = true, env = "TRILOGUE_URL", value_name = "URL")]
    url: Option<String>,
    /// The token. By default the one that the server at this address wrote for this user, or that `trilogue login` saved for it.
    #[arg(
        long,
        global = true,
        env = "TRILOGUE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) token: Option<String>,
}

// === impl Globals ===

impl Globals {
    /// The server that an option or a variable names. An empty variable names none.
    fn explicit_url(&self) -> Option<&str> {
        self.url.as_deref().filter(|url| !url.is_empty())
    }

    /// Whether an option or a variable names a server.
    pub(crate) fn names_server(&self) -> bool {
        self.explicit_url().is_some()
    }

    /// Returns the server to talk to: the named one, otherwise this user's, otherwise the default address.
    pub(crate) fn server(&self) -> String {
        let users = || start::running(&UserServerDir::of_user().ok()?)?.url();
        self.explicit_url()
            .map(str::to_owned)
            .or_else(users)
            .unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// Whether a server is named, or this user's runs.
    pub(crate) fn has_server(&self) -> bool {
        let is_running = || Some(start::running(&UserServerDir::of_user().ok()?)?.pid);
        self.names_server() || is_running().is_some()
    }

    /// Whether this user's server runs on this machine, and is the one that is meant.
    pub(crate) fn has_users_server(&self) -> bool {
        let running = || start::running(&UserServerDir::of_user().ok()?);
        running().is_some() && self.another_server().is_none()
    }

    /// The named server, unless it is this user's own.
    pub(crate) fn another_server(&self) -> Option<&str> {
        let users = || start::running(&UserServerDir::of_user().ok()?)?.url();
        self.explicit_url().filter(|url| match users() {
            Some(users) => !is_same(url, &users),
            // It may have ended because it was idle; then it is started again.
            None => !Url::parse(url).is_ok_and(|url| is_local(&url)),
        })
    }

    /// The same options, for this server and token.
    pub(crate) fn of(&self, url: &str, token: &str) -> Self {
        Self { url: Some(url.to_owned()), token: Some(token.to_owned()), ..self.clone() }
    }

    /// The server that is named on purpose for an editor. A variable with an address of this machine names this user's server, even if it has ended because it
    /// was idle; an option can also name the end of a tunnel there.
    pub(crate) fn remote_server(&self) -> Option<&str> {
        let url = self.explicit_url()?;
        let users = || start::running(&UserServerDir::of_user().ok()?)?.url();
        match users() {
            Some(users) if is_same(url, &users) => None,
            _ if self.url_option().is_empty() => self.another_server(),
            _ => Some(url),
        }
    }

    /// Succeeds if the target is this user's server on this machine. `only` names the operation that works with that server alone, in words before the other
    /// server's address; `elsewhere` names the alternative.
    pub(crate) fn require_users_server(&self, only: &str, elsewhere: &str) -> Result {
        let Some(url) = self.another_server() else { return Ok(()) };
        let url = safe::visible(url);
        Err(CliError::usage(format!("{only} {url}"))
            .hint(format!("leave --url out and unset TRILOGUE_URL{elsewhere}")))
    }

    /// Adds the source of the token to a refusal: a given token takes precedence over the saved one.
    pub(crate) fn explain_refusal(&self, error: CliError) -> CliError {
        let Some(token) = self.token.as_ref().filter(|token| !token.is_empty()) else {
            return error;
        };
        if !error.is_token_refusal() {
            return error;
        }
        let is_inherited = std::env::var("TRILOGUE_TOKEN").is_ok_and(|it| it == *token);
        let source = if is_inherited {
            "the token came from TRILOGUE_TOKEN, which has precedence over the one that the server saved for you: unset it to use that one"
        } else {
            "the token came from --token, which has precedence over TRILOGUE_TOKEN and the one that the server saved for you: leave it out to use one of these"
        };
        let hint = match &error.hint {
            Some(hint) => format!("{source}; or {hint}"),
            None => source.to_owned(),
        };
        error.hint(hint)
    }

    /// Whether a server other than the default one is named.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.explicit_url().is_some_and(|url| url.trim_end_matches('/') != DEFAULT_URL)
    }

    /// The option with which a suggested command reaches the same server, with a space before it.
    pub(crate) fn url_option(&self) -> String {
        let from_environment = |url: &str| std::env::var("TRILOGUE_URL").is_ok_and(|it| it == url);
        match self.explicit_url() {
            Some(url) if !from_environment(url) => {
                format!(" --url {}", safe::visible(url))
            }
            _ => String::new(),
        }
    }
}

/// Parses an option's JSON.
pub(crate) fn json(option: &str, text: &str) -> Result<Json> {
    Json::parse(text).map_err(|error| CliError::usage(format!("{option} is not JSON: {error}")))
}

/// Whether both are addresses of one server. The local machine has several names.
fn is_same(url: &str, other: &str) -> bool {
    let (Ok(one), Ok(two)) = (Url::parse(url), Url::parse(other)) else { return url == other };
    let is_one_host = one.host() == two.host() || (is_local(&one) && is_local(&two));
    is_one_host && one.port_or_known_default() == two.port_or_known_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::command::arguments::Arguments;

    #[test]
    fn loopback_names_are_the_same_server() {
        for (one, two, same) in [
            ("http://127.0.0.1:7878", "http://localhost:7878/", true),
            ("http://[::1]:7878", "http://127.0.0.1:7878", true),
            ("http://127.0.0.1:7878", "http://127.0.0.1:7879", false),
            ("http://example.com:7878", "http://127.0.0.1:7878", false),
            ("http://example.com", "http://example.com:80/", true),
        ] {
            assert_eq!(is_same(one, two), same, "{one} {two}");
        }
    }

    #[test]
    fn suggested_commands_name_the_named_server() {
        let elsewhere = |arguments: &[&str]| {
            let all = ["trilogue", "status"].iter().chain(arguments);
            Arguments::try_parse_from(all).unwrap().globals.url_option()
        };
        for url in [DEFAULT_URL, "http://127.0.0.1:7879"] {
            assert_eq!(elsewhere(&["--url", url]), format!(" --url {url}"));
        }
        assert_eq!(elsewhere(&["--url", ""]), "");
    }
}
