//! The private servers that tests use: PostgreSQL and NATS.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, NoTls};

use crate::folder::Folder;
use crate::port::reserve_address;
use crate::programs::ROOT;

/// A PostgreSQL and a NATS server of one test, which it may restart. Stopped when dropped.
#[derive(Debug)]
pub struct Services {
    /// With a replica, it names both hosts.
    postgres: String,
    nats: String,
    /// The port of the PostgreSQL that is the primary now.
    primary_port: AtomicU16,
    /// Holds what `scripts/services` knows of them.
    folder: Folder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    Postgres,
    Nats,
}

/// How PostgreSQL becomes unavailable for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatabaseStop {
    /// It ends its sessions and stops.
    Fast,
    /// It ends as in a crash.
    Immediate,
    /// Its processes are paused: connections stay open, but get no response.
    Pause,
    /// It takes no writes, in open sessions either: what operators do before they promote a replica.
    Fence,
}

/// What the primary waits for before it acknowledges a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replication {
    /// The replica has it.
    Synchronous,
    /// Nothing: the replica may lack the newest ones.
    Asynchronous,
}

/// The address of a private server, from this environment variable.
pub fn service(variable: &str) -> Result<String> {
    std::env::var(variable).with_context(|| {
        format!(
            "{variable} is not set; start the services of the tests with: eval \"$(scripts/services start)\""
        )
    })
}

/// A connection to the database that a URL names.
pub async fn connect(url: &str) -> Result<Client> {
    let (database, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(database)
}

/// Creates an empty schema whose name begins with this word. Returns a connection to the database and the schema's name.
pub async fn new_schema(word: &str) -> Result<(Client, String)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let database = connect(&service("TRILOGUE_POSTGRES")?).await?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = UNIX_EPOCH.elapsed()?.as_nanos();
    let schema = format!("{word}_{}_{nanos}_{number}", std::process::id());
    database.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    Ok((database, schema))
}

/// The command that starts and stops the services of a folder.
fn script(folder: &Folder, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("bash");
    command.arg(format!("{ROOT}/scripts/services")).args(arguments);
    command.env("CARGO_TARGET_DIR", folder.path());
    command
}

async fn run(folder: &Folder, arguments: &[&str]) -> Result<String> {
    let command = script(folder, arguments);
    let output = tokio::process::Command::from(command).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

// === impl Services ===

impl Services {
    pub async fn start() -> Result<Self> {
        let folder = Folder::new()?;
        // Other tests hold ports whose servers are down for a moment.
        let [port, nats] = [reserve_address()?.port(), reserve_address()?.port()];
        let (postgres, nats) = (port.to_string(), nats.to_string());
        let lines = run(&folder, &["start", "--no-objects", "--ports", &postgres, &nats]).await?;
        let named = |variable: &str| {
            let begin = format!("export {variable}=");
            let line = lines.lines().find_map(|line| line.strip_prefix(&begin));
            line.map(str::to_owned).with_context(|| format!("{variable} is not in: {lines}"))
        };
        Ok(Self {
            postgres: named("TRILOGUE_POSTGRES")?,
            nats: named("TRILOGUE_NATS")?,
            primary_port: AtomicU16::new(port),
            folder,
        })
    }

    /// As [`Self::start`], with a second PostgreSQL that follows the first one.
    pub async fn start_replicated(replication: Replication) -> Result<Self> {
        let mut services = Self::start().await?;
        let port = reserve_address()?.port();
        services.replicate(replication, &[&port.to_string()]).await?;
        let (before, after) =
            services.postgres.rsplit_once('/').context("the URL names no database")?;
        services.postgres =
            format!("{before},127.0.0.1:{port}/{after}?target_session_attrs=read-write");
        Ok(services)
    }

    async fn replicate(&self, replication: Replication, port: &[&str]) -> Result<()> {
        let begin: &[&str] = match replication {
            Replication::Synchronous => &["replicate"],
            Replication::Asynchronous => &["replicate", "--asynchronous"],
        };
        run(&self.folder, &[begin, port].concat()).await.map(drop)
    }

    /// Ends the primary, and promotes the replica after so long. Returns the address of the new primary. The old one stays as it is.
    pub async fn fail_over(&self, how: DatabaseStop, after: Duration) -> Result<SocketAddr> {
        self.halt(how).await?;
        // It takes operators and their programs some time.
        tokio::time::sleep(after).await;
        self.promote().await
    }

    /// Makes the replica a primary; the other one stays as it is. Returns the address of the new one.
    pub async fn promote(&self) -> Result<SocketAddr> {
        let port = run(&self.folder, &["promote"]).await?.trim().parse()?;
        self.primary_port.store(port, Ordering::Relaxed);
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Has the replica follow no longer: it misses what comes.
    pub async fn detach(&self) -> Result<()> {
        run(&self.folder, &["detach"]).await.map(drop)
    }

    /// Makes the old primary a synchronous replica of the new one.
    pub async fn replicate_again(&self) -> Result<()> {
        self.replicate(Replication::Synchronous, &[]).await
    }

    /// The addresses of PostgreSQL: of the first primary, and of its replica.
    pub fn hosts(&self) -> Result<Vec<SocketAddr>> {
        let (_, hosts) = self.postgres.rsplit_once('@').context("the URL names no user")?;
        let hosts = hosts.split('/').next().unwrap_or_default();
        hosts.split(',').map(|host| Ok(host.parse()?)).collect()
    }

    /// The URL of the database at the primary alone: one that stands still answers no connection.
    pub fn primary(&self) -> String {
        format!(
            "postgres://trilogue@127.0.0.1:{}/postgres",
            self.primary_port.load(Ordering::Relaxed)
        )
    }

    /// The URL of the database.
    pub fn postgres(&self) -> &str {
        &self.postgres
    }

    pub fn nats(&self) -> &str {
        &self.nats
    }

    /// Ends one of the servers at once, like a crash, and starts it again.
    pub async fn restart(&self, service: Service) -> Result<()> {
        let name = match service {
            Service::Postgres => "postgres",
            Service::Nats => "nats",
        };
        run(&self.folder, &["restart", name]).await.map(drop)
    }

    pub async fn halt(&self, how: DatabaseStop) -> Result<()> {
        let how = match how {
            DatabaseStop::Fast => "fast",
            DatabaseStop::Immediate => "immediate",
            DatabaseStop::Pause => "pause",
            DatabaseStop::Fence => "fence",
        };
        run(&self.folder, &["halt", how]).await.map(drop)
    }

    /// Ends an outage that [`Self::halt`] began.
    pub async fn resume(&self) -> Result<()> {
        run(&self.folder, &["resume"]).await.map(drop)
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        // A failed stop is ignored; after a panic the folder still has the services' state.
        drop(script(&self.folder, &["stop"]).output());
    }
}
