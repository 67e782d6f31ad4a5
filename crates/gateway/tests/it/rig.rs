//! Starts a whole server in one line.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::timeout;
use trilogue_domain::event::{Body, Original};
use trilogue_domain::port::{PeerFinding, ReadOriginal, SystemClock};
use trilogue_domain::{PrincipalId, Result, Right, Rights, TenantId, Timestamp, TokenId};
use trilogue_egress::Policy;
use trilogue_gateway::callback::Sender;
use trilogue_gateway::{
    AgentProcesses, CallbackDelivery, CallbackOwner, CallbackSecrets, ClientOptions,
    ConnectOptions, HistoryFetch, Mount, Options, Ports, Server,
};
use trilogue_mapping::communication::strict::CommunicationRules;
use trilogue_runtime::{Backend, Runtime};
use trilogue_store::memory::MemoryStore;
use trilogue_store::rows::TokenRow;
use trilogue_store::{Admin, Configurations, Queue, Read, Store, Tokens};
use trilogue_testkit::Client;
use trilogue_testkit::client::Stream;
use trilogue_wire::native::{AgentProcess, ProcessStderr};

use crate::agent::Puppet;
use crate::client_editor::EditorSocket;

pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// The secret from which the keys of the rig's callbacks are derived.
pub(crate) fn callback_secrets() -> CallbackSecrets {
    CallbackSecrets::new([Bytes::from_static(b"a secret of the rig, for callbacks")])
}

/// The key that signs this principal's callbacks to this address.
pub(crate) fn callback_key(tenant: &str, principal: &str, url: &str) -> [u8; 32] {
    let owner = CallbackOwner {
        tenant: TenantId::parse(tenant).unwrap(),
        principal: PrincipalId::parse(principal).unwrap(),
    };
    callback_secrets().keys(&owner, url)[0]
}

pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: SocketAddr,
    pub(crate) runtime: Runtime,
    pub(crate) client: ClientOptions,
    /// The folder of the store's file, if it has one.
    _folder: Option<TempDir>,
    editor_socket: OnceLock<EditorSocket>,
}

#[derive(Debug)]
pub(crate) struct NoOriginals;

impl ReadOriginal for NoOriginals {
    fn read(&self, original: &Original) -> Result<Body> {
        Ok(trilogue_mapping::agent_client::OriginalReader.read(original).unwrap_or(Body::Opaque))
    }
}

/// The parts of a server that a test can choose.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) mounts: Option<Vec<Mount>>,
    pub(crate) client: ClientOptions,
    pub(crate) egress: Policy,
    pub(crate) callback_backoff: Option<Duration>,
    pub(crate) agents: Vec<Arc<dyn Backend>>,
    pub(crate) on_disk: bool,
    /// A store that the servers of a test share. The test creates its tokens.
    pub(crate) shared_store: Option<Arc<dyn Store>>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) interrupt_deadline: Option<Duration>,
    pub(crate) max_running: Option<usize>,
    /// Which callers are programs of agents; none if it is not given.
    pub(crate) agent_processes: Option<Arc<dyn AgentProcesses>>,
}

/// The callers that are programs of hosted agents: every one, or those at some addresses. Records for which ones it is asked.
#[derive(Debug, Default)]
pub(crate) struct AgentPrograms {
    are_all: bool,
    at: Mutex<HashSet<SocketAddr>>,
    looks: Mutex<Vec<SocketAddr>>,
}

impl AgentPrograms {
    pub(crate) fn every() -> Self {
        Self { are_all: true, ..Self::default() }
    }

    pub(crate) fn add(&self, peer: SocketAddr) {
        self.at.lock().unwrap().insert(peer);
    }

    pub(crate) fn take_looks(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.looks.lock().unwrap())
    }
}

impl AgentProcesses for AgentPrograms {
    fn has_process(&self, _: u32) -> bool {
        self.are_all
    }

    fn find_peer(&self, peer: SocketAddr, _: SocketAddr) -> PeerFinding {
        self.looks.lock().unwrap().push(peer);
        PeerFinding::lasting(self.are_all || self.at.lock().unwrap().contains(&peer))
    }

    fn counts(&self) -> (usize, usize) {
        (1, 0)
    }

    fn list(&self) -> Vec<AgentProcess> {
        Vec::new()
    }

    fn stderr(&self, _: u32) -> Option<ProcessStderr> {
        None
    }
}

impl From<Options> for Setup {
    fn from(options: Options) -> Self {
        Self { options, ..Self::default() }
    }
}

impl From<Vec<Mount>> for Setup {
    fn from(mounts: Vec<Mount>) -> Self {
        Self { mounts: Some(mounts), ..Self::default() }
    }
}

impl From<ClientOptions> for Setup {
    fn from(client: ClientOptions) -> Self {
        Self { client, ..Self::default() }
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::of(Setup::default()).await
    }

    pub(crate) async fn with(setup: impl Into<Setup>) -> Self {
        Self::of(setup.into()).await
    }

    pub(crate) async fn on_disk() -> Self {
        Self::of(Setup { on_disk: true, ..Setup::default() }).await
    }

    pub(crate) async fn of(setup: Setup) -> Self {
        // The parts of a server are large, and tests start several.
        Box::pin(Self::assemble(setup)).await
    }

    async fn assemble(setup: Setup) -> Self {
        let is_shared = setup.shared_store.is_some();
        let (store, folder): (Arc<dyn Store>, _) = if let Some(store) = setup.shared_store {
            (store, None)
        } else if setup.on_disk {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("store.db").display());
            let options = trilogue_store::Options::new(Arc::new(NoOriginals));
            (trilogue_store::open(&url, options).await.unwrap(), Some(folder))
        } else {
            (Arc::new(MemoryStore::default()), None)
        };
        let mut agents = setup.agents;
        agents.push(Arc::new(Puppet::new()));
        let runtime = trilogue_runtime::Options {
            max_part_metadata_bytes: setup.options.max_part_metadata_bytes,
            callback_attempts: 3,
            callback_backoff: setup.callback_backoff.unwrap_or(Duration::from_secs(2)),
            interrupt_deadline: setup
                .interrupt_deadline
                .unwrap_or(trilogue_runtime::Options::default().interrupt_deadline),
            max_running: setup
                .max_running
                .unwrap_or(trilogue_runtime::Options::default().max_running),
            ..trilogue_runtime::Options::default()
        };
        let mut ports = ports_of(runtime, Arc::clone(&store), agents, setup.egress.clone()).await;
        if let Some(processes) = setup.agent_processes {
            ports.agent_processes = processes;
        }
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(setup.listen.unwrap_or(any)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let client =
            trilogue_egress::Client::new(setup.egress, trilogue_egress::Options::default());
        let sender = Sender::new(client.unwrap(), callback_secrets());
        let mounts = setup.mounts.unwrap_or_else(Mount::defaults);
        let connect = mounts.iter().filter(|it| it.protocol().name() == ConnectOptions::NAME);
        let prefixes: Vec<_> = connect.map(Mount::prefix).collect();
        let delivery = CallbackDelivery::new(&setup.options, &[address], &prefixes, &ports, sender);
        ports.runtime.deliver_with(Arc::new(delivery));
        let runtime = ports.runtime.clone();
        let options = Options { callback_secrets: callback_secrets(), ..setup.options };
        let server = Server::start(options, &mounts, ports, vec![listener]).unwrap();
        let rig = Self {
            server,
            store,
            address,
            runtime,
            client: setup.client,
            _folder: folder,
            editor_socket: OnceLock::new(),
        };
        if !is_shared {
            rig.token("alpha", "alice", Rights::all(), false).await;
        }
        rig
    }

    /// Creates a token whose secret names tenant and principal.
    pub(crate) async fn token(&self, tenant: &str, principal: &str, rights: Rights, own: bool) {
        let secret = format!("{tenant}-{principal}");
        self.store.put_token(token_row(&secret, tenant, principal, rights, own)).await.unwrap();
    }

    /// A page's session with all rights that began long ago: the headers of its requests.
    pub(crate) async fn old_session(
        &self,
        tenant: &str,
        principal: &str,
    ) -> [(&'static str, String); 2] {
        let (cookie, page) = ("old-cookie".to_owned(), "old-page".to_owned());
        let secret = format!("{cookie}.{page}");
        let session_of = Some(TokenId::generate());
        let row = token_row(&secret, tenant, principal, Rights::all(), false);
        self.store.put_token(TokenRow { session_of, ..row }).await.unwrap();
        let cookie = format!("trilogue-{}={cookie}", self.address.port());
        [("cookie", cookie), ("trilogue-page", page)]
    }

    /// A client with a separate token, and the path that revokes the token.
    pub(crate) async fn short_lived(&self) -> (Client, String) {
        let made = json!({"label": "short", "principal": "alice", "rights": ["read", "run"]});
        let made = self.alice().post("/api/v1/tokens", &made).await.unwrap().ok().unwrap();
        let client = self.stranger().with_token(text(&made, "/secret"));
        (client, format!("/api/v1/tokens/{}", text(&made, "/token/id")))
    }

    pub(crate) async fn revoke(&self, path: &str) {
        let gone = self.alice().send(Method::DELETE, path, &[], Bytes::new()).await.unwrap();
        assert_eq!(gone.status, 204, "{}", gone.json());
    }

    pub(crate) fn stranger(&self) -> Client {
        Client::new(self.address)
    }

    pub(crate) fn as_(&self, tenant: &str, principal: &str) -> Client {
        Client::new(self.address).with_token(format!("{tenant}-{principal}"))
    }

    /// The socket for alice's editors.
    pub(crate) fn editor_socket(&self) -> &EditorSocket {
        self.editor_socket.get_or_init(|| EditorSocket::in_name_of(self, "alpha", "alice"))
    }

    pub(crate) fn alice(&self) -> Client {
        self.as_("alpha", "alice")
    }

    pub(crate) async fn metrics(&self) -> String {
        let metrics = self.alice().get("/metrics").await.unwrap();
        String::from_utf8(metrics.body.to_vec()).unwrap()
    }

    pub(crate) async fn run(&self, input: &str) -> Value {
        let body = json!({"agent": "puppet", "input": input});
        self.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap()
    }

    pub(crate) async fn run_on(&self, thread: &str, input: &str) -> Value {
        let body = json!({
            "agent": "puppet", "input": input, "thread_id": thread, "create_thread": true,
        });
        self.alice().post("/api/v1/runs", &body).await.unwrap().ok().unwrap()
    }
}

pub(crate) async fn ports(store: Arc<dyn Store>) -> Ports {
    ports_of(
        trilogue_runtime::Options::default(),
        store,
        vec![Arc::new(Puppet::new())],
        Policy::default(),
    )
    .await
}

async fn ports_of(
    options: trilogue_runtime::Options,
    store: Arc<dyn Store>,
    agents: Vec<Arc<dyn Backend>>,
    egress: Policy,
) -> Ports {
    let clock = Arc::new(SystemClock);
    let runtime = Runtime::start(
        options,
        Arc::clone(&store),
        agents,
        Arc::clone(&clock) as _,
        Arc::new(NoOriginals),
    )
    .await
    .unwrap();
    let egress = trilogue_egress::Client::new(egress, trilogue_egress::Options::default()).unwrap();
    runtime.check_output_with(Arc::new(CommunicationRules));
    runtime.fetch_with(Arc::new(HistoryFetch::new(egress.clone())));
    Ports {
        runtime,
        read: Arc::clone(&store) as Arc<dyn Read>,
        tokens: Arc::clone(&store) as Arc<dyn Tokens>,
        admin: Arc::clone(&store) as Arc<dyn Admin>,
        configurations: Arc::clone(&store) as Arc<dyn Configurations>,
        queue: store as Arc<dyn Queue>,
        clock,
        egress,
        agent_processes: Arc::new(()),
    }
}

fn token_row(secret: &str, tenant: &str, principal: &str, rights: Rights, own: bool) -> TokenRow {
    TokenRow {
        id: TokenId::generate(),
        label: secret.to_owned(),
        hash: Sha256::digest(secret).into(),
        tenant: TenantId::parse(tenant).unwrap(),
        principal: PrincipalId::parse(principal).unwrap(),
        rights,
        own,
        created_at: Timestamp::from_micros(0),
        expires_at: None,
        session_of: None,
    }
}

/// The rights of a user who is not an administrator.
pub(crate) fn user() -> Rights {
    [Right::Read, Right::Run, Right::Answer].into_iter().collect()
}

/// The types of a stream's events.
pub(crate) fn kinds(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(_, event)| text(event, "/type")).collect()
}

/// The id, the name and the data of the next event; `None` at the end of the stream.
pub(crate) async fn next_event(stream: &mut Stream) -> Option<(String, Option<String>, Value)> {
    let event = timeout(LIMIT, stream.next()).await.unwrap().unwrap()?;
    let data = serde_json::from_str(&event.data).unwrap();
    Some((event.id.unwrap_or_default(), event.event, data))
}

pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path} in {value}"))
}
