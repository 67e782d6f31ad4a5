//! `trilogue fidelity`.

use clap::Args;
use trilogue_mapping::fidelity;
use trilogue_wire::native::{FidelityRow, List};

use crate::command::globals::Globals;
use crate::terminal::exit::Result;
use crate::terminal::{print, table};

/// Show what each protocol carries, or what comes through from one to another. Needs no server.
#[derive(Args, Debug)]
pub(crate) struct FidelityCommand {
    /// The protocol where the way begins: native, communication, connect or client.
    #[arg(long, value_name = "PROTOCOL")]
    from: Option<String>,
    /// The protocol where the way ends.
    #[arg(long, value_name = "PROTOCOL")]
    to: Option<String>,
}

// === impl FidelityCommand ===

impl FidelityCommand {
    pub(crate) fn execute(&self, globals: &Globals) -> Result {
        let items = fidelity::rows_between(self.from.as_deref(), self.to.as_deref())?;
        if globals.json {
            return print::json(&List { items, next: None });
        }
        let heading = ["FROM", "TO", "CONCEPT", "VERDICT", "WHERE, OR WHY NOT"];
        print::out(&table::render(&heading, items.iter().map(cells)))
    }
}

fn cells(row: &FidelityRow) -> Vec<String> {
    let place = match (&row.because, &row.carrier, &row.to_carrier) {
        (Some(because), ..) => because.clone(),
        (None, Some(from), Some(to)) => format!("{from} -> {to}"),
        (None, from, to) => from.as_ref().or(to.as_ref()).cloned().unwrap_or_default(),
    };
    let to = row.to.clone().unwrap_or_default();
    vec![row.protocol.clone(), to, row.concept.clone(), row.verdict.as_str().to_owned(), place]
}
