//! `trilogue threads show`: a whole conversation, rendered as `run` renders a run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use trilogue_domain::limits;
use trilogue_sdk::client::{Client, ClientError, Filter, Page};
use trilogue_wire::native::{
    Event, EventBody, List, Message, MessageCompleted, MessagePart, MessageStarted, Run, RunStatus,
    Thread,
};

use crate::command::globals::Globals;
use crate::conversation::short_id;
use crate::conversation::unnumbered;
use crate::terminal::exit::Result;
use crate::terminal::render::plain::{PlainOptions, PlainRenderer};
use crate::terminal::render::rich::{RichOptions, RichRenderer};
use crate::terminal::render::{FoldOptions, PieceFold};
use crate::terminal::{print, safe};

const DEFAULT_MESSAGES: u32 = 1_000;
/// The most messages that can be shown: they are held in memory.
const MAX_MESSAGES: i64 = 100_000;
/// The most messages in one request.
const PAGE_MESSAGES: usize = limits::DEFAULT_PAGE_ROWS;

/// Show a conversation, oldest first: messages, steps, tool calls, questions and who answered them.
#[derive(Args, Debug)]
pub(super) struct ShowThread {
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
    /// Write plain text, as into a pipe: nothing is wrapped or folded.
    #[arg(long)]
    plain: bool,
    /// Show thoughts, steps and tool calls in full, not folded into a line each.
    #[arg(long)]
    full: bool,
}

/// The output of `--json`: the thread with its history and the events of its runs.
#[derive(Debug, Serialize)]
struct ThreadRecord<'a> {
    #[serde(flatten)]
    thread: &'a Thread,
    messages: &'a [Message],
    /// The events of the runs in the history, run by run, and what was reported of their sub-agents after them.
    events: Vec<Event>,
}

/// A stretch of the history.
#[derive(Debug)]
enum HistoryStretch {
    /// All of a run, with its messages that are in the history.
    Run(String),
    /// All of a run that is open, failed or was cancelled. The history has none of its messages, so all of them are shown.
    UnfinishedRun(String),
    /// A message whose run is not on this thread: it was copied or imported.
    Message(Message),
}

/// Writes the conversation.
#[derive(Debug)]
struct ThreadRendering {
    fold: PieceFold,
    renderer: TranscriptRenderer,
    /// The messages that are shown.
    shown: HashSet<String>,
}

/// The sub-agents that are at work by the shown events: the thread of each, and the number of the event that says so.
#[derive(Debug, Default)]
struct LastSubagentReports(HashMap<String, u64>);

#[derive(Debug)]
enum TranscriptRenderer {
    Plain(PlainRenderer),
    Rich(RichRenderer),
}

// === impl ShowThread ===

impl ShowThread {
    pub(super) async fn execute(&self, globals: &Globals, client: &Client) -> Result {
        let thread = client.thread(&short_id::thread(client, &self.thread).await?).await?;
        // Before the history: a run that completes in between would have its messages in neither.
        let runs = runs_of(&thread.id, client).await?;
        let (messages, earlier) = history(&thread.id, self.limit, client).await?;
        if globals.json {
            let (mut events, mut at_work) = (Vec::new(), LastSubagentReports::default());
            for stretch in history_stretches(runs, &messages, earlier) {
                if let HistoryStretch::Run(run) | HistoryStretch::UnfinishedRun(run) = stretch {
                    events.extend(run_events(&run, client).await?);
                }
            }
            at_work.note(&events);
            events.extend(at_work.later_reports(&thread.id, client).await?);
            return print::json(&ThreadRecord { thread: &thread, messages: &messages, events });
        }
        print::out(&heading(&thread))?;
        let mut rendering = ThreadRendering::new(self, &messages);
        let mut at_work = LastSubagentReports::default();
        for stretch in history_stretches(runs, &messages, earlier) {
            let events = match stretch {
                HistoryStretch::Run(run) => run_events(&run, client).await?,
                HistoryStretch::UnfinishedRun(run) => {
                    let events = run_events(&run, client).await?;
                    rendering.show_messages_of(&events);
                    events
                }
                HistoryStretch::Message(message) => message_events(message),
            };
            at_work.note(&events);
            rendering.write(&events)?;
        }
        rendering.write(&at_work.later_reports(&thread.id, client).await?)?;
        self.print_omissions(&rendering, earlier, globals);
        Ok(())
    }

    /// Returns notes on the omitted content, and how to see it.
    fn print_omissions(&self, rendering: &ThreadRendering, earlier: bool, globals: &Globals) {
        let hidden = rendering.fold.hidden_count();
        if hidden > 0 {
            print::note(&format!("parts that are not meant for the user and not shown: {hidden}"));
            print::hint("show them with --all");
        }
        if earlier {
            let limit = self.limit;
            print::note(&format!(
                "only the newest {limit} messages are shown; there are earlier ones"
            ));
            print::hint(&format!(
                "see more with --limit, or everything with `trilogue threads export {}{}`",
                safe::line(&self.thread),
                globals.url_option()
            ));
        }
    }
}

// === impl LastSubagentReports ===

impl LastSubagentReports {
    fn note(&mut self, events: &[Event]) {
        for event in events {
            let EventBody::StateSubagent(subagent) = &event.body else { continue };
            if subagent.state.as_deref().is_none_or(|state| state == "idle") {
                self.0.remove(&subagent.thread_id);
            } else {
                self.0.insert(subagent.thread_id.clone(), event.number);
            }
        }
    }

    /// The newest report of each that came after its run, and so is in no run: that it has ended, or that it was lost.
    async fn later_reports(&self, thread: &str, client: &Client) -> Result<Vec<Event>> {
        let Some(first) = self.0.values().min() else { return Ok(Vec::new()) };
        let page = Page { after: Some(first.to_string()), ..Page::default() };
        let events = all_events(page, async |page| client.thread_events_page(thread, page).await);
        let mut newest = BTreeMap::new();
        for event in events.await? {
            let EventBody::StateSubagent(subagent) = &event.body else { continue };
            let is_later = self.0.get(&subagent.thread_id).is_some_and(|at| *at < event.number);
            if is_later && event.run_id.is_none() {
                newest.insert(subagent.thread_id.clone(), event);
            }
        }
        let mut reports: Vec<_> = newest.into_values().collect();
        reports.sort_by_key(|event| event.number);
        Ok(reports)
    }
}

// === impl ThreadRendering ===

impl ThreadRendering {
    fn new(show: &ShowThread, messages: &[Message]) -> Self {
        let options = FoldOptions { metadata: true, all: show.all, users: true };
        let renderer = if print::can_redraw() && !show.plain {
            let options = RichOptions { unfolded: show.full, record: true };
            TranscriptRenderer::Rich(RichRenderer::new(options, Instant::now()))
        } else {
            let options = PlainOptions { live: false, raw: false, record: true };
            TranscriptRenderer::Plain(PlainRenderer::new(options))
        };
        let shown = messages.iter().map(|message| message.id.clone()).collect();
        Self { fold: PieceFold::new(options), renderer, shown }
    }

    /// Shows the messages of these events although the history does not have them.
    fn show_messages_of(&mut self, events: &[Event]) {
        let messages = events.iter().filter_map(|event| message_of(&event.body));
        self.shown.extend(messages.map(str::to_owned));
    }

    fn write(&mut self, events: &[Event]) -> Result {
        let is_shown = |event: &&Event| match message_of(&event.body) {
            Some(message) => self.shown.contains(message),
            None => true,
        };
        let events = events.iter().filter(is_shown);
        match &mut self.renderer {
            TranscriptRenderer::Plain(plain) => {
                for event in events {
                    let rendered = plain.event(&mut self.fold, event);
                    print::out(&rendered.out)?;
                    print::out(&rendered.aside)?;
                }
            }
            TranscriptRenderer::Rich(rich) => {
                let (canvas, now) = (print::canvas(), Instant::now());
                for event in events {
                    rich.event(&mut self.fold, event, now);
                }
                for row in rich.settle(canvas) {
                    print::out(&format!("{}\n", row.text))?;
                }
            }
        }
        Ok(())
    }
}

fn heading(thread: &Thread) -> String {
    let mut text = format!("thread: {}\n", safe::line(&thread.id));
    if let Some(title) = &thread.title {
        text.push_str(&format!("title: {}\n", safe::line(title)));
    }
    text.push_str(&format!("created: {}\n", safe::line(&thread.created_at)));
    if let Some(node) = &thread.node {
        text.push_str(&format!("node: {}\n", safe::line(node)));
    }
    for client in &thread.clients {
        let name = client.name.as_deref().map_or_else(|| "a program".to_owned(), safe::line);
        let (way, principal) = (safe::line(&client.transport), safe::line(&client.principal));
        let role = if client.controls { "controls" } else { "observes" };
        text.push_str(&format!("client: {name} ({way}, {principal}) {role}\n"));
    }
    if thread.metadata.as_str() != "{}" {
        text.push_str(&format!("metadata: {}\n", safe::line(thread.metadata.as_str())));
    }
    if let Some(values) = &thread.values {
        text.push_str(&format!("values: {}\n", safe::line(values.as_str())));
    }
    text.push('\n');
    text
}

/// The newest messages, oldest first, and whether there are earlier ones.
async fn history(id: &str, limit: u32, client: &Client) -> Result<(Vec<Message>, bool)> {
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

/// The history, in order: each run of the thread once, with all that happened in it, and the messages of other runs.
/// A run without messages has its place by its time, unless earlier messages are left out.
fn history_stretches(
    mut runs: Vec<Run>,
    messages: &[Message],
    earlier: bool,
) -> Vec<HistoryStretch> {
    // Oldest first.
    runs.sort_by(|one, other| one.created_at.cmp(&other.created_at));
    let with_messages: HashSet<&str> =
        messages.iter().filter_map(|message| message.run_id.as_deref()).collect();
    let first = runs.iter().find(|run| with_messages.contains(run.id.as_str()));
    let first_at = first.map(|run| run.created_at.clone());
    let silent = |run: &&Run| {
        let is_late = !earlier || first_at.as_ref().is_some_and(|first| *first < run.created_at);
        is_late && !with_messages.contains(run.id.as_str())
    };
    let mut silent = runs.iter().filter(silent).peekable();
    let mut seen = HashSet::new();
    let mut stretches = Vec::new();
    for message in messages {
        let run = message.run_id.as_deref();
        let run = run.and_then(|id| runs.iter().find(|run| run.id == id));
        let Some(run) = run else {
            stretches.push(HistoryStretch::Message(message.clone()));
            continue;
        };
        if seen.insert(run.id.as_str()) {
            while let Some(before) = silent.next_if(|one| one.created_at < run.created_at) {
                stretches.push(silent_run(before));
            }
            stretches.push(HistoryStretch::Run(run.id.clone()));
        }
    }
    stretches.extend(silent.map(silent_run));
    stretches
}

/// A run without messages in the history.
fn silent_run(run: &Run) -> HistoryStretch {
    // The messages of a completed run are outside the history on purpose: it continues from an earlier checkpoint.
    match run.status {
        RunStatus::Completed => HistoryStretch::Run(run.id.clone()),
        _ => HistoryStretch::UnfinishedRun(run.id.clone()),
    }
}

async fn runs_of(thread: &str, client: &Client) -> Result<Vec<Run>> {
    let filter = Filter { thread: Some(thread.to_owned()), ..Filter::default() };
    let (mut runs, mut page) = (Vec::new(), Page::default());
    loop {
        let List { items, next } = client.runs(&filter, &page).await?;
        let is_empty = items.is_empty();
        runs.extend(items);
        match next {
            Some(next) if !is_empty => page = Page { after: Some(next), ..page },
            _ => return Ok(runs),
        }
    }
}

/// Returns the events of a run; none if it was removed in the meantime.
async fn run_events(run: &str, client: &Client) -> Result<Vec<Event>> {
    all_events(Page::default(), async |page| client.run_events_page(run, page).await).await
}

/// Returns the events of this page and all after it; those so far if their log was removed in the meantime.
async fn all_events(
    mut page: Page,
    fetch: impl AsyncFn(&Page) -> Result<List<Event>, ClientError>,
) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    loop {
        let List { items, next } = match fetch(&page).await {
            Err(ClientError::Problem(problem)) if problem.status == 404 => return Ok(events),
            answer => answer?,
        };
        let is_empty = items.is_empty();
        events.extend(items);
        match next {
            Some(next) if !is_empty && page.after.as_ref() != Some(&next) => {
                page = Page { after: Some(next), ..page };
            }
            _ => return Ok(events),
        }
    }
}

/// A message as the events that would have brought it.
fn message_events(message: Message) -> Vec<Event> {
    let Message { id, role, parts, .. } = message;
    let message_id = || id.clone();
    let started = EventBody::MessageStarted(MessageStarted { message_id: message_id(), role });
    let parts = parts
        .into_iter()
        .map(|part| EventBody::MessagePart(MessagePart { message_id: message_id(), part }));
    let completed = EventBody::MessageCompleted(MessageCompleted { message_id: message_id() });
    [started].into_iter().chain(parts).chain([completed]).map(unnumbered).collect()
}

/// The message that an event is about.
fn message_of(body: &EventBody) -> Option<&str> {
    match body {
        EventBody::MessageStarted(started) => Some(&started.message_id),
        EventBody::MessageDelta(delta) => Some(&delta.message_id),
        EventBody::MessagePart(part) => Some(&part.message_id),
        EventBody::MessageCompleted(completed) => Some(&completed.message_id),
        _ => None,
    }
}
