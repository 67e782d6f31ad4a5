//! Notifications about agents that wait for an answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use super::list::List;

/// The URL or the command that gets a notification when an agent starts to wait for an answer. See [`super::Options::notify`] for its members.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// The URL to which the server posts the notification, signed like a callback. `egress.allow` has to list a private address.
    pub url: Option<String>,
    /// A program and its arguments. It reads the notification from standard input and has 30 seconds. Its environment is that of agents plus the variables for the desktop.
    pub command: List<String>,
}

// === impl Notify ===

impl Notify {
    /// Whether notifications are on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.url.is_some() || !self.command.0.is_empty()
    }

    /// Checks the settings without sending anything.
    ///
    /// # Errors
    /// `invalid_request` if both a URL and a command are set, or if one of them is invalid.
    pub fn check(&self) -> Result<()> {
        let wrong = |message: &'static str, hint: &'static str| {
            Err(Error::new(Code::InvalidRequest, message).hint(hint))
        };
        if self.url.is_some() && !self.command.0.is_empty() {
            let message = "`notify` has both a url and a command";
            return wrong(message, "keep one; a command may call the other");
        }
        if self.command.0.iter().any(|it| it.contains('\0'))
            || self.command.0.first().is_some_and(String::is_empty)
        {
            return wrong(
                "`notify.command` names no program",
                "write command = [\"program\", \"argument\"]",
            );
        }
        let Some(written) = &self.url else { return Ok(()) };
        let parsed = url::Url::parse(written).ok();
        let fits = parsed.is_some_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
        });
        if fits {
            return Ok(());
        }
        // A value that is not a valid address may still hold a password, so the message does not repeat it.
        wrong(
            "`notify.url` is not a valid address",
            "give an absolute http or https address without a user's name or password",
        )
    }
}
