//! One run on any server of the Agent Connect Protocol: shows its output as it grows, answers what it asks, cancels it on Ctrl-C.

use trilogue_sdk::client::ClientError;
use trilogue_sdk::connect::{
    CancelAction, Client, Descriptor, NewRun, Resume, RunInterrupt, RunStream, StreamMode,
    StreamPayload, StreamedEvent,
};
use trilogue_wire::native::{AnswerCreate, Interrupt, Json, Part};

use super::Showing;
use super::asked::interrupt;
use super::growth::Growth;
use super::stage::{Stage, ctrl_c};
use crate::arguments::Globals;
use crate::exit::{Exit, Result, Stop};
use crate::remote::Server;
use crate::terminal::show::Turn;
use crate::terminal::{ask, print, safe, style};

/// A run that is shown.
#[derive(Debug)]
pub(crate) struct Conversation<'a> {
    server: &'a Server,
    client: Client,
    stage: Stage,
    growth: Growth,
    /// What the agent declares, where that is known: the schemas of answers.
    descriptor: Option<&'a Descriptor>,
    /// What the run asked last.
    question: Option<RunInterrupt>,
}

/// What came next.
enum Next {
    Item(Result<Option<Box<StreamedEvent>>, ClientError>),
    CtrlC,
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    /// Prepares to show a run of the agent that this describes.
    ///
    /// # Errors
    /// When the folder for artifacts cannot be made, or `--raw` would reach a terminal.
    pub(crate) fn new(
        server: &'a Server,
        client: Client,
        descriptor: Option<&'a Descriptor>,
        showing: &Showing,
        globals: &Globals,
    ) -> Result<Self> {
        let stage = Stage::new(showing, globals)?;
        Ok(Self { server, client, stage, growth: Growth::default(), descriptor, question: None })
    }

    /// Starts the run and shows it to its end.
    ///
    /// # Errors
    /// How the run ended, where that is not its completion.
    pub(crate) async fn hold(mut self, new: NewRun) -> Result {
        let mut stream = self.start(new).await?;
        let ended = self.follow(&mut stream).await;
        let (server, client) = (self.server, &self.client);
        // Large content of this server lies at an address below its own.
        let open = async |part: &Part| match part.content_url.as_deref() {
            Some(address) => match server.path_of(address) {
                Some(path) => Ok(Some(client.content(&path).await?)),
                None => Ok(None),
            },
            None => Ok(None),
        };
        let kept = self.stage.keep_artifacts(open).await;
        ended.and(kept)
    }

    /// Asks for everything that can be shown, or else for what the agent streams.
    async fn start(&self, new: NewRun) -> Result<RunStream> {
        let both = new.clone().streaming([StreamMode::Values, StreamMode::Custom]);
        match self.client.run_stream(both).await {
            Err(error) if error.code() == Some("stream_mode_not_supported") => {
                Ok(self.client.run_stream(new).await?)
            }
            started => Ok(started?),
        }
    }

    async fn follow(&mut self, stream: &mut RunStream) -> Result {
        let mut cancelling = false;
        let mut interrupts = ctrl_c()?;
        loop {
            let next = tokio::select! {
                item = stream.next() => Next::Item(item.map(|item| item.map(Box::new))),
                _ = interrupts.recv() => Next::CtrlC,
            };
            let item = match next {
                Next::CtrlC if cancelling => return Err(Stop::silent(Exit::Interrupted)),
                Next::CtrlC => {
                    cancelling = true;
                    self.cancel(stream).await?;
                    continue;
                }
                Next::Item(item) => item?,
            };
            if let Some(streamed) = item {
                if let Some(Turn::Ended(outcome)) = self.item(*streamed)? {
                    return self.stage.ended(&outcome, cancelling);
                }
                continue;
            }
            // The stream stops behind a question.
            let Some(question) = self.question.take() else {
                return Err(Stop::failed("the server ended the stream before the run"));
            };
            if cancelling {
                self.wait_on(stream);
                continue;
            }
            match self.asked(interrupt(question, self.descriptor), stream).await {
                Err(stop) if stop.exit == Exit::Interrupted => {
                    cancelling = true;
                    self.cancel(stream).await?;
                    self.wait_on(stream);
                    // The question took this Ctrl-C; only the next one leaves at once.
                    interrupts = ctrl_c()?;
                }
                asked => asked?,
            }
        }
    }

    /// Prints what an event adds, and gives what it asks for.
    fn item(&mut self, streamed: StreamedEvent) -> Result<Option<Turn>> {
        self.stage.original(&streamed.json)?;
        if let StreamPayload::Interrupt(update) = &streamed.event {
            self.question = Some(update.asked.clone());
            self.stage.pause()?;
        }
        let mut turn = None;
        for event in self.growth.take(streamed.event) {
            turn = self.stage.event(&event)?.or(turn);
        }
        Ok(turn)
    }

    async fn cancel(&self, stream: &RunStream) -> Result {
        let Some(at) = stream.run() else { return Err(Stop::silent(Exit::Interrupted)) };
        print::note("\ncancelling the run; press Ctrl-C again to leave at once");
        match self.client.cancel(at, false, CancelAction::Interrupt).await {
            // Such a server has nothing more to say about it.
            Err(error) if matches!(status(&error), Some(405 | 500 | 501)) => {
                Err(Stop::new(Exit::Interrupted, "the server cannot cancel runs: it goes on there"))
            }
            cancelled => Ok(cancelled?),
        }
    }

    /// Goes on behind a question that this terminal does not answer.
    fn wait_on(&self, stream: &mut RunStream) {
        self.server.wait_on();
        stream.wait_on();
    }

    /// Asks who is at the terminal, or stops with what to do.
    async fn asked(&self, interrupt: Interrupt, stream: &mut RunStream) -> Result {
        if self.stage.json || !print::can_ask() {
            if !self.stage.json {
                ask::show(&interrupt);
            }
            let run = stream.run().map(|at| safe::visible(&at.run)).unwrap_or_default();
            return Err(Stop::new(
                Exit::Waiting,
                format!("the run {run} needs an answer ({})", safe::visible(&interrupt.kind)),
            )
            .hint(
                "nobody can be asked here: run it on a terminal, or answer with a POST to the run",
            ));
        }
        loop {
            let answer = answer_of(ask::answer(&interrupt).await?, &interrupt);
            // What comes now is no stream that broke.
            self.server.wait_on();
            match stream.resume(answer).await {
                Ok(()) => return Ok(()),
                Err(error) if status(&error) == Some(422) => {
                    print::note(&format!(
                        "the answer does not fit: {}",
                        safe::block(&error.to_string())
                    ));
                }
                // Somebody else was faster, or the run has ended: its events go on and say how.
                Err(error) if matches!(status(&error), Some(400 | 409)) => {
                    let refused = style::bold("your answer was not taken");
                    print::note(&format!("\n{refused}: {}", safe::block(&error.to_string())));
                    self.wait_on(stream);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What was answered at the terminal, for the question that it answers where the server names questions.
fn answer_of(answer: AnswerCreate, interrupt: &Interrupt) -> Resume {
    let payload = match (answer.option, answer.value) {
        (Some(option), _) => Json::from_value(&serde_json::json!({ "option_id": option })),
        (None, Some(value)) => value,
        (None, None) => Json::from_value(&serde_json::json!({ "message": answer.text })),
    };
    let answer = Resume::from(payload);
    if interrupt.id.is_empty() { answer } else { answer.to(&interrupt.kind, &interrupt.id) }
}

fn status(error: &ClientError) -> Option<u16> {
    match error {
        ClientError::Fault(fault) => Some(fault.status),
        _ => None,
    }
}
