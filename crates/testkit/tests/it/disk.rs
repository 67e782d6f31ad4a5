//! A full disk, and a disk whose fsync fails.

use std::time::Duration;

use serde_json::json;
use trilogue_testkit::services::{Services, connect};
use trilogue_testkit::shim::Shim;
use trilogue_testkit::{Client, Folder, Home, Server, ServerOptions, until};

use crate::ledger::Ledger;
use crate::{echo, events, run_of};

/// The time limit for the server to notice a change of the disk.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

/// Starts a server whose store is on a disk that fails on demand.
async fn faulty(dir: &std::path::Path) -> (Server, Shim) {
    let home = Home::new(dir, &ServerOptions::default()).unwrap();
    let shim = Shim::build(dir, &home.store_dir()).unwrap();
    let server = home.with_environment(shim.environment()).start().await.unwrap();
    (server, shim)
}

/// The response of `/readyz`, and its metric. Checks that the process is alive.
async fn readiness(client: &Client) -> (u16, String, String) {
    let text = async |path: &str| {
        let reply = client.get(path).await.unwrap();
        (reply.status, String::from_utf8(reply.body.to_vec()).unwrap())
    };
    assert_eq!(text("/healthz").await.0, 200);
    let (status, said) = text("/readyz").await;
    let (_, metrics) = text("/metrics").await;
    // The metrics of a node have its name as a label.
    let ready = metrics.lines().find(|line| line.starts_with("trilogue_ready"));
    let value = ready.and_then(|line| line.rsplit(' ').next());
    (status, said, value.unwrap().to_owned())
}

fn long_text() -> String {
    "0123456789abcdef".repeat(2048)
}

/// Appends until the disk refuses; returns the number of acknowledged runs.
async fn fill(client: &Client, thread: &str) -> usize {
    for count in 0..10_000 {
        let reply = echo(client, thread, &long_text()).await;
        if reply.status >= 400 {
            assert_eq!((reply.status, reply.code().as_str()), (507, "disk_full"), "{reply:?}");
            return count;
        }
    }
    panic!("the disk never filled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_new_work_and_lets_waiting_work_end() {
    let dir = Folder::new().unwrap();
    let (server, shim) = faulty(dir.path()).await;
    let client = server.client();
    let ledger = Ledger::default();

    // A run that waits for an answer while the disk fills.
    let ask = run_of(
        "mailcomposer",
        "asks",
        &json!({"message": "Write to ada@example.com about the report: it is ready."}),
        "wait",
    );
    let waiting = client.post("/api/v1/runs", &ask).await.unwrap().ok().unwrap();
    let interrupt = waiting["interrupts"][0]["id"].as_str().unwrap().to_owned();
    echo(&client, "fills", "before").await.ok().unwrap();

    assert_eq!(readiness(&client).await, (200, "ok\n".to_owned(), "1".to_owned()));
    shim.fill_disk(256 * 1024).unwrap();
    let acknowledged = fill(&client, "fills").await;
    let full = (503, "not ready: disk_full\n".to_owned(), "0".to_owned());
    // The write-ahead log may have a little free space left between two checks.
    until("every sign to say that the disk is full", NOTICE_LIMIT, || async {
        fill(&client, "fills").await;
        (readiness(&client).await == full).then_some(())
    })
    .await
    .unwrap();
    for event in events(&client, "fills").await.unwrap() {
        ledger.event("fills", &event);
    }

    // Reads still work, and so do requests that end work or free space.
    let path = format!("/api/v1/interrupts/{interrupt}/answer");
    let answer = json!({"value": {"approved": false, "reason": "the disk is full"}});
    client.post(&path, &answer).await.unwrap().ok().unwrap();
    let id = waiting["id"].as_str().unwrap();
    let run = client.get(&format!("/api/v1/runs/{id}/wait")).await.unwrap().ok().unwrap();
    assert_ne!(run["status"], "interrupted", "the run ended: {run}");
    fill(&client, "fills").await;

    // Space is free again: the server accepts new work without a restart.
    shim.free_disk().unwrap();
    until("new work to be admitted", NOTICE_LIMIT, || async {
        (echo(&client, "fills", "after").await.status < 300).then_some(())
    })
    .await
    .unwrap();

    // No acknowledged change is lost, now and after a restart.
    let seen = ledger.check(&client).await.unwrap();
    assert!(seen.events > acknowledged, "{seen:?}");
    let (home, _) = server.stop().await.unwrap();
    let server = home.start().await.unwrap();
    assert_eq!(ledger.check(&server.client()).await.unwrap(), seen);
}

/// A separate small disk. Unmounted when dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Mounts a disk of 24 MiB for PostgreSQL; `None` if this user may not mount.
    fn mount() -> Option<Self> {
        let run = |program: &str, arguments: &[&str]| {
            let status = std::process::Command::new(program).args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        // PostgreSQL's user needs access to it.
        let path = std::path::PathBuf::from(format!("/tmp/small-disk-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let text = path.display().to_string();
        let is_mounted = run("mount", &["-t", "tmpfs", "-o", "size=24m", "tmpfs", &text]);
        let disk = Self(path);
        (is_mounted && run("chown", &["postgres", &text])).then_some(disk)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The server on it may still have files open.
        drop(std::process::Command::new("umount").arg("--lazy").arg(&self.0).status());
        drop(std::fs::remove_dir(&self.0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_database_is_no_readiness_until_it_has_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("NOT CHECKED: a disk can only be mounted by root");
        assert!(std::env::var_os("CI").is_none(), "continuous integration runs as root");
        return;
    };
    // Its tables are on the disk, so it must stop before the disk is unmounted.
    let services = Services::start().await.unwrap();
    let database = connect(services.postgres()).await.unwrap();
    let place = disk.0.display();
    database.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{place}'")).await.unwrap();
    let dir = Folder::new().unwrap();
    let options = ServerOptions {
        store: format!("{}?options=-cdefault_tablespace%3Dsmall", services.postgres()),
        ..ServerOptions::default()
    };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let client = server.client();
    echo(&client, "fills", "before").await.ok().unwrap();
    assert_eq!(readiness(&client).await, (200, "ok\n".to_owned(), "1".to_owned()));

    // Another table fills the disk.
    let other = "CREATE TABLE other (body TEXT) TABLESPACE small;
        ALTER TABLE other ALTER COLUMN body SET STORAGE EXTERNAL";
    database.batch_execute(other).await.unwrap();
    let add = "INSERT INTO other VALUES (repeat('x', 100000))";
    while database.batch_execute(add).await.is_ok() {}
    let full = (503, "not ready: disk_full\n".to_owned(), "0".to_owned());
    until("every sign to say that the disk is full", NOTICE_LIMIT, || async {
        fill_database(&client).await;
        (readiness(&client).await == full).then_some(())
    })
    .await
    .unwrap();

    // Space is free again: the server becomes ready without a further request.
    database.batch_execute("DROP TABLE other").await.unwrap();
    until("the server to be ready again", NOTICE_LIMIT, || async {
        (readiness(&client).await.0 == 200).then_some(())
    })
    .await
    .unwrap();
    echo(&client, "fills", "after").await.ok().unwrap();
    server.stop().await.unwrap();
}

/// Appends until the database refuses, a few times at most.
async fn fill_database(client: &Client) {
    for _ in 0..100 {
        let reply = echo(client, "fills", &long_text()).await;
        if reply.status >= 400 {
            assert_eq!((reply.status, reply.code().as_str()), (507, "disk_full"), "{reply:?}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_fsync_stops_writing_until_the_next_start() {
    let dir = Folder::new().unwrap();
    let (server, shim) = faulty(dir.path()).await;
    let client = server.client();
    let ledger = Ledger::default();
    echo(&client, "kept", "before").await.ok().unwrap();
    for event in events(&client, "kept").await.unwrap() {
        ledger.event("kept", &event);
    }
    let mut stream = client.stream("/api/v1/threads/kept/events", None).await.unwrap();
    stream.next().await.unwrap().unwrap();

    shim.break_fsync().unwrap();
    let refused = echo(&client, "kept", "lost").await;
    assert!(shim.failed_fsyncs() > 0, "no fsync was tried: {refused:?}");
    assert_eq!((refused.status, refused.code().as_str()), (503, "store_read_only"));

    // The server never retries it, even if the disk would accept it.
    shim.mend_fsync().unwrap();
    let again = echo(&client, "other", "again").await;
    assert_eq!((again.status, again.code().as_str()), (503, "store_read_only"));
    let broken = (503, "not ready: store_read_only\n".to_owned(), "0".to_owned());
    assert_eq!(readiness(&client).await, broken);

    // An open stream ends with an error that asks the client to reconnect, and durable data can still be read.
    let ended = tokio::time::timeout(NOTICE_LIMIT, async {
        let mut last = None;
        while let Ok(Some(event)) = stream.next().await {
            last = Some(event);
        }
        last
    });
    let last =
        ended.await.expect("the stream stays open").expect("the stream ended without a word");
    let problem: serde_json::Value = serde_json::from_str(&last.data).unwrap();
    assert_eq!(problem["code"], "store_read_only", "{last:?}");
    assert_eq!(problem["transient"], true);
    ledger.check(&client).await.unwrap();

    // The next start recovers from the data on the disk.
    let home = server.kill().await.unwrap();
    let server = home.start().await.unwrap();
    let client = server.client();
    ledger.check(&client).await.unwrap();
    echo(&client, "kept", "after").await.ok().unwrap();
}

/// The error names a file next to the database that cannot be read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_read_is_named_and_not_taken_for_damage() {
    let dir = Folder::new().unwrap();
    let (server, shim) = faulty(dir.path()).await;
    for thread in ["one", "two"] {
        echo(&server.client(), thread, &long_text()).await.ok().unwrap();
    }
    let expected = events(&server.client(), "two").await.unwrap();
    let (home, _) = server.stop().await.unwrap();
    let store = home.store_dir().join("trilogue.db");
    for suffix in ["-wal", "-shm"] {
        let beside = home.store_dir().join(format!("trilogue.db{suffix}"));
        let _ = std::fs::remove_file(&beside);
        std::fs::create_dir(&beside).unwrap();
        let refused = format!("{:#}", home.start().await.unwrap_err());
        assert!(refused.contains(&format!("trilogue.db{suffix}'")), "{refused}");
        let verified =
            home.command(&["restore", store.to_str().unwrap(), "--verify"]).await.unwrap();
        let complaint = String::from_utf8_lossy(&verified.stderr).into_owned();
        assert!(complaint.contains(&format!("trilogue.db{suffix}'")), "{complaint}");
        std::fs::remove_dir(&beside).unwrap();
    }

    let pages = std::fs::metadata(&store).unwrap().len() / 4_096;
    let mut refused_starts = 0;
    for page in (0..pages).step_by(7) {
        shim.break_read(page * 4_096 + 100).unwrap();
        if let Err(error) = home.start().await {
            let refused = format!("{error:#}");
            assert!(!refused.contains("is damaged"), "page {page}: {refused}");
            assert!(!refused.contains("trilogue restore"), "page {page}: {refused}");
            assert!(refused.contains("error"), "page {page}: {refused}");
            refused_starts += 1;
        }
        let verified =
            home.command(&["restore", store.to_str().unwrap(), "--verify"]).await.unwrap();
        let output = [verified.stdout, verified.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(!output.contains("is damaged"), "page {page}: {output}");
        assert!(!output.contains("trilogue restore"), "page {page}: {output}");
        assert!(!verified.status.success(), "page {page}: {output}");
    }
    shim.mend_read().unwrap();
    assert!(refused_starts > 3, "{refused_starts} of {pages} pages");
    let server = home.start().await.unwrap();
    assert_eq!(events(&server.client(), "two").await.unwrap(), expected);
    server.kill().await.unwrap();
}
