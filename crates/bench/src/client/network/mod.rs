//! Measures clients over the network: the rates over each transport, the memory of idle connections, and how soon an update comes when a lost network is back.

mod idle;
mod official_server;
mod outage;

use anyhow::{Result, ensure};
use tokio::task::block_in_place;

use super::editor::Editor;
use super::link::{AgentAddress, HttpLink, MessageLink, WebSocketLink};
use super::peers;
use super::rates::{self, median_of};
use super::server_session::ServerSession;
use crate::report::Report;
use official_server::OfficialServer;

/// The store of the servers of these figures: a disk would hide the transports.
const STORE: &str = "memory:";
/// How many updates one turn of a measurement has.
const UPDATES: u64 = 100_000;
/// How many turns are taken in a row, of one update each.
const TURNS: u64 = 2_000;
/// How many updates of each path come before its measurement.
const WARM_UP: u64 = 20_000;
/// The least updates a second, in times of the official server.
const UPDATE_TIMES: f64 = 5.0;
/// The least turns in a row a second, in times of the official server.
const TURN_TIMES: f64 = 2.0;
/// The least rate over a WebSocket, as a share of the way over standard streams.
const SHARE_OF_STDIO: f64 = 0.8;

/// The paths that are compared, each with the same minimal client.
const PATHS: [&str; 5] = [
    "standard streams",
    "WebSocket",
    "HTTP",
    "the official server, WebSocket",
    "the official server, HTTP",
];
const STDIO: usize = 0;
const WEBSOCKET: usize = 1;
const HTTP: usize = 2;
const OFFICIAL_WEBSOCKET: usize = 3;
const OFFICIAL_HTTP: usize = 4;

/// How long a measurement of one path is.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// How many updates come before the measured ones.
    warm_up: u64,
    updates: u64,
    turns: u64,
}

/// What came in a second over one path.
#[derive(Clone, Copy, Debug)]
struct PathRates {
    updates: f64,
    turns: f64,
}

/// The rates of one round, in the order of [`PATHS`].
type Round = Vec<PathRates>;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    peers::install().await?;
    measure_rates(report).await?;
    idle::measure(report).await?;
    outage::measure(report).await
}

async fn measure_rates(report: &mut Report) -> Result<()> {
    let mut ours = ServerSession::start("trilogue", STORE).await?;
    let official = OfficialServer::start().await?;
    let lengths = Lengths {
        warm_up: report.scale(WARM_UP),
        updates: report.scale(UPDATES),
        turns: report.scale(TURNS),
    };
    let (address, dir) = (ours.address("flood"), ours.dir().to_owned());
    let mut rounds: Vec<Round> = Vec::new();
    for _ in 0..report.runs {
        rounds.push(block_in_place(|| {
            let mut rates = vec![path_rates(&mut ours.editor, &lengths)?];
            for agent in [&address, official.address()] {
                for open in [open_websocket, open_http] {
                    // Opened when it is measured: a client that waits answers no ping of its server, and loses its connection.
                    let mut editor = Editor::open(open(agent)?, &dir)?;
                    rates.push(path_rates(&mut editor, &lengths)?);
                    editor.close()?;
                }
            }
            anyhow::Ok(rates)
        })?);
    }
    ours.stop().await?;
    say(report, &rounds);
    Ok(())
}

fn open_websocket(agent: &AgentAddress) -> Result<Box<dyn MessageLink>> {
    Ok(Box::new(WebSocketLink::open(agent)?))
}

fn open_http(agent: &AgentAddress) -> Result<Box<dyn MessageLink>> {
    Ok(Box::new(HttpLink::open(agent)?))
}

fn path_rates(editor: &mut Editor, lengths: &Lengths) -> Result<PathRates> {
    editor.prompt(&format!("flood {}", lengths.warm_up), false)?;
    let turn = editor.prompt(&format!("flood {}", lengths.updates), false)?;
    ensure!(
        turn.updates == lengths.updates,
        "{} of {} updates came",
        turn.updates,
        lengths.updates
    );
    let updates = lengths.updates as f64 / turn.time.as_secs_f64();
    let turns = rates::of(lengths.turns, || {
        let turn = editor.prompt("flood 1", false)?;
        ensure!(turn.updates == 1, "{} updates came", turn.updates);
        Ok(())
    })?;
    Ok(PathRates { updates, turns })
}

fn say(report: &mut Report, rounds: &[Round]) {
    for (index, path) in PATHS.iter().enumerate() {
        let updates = median_of(rounds, |round| round[index].updates);
        let turns = median_of(rounds, |round| round[index].turns);
        let what = format!("{path}, updates / turns in a row a second");
        report.line(&what, &format!("{updates:.0} / {turns:.0}"));
    }
    let mut judge = |what: &str, of: usize, beside: usize, least: [f64; 2]| {
        let updates = median_of(rounds, |round| round[of].updates / round[beside].updates);
        let turns = median_of(rounds, |round| round[of].turns / round[beside].turns);
        for (figure, value, least) in [("updates", updates, least[0]), ("turns", turns, least[1])] {
            let what = format!("{what}, {figure}, in times of {}", PATHS[beside]);
            report.target(&what, &format!("{value:.2}"), value >= least, &format!(">= {least}"));
        }
    };
    let of_official = [UPDATE_TIMES, TURN_TIMES];
    judge("WebSocket", WEBSOCKET, OFFICIAL_WEBSOCKET, of_official);
    judge("HTTP", HTTP, OFFICIAL_HTTP, of_official);
    judge("WebSocket", WEBSOCKET, STDIO, [SHARE_OF_STDIO; 2]);
}
