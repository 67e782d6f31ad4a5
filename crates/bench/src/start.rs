//! From starting the program to its first answer.

use std::time::{Duration, Instant};

use anyhow::Result;
use trilogue_testkit::Home;

use crate::report::{self, Report, median, millis};

/// The most that a start may take.
const TARGET: Duration = Duration::from_millis(100);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    for store in ["memory:", "sqlite:store/trilogue.db"] {
        let dir = tempfile::tempdir_in(report::folder())?;
        let home = Home::new(dir.path(), &report::server_options(store)?)?;
        let mut times = Vec::new();
        // The first start makes the store and the token; it is measured as well.
        for _ in 0..report.runs.max(2) {
            let begun = Instant::now();
            let server = home.start().await?;
            server.client().get("/api/v1/agents").await?.ok()?;
            times.push(begun.elapsed().as_secs_f64());
            server.stop().await?;
        }
        let time = Duration::from_secs_f64(median(times));
        let what = format!("start to first answer, {store}");
        report.target(&what, &millis(time), time < TARGET, "< 100 ms");
    }
    Ok(())
}
