//! Clients that reach a server over a network that fails: every update arrives once and in order, every prompt is answered once, and every question is asked once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_sdk::agent_client::wire::{RequestPermissionRequest, RequestPermissionResponse};
use trilogue_sdk::agent_client::{
    Client, ClientHandler, Error, Options, RejectAll, Session, SessionOptions, Update, allow_once,
};
use trilogue_testkit::{
    ConnectionBreak, Editor, Folder, Home, Link, Pace, Proxy, Seed, Server, ServerOptions,
};

use crate::client_official::{hosted, scripted};
use crate::kill_rounds::stop;

/// How many runs CI makes. `cargo xtask soak --network --kills N` makes others.
const RUNS: u64 = 30;
/// How many runs are made at once.
const PARALLEL_RUNS: usize = 6;
/// One of this many runs kills the server.
const RUNS_PER_KILL: u64 = 10;
/// One of this many runs of the SDK has nginx before the server, which passes no WebSockets on.
const RUNS_PER_PROXY: u64 = 7;
/// Runs over each transport, and one behind nginx.
const SILENT_RUNS: [u64; 4] = [3, 1, 2, RUNS_PER_PROXY];
const TURNS: usize = 2;
/// The most faults of a run. After them the network is whole.
const MAX_FAULTS: u64 = 7;
/// One of this many connections with an unseen end stays so until its client notices.
const RARE: u64 = 20;
/// How long an end stays open that its owner must find out about alone.
const LONG: Duration = Duration::from_secs(120);
const RUN_LIMIT: Duration = Duration::from_secs(240);
/// How long a client of the SDK pauses before it connects again.
const PAUSE: Duration = Duration::from_millis(100);

/// How the client of a run reaches the server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Transport {
    /// `trilogue connect --url`.
    Program,
    /// The SDK over a WebSocket.
    WebSocket,
    /// The SDK over HTTP.
    Http,
}

/// What a client received.
#[derive(Debug, Default)]
struct Received {
    session: String,
    /// Without those about the client's own messages.
    updates: Vec<Value>,
    /// How many questions each turn asked.
    questions: Vec<usize>,
    /// Why turns failed.
    failures: Vec<String>,
    /// How many times the connection was lost, so that the client loaded the session.
    loads: usize,
}

/// The counts of all runs over one transport.
#[derive(Debug, Default)]
struct Tally {
    runs: usize,
    kills: usize,
    faults: usize,
    updates: usize,
    questions: usize,
    failures: usize,
    loads: usize,
}

/// Allows everything, and counts the questions.
#[derive(Clone, Debug, Default)]
struct Allowing(Arc<AtomicUsize>);

/// The faults of a run, which another task makes.
struct Trouble {
    done: CancellationToken,
    task: JoinHandle<(usize, Option<Server>)>,
}

/// Makes this many runs, each by its own seed, and prints what they met. With a silence, further runs have no faults, and nothing happens for as long between their turns.
pub(crate) async fn survive_network(runs: u64, silence: Option<Duration>) {
    let (first, _) = Seed::from_env("TRILOGUE_SEED");
    eprintln!("TRILOGUE_SEED={first}");
    let (dir, store, cwd) =
        (Folder::new().unwrap(), Folder::new().unwrap(), Folder::new().unwrap());
    let server = serve(&dir, &store, cwd.path()).await;
    let server = Arc::new(server);
    let room = Arc::new(Semaphore::new(PARALLEL_RUNS));
    let mut playing = JoinSet::new();
    let mut begin = |number, silence, permit: Option<OwnedSemaphorePermit>| {
        let (server, cwd) = (Arc::clone(&server), cwd.path().to_owned());
        playing.spawn(async move {
            let limit = RUN_LIMIT + silence;
            let played = tokio::spawn(async move {
                timeout(limit, play(number, silence, &server, &cwd)).await.unwrap()
            });
            let played = played.await;
            if played.is_err() {
                eprintln!("failed: TRILOGUE_SEED={number} TRILOGUE_KILLS=1, after {silence:?}");
            }
            drop(permit);
            (number, played)
        });
    };
    if let Some(silence) = silence {
        SILENT_RUNS.into_iter().for_each(|number| begin(number, silence, None));
    }
    for number in first..first + runs {
        let permit = Arc::clone(&room).acquire_owned().await.unwrap();
        begin(number, Duration::ZERO, Some(permit));
    }
    let mut tallies = [Transport::Program, Transport::WebSocket, Transport::Http]
        .map(|transport| (transport, Tally::default()));
    let mut failed = Vec::new();
    while let Some(played) = playing.join_next().await {
        match played.unwrap() {
            (_, Ok((transport, one))) => {
                for (_, tally) in tallies.iter_mut().filter(|(known, _)| *known == transport) {
                    tally.add(&one);
                }
            }
            (number, Err(error)) => failed.push((number, error)),
        }
    }
    for (transport, tally) in &tallies {
        eprintln!("{transport:?}: {tally:?}");
    }
    assert!(failed.is_empty(), "{failed:#?}\n{}", server.home().log_end());
    stop(Arc::into_inner(server).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_lose_nothing_over_a_network_that_fails() {
    survive_network(RUNS, None).await;
}

/// Starts a server whose agents work in this folder.
async fn serve(dir: &Folder, store: &Folder, cwd: &Path) -> Server {
    let settings = hosted(&[("scripted", scripted(store.path(), &[]).await)]);
    let roots = format!("roots = [{cwd:?}]");
    let settings = settings.replace("client_tools = \"forward\"", &roots);
    let options = ServerOptions { settings, ..ServerOptions::default() };
    Server::start(dir.path(), &options).await.unwrap()
}

/// Makes the run of this seed. With a silence between its turns it has no faults.
async fn play(number: u64, silence: Duration, shared: &Server, cwd: &Path) -> (Transport, Tally) {
    let mut seed = Seed::new(number);
    let transport = match number % 3 {
        0 => Transport::Program,
        1 => Transport::WebSocket,
        _ => Transport::Http,
    };
    let max_faults = if silence.is_zero() { MAX_FAULTS } else { 0 };
    let is_killed = max_faults > 0 && number.is_multiple_of(RUNS_PER_KILL);
    let (dir, store) = (Folder::new().unwrap(), Folder::new().unwrap());
    let own = if is_killed { Some(serve(&dir, &store, cwd).await) } else { None };
    let server = own.as_ref().unwrap_or(shared);
    let (home, token) = (server.home().clone(), server.token().to_owned());
    let proxy = match transport {
        Transport::WebSocket | Transport::Http if number.is_multiple_of(RUNS_PER_PROXY) => {
            Some(Proxy::start_with_defaults(home.address()).await.unwrap())
        }
        _ => None,
    };
    let entrance = proxy.as_ref().map_or(home.address(), Proxy::address);
    let link = Arc::new(Link::to(entrance).await.unwrap());
    let prompts: Vec<String> = (0..TURNS).map(|turn| prompt(turn, &mut seed)).collect();
    let begin = |own| Trouble::begin(&link, seed.clone(), max_faults, own);
    let (trouble, received) = match transport {
        Transport::Program => {
            let url = format!("http://{}", link.address());
            let mut words =
                home.command_line(&["connect", "scripted", "--url", &url]).await.unwrap();
            words.insert(1, format!("TRILOGUE_TOKEN={token}"));
            let editor = Editor::launch(&words, cwd).await;
            let trouble = begin(own);
            (trouble, play_program(editor, cwd, &prompts, silence).await)
        }
        Transport::WebSocket | Transport::Http => {
            let scheme = if transport == Transport::Http { "http" } else { "ws" };
            let url = format!("{scheme}://{}/client/scripted", link.address());
            let url = AgentUrl::parse(&url).unwrap().token(&token);
            let handler = Allowing::default();
            let client = Client::open(&url, handler.clone(), options()).await.unwrap();
            let trouble = begin(own);
            let player = SdkPlayer { url, cwd: cwd.display().to_string(), handler };
            (trouble, player.play(client, &prompts, silence).await)
        }
    };
    let (faults, own) = trouble.end().await;
    check(&received, transport, is_killed, &home, &token, cwd).await;
    if let Some(own) = own {
        stop(own).await;
    }
    let tally = Tally {
        runs: 1,
        kills: usize::from(is_killed),
        faults,
        updates: received.updates.len(),
        questions: received.questions.iter().sum(),
        failures: received.failures.len(),
        loads: received.loads,
    };
    (transport, tally)
}

/// A prompt that works for a while, asks once, and works again.
fn prompt(turn: usize, seed: &mut Seed) -> String {
    let mut below = |most| seed.below(most);
    format!(
        "think:{turn}\nchunks:{}\nslow:{}\ntool\npermission\nslow:{}\nchunks:{}\nsay:end {turn}",
        below(150),
        below(800),
        below(800),
        below(150)
    )
}

fn options() -> Options {
    // A connection that shows nothing is given up early.
    Options { start_timeout: Duration::from_secs(10), ..Options::default() }
}

/// Uses the program as an editor does.
async fn play_program(
    mut editor: Editor,
    cwd: &Path,
    prompts: &[String],
    silence: Duration,
) -> Received {
    let session = editor.session_in(cwd).await;
    let mut received = Received { session: session.clone(), ..Received::default() };
    for (turn, prompt) in prompts.iter().enumerate() {
        sleep(silence * u32::from(turn > 0)).await;
        let turn = editor.start_prompt(&session, prompt).await;
        let is_answer = |message: &Value| message["id"] == turn && message.get("method").is_none();
        let is_question = |message: &Value| message["method"] == "session/request_permission";
        let mut questions = 0;
        let answer = loop {
            let message = editor.until(|it| is_answer(it) || is_question(it)).await;
            if is_answer(&message) {
                break message;
            }
            questions += 1;
            let allow = message["params"]["options"][0]["optionId"].as_str().unwrap().to_owned();
            editor.choose(&message, &allow).await;
        };
        received.questions.push(questions);
        match answer["result"]["stopReason"].as_str() {
            Some(reason) => assert_eq!(reason, "end_turn", "{answer}"),
            None => {
                assert!(answer["error"]["message"].is_string(), "{answer}");
                received.failures.push(answer.to_string());
            }
        }
        assert!(!editor.has_before(is_answer), "a prompt was answered twice");
    }
    received.updates = without_own(editor.updates_of(&session));
    assert!(editor.close().await.success());
    received
}

/// A client of the SDK, which loads its session after its connection has ended.
struct SdkPlayer {
    url: AgentUrl,
    cwd: String,
    handler: Allowing,
}

impl SdkPlayer {
    async fn play(&self, mut client: Client, prompts: &[String], silence: Duration) -> Received {
        let mut received = Received::default();
        let mut session = loop {
            match client.new_session(SessionOptions::new(&self.cwd)).await {
                Ok(session) => break session,
                Err(error) => {
                    assert!(is_lost(&error), "{error:?}");
                    received.loads += 1;
                    client = self.open().await;
                }
            }
        };
        session.id().clone_into(&mut received.session);
        for (number, prompt) in prompts.iter().enumerate() {
            sleep(silence * u32::from(number > 0)).await;
            let before = self.handler.0.load(Ordering::Relaxed);
            if let Err(error) = turn(&session, prompt, &mut received.updates).await {
                received.failures.push(error.to_string());
                assert!(is_lost(&error) || error.refusal().is_some(), "{error:?}");
                if is_lost(&error) {
                    session = self.load(&mut received).await;
                }
            }
            received.questions.push(self.handler.0.load(Ordering::Relaxed) - before);
        }
        // A load shows what the turn did after the connection was lost.
        while received.loads > 0 && turn(&session, "say:over", &mut received.updates).await.is_err()
        {
            session = self.load(&mut received).await;
        }
        received.updates = without_own(received.updates);
        received
    }

    async fn open(&self) -> Client {
        loop {
            match Client::open(&self.url, self.handler.clone(), options()).await {
                Ok(client) => return client,
                Err(error) => eprintln!("connects again: {error}"),
            }
            sleep(PAUSE).await;
        }
    }

    /// Connects again, and replaces what was received with the whole history.
    async fn load(&self, received: &mut Received) -> Session {
        loop {
            received.loads += 1;
            let client = self.open().await;
            match load(&client, &received.session, &self.cwd).await {
                Ok((session, updates)) => {
                    received.updates = updates;
                    return session;
                }
                Err(error) => eprintln!("loads again: {error}"),
            }
            sleep(PAUSE).await;
        }
    }
}

/// Sends a prompt, and adds what arrives until it is answered.
async fn turn(session: &Session, prompt: &str, updates: &mut Vec<Value>) -> Result<(), Error> {
    updates.extend(session.take_updates().iter().map(update));
    let mut turn = session.prompt(prompt).await?;
    while let Some(next) = turn.next().await? {
        updates.push(update(&next));
    }
    Ok(())
}

/// Loads a session. Returns its history too.
async fn load(client: &Client, session: &str, cwd: &str) -> Result<(Session, Vec<Value>), Error> {
    let mut replay = client.load_session(session, SessionOptions::new(cwd)).await?;
    let mut updates = Vec::new();
    while let Some(next) = replay.next().await? {
        updates.push(update(&next));
    }
    Ok((replay.finish().await?, updates))
}

/// An update as the server wrote it.
fn update(update: &Update) -> Value {
    let params: Value = serde_json::from_str(update.original.as_str()).unwrap();
    params["update"].clone()
}

/// Whether the connection has ended.
fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::Connect(_))
}

fn without_own(mut updates: Vec<Value>) -> Vec<Value> {
    updates.retain(|update| update["sessionUpdate"] != "user_message_chunk");
    updates
}

/// Compares what a client received with what the server replays to another one, which has no network between.
async fn check(
    received: &Received,
    transport: Transport,
    is_killed: bool,
    home: &Home,
    token: &str,
    cwd: &Path,
) {
    let url = format!("ws://{}/client/scripted", home.address());
    let url = AgentUrl::parse(&url).unwrap().token(token);
    let other = Client::open(&url, RejectAll, Options::default()).await.unwrap();
    let cwd = cwd.display().to_string();
    let (_, logged) = load(&other, &received.session, &cwd).await.unwrap();
    let logged = without_own(logged);
    let differs = received.updates.iter().zip(&logged).position(|(seen, logged)| seen != logged);
    let shown = differs.map(|at| (at, &received.updates[at], &logged[at]));
    assert_eq!(shown, None, "{transport:?}: the update differs");
    assert_eq!(received.updates.len(), logged.len(), "{transport:?}: {:?}", logged.last());
    let has_reconnected_alone = received.loads == 0;
    assert!(has_reconnected_alone || is_killed, "{transport:?}: the connection was lost");
    let failures = &received.failures;
    assert!(failures.is_empty() || is_killed, "{transport:?}: a turn failed: {failures:?}");
    for questions in &received.questions {
        // A client that loads is asked again what is not answered.
        let most = if has_reconnected_alone { 1 } else { 2 };
        let least = usize::from(!is_killed);
        assert!((least..=most).contains(questions), "{transport:?}: {:?}", received.questions);
    }
}

// === impl ClientHandler ===

#[async_trait]
impl ClientHandler for Allowing {
    async fn permission(&self, request: RequestPermissionRequest) -> RequestPermissionResponse {
        self.0.fetch_add(1, Ordering::Relaxed);
        allow_once(&request)
    }
}

// === impl Trouble ===

impl Trouble {
    /// Makes faults until they are used up or [`Trouble::end`] is called. Kills and restarts the server once, if there is one.
    fn begin(
        link: &Arc<Link>,
        mut seed: Seed,
        max_faults: u64,
        mut server: Option<Server>,
    ) -> Self {
        let (link, done) = (Arc::clone(link), CancellationToken::new());
        let is_done = done.clone();
        let task = tokio::spawn(async move {
            let kill = seed.below(MAX_FAULTS / 2);
            let mut faults = 0;
            while faults < max_faults {
                let pause = Duration::from_millis(seed.below(500));
                // The server is killed even if its client has finished.
                let must_go_on = server.is_some() && faults <= kill;
                tokio::select! {
                    () = sleep(pause) => {}
                    () = is_done.cancelled(), if !must_go_on => break,
                }
                match server.take_if(|_| faults == kill) {
                    Some(killed) => {
                        let home = killed.kill().await.unwrap();
                        server = Some(home.start().await.unwrap());
                    }
                    None => make_fault(&link, &mut seed).await,
                }
                faults += 1;
            }
            link.set_pace(Pace::default());
            (faults as usize, server)
        });
        Self { done, task }
    }

    /// Returns the number of faults, and the server.
    async fn end(self) -> (usize, Option<Server>) {
        self.done.cancel();
        self.task.await.unwrap()
    }
}

/// Makes one fault, and waits for its end.
async fn make_fault(link: &Link, seed: &mut Seed) {
    let some = Duration::from_millis(seed.below(1_000));
    let unseen = if seed.below(RARE) == 0 { LONG } else { some };
    match seed.below(9) {
        0 | 1 => link.end(ConnectionBreak::Both),
        2 => link.end(ConnectionBreak::Client(LONG)),
        3 => link.end(ConnectionBreak::Server(unseen)),
        4 => link.end(ConnectionBreak::Neither(unseen)),
        5 => {
            link.cut();
            sleep(some).await;
            link.mend();
        }
        6 => {
            link.hold();
            sleep(some).await;
            link.mend();
        }
        7 => {
            let delay = Duration::from_millis(seed.below(100));
            let bytes_per_second = Some(2_000 + seed.below(200_000) as u32);
            link.set_pace(Pace { delay, bytes_per_second });
            sleep(some).await;
            link.set_pace(Pace::default());
        }
        _ => {
            link.repeat_handshakes(true);
            link.end(ConnectionBreak::Both);
            sleep(some).await;
            link.repeat_handshakes(false);
        }
    }
}

// === impl Tally ===

impl Tally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.kills += other.kills;
        self.faults += other.faults;
        self.updates += other.updates;
        self.questions += other.questions;
        self.failures += other.failures;
        self.loads += other.loads;
    }
}
