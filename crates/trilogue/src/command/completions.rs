//! `trilogue completions`.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::command::arguments::Arguments;
use crate::terminal::exit::Result;
use crate::terminal::print;

/// Print a completion script for a shell.
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

// === impl Completions ===

impl Completions {
    pub(crate) fn execute(&self) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "trilogue", &mut script);
        print::raw(&script)
    }
}
