//! Servers as nodes of one store in PostgreSQL, and what happens to machines and networks.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use trilogue_testkit::services::{new_schema, service};
use trilogue_testkit::{Client, Folder, Home, Link, Seed, Server, ServerOptions};

use crate::kill_rounds::stop;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// As long as the others wait for a sign of life.
const DEAD_AFTER: Duration = Duration::from_secs(1);
/// How long an outage takes in which the others wait for longer than that, in milliseconds: at least, and at most.
const LONG_MS: (u64, u64) = (1_300, 2_000);
/// How long one takes in which they do not.
const SHORT_MS: (u64, u64) = (400, 800);
/// How long a node tries to store something: less than any outage.
const RETRY_FOR: Duration = Duration::from_millis(300);
/// How often the connections of a node are ended, and the pause between.
const ENDED_CONNECTIONS: u32 = 4;
const MOST_PAUSE_MS: u64 = 150;

#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: Vec<Node>,
    token: String,
    database: tokio_postgres::Client,
    schema: String,
    _folder: Folder,
}

#[derive(Debug)]
struct Node {
    home: Home,
    /// `None` while it is down.
    server: Option<Server>,
    /// What the database knows its connections by.
    application: String,
    to_database: Link,
    to_news: Link,
}

/// What happens to one node while clients use all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is killed, and started again under its name.
    Kill,
    /// It stands still for so long that the others take its threads, and goes on.
    Pause,
    /// The database ends its connections, several times.
    EndConnections,
    /// The network to the database is cut for so long that the others take its threads.
    CutDatabase,
    /// It is cut for less long: the node keeps its threads.
    CutDatabaseShortly,
    /// No node reaches the database.
    StopDatabase,
    /// The network to NATS is cut.
    CutNews,
    /// No node reaches NATS.
    StopNews,
}

// === impl Fault ===

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Kill,
        Self::Pause,
        Self::EndConnections,
        Self::CutDatabase,
        Self::CutDatabaseShortly,
        Self::StopDatabase,
        Self::CutNews,
        Self::StopNews,
    ];

    /// Every fault once, in a random order.
    pub(crate) fn shuffled(seed: &mut Seed) -> Vec<Self> {
        let mut left = Self::ALL.to_vec();
        let mut faults = Vec::new();
        while !left.is_empty() {
            faults.push(left.remove(seed.below(left.len() as u64) as usize));
        }
        faults
    }
}

// === impl Cluster ===

impl Cluster {
    /// Starts the nodes in a new schema. `settings` are added to the configuration of each.
    pub(crate) async fn start(settings: &str) -> Result<Self> {
        let agents = ServerOptions::default().agents;
        Self::start_with(settings, [&agents, &agents, &agents]).await
    }

    /// The same with the agents of each node.
    pub(crate) async fn start_with(
        settings: &str,
        agents: [&[(String, String)]; NAMES.len()],
    ) -> Result<Self> {
        let folder = Folder::new()?;
        let (postgres, nats) = (service("TRILOGUE_POSTGRES")?, service("TRILOGUE_NATS")?);
        let (database, schema) = new_schema("cluster").await?;
        let mut nodes = Vec::new();
        for (name, agents) in NAMES.into_iter().zip(agents) {
            let application = format!("{schema}_{name}");
            let (to_database, url) = linked(&postgres).await?;
            let (to_news, news) = linked(&nats).await?;
            let cluster = format!(
                "[cluster]\nname = \"{name}\"\nheartbeat = \"100ms\"\ndead_after = \"{}ms\"\nnats = \"{news}\"\n",
                DEAD_AFTER.as_millis()
            );
            let options = ServerOptions {
                store_settings: format!("retry_for = \"{}ms\"", RETRY_FOR.as_millis()),
                store: format!(
                    "{url}?options=-csearch_path%3D{schema}&application_name={application}"
                ),
                settings: format!("{settings}\n{cluster}"),
                agents: agents.to_vec(),
                ..ServerOptions::default()
            };
            let dir = folder.path().join(name);
            std::fs::create_dir(&dir)?;
            let home = Home::new(&dir, &options)?;
            let server = Some(home.start().await?);
            nodes.push(Node { home, server, application, to_database, to_news });
        }
        let token =
            nodes.iter().flat_map(|node| &node.server).next().map(|it| it.token().to_owned());
        let token = token.context("the cluster has no node")?;
        Ok(Self { nodes, token, database, schema, _folder: folder })
    }

    /// A client that sends each request to another node.
    pub(crate) fn client(&self) -> Client {
        let addresses = self.nodes.iter().map(|node| node.home.address()).collect();
        Client::of_any(addresses).with_token(self.token.clone())
    }

    /// A client for each node.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let client = |node: &Node| Client::new(node.home.address()).with_token(self.token.clone());
        self.nodes.iter().map(client).collect()
    }

    /// Kills a node for good.
    pub(crate) async fn lose(&mut self, index: usize) -> Result<()> {
        let server = self.nodes[index].server.take().context("the node is down")?;
        server.kill().await.map(drop)
    }

    /// Runs a command of the program against a node, and gives what it prints, whether or not it succeeds.
    pub(crate) async fn run(&self, index: usize, arguments: &[&str]) -> Result<String> {
        let output = self.nodes[index].home.command(arguments).await?;
        let (out, err) = (&output.stdout, &output.stderr);
        Ok(format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err)))
    }

    /// Lets something happen to a node, and waits until it is over.
    pub(crate) async fn strike(&mut self, fault: Fault, seed: &mut Seed) -> Result<()> {
        let index = seed.below(self.nodes.len() as u64) as usize;
        let outage = match fault {
            Fault::CutDatabaseShortly => between(SHORT_MS, seed),
            Fault::StopDatabase if seed.below(2) == 0 => between(SHORT_MS, seed),
            _ => between(LONG_MS, seed),
        };
        let (all, node) = (&self.nodes[..], &self.nodes[index..=index]);
        match fault {
            Fault::Kill => {
                let server = self.nodes[index].server.take().context("the node is down")?;
                // It waits for the one before it to be dead.
                self.nodes[index].server = Some(server.kill().await?.start().await?);
            }
            Fault::Pause => {
                let server = node[0].server.as_ref().context("the node is down")?;
                server.pause()?;
                tokio::time::sleep(outage).await;
                server.go_on()?;
            }
            Fault::EndConnections => {
                let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1";
                for _ in 0..ENDED_CONNECTIONS {
                    self.database.query(sql, &[&node[0].application]).await?;
                    tokio::time::sleep(Duration::from_millis(seed.below(MOST_PAUSE_MS))).await;
                }
            }
            Fault::CutDatabase | Fault::CutDatabaseShortly => {
                cut(node.iter().map(|node| &node.to_database), outage).await;
            }
            Fault::StopDatabase => cut(all.iter().map(|node| &node.to_database), outage).await,
            Fault::CutNews => cut(node.iter().map(|node| &node.to_news), outage).await,
            Fault::StopNews => cut(all.iter().map(|node| &node.to_news), outage).await,
        }
        eprintln!("{fault:?}, node {}, {outage:?}", NAMES[index]);
        Ok(())
    }

    /// What a command of the binary with a node's state is run with.
    pub(crate) async fn command_line(&self, node: &str, words: &[&str]) -> Result<Vec<String>> {
        let place = NAMES.iter().position(|name| *name == node).context("no node has the name")?;
        self.nodes[place].home.command_line(words).await
    }

    /// The name of the node that owns a thread; `None` where no live one does.
    pub(crate) async fn owner(&self, thread: &str) -> Result<Option<String>> {
        let schema = &self.schema;
        let sql = format!(
            "SELECT nodes.name FROM {schema}.heads JOIN {schema}.threads ON threads.key = heads.thread \
             JOIN {schema}.nodes ON nodes.id = heads.owner_node WHERE threads.id = $1"
        );
        Ok(self.database.query_opt(&sql, &[&thread]).await?.map(|row| row.get(0)))
    }

    /// How often a thread passed from one node to another.
    pub(crate) async fn take_overs(&self) -> Result<i64> {
        let sql = format!("SELECT coalesce(sum(epoch - 1), 0)::bigint FROM {}.heads", self.schema);
        Ok(self.database.query_one(&sql, &[]).await?.get(0))
    }

    /// Stops the nodes, which must do so cleanly, and removes what they stored.
    pub(crate) async fn stop(mut self) -> Result<()> {
        for server in self.nodes.iter_mut().filter_map(|node| node.server.take()) {
            stop(server).await;
        }
        Ok(self.database.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await?)
    }

    /// What the nodes wrote last.
    pub(crate) fn log_ends(&self) -> String {
        let ends = self.nodes.iter().zip(NAMES);
        ends.map(|(node, name)| format!("--- {name}\n{}\n", node.home.log_end())).collect()
    }
}

fn between((least, most): (u64, u64), seed: &mut Seed) -> Duration {
    Duration::from_millis(least + seed.below(most - least))
}

/// Cuts links for so long.
async fn cut(links: impl Iterator<Item = &Link> + Clone, outage: Duration) {
    links.clone().for_each(Link::cut);
    tokio::time::sleep(outage).await;
    links.for_each(Link::mend);
}

/// A link to the server that a URL names, and the URL that leads through it.
async fn linked(url: &str) -> Result<(Link, String)> {
    let (before, host) = match url.rsplit_once('@') {
        Some((before, rest)) => (format!("{before}@"), rest),
        None => {
            let (scheme, rest) = url.split_once("://").context("the URL has no scheme")?;
            (format!("{scheme}://"), rest)
        }
    };
    let (host, path) = host
        .split_once('/')
        .map_or((host, String::new()), |(host, path)| (host, format!("/{path}")));
    let target: SocketAddr = host.parse().context("the services are not on this machine")?;
    let link = Link::to(target).await?;
    let url = format!("{before}{}{path}", link.address());
    Ok((link, url))
}
