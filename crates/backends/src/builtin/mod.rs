//! The agents that come with the server: no key, no network.

pub mod echo;
pub mod greeter;
pub mod mailcomposer;
mod name;
pub mod researcher;

use std::time::Duration;

use trilogue_domain::error::Result;

pub use echo::Echo;
pub use greeter::Greeter;
pub use mailcomposer::MailComposer;
pub use researcher::Researcher;

use crate::native::NativeAgent;

/// The names of the built-in agents, in the order in which they are listed.
pub const NAMES: [&str; 4] = [echo::NAME, mailcomposer::NAME, researcher::NAME, greeter::NAME];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// How long the researcher waits between two words, so that its stream is visible. The greeter waits [`greeter::PACES`] times as long.
    pub pace: Duration,
}

/// The built-in agent with this name. `None` for an unknown name. Fails as [`NativeAgent::new`].
pub fn by_name(name: &str, options: Options) -> Option<Result<NativeAgent>> {
    match name {
        echo::NAME => Some(NativeAgent::new(Echo)),
        mailcomposer::NAME => Some(NativeAgent::new(MailComposer::default())),
        researcher::NAME => Some(NativeAgent::new(Researcher::new(options.pace))),
        greeter::NAME => {
            Some(NativeAgent::new(Greeter::new(options.pace.saturating_mul(greeter::PACES))))
        }
        _ => None,
    }
}

/// All built-in agents, in the order of [`NAMES`]. Fails as [`NativeAgent::new`].
pub fn all(options: Options) -> Result<Vec<NativeAgent>> {
    NAMES.iter().filter_map(|name| by_name(name, options)).collect()
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { pace: Duration::from_millis(25) }
    }
}
