//! `trilogue tail`.

use clap::Args;
use trilogue_sdk::client::{Client, ClientError, EventStream, Page, StreamItem};
use trilogue_wire::native::{Event, EventBody, List, Part};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::remote;
use crate::terminal::beside::thought_id;
use crate::terminal::{print, safe, show};

/// Show the events of a thread or a run.
#[derive(Args, Debug)]
pub(crate) struct Tail {
    /// The thread or run.
    #[arg(value_name = "THREAD|RUN")]
    of: String,
    /// Begin with this number instead of the first, or with this message of the thread.
    #[arg(long, value_name = "N|MESSAGE_ID")]
    from: Option<String>,
    /// Go on with what happens next. Of a run, until it ends.
    #[arg(long, short)]
    follow: bool,
}

/// Whose events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Thread,
    Run,
}

// === impl Tail ===

impl Tail {
    pub(crate) async fn execute(&self, globals: &Globals) -> Result {
        let client = remote::open(globals)?;
        let of = self.find(&client).await?;
        let after = self.after(&client, of).await?;
        if self.follow {
            let stream = match of {
                Of::Run => client.run_events(&self.of, after.as_deref()),
                Of::Thread => client.thread_events(&self.of, after.as_deref()),
            };
            return tokio::select! {
                ended = follow(stream, of, globals) => ended,
                _ = tokio::signal::ctrl_c() => Err(Stop::silent(Exit::Interrupted)),
            };
        }
        self.pages(&client, of, after, globals).await
    }

    /// An id alone does not say what it names.
    async fn find(&self, client: &Client) -> Result<Of> {
        match client.run(&self.of).await {
            Ok(_) => return Ok(Of::Run),
            Err(ClientError::Problem(problem)) if problem.status == 404 => {}
            Err(error) => return Err(error.into()),
        }
        match client.thread(&self.of).await {
            Ok(_) => Ok(Of::Thread),
            Err(ClientError::Problem(problem)) if problem.status == 404 => Err(Stop::new(
                Exit::NotFound,
                format!("there is no thread and no run '{}'", safe::visible(&self.of)),
            )
            .hint("list them with `trilogue threads` and `trilogue runs`")),
            Err(error) => Err(error.into()),
        }
    }

    /// The position to begin after.
    async fn after(&self, client: &Client, of: Of) -> Result<Option<String>> {
        let Some(from) = &self.from else { return Ok(None) };
        if let Ok(number) = from.parse::<u64>() {
            return Ok(Some(number.saturating_sub(1).to_string()));
        }
        if of == Of::Run {
            let message =
                format!("--from {}: of a run only a number can be named", safe::visible(from));
            return Err(Stop::usage(message).hint("name the run's thread to begin with a message"));
        }
        let page = client.thread_events_from(&self.of, from, Some(1)).await?;
        Ok(page.items.first().map(|event| event.number.saturating_sub(1).to_string()))
    }

    async fn pages(
        &self,
        client: &Client,
        of: Of,
        mut after: Option<String>,
        globals: &Globals,
    ) -> Result {
        loop {
            let page = Page { after, limit: None };
            let List { items, next } = match of {
                Of::Run => client.run_events_page(&self.of, &page).await?,
                Of::Thread => client.thread_events_page(&self.of, &page).await?,
            };
            for event in &items {
                if globals.json {
                    print::json(event)?;
                } else {
                    print::out(&line(event, of))?;
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

async fn follow(mut stream: EventStream, of: Of, globals: &Globals) -> Result {
    while let Some(item) = stream.next().await? {
        match item {
            StreamItem::Event { json, .. } if globals.json => {
                print::raw(format!("{json}\n").as_bytes())?;
            }
            StreamItem::Event { event, .. } => print::out(&line(&event, of))?,
            StreamItem::Gap(gap) => print::note(&format!(
                "the events after {} are gone; the oldest that is kept is {}",
                gap.after, gap.first
            )),
        }
    }
    Ok(())
}

/// One event on one line: number, time, type, and what it says.
fn line(event: &Event, of: Of) -> String {
    let number = match of {
        Of::Run => event.run_number.unwrap_or(event.number),
        Of::Thread => event.number,
    };
    let says = says(event);
    let line = format!(
        "{number:>5}  {}  {:<20}  {says}",
        safe::line(&event.at),
        safe::line(event.body.name())
    );
    format!("{}\n", line.trim_end())
}

/// What an event says. Words of a message stand behind its id.
fn says(event: &Event) -> String {
    match &event.body {
        EventBody::RunCreated(created) => safe::visible(&created.agent),
        EventBody::RunCancelling(cancelling) => {
            safe::visible(cancelling.reason.as_deref().unwrap_or_default())
        }
        EventBody::RunResult(result) => show::inline(&result.value),
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
        EventBody::MessagePart(part) => of_message(&part.message_id, &part_says(&part.part)),
        EventBody::MessageCompleted(completed) => of_message(&completed.message_id, ""),
        EventBody::MessageThought(thought) => {
            let id = event.original.as_ref().and_then(thought_id).unwrap_or_default();
            of_message(&id, &safe::visible(&thought.text))
        }
        EventBody::ToolStarted(tool) => {
            let title = if tool.title.is_empty() { &tool.tool } else { &tool.title };
            let title = safe::visible(title);
            match &tool.message_id {
                Some(message) => format!("{title} (from {})", safe::visible(message)),
                None => title,
            }
        }
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
            format!(
                "{} {}",
                safe::visible(&raised.interrupt.kind),
                safe::visible(&raised.interrupt.id)
            )
        }
        EventBody::InterruptResolved(resolved) => {
            format!("{:?} {}", resolved.resolution.kind, safe::visible(&resolved.interrupt_id))
        }
        EventBody::StateValues(values) => show::inline(&values.values),
        EventBody::StateCustom(update) => {
            format!("{} {}", safe::visible(&update.kind), show::inline(&update.data))
        }
        EventBody::ThreadCreated(created) => safe::visible(&created.thread_id),
        EventBody::ThreadHeadMoved(moved) => safe::visible(&moved.by),
        EventBody::ThreadRunRemoved(removed) => {
            format!("{} {}", safe::visible(&removed.removed_run_id), safe::visible(&removed.reason))
        }
        _ => String::new(),
    }
}

/// What stands in a message, behind the message's id.
fn of_message(id: &str, says: &str) -> String {
    format!("{}  {says}", safe::visible(id)).trim().to_owned()
}

fn part_says(part: &Part) -> String {
    match (part.as_text(), &part.name) {
        (Some(text), None) if !text.is_empty() => safe::visible(text),
        (_, Some(name)) => format!("{} ({})", safe::visible(name), show::summary(part)),
        _ => show::summary(part),
    }
}
