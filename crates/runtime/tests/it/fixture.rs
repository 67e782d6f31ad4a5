//! A runtime over a store, an agent that follows the script in its input, and a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use trilogue_domain::event::{InterruptEvent, MessageEvent, RunEvent, StateEvent};
use trilogue_domain::port::Clock;
use trilogue_domain::{
    AgentCard, AgentName, Answer, Body, Citation, Code, Content, Error, Event, Failure, InputKind,
    Interrupt, InterruptKind, Json, Message, MessageId, Part, PartMetadata, Principal, PrincipalId,
    Resolution, Rights, Role, Scope, TenantId, ThreadId, Timestamp, Violation,
};
use trilogue_runtime::{
    Backend, CallRequest, ChildOutcome, EmitError, Ending, Input, NewThread, Options, Rewind,
    RunContext, RunRequest, Runtime, Submitted, ThreadChoice, Turn,
};
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::RunRow;
use trilogue_store::{Range, Store};

use crate::outside_of_runs::{Library, PlainText};

pub struct TestServer {
    pub runtime: Runtime,
    pub store: Arc<dyn Store>,
    pub clock: Arc<HandClock>,
    pub agent: Arc<Scripted>,
    /// The content at remote addresses.
    pub library: Arc<Library>,
    /// A thread that exists from the beginning.
    pub main: ThreadId,
    url: String,
    _folder: Option<Arc<TempDir>>,
}

/// A clock that moves only when the test moves it.
#[derive(Debug)]
pub struct HandClock(AtomicI64);

/// An agent that executes the text of its input, word by word.
#[derive(Debug)]
pub struct Scripted {
    pub card: AgentCard,
    native: bool,
    rewind: Rewind,
    pub turns: AtomicUsize,
    pub gate: tokio::sync::Semaphore,
}

// === impl TestServer ===

impl TestServer {
    pub async fn memory() -> Self {
        Self::open("memory:".to_owned(), None, Arc::default(), Options::default()).await
    }

    pub async fn sqlite() -> Self {
        let folder = Arc::new(TempDir::new().unwrap());
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        Self::open(url, Some(folder), Arc::default(), Options::default()).await
    }

    pub async fn sqlite_with(options: Options) -> Self {
        let folder = Arc::new(TempDir::new().unwrap());
        let url = format!("sqlite:{}", folder.path().join("t.db").display());
        Self::open(url, Some(folder), Arc::default(), options).await
    }

    pub async fn with(options: Options) -> Self {
        Self::open("memory:".to_owned(), None, Arc::default(), options).await
    }

    /// Starts a runtime without setting its external ports.
    pub async fn bare() -> Self {
        Self::start("memory:".to_owned(), None, Arc::default(), Options::default()).await
    }

    async fn open(
        url: String,
        folder: Option<Arc<TempDir>>,
        clock: Arc<HandClock>,
        options: Options,
    ) -> Self {
        let server = Self::start(url, folder, clock, options).await;
        server.hand_in();
        server
    }

    /// Sets the library and the checker of the rules `plain`.
    pub fn hand_in(&self) {
        self.runtime.fetch_with(self.library.clone());
        self.runtime.check_output_with(Arc::new(PlainText));
    }

    async fn start(
        url: String,
        folder: Option<Arc<TempDir>>,
        clock: Arc<HandClock>,
        options: Options,
    ) -> Self {
        let store = trilogue_store::open(&url, trilogue_store::Options::new(Arc::new(NoOriginals)))
            .await
            .unwrap();
        let agent = Arc::new(Scripted::new("script", true));
        let child = Arc::new(Scripted::new("child", false));
        let private = Scripted { rewind: Rewind::Refuse, ..Scripted::new("private", true) };
        let mut counter = Scripted::new("counter", true);
        counter.card.state_schema = Some(Json::parse(r#"{"required":["n"]}"#).unwrap());
        let counter = Arc::new(counter);
        let agents: Vec<Arc<dyn Backend>> = vec![agent.clone(), child, Arc::new(private), counter];
        let runtime = Runtime::start(
            options,
            Arc::clone(&store),
            agents,
            clock.clone(),
            Arc::new(NoOriginals),
        )
        .await
        .unwrap();
        let main = runtime.create_thread(&alice(), NewThread::default()).await.unwrap().id;
        Self { runtime, store, clock, agent, library: Arc::default(), main, url, _folder: folder }
    }

    /// Stops like a crash, without a notice to clients, and starts again on the same store.
    pub async fn crash(self) -> Self {
        let server = self.crash_bare().await;
        server.hand_in();
        server
    }

    /// Like [`Self::crash`], with other settings.
    pub async fn crash_with(self, options: Options) -> Self {
        let (url, folder, clock) = (self.url.clone(), self._folder.clone(), self.clock.clone());
        self.store.close().await.unwrap();
        drop(self);
        Self::open(url, folder, clock, options).await
    }

    /// Like [`Self::crash`], without setting the external ports.
    pub async fn crash_bare(self) -> Self {
        let (url, folder, clock) = (self.url.clone(), self._folder.clone(), self.clock.clone());
        self.store.close().await.unwrap();
        drop(self);
        Self::start(url, folder, clock, Options::default()).await
    }

    pub async fn run(&self, text: &str, thread: ThreadChoice) -> RunRow {
        let submitted = self.runtime.submit(&alice(), new_run(text, thread)).await.unwrap();
        submitted.settled.wait().await.unwrap()
    }

    pub async fn thread(&self) -> ThreadId {
        self.runtime.create_thread(&alice(), NewThread::default()).await.unwrap().id
    }

    pub async fn events(&self, run: &RunRow) -> Vec<Event> {
        let thread = self.store.thread(&scope(), &run.thread_id).await.unwrap().unwrap();
        let mut events: Vec<Event> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event.run_number);
            let range = Range { run: Some(run.key), after, max_bytes: 1 << 20 };
            let frames = self.store.frames(thread.key, range).await.unwrap();
            let before = events.len();
            for frame in frames {
                events.extend(
                    frame
                        .events()
                        .unwrap()
                        .iter()
                        .filter(|event| event.run_number > after)
                        .cloned(),
                );
            }
            if events.len() == before {
                return events;
            }
        }
    }

    pub async fn output_text(&self, run: &RunRow) -> String {
        let mut transcript = trilogue_domain::Transcript::default();
        for event in self.events(run).await {
            transcript.push(&event);
        }
        let said = transcript.into_messages().into_iter().filter(|message| !message.role.is_user());
        said.map(|message| message.text()).collect()
    }

    pub async fn submit(&self, new: RunRequest) -> Submitted {
        self.runtime.submit(&alice(), new).await.unwrap()
    }

    pub async fn refusal_code(&self, new: RunRequest) -> Code {
        self.runtime.submit(&alice(), new).await.map(|_| ()).unwrap_err().code()
    }

    pub async fn is_gone(&self, run: &RunRow) -> bool {
        self.store.run(&scope(), &run.id).await.unwrap().is_none()
    }

    pub async fn stored(&self, run: &RunRow) -> RunRow {
        self.store.run(&scope(), &run.id).await.unwrap().unwrap()
    }
}

// === impl HandClock ===

impl Default for HandClock {
    fn default() -> Self {
        Self(AtomicI64::new(1_000_000_000))
    }
}

impl HandClock {
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

// === impl Scripted ===

impl Scripted {
    pub fn new(name: &str, native: bool) -> Self {
        Self {
            card: AgentCard {
                version: "1".to_owned(),
                ..AgentCard::new(AgentName::parse(name).unwrap(), InputKind::Chat)
            },
            native,
            rewind: Rewind::Free,
            turns: AtomicUsize::new(0),
            gate: tokio::sync::Semaphore::new(0),
        }
    }

    async fn word(&self, word: &str, context: &RunContext) -> Result<Option<Ending>, Failure> {
        let (verb, rest) = word.split_once(':').unwrap_or((word, ""));
        match verb {
            "say" => say(context, rest).await,
            "many" => {
                for number in 0..rest.parse::<usize>().unwrap() {
                    say(context, &number.to_string()).await;
                }
            }
            "history" => {
                let history = context.history().await.map_err(to_failure)?;
                let texts: Vec<_> = history.iter().map(Message::text).collect();
                say(context, &texts.join("|")).await;
            }
            "roles" => {
                let history = context.history().await.map_err(to_failure)?;
                let told = history.iter().map(|message| {
                    let part = &message.parts[0];
                    let kind = format!("{} {}", message.role.to_text(), part.content_type);
                    match &part.content {
                        Content::Text(text) if &*part.content_type != "text/plain" => {
                            format!("{kind} {text} {}", message.id)
                        }
                        _ => kind,
                    }
                });
                say(context, &told.collect::<Vec<_>>().join("|")).await;
            }
            "times" => {
                let history = context.history().await.map_err(to_failure)?;
                let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
                let told = history.iter().map(|message| {
                    let (from, to) = (message.created_at, message.completed_at);
                    format!("{:?} {:?}", micros(from), micros(to))
                });
                say(context, &told.collect::<Vec<_>>().join("|")).await;
            }
            "state" => {
                let state = context.load_state().await.map_err(to_failure)?;
                say(context, state.as_ref().map_or("none", Json::as_str)).await;
            }
            "set" => {
                let values = Body::State(StateEvent::Values(Json::parse(rest.to_owned()).unwrap()));
                context.emit(values, None).await.unwrap();
            }
            "output" => {
                let output = StateEvent::Output(Json::parse(rest.to_owned()).unwrap());
                context.emit(Body::State(output), None).await.unwrap();
            }
            "custom" => {
                let data = Json::parse(rest.to_owned()).unwrap();
                let custom = StateEvent::Custom { kind: "step".to_owned(), data };
                context.emit(Body::State(custom), None).await.unwrap();
            }
            "result" => {
                let value = Json::parse(rest.to_owned()).unwrap();
                context.emit(Body::Run(RunEvent::Result(value)), None).await.unwrap();
            }
            "bind" => context.bind(rest, Json::empty_object()).await.unwrap(),
            "part" => give(context, part(rest)).await?,
            "ignore" => assert!(give(context, part(rest)).await.is_err()),
            "metadata" => {
                let title = "x".repeat(rest.parse().unwrap());
                let citation = Citation { title: Some(title), ..Citation::default() };
                give(context, Part::annotation(PartMetadata::Citation(citation))).await?;
            }
            "suspend-with" => {
                let prompt = vec![part(rest)];
                let interrupt = Box::new(Interrupt { prompt, ..interrupt(InterruptKind::Form) });
                return Ok(Some(Ending::Suspended { interrupt, saved: Json::null() }));
            }
            "suspend-for" => {
                let patience = Some(Duration::from_secs(rest.parse().unwrap()));
                let interrupt = Box::new(Interrupt { patience, ..interrupt(InterruptKind::Form) });
                return Ok(Some(Ending::Suspended { interrupt, saved: Json::null() }));
            }
            "ask-with" => {
                let prompt = vec![part(rest)];
                let question = Interrupt { prompt, ..interrupt(InterruptKind::Form) };
                context.ask(question).await.map_err(emit_failure)?;
            }
            "begin" => begin(context, rest).await,
            // The last word counts, even if it is empty.
            "title" => {
                context.title((rest != "null").then_some(rest));
                say(context, "titled").await;
            }
            "gate" => self.gate.acquire().await.unwrap().forget(),
            "commit" => context.commit().await.unwrap(),
            verb if verb.starts_with("call") => call(verb, rest, context).await?,
            "panic" => panic!("secret text"),
            "fail" => return Err(Failure::of(Code::AgentFailed, rest)),
            "forever" => std::future::pending().await,
            "until-cancelled" => context.cancelled().await,
            "suspend" => {
                let interrupt = Box::new(interrupt(InterruptKind::Form));
                let saved = Json::parse(format!("{rest:?}")).unwrap();
                return Ok(Some(Ending::Suspended { interrupt, saved }));
            }
            "ask-until-gate" => tokio::select! {
                _ = context.ask(interrupt(InterruptKind::Form)) => {}
                gate = self.gate.acquire() => gate.unwrap().forget(),
            },
            "ask-message" => {
                context.ask(interrupt(InterruptKind::Message)).await.map_err(emit_failure)?;
            }
            "ask" => match context.ask(interrupt(InterruptKind::Form)).await {
                Ok(Resolution::Answered { answer: Answer::Json(json), .. }) => {
                    say(context, json.as_str()).await
                }
                Ok(other) => say(context, &format!("{other:?}")).await,
                Err(_) => return Err(Failure::of(Code::AgentFailed, "not heard")),
            },
            "bytes" => {
                let message = MessageId::generate();
                let part = Part::bytes("application/octet-stream", vec![7; rest.parse().unwrap()]);
                let started = MessageEvent::Started {
                    message: message.clone(),
                    role: Role::Agent,
                    times: None,
                };
                context.emit(Body::Message(started), None).await.unwrap();
                let part = MessageEvent::Part { message, part };
                context.emit(Body::Message(part), None).await.unwrap();
            }
            other => panic!("no such word: {other}"),
        }
        Ok(None)
    }
}

#[async_trait]
impl Backend for Scripted {
    fn card(&self) -> &AgentCard {
        &self.card
    }

    fn is_native(&self) -> bool {
        self.native
    }

    fn rewind(&self) -> Rewind {
        self.rewind
    }

    fn check_config(&self, config: &Json) -> trilogue_domain::error::Result<()> {
        if config.is_object() {
            return Ok(());
        }
        Err(Error::new(Code::ConfigInvalid, "the configuration is not an object"))
    }

    fn check_state(&self, state: &Json) -> trilogue_domain::error::Result<()> {
        if state.to_value().get("n").is_some() {
            return Ok(());
        }
        let missing = Violation { path: String::new(), message: "'n' is missing".to_owned() };
        Err(Error::new(Code::StateInvalid, "the state does not fit").violations(vec![missing]))
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        self.turns.fetch_add(1, Ordering::SeqCst);
        let script = match turn {
            Turn::Start { input: Input::Messages(messages) } => messages.last().unwrap().text(),
            Turn::Start { input: Input::Value(value) } => {
                value.to_value().as_str().unwrap().to_owned()
            }
            Turn::Resume { answer: Answer::Json(answer), saved, .. } => {
                say(&context, answer.as_str()).await;
                saved.to_value().as_str().unwrap().replace('+', " ")
            }
            Turn::Resume { .. } | Turn::Rejoin { .. } => String::new(),
        };
        for word in script.split_whitespace() {
            if let Some(ending) = self.word(word, &context).await? {
                return Ok(ending);
            }
        }
        Ok(Ending::Completed)
    }
}

pub async fn say(context: &RunContext, text: &str) {
    let message = MessageId::generate();
    let events = [
        MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None },
        MessageEvent::Delta { message: message.clone(), text: Arc::from(text) },
        MessageEvent::Completed { message },
    ];
    for event in events {
        // Events of a stopped run are dropped; other tests check what becomes of it.
        drop(context.emit(Body::Message(event), None).await);
    }
}

/// Begins a message of this id, for which the agent may have another, and does not end it.
async fn begin(context: &RunContext, ids: &str) {
    let (id, alias) = ids.split_once('/').map_or((ids, None), |(id, alias)| (id, Some(alias)));
    let message = MessageId::parse(id).unwrap();
    let started =
        MessageEvent::Started { message: message.clone(), role: Role::Agent, times: None };
    context.emit(Body::Message(started), None).await.unwrap();
    let delta = MessageEvent::Delta { message: message.clone(), text: Arc::from("half") };
    context.emit(Body::Message(delta), None).await.unwrap();
    if let Some(alias) = alias {
        // The owner gets the message before it gets its other id.
        context.commit().await.unwrap();
        context.alias(&message, &MessageId::parse(alias).unwrap());
    }
}

/// Calls `AGENT/SCRIPT`, with `+` for a space. Says the agent's output, or the run's end.
async fn call(verb: &str, rest: &str, context: &RunContext) -> Result<(), Failure> {
    let (agent, script) = rest.split_once('/').unwrap();
    let request = CallRequest {
        agent: AgentName::parse(agent).unwrap(),
        input: Input::Messages(vec![Message::new(
            Role::User,
            vec![Part::text(script.replace('+', " "))],
            None,
        )]),
        thread: None,
        config: None,
        allows_recursion: verb == "call-again",
        passes_questions_up: verb != "call-here",
    };
    let mut child = match context.call(request).await {
        Ok(child) => child,
        Err(error) => {
            say(context, error.code().as_str()).await;
            return Ok(());
        }
    };
    match verb {
        "call-drop" => {
            while let Some(event) = child.next().await.map_err(to_failure)? {
                if event.body == Body::Run(RunEvent::Started) {
                    return Ok(());
                }
            }
        }
        // The run ends while another task still has the call.
        "call-leave" => drop(tokio::spawn(async move { child.outcome().await })),
        "call-here" => {
            while let Some(event) = child.next().await.map_err(to_failure)? {
                if let Body::Interrupt(InterruptEvent::Raised(question)) = &event.body {
                    let answer = Answer::Json(Json::parse("\"mine\"".to_owned()).unwrap());
                    child.answer(question.id.clone(), answer).await.map_err(to_failure)?;
                }
            }
            say(context, &said_by(&child.outcome().await.map_err(to_failure)?)).await;
        }
        _ => say(context, &said_by(&child.outcome().await.map_err(to_failure)?)).await,
    }
    Ok(())
}

fn said_by(child: &ChildOutcome) -> String {
    let texts: Vec<_> = child.messages.iter().map(Message::text).collect();
    format!("{}:{}", child.outcome.status().as_str(), texts.join("|"))
}

fn part(content_type: &str) -> Part {
    Part::new(content_type, Content::Text(Arc::from("content")))
}

async fn give(context: &RunContext, part: Part) -> Result<(), Failure> {
    let message = MessageId::generate();
    let role = Role::Agent;
    let started = MessageEvent::Started { message: message.clone(), role, times: None };
    let part = MessageEvent::Part { message: message.clone(), part };
    for event in [started, part, MessageEvent::Completed { message }] {
        let body = Body::Message(event);
        if !context.try_emit(&body, None).map_err(emit_failure)? {
            context.emit(body, None).await.map_err(emit_failure)?;
        }
    }
    Ok(())
}

fn emit_failure(error: EmitError) -> Failure {
    match error {
        EmitError::Stopped => Failure::of(Code::AgentFailed, "stopped"),
        EmitError::Refused(error) => to_failure(error),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn to_failure(error: Error) -> Failure {
    Failure::of(error.code(), error.message())
}

pub fn interrupt(kind: InterruptKind) -> Interrupt {
    Interrupt {
        prompt: vec![Part::text("well?")],
        payload: Json::empty_object(),
        ..Interrupt::new(kind)
    }
}

pub fn new_run(text: &str, thread: ThreadChoice) -> RunRequest {
    let message = Message::new(Role::User, vec![Part::text(text)], Some(Timestamp::from_micros(1)));
    let input = Input::Messages(vec![Message { completed_at: None, ..message }]);
    RunRequest::new(AgentName::parse("script").unwrap(), thread, input)
}

pub fn on(thread: &ThreadId, text: &str) -> RunRequest {
    new_run(text, ThreadChoice::Existing(thread.clone()))
}

pub fn alice() -> Principal {
    principal("alice")
}

pub fn principal(name: &str) -> Principal {
    Principal {
        tenant: TenantId::parse("tenant").unwrap(),
        id: PrincipalId::parse(name).unwrap(),
        rights: Rights::all(),
        own: false,
    }
}

pub fn scope() -> Scope {
    alice().scope()
}

pub async fn until<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        while !condition().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"));
}
