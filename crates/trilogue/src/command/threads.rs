//! `trilogue threads`.

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use trilogue_sdk::client::Client;
use trilogue_wire::native::{Message, Thread, ThreadCopy};

use super::PageArguments;
use crate::arguments::Globals;
use crate::exit::{Result, Stop};
use crate::remote;
use crate::terminal::{ask, print, safe};

/// List, show, export, copy or erase threads.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Threads {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    page: PageArguments,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// List threads, newest first.
    List(PageArguments),
    /// Show one thread with the messages of its history.
    Show {
        /// The thread.
        thread: String,
    },
    /// Write everything of a thread to standard output, as the server exports it.
    Export {
        /// The thread.
        thread: String,
    },
    /// Copy a thread.
    Copy {
        /// The thread.
        thread: String,
        /// The copy's id; made by the server when absent.
        #[arg(long)]
        id: Option<String>,
    },
    /// Erase a thread with everything of it. Its runs are cancelled first. This cannot be undone.
    Erase {
        /// The thread.
        thread: String,
        /// Do not ask.
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
            Some(Action::List(page)) => list(page, globals, &client).await,
            Some(Action::Show { thread }) => show(thread, globals, &client).await,
            Some(Action::Export { thread }) => {
                let mut body = client.export_thread(thread).await?;
                while let Some(piece) = body.next().await {
                    let piece = piece.map_err(|error| Stop::failed(error.message))?;
                    print::raw(&piece)?;
                }
                Ok(())
            }
            Some(Action::Copy { thread, id }) => {
                let copy = ThreadCopy { id: id.clone(), metadata: None };
                let copy = client.copy_thread(thread, &copy).await?;
                if globals.json {
                    return print::json(&copy);
                }
                print::out(&format!("{}\n", safe::line(&copy.id)))
            }
            Some(Action::Erase { thread, yes }) => {
                let question =
                    format!("Erase the thread {} with everything of it?", safe::visible(thread));
                if !yes && !ask::confirm(&question, "--yes").await? {
                    return Err(Stop::failed("nothing was erased"));
                }
                client.erase_thread(thread).await?;
                print::note(&format!("erased: {}", safe::line(thread)));
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
    let heading = ["THREAD", "CREATED", "CHANGED", "METADATA"];
    page.print(&threads.items, threads.next.as_deref(), &heading, |thread| {
        [thread.id.as_str(), &thread.created_at, &thread.updated_at, thread.metadata.as_str()]
            .map(safe::line)
            .to_vec()
    })
}

async fn show(id: &str, globals: &Globals, client: &Client) -> Result {
    let thread = client.thread(id).await?;
    if globals.json {
        return print::json(&thread);
    }
    // The server gives the newest first; a conversation is read the other way.
    let mut messages = client.messages(id).await?;
    messages.items.reverse();
    print::out(&describe(&thread, &messages.items))?;
    if messages.next.is_some() {
        print::note("earlier messages are not shown");
        print::hint("see everything with `trilogue threads export`");
    }
    Ok(())
}

fn describe(thread: &Thread, messages: &[Message]) -> String {
    let mut text = format!(
        "thread: {}\ncreated: {}\nmetadata: {}\n",
        safe::line(&thread.id),
        safe::line(&thread.created_at),
        safe::line(thread.metadata.as_str())
    );
    if let Some(values) = &thread.values {
        text.push_str(&format!("values: {}\n", safe::line(values.as_str())));
    }
    for message in messages {
        let role = safe::line(&message.role);
        text.push_str(&format!("\n{role}: {}\n", safe::block(&message.text())));
    }
    text
}
