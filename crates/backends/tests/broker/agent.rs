//! An agent that tries to reach the network, and its server.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::time::timeout;
use trilogue_backends::child::{
    BrokerAddress, BrokerListener, Child, ChildInput, ChildOutput, Children, Confinement, Network,
    Program, Sandbox, SandboxMode, StartedChild,
};
use trilogue_backends::workspace::PrivatePaths;

use super::PATIENCE;

const SCRIPT: &str = include_str!("reach.py");
/// The one of the system: the user of the test may not read those of others.
pub(super) const PYTHON: &str = "/usr/bin/python3";
/// The variable in which the agent finds the broker.
pub(super) const VARIABLE: &str = "TEST_BROKER";
/// The name of the agents.
pub(super) const NAME: &str = "reach";

/// The folders of a server, and the agents that it starts.
pub(super) struct Server {
    pub(super) children: Arc<Children>,
    folder: PathBuf,
    _owned: Option<TempDir>,
}

/// An agent that has started.
pub(super) struct Agent {
    pub(super) child: Child,
    pub(super) port: u16,
    pub(super) broker: Option<BrokerListener>,
    input: ChildInput,
    output: Lines<BufReader<ChildOutput>>,
}

pub(super) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { timeout(PATIENCE, test).await.unwrap() })
}

/// A folder that no sandbox replaces, as `/tmp` is.
pub(super) fn folder() -> TempDir {
    let folder = TempDir::new_in("/var/tmp").unwrap();
    fs::create_dir(folder.path().join("work")).unwrap();
    fs::write(script(folder.path()), SCRIPT).unwrap();
    folder
}

pub(super) fn script(folder: &Path) -> PathBuf {
    folder.join("work/reach.py")
}

pub(super) fn sandbox() -> Sandbox {
    Sandbox { mode: SandboxMode::Auto, network: Network::Broker, ..Sandbox::default() }
}

/// Answers each connection with this text, as long as the listener lives.
pub(super) fn serve(listener: TcpListener, text: &'static str) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 6];
            connection.read_exact(&mut greeting).await.unwrap();
            assert_eq!(&greeting, b"hello\n");
            connection.write_all(format!("{text}\n").as_bytes()).await.unwrap();
        }
    })
}

// === impl Server ===

impl Server {
    pub(super) async fn new() -> Self {
        let folder = folder();
        let mut server = Self::open(folder.path()).await;
        server._owned = Some(folder);
        server
    }

    /// A server with its state in a folder.
    pub(super) async fn open(folder: &Path) -> Self {
        let children = Children::open_for(Some(folder.join("state")), "store").await.unwrap();
        Self { children, folder: folder.to_owned(), _owned: None }
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    pub(super) async fn start(&self, can_outlive: bool) -> Agent {
        let private = PrivatePaths::default().with_folder(self.folder.join("state"));
        let command = [PYTHON.to_owned(), script(&self.folder).display().to_string()];
        let folders = [self.work()];
        let sandbox = sandbox();
        let variables = |address: &BrokerAddress| {
            let value = format!("{}:{}:{}", address.port, address.is_private, address.secret);
            vec![(VARIABLE.to_owned(), value)]
        };
        let env = [(VARIABLE.to_owned(), "replaced".to_owned())];
        let program = Program {
            name: NAME,
            command: &command,
            cwd: &self.work(),
            env: &env,
            inherit: &[],
            confinement: Confinement { sandbox: &sandbox, folders: &folders, private: &private },
            can_outlive,
            broker: Some(&variables),
        };
        Agent::new(self.children.start(program).await.unwrap())
    }
}

// === impl Agent ===

impl Agent {
    pub(super) fn new(started: StartedChild) -> Self {
        let StartedChild { child, input, output } = started;
        let broker = child.take_broker_listener().unwrap();
        assert!(child.take_broker_listener().is_none());
        let output = BufReader::new(output).lines();
        Self { child, port: broker.port, broker: Some(broker), input, output }
    }

    /// Serves its broker in a task.
    pub(super) fn serve(&mut self, text: &'static str) -> tokio::task::JoinHandle<()> {
        serve(self.broker.take().unwrap().listener, text)
    }

    pub(super) async fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
        self.input.flush().await.unwrap();
    }

    pub(super) async fn next_line(&mut self) -> String {
        match self.output.next_line().await.unwrap() {
            Some(line) => line,
            None => panic!("{:?}", self.child.captured().tail(4096)),
        }
    }

    /// Has it try something. Returns what it says.
    pub(super) async fn attempt(&mut self, line: &str) -> String {
        self.send(line).await;
        self.next_line().await
    }
}
