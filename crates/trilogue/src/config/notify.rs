//! Who is told that an agent waits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_domain::error::Result;
use trilogue_domain::{Code, Error};

use super::list::List;

/// Who is told when an agent begins to wait for an answer, on whichever protocol: an address or a command, which get `{"type": "interrupt.raised", "interrupt_id", "run_id", "thread_id", "agent", "kind", "title", "answer"}`. Three attempts are made.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// An address that gets it by POST, signed as callbacks are. A private one has to be allowed by `egress.allow`.
    pub url: Option<String>,
    /// A program and its arguments, which gets it on standard input, and of the server's environment what agents get and where the desktop is. It has 30 seconds.
    pub command: List<String>,
}

// === impl Notify ===

impl Notify {
    /// Whether anybody is told.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.url.is_some() || !self.command.0.is_empty()
    }

    /// Checks what can be checked without telling anybody.
    ///
    /// # Errors
    /// `invalid_request` for both an address and a command, and for what is no address or no command.
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
        // What is no address may hold a password all the same.
        wrong(
            "`notify.url` is no address that could be told",
            "give an absolute http or https address without a user's name or password",
        )
    }
}
