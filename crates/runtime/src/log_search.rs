//! Searches the newest part of a thread's log.

use std::sync::Arc;

use memchr::memmem::Finder;
use trilogue_domain::error::Result;
use trilogue_domain::{Event, ThreadKey};
use trilogue_store::{Frame, Range, Store};

const READ_BYTES: usize = 256 * 1024;
/// How much of a log is searched, in bytes.
const MAX_SEARCHED_BYTES: usize = 64 * 1024 * 1024;
/// How many events one step of a search reads, newest first.
const SEARCHED_EVENTS: u64 = 1_024;

/// Returns what `pick` takes from the events in the newest 64 MiB of a log, oldest first. Only events with one of these words in their stored form are looked at. The search ends early when `is_enough` says so about what was found, newest part first.
/// Fails if the store cannot be read.
pub(crate) async fn newest_events<T: Send>(
    store: &dyn Store,
    thread: ThreadKey,
    words: &[&str],
    pick: impl Fn(&Event) -> Option<T> + Send + Sync,
    is_enough: impl Fn(&[Vec<T>]) -> bool + Send + Sync,
) -> Result<Vec<T>> {
    let finders: Vec<_> = words.iter().map(Finder::new).collect();
    let (mut found, mut searched) = (Vec::new(), 0);
    let mut until = store.last_number(thread).await?;
    while until > 0 && searched < MAX_SEARCHED_BYTES && !is_enough(&found) {
        let from = until.saturating_sub(SEARCHED_EVENTS);
        let (mut after, mut part) = (from, Vec::new());
        while after < until {
            let range = Range { run: None, after, max_bytes: READ_BYTES };
            let frames = store.frames(thread, range).await?;
            let Some(last) = frames.last().map(|frame| frame.last()) else { break };
            searched += frames.iter().map(|frame| frame.bytes().len()).sum::<usize>();
            let may =
                |frame: &&Arc<Frame>| finders.iter().any(|it| it.find(frame.bytes()).is_some());
            for frame in frames.iter().filter(may) {
                let events = frame.events()?;
                let within = events.iter().filter(|it| it.number > after && it.number <= until);
                part.extend(within.filter_map(&pick));
            }
            after = last;
        }
        found.push(part);
        until = from;
    }
    Ok(found.into_iter().rev().flatten().collect())
}
