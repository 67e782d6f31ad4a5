//! `trilogue threads`.

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use trilogue_sdk::client::Client;
use trilogue_wire::native::ThreadCopy;

use super::PageArguments;
use super::show_thread::ShowThread;
use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::exit::{CliError, Result};
use crate::terminal::table::TableColumn;
use crate::terminal::{ask, print, safe};

/// List, show, export, copy or erase threads.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Threads {
    #[command(subcommand)]
    action: Option<ThreadsAction>,
    #[command(flatten)]
    page: PageArguments,
}

#[derive(Subcommand, Debug)]
enum ThreadsAction {
    /// List threads, newest first.
    List(PageArguments),
    Show(ShowThread),
    /// Write a thread with everything in it to standard output.
    Export {
        /// The thread.
        thread: String,
    },
    /// Copy a thread.
    Copy {
        /// The thread.
        thread: String,
        /// The copy's id. By default the server generates one.
        #[arg(long)]
        id: Option<String>,
        /// End the copy with this message and leave out everything after it.
        #[arg(long, value_name = "MESSAGE_ID")]
        until: Option<String>,
        /// End the copy with the last message that was complete at this event.
        #[arg(long, value_name = "NUMBER", conflicts_with = "until")]
        until_event: Option<u64>,
    },
    /// Erase a thread with everything in it, and cancel its runs. This cannot be undone.
    Erase {
        /// The thread.
        thread: String,
        /// Erase without asking.
        #[arg(long)]
        yes: bool,
    },
}

// === impl Threads ===

impl Threads {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        match &self.action {
            None => list(&self.page, globals, &client).await,
            Some(ThreadsAction::List(page)) => list(page, globals, &client).await,
            Some(ThreadsAction::Show(show)) => show.execute(globals, &client).await,
            Some(ThreadsAction::Export { thread }) => {
                let thread = short_id::thread(&client, thread).await?;
                let mut body = client.export_thread(&thread).await?;
                // The end of a piece can be inside a character.
                let mut begun = Vec::new();
                while let Some(piece) = body.next().await {
                    begun.extend(piece.map_err(|error| CliError::failure(error.message))?);
                    let end =
                        begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    print::json_lines(begun.get(..end).unwrap_or_default())?;
                    begun.drain(..end);
                }
                print::json_lines(&begun)
            }
            Some(ThreadsAction::Copy { thread, id, until, until_event }) => {
                let thread = short_id::thread(&client, thread).await?;
                let until_message = match until {
                    Some(message) => Some(short_id::message(&client, &thread, message).await?),
                    None => None,
                };
                let (id, until_event) = (id.clone(), *until_event);
                let copy = ThreadCopy { id, metadata: None, until_message, until_event };
                let copy = client.copy_thread(&thread, &copy).await?;
                if globals.json {
                    return print::json(&copy);
                }
                print::out(&format!("{}\n", safe::line(&copy.id)))
            }
            Some(ThreadsAction::Erase { thread, yes }) => {
                let thread = short_id::thread(&client, thread).await?;
                let question =
                    format!("Erase the thread {} with everything in it?", safe::visible(&thread));
                if !yes && !ask::confirm(&question, "--yes").await? {
                    return Err(CliError::failure("nothing was erased"));
                }
                client.erase_thread(&thread).await?;
                print::note(&format!("erased: {}", safe::line(&thread)));
                Ok(())
            }
        }
    }
}

async fn list(page: &PageArguments, globals: &Globals, client: &Client) -> Result {
    let threads = client.threads(&page.page()).await?;
    if globals.json {
        return print::json(&threads);
    }
    let columns = [
        TableColumn::id("THREAD"),
        TableColumn::detail("CREATED"),
        TableColumn::time("CHANGED"),
        TableColumn::text("NODE"),
        TableColumn::text("TITLE"),
        TableColumn::detail("METADATA"),
    ];
    page.print(&threads.items, threads.next.as_deref(), "no threads", &columns, |thread| {
        let damage = thread.damage.as_ref().map(|why| format!("(damaged: {why})"));
        let title = damage.as_deref().or(thread.title.as_deref()).unwrap_or_default();
        let node = thread.node.as_deref().unwrap_or_default();
        let (created, changed) = (&thread.created_at, &thread.updated_at);
        [thread.id.as_str(), created, changed, node, title, thread.metadata.as_str()]
            .map(safe::line)
            .to_vec()
    })
}
