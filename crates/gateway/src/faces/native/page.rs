//! Events as a page of JSON.

use std::sync::Arc;

use trilogue_domain::error::Result;
use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Body, RunId, limits};
use trilogue_store::Read;
use trilogue_store::rows::RunRow;

use super::view::NativeView;
use crate::access::authenticator::Caller;
use crate::core::log_ref::LogRef;
use crate::stream::cursor::Cursor;
use crate::stream::log_reader::LogReader;
use crate::stream::view::{EventPlace, Fold, WireEventSink};
use crate::stream::{Streams, feed};

/// How much of the log is read at once, in bytes.
const READ_BYTES: usize = 256 * 1024;

/// Returns at most `limit` events of a thread, or of a run, that the caller has looked up, as the bytes of a `List`.
/// Errors: `invalid_cursor` if the position is beyond the log, and those of reading the store.
pub(crate) async fn page(
    streams: &Streams,
    caller: &Caller,
    thread: &LogRef,
    run: Option<&RunRow>,
    cursor: Cursor,
    limit: usize,
) -> Result<Vec<u8>> {
    let mut bytes = b"{\"items\":[".to_vec();
    let (mut after, mut count, mut more) = (cursor.whole(), 0, false);
    let mut names = RunNames::default();
    let run_key = run.map(|run| run.key);
    let mut log = LogReader::new(streams.read.as_ref(), thread.key, run_key)
        .after(after)
        .pages_of(READ_BYTES);
    'reading: while let Some(page) = log.next().await? {
        for frame in &page.frames {
            let run_id = match run {
                Some(run) => Some(run.id.clone()),
                None => names.find(&streams.read, thread, frame.run()).await?,
            };
            for event in page.events_of(frame)? {
                if count == limit || bytes.len() > limits::MAX_PAGE_BYTES {
                    more = true;
                    break 'reading;
                }
                let number = if run.is_some() { event.run_number } else { event.number };
                let place = EventPlace {
                    thread: &thread.id,
                    run_id: run_id.as_ref().map(RunId::as_str),
                    number,
                };
                let mut out = WireEventSink::default();
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
                    streams.runtime.record_shown_question(&caller.principal.id, run, &raised.id);
                }
                after = number;
            }
        }
    }
    if count == 0 && after > 0 {
        cursor.check(streams.read.as_ref(), thread.key, run).await?;
    }
    let next = if more { format!("\"{after}\"") } else { "null".to_owned() };
    bytes.extend_from_slice(format!("],\"next\":{next}}}").as_bytes());
    Ok(bytes)
}

/// Remembers the id of the last run: neighbouring frames often belong to one run.
#[derive(Debug, Default)]
pub(crate) struct RunNames {
    last: Option<(trilogue_domain::RunKey, Option<RunId>)>,
}

// === impl RunNames ===

impl RunNames {
    pub(crate) async fn find(
        &mut self,
        read: &Arc<dyn Read>,
        thread: &LogRef,
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
