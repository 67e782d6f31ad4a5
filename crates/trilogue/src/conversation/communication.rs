//! One run on any server of the Agent Communication Protocol: shows its events, answers what it asks, cancels it on Ctrl-C.

use trilogue_sdk::client::ClientError;
use trilogue_sdk::communication::{Answer, Client, NewRun, RunStream, StreamedEvent};
use trilogue_wire::agent_communication::{AwaitRequest, Json, MessagePart, Uuid};
use trilogue_wire::native::{AnswerCreate, Interrupt, Part};

use super::Showing;
use super::stage::{Stage, ctrl_c};
use super::translation::{Translation, interrupt};
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
    translation: Translation,
    /// The session that the run belongs to, once the server has said it.
    session: Option<Uuid>,
    /// What the run asked last, as long as nothing has come after it.
    question: Option<AwaitRequest>,
}

/// What came next.
enum Next {
    Item(Result<Option<Box<StreamedEvent>>, ClientError>),
    CtrlC,
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    /// Prepares to show a run.
    ///
    /// # Errors
    /// When the folder for artifacts cannot be made, or `--raw` would reach a terminal.
    pub(crate) fn new(server: &'a Server, showing: &Showing, globals: &Globals) -> Result<Self> {
        Ok(Self {
            server,
            client: server.communication(),
            stage: Stage::new(showing, globals)?,
            translation: Translation::default(),
            session: None,
            question: None,
        })
    }

    /// Starts the run and shows it to its end; gives its session.
    ///
    /// # Errors
    /// How the run ended, where that is not its completion.
    pub(crate) async fn hold(mut self, new: NewRun) -> Result<Option<Uuid>> {
        let mut stream = self.client.run_stream(new).await?;
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
        ended.and(kept).map(|()| self.session)
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
            // The stream stops behind a question that is still open.
            let Some(question) = self.question.take() else {
                return Err(Stop::failed("the server ended the stream before the run"));
            };
            if cancelling {
                self.wait_on(stream);
                continue;
            }
            match self.asked(interrupt(question), stream).await {
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

    /// Prints an event, and gives what it asks for.
    fn item(&mut self, streamed: StreamedEvent) -> Result<Option<Turn>> {
        self.stage.original(&streamed.json)?;
        self.question = None;
        if let Some(run) = streamed.event.run() {
            self.session = run.session_id.or(self.session);
            self.question.clone_from(&run.await_request);
        }
        if self.question.is_some() {
            self.stage.pause()?;
        }
        match self.translation.event(streamed.event) {
            Some(event) => self.stage.event(&event),
            None => Ok(None),
        }
    }

    async fn cancel(&self, stream: &RunStream) -> Result {
        let Some(run) = stream.run() else { return Err(Stop::silent(Exit::Interrupted)) };
        print::note("\ncancelling the run; press Ctrl-C again to leave at once");
        match self.client.cancel(run).await {
            Ok(_) => Ok(()),
            // It ended in the meantime: its last event says how.
            Err(error) if is_too_late(&error) => Ok(()),
            Err(error) => Err(error.into()),
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
            let run = stream.run().map(|run| run.to_string()).unwrap_or_default();
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
            match stream.resume(answer).await {
                Ok(()) => return Ok(()),
                Err(error) if is_unfit(&error) => {
                    print::note(&format!(
                        "the answer does not fit: {}",
                        safe::block(&error.to_string())
                    ));
                }
                // Somebody else was faster, or the run has ended: its events go on and say how.
                Err(error) if is_too_late(&error) => {
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

/// What was answered at the terminal, as a message.
fn answer_of(answer: AnswerCreate, interrupt: &Interrupt) -> Answer {
    let part = match (answer.option, answer.value) {
        (Some(option), _) => {
            MessagePart::json(&Json::from_value(&serde_json::json!({ "option_id": option })))
        }
        (None, Some(value)) => MessagePart::json(&value),
        (None, None) => MessagePart::text(answer.text.unwrap_or_default()),
    };
    let answer = Answer::from(part);
    if interrupt.id.is_empty() { answer } else { answer.to(&interrupt.id) }
}

fn is_unfit(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.status == Some(422))
}

/// The protocol's one word for what the state of a run forbids.
fn is_too_late(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.status == Some(403))
        && !matches!(error.code(), Some("forbidden" | "host_refused" | "origin_refused"))
}
