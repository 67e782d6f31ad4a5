//! `trilogue tail`.

use clap::Args;
use trilogue_sdk::client::{Client, EventStream, Page, StreamItem};
use trilogue_wire::native::{Event, EventBody, List, Part, ResolutionKind};

use crate::command::globals::Globals;
use crate::conversation::remote;
use crate::conversation::short_id;
use crate::terminal::beside::{subagent_line, thought_id};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, render, safe, table, tool_content};

/// Show the events of a thread or a run.
#[derive(Args, Debug)]
pub(crate) struct TailCommand {
    /// The thread or the run.
    #[arg(value_name = "THREAD|RUN")]
    id: String,
    /// Begin with the event of this number, or with this message of a thread.
    #[arg(long, value_name = "N|MESSAGE_ID")]
    from: Option<String>,
    /// Wait for further events; for a run, until it ends.
    #[arg(long, short)]
    follow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogKind {
    Thread,
    Run,
}

// === impl TailCommand ===

impl TailCommand {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let (kind, id) = self.find(&client).await?;
        let after = self.after(&client, kind, &id).await?;
        if self.follow {
            let stream = match kind {
                LogKind::Run => client.run_events(&id, after.as_deref()),
                LogKind::Thread => client.thread_events(&id, after.as_deref()),
            };
            return tokio::select! {
                ended = follow(stream, kind, globals) => ended,
                _ = tokio::signal::ctrl_c() => Err(CliError::silent(ExitStatus::Interrupted)),
            };
        }
        self.pages(&client, kind, &id, after, globals).await
    }

    async fn find(&self, client: &Client) -> Result<(LogKind, String)> {
        match short_id::run_or_thread(client, &self.id).await? {
            Some(short_id::RunOrThread::Run(id)) => Ok((LogKind::Run, id)),
            Some(short_id::RunOrThread::Thread(id)) => Ok((LogKind::Thread, id)),
            None => Err(CliError::new(
                ExitStatus::NotFound,
                format!("no thread or run has the id '{}'", safe::visible(&self.id)),
            )
            .hint("list them with `trilogue threads` and `trilogue runs`")),
        }
    }

    async fn after(&self, client: &Client, kind: LogKind, id: &str) -> Result<Option<String>> {
        let Some(from) = &self.from else { return Ok(None) };
        let message = match from.parse::<u64>() {
            Ok(number) => {
                // A message's short id can consist of digits.
                let can_be_message = kind == LogKind::Thread && short_id::is_listed_form(from);
                let message = match can_be_message {
                    true => short_id::message(client, id, from).await?,
                    false => from.clone(),
                };
                if message == *from {
                    return Ok(Some(number.saturating_sub(1).to_string()));
                }
                message
            }
            Err(_) if kind == LogKind::Run => {
                let message =
                    format!("--from {}: a run's events have numbers only", safe::visible(from));
                return Err(
                    CliError::usage(message).hint("pass the run's thread to begin with a message")
                );
            }
            Err(_) => short_id::message(client, id, from).await?,
        };
        let page = client.thread_events_from(id, &message, Some(1)).await?;
        Ok(page.items.first().map(|event| event.number.saturating_sub(1).to_string()))
    }

    async fn pages(
        &self,
        client: &Client,
        kind: LogKind,
        id: &str,
        mut after: Option<String>,
        globals: &Globals,
    ) -> Result {
        loop {
            let page = Page { after, limit: None };
            let List { items, next } = match kind {
                LogKind::Run => client.run_events_page(id, &page).await?,
                LogKind::Thread => client.thread_events_page(id, &page).await?,
            };
            for event in &items {
                if globals.json {
                    print::json(event)?;
                } else {
                    print::out(&line(event, kind))?;
                }
            }
            match next {
                Some(next) if page.after.as_ref() != Some(&next) && !items.is_empty() => {
                    after = Some(next);
                }
                _ => return Ok(()),
            }
        }
    }
}

async fn follow(mut stream: EventStream, kind: LogKind, globals: &Globals) -> Result {
    while let Some(item) = stream.next().await? {
        match item {
            StreamItem::Event { json, .. } if globals.json => {
                print::json_lines(format!("{json}\n").as_bytes())?;
            }
            StreamItem::Event { event, .. } => print::out(&line(&event, kind))?,
            StreamItem::Gap(gap) => print::note(&format!(
                "the events after {} are gone; the oldest kept one is {}",
                gap.after, gap.first
            )),
        }
    }
    Ok(())
}

/// Formats one event on one line: number, time, type, summary. On a terminal it is cut to fit, and has whole seconds.
fn line(event: &Event, kind: LogKind) -> String {
    let number = match kind {
        LogKind::Run => event.run_number.unwrap_or(event.number),
        LogKind::Thread => event.number,
    };
    let summary = summary(event);
    let columns = print::data_columns().filter(|_| print::is_terminal());
    let at = safe::line(&event.at);
    let at = match at.split_once('.').filter(|_| print::is_terminal()) {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => at,
    };
    let line = format!("{number:>5}  {at}  {:<20}  {summary}", safe::line(event.body.name()));
    let line = columns.map_or(line.clone(), |columns| table::cut(&line, columns));
    format!("{}\n", line.trim_end())
}

/// Summarises an event. A message's content follows its id.
fn summary(event: &Event) -> String {
    match &event.body {
        EventBody::RunCreated(created) => safe::visible(&created.agent),
        EventBody::RunCancelling(cancelling) => {
            safe::visible(cancelling.reason.as_deref().unwrap_or_default())
        }
        EventBody::RunResult(result) => render::inline(&result.value),
        EventBody::RunEnded(ended) => match &ended.outcome.error {
            Some(error) => format!(
                "{} {}: {}",
                ended.outcome.status.as_str(),
                safe::visible(&error.code),
                safe::visible(&error.message)
            ),
            None => ended.outcome.status.as_str().to_owned(),
        },
        EventBody::MessageStarted(started) => {
            of_message(&started.message_id, &safe::visible(&started.role))
        }
        EventBody::MessageDelta(delta) => {
            of_message(&delta.message_id, &safe::visible(&delta.text))
        }
        EventBody::MessagePart(part) => of_message(&part.message_id, &part_summary(&part.part)),
        EventBody::MessageCompleted(completed) => of_message(&completed.message_id, ""),
        EventBody::MessageThought(thought) => {
            let given = || event.original.as_ref().and_then(thought_id);
            let id = thought.message_id.clone().or_else(given).unwrap_or_default();
            of_message(&id, &safe::visible(&thought.text))
        }
        EventBody::ToolStarted(tool) => {
            let title = if tool.title.is_empty() { &tool.tool } else { &tool.title };
            let title = safe::visible(title);
            match &tool.message_id {
                Some(message) => format!("{title} (from {})", shown_id(message)),
                None => title,
            }
        }
        EventBody::ToolUpdated(_) => tool_content::titles(event),
        EventBody::ToolEnded(tool) => safe::visible(&tool.status),
        EventBody::InterruptRuleApplied(applied) => {
            let decided = if applied.allowed { "allowed" } else { "denied" };
            format!("{decided} {}", safe::visible(&applied.rule))
        }
        EventBody::Opaque(_) => match &event.original {
            Some(original) => safe::visible(&original.dialect),
            None => String::new(),
        },
        EventBody::InterruptRaised(raised) => {
            format!("{} {}", safe::visible(&raised.interrupt.kind), shown_id(&raised.interrupt.id))
        }
        EventBody::InterruptResolved(resolved) => {
            let how = match resolved.resolution.kind {
                ResolutionKind::Answered => "answered",
                ResolutionKind::TimedOut => "timed out",
                ResolutionKind::Cancelled => "cancelled",
                ResolutionKind::Withdrawn => "withdrawn",
            };
            format!("{how} {}", shown_id(&resolved.interrupt_id))
        }
        EventBody::StateValues(values) => render::inline(&values.values),
        EventBody::StateCustom(update) => {
            format!("{} {}", safe::visible(&update.kind), render::inline(&update.data))
        }
        EventBody::StateSubagent(subagent) => subagent_line(subagent),
        EventBody::ThreadCreated(created) => shown_id(&created.thread_id),
        EventBody::ThreadHeadMoved(moved) => safe::visible(&moved.by),
        EventBody::ThreadRunRemoved(removed) => {
            format!("{} {}", shown_id(&removed.removed_run_id), safe::visible(&removed.reason))
        }
        _ => String::new(),
    }
}

fn of_message(id: &str, content: &str) -> String {
    format!("{}  {content}", shown_id(id)).trim().to_owned()
}

/// An id, on a terminal in its short form.
fn shown_id(id: &str) -> String {
    let id = safe::visible(id);
    if !print::is_terminal() {
        return id;
    }
    table::short_ids(&[id]).pop().unwrap_or_default()
}

fn part_summary(part: &Part) -> String {
    match (part.as_text(), &part.name) {
        (Some(text), None) if !text.is_empty() => safe::visible(text),
        (_, Some(name)) => format!("{} ({})", safe::visible(name), render::summary(part)),
        _ => render::summary(part),
    }
}
