//! A turn of each agent whose server is killed at a random moment of it. The next server must complete it with the events of a turn without a kill.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::model::{Model, Step};
use trilogue_testkit::{Client, Folder, Home, ServerOptions, comparable_events, until};

use super::adapter::Adapter;
use super::coding_agent::CodingAgent;
use super::{DONE, LIMIT, text};
use crate::kill_rounds::{announced_seed, kill_late, rounds};
use crate::{events, run_of};

/// How many turns of each agent are killed; `TRILOGUE_KILL_ROUNDS` overrides it.
const ROUNDS: u64 = 2;
/// The time between the pieces of an answer: a turn takes seconds.
const PACE: Duration = Duration::from_millis(25);
const OPEN: &str = "please open the session.";
const OPENED: &str = "It is open.";
/// What the model says before its tool call. It begins with a whole piece that nothing else contains.
const BEGIN: &str = "Work begins: a file has to be made, and for that there is a tool, which is called as soon as this text is over.";
/// What the model says after it.
const END: &str = "The file is there. That is all that this turn had to do, so that only this long text is left to say, piece by piece.";

/// The members of an agent's states and results with its own ids, counts and times.
const OWN_DATA: [&str; 4] = ["_meta", "updatedAt", "used", "pid"];

/// A hosted agent and its model, without a server.
struct Killed {
    agent: CodingAgent,
    model: Model,
    home: Home,
    cwd: PathBuf,
}

/// A turn that has begun to answer.
struct BegunTurn {
    thread: String,
    run: String,
    begun: Instant,
}

async fn check(agent: CodingAgent) {
    if let Some(why) = agent.why_missing() {
        eprintln!("NOT CHECKED: {}: {why}", agent.name());
        return;
    }
    let dir = Folder::new().unwrap();
    let killed = Killed::new(agent, dir.path()).await.unwrap();
    let rounds = killed.rounds().await;
    rounds.unwrap_or_else(|error| panic!("{agent:?}: {error:#}\n{}", killed.home.log_end()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_claude_continues_after_a_kill() {
    check(CodingAgent::Adapter(Adapter::Claude)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_codex_continues_after_a_kill() {
    check(CodingAgent::Adapter(Adapter::Codex)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_opencode_continues_after_a_kill() {
    check(CodingAgent::OpenCode).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_gemini_continues_after_a_kill() {
    check(CodingAgent::Gemini).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_qwen_continues_after_a_kill() {
    check(CodingAgent::Qwen).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_fast_agent_continues_after_a_kill() {
    check(CodingAgent::FastAgent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_copilot_continues_after_a_kill() {
    check(CodingAgent::Copilot).await;
}

fn remove_own_data(event: &mut Value) {
    for part in ["data", "output"] {
        if let Some(members) = event.get_mut(part).and_then(Value::as_object_mut) {
            OWN_DATA.iter().for_each(|name| drop(members.remove(*name)));
        }
    }
}

/// Whether an agent sends an event at any moment, also after the end of a turn: a title that it has thought of, or a notification of its own, as Qwen's with a suggestion for the next prompt.
fn is_beside_the_turn(event: &Value) -> bool {
    let is_title = event["kind"] == "session_info_update" && event["data"]["title"].is_string();
    is_title || event["original"]["dialect"] == "agent-client/notification"
}

// === impl Killed ===

impl Killed {
    async fn new(agent: CodingAgent, dir: &Path) -> Result<Self> {
        let model = Model::start().await?;
        let (cwd, server, own) = (dir.join("work"), dir.join("server"), dir.join("own"));
        [&cwd, &server, &own].into_iter().try_for_each(std::fs::create_dir)?;
        let settings = agent.settings(&own, &cwd, &model)?;
        let options = ServerOptions { settings, agents: Vec::new(), ..ServerOptions::default() };
        let home = Home::new(&server, &options)?;
        Ok(Self { agent, model, home, cwd })
    }

    async fn rounds(&self) -> Result<()> {
        let mut seed = announced_seed();
        let mut server = self.home.start().await?;
        // The first start of an agent can differ: it makes its own folders. All names are of one length, because agents count the words of a turn.
        self.complete(&server.client(), "turn-first").await?;
        let (expected, length) = self.complete(&server.client(), "turn-whole").await?;
        let latest_ms = u64::try_from(length.as_millis())?;
        for round in 0..rounds(ROUNDS) {
            let turn = self.begin(&server.client(), &format!("turn-{round:05}")).await?;
            let at_ms = seed.below(latest_ms);
            server = kill_late(server, at_ms).await.start().await?;
            let seen = self.end(&server.client(), &turn).await;
            let what =
                || format!("round {round}, killed {at_ms} of {latest_ms} ms after its start");
            let seen = seen.with_context(what)?;
            let mut pairs = seen.iter().zip(&expected);
            let differs = pairs.find(|(seen, expected)| seen != expected);
            let is_equal = differs.is_none() && seen.len() == expected.len();
            ensure!(is_equal, "{}: {differs:#?}\n{seen:#?}\n{expected:#?}", what());
            eprintln!("{}: {}: equal", self.agent.name(), what());
        }
        Ok(())
    }

    fn file(&self, thread: &str) -> PathBuf {
        self.cwd.join(format!("{thread}.txt"))
    }

    /// Makes a turn without a kill. Returns its events, and how long it took from its first text on.
    async fn complete(&self, client: &Client, thread: &str) -> Result<(Vec<String>, Duration)> {
        let turn = self.begin(client, thread).await?;
        let events = self.end(client, &turn).await.context("the turn without a kill")?;
        Ok((events, turn.begun.elapsed()))
    }

    /// Begins a turn, and waits for its first text.
    ///
    /// It is the second one of its session: what an agent says about a new session can come at any moment of the first.
    async fn begin(&self, client: &Client, thread: &str) -> Result<BegunTurn> {
        self.model.script(OPEN, [Step::text(OPENED)]);
        let body = run_of(self.agent.name(), thread, &json!(OPEN), "wait");
        let opened = client.post("/api/v1/runs", &body).await?.ok()?;
        ensure!(opened["status"] == "completed", "{opened}");
        let prompt = format!("please work on {thread}.");
        let call = self.agent.makes(&self.file(thread)).with_text(BEGIN).paced(PACE);
        self.model.script(&prompt, [call, Step::text(&format!("{END} {DONE}")).paced(PACE)]);
        let body = run_of(self.agent.name(), thread, &json!(prompt), "async");
        let run = client.post("/api/v1/runs", &body).await?.ok()?;
        let run = text(&run["id"])?.to_owned();
        until("the first text", LIMIT, || async {
            let events = events(client, thread).await.ok()?;
            events.iter().any(|event| event["text"] == BEGIN[..4]).then_some(())
        })
        .await?;
        Ok(BegunTurn { thread: thread.to_owned(), run, begun: Instant::now() })
    }

    /// Waits until a turn has completed. Returns its events.
    async fn end(&self, client: &Client, turn: &BegunTurn) -> Result<Vec<String>> {
        let path = format!("/api/v1/runs/{}", turn.run);
        let ended = until("the end of the turn", LIMIT, || async {
            let run = client.get(&path).await.ok()?.json();
            let is_open = ["queued", "running", "cancelling", "interrupted"]
                .contains(&run["status"].as_str().unwrap_or_default());
            (!is_open).then_some(run)
        })
        .await?;
        ensure!(ended["status"] == "completed", "{ended}");
        ensure!(self.file(&turn.thread).exists(), "the tool made no file");
        let mut all = events(client, &turn.thread).await?;
        all.retain(|event| !is_beside_the_turn(event));
        // OpenCode sends a second question about a call while it carries the call out, so its place varies also without a kill.
        all.sort_by_key(|event| event["type"] == "interrupt.rule_applied");
        all.iter_mut().for_each(remove_own_data);
        let seen = comparable_events(&all, &turn.run, &[(&turn.thread, "THREAD")]);
        let said: String = seen.concat();
        ensure!(said.contains(END) && said.contains(BEGIN), "{seen:#?}");
        Ok(seen)
    }
}
