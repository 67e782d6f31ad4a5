//! Faults of a database and of the cluster's NATS server: each gives a clear error, or the operation is retried.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use trilogue_domain::Code;
use trilogue_domain::error::Error;
use trilogue_store::{NodeOptions, Options, Password, Store, open};

use crate::harness::{Log, World, code, options, postgres_url, read, service};
use crate::postgres::client;

/// The longest wait for a server to start.
const PATIENCE: Duration = Duration::from_secs(20);

async fn open_error(url: &str, options: Options) -> Error {
    open(url, options).await.unwrap_err()
}

/// The URL of the tests' PostgreSQL with another user and another host name of this machine.
fn server(user: &str, host: &str) -> String {
    let url = service("TRILOGUE_POSTGRES");
    let (_, rest) = url.split_once('@').unwrap();
    let (_, rest) = rest.split_once(':').unwrap();
    format!("postgres://{user}@{host}:{rest}")
}

/// Makes the database fail with `raise` whenever a row is written to a table.
async fn spoil(world: &World, table: &str, raise: &str) {
    let trigger = format!(
        "CREATE SEQUENCE failures;
         CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN {raise} RETURN NEW; END $$;
         CREATE TRIGGER spoil BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION spoil()"
    );
    client(&world.url()).await.batch_execute(&trigger).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_the_right_one_is_not() {
    let admin = client(&service("TRILOGUE_POSTGRES")).await;
    // Tests in several processes create the user.
    let create = "DO $$ BEGIN PERFORM pg_advisory_xact_lock(77);
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'with_password') THEN
        CREATE ROLE with_password LOGIN PASSWORD 'right'; END IF; END $$";
    admin.batch_execute(create).await.unwrap();
    let url = postgres_url().await;
    let schema = url.rsplit("%3D").next().unwrap();
    admin.batch_execute(&format!("GRANT ALL ON SCHEMA {schema} TO with_password")).await.unwrap();
    let url =
        |user: &str| format!("{}?options=-csearch_path%3D{schema}", server(user, "127.0.0.1"));
    let with = |password: &str| Options {
        password: Some(Password::new(password.to_owned())),
        ..options()
    };
    let error = open_error(&url("with_password"), with("wrong")).await;
    assert_eq!(error.code(), Code::InvalidRequest, "{error}");
    assert!(error.message().contains("password"), "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    let error = open_error(&url("with_password"), options()).await;
    assert!(error.message().contains("password"), "{error}");
    open(&url("with_password"), with("right")).await.unwrap();
    // The password in the URL takes precedence.
    open(&url("with_password:right"), with("wrong")).await.unwrap();
}

#[tokio::test]
async fn a_certificate_is_checked_for_its_name_and_its_authority() {
    let folder = service("TRILOGUE_SERVICES");
    let url = postgres_url().await;
    let schema = url.rsplit("%3D").next().unwrap();
    let url = |host: &str, authority: &str| {
        let server = server("trilogue", host);
        format!("{server}?options=-csearch_path%3D{schema}&sslrootcert={folder}/{authority}.pem")
    };
    let store = open(&url("localhost", "authority"), options()).await.unwrap();
    let mut log = World::of(store).thread("t").await;
    log.step().say(None, &["encrypted"]).commit().await.unwrap();
    let sql = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'encrypted'";
    let named = format!("{}&application_name=encrypted", url("localhost", "authority"));
    let store = open(&named, options()).await.unwrap();
    assert_eq!(read(&*store, &log.row, None).await, [(1, "encrypted".to_owned())]);
    let admin = client(&service("TRILOGUE_POSTGRES")).await;
    let is_encrypted: Option<bool> = admin.query_one(sql, &[]).await.unwrap().get(0);
    assert_eq!(is_encrypted, Some(true));

    for (host, authority) in [("127.0.0.1", "authority"), ("localhost", "other-authority")] {
        let error = open_error(&url(host, authority), options()).await;
        assert_eq!(error.code(), Code::StoreUnavailable, "{host} {authority}: {error}");
        assert!(error.message().contains("certificate"), "{error}");
    }
}

#[tokio::test]
async fn a_full_disk_fails_changes_until_there_is_room() {
    let world = World::postgres().await;
    let mut log = world.thread("t").await;
    let full = "RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full';";
    spoil(&world, "frames", full).await;
    let error = log.step().say(None, &["lost"]).commit().await.unwrap_err();
    assert_eq!(error.code(), Code::DiskFull, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("disk space")), "{error}");
    client(&world.url()).await.batch_execute("DROP TRIGGER spoil ON frames").await.unwrap();
    log.step().say(None, &["kept"]).commit().await.unwrap();
    assert_eq!(log.read().await, [(1, "kept".to_owned())]);
    // A probe detects the free space within a second or two.
    let has_room = async {
        while let Err(error) = world.store.health() {
            assert_eq!(error.code(), Code::DiskFull, "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), has_room).await.unwrap();
}

#[tokio::test]
async fn transactions_that_others_are_in_the_way_of_are_tried_again_and_stored_once() {
    let world = World::postgres().await;
    let mut log = world.thread("t").await;
    // A rollback does not reset a sequence.
    let conflicts = "IF nextval('failures') <= 3 THEN
        RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END IF;";
    spoil(&world, "runs", conflicts).await;
    let run = log.start("r").await;
    assert_eq!(read(&*world.store, &log.row, Some(run.key)).await, [(1, "begin".to_owned())]);
    let client = client(&world.url()).await;
    let tries: i64 = client.query_one("SELECT last_value FROM failures", &[]).await.unwrap().get(0);
    assert_eq!(tries, 4);

    client.batch_execute("ALTER SEQUENCE failures MINVALUE -1000 RESTART -1000").await.unwrap();
    let row = log.run_row("never");
    let error = log.step().run(&row).say(None, &["lost"]).commit().await.unwrap_err();
    assert_eq!(error.code(), Code::StoreUnavailable, "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("again")), "{error}");
    log.step().say(None, &["kept"]).commit().await.unwrap();
}

/// A NATS server with a separate configuration.
struct Nats {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Nats {
    async fn start(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nats.conf");
        let ports = folder.path().display();
        let text = format!("listen: 127.0.0.1:-1\nports_file_dir: \"{ports}\"\n{configuration}");
        std::fs::write(&file, text).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let child = Command::new("nats-server")
            .env("PATH", format!("{path}:/usr/sbin:/usr/local/bin"))
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("nats-server is installed: scripts/services start installs it");
        let told = folder.path().join(format!("nats-server_{}.ports", child.id()));
        let started = async {
            loop {
                let text = std::fs::read_to_string(&told).unwrap_or_default();
                if let Some((_, rest)) = text.split_once("nats://") {
                    return format!("nats://{}", rest.split('"').next().unwrap());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let url = tokio::time::timeout(PATIENCE, started).await.expect("the NATS server starts");
        Self { child, url, _folder: folder }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn open_node(url: &str, name: &str, nats: &str) -> Arc<dyn Store> {
    let node = NodeOptions {
        poll: Duration::from_millis(50),
        news: Some(nats.to_owned()),
        ..NodeOptions::new(name.to_owned(), format!("http://{name}:1"))
    };
    open(url, Options { node: Some(node), ..options() }).await.unwrap()
}

/// Reads on one node, through a tail, what another node appends.
async fn arrives(nats: &str) {
    let url = postgres_url().await;
    let (a, b) = (open_node(&url, "a", nats).await, open_node(&url, "b", nats).await);
    let mut log: Log = World::of(a).thread("t").await;
    let mut tail = b.tail(log.row.key);
    for number in 1..=3 {
        log.step().say(None, &["late, and not lost"]).commit().await.unwrap();
        let arrival = tail.committed.wait_for(|last| *last >= number);
        tokio::time::timeout(PATIENCE, arrival).await.expect("it arrives").unwrap();
    }
    assert_eq!(read(&*b, &log.row, None).await.len(), 3);
    b.health().unwrap();
}

#[tokio::test]
async fn without_a_right_on_nats_news_is_late_and_not_lost() {
    let forbidden = "authorization { users = [ { user: u, password: p,
        permissions: { publish: { deny: \">\" }, subscribe: { deny: \"trilogue.>\" } } } ] }";
    let nats = Nats::start(forbidden).await;
    arrives(&nats.url.replace("nats://", "nats://u:p@")).await;
    // A wrong password does not stop the start either: NATS may be corrected later.
    arrives(&nats.url.replace("nats://", "nats://u:wrong@")).await;
}

#[tokio::test]
async fn news_that_is_too_large_for_nats_is_late_and_not_lost() {
    let nats = Nats::start("max_payload: 8").await;
    arrives(&nats.url).await;
}

#[tokio::test]
async fn a_server_that_is_none_is_unavailable() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream);
        }
    });
    let url = format!("postgres://me@127.0.0.1:{port}/db");
    let quick = Options { connect_wait: Duration::from_millis(500), ..options() };
    assert_eq!(code(open(&url, quick).await), Code::StoreUnavailable);
}
