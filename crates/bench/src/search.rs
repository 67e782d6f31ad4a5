//! Searching many runs and threads by their metadata, through the Agent Connect Protocol, with SQLite.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use trilogue_testkit::{Client, Server};

use crate::connect::BASE;
use crate::flow::{self, Flow};
use crate::load;
use crate::memory::{mib, resident};
use crate::report::{self, Report, millis, percentile};

/// How many runs and how many threads there are.
const ROWS: u64 = 100_000;
/// How many of them have the same mark.
const ALIKE: u64 = 100;
/// How many connections make them.
const CONNECTIONS: usize = 64;
/// How often each search is made.
const SEARCHES: u64 = 400;
/// The most that a search may take, at p99.
const LIMIT: Duration = Duration::from_millis(10);
/// The most memory that the server may have more with all of them than without, in KiB.
const MORE_KIB: u64 = 48 * 1024;

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let dir = tempfile::tempdir_in(report::folder())?;
    let options = report::server_options("sqlite:store/trilogue.db")?;
    let server = Server::start(dir.path(), &options).await?;
    let client = server.client();
    client.post(&format!("{BASE}/agents/search"), &json!({})).await?.ok()?;
    let idle = resident(&server)?;
    fill(report, &server).await?;
    for (what, path, more) in [
        ("runs by metadata", "/runs/search", json!({})),
        ("runs by metadata and agent", "/runs/search", json!({"agent_id": "echo"})),
        ("runs by metadata and status", "/runs/search", json!({"status": "success"})),
        ("runs by metadata, the third page", "/runs/search", json!({"offset": 20})),
        ("threads by metadata", "/threads/search", json!({})),
        ("threads by metadata and status", "/threads/search", json!({"status": "idle"})),
        ("threads by metadata, the third page", "/threads/search", json!({"offset": 20})),
    ] {
        let p99 = search(&client, path, &more).await?;
        let what = format!("{what}, p99");
        report.target(&what, &millis(p99), p99 < LIMIT, "< 10 ms");
    }
    let more = resident(&server)?.saturating_sub(idle);
    let what = format!("more memory with {ROWS} runs and threads");
    report.target(&what, &mib(more), more <= MORE_KIB, "<= 48 MiB");
    server.stop().await?;
    Ok(())
}

/// Makes the runs and the threads, each with a mark that some others have too.
async fn fill(report: &mut Report, server: &Server) -> Result<()> {
    let (address, token) = (server.home().address(), server.token().to_owned());
    for (what, path, more) in [
        ("runs", "/runs/wait", json!({"agent_id": "echo", "input": {"message": "hello"}})),
        ("threads", "/threads", json!({})),
    ] {
        let (path, token) = (format!("{BASE}{path}"), token.clone());
        let flow = Flow::new(address, move |number| {
            let mut body = more.clone();
            body["metadata"] = json!({"mark": mark(number), "number": number, "all": "same"});
            load::post(address, &path, &token, &body.to_string())
        });
        let done = flow::times(&flow, CONNECTIONS, ROWS).await?;
        report.line(&format!("{ROWS} {what} made, a second"), &format!("{:.0}", done.per_second()));
    }
    Ok(())
}

fn mark(number: u64) -> String {
    format!("mark-{}", number % (ROWS / ALIKE))
}

/// How long a search takes, at p99, over marks that lie all over the rows.
async fn search(client: &Client, path: &str, more: &Value) -> Result<Duration> {
    let path = format!("{BASE}{path}");
    let mut times = Vec::new();
    for number in 0..SEARCHES {
        let mut body = more.clone();
        let mark = mark(number * 7_919);
        body["metadata"] = json!({ "mark": mark });
        let begun = Instant::now();
        let found = client.post(&path, &body).await?.ok()?;
        times.push(begun.elapsed());
        let found = found.as_array().map_or(0, Vec::len);
        ensure!(found == 10, "{path} found {found} of {mark}: {body}");
    }
    Ok(percentile(&times, 0.99))
}
