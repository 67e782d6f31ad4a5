//! How often the server asks for memory for one update: from the agent's output through the log to the client's input.

use anyhow::Result;

use super::server_session::ServerSession;
use crate::cost;
use crate::report::{DISK, Report, median};

/// The number of updates of the first turn, which shows the allocations of a turn and of the start.
const FEW: u64 = 2_000;
/// How many more come then, as fast as they can.
const MORE: u64 = 100_000;
/// How many more come then, each by itself.
const MORE_PACED: u64 = 1_000;
/// The pause between those, in microseconds.
const PAUSE_MICROS: u64 = 1_000;
/// The most allocations per update.
const TARGET: f64 = 20.0;

pub(super) async fn measure(report: &mut Report) -> Result<()> {
    for store in ["memory:", DISK] {
        let mut ours = ServerSession::start("trilogue-counted", store).await?;
        ours.editor.prompt(&format!("flood {MORE}"), false)?;
        let (mut together, mut alone) = (Vec::new(), Vec::new());
        for _ in 0..report.runs {
            let flood = |count: u64| format!("flood {count}");
            together.push(each(&mut ours, FEW, MORE, flood).await?);
            let paced = |count: u64| format!("paced {count} {PAUSE_MICROS}");
            alone.push(each(&mut ours, FEW / 20, MORE_PACED, paced).await?);
        }
        ours.stop().await?;
        for (how, counts) in [("in a stream", together), ("each by itself", alone)] {
            let count = median(counts);
            let what = format!("{store}, allocations for an update, {how}");
            report.target(&what, &format!("{count:.1}"), count < TARGET, "< 20");
        }
    }
    Ok(())
}

/// Returns the allocations per update of `more` updates, without those of the turn itself.
async fn each(
    ours: &mut ServerSession,
    few: u64,
    more: u64,
    said: impl Fn(u64) -> String,
) -> Result<f64> {
    let mut counts = Vec::new();
    for updates in [few, few + more] {
        let before = cost::allocations(&ours.server).await?;
        ours.editor.prompt(&said(updates), false)?;
        counts.push(cost::allocations(&ours.server).await?.saturating_sub(before));
    }
    Ok((counts[1] as f64 - counts[0] as f64) / more as f64)
}
