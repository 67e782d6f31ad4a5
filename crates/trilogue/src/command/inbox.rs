//! `trilogue inbox`.

use clap::Args;
use trilogue_sdk::client::Filter;
use trilogue_wire::native::{Interrupt, Part};

use super::PageArguments;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::Result;
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

const MAX_QUESTION_CHARS: usize = 60;

/// List open questions.
#[derive(Args, Debug)]
pub(crate) struct InboxCommand {
    /// Only this thread's.
    #[arg(long)]
    thread: Option<String>,
    /// Only this run's.
    #[arg(long)]
    run: Option<String>,
    #[command(flatten)]
    page: PageArguments,
}

// === impl InboxCommand ===

impl InboxCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let filter = Filter {
            thread: short_id::optional_thread(&client, self.thread.as_deref()).await?,
            run: match &self.run {
                Some(run) => Some(short_id::run(&client, run).await?),
                None => None,
            },
            ..Filter::default()
        };
        let list = client.interrupts(&filter, &self.page.page()).await?;
        if globals.json {
            return print::json(&list);
        }
        let cell = |text: &Option<String>| safe::line(text.as_deref().unwrap_or_default());
        let columns = [
            TableColumn::id("INTERRUPT"),
            TableColumn::text("AGENT"),
            TableColumn::text("KIND"),
            TableColumn::time("SINCE"),
            TableColumn::text("QUESTION"),
        ];
        let none = "no question is open";
        let questions = short_id::each_once(list.items);
        self.page.print(&questions, list.next.as_deref(), none, &columns, |interrupt| {
            vec![
                safe::line(&interrupt.id),
                cell(&interrupt.agent),
                safe::line(&interrupt.kind),
                cell(&interrupt.raised_at),
                question(interrupt),
            ]
        })?;
        if self.page.is_table() && !questions.is_empty() {
            let (elsewhere, which) = (
                globals.url_option(),
                match questions.len() {
                    1 => "it with `trilogue approve",
                    _ => "one with `trilogue approve INTERRUPT",
                },
            );
            print::hint(&format!("answer {which}{elsewhere}`"));
        }
        Ok(())
    }
}

fn question(interrupt: &Interrupt) -> String {
    let words: String = interrupt.prompt.iter().filter_map(Part::as_text).collect();
    let words = if words.is_empty() { interrupt.payload.as_str().to_owned() } else { words };
    let line = safe::visible(&words);
    match line.char_indices().nth(MAX_QUESTION_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
