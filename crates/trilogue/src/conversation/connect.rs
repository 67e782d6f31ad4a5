//! Runs on any server of the Agent Connect Protocol.

mod agent_message;
mod input;
mod output_diff;
mod question;

use serde::Serialize;
use trilogue_sdk::client::connect::{
    CancelAction, Client, Descriptor, IfExists, NewRun, Resume, RunInterrupt, RunStream,
    StreamMode, StreamPayload, ThreadCreate,
};
use trilogue_sdk::client::{ClientError, ResponseBody};
use trilogue_wire::agent_communication::Uuid;
use trilogue_wire::agent_connect::RunStatus;
use trilogue_wire::native::{AnswerCreate, EventBody, Interrupt, Json, Part, RunInput};

use super::{AnswerOutcome, RemoteAgent, RunItem, RunReader, Target};
use crate::conversation::remote::RemoteServer;
use crate::terminal::exit::{CliError, ExitStatus, Result};
use output_diff::OutputDiff;

#[derive(Debug)]
pub(crate) struct ConnectAgent {
    server: RemoteServer,
    client: Client,
    /// The agent's id, or that of a configured instance.
    id: String,
    /// The agent's declarations, if the server sends them.
    descriptor: Option<Descriptor>,
    config: Option<Json>,
    thread: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ConnectRunReader {
    server: RemoteServer,
    client: Client,
    stream: RunStream,
    diff: OutputDiff,
    /// The schemas of answers, if they are known.
    descriptor: Option<Descriptor>,
    question: Option<RunInterrupt>,
}

// === impl ConnectAgent ===

impl ConnectAgent {
    async fn request(&self, input: RunInput) -> Result<NewRun> {
        let schema = self.descriptor.as_ref().map(|descriptor| descriptor.specs.input.to_value());
        let mut new = NewRun::new(&self.id, input::by_schema(input, schema.as_ref())?);
        new.request.config.clone_from(&self.config);
        let Some(thread) = &self.thread else { return Ok(new) };
        let missing = ThreadCreate {
            thread_id: Some(thread.clone()),
            if_exists: Some(IfExists::DoNothing),
            ..ThreadCreate::default()
        };
        self.client.create_thread(&missing).await?;
        Ok(new.on_thread(thread))
    }
}

impl RemoteAgent for ConnectAgent {
    type Reader = ConnectRunReader;

    /// Finds an agent by its id or name. An unknown name that is a UUID is taken as the id of a configured instance.
    async fn open(server: &RemoteServer, target: Target) -> Result<Self> {
        let client = server.connect();
        let named = target.agent;
        let (id, descriptor) = match client.find_agent(&named).await {
            Ok(agent) => {
                // Without a descriptor, questions are asked as JSON.
                let descriptor = client.descriptor(&agent.agent_id).await.ok();
                (agent.agent_id, descriptor)
            }
            Err(ClientError::Fault(fault))
                if fault.is_not_found() && !fault.is_foreign() && named.parse::<Uuid>().is_ok() =>
            {
                (named, None)
            }
            Err(error) => return Err(error.into()),
        };
        let config = target.config.map(wrap_config);
        let server = server.clone();
        Ok(Self { server, client, id, descriptor, config, thread: target.thread })
    }

    async fn check(&self) -> Result {
        Ok(())
    }

    /// Requests all updates that can be shown; if the agent does not stream them, requests the values that it
    /// streams.
    async fn start(&self, input: RunInput) -> Result<ConnectRunReader> {
        let new = self.request(input).await?;
        let may_update = self.descriptor.as_ref().is_none_or(|descriptor| {
            let streaming = descriptor.specs.capabilities.streaming.unwrap_or_default();
            streaming.custom == Some(true)
        });
        let all = match may_update {
            true => new.clone().streaming([StreamMode::Values, StreamMode::Custom]),
            false => new.clone(),
        };
        let stream = match self.client.run_stream(all).await {
            Err(error) if error.code() == Some("stream_mode_not_supported") => {
                self.client.run_stream(new).await?
            }
            started => started?,
        };
        Ok(ConnectRunReader {
            server: self.server.clone(),
            client: self.client.clone(),
            stream,
            diff: OutputDiff::default(),
            descriptor: self.descriptor.clone(),
            question: None,
        })
    }

    async fn start_detached(&self, input: RunInput) -> Result<(String, impl Serialize)> {
        let run = self.client.create_run(self.request(input).await?).await?;
        Ok((run.run_id.clone(), run))
    }
}

/// The configuration in the form of the published document, which keeps the agent's own settings in one member.
fn wrap_config(config: Json) -> Json {
    const MEMBERS: [&str; 3] = ["tags", "recursion_limit", "configurable"];
    let settings = config.to_value();
    let is_wrapped = settings.as_object().is_some_and(|members| {
        !members.is_empty() && members.keys().all(|name| MEMBERS.contains(&name.as_str()))
    });
    if is_wrapped {
        return config;
    }
    Json::parse(format!("{{\"configurable\":{}}}", config.as_str())).unwrap_or(config)
}

// === impl ConnectRunReader ===

impl RunReader for ConnectRunReader {
    async fn next(&mut self) -> Result<Option<RunItem>, ClientError> {
        let Some(streamed) = self.stream.next().await? else {
            // The stream stops after a question.
            let declared = self.descriptor.as_ref();
            let question = self.question.take();
            return Ok(question.map(|it| super::raised(question::interrupt(it, declared))));
        };
        if let StreamPayload::Interrupt(update) = &streamed.event {
            self.question = Some(update.asked.clone());
        }
        let mut events = self.diff.push(streamed.event);
        // A Trilogue server also sends the question in an update; the question itself comes at the stream's end.
        events.retain(|event| !matches!(event.body, EventBody::InterruptRaised(_)));
        Ok(Some(RunItem::Events { json: Some(streamed.json), events }))
    }

    fn run_id(&self) -> Option<String> {
        self.stream.run().map(|at| at.run)
    }

    fn thread(&self) -> Option<String> {
        None
    }

    async fn cancel(&self) -> Result {
        let Some(at) = self.stream.run() else {
            return Err(CliError::silent(ExitStatus::Interrupted));
        };
        match self.client.cancel(at, false, CancelAction::Interrupt).await {
            // Such a server says nothing more about it.
            Err(error) if matches!(status(&error), Some(405 | 500 | 501)) => {
                let message = "the server cannot cancel runs: the run continues there";
                Err(CliError::new(ExitStatus::Interrupted, message))
            }
            cancelled => Ok(cancelled?),
        }
    }

    async fn answer(
        &mut self,
        interrupt: &Interrupt,
        answer: AnswerCreate,
    ) -> Result<AnswerOutcome> {
        self.server.expect_new_stream();
        match self.stream.resume(payload_of(answer, interrupt)).await {
            Ok(()) => Ok(AnswerOutcome::Accepted),
            Err(error) => match status(&error) {
                Some(422) => Ok(AnswerOutcome::Invalid(error.to_string())),
                Some(400 | 409) => Ok(AnswerOutcome::TooLate(error.to_string())),
                _ => Err(error.into()),
            },
        }
    }

    async fn closing_reason(&self, _interrupt: &Interrupt) -> Option<String> {
        let status = self.client.run(self.stream.run()?).await.ok()?.status;
        let is_open = status == RunStatus::Interrupted;
        (!is_open).then(|| format!("the run is {}", status.as_str()))
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

/// Makes the answer from the terminal, with the question's id if the server names questions.
fn payload_of(answer: AnswerCreate, interrupt: &Interrupt) -> Resume {
    let payload = super::answer_value(answer)
        .unwrap_or_else(|text| Json::from_value(&serde_json::json!({ "message": text })));
    let answer = Resume::from(payload);
    if interrupt.id.is_empty() {
        answer
    } else {
        answer.for_interrupt(&interrupt.kind, &interrupt.id)
    }
}

fn status(error: &ClientError) -> Option<u16> {
    match error {
        ClientError::Fault(fault) => Some(fault.status),
        _ => None,
    }
}
