//! One run on the terminal: renders its events, asks its questions, cancels it on Ctrl-C.
//!
//! [`Conversation`] is the same for every protocol. A protocol gives a [`RemoteAgent`], which starts runs, and a [`RunReader`], which reads one.

pub(crate) mod attach;
pub(crate) mod between_turns;
mod communication;
mod connect;
mod denial;
mod image_store;
mod native;
pub(crate) mod remote;
pub(crate) mod run_settings;
pub(crate) mod short_id;
mod view;

use std::time::Duration;

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trilogue_sdk::client::{ClientError, EventStream, ResponseBody};
use trilogue_wire::native::{
    AnswerCreate, Event, EventBody, Interrupt, InterruptRaised, Json, Part, RunInput, Survives,
};

use crate::command::globals::Globals;
use crate::conversation::remote::RemoteServer;
use crate::terminal::ask::{self, TypedReply};
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::{print, question, safe, style, table};

pub(crate) use communication::CommunicationAgent;
pub(crate) use connect::ConnectAgent;
pub(crate) use native::{NativeAgent, closing_reason};
use view::RunView;
pub(crate) use view::ViewArguments;

/// How long an interrupted command waits for the server to accept and cancel its run.
const START_CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// The agent that runs, and its settings. `run` and `chat` take it from their options.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) agent: String,
    pub(crate) config: Option<Json>,
    /// The thread to run on; `None` for a new one per run.
    pub(crate) thread: Option<String>,
    /// Whether a new thread stays out of listings.
    pub(crate) is_ephemeral: bool,
}

/// An agent of a server, in the protocol that the server speaks.
pub(crate) trait RemoteAgent: Sized {
    type Reader: RunReader;

    /// Finds the agent if a run needs more than its name.
    async fn open(server: &RemoteServer, target: Target) -> Result<Self>;

    async fn check(&self) -> Result;

    async fn start(&self, input: RunInput) -> Result<Self::Reader>;

    /// Starts a run and returns its id and the server's object, without waiting for its end.
    async fn start_detached(&self, input: RunInput) -> Result<(String, impl Serialize)>;

    /// Returns the command that shows a run that was started this way, if there is one.
    fn tail_command(&self, _run: &str, _globals: &Globals) -> Option<String> {
        None
    }

    /// The events of the agent's thread after the last one that a turn has read. `None` before the first turn, and where the protocol has none.
    fn events_between_turns(&self) -> Option<EventStream> {
        None
    }

    /// A thread's id in a note, as `--thread` takes it: whole, unless the server finds short ones.
    fn noted_thread(&self, thread: &str) -> String {
        safe::visible(thread)
    }
}

pub(crate) trait RunReader {
    /// Returns the next item; `None` if the server has ended the stream. A question is the event `interrupt.raised`. Safe to cancel.
    async fn next(&mut self) -> Result<Option<RunItem>, ClientError>;

    /// The run's id, once it is known.
    fn run_id(&self) -> Option<String>;

    /// The thread that a further run can name, once it is known.
    fn thread(&self) -> Option<String>;

    async fn cancel(&self) -> Result;

    async fn answer(
        &mut self,
        interrupt: &Interrupt,
        answer: AnswerCreate,
    ) -> Result<AnswerOutcome>;

    /// Why a question is no longer open; `None` if it is, or if the server does not say now.
    async fn closing_reason(&self, interrupt: &Interrupt) -> Option<String>;

    /// Whether the run asks this question for an earlier run of its thread, whose agent still waits for the answer.
    async fn is_of_earlier_run(&self, _interrupt: &Interrupt) -> bool {
        false
    }

    /// Returns a hint that shows how to answer the question from another command.
    fn answer_hint(&self, _interrupt: &Interrupt, _globals: &Globals) -> String {
        "answer with a POST to the run, or start another run on a terminal".into()
    }

    /// Continues to read after a question that this terminal leaves open.
    fn skip_question(&mut self) {}

    /// Opens the content that a part refers to; returns `None` for content that is not on the server.
    async fn open(&self, part: &Part) -> Result<Option<ResponseBody>>;
}

/// One item of a source.
#[derive(Debug)]
pub(crate) enum RunItem {
    Events {
        /// The event as the server wrote it; `None` for one that the source concludes.
        json: Option<String>,
        /// The events of the item; possibly none.
        events: Vec<Event>,
    },
    /// The server has dropped the events before this number.
    Gap { first: u64 },
}

#[derive(Debug)]
pub(crate) enum AnswerOutcome {
    Accepted,
    /// It does not fit the question, and why.
    Invalid(String),
    /// The question is over, and why. The run's events continue.
    TooLate(String),
}

#[derive(Debug)]
pub(crate) struct Conversation<'a, S> {
    reader: S,
    view: RunView,
    globals: &'a Globals,
}

/// Opens an agent in the protocol of its server, and does this with it.
macro_rules! with_agent {
    ($server:expr, $protocol:expr, $target:expr, |$agent:ident| $then:expr) => {{
        use $crate::conversation::RemoteAgent as _;
        match $protocol {
            $crate::conversation::remote::ServerProtocol::Communication => {
                let opening = $crate::conversation::CommunicationAgent::open($server, $target);
                let $agent = $crate::conversation::unless_interrupted(opening).await?;
                $then
            }
            $crate::conversation::remote::ServerProtocol::Connect => {
                let opening = $crate::conversation::ConnectAgent::open($server, $target);
                let $agent = $crate::conversation::unless_interrupted(opening).await?;
                $then
            }
            $crate::conversation::remote::ServerProtocol::Auto
            | $crate::conversation::remote::ServerProtocol::Native => {
                let opening = $crate::conversation::NativeAgent::open($server, $target);
                let $agent = $crate::conversation::unless_interrupted(opening).await?;
                $then
            }
        }
    }};
}
pub(crate) use with_agent;

// === impl Conversation ===

impl<'a, S: RunReader> Conversation<'a, S> {
    /// Starts a run, renders it to its end, and returns its thread if the server named one.
    pub(crate) async fn hold(
        agent: &impl RemoteAgent<Reader = S>,
        input: RunInput,
        view: &ViewArguments,
        globals: &'a Globals,
    ) -> Result<Option<String>> {
        let mut view = RunView::new(view, globals)?;
        let reader = view.while_drawing(start_or_cancel(Box::pin(agent.start(input)))).await?;
        let mut conversation = Self { reader, view, globals };
        let ended = conversation.follow().await;
        let settled = conversation.view.settle();
        let Self { reader, view, .. } = conversation;
        let saved = view.save_artifacts(&reader).await;
        ended.and(settled).and(saved).map(|()| reader.thread())
    }

    async fn follow(&mut self) -> Result {
        let mut cancelling = false;
        let (mut ctrl_c, mut terminate) = (ctrl_c()?, termination()?);
        loop {
            let item = tokio::select! {
                item = self.reader.next() => item?,
                () = self.view.next_frame() => {
                    self.view.draw()?;
                    continue;
                }
                _ = ctrl_c.recv() => {
                    self.stop(&mut cancelling).await?;
                    continue;
                }
                _ = terminate.recv() => {
                    self.stop(&mut cancelling).await?;
                    continue;
                }
            };
            let Some(item) = item else {
                return Err(CliError::failure("the server ended the stream before the run"));
            };
            for event in self.events(item)? {
                self.view.image(&event, &self.reader).await?;
                self.view.event(&event)?;
                match event.body {
                    EventBody::RunEnded(ended) => {
                        return self.view.command_result(&ended.outcome, cancelling);
                    }
                    EventBody::InterruptRaised(_) if cancelling => self.reader.skip_question(),
                    EventBody::InterruptRaised(raised) => {
                        match self.ask_unless_terminated(&raised.interrupt, &mut terminate).await {
                            Err(error) if error.exit == ExitStatus::Interrupted => {
                                cancelling = true;
                                self.cancel().await?;
                                self.reader.skip_question();
                                // The question took this Ctrl-C; only the next one leaves at once.
                                ctrl_c = self::ctrl_c()?;
                            }
                            answered => answered?,
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    /// Returns the events of an item. Writes the item unchanged if the user wants its original form.
    fn events(&self, item: RunItem) -> Result<Vec<Event>> {
        match item {
            RunItem::Events { json, events } => {
                if let Some(json) = json {
                    self.view.original(&json)?;
                }
                Ok(events)
            }
            RunItem::Gap { first } => {
                print::note(&format!("the events before {first} are gone"));
                Ok(Vec::new())
            }
        }
    }

    /// Cancels the run at the first signal, and leaves at the second.
    async fn stop(&mut self, cancelling: &mut bool) -> Result {
        if std::mem::replace(cancelling, true) {
            return Err(CliError::silent(ExitStatus::Interrupted));
        }
        self.cancel().await
    }

    async fn cancel(&mut self) -> Result {
        // Without its id there is nothing to cancel.
        if self.reader.run_id().is_none() {
            return Err(CliError::silent(ExitStatus::Interrupted));
        }
        self.view.settle()?;
        self.view.show_cancelling();
        print::note("\ncancelling the run; press Ctrl-C again to leave at once");
        unless_interrupted(self.reader.cancel()).await
    }

    /// Asks the person at the terminal, unless the program is terminated: that counts as Ctrl-C.
    async fn ask_unless_terminated(
        &mut self,
        interrupt: &Interrupt,
        terminate: &mut Signal,
    ) -> Result {
        tokio::select! {
            asked = self.ask(interrupt) => asked,
            _ = terminate.recv() => Err(CliError::silent(ExitStatus::Interrupted)),
        }
    }

    /// Asks the person at the terminal. Without one, or if the person leaves the question open, fails with how to answer.
    async fn ask(&mut self, interrupt: &Interrupt) -> Result {
        if self.globals.json || !print::can_ask() {
            if !self.globals.json {
                question::show(interrupt);
            }
            return self.leave_open(interrupt).await;
        }
        loop {
            let reader = &self.reader;
            let reply = ask::answer(interrupt, async || reader.closing_reason(interrupt).await);
            let answer = match reply.await? {
                TypedReply::Answer(answer) => answer,
                TypedReply::Later => return self.leave_open(interrupt).await,
                TypedReply::Closed(why) => {
                    let closed = style::bold("the question is closed");
                    print::note(&format!("\n{closed}: {}", safe::block(&why)));
                    self.reader.skip_question();
                    return Ok(());
                }
            };
            match self.reader.answer(interrupt, answer).await? {
                AnswerOutcome::Accepted => return Ok(()),
                AnswerOutcome::Invalid(why) => {
                    print::note(&format!("the answer does not fit: {}", safe::block(&why)));
                }
                AnswerOutcome::TooLate(why) => {
                    let refused = style::bold("your answer was not taken");
                    print::note(&format!("\n{refused}: {}", safe::block(&why)));
                    self.reader.skip_question();
                    return Ok(());
                }
            }
        }
    }

    /// Leaves a question open, and fails with how to answer it. Continues with the run if an earlier run has asked the question: this one does not wait for it.
    async fn leave_open(&mut self, interrupt: &Interrupt) -> Result {
        let kind = safe::visible(&interrupt.kind);
        if self.reader.is_of_earlier_run(interrupt).await {
            print::note(&format!("a question of an earlier run is still open ({kind})"));
            // Not its id: the question has another one when this run ends.
            let url = self.globals.url_option();
            print::hint(&format!("find it when this run has ended: trilogue inbox{url}"));
            self.reader.skip_question();
            return Ok(());
        }
        let run = table::noted_id(&self.reader.run_id().unwrap_or_default());
        let message = format!("the run {run} needs an answer ({kind})");
        let hint = self.reader.answer_hint(interrupt, self.globals);
        Err(CliError::new(ExitStatus::Waiting, message).hint(hint))
    }
}

/// Makes an event for a protocol whose events have no native sequence numbers.
pub(crate) fn unnumbered(body: EventBody) -> Event {
    Event {
        id: String::new(),
        number: 0,
        run_number: None,
        run_id: None,
        at: String::new(),
        body,
        original: None,
    }
}

/// Makes the event of a question at which a stream stopped.
fn raised(interrupt: Interrupt) -> RunItem {
    let raised = EventBody::InterruptRaised(InterruptRaised { interrupt });
    RunItem::Events { json: None, events: vec![unnumbered(raised)] }
}

/// Returns an answer as a value, otherwise its text as the `Err`. An option is chosen by its id.
fn answer_value(answer: AnswerCreate) -> Result<Json, Option<String>> {
    match (answer.option, answer.value) {
        (Some(option), _) => Ok(Json::from_value(&serde_json::json!({ "option_id": option }))),
        (None, Some(value)) => Ok(value),
        (None, None) => Err(answer.text),
    }
}

/// Makes a question without the members that only Trilogue servers send.
fn plain_interrupt(id: String, kind: String) -> Interrupt {
    Interrupt {
        id,
        run_id: None,
        thread_id: None,
        agent: None,
        raised_at: None,
        kind,
        prompt: Vec::new(),
        payload: Json::null(),
        options: Vec::new(),
        schema: None,
        survives: Survives::Restart,
        patience_ms: None,
        resolution: None,
        resolved_at: None,
    }
}

/// Waits for the start of a run. At Ctrl-C or SIGTERM it cancels the run, which the server may have accepted already, unless another signal comes or the server
/// does not answer in time.
async fn start_or_cancel<S: RunReader>(
    mut start: impl Future<Output = Result<S>> + Unpin,
) -> Result<S> {
    let interrupted = match unless_interrupted(&mut start).await {
        Err(error) if error.is_silent_interrupt() => error,
        started => return started,
    };
    let cancelled = async {
        if let Ok(reader) = start.await
            && reader.run_id().is_some()
        {
            // The command is about to leave, so an error of the cancellation is not reported.
            drop(reader.cancel().await);
        }
        Ok(())
    };
    // Another signal ends the wait too.
    drop(tokio::time::timeout(START_CANCEL_LIMIT, unless_interrupted(cancelled)).await);
    Err(interrupted)
}

/// Waits for this, which Ctrl-C and SIGTERM give up.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut ctrl_c, mut terminate) = (ctrl_c()?, termination()?);
    tokio::select! {
        done = work => done,
        _ = terminate.recv() => Err(CliError::silent(ExitStatus::Interrupted)),
        _ = ctrl_c.recv() => Err(CliError::silent(ExitStatus::Interrupted)),
    }
}

/// Listens for SIGTERM from now on: a signal that comes before it is waited for is not lost.
pub(crate) fn termination() -> Result<Signal> {
    signal(SignalKind::terminate())
        .map_err(|error| CliError::failure(format!("cannot listen for SIGTERM: {error}")))
}

fn ctrl_c() -> Result<Signal> {
    signal(SignalKind::interrupt())
        .map_err(|error| CliError::failure(format!("cannot listen for Ctrl-C: {error}")))
}
