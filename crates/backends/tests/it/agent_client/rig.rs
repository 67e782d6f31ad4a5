//! The harness with one agent of the Agent Client Protocol: the scripted agent.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use trilogue_backends::AgentClient;
use trilogue_backends::agent_client::Launch;
use trilogue_backends::child::Children;
use trilogue_backends::permission::Rules;
use trilogue_domain::event::{MessageEvent, Original, StateEvent};
use trilogue_domain::{
    AgentName, Answer, Body, Error, Input, Json, Message, Principal, RequestSource, ThreadId,
    Transcript,
};
use trilogue_mapping::agent_client::OriginalReader;
use trilogue_runtime::{
    AnswerTo, Backend, CallError, Client, ClientProfile, NewThread, RunRequest, Sessions,
    Submitted, ThreadChoice, ThreadContext, WhenHolding,
};
use trilogue_sdk::Card;
use trilogue_store::rows::RunRow;
use trilogue_testkit::parts::principal;

use crate::harness::{DEADLINE, Harness, new_run, user_input};

pub(crate) use crate::harness::settle;

pub(crate) struct Rig {
    harness: Harness,
    pub(crate) agent: AgentClient,
    pub(crate) children: Arc<Children>,
    pub(crate) folder: TempDir,
}

impl Deref for Rig {
    type Target = Harness;

    fn deref(&self) -> &Harness {
        &self.harness
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Harness {
        &mut self.harness
    }
}

/// The file in which the agent records the messages that it receives.
pub(crate) const HEARD: &str = "heard";

impl Drop for Rig {
    /// Validates all messages to the agent against the official schema.
    fn drop(&mut self) {
        let heard = self.folder.path().join(HEARD);
        if heard.exists() && !std::thread::panicking() {
            trilogue_testkit::schema::hold_record(&heard).unwrap();
        }
    }
}

/// The agent's program, which is built with the tests.
pub(crate) fn program() -> String {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/child_agent");
    assert!(program.is_file(), "{} is not built", program.display());
    program.display().to_string()
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !is_so() {
        assert!(tokio::time::Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// As above, for an asynchronous condition.
pub(crate) async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Rig {
    pub(crate) async fn new(flags: &[&str]) -> Self {
        Self::with(flags, |_| {}).await
    }

    /// The same harness with a changed launch. `{store}` in a flag is a folder that outlives the agent's processes.
    pub(crate) async fn with(flags: &[&str], change: impl FnOnce(&mut Launch)) -> Self {
        Self::with_rules(flags, Rules::default(), change).await
    }

    pub(crate) async fn with_rules(
        flags: &[&str],
        rules: Rules,
        change: impl FnOnce(&mut Launch),
    ) -> Self {
        Self::with_options(flags, rules, trilogue_runtime::Options::default(), change).await
    }

    /// A rig with these settings of the runtime.
    pub(crate) async fn with_options(
        flags: &[&str],
        rules: Rules,
        options: trilogue_runtime::Options,
        change: impl FnOnce(&mut Launch),
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let place = folder.path().join("sessions").display().to_string();
        let flags = flags.iter().map(|flag| flag.replace("{store}", &place));
        let heard = ["--record".to_owned(), folder.path().join(HEARD).display().to_string()];
        let mut launch = Launch::of(std::iter::once(program()).chain(heard).chain(flags));
        launch.cwd = Some(folder.path().to_owned());
        change(&mut launch);
        let children = Children::open(Some(folder.path().join("state"))).await.unwrap();
        let card = Card::chat("scripted", "Does what it is told.").build().unwrap();
        let agent = AgentClient::new(card, launch, Arc::clone(&children), Arc::new(rules)).unwrap();
        let agents: Vec<Arc<dyn Backend>> = vec![Arc::new(agent.clone())];
        let harness = Harness::start(agents, Arc::new(OriginalReader), options).await;
        let thread =
            NewThread { id: Some(harness.thread.clone()), metadata: None, ..NewThread::default() };
        harness.runtime.create_thread(&harness.by, thread).await.unwrap();
        Self { harness, agent, children, folder }
    }

    /// Another thread, in addition to the usual one.
    pub(crate) async fn thread(&self) -> ThreadId {
        self.runtime.create_thread(&self.by, NewThread::default()).await.unwrap().id
    }

    /// The thread, as the agent's own dialect uses it.
    pub(crate) async fn context(&self, thread: &ThreadId) -> ThreadContext {
        let row = self.store.thread(&self.by.scope(), thread).await.unwrap().unwrap();
        self.runtime.thread_context(&row, &AgentName::parse("scripted").unwrap())
    }

    pub(crate) fn sessions(&self) -> &dyn Sessions {
        self.agent.sessions().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn begin(&self, thread: &ThreadId, text: &str) -> Submitted {
        self.begin_with(thread, user_input(text)).await
    }

    pub(crate) async fn begin_with(&self, thread: &ThreadId, input: Input) -> Submitted {
        let choice = ThreadChoice::Existing(thread.clone());
        let run = RunRequest {
            when_holding: WhenHolding::Strategy,
            ..new_run("scripted", choice, input)
        };
        self.runtime.submit(&self.by, run).await.unwrap()
    }

    pub(crate) async fn run(&self, thread: &ThreadId, text: &str) -> RunRow {
        settle(self.begin(thread, text).await).await
    }

    pub(crate) async fn reply_to(&self, text: &str) -> String {
        let thread = self.thread().await;
        let run = self.run(&thread, text).await;
        self.reply_text(&run).await
    }

    /// The error of a refused answer.
    pub(crate) async fn answer_error(&self, run: &RunRow, answer: Answer) -> Error {
        let to = AnswerTo::Interrupt(self.pending(run).await.id);
        self.runtime.answer(&self.by, to, answer).await.unwrap_err()
    }

    pub(crate) async fn answer_with(&self, run: &RunRow, answer: Answer, extra: &str) -> RunRow {
        let to = AnswerTo::Interrupt(self.pending(run).await.id);
        let extra = Some(json(extra));
        self.runtime.answer_with(&self.by, to, answer, extra).await.unwrap();
        self.wait_until_settled(run).await
    }

    /// Cancels a run, and waits until it has ended.
    pub(crate) async fn cancel(&self, run: &RunRow) -> RunRow {
        self.runtime.cancel(&self.by, &run.id).await.unwrap();
        loop {
            let row = self.wait_until_settled(run).await;
            if row.status.is_terminal() {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn originals(&self, run: &RunRow) -> Vec<String> {
        let events = self.events(run).await;
        events.iter().filter_map(|event| event.original.as_ref()).map(text_of).collect()
    }

    pub(crate) async fn messages(&self, run: &RunRow) -> Vec<Message> {
        let mut transcript = Transcript::default();
        for event in self.events(run).await {
            transcript.push(&event);
        }
        let messages = transcript.into_messages().into_iter();
        messages.filter(|message| !message.role.is_user()).collect()
    }

    pub(crate) async fn reply_text(&self, run: &RunRow) -> String {
        self.messages(run).await.iter().map(Message::text).collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn custom(&self, run: &RunRow, kind: &str) -> Vec<Json> {
        let events = self.events(run).await.into_iter();
        let data = events.filter_map(|event| match event.body {
            Body::State(StateEvent::Custom { kind: named, data }) if named == kind => Some(data),
            _ => None,
        });
        data.collect()
    }

    /// The ids of the messages that the agent has begun in a run.
    pub(crate) async fn started_message_ids(&self, run: &RunRow) -> Vec<String> {
        let events = self.events(run).await.into_iter();
        let begun = events.filter_map(|event| match event.body {
            Body::Message(MessageEvent::Started { message, role, .. }) if !role.is_user() => {
                Some(message.as_str().to_owned())
            }
            _ => None,
        });
        begun.collect()
    }

    pub(crate) async fn end(self) {
        self.children.close().await;
        assert_eq!(self.children.count(), 0);
    }
}

pub(crate) fn text_of(original: &Original) -> String {
    String::from_utf8(original.bytes.to_vec()).unwrap()
}

pub(crate) fn editor(capabilities: &str) -> ClientProfile {
    ClientProfile {
        dialect: Arc::from("agent-client"),
        version: 1,
        capabilities: Json::parse(capabilities.to_owned()).unwrap(),
        info: Some(Json::parse(r#"{"name":"editor","version":"1"}"#).unwrap()),
        source: RequestSource::LocalSocket,
    }
}

/// A client with these capabilities that refuses every request.
pub(crate) fn caller(capabilities: &str) -> Arc<dyn Client> {
    Arc::new(Caller { profile: editor(capabilities), principal: alice(), folder: None })
}

pub(crate) fn caller_in(folder: &Path) -> Arc<dyn Client> {
    let folder = Some(folder.to_owned());
    Arc::new(Caller { profile: editor("{}"), principal: alice(), folder })
}

/// The same for another principal.
pub(crate) fn caller_as(principal: &Principal) -> Arc<dyn Client> {
    Arc::new(Caller { profile: editor("{}"), principal: principal.clone(), folder: None })
}

/// The principal of the harness.
pub(crate) fn alice() -> Principal {
    principal("default", "alice")
}

#[derive(Debug)]
struct Caller {
    profile: ClientProfile,
    principal: Principal,
    folder: Option<PathBuf>,
}

#[async_trait]
impl Client for Caller {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn principal(&self) -> &Principal {
        &self.principal
    }

    fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    async fn call(&self, method: &str, _: Json) -> Result<Json, CallError> {
        Err(CallError::new(CallError::METHOD_NOT_FOUND, method))
    }

    async fn notify(&self, _: &str, _: Json) {}
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}
