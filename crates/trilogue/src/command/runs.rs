//! `trilogue runs`.

use clap::{Args, Subcommand};
use trilogue_sdk::client::{Client, Filter};
use trilogue_wire::native::Run;

use super::PageArguments;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::Result;
use crate::terminal::table::TableColumn;
use crate::terminal::{print, safe};

/// List or show runs.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Runs {
    #[command(subcommand)]
    action: Option<RunsAction>,
    #[command(flatten)]
    list: ListRuns,
}

#[derive(Subcommand, Debug)]
enum RunsAction {
    /// List runs, newest first.
    List(ListRuns),
    /// Show one run with its output.
    Show {
        /// The run.
        run: String,
    },
}

#[derive(Args, Debug)]
struct ListRuns {
    /// Only this thread's.
    #[arg(long)]
    thread: Option<String>,
    /// Only this agent's.
    #[arg(long)]
    agent: Option<String>,
    /// Only those with this status: queued, running, interrupted, cancelling, completed, failed, cancelled or timed_out.
    #[arg(long)]
    status: Option<String>,
    #[command(flatten)]
    page: PageArguments,
}

// === impl Runs ===

impl Runs {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        match &self.action {
            Some(RunsAction::Show { run }) => {
                let run = client.run(&short_id::run(&client, run).await?).await?;
                if globals.json { print::json(&run) } else { print::out(&describe(&run)) }
            }
            Some(RunsAction::List(list)) => list.execute(globals, &client).await,
            None => self.list.execute(globals, &client).await,
        }
    }
}

impl ListRuns {
    async fn execute(&self, globals: &Globals, client: &Client) -> Result {
        let filter = Filter {
            thread: short_id::optional_thread(client, self.thread.as_deref()).await?,
            agent: self.agent.clone(),
            status: self.status.clone(),
            ..Filter::default()
        };
        let runs = client.runs(&filter, &self.page.page()).await?;
        if globals.json {
            return print::json(&runs);
        }
        let columns = [
            TableColumn::id("RUN"),
            TableColumn::text("AGENT"),
            TableColumn::text("STATUS"),
            TableColumn::time("CREATED"),
            TableColumn::id("THREAD"),
        ];
        self.page.print(&runs.items, runs.next.as_deref(), "no runs", &columns, |run| {
            [run.id.as_str(), &run.agent, run.status.as_str(), &run.created_at, &run.thread_id]
                .map(safe::line)
                .to_vec()
        })
    }
}

fn describe(run: &Run) -> String {
    let mut text = format!(
        "run: {}\nthread: {}\nagent: {}\nstatus: {}\ncreated: {}\n",
        safe::line(&run.id),
        safe::line(&run.thread_id),
        safe::line(&run.agent),
        run.status.as_str(),
        safe::line(&run.created_at)
    );
    if let Some(principal) = &run.created_by {
        text.push_str(&format!("created by: {}\n", safe::line(principal)));
    }
    if let Some(parent) = &run.parent {
        text.push_str(&format!(
            "called by run: {}\ncalled from thread: {}\n",
            safe::line(&parent.run_id),
            safe::line(&parent.thread_id)
        ));
    }
    if let Some(ended) = &run.ended_at {
        text.push_str(&format!("ended: {}\n", safe::line(ended)));
    }
    if let Some(error) = run.outcome.as_ref().and_then(|outcome| outcome.error.as_ref()) {
        text.push_str(&format!(
            "error: {}: {}\n",
            safe::line(&error.code),
            safe::block(&error.message)
        ));
    }
    for interrupt in run.interrupts.iter().flatten() {
        text.push_str(&format!("open question: {}\n", safe::line(&interrupt.id)));
    }
    for message in run.output.iter().flatten() {
        text.push_str(&format!("\n{}\n", safe::block(&message.text())));
    }
    if let Some(result) = &run.result {
        text.push_str(&format!("\nresult: {}\n", safe::block(result.as_str())));
    }
    text
}
