//! Resumable streams of every protocol, under every fault: no valid cursor is refused, and no event is lost, doubled or reordered.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use trilogue_testkit::client::Stream;
use trilogue_testkit::{Client, Editor, Folder, Home, Seed, Server, ServerOptions};

use crate::cluster::{Cluster, Fault};
use crate::cluster_editor::logged;
use crate::kill_rounds::{announced_seed, stop};
use crate::run_of;
use crate::stream_subjects::{Activity, StreamKind, Subject};

/// The longest time from a change to its event.
const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// The largest number of events of a running run that a client reads beyond the minimum.
const MOST_EXTRA: u64 = 6;

/// The program's arguments when an editor launches it.
const EDITOR: [&str; 2] = ["connect", "researcher"];

/// A fault that interrupts clients' streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum StreamFault {
    /// The client closes its own connection.
    Disconnect,
    Restart,
    Kill,
    StopNews,
    RestartDatabase,
    /// The node is paused until others have taken its threads.
    Pause,
}

/// The servers of a stream before and after the fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reader {
    Owner,
    Another,
}

/// The servers under test.
trait Servers {
    const ENGINE: &'static str;
    const READERS: &'static [Reader];

    /// Clients for before and after the fault.
    fn clients(&self, reader: Reader, fault: StreamFault) -> (Client, Client);
    async fn inject_fault(&mut self, fault: StreamFault, seed: &mut Seed) -> Result<()>;
    /// Undoes the effects of the fault.
    async fn repair(&mut self, fault: StreamFault) -> Result<()>;
    /// The command line that runs a command of the program against the first server.
    async fn command(&self, words: &[&str]) -> Result<Vec<String>>;
    /// The folder in which such a command finds the server's configuration.
    fn dir(&self) -> &Path;
}

/// One server.
struct Single<const IN_MEMORY: bool> {
    server: Option<Server>,
    home: Home,
}

/// The resumed streams: how many, and how many events they had missed.
#[derive(Default)]
struct Matrix(BTreeMap<(&'static str, StreamFault, &'static str, String), (usize, usize)>);

/// `trilogue tail --follow`, which reconnects by itself.
struct TailCommand {
    /// Killed when dropped.
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The numbers of the printed events.
    numbers: Vec<u64>,
}

/// A client of `/api/v1/changes`.
struct Watcher {
    stream: Option<Stream>,
}

// === impl Servers ===

impl<const IN_MEMORY: bool> Single<IN_MEMORY> {
    async fn start(dir: &Folder) -> Result<Self> {
        let mut options = ServerOptions::default();
        if IN_MEMORY {
            options.store = "memory:".to_owned();
        }
        let home = Home::new(dir.path(), &options)?;
        Ok(Self { server: Some(home.start().await?), home })
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server is down")
    }
}

impl<const IN_MEMORY: bool> Servers for Single<IN_MEMORY> {
    const ENGINE: &'static str = if IN_MEMORY { "memory" } else { "sqlite" };
    const READERS: &'static [Reader] = &[Reader::Owner];

    fn clients(&self, _: Reader, _: StreamFault) -> (Client, Client) {
        let client = self.server().unwrap().client();
        (client.clone(), client)
    }

    async fn inject_fault(&mut self, fault: StreamFault, _: &mut Seed) -> Result<()> {
        match fault {
            StreamFault::Restart => stop(self.server.take().context("no server")?).await,
            StreamFault::Kill => {
                self.server.take().context("no server")?.kill().await?;
            }
            _ => return Ok(()),
        }
        self.server = Some(self.home.start().await?);
        Ok(())
    }

    async fn repair(&mut self, _: StreamFault) -> Result<()> {
        Ok(())
    }

    async fn command(&self, words: &[&str]) -> Result<Vec<String>> {
        self.home.command_line(words).await
    }

    fn dir(&self) -> &Path {
        self.home.dir()
    }
}

/// Runs begin on the first node; the other ones have loaded none of them.
impl Servers for Cluster {
    const ENGINE: &'static str = "postgres";
    const READERS: &'static [Reader] = &[Reader::Owner, Reader::Another];

    fn clients(&self, reader: Reader, fault: StreamFault) -> (Client, Client) {
        let nodes = self.clients();
        match (reader, fault) {
            // Its node stays down until the streams have ended on the next owner.
            (Reader::Owner, StreamFault::Kill) => (nodes[0].clone(), nodes[1].clone()),
            (Reader::Owner, _) => (nodes[0].clone(), nodes[0].clone()),
            (Reader::Another, _) => (nodes[1].clone(), nodes[2].clone()),
        }
    }

    async fn inject_fault(&mut self, fault: StreamFault, seed: &mut Seed) -> Result<()> {
        let fault = match fault {
            StreamFault::Disconnect => return Ok(()),
            StreamFault::Restart => return self.restart(0).await.map(drop),
            StreamFault::Kill => return self.lose(0).await,
            StreamFault::StopNews => Fault::StopNews,
            StreamFault::RestartDatabase => Fault::RestartDatabase,
            StreamFault::Pause => Fault::Pause,
        };
        self.strike_node(fault, 0, None, seed).await.map(drop)
    }

    async fn repair(&mut self, fault: StreamFault) -> Result<()> {
        match fault {
            StreamFault::Kill => self.bring_back(0).await,
            _ => Ok(()),
        }
    }

    async fn command(&self, words: &[&str]) -> Result<Vec<String>> {
        self.home().command_line(words).await
    }

    fn dir(&self) -> &Path {
        self.home().dir()
    }
}

// === impl Matrix ===

impl Matrix {
    fn add(
        &mut self,
        (engine, fault): (&'static str, StreamFault),
        stream: &'static str,
        (activity, reader): (Activity, Reader),
        missed: usize,
    ) {
        let key = (engine, fault, stream, format!("{activity:?}, {reader:?}"));
        let (streams, events) = self.0.entry(key).or_default();
        (*streams, *events) = (*streams + 1, *events + missed);
    }

    fn print(&self) {
        for ((engine, fault, stream, place), (streams, missed)) in &self.0 {
            let fault = format!("{fault:?}");
            eprintln!(
                "{engine:9} {fault:16} {stream:22} {place:16} resumed {streams}, missed {missed}"
            );
        }
        let count: usize = self.0.values().map(|(streams, _)| streams).sum();
        eprintln!(
            "{} cells, {count} streams resumed: 0 valid places refused, 0 lost, 0 doubled, 0 reordered",
            self.0.len()
        );
    }

    /// Plays a fault once under streams of every kind.
    async fn play<S: Servers>(
        &mut self,
        servers: &mut S,
        fault: StreamFault,
        round: &str,
        seed: &mut Seed,
    ) -> Result<()> {
        let cwd = Folder::new()?;
        let (owner, _) = servers.clients(Reader::Owner, fault);
        let mut subjects = Vec::new();
        for reader in S::READERS {
            for activity in Activity::ALL {
                for kind in StreamKind::ALL {
                    let thread = format!("{round}-{fault:?}-{reader:?}-{activity:?}-{kind:?}");
                    let subject = Subject::begin(kind, activity, &thread, &owner).await;
                    subjects.push((*reader, subject.with_context(|| thread)?));
                }
            }
        }
        let mut editor = Editor::launch(&servers.command(&EDITOR).await?, cwd.path()).await;
        let session = editor.session_in(cwd.path()).await;
        let turn = editor.start_prompt(&session, "what is a log?").await;
        editor.wait_for_updates(1).await;
        let followed = format!("{round}-{fault:?}-followed");
        owner
            .post("/api/v1/runs", &run_of("echo", &followed, &json!("one"), "wait"))
            .await?
            .ok()?;
        let words = servers.command(&["tail", &followed, "--follow", "--json"]).await?;
        let mut tail = TailCommand::launch(&words, servers.dir())?;
        tail.until_run_end().await?;
        let mut watchers = Vec::new();
        for reader in S::READERS {
            watchers.push((*reader, Watcher::open(&servers.clients(*reader, fault).0).await?));
        }
        let befores: Vec<_> = subjects
            .iter_mut()
            .map(|(reader, subject)| {
                let (client, extra) = (servers.clients(*reader, fault).0, seed.below(MOST_EXTRA));
                async move { subject.read_before(&client, extra as usize).await }
            })
            .collect();
        try_join_all(befores).await?;

        servers.inject_fault(fault, seed).await?;
        join_all(subjects.iter_mut().map(|(_, subject)| subject.lose_connection())).await;
        let resuming: Vec<_> = subjects
            .iter_mut()
            .map(|(reader, subject)| {
                let client = servers.clients(*reader, fault).1;
                async move { subject.resume(&client).await }
            })
            .collect();
        let missed = try_join_all(resuming).await?;
        for ((reader, subject), missed) in subjects.iter().zip(missed) {
            let client = servers.clients(*reader, fault).1;
            subject.check(&client).await?;
            let (activity, name) = (subject.activity, subject.kind.name());
            self.add((S::ENGINE, fault), name, (activity, *reader), missed);
        }
        for (reader, mut watcher) in watchers {
            let client = servers.clients(reader, fault).1;
            watcher.resume(&client, &format!("{round}-{fault:?}-{reader:?}-changes")).await?;
            self.add((S::ENGINE, fault), "api/v1 changes", (Activity::Idle, reader), 0);
        }
        servers.repair(fault).await?;
        let log = servers.clients(Reader::Owner, StreamFault::Disconnect).0;
        log.post("/api/v1/runs", &run_of("echo", &followed, &json!("two"), "wait")).await?.ok()?;
        tail.until_run_end().await?;
        self.add((S::ENGINE, fault), "tail --follow", (Activity::Ended, Reader::Owner), 0);

        // The editor kept its connection to the proxy all the time.
        let answer = editor.answer(&turn).await;
        let is_answered = answer["result"].is_object() || answer["error"]["message"].is_string();
        ensure!(is_answered, "the prompt's answer is {answer}");
        let received = editor.words("agent_message_chunk").concat();
        let said = logged(&log, &session).await?;
        let is_whole = match answer["result"].is_object() {
            true => said == received,
            false => said.starts_with(&received),
        };
        ensure!(is_whole, "the editor got {received:?}, and the log says {said:?}");
        self.add((S::ENGINE, fault), "agent client", (Activity::Active, Reader::Owner), 0);
        editor.kill().await;
        let mut editor = Editor::launch(&servers.command(&EDITOR).await?, cwd.path()).await;
        editor.load_in(&session, cwd.path()).await;
        let received = editor.words("agent_message_chunk").concat();
        ensure!(said == received, "{received:?} was loaded, and the log says {said:?}");
        self.add((S::ENGINE, fault), "session/load", (Activity::Idle, Reader::Owner), 0);
        ensure!(editor.close().await.success(), "the proxy failed");
        Ok(())
    }
}

// === impl TailCommand ===

impl TailCommand {
    fn launch(words: &[String], dir: &Path) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(dir).kill_on_drop(true);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { _child: child, lines, numbers: Vec::new() })
    }

    /// Reads up to the end of a run. The printed numbers have no gap.
    async fn until_run_end(&mut self) -> Result<()> {
        let reading = async {
            loop {
                let line = self.lines.next_line().await?.context("the command has ended")?;
                let event: Value = serde_json::from_str(&line)?;
                self.numbers.extend(event["number"].as_u64());
                if event["type"] == "run.ended" {
                    return anyhow::Ok(());
                }
            }
        };
        tokio::time::timeout(CHANGE_LIMIT, reading).await.context("no event was printed")??;
        let is_whole = self.numbers.iter().copied().eq(1..=self.numbers.len() as u64);
        ensure!(is_whole, "{:?} were printed", self.numbers);
        Ok(())
    }
}

// === impl Watcher ===

impl Watcher {
    async fn open(client: &Client) -> Result<Self> {
        Ok(Self { stream: Some(client.stream("/api/v1/changes", None).await?) })
    }

    /// Opens the stream again, and waits for a change that follows.
    async fn resume(&mut self, client: &Client, thread: &str) -> Result<()> {
        self.stream = None;
        let mut stream = client.stream("/api/v1/changes", None).await?;
        let body = json!({"id": thread});
        client.post("/api/v1/threads", &body).await?.ok()?;
        let hearing = async {
            loop {
                let event = stream.next().await?.context("the stream of changes ended")?;
                let change: Value = serde_json::from_str(&event.data)?;
                // The lists have the changes that the stream left out.
                if change["thread_id"] == thread || event.event.as_deref() == Some("missed") {
                    return anyhow::Ok(());
                }
            }
        };
        tokio::time::timeout(CHANGE_LIMIT, hearing).await.context("no change was told")?
    }
}

/// Plays every fault once in each round.
pub(crate) async fn resume_everything(rounds: u64) {
    let mut seed = announced_seed();
    let mut matrix = Matrix::default();
    let memory = Folder::new().unwrap();
    let mut server = Single::<true>::start(&memory).await.unwrap();
    let disk = Folder::new().unwrap();
    let mut durable = Single::<false>::start(&disk).await.unwrap();
    let mut cluster = Cluster::start("").await.unwrap();
    for round in 0..rounds {
        let round = format!("{round}");
        let fault = StreamFault::Disconnect;
        matrix.play(&mut server, fault, &round, &mut seed).await.unwrap();
        for fault in [StreamFault::Disconnect, StreamFault::Restart, StreamFault::Kill] {
            let played = matrix.play(&mut durable, fault, &round, &mut seed).await;
            played.with_context(|| format!("{fault:?}\n{}", durable.home.log_end())).unwrap();
        }
        for fault in [
            StreamFault::Disconnect,
            StreamFault::StopNews,
            StreamFault::RestartDatabase,
            StreamFault::Restart,
            StreamFault::Kill,
            StreamFault::Pause,
        ] {
            let played = matrix.play(&mut cluster, fault, &round, &mut seed).await;
            played.with_context(|| format!("{fault:?}\n{}", cluster.log_ends())).unwrap();
        }
    }
    matrix.print();
    cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stream_of_every_protocol_resumes_after_every_fault() {
    resume_everything(1).await;
}
