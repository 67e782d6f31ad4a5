//! `trilogue threads`.

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use trilogue_domain::limits;
use trilogue_sdk::client::{Client, Page};
use trilogue_wire::native::{Message, Thread, ThreadCopy};

use super::PageArguments;
use crate::exit::{CliError, Result};
use crate::globals::Globals;
use crate::remote;
use crate::short_id;
use crate::terminal::beside::is_for_user;
use crate::terminal::table::Column;
use crate::terminal::{ask, print, safe};

const DEFAULT_MESSAGES: u32 = 1_000;
/// The most messages that can be shown: they are held in memory.
const MAX_MESSAGES: i64 = 100_000;
/// The most messages in one request.
const PAGE_MESSAGES: usize = limits::DEFAULT_PAGE_ROWS;

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
    /// Show one thread with the messages of its history, oldest first.
    Show {
        /// The thread.
        thread: String,
        /// Show at most this many messages, the newest ones.
        #[arg(
            long,
            value_name = "N",
            default_value_t = DEFAULT_MESSAGES,
            value_parser = clap::value_parser!(u32).range(1..=MAX_MESSAGES)
        )]
        limit: u32,
        /// Also show what its sender marks as not meant for the user.
        #[arg(long)]
        all: bool,
    },
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
            Some(ThreadsAction::Show { thread, limit, all }) => {
                let thread = short_id::thread(&client, thread).await?;
                show(&thread, *limit, *all, globals, &client).await
            }
            Some(ThreadsAction::Export { thread }) => {
                let thread = short_id::thread(&client, thread).await?;
                let mut body = client.export_thread(&thread).await?;
                // The end of a piece can be inside a character.
                let mut begun = Vec::new();
                while let Some(piece) = body.next().await {
                    begun.extend(piece.map_err(|error| CliError::failed(error.message))?);
                    let end =
                        begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
                    print::json_lines(begun.get(..end).unwrap_or_default())?;
                    begun.drain(..end);
                }
                print::json_lines(&begun)
            }
            Some(ThreadsAction::Copy { thread, id, until }) => {
                let (id, until_message) = (id.clone(), until.clone());
                let copy = ThreadCopy { id, metadata: None, until_message };
                let thread = short_id::thread(&client, thread).await?;
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
                    return Err(CliError::failed("nothing was erased"));
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
        Column::id("THREAD"),
        Column::detail("CREATED"),
        Column::time("CHANGED"),
        Column::text("TITLE"),
        Column::detail("METADATA"),
    ];
    page.print(&threads.items, threads.next.as_deref(), "no threads", &columns, |thread| {
        let title = thread.title.clone().unwrap_or_default();
        let (created, changed) = (&thread.created_at, &thread.updated_at);
        [thread.id.as_str(), created, changed, &title, thread.metadata.as_str()]
            .map(safe::line)
            .to_vec()
    })
}

async fn show(id: &str, limit: u32, all: bool, globals: &Globals, client: &Client) -> Result {
    let thread = client.thread(id).await?;
    if globals.json {
        return print::json(&thread);
    }
    let (mut messages, earlier) = conversation(id, limit, client).await?;
    let hidden = if all { 0 } else { hide(&mut messages) };
    print::out(&describe(&thread, &messages))?;
    if hidden > 0 {
        print::note(&format!("parts that are not meant for the user and not shown: {hidden}"));
        print::hint("show them with --all");
    }
    if earlier {
        print::note(&format!("only the newest {limit} messages are shown; there are earlier ones"));
        print::hint(&format!(
            "see more with --limit, or everything with `trilogue threads export {}{}`",
            safe::line(id),
            globals.elsewhere()
        ));
    }
    Ok(())
}

/// The newest messages, oldest first, and whether there are earlier ones.
async fn conversation(id: &str, limit: u32, client: &Client) -> Result<(Vec<Message>, bool)> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut messages = Vec::new();
    let mut after = None;
    // The server sends the newest first; a conversation is read the other way.
    loop {
        let wanted = limit.saturating_sub(messages.len()).min(PAGE_MESSAGES);
        let page = Page { after, limit: u32::try_from(wanted).ok() };
        let mut page = client.messages_page(id, &page).await?;
        messages.append(&mut page.items);
        after = page.next;
        if after.is_none() || messages.len() >= limit {
            break;
        }
    }
    let earlier = after.is_some() || messages.len() > limit;
    messages.truncate(limit);
    messages.reverse();
    Ok((messages, earlier))
}

/// Removes parts whose annotations address them to others than the user, and messages of nothing else. Returns the number of parts.
fn hide(messages: &mut Vec<Message>) -> usize {
    let mut hidden = 0;
    messages.retain_mut(|message| {
        let before = message.parts.len();
        message.parts.retain(is_for_user);
        hidden += before - message.parts.len();
        before == 0 || !message.parts.is_empty()
    });
    hidden
}

fn describe(thread: &Thread, messages: &[Message]) -> String {
    let mut text = format!("thread: {}\n", safe::line(&thread.id));
    if let Some(title) = &thread.title {
        text.push_str(&format!("title: {}\n", safe::line(title)));
    }
    text.push_str(&format!(
        "created: {}\nmetadata: {}\n",
        safe::line(&thread.created_at),
        safe::line(thread.metadata.as_str())
    ));
    if let Some(values) = &thread.values {
        text.push_str(&format!("values: {}\n", safe::line(values.as_str())));
    }
    for message in messages {
        let role = safe::line(&message.role);
        text.push_str(&format!("\n{role}: {}\n", safe::block(&message.text())));
    }
    text
}
