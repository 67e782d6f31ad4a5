//! An event in the form that each protocol gives it: the views of the faces, asked for one event.

use std::fmt;
use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::{Event, RunId, ThreadId};
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use super::inline::inlined;
use super::log_reader::LogReader;
use super::view::{Data, EventPlace, Fold, Out, View};
use crate::core::log_ref::LogRef;

/// How a protocol shows a log.
#[derive(Debug)]
pub(crate) struct ProtocolView {
    /// Its name, as in the table of fidelity.
    pub(crate) protocol: &'static str,
    /// What its clients get: a name for people.
    pub(crate) title: &'static str,
    pub(crate) view: Arc<dyn View>,
}

/// The views of all protocols.
pub(crate) trait ProtocolViews: Send + Sync + fmt::Debug {
    /// Those for a run of a thread, or for what is outside of runs.
    fn of(&self, thread: &ThreadId, run: Option<&RunRow>) -> Vec<ProtocolView>;
}

/// What the clients of each of these views get for an event: any number of wire events. Reads the event's run up to it.
pub(crate) async fn wire_events(
    read: &Arc<dyn Read>,
    thread: &LogRef,
    run: Option<&RunRow>,
    event: &Event,
    views: &[ProtocolView],
) -> Result<Vec<Vec<Data>>> {
    let mut folds: Vec<_> = views.iter().map(|it| it.view.begin()).collect();
    let Some(run) = run else {
        return push(read, thread, None, event, &mut folds).await;
    };
    let mut log = LogReader::new(read.as_ref(), thread.key, Some(run.key)).until(event.run_number);
    while let Some(page) = log.next().await? {
        for each in page.events()? {
            let wire = push(read, thread, Some(&run.id), each, &mut folds).await?;
            if each.run_number == event.run_number {
                return Ok(wire);
            }
        }
    }
    Ok(views.iter().map(|_| Vec::new()).collect())
}

async fn push(
    read: &Arc<dyn Read>,
    thread: &LogRef,
    run: Option<&RunId>,
    event: &Event,
    folds: &mut [Box<dyn Fold>],
) -> Result<Vec<Vec<Data>>> {
    let number = if run.is_some() { event.run_number } else { event.number };
    let place = EventPlace { thread: &thread.id, run_id: run.map(RunId::as_str), number };
    let mut wire = Vec::with_capacity(folds.len());
    for fold in folds {
        let event = inlined(read, thread.key, event, |blob| fold.wants(blob)).await?;
        let mut out = Out::default();
        fold.push(&event, &place, &mut out);
        wire.push(out.take_open());
    }
    Ok(wire)
}
