//! The command line: its options, and one file for each command.

pub(crate) mod ad_hoc;
pub(crate) mod agents;
pub(crate) mod approve;
pub(crate) mod arguments;
mod audit_log;
pub(crate) mod backup;
pub(crate) mod cancel;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod config_file;
pub(crate) mod connect;
pub(crate) mod copy;
pub(crate) mod demo;
pub(crate) mod doctor;
mod draft_folder;
pub(crate) mod fidelity;
pub(crate) mod globals;
#[cfg(test)]
mod hints;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod new;
mod node_text;
pub(crate) mod nodes;
pub(crate) mod port_owner;
mod probe;
mod receiver;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
mod server_command;
mod server_config;
mod show_thread;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod tail;
pub(crate) mod threads;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod ui;
pub(crate) mod user_server;
pub(crate) mod usual_commands;
pub(crate) mod webhooks;
pub(crate) mod wrap;

use clap::Args;
use trilogue_sdk::client::Page;

use crate::terminal::exit::Result;
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe, table};

/// Which page of a list, and how it is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct PageArguments {
    /// Print at most this many items.
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Continue after this cursor, which the page before printed.
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
    /// Print only the ids, whole, one per line.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// Print whole ids, exact times and every column, as in a pipe.
    #[arg(long, conflicts_with_all = ["json", "quiet"])]
    wide: bool,
}

// === impl PageArguments ===

impl PageArguments {
    pub(crate) fn page(&self) -> Page {
        Page { after: self.after.clone(), limit: self.limit }
    }

    /// Prints the items of a page. The first column is the id; `none` says that there are no items.
    pub(crate) fn print<T>(
        &self,
        items: &[T],
        next: Option<&str>,
        none: &str,
        columns: &[TableColumn],
        row: impl Fn(&T) -> Vec<String>,
    ) -> Result {
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        if self.quiet {
            let ids = rows.into_iter().filter_map(|row| row.into_iter().next());
            return print::out(&ids.map(|id| id + "\n").collect::<String>());
        }
        if self.wide {
            print::out(&table::wide(columns, &rows))?;
        } else if !rows.is_empty() || !print::is_terminal() {
            print::table(columns, &rows)?;
        }
        if rows.is_empty() {
            print::note(none);
        }
        if let Some(next) = next {
            print::hint(&format!("there are more: --after '{}'", safe::visible(next)));
        }
        Ok(())
    }

    /// Whether the page is a table for a person to read.
    pub(crate) fn is_table(&self) -> bool {
        !self.quiet
    }
}
