//! `trilogue tail`.

use clap::Args;
use trilogue_sdk::client::{Client, ClientError, EventStream, Page, StreamItem};
use trilogue_wire::native::{Event, EventBody, List};

use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::remote;
use crate::terminal::{print, safe, show};

/// Show the events of a thread or a run.
#[derive(Args, Debug)]
pub(crate) struct Tail {
    /// The thread or run.
    #[arg(value_name = "THREAD|RUN")]
    of: String,
    /// Begin with this number instead of the first.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
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
        let after = self.from.map(|from| from.saturating_sub(1).to_string());
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
    let says = says(&event.body);
    let line = format!(
        "{number:>5}  {}  {:<20}  {says}",
        safe::line(&event.at),
        safe::line(event.body.name())
    );
    format!("{}\n", line.trim_end())
}

fn says(body: &EventBody) -> String {
    match body {
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
        EventBody::MessageStarted(started) => safe::visible(&started.role),
        EventBody::MessageDelta(delta) => safe::visible(&delta.text),
        EventBody::MessagePart(part) => match (part.part.as_text(), &part.part.name) {
            (Some(text), None) if !text.is_empty() => safe::visible(text),
            (_, Some(name)) => {
                format!("{} ({})", safe::visible(name), show::summary(&part.part))
            }
            _ => show::summary(&part.part),
        },
        EventBody::MessageThought(thought) => safe::visible(&thought.text),
        EventBody::ToolStarted(tool) => safe::visible(&tool.title),
        EventBody::ToolEnded(tool) => safe::visible(&tool.status),
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
