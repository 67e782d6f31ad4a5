//! Servers as nodes of one PostgreSQL store, and faults of machines and networks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::sync::watch;
use trilogue_testkit::services::connect;
use trilogue_testkit::{
    Client, DatabaseStop, Folder, Home, Link, Proxy, Replication, Seed, Server, ServerOptions,
    Service, Services, SkewedClock,
};

use crate::kill_rounds::stop;

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
/// The offsets of the nodes' clocks at the start, in seconds.
const SKEWS_S: [i64; 3] = [0, 300, -300];
/// The largest offset of a clock after a change, in seconds.
const MOST_SKEW_S: u64 = 900;
const SCHEMA: &str = "cluster";
/// The shortest and longest outage after which other nodes take over, in milliseconds.
const LONG_MS: (u64, u64) = (1_300, 2_000);
/// The shortest and longest outage without a takeover, in milliseconds.
const SHORT_MS: (u64, u64) = (400, 800);
/// For faults in quick succession: a node retries a write for a shorter time than any outage lasts.
pub(crate) const QUICK: ClusterTimes = ClusterTimes {
    heartbeat: Duration::from_millis(100),
    dead_after: Duration::from_secs(1),
    retry_for: Duration::from_millis(300),
};
/// The defaults of servers.
pub(crate) const USUAL: ClusterTimes = ClusterTimes {
    heartbeat: Duration::from_secs(1),
    dead_after: Duration::from_secs(4),
    retry_for: Duration::from_secs(30),
};
/// How many times the connections of a node are ended, and the longest pause between.
const ENDED_CONNECTIONS: u32 = 4;
const MOST_PAUSE_MS: u64 = 150;

/// Three nodes behind nginx. They have their own PostgreSQL and NATS, because tests restart these.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    token: String,
    proxy: Proxy,
    /// The nodes that have a fault now.
    struck: watch::Sender<BTreeSet<usize>>,
    services: Services,
    folder: Folder,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterTimes {
    heartbeat: Duration,
    dead_after: Duration,
    retry_for: Duration,
}

/// How all nodes lose the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outage {
    Halt(DatabaseStop),
    /// The networks to it drop everything.
    Hold,
    /// The networks end every connection.
    Cut,
    /// The primary is away so and stays as it is, and its replica takes its place.
    FailOver(DatabaseStop),
}

#[derive(Debug)]
struct Node {
    home: Home,
    /// `None` while it is down.
    server: Option<Server>,
    /// The application name of its database connections.
    application: String,
    /// One link for each host that the node's store address names.
    to_database: Vec<Link>,
    to_news: Link,
    clock: SkewedClock,
}

/// A fault that happened.
#[derive(Debug)]
pub(crate) struct FaultRecord {
    pub(crate) fault: Fault,
    node: usize,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The owners of the measured threads, by thread.
    owners: BTreeMap<String, String>,
}

/// A fault of one node or of a shared service while clients use all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is killed, and started again under the same name.
    Kill,
    /// It is paused long enough that other nodes take its threads, and then resumed.
    Pause,
    /// The database ends its connections, several times.
    EndConnections,
    /// The network to the database is cut long enough that other nodes take its threads.
    CutDatabase,
    /// The network to the database is cut for a shorter time: the node keeps its threads.
    CutDatabaseShortly,
    /// No node reaches the database.
    StopDatabase,
    /// The database ends as in a crash, and starts again.
    RestartDatabase,
    /// The network to NATS is cut.
    CutNews,
    /// No node reaches NATS.
    StopNews,
    /// NATS is killed, and starts again.
    RestartNews,
    /// Its clock is set to another wrong time.
    SkewClock,
}

// === impl Fault ===

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Kill,
        Self::Pause,
        Self::EndConnections,
        Self::CutDatabase,
        Self::CutDatabaseShortly,
        Self::StopDatabase,
        Self::RestartDatabase,
        Self::CutNews,
        Self::StopNews,
        Self::RestartNews,
        Self::SkewClock,
    ];

    /// Whether it stops one node from working.
    fn is_of_node(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::Pause
                | Self::EndConnections
                | Self::CutDatabase
                | Self::CutDatabaseShortly
        )
    }

    fn is_of_all(self) -> bool {
        matches!(self, Self::StopDatabase | Self::RestartDatabase)
    }

    /// All faults, once each, in a random order.
    pub(crate) fn shuffled(seed: &mut Seed) -> Vec<Self> {
        let mut left = Self::ALL.to_vec();
        let mut faults = Vec::new();
        while !left.is_empty() {
            faults.push(left.remove(seed.below(left.len() as u64) as usize));
        }
        faults
    }
}

/// The folder of the nodes, what they share, and their program if it is not the usual one.
type NodePlace<'a> = (&'a Path, &'a Services, Option<PathBuf>);

// === impl Cluster ===

impl Cluster {
    /// Starts the nodes. `settings` are appended to the configuration of each.
    pub(crate) async fn start(settings: &str) -> Result<Self> {
        let agents = ServerOptions::default().agents;
        Self::start_with(settings, [&agents, &agents, &agents], QUICK).await
    }

    /// Like [`Self::start`], with these times.
    pub(crate) async fn start_at(times: ClusterTimes, settings: &str) -> Result<Self> {
        let agents = ServerOptions::default().agents;
        Self::start_with(settings, [&agents, &agents, &agents], times).await
    }

    /// Like [`Self::start_at`], with these agents for each node.
    pub(crate) async fn start_with(
        settings: &str,
        agents: [&[(String, String)]; NAMES.len()],
        times: ClusterTimes,
    ) -> Result<Self> {
        let place = (Services::start().await?, Folder::new()?);
        Self::start_on(place, settings, agents, (times, None)).await
    }

    /// As [`Self::start_at`], on a PostgreSQL with a synchronous replica. The first node's address leads through a proxy to the one that is the primary; the others' addresses name both hosts.
    pub(crate) async fn start_replicated(times: ClusterTimes, settings: &str) -> Result<Self> {
        let agents = ServerOptions::default().agents;
        let services = Services::start_replicated(Replication::Synchronous).await?;
        let folder = Folder::new()?;
        Self::start_on((services, folder), settings, [&agents, &agents, &agents], (times, None))
            .await
    }

    /// Like [`Self::start`]. Each node takes the others for servers of other machines, whose processes it does not know. Needs root.
    pub(crate) async fn start_apart(settings: &str) -> Result<Self> {
        let agents = ServerOptions::default().agents;
        let folder = Folder::new()?;
        let home = Home::new(folder.path(), &ServerOptions::default())?;
        let program = home.command_line(&[]).await?.pop().context("the program has no name")?;
        let launcher = folder.path().join("launcher");
        let script = format!(
            "#!/bin/sh
cat /proc/sys/kernel/random/uuid > boot_id
exec unshare --mount /bin/sh -c 'mount --bind boot_id /proc/sys/kernel/random/boot_id && exec {program} \"$@\"' server \"$@\"
"
        );
        std::fs::write(&launcher, script)?;
        std::fs::set_permissions(&launcher, Permissions::from_mode(0o755))?;
        let place = (Services::start().await?, folder);
        Self::start_on(place, settings, [&agents, &agents, &agents], (QUICK, Some(launcher))).await
    }

    async fn start_on(
        (services, folder): (Services, Folder),
        settings: &str,
        agents: [&[(String, String)]; NAMES.len()],
        (times, binary): (ClusterTimes, Option<PathBuf>),
    ) -> Result<Self> {
        let database = connect(services.postgres()).await?;
        database.batch_execute(&format!("CREATE SCHEMA {SCHEMA}")).await?;
        let mut nodes = Vec::new();
        for ((name, skew), agents) in NAMES.into_iter().zip(SKEWS_S).zip(agents) {
            let place = (folder.path(), &services, binary.clone());
            let node = Node::start(name, settings, agents, (place, times)).await;
            let node = node.with_context(|| format!("the start of {name}"))?;
            node.clock.set(skew)?;
            nodes.push(node);
        }
        let token =
            nodes.iter().flat_map(|node| &node.server).next().map(|it| it.token().to_owned());
        let token = token.context("the cluster has no node")?;
        let addresses: Vec<_> = nodes.iter().map(|node| node.home.address()).collect();
        let proxy = Proxy::start(&addresses).await?;
        Ok(Self { nodes, token, proxy, struck: watch::Sender::default(), services, folder })
    }

    /// A client that sends each request to the next node; every second request goes through the proxy.
    pub(crate) fn client(&self) -> Client {
        let addresses =
            self.nodes.iter().flat_map(|node| [node.home.address(), self.proxy.address()]);
        Client::of_any(addresses.collect()).with_token(self.token.clone())
    }

    /// A client that sends every request through the proxy.
    pub(crate) fn proxy_client(&self) -> Client {
        Client::new(self.proxy.address()).with_token(self.token.clone())
    }

    pub(crate) fn address(&self, index: usize) -> SocketAddr {
        self.nodes[index].home.address()
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// The end of a node's log.
    pub(crate) fn log_end(&self, index: usize) -> String {
        self.nodes[index].home.log_end()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The home of the first node; an editor uses its socket.
    pub(crate) fn home(&self) -> &Home {
        &self.nodes[0].home
    }

    /// A receiver of the numbers of the nodes that have a fault.
    pub(crate) fn faulty_nodes(&self) -> watch::Receiver<BTreeSet<usize>> {
        self.struck.subscribe()
    }

    /// A client for each node.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let client = |node: &Node| Client::new(node.home.address()).with_token(self.token.clone());
        self.nodes.iter().map(client).collect()
    }

    /// Kills a node and keeps it down.
    pub(crate) async fn lose(&mut self, index: usize) -> Result<()> {
        let server = self.nodes[index].server.take().context("the node is down")?;
        server.kill().await.map(drop)
    }

    /// Starts a node that is down.
    pub(crate) async fn bring_back(&mut self, index: usize) -> Result<()> {
        self.nodes[index].server = Some(self.nodes[index].home.start().await?);
        Ok(())
    }

    /// Pauses the process of a node.
    pub(crate) fn suspend(&self, index: usize) -> Result<()> {
        self.nodes[index].server.as_ref().context("the node is down")?.pause()
    }

    /// Resumes a paused node.
    pub(crate) fn resume(&self, index: usize) -> Result<()> {
        self.nodes[index].server.as_ref().context("the node is down")?.resume()
    }

    /// Stops a node, which must exit cleanly, and starts it again. Returns how long the stop took.
    pub(crate) async fn restart(&mut self, index: usize) -> Result<Duration> {
        let server = self.nodes[index].server.take().context("the node is down")?;
        let began = Instant::now();
        stop(server).await;
        let took = began.elapsed();
        self.bring_back(index).await?;
        Ok(took)
    }

    /// Runs a command of the program against a node. Returns its output, even if it fails.
    pub(crate) async fn run(&self, index: usize, arguments: &[&str]) -> Result<String> {
        let output = self.nodes[index].home.command(arguments).await?;
        let (out, err) = (&output.stdout, &output.stderr);
        Ok(format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err)))
    }

    /// Applies a fault to a random node, and waits until it is over. Records the owners of the threads with this prefix.
    pub(crate) async fn inject_fault(
        &mut self,
        fault: Fault,
        threads: Option<&str>,
        seed: &mut Seed,
    ) -> Result<FaultRecord> {
        let index = seed.below(self.nodes.len() as u64) as usize;
        self.strike_node(fault, index, threads, seed).await
    }

    /// Applies a fault to this node.
    pub(crate) async fn strike_node(
        &mut self,
        fault: Fault,
        index: usize,
        threads: Option<&str>,
        seed: &mut Seed,
    ) -> Result<FaultRecord> {
        let outage = match fault {
            Fault::CutDatabaseShortly => between(SHORT_MS, seed),
            Fault::StopDatabase if seed.below(2) == 0 => between(SHORT_MS, seed),
            _ => between(LONG_MS, seed),
        };
        let owners = match threads {
            Some(begin) => self.owners(begin).await?,
            None => BTreeMap::new(),
        };
        if fault.is_of_node() {
            self.struck.send_replace(BTreeSet::from([index]));
        }
        let (all, node) = (&self.nodes[..], &self.nodes[index..=index]);
        let began = Instant::now();
        match fault {
            Fault::Kill => {
                let server = self.nodes[index].server.take().context("the node is down")?;
                // The new server waits until the old one counts as dead.
                self.nodes[index].server = Some(server.kill().await?.start().await?);
            }
            Fault::Pause => self.pause(index, tokio::time::sleep(outage)).await?,
            Fault::EndConnections => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
                let database = connect(&self.services.primary()).await?;
                for _ in 0..ENDED_CONNECTIONS {
                    database.query(sql, &[&node[0].application]).await?;
                    tokio::time::sleep(Duration::from_millis(seed.below(MOST_PAUSE_MS))).await;
                }
            }
            Fault::CutDatabase | Fault::CutDatabaseShortly => {
                cut(node.iter().flat_map(|node| &node.to_database), outage).await;
            }
            Fault::StopDatabase => cut(all.iter().flat_map(|node| &node.to_database), outage).await,
            Fault::CutNews => cut(node.iter().map(|node| &node.to_news), outage).await,
            Fault::StopNews => cut(all.iter().map(|node| &node.to_news), outage).await,
            Fault::RestartDatabase => self.services.restart(Service::Postgres).await?,
            Fault::RestartNews => self.services.restart(Service::Nats).await?,
            Fault::SkewClock => {
                let ahead = seed.below(2 * MOST_SKEW_S).cast_signed() - MOST_SKEW_S.cast_signed();
                node[0].clock.set(ahead)?;
                tokio::time::sleep(outage).await;
            }
        }
        self.struck.send_replace(BTreeSet::new());
        let strike = FaultRecord { fault, node: index, began, ended: Instant::now(), owners };
        eprintln!("{fault:?}, node {}, {:?}", NAMES[index], strike.ended - began);
        Ok(strike)
    }

    /// Keeps all nodes from the database for this time.
    pub(crate) async fn outage(&self, how: Outage, time: Duration) -> Result<()> {
        let links = || self.nodes.iter().flat_map(|node| &node.to_database);
        match how {
            Outage::Halt(how) => {
                self.services.halt(how).await?;
                tokio::time::sleep(time).await;
                self.services.resume().await?;
            }
            Outage::Cut => cut(links(), time).await,
            Outage::Hold => {
                links().for_each(Link::hold);
                tokio::time::sleep(time).await;
                links().for_each(Link::mend);
            }
            Outage::FailOver(how) => {
                let primary = self.services.fail_over(how, time).await?;
                for node in &self.nodes {
                    if let [proxy] = node.to_database.as_slice() {
                        proxy.redirect(primary);
                    }
                }
            }
        }
        Ok(())
    }

    /// After a failover, makes the old primary a replica.
    pub(crate) async fn replicate_again(&self) -> Result<()> {
        self.services.replicate_again().await
    }

    /// Has a node stand still until something is done.
    pub(crate) async fn pause<T>(&self, index: usize, until: impl Future<Output = T>) -> Result<T> {
        self.suspend(index)?;
        let done = until.await;
        self.resume(index)?;
        Ok(done)
    }

    /// The names of the live nodes that own threads with this prefix, by thread.
    async fn owners(&self, begin: &str) -> Result<BTreeMap<String, String>> {
        let sql = format!(
            "SELECT threads.id, nodes.name FROM {SCHEMA}.heads JOIN {SCHEMA}.threads ON threads.key = heads.thread JOIN {SCHEMA}.nodes ON nodes.id = heads.owner_node WHERE starts_with(threads.id, $1)"
        );
        let database = connect(&self.services.primary()).await?;
        let rows = database.query(&sql, &[&begin]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// The command line that runs a command of the binary with a node's state.
    pub(crate) async fn command_line(&self, node: &str, words: &[&str]) -> Result<Vec<String>> {
        let place = NAMES.iter().position(|name| *name == node).context("no node has the name")?;
        self.nodes[place].home.command_line(words).await
    }

    /// The name of the node that owns a thread; `None` if no live node owns it.
    pub(crate) async fn owner(&self, thread: &str) -> Result<Option<String>> {
        Ok(self.owners(thread).await?.remove(thread))
    }

    /// How many times a thread has moved from one node to another.
    pub(crate) async fn take_overs(&self) -> Result<i64> {
        let sql = format!("SELECT coalesce(sum(epoch - 1), 0)::bigint FROM {SCHEMA}.heads");
        let database = connect(&self.services.primary()).await?;
        Ok(database.query_one(&sql, &[]).await?.get(0))
    }

    /// Stops the nodes, which must exit cleanly.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for server in self.nodes.iter_mut().filter_map(|node| node.server.take()) {
            stop(server).await;
        }
        Ok(())
    }

    /// The ends of the nodes' logs.
    pub(crate) fn log_ends(&self) -> String {
        let ends = self.nodes.iter().zip(NAMES);
        ends.map(|(node, name)| format!("--- {name}\n{}\n", node.home.log_end())).collect()
    }
}

// === impl FaultRecord ===

impl FaultRecord {
    /// Whether it stopped the owner of a thread from working.
    pub(crate) fn affects(&self, thread: &str) -> bool {
        let is_owned = self.owners.get(thread).is_some_and(|owner| owner == NAMES[self.node]);
        self.fault.is_of_all() || self.fault.is_of_node() && is_owned
    }
}

// === impl Node ===

impl Node {
    async fn start(
        name: &str,
        settings: &str,
        agents: &[(String, String)],
        ((folder, services, binary), times): (NodePlace<'_>, ClusterTimes),
    ) -> Result<Self> {
        let application = format!("{SCHEMA}_{name}");
        // Only the first node has a proxy that knows which host is the primary.
        let host_count = if name == NAMES[0] { 1 } else { services.hosts()?.len() };
        let (to_database, url) = linked(services.postgres(), host_count).await?;
        let (mut to_news, news) = linked(services.nats(), 1).await?;
        let to_news = to_news.pop().context("NATS has no host")?;
        let dir = folder.join(name);
        std::fs::create_dir(&dir)?;
        let clock = SkewedClock::new(&dir)?;
        let cluster = format!(
            "[cluster]\nname = \"{name}\"\nheartbeat = \"{}ms\"\ndead_after = \"{}ms\"\nnats = \"{news}\"\n",
            times.heartbeat.as_millis(),
            times.dead_after.as_millis()
        );
        let options = ServerOptions {
            store_settings: format!("retry_for = \"{}ms\"", times.retry_for.as_millis()),
            store: format!("{url}?options=-csearch_path%3D{SCHEMA}&application_name={application}"),
            settings: format!("{settings}\n{cluster}"),
            environment: clock.environment(),
            agents: agents.to_vec(),
            binary,
            ..ServerOptions::default()
        };
        let home = Home::new(&dir, &options)?;
        let server = Some(home.start().await?);
        Ok(Self { home, server, application, to_database, to_news, clock })
    }
}

fn between((least, most): (u64, u64), seed: &mut Seed) -> Duration {
    Duration::from_millis(least + seed.below(most - least))
}

/// Cuts links for this time.
async fn cut(links: impl Iterator<Item = &Link> + Clone, outage: Duration) {
    links.clone().for_each(Link::cut);
    tokio::time::sleep(outage).await;
    links.for_each(Link::mend);
}

/// Links to the first `host_count` hosts that a URL names, and the URL that leads through them.
async fn linked(url: &str, host_count: usize) -> Result<(Vec<Link>, String)> {
    let (before, rest) = match url.rsplit_once('@') {
        Some((before, rest)) => (format!("{before}@"), rest),
        None => {
            let (scheme, rest) = url.split_once("://").context("the URL has no scheme")?;
            (format!("{scheme}://"), rest)
        }
    };
    let (hosts, path) = rest
        .split_once('/')
        .map_or((rest, String::new()), |(hosts, path)| (hosts, format!("/{path}")));
    // The nodes add parameters of their own.
    let path = path.split('?').next().unwrap_or_default();
    let mut links = Vec::new();
    for host in hosts.split(',').take(host_count) {
        links.push(Link::to(host.parse().context("the services are not on this machine")?).await?);
    }
    let addresses: Vec<_> = links.iter().map(|link| link.address().to_string()).collect();
    Ok((links, format!("{before}{}{path}", addresses.join(","))))
}
