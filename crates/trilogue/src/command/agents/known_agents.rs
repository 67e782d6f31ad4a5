//! `trilogue agents known`.

use clap::Args;
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{self, KnownAgent};

use crate::command::globals::Globals;
use crate::terminal::exit::Result;
use crate::terminal::{print, table};

/// List the agents that `run`, `chat`, `wrap` and `agents add` know by name. Needs no server.
#[derive(Args, Debug)]
pub(crate) struct KnownCommand {
    /// Show one agent with everything that is known of it.
    agent: Option<String>,
}

// === impl KnownCommand ===

impl KnownCommand {
    pub(crate) fn execute(&self, globals: &Globals) -> Result {
        if let Some(name) = &self.agent {
            let known = known_agents::find(name);
            let known = known.ok_or_else(|| crate::command::wrap::unknown(name))?;
            return match globals.json {
                true => print::json(known),
                false => print::report(&describe(name, known)),
            };
        }
        if globals.json {
            return print::json(known_agents::all());
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let checkout = Checkout::around_here();
        let rows = known_agents::all().iter().map(|(name, known)| {
            let start = match known.resolve(&checkout, &path) {
                Some(start) if start.is_fetched => format!("with {}", start.words[0]),
                Some(_) => "installed".to_owned(),
                None => "not installed".to_owned(),
            };
            vec![name.clone(), known.title.clone(), start, known.command.join(" ")]
        });
        print::out(&table::render(&["NAME", "AGENT", "STARTS", "COMMAND"], rows))?;
        print::hint(
            "run one with `trilogue run NAME \"TEXT\"`, or add it with `trilogue agents add NAME`",
        );
        Ok(())
    }
}

fn describe(name: &str, known: &KnownAgent) -> String {
    let mut lines = vec![
        format!("{name}: {}", known.title),
        format!("command: {}", known.command.join(" ")),
        format!("version: {} or newer", known.at_least),
        format!("install: {}", known.install),
        format!("asks because of: {}", known.asks),
        format!(
            "starts in: {}",
            if known.in_folder { "the working folder" } else { "an empty folder of Trilogue's" }
        ),
        format!("variables: {}", known.inherit.join(" ")),
    ];
    if let Some(package) = &known.package {
        let runner = package.runner.program();
        lines.push(format!("package: {} {} with {runner}", package.name, package.version));
    }
    if let Some(login) = &known.login {
        lines.push(format!("sign in: {}", login.command.join(" ")));
    }
    lines.extend(known.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n") + "\n"
}
