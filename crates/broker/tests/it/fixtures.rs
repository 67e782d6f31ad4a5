//! A broker with an observer that passes everything on to the test, and hosts that agents reach.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::timeout;
use trilogue_broker::{
    AgentAccess, Broker, BrokerGuard, BrokerObserver, BrokerOptions, ConnectionRecord, HostPort,
    HostRules, NetworkAccess, NetworkAnswer, RequestUsage, Unlisted,
};
use trilogue_egress::Policy;

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type OpenQuestion = (HostPort, oneshot::Sender<NetworkAnswer>);

#[derive(Debug)]
struct ForwardingObserver {
    records: UnboundedSender<ConnectionRecord>,
    usages: UnboundedSender<RequestUsage>,
    questions: UnboundedSender<OpenQuestion>,
}

pub(crate) struct TestBroker {
    pub(crate) address: SocketAddr,
    pub(crate) guard: BrokerGuard,
    records: UnboundedReceiver<ConnectionRecord>,
    usages: UnboundedReceiver<RequestUsage>,
    questions: UnboundedReceiver<OpenQuestion>,
}

// === impl ForwardingObserver ===

impl BrokerObserver for ForwardingObserver {
    fn ask(&self, target: &HostPort) -> BoxFuture<'static, NetworkAnswer> {
        let (answer, answered) = oneshot::channel();
        self.questions.send((target.clone(), answer)).unwrap();
        async { answered.await.unwrap() }.boxed()
    }

    fn record(&self, record: ConnectionRecord) {
        // The test may have ended.
        drop(self.records.send(record));
    }

    fn record_usage(&self, usage: RequestUsage) {
        drop(self.usages.send(usage));
    }
}

// === impl TestBroker ===

impl TestBroker {
    pub(crate) async fn start(access: AgentAccess) -> Self {
        Self::start_with(local(), access).await
    }

    pub(crate) async fn start_with(options: BrokerOptions, access: AgentAccess) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (records, recorded) = mpsc::unbounded_channel();
        let (usages, used) = mpsc::unbounded_channel();
        let (questions, asked) = mpsc::unbounded_channel();
        let observer = Arc::new(ForwardingObserver { records, usages, questions });
        let guard = Broker::new(options).unwrap().serve(listener, access, observer);
        Self { address, guard, records: recorded, usages: used, questions: asked }
    }

    pub(crate) async fn record(&mut self) -> ConnectionRecord {
        timeout(PATIENCE, self.records.recv()).await.unwrap().unwrap()
    }

    pub(crate) async fn usage(&mut self) -> RequestUsage {
        timeout(PATIENCE, self.usages.recv()).await.unwrap().unwrap()
    }

    pub(crate) async fn question(&mut self) -> OpenQuestion {
        timeout(PATIENCE, self.questions.recv()).await.unwrap().unwrap()
    }

    pub(crate) fn has_question(&mut self) -> bool {
        self.questions.try_recv().is_ok()
    }

    pub(crate) fn has_record(&mut self) -> bool {
        self.records.try_recv().is_ok()
    }

    /// Sends a request, and returns everything until the end of the connection.
    pub(crate) async fn exchange(&self, request: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_ref()).await.unwrap();
        read_to_end(&mut stream).await
    }

    /// Opens a tunnel. Returns it with the head of the response.
    pub(crate) async fn open_tunnel(&self, target: &str, fields: &str) -> (TcpStream, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        (stream, head)
    }
}

pub(crate) fn local() -> BrokerOptions {
    BrokerOptions { addresses: Policy::local(), ..BrokerOptions::default() }
}

pub(crate) fn rules(patterns: &[&str]) -> HostRules {
    HostRules::new(patterns.iter().map(|pattern| pattern.parse().unwrap()).collect()).unwrap()
}

pub(crate) fn listed(patterns: &[&str], unlisted: Unlisted) -> AgentAccess {
    let network = NetworkAccess::Listed { allow: rules(patterns), unlisted };
    AgentAccess { network, ..AgentAccess::default() }
}

/// Reads until the end of the connection, which may be a reset.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    drop(timeout(PATIENCE, stream.read_to_end(&mut read)).await.unwrap());
    String::from_utf8(read).unwrap()
}

/// Reads the head of a request or a response, byte by byte.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match timeout(PATIENCE, stream.read_u8()).await.unwrap() {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Serves each connection of a host with this.
pub(crate) async fn serve_host<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// A host that sends back what it receives.
pub(crate) async fn echo_host() -> u16 {
    serve_host(async |mut stream: TcpStream| {
        let (mut read, mut write) = stream.split();
        drop(tokio::io::copy(&mut read, &mut write).await);
    })
    .await
}

/// Checks that a tunnel carries bytes both ways.
pub(crate) async fn check_echo(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    timeout(PATIENCE, stream.read_exact(&mut back)).await.unwrap().unwrap();
    assert_eq!(back, text);
}
