//! Runs on our own servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use trilogue_domain::{Code, InterruptId};
use trilogue_sdk::client::{
    Client, ClientError, EventStream, Filter, Page, ResponseBody, StreamItem,
};
use trilogue_sdk::{RunId, ThreadId};
use trilogue_wire::native::{AnswerCreate, Interrupt, Part, ResolutionKind, RunCreate, RunInput};

use super::{AnswerOutcome, RemoteAgent, RunItem, RunReader, Target};
use crate::command::globals::Globals;
use crate::conversation::attach;
use crate::conversation::remote::RemoteServer;
use crate::conversation::short_id;
use crate::terminal::exit::Result;
use crate::terminal::{safe, table};

/// The questions of a thread among which the one of an earlier run is looked for, newest first.
const EARLIER_QUESTIONS: u32 = 100;

#[derive(Debug)]
pub(crate) struct NativeAgent {
    server: RemoteServer,
    client: Client,
    target: Target,
    last_event: LastEvent,
}

/// The number of the last event of the thread that a turn has read; 0 before the first turn. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct LastEvent(Arc<AtomicU64>);

#[derive(Debug)]
pub(crate) struct NativeRunReader {
    client: Client,
    run: String,
    thread: Option<String>,
    stream: EventStream,
    last_event: LastEvent,
}

// === impl NativeAgent ===

impl NativeAgent {
    fn request(&self, mut input: RunInput) -> RunCreate {
        if !self.server.is_local() {
            attach::forget_paths(&mut input);
        }
        let mut new = RunCreate::new(&self.target.agent, input);
        new.config.clone_from(&self.target.config);
        if !self.target.is_ephemeral {
            let generated = || ThreadId::generate().as_str().to_owned();
            new.thread_id = Some(self.target.thread.clone().unwrap_or_else(generated));
            new.create_thread = true;
        }
        new
    }
}

impl RemoteAgent for NativeAgent {
    type Reader = NativeRunReader;

    async fn open(server: &RemoteServer, target: Target) -> Result<Self> {
        let client = server.native();
        let mut target = target;
        if let Some(named) = &target.thread
            && let Some(listed) = short_id::listed_thread(&client, named).await?
        {
            target.thread = Some(listed);
        }
        Ok(Self { server: server.clone(), client, target, last_event: LastEvent::default() })
    }

    async fn check(&self) -> Result {
        self.client.agent(&self.target.agent).await?;
        Ok(())
    }

    async fn start(&self, input: RunInput) -> Result<NativeRunReader> {
        let client = self.client.clone();
        let run = RunId::generate().as_str().to_owned();
        let new = RunCreate { id: Some(run.clone()), ..self.request(input) };
        let thread = new.thread_id.clone();
        let stream = client.stream_run(new).await?;
        let last_event = self.last_event.clone();
        Ok(NativeRunReader { client, run, thread, stream, last_event })
    }

    async fn start_detached(&self, input: RunInput) -> Result<(String, impl Serialize)> {
        let run = self.client.start_run(self.request(input)).await?;
        Ok((run.id.clone(), run))
    }

    fn tail_command(&self, run: &str, globals: &Globals) -> Option<String> {
        Some(format!("trilogue tail {run} --follow{}", globals.url_option()))
    }

    fn events_between_turns(&self) -> Option<EventStream> {
        let last = self.last_event.0.load(Ordering::Relaxed);
        let thread = self.target.thread.as_ref().filter(|_| last > 0)?;
        // It follows the thread, and does not resume the stream of the run before.
        self.server.expect_new_stream();
        Some(self.client.thread_events(thread, Some(&last.to_string())))
    }

    fn noted_thread(&self, thread: &str) -> String {
        table::noted_id(thread)
    }
}

// === impl NativeRunReader ===

impl RunReader for NativeRunReader {
    async fn next(&mut self) -> Result<Option<RunItem>, ClientError> {
        Ok(self.stream.next().await?.map(|item| match item {
            StreamItem::Event { event, json, .. } => {
                self.last_event.0.fetch_max(event.number, Ordering::Relaxed);
                RunItem::Events { json: Some(json), events: vec![*event] }
            }
            StreamItem::Gap(gap) => RunItem::Gap { first: gap.first },
        }))
    }

    fn run_id(&self) -> Option<String> {
        Some(self.run.clone())
    }

    fn thread(&self) -> Option<String> {
        self.thread.clone()
    }

    async fn cancel(&self) -> Result {
        match self.client.cancel_run(&self.run).await {
            Ok(_) => Ok(()),
            // It ended in the meantime: its last event says how.
            Err(error) if error.code() == Some("run_ended") => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn answer(
        &mut self,
        interrupt: &Interrupt,
        answer: AnswerCreate,
    ) -> Result<AnswerOutcome> {
        match self.client.answer(&interrupt.id, &answer).await {
            Ok(_) => Ok(AnswerOutcome::Accepted),
            Err(error) if error.code() == Some("answer_invalid") => {
                Ok(AnswerOutcome::Invalid(error.to_string()))
            }
            Err(error) if matches!(error.code(), Some("interrupt_resolved" | "run_ended")) => {
                let why = closing_reason(&self.client, &interrupt.id).await;
                Ok(AnswerOutcome::TooLate(why.unwrap_or_else(|| error.to_string())))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn closing_reason(&self, interrupt: &Interrupt) -> Option<String> {
        closing_reason(&self.client, &interrupt.id).await
    }

    async fn is_of_earlier_run(&self, interrupt: &Interrupt) -> bool {
        let Ok(run) = RunId::parse(&self.run) else { return false };
        let of_thread = Filter { thread: self.thread.clone(), resolved: true, ..Filter::default() };
        let newest = Page { limit: Some(EARLIER_QUESTIONS), ..Page::default() };
        // Only a thread that other runs can name has earlier runs.
        if self.thread.is_none() {
            return false;
        }
        let Ok(asked) = self.client.interrupts(&of_thread, &newest).await else { return false };
        let mut ids = asked.items.iter().filter_map(|it| InterruptId::parse(&it.id).ok());
        ids.any(|id| id.passed_up(&run).as_str() == interrupt.id)
    }

    fn answer_hint(&self, interrupt: &Interrupt, globals: &Globals) -> String {
        let id = table::noted_id(&interrupt.id);
        format!("answer it with `trilogue approve {id}{}`", globals.url_option())
    }

    async fn open(&self, part: &Part) -> Result<Option<ResponseBody>> {
        match &part.blob {
            Some(blob) => Ok(Some(self.client.blob(&blob.url).await?)),
            None => Ok(None),
        }
    }
}

/// Returns why a question of a Trilogue server is no longer open; `None` if it is open, or if the server
/// gives no answer.
pub(crate) async fn closing_reason(client: &Client, interrupt: &str) -> Option<String> {
    let asked = match client.interrupt(interrupt).await {
        Ok(interrupt) => interrupt,
        Err(error) if error.code() == Some("interrupt_not_found") => {
            return Some("the question was removed".to_owned());
        }
        Err(_) => return None,
    };
    let resolution = asked.resolution.as_ref()?;
    Some(match (resolution.kind, &resolution.by) {
        (ResolutionKind::Answered, Some(by)) => {
            format!("{} answered the question elsewhere", safe::visible(by))
        }
        (ResolutionKind::Answered, None) => "it was answered elsewhere".to_owned(),
        (ResolutionKind::TimedOut, _) => "the time to answer is over".to_owned(),
        (ResolutionKind::Cancelled, _) => "the run has been cancelled".to_owned(),
        (ResolutionKind::Withdrawn, _)
            if resolution.reason.as_deref() == Some(Code::RunEnded.as_str()) =>
        {
            match short_id::question_behind(client, &asked).await {
                Some(open) => format!(
                    "the run has ended, and its sub-agent still waits: answer it with `trilogue approve {}`",
                    table::noted_id(&open.id)
                ),
                None => "the run has ended".to_owned(),
            }
        }
        (ResolutionKind::Withdrawn, _) => "the agent has withdrawn the question".to_owned(),
    })
}
