//! Renders one event in the form of each protocol, with the views of the faces.

use std::fmt;
use std::sync::Arc;

use trilogue_domain::content::BlobRef;
use trilogue_domain::error::Result;
use trilogue_domain::{Event, RunId, ThreadId};
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use super::inline::inlined;
use super::log_reader::LogReader;
use super::sample::{SampleFold, SampleView};
use super::view::{Data, EventPlace, Fold, View, WireEventSink};
use crate::core::log_ref::LogRef;
use crate::http::mount_point::MountPoint;

/// A protocol's view of a log.
#[derive(Debug)]
pub(crate) struct ProtocolView {
    /// The protocol's name in the fidelity table.
    pub(crate) protocol: &'static str,
    /// The title of this form, for people.
    pub(crate) title: &'static str,
    pub(crate) view: FormView,
}

#[derive(Clone, Debug)]
pub(crate) enum FormView {
    /// Its clients receive what an event adds.
    Events(Arc<dyn View>),
    /// Its clients receive the state of the run's output.
    Samples(Arc<dyn SampleView>),
}

/// The views of all protocols.
pub(crate) trait ProtocolViews: Send + Sync + fmt::Debug {
    /// Returns the views for a run of a thread, or for events outside of runs.
    fn of(&self, thread: &ThreadId, run: Option<&RunRow>) -> Vec<ProtocolView>;
    /// Returns the addresses of the protocols.
    fn places(&self) -> ProtocolPlaces<'_>;
}

/// The addresses of this server's protocols; `None` for a protocol that is not served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProtocolPlaces<'a> {
    /// The place of `/api/v1`.
    pub(crate) own: &'a MountPoint,
    pub(crate) communication: Option<&'a MountPoint>,
    pub(crate) connect: Option<&'a MountPoint>,
}

/// A view between two events.
#[derive(Debug)]
enum FormFold {
    Events(Box<dyn Fold>),
    Samples(Box<dyn SampleFold>),
}

/// Returns the wire events that clients of each of these views receive for an event. Reads the event's run up to it.
pub(crate) async fn wire_events(
    read: &Arc<dyn Read>,
    thread: &LogRef,
    run: Option<&RunRow>,
    event: &Event,
    views: &[ProtocolView],
) -> Result<Vec<Vec<Data>>> {
    let mut folds: Vec<_> = views.iter().map(|it| FormFold::begin(&it.view)).collect();
    let Some(run) = run else {
        return push(read, thread, None, event, &mut folds, true).await;
    };
    let mut log = LogReader::new(read.as_ref(), thread.key, Some(run.key)).until(event.run_number);
    while let Some(page) = log.next().await? {
        for each in page.events()? {
            let is_last = each.run_number == event.run_number;
            let wire = push(read, thread, Some(&run.id), each, &mut folds, is_last).await?;
            if is_last {
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
    folds: &mut [FormFold],
    is_last: bool,
) -> Result<Vec<Vec<Data>>> {
    let number = if run.is_some() { event.run_number } else { event.number };
    let place = EventPlace { thread: &thread.id, run_id: run.map(RunId::as_str), number };
    let mut wire = Vec::with_capacity(folds.len());
    for fold in folds {
        let event = inlined(read, thread.key, event, |blob| fold.wants(blob)).await?;
        wire.push(match fold {
            FormFold::Events(fold) => {
                let mut out = WireEventSink::default();
                fold.push(&event, &place, &mut out);
                out.take_open()
            }
            FormFold::Samples(fold) if is_last => news(fold.as_mut(), &event),
            FormFold::Samples(fold) => {
                fold.push(&event);
                Vec::new()
            }
        });
    }
    Ok(wire)
}

/// Returns the sample that an event changes, and the end of the stream if the event causes it.
fn news(fold: &mut dyn SampleFold, event: &Event) -> Vec<Data> {
    // Earlier output is not news of this event, so take it first.
    fold.snapshot();
    let before = fold.end();
    fold.push(event);
    let sample = if fold.has_news() { fold.snapshot() } else { None };
    let end = fold.end().filter(|end| Some(end) != before.as_ref());
    sample.into_iter().chain(end).map(Data::Shared).collect()
}

// === impl FormFold ===

impl FormFold {
    fn begin(view: &FormView) -> Self {
        match view {
            FormView::Events(view) => Self::Events(view.begin()),
            FormView::Samples(view) => Self::Samples(view.begin()),
        }
    }

    fn wants(&self, blob: &BlobRef) -> bool {
        match self {
            Self::Events(fold) => fold.wants(blob),
            Self::Samples(fold) => fold.wants(blob),
        }
    }
}
