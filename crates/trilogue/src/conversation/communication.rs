//! Runs on any server of the Agent Communication Protocol.

mod events;

use serde::Serialize;
use trilogue_sdk::client::communication::{Client, NewRun, Resume, RunStream};
use trilogue_sdk::client::{ClientError, ResponseBody};
use trilogue_wire::agent_communication::{
    AwaitRequest, ContentEncoding as Encoding, Message, MessagePart, RunStatus, Uuid,
};
use trilogue_wire::native::{
    AnswerCreate, ContentEncoding, InputPart, Interrupt, Json, Part, RunInput,
};

use super::{AnswerOutcome, RemoteAgent, RunItem, RunReader, Target};
use crate::conversation::remote::RemoteServer;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use crate::terminal::safe;
use events::EventTranslator;

#[derive(Debug)]
pub(crate) struct CommunicationAgent {
    server: RemoteServer,
    client: Client,
    name: String,
    config: Option<Json>,
    session: Option<Uuid>,
}

#[derive(Debug)]
pub(crate) struct CommunicationRunReader {
    server: RemoteServer,
    client: Client,
    stream: RunStream,
    translator: EventTranslator,
    /// The run's session, once the server has named it.
    session: Option<Uuid>,
    /// The run's last question, as long as nothing has come after it.
    question: Option<AwaitRequest>,
}

// === impl CommunicationAgent ===

impl CommunicationAgent {
    fn request(&self, input: RunInput) -> NewRun {
        let mut new = NewRun::new(&self.name, messages(input));
        new.request.config.clone_from(&self.config);
        match self.session {
            Some(session) => new.in_session(session),
            None => new,
        }
    }
}

impl RemoteAgent for CommunicationAgent {
    type Reader = CommunicationRunReader;

    async fn open(server: &RemoteServer, target: Target) -> Result<Self> {
        if target.is_ephemeral {
            let error = CliError::usage("--ephemeral: this server's protocol never lists threads");
            return Err(error.hint("leave --ephemeral out"));
        }
        let session = target.thread.as_deref().map(session_of).transpose()?;
        let client = server.communication();
        let Target { agent: name, config, .. } = target;
        Ok(Self { server: server.clone(), client, name, config, session })
    }

    async fn check(&self) -> Result {
        self.client.agent(&self.name).await?;
        Ok(())
    }

    async fn start(&self, input: RunInput) -> Result<CommunicationRunReader> {
        Ok(CommunicationRunReader {
            server: self.server.clone(),
            client: self.client.clone(),
            stream: self.client.run_stream(self.request(input)).await?,
            translator: EventTranslator::default(),
            session: None,
            question: None,
        })
    }

    async fn start_detached(&self, input: RunInput) -> Result<(String, impl Serialize)> {
        let run = self.client.run_async(self.request(input)).await?;
        Ok((run.run_id.to_string(), run))
    }
}

/// The session that `--thread` names: the protocol's only ids are UUIDs.
fn session_of(thread: &str) -> Result<Uuid> {
    thread.parse().map_err(|_| {
        let thread = safe::visible(thread);
        CliError::usage(format!("--thread {thread}: this server's thread ids are UUIDs"))
            .hint("pass a UUID (an unused one begins a new thread), or leave --thread out")
    })
}

fn messages(input: RunInput) -> Vec<Message> {
    match input {
        RunInput::Text(text) => vec![Message::text(&text)],
        RunInput::Value(value) => vec![MessagePart::json(&value).into()],
        RunInput::Messages(messages) => messages
            .into_iter()
            .map(|message| Message::user(message.parts.into_iter().map(part).collect()))
            .collect(),
    }
}

fn part(part: InputPart) -> MessagePart {
    let content_encoding = match part.content_encoding {
        Some(ContentEncoding::Base64) => Encoding::Base64,
        Some(ContentEncoding::Plain) | None => Encoding::Plain,
    };
    MessagePart {
        name: part.name,
        content_type: part.content_type.unwrap_or_else(|| "text/plain".to_owned()),
        content: part.content,
        content_encoding,
        content_url: part.content_url,
        ..MessagePart::default()
    }
}

// === impl CommunicationRunReader ===

impl RunReader for CommunicationRunReader {
    async fn next(&mut self) -> Result<Option<RunItem>, ClientError> {
        let Some(streamed) = self.stream.next().await? else {
            // The stream stops after a question that is still open.
            return Ok(self.question.take().map(|it| super::raised(events::interrupt(it))));
        };
        self.question = None;
        if let Some(run) = streamed.event.run() {
            self.session = run.session_id.or(self.session);
            self.question.clone_from(&run.await_request);
        }
        let events = self.translator.events(streamed.event);
        let events = events.map_err(|error| ClientError::Unexpected(error.to_string()))?;
        Ok(Some(RunItem::Events { json: Some(streamed.json), events }))
    }

    fn run_id(&self) -> Option<String> {
        self.stream.run().map(|run| run.to_string())
    }

    fn thread(&self) -> Option<String> {
        self.session.map(|session| session.to_string())
    }

    async fn cancel(&self) -> Result {
        let Some(run) = self.stream.run() else {
            return Err(CliError::silent(ExitStatus::Interrupted));
        };
        match self.client.cancel(run).await {
            Ok(_) => Ok(()),
            // It ended in the meantime: its last event says how.
            Err(error) if is_too_late(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn answer(
        &mut self,
        interrupt: &Interrupt,
        answer: AnswerCreate,
    ) -> Result<AnswerOutcome> {
        match self.stream.resume(message_of(answer, interrupt)).await {
            Ok(()) => Ok(AnswerOutcome::Accepted),
            Err(error) if is_invalid(&error) => Ok(AnswerOutcome::Invalid(error.to_string())),
            Err(error) if is_too_late(&error) => Ok(AnswerOutcome::TooLate(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    async fn closing_reason(&self, interrupt: &Interrupt) -> Option<String> {
        let run = self.client.run(self.stream.run()?).await.ok()?;
        let asked = run.await_request.filter(|_| run.status == RunStatus::Awaiting);
        match asked.map(events::interrupt) {
            Some(open) if open.id == interrupt.id => None,
            Some(_) => Some("it was answered elsewhere".to_owned()),
            None => Some(format!("the run is {}", run.status.as_str())),
        }
    }

    fn skip_question(&mut self) {
        self.server.expect_new_stream();
        self.stream.wait_on();
    }

    async fn open(&self, part: &Part) -> Result<Option<ResponseBody>> {
        let Some(path) = self.server.path_of(part) else { return Ok(None) };
        Ok(Some(self.client.content(&path).await?))
    }
}

fn message_of(answer: AnswerCreate, interrupt: &Interrupt) -> Resume {
    let part = match super::answer_value(answer) {
        Ok(value) => MessagePart::json(&value),
        Err(text) => MessagePart::text(text.unwrap_or_default()),
    };
    let answer = Resume::from(part);
    if interrupt.id.is_empty() { answer } else { answer.for_interrupt(&interrupt.id) }
}

fn is_invalid(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.status == Some(422))
}

/// The protocol has one status for everything that the state of a run forbids.
fn is_too_late(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refusal) if refusal.status == Some(403))
        && !matches!(error.code(), Some("forbidden" | "host_refused" | "origin_refused"))
}
