//! A power cut after any change of the store's files: everything acknowledged before it survives.
//!
//! The test records the server's changes once, and computes every cut from the record, so that the cut's number and the seed reproduce it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::json;
use trilogue_testkit::disk_journal::{DiskImage, DiskJournal, PowerLoss};
use trilogue_testkit::shim::Shim;
use trilogue_testkit::{Client, Folder, Home, Seed, ServerOptions, until};

use crate::kill_rounds::{SETTLE_LIMIT, announced_seed, stop};
use crate::ledger::{Differences, Ledger};
use crate::{echo, events, run_of};

/// How many cuts of a recorded life are tried; `TRILOGUE_CUTS` overrides it and also takes `all`.
const CUTS: usize = 10;
/// The number of cuts of each recovery.
const RECOVERY_CUTS: usize = 2;
/// The number of cuts of a restore while it writes the copy.
const COPY_CUTS: usize = 3;
/// The last changes of a restore, which replace the store by the copy; each one is cut.
const REPLACING_CHANGES: usize = 12;

/// A life of a server with its changes.
struct Recording {
    home: Home,
    journal: DiskJournal,
    /// What clients had received at these lengths of the journal in bytes, oldest first.
    told: Vec<(u64, Ledger)>,
}

/// Performs operations on a server one after the other, and records what it acknowledged and when.
struct Workload<'s> {
    client: Client,
    shim: &'s Shim,
    ledger: Ledger,
    told: Vec<(u64, Ledger)>,
}

// === impl Workload ===

impl Workload<'_> {
    /// Records that everything acknowledged so far depends on the changes so far.
    fn note(&mut self) {
        self.told.push((self.shim.journal_bytes(), self.ledger.snapshot()));
    }

    async fn run(&mut self, agent: &str, thread: &str, input: &serde_json::Value) -> Result<()> {
        let run = self.client.post("/api/v1/runs", &run_of(agent, thread, input, "wait")).await?;
        self.ledger.run(&run.ok()?);
        self.note();
        for event in events(&self.client, thread).await? {
            self.ledger.event(thread, &event);
        }
        self.note();
        Ok(())
    }

    /// Starts a run that asks, and answers it.
    async fn approve(&mut self, thread: &str) -> Result<()> {
        let input = json!({"message": "Write to ada@example.com about the report: it is ready."});
        self.run("mailcomposer", thread, &input).await?;
        let page = self.client.get("/api/v1/interrupts?pending=true").await?.ok()?;
        let interrupt = page["items"][0]["id"].as_str().context("nothing was asked")?.to_owned();
        let answer = json!({"value": {"approved": true, "reason": "fine"}});
        let path = format!("/api/v1/interrupts/{interrupt}/answer");
        self.ledger.answering(&interrupt);
        self.client.post(&path, &answer).await?.ok()?;
        self.ledger.record_answer(&interrupt);
        self.note();
        Ok(())
    }

    /// Erases a thread and waits until it is gone from the write-ahead log, which a checkpoint moves into the database.
    async fn erase(&mut self, thread: &str, log: &Path) -> Result<()> {
        let path = format!("/api/v1/threads/{thread}");
        echo(&self.client, thread, &"erased ".repeat(20_000)).await.ok()?;
        let reply = self.client.send(Method::DELETE, &path, &[], Bytes::new()).await?;
        ensure!(reply.status < 300, "{reply:?}");
        self.ledger.record_erasure(thread);
        self.note();
        until("the log to be empty", SETTLE_LIMIT, || async {
            std::fs::metadata(log).is_ok_and(|info| info.len() == 0).then_some(())
        })
        .await
    }

    /// Plays runs, answers, an erasure with its checkpoint, and more runs.
    async fn play(&mut self, log: &Path) -> Result<()> {
        self.run("echo", "echoes", &json!("one")).await?;
        self.run("echo", "large", &json!("0123456789abcdef".repeat(12_000))).await?;
        self.approve("mails").await?;
        self.run("researcher", "research", &json!("what is a log?")).await?;
        self.erase("gone", log).await?;
        self.run("echo", "echoes", &json!("two")).await?;
        self.approve("mails").await?;
        self.run("echo", "echoes", &json!("three")).await
    }
}

// === impl Recording ===

impl Recording {
    /// Records the first life of a store: its migration, a workload with an erasure and its checkpoint, and the checkpoint of a stop.
    async fn make(dir: &Path, settings: &str) -> Result<(Self, Shim)> {
        let store_settings = settings.to_owned();
        let home = Home::new(dir, &ServerOptions { store_settings, ..ServerOptions::default() })?;
        let shim = Shim::build(dir, &home.store_dir())?;
        let start = shim.begin_journal(None)?;
        let server = home.clone().with_environment(shim.environment()).start().await?;
        let ledger = Ledger::default();
        let client = server.client();
        let mut workload = Workload { client, shim: &shim, ledger, told: Vec::new() };
        workload.play(&home.store_dir().join("trilogue.db-wal")).await?;
        let told = workload.told;
        stop(server).await;
        let journal = shim.journal(start)?;
        // The library sees every change, so the journal reproduces the folder.
        let built = journal.image(journal.len(), PowerLoss::Nothing);
        let real = DiskImage::read(&home.store_dir())?;
        ensure!(built.files() == real.files(), "the journal lacks changes");
        Ok((Self { home, journal, told }, shim))
    }

    /// What clients had received after this many changes.
    fn ledger_after(&self, changes: usize) -> Ledger {
        let before = |(bytes, _): &&(u64, Ledger)| self.journal.changes_before(*bytes) <= changes;
        self.told.iter().rev().find(before).map(|(_, told)| told.snapshot()).unwrap_or_default()
    }

    /// Cuts the power, starts a server on the remaining data, and compares.
    async fn compare(&self, image: &DiskImage, told: &Ledger) -> Result<Differences> {
        image.write(&self.home.store_dir())?;
        let server = self.home.start().await?;
        let client = server.client();
        let (_, differences) = told.compare(&client).await?;
        let status = client.get("/api/v1/status").await?.ok()?;
        // A power cut damages no log, and loses nothing that a record outlives.
        ensure!(status["store"]["lost_commits"] == 0, "{status}");
        server.kill().await?;
        Ok(differences)
    }

    /// Like [`Self::compare`], with further power cuts during the recovery.
    async fn compare_recovery(
        &self,
        image: &DiskImage,
        told: &Ledger,
        shim: &Shim,
        seed: &mut Seed,
    ) -> Result<Differences> {
        image.write(&self.home.store_dir())?;
        let start = shim.begin_journal(None)?;
        let server = self.home.clone().with_environment(shim.environment()).start().await?;
        let (_, mut differences) = told.compare(&server.client()).await?;
        server.kill().await?;
        let recovery = shim.journal(start)?;
        for changes in sample(recovery.len(), RECOVERY_CUTS, seed) {
            let image = recovery.image(changes, PowerLoss::Some(seed.fork()));
            let found = self.compare(&image, told).await;
            differences.extend(found.with_context(|| format!("cut {changes} of a recovery"))?);
        }
        Ok(differences)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_power_cut_behind_any_change() {
    let mut seed = announced_seed();
    let dir = Folder::new().unwrap();
    let (recording, shim) = Recording::make(dir.path(), "").await.unwrap();
    let changes = recording.journal.len();
    eprintln!("{changes} changes were recorded");
    for cut in sample(changes, CUTS, &mut seed) {
        let told = recording.ledger_after(cut);
        let everything = recording.journal.image(cut, PowerLoss::Everything);
        let some = recording.journal.image(cut, PowerLoss::Some(seed.fork()));
        let mut differences = recording.compare(&everything, &told).await.unwrap();
        let recovery = recording.compare_recovery(&some, &told, &shim, &mut seed).await;
        differences.extend(recovery.unwrap());
        assert!(differences.is_empty(), "cut {cut} of {changes}: {differences:#?}");
    }
}

/// Shows that the test above can fail: without fsync, a power cut loses acknowledged runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_takes_acknowledged_runs_of_a_buffered_store() {
    let dir = Folder::new().unwrap();
    let (recording, _) = Recording::make(dir.path(), "durability = \"buffered\"").await.unwrap();
    // After the last run and before the stop's checkpoint; first only the process ends.
    let (bytes, told) = recording.told.last().unwrap();
    let cut = recording.journal.changes_before(*bytes);
    let survived = recording.journal.image(cut, PowerLoss::Nothing);
    let differences = recording.compare(&survived, told).await.unwrap();
    assert!(differences.is_empty(), "a kill alone loses nothing: {differences:#?}");
    let lost = recording.journal.image(cut, PowerLoss::Everything);
    let differences = recording.compare(&lost, told).await.unwrap();
    assert!(!differences.lost.is_empty(), "nothing was lost: {differences:?}");
    assert!(differences.doubled.is_empty(), "{differences:#?}");
}

/// A `restore --force` that is cut at any change leaves the old store with everything acknowledged, or the backup, or asks to restore again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_restore_leaves_the_old_store_or_the_backup() {
    let mut seed = announced_seed();
    let dir = Folder::new().unwrap();
    let home = Home::new(dir.path(), &ServerOptions::default()).unwrap();
    let store = home.store_dir().join("trilogue.db");
    let backup = dir.path().join("backup.db");
    let ledger = Ledger::default();
    let server = home.start().await.unwrap();
    play_runs(&server.client(), "kept", &ledger).await.unwrap();
    stop(server).await;
    std::fs::copy(&store, &backup).unwrap();
    let backed_up = ledger.snapshot();
    let server = home.start().await.unwrap();
    play_runs(&server.client(), "newer", &ledger).await.unwrap();
    // Newer data is only in the write-ahead log.
    server.kill().await.unwrap();

    let shim = Shim::build(dir.path(), &home.store_dir()).unwrap();
    let start = shim.begin_journal(None).unwrap();
    let words = [backup.to_str().unwrap(), "--to", store.to_str().unwrap(), "--force"];
    let restore = [&["restore"], &words[..]].concat();
    let restored = home.clone().with_environment(shim.environment()).command(&restore).await;
    assert!(restored.unwrap().status.success());
    let journal = shim.journal(start).unwrap();
    let changes = journal.len();
    let copied = changes.saturating_sub(REPLACING_CHANGES);
    for cut in sample(copied, COPY_CUTS, &mut seed).into_iter().chain(copied..=changes) {
        for loss in [PowerLoss::Nothing, PowerLoss::Everything, PowerLoss::Some(seed.fork())] {
            let what = format!("cut {cut} of {changes}, {loss:?}");
            journal.image(cut, loss).write(&home.store_dir()).unwrap();
            let server = match home.start().await {
                Ok(server) => server,
                Err(error) => {
                    assert!(format!("{error:#}").contains("trilogue restore"), "{what}: {error:#}");
                    assert!(home.command(&restore).await.unwrap().status.success(), "{what}");
                    home.start().await.unwrap()
                }
            };
            let client = server.client();
            let is_old = client.get("/api/v1/threads/newer").await.unwrap().status == 200;
            assert!(cut < changes || !is_old, "{what}: the restore is over, and was not made");
            let told = if is_old { ledger.snapshot() } else { backed_up.snapshot() };
            let (_, differences) = told.compare(&client).await.unwrap();
            assert!(differences.is_empty(), "{what}: {differences:#?}");
            server.kill().await.unwrap();
        }
    }
}

/// Plays runs on a thread, and records the server's answers about them.
async fn play_runs(client: &Client, thread: &str, ledger: &Ledger) -> Result<()> {
    for text in ["one", "two"] {
        ledger.run(&echo(client, thread, text).await.ok()?);
    }
    for event in events(client, thread).await? {
        ledger.event(thread, &event);
    }
    Ok(())
}

/// A sample of the numbers up to `count`, one from each of `parts` equal parts; all of them if `TRILOGUE_CUTS` is `all`.
fn sample(count: usize, parts: usize, seed: &mut Seed) -> Vec<usize> {
    let parts = match std::env::var("TRILOGUE_CUTS").ok().as_deref() {
        Some("all") => count + 1,
        Some(number) => number.parse().unwrap_or(parts),
        None => parts,
    };
    let parts = parts.clamp(1, count + 1);
    let part = |index: usize| index * (count + 1) / parts;
    let pick = |index| {
        let (from, to) = (part(index), part(index + 1));
        from + seed.below((to - from) as u64) as usize
    };
    (0..parts).map(pick).collect()
}
