//! The Agent Client Protocol: an agent's standard streams, the server, a client's standard streams; beside the official libraries from agent to client with nothing between.

mod agent;
mod editor;
mod peers;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use trilogue_testkit::{Home, ServerOptions};

use crate::disk;
use crate::report::{self, Report, median, percentile};
use editor::Editor;

pub(crate) use agent::serve as serve_agent;

/// How many updates one turn of a measurement has.
const UPDATES: u64 = 200_000;
/// How many turns are taken in a row, of one update each.
const TURNS: u64 = 2_000;
/// How many turns with a disk.
const DURABLE_TURNS: u64 = 500;
/// How many updates are timed one by one.
const PACED: u64 = 2_000;
/// The pause between them, in microseconds.
const PAUSE_MICROS: u64 = 1_000;
/// About what one paced update appends, in bytes.
const FRAME_BYTES: usize = 512;
/// The least updates a second with memory, in times of the official Rust library.
const UPDATE_TIMES: f64 = 5.0;
/// The least turns in a row a second with memory, in times of the official Rust library.
const TURN_TIMES: f64 = 2.0;
/// The least with a disk, as a share of what memory does.
const DISK_SHARE: f64 = 0.5;
/// The most that lies between agent and client for one update with memory.
const ADDED: Duration = Duration::from_micros(200);

/// What one path does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    pub(super) updates: f64,
    pub(super) turns: f64,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let peers = peers::measure(report).await?;
    let direct = ages(&mut Editor::launch(&mut agent_command()?)?)?;
    report.line("nothing between, age of an update, p50", &micros(percentile(&direct, 0.5)));
    let memory = through(report, "memory:", TURNS).await?;
    let disk = through(report, "sqlite:store/trilogue.db", DURABLE_TURNS).await?;
    for (what, ours, theirs, least) in [
        (
            "memory:, updates a second, in times of the Rust library",
            memory.rates.updates,
            peers.updates,
            UPDATE_TIMES,
        ),
        (
            "memory:, turns in a row a second, in times of the Rust library",
            memory.rates.turns,
            peers.turns,
            TURN_TIMES,
        ),
    ] {
        let times = ours / theirs;
        report.target(what, &format!("{times:.1}"), times >= least, &format!(">= {least}"));
    }
    for (what, ours, memory) in [
        ("SQLite, updates a second, share of memory", disk.rates.updates, memory.rates.updates),
        ("SQLite, turns in a row a second, share of memory", disk.rates.turns, memory.rates.turns),
    ] {
        let share = ours / memory;
        report.target(what, &format!("{share:.2}"), share >= DISK_SHARE, ">= 0.50");
    }
    let added = percentile(&memory.ages, 0.5).saturating_sub(percentile(&direct, 0.5));
    let what = "memory:, added to the age of an update, p50";
    report.target(what, &micros(added), added < ADDED, "< 200 us");
    let commit = disk::measure(report, FRAME_BYTES)?;
    let most = commit.p99 * 2 + Duration::from_micros(500);
    let late = percentile(&disk.ages, 0.99).saturating_sub(percentile(&direct, 0.5));
    let what = "SQLite, added to the age of an update, p99";
    report.target(what, &micros(late), late <= most, &format!("<= {}", micros(most)));
    Ok(())
}

/// What the path through our server does.
#[derive(Debug)]
struct Through {
    rates: Rates,
    ages: Vec<Duration>,
}

async fn through(report: &mut Report, store: &str, turns: u64) -> Result<Through> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let me = std::env::current_exe()?;
    let settings = format!(
        "[agents.flood]\nkind = \"agent-client\"\ncommand = [{:?}, \"agent\"]\n\n",
        me.display().to_string()
    );
    let options = ServerOptions { settings, ..report::server_options(store)? };
    let home = Home::new(dir.path(), &options)?;
    let server = home.start().await?;
    let measured = {
        let runs = report.runs;
        let dir = dir.path().to_owned();
        tokio::task::spawn_blocking(move || -> Result<Through> {
            let mut editor = Editor::launch(&mut connect_command(&dir)?)?;
            let rates = rates(&mut editor, runs, turns)?;
            let ages = ages(&mut editor)?;
            editor.close()?;
            Ok(Through { rates, ages })
        })
        .await??
    };
    server.stop().await?;
    report.line(&format!("{store}, updates a second"), &format!("{:.0}", measured.rates.updates));
    report.line(
        &format!("{store}, turns in a row a second"),
        &format!("{:.0}", measured.rates.turns),
    );
    report
        .line(&format!("{store}, age of an update, p50"), &micros(percentile(&measured.ages, 0.5)));
    report.line(
        &format!("{store}, age of an update, p99"),
        &micros(percentile(&measured.ages, 0.99)),
    );
    Ok(measured)
}

fn rates(editor: &mut Editor, runs: usize, turns: u64) -> Result<Rates> {
    let (mut updates, mut in_a_row) = (Vec::new(), Vec::new());
    editor.prompt("flood 1000", false)?;
    for _ in 0..runs {
        let turn = editor.prompt(&format!("flood {UPDATES}"), false)?;
        ensure!(turn.updates == UPDATES, "{} of {UPDATES} updates came", turn.updates);
        updates.push(UPDATES as f64 / turn.time.as_secs_f64());
        let begun = std::time::Instant::now();
        for _ in 0..turns {
            let turn = editor.prompt("flood 1", false)?;
            ensure!(turn.updates == 1, "{} updates came", turn.updates);
        }
        in_a_row.push(turns as f64 / begun.elapsed().as_secs_f64());
    }
    Ok(Rates { updates: median(updates), turns: median(in_a_row) })
}

fn ages(editor: &mut Editor) -> Result<Vec<Duration>> {
    Ok(editor.prompt(&format!("paced {PACED} {PAUSE_MICROS}"), true)?.ages)
}

fn agent_command() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent");
    Ok(command)
}

/// What an editor launches, for the server in this folder.
fn connect_command(dir: &Path) -> Result<Command> {
    let me = std::env::current_exe()?;
    let binary = me.parent().context("the program lies in no folder")?.join("trilogue");
    let mut command = Command::new(binary);
    command.args(["connect", "flood"]).current_dir(dir).env("XDG_STATE_HOME", dir.join("state"));
    Ok(command)
}

fn micros(duration: Duration) -> String {
    format!("{:.0} us", duration.as_secs_f64() * 1e6)
}
