//! Events as a page of JSON.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Body, RunId};
use trilogue_store::rows::{RunRow, ThreadRow};
use trilogue_store::{Range, Read};

use super::view::NativeView;
use crate::access::authenticator::Caller;
use crate::stream::cursor::Cursor;
use crate::stream::view::{Fold, Out, Place};
use crate::stream::{Streams, feed};

/// The most bytes of events on one page.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// A page of at most `limit` events of a thread, or of a run, that the caller has looked up: the bytes of a `List`.
///
/// # Errors
/// When the log cannot be read.
pub(crate) async fn page(
    streams: &Streams,
    caller: &Caller,
    thread: &ThreadRow,
    run: Option<&RunRow>,
    cursor: Cursor,
    limit: usize,
) -> Result<Vec<u8>> {
    let mut bytes = b"{\"items\":[".to_vec();
    let (mut after, mut count, mut more) = (cursor.whole(), 0, false);
    let mut names = Names::default();
    'reading: loop {
        let range = Range { run: run.map(|run| run.key), after, max_bytes: READ_BYTES };
        let frames = streams.read.frames(thread, range).await?;
        let begun = after;
        for frame in &frames {
            let run_id = match run {
                Some(run) => Some(run.id.clone()),
                None => names.find(&streams.read, thread, frame.run()).await?,
            };
            for event in frame.events()? {
                let number = if run.is_some() { event.run_number } else { event.number };
                if number <= after {
                    continue;
                }
                if count == limit || bytes.len() > MAX_PAGE_BYTES {
                    more = true;
                    break 'reading;
                }
                let place = Place {
                    thread: &thread.id,
                    run_id: run_id.as_ref().map(RunId::as_str),
                    number,
                };
                let mut out = Out::default();
                NativeView.push(event, &place, &mut out);
                for data in out.take_open() {
                    if count > 0 {
                        bytes.push(b',');
                    }
                    bytes.extend_from_slice(&data);
                    count += 1;
                }
                if let (Body::Interrupt(InterruptEvent::Raised(raised)), Some(run)) =
                    (&event.body, &run_id)
                {
                    streams.runtime.shown(&caller.principal.id, run, &raised.id);
                }
                after = number;
            }
        }
        if after == begun {
            break;
        }
    }
    let next = if more { format!("\"{after}\"") } else { "null".to_owned() };
    bytes.extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
    Ok(bytes)
}

/// The id of the run that was asked for last: neighbouring frames are often of one run.
#[derive(Debug, Default)]
pub(crate) struct Names {
    last: Option<(trilogue_domain::RunKey, Option<RunId>)>,
}

// === impl Names ===

impl Names {
    pub(crate) async fn find(
        &mut self,
        read: &Arc<dyn Read>,
        thread: &ThreadRow,
        key: Option<trilogue_domain::RunKey>,
    ) -> Result<Option<RunId>> {
        let Some(key) = key else { return Ok(None) };
        if let Some((known, name)) = &self.last
            && *known == key
        {
            return Ok(name.clone());
        }
        let name = feed::run_id(read, thread, key).await?;
        self.last = Some((key, name.clone()));
        Ok(name)
    }
}
