//! How soon an editor gets the next update when its network is back, in the middle of a turn.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use trilogue_testkit::Link;

use super::super::editor::Editor;
use super::super::server_session::ServerSession;
use crate::cost::sibling_path;
use crate::report::{Report, millis, percentile};

/// How many updates the agent writes, and the pause between them, in microseconds.
const UPDATES: u64 = 2_500;
const PAUSE_MICROS: u64 = 1_000;
/// How long the network works before it fails, and how long it fails.
const BEFORE: Duration = Duration::from_millis(500);
const OUTAGE: Duration = Duration::from_secs(1);
/// The most time from the restored network to the next update.
const MOST: Duration = Duration::from_millis(100);

/// How a network fails.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Connections end, and new ones fail.
    Cut,
    /// Nothing passes, and connections stay open.
    Hold,
}

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    let ours = ServerSession::start("trilogue", super::STORE).await?;
    for (what, failure) in
        [("connections that were cut", Failure::Cut), ("connections that were held", Failure::Hold)]
    {
        let mut times = Vec::new();
        for _ in 0..report.runs {
            times.push(time_to_update(&ours, failure).await?);
        }
        let median = percentile(&times, 0.5);
        let what = format!("{what}, from the restored network to an update");
        report.target(&what, &millis(median), median < MOST, "< 100 ms");
    }
    ours.stop().await
}

async fn time_to_update(ours: &ServerSession, failure: Failure) -> Result<Duration> {
    let link = Link::to(ours.server.home().address()).await?;
    let mut connect = Command::new(sibling_path("trilogue")?);
    connect
        .args(["connect", "flood", "--url", &format!("http://{}", link.address())])
        .args(["--token", ours.server.token()])
        .current_dir(ours.dir())
        .env("XDG_STATE_HOME", ours.dir().join("laptop"));
    let turn = spawn_blocking(move || {
        let mut editor = Editor::launch_in(&mut connect)?;
        let mut arrivals = Vec::new();
        let prompt = format!("paced {UPDATES} {PAUSE_MICROS}");
        let turn = editor.prompt_with(&prompt, |_| {
            arrivals.push(Instant::now());
            Ok(())
        })?;
        editor.close()?;
        ensure!(turn.updates == UPDATES, "{} of {UPDATES} updates came", turn.updates);
        anyhow::Ok(arrivals)
    });
    sleep(BEFORE).await;
    match failure {
        Failure::Cut => link.cut(),
        Failure::Hold => link.hold(),
    }
    sleep(OUTAGE).await;
    let restored = Instant::now();
    link.mend();
    let arrivals = turn.await??;
    let next = arrivals.iter().find(|arrival| **arrival > restored);
    let next = next.context("no update came after the outage")?;
    let before = arrivals.iter().rev().find(|arrival| **arrival < restored);
    let silence = next.duration_since(*before.context("no update came before the outage")?);
    ensure!(silence > OUTAGE / 2, "the updates went on in the outage");
    Ok(next.duration_since(restored))
}
