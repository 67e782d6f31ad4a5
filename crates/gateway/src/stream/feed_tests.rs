//! Tests a view with state and two wire events for each log event, over a real log.

use http::HeaderValue;
use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Error, Json, PrincipalId, TenantId, ThreadId, Timestamp};
use trilogue_store::memory::MemoryStore;
use trilogue_store::record::NoOriginals;
use trilogue_store::rows::ThreadRow;
use trilogue_store::{Append as _, Batch, Change, Draft};
use trilogue_wire::native::Gap;

use super::*;
use crate::faces::native::view::NativeView;

/// Shows each event as its number and the count of events before it.
#[derive(Clone, Debug, Default)]
struct Counting {
    before: u64,
    pushes: Arc<AtomicUsize>,
}

impl View for Counting {
    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed("counting")
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::new(self.clone())
    }

    fn is_stateless(&self) -> bool {
        false
    }

    fn content_type(&self) -> HeaderValue {
        NativeView.content_type()
    }

    fn heartbeat(&self) -> Bytes {
        NativeView.heartbeat()
    }

    fn error(&self, error: &Error) -> Vec<u8> {
        NativeView.error(error)
    }

    fn gap(&self, gap: &Gap) -> Vec<u8> {
        NativeView.gap(gap)
    }
}

impl Fold for Counting {
    fn push(&mut self, _: &Event, place: &EventPlace<'_>, out: &mut WireEventSink) {
        out.push(format!("is {}", place.number).into_bytes());
        out.push(format!("before {}", self.before).into_bytes());
        self.before += 1;
        self.pushes.fetch_add(1, Ordering::Relaxed);
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(self.clone())
    }
}

/// Creates a thread with this many frames of three events each.
async fn log(store: &MemoryStore, frames: u64) -> ThreadRow {
    let row = thread(store);
    for frame in 0..frames {
        append(store, &row, frame * 3, 3).await;
    }
    row
}

fn thread(store: &MemoryStore) -> ThreadRow {
    let at = Timestamp::from_micros(1);
    ThreadRow::new(
        store.next_thread_key(),
        ThreadId::parse("t").unwrap(),
        TenantId::parse("a").unwrap(),
        PrincipalId::parse("p").unwrap(),
        at,
    )
}

/// Appends a frame after the number `last`.
async fn append(store: &MemoryStore, row: &ThreadRow, last: u64, events: usize) {
    let mut draft = Draft::default();
    for _ in 0..events {
        let body = Body::State(StateEvent::Values(Json::null()));
        draft.push(Timestamp::from_micros(1), &body, None).unwrap();
    }
    let reader: Arc<dyn trilogue_domain::port::ReadOriginal> = Arc::new(NoOriginals);
    let batch = Batch {
        thread: row.key,
        epoch: 1,
        expected_last: last,
        frames: draft.seal(row.key, None, last + 1, 0, &reader),
        changes: if last == 0 { vec![Change::Thread(row.clone())] } else { Vec::new() },
        blobs: Vec::new(),
        vital: false,
    };
    store.append(batch).await.unwrap();
}

async fn follow(feed: &Feed, read: &Arc<dyn Read>, cursor: Cursor) -> String {
    let mut follower = Follower { cursor, at: None, seen: Vec::new() };
    follower.go_on(feed, read).await;
    String::from_utf8(follower.seen).unwrap()
}

struct Follower {
    cursor: Cursor,
    at: Option<Arc<RenderedFrame>>,
    seen: Vec<u8>,
}

impl Follower {
    async fn go_on(&mut self, feed: &Feed, read: &Arc<dyn Read>) {
        loop {
            let chunk = match feed.cached_frame(self.cursor) {
                Some(chunk) => chunk,
                None => match feed.advance(read, self.cursor, self.at.as_ref()).await.unwrap() {
                    Some((chunk, _)) => chunk,
                    None => return,
                },
            };
            self.seen.extend_from_slice(&chunk.after(self.cursor));
            self.cursor = Cursor::after(chunk.last);
            self.at = Some(chunk);
        }
    }
}

fn expected(last: u64) -> Vec<(String, String)> {
    let both = |number: u64| {
        let (early, late) = (format!("{number}.1"), number.to_string());
        [
            (early.clone(), format!("id: {early}\ndata: is {number}\n\n")),
            (late.clone(), format!("id: {late}\ndata: before {}\n\n", number - 1)),
        ]
    };
    (1..=last).flat_map(both).collect()
}

#[tokio::test]
async fn a_resume_may_name_any_wire_event_and_folds_what_came_before() {
    for budget in [0, 1024 * 1024] {
        let store = MemoryStore::default();
        let row = log(&store, 4).await;
        let read: Arc<dyn Read> = Arc::new(store);
        let shared = Feeds::new(budget);
        let kept = shared.open(&read, LogRef::from(&row), None, Arc::new(Counting::default()));
        let all = expected(12);
        let text = |events: &[(String, String)]| {
            events.iter().map(|(_, text)| text.as_str()).collect::<String>()
        };
        assert_eq!(follow(&kept, &read, Cursor::START).await, text(&all), "{budget}");
        for (place, (id, _)) in all.iter().enumerate() {
            let cursor = Cursor::parse(id).unwrap();
            let rest = text(all.get(place + 1..).unwrap());
            assert_eq!(follow(&kept, &read, cursor).await, rest, "shared, after {id}");
            let fresh = Feeds::new(budget);
            let fresh = fresh.open(&read, LogRef::from(&row), None, Arc::new(Counting::default()));
            assert_eq!(follow(&fresh, &read, cursor).await, rest, "alone, after {id}");
        }
    }
}

#[tokio::test]
async fn rendered_events_go_with_the_last_reader_and_are_made_once() {
    let store = MemoryStore::default();
    let row = log(&store, 4).await;
    let read: Arc<dyn Read> = Arc::new(store);
    let feeds = Feeds::new(1024 * 1024);
    let view = || Arc::new(Counting::default());
    let one = feeds.open(&read, LogRef::from(&row), None, view());
    let two = feeds.open(&read, LogRef::from(&row), None, view());
    assert!(Arc::ptr_eq(&one, &two));
    let (_, rendered) = one.advance(&read, Cursor::START, None).await.unwrap().unwrap();
    let (_, again) = two.advance(&read, Cursor::START, None).await.unwrap().unwrap();
    assert_eq!((rendered, again), (4, 0));
    assert!(feeds.budget.held.load(Ordering::Relaxed) > 0);
    drop((one, two));
    assert_eq!(feeds.budget.held.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_long_stream_is_folded_once_however_slow_its_readers_and_small_the_cache() {
    const PARTS: u64 = 2_000;
    for budget in [0, 64 * 1024 * 1024] {
        let store = Arc::new(MemoryStore::default());
        let row = thread(&store);
        append(&store, &row, 0, 1).await;
        let read: Arc<dyn Read> = Arc::clone(&store) as _;
        let feeds = Feeds::new(budget);
        let view = Counting::default();
        let pushes = Arc::clone(&view.pushes);
        let feed = feeds.open(&read, LogRef::from(&row), None, Arc::new(view));
        let live = || Follower { cursor: Cursor::START, at: None, seen: Vec::new() };
        let (mut one, mut two) = (live(), live());
        for last in 1..PARTS {
            one.go_on(&feed, &read).await;
            two.go_on(&feed, &read).await;
            append(&store, &row, last, 1).await;
        }
        one.go_on(&feed, &read).await;
        two.go_on(&feed, &read).await;
        let live_pushes = pushes.swap(0, Ordering::Relaxed) as u64;
        assert_eq!(live_pushes, PARTS, "two live readers, budget {budget}");
        let late = follow(&feed, &read, Cursor::START).await;
        let late_pushes = pushes.load(Ordering::Relaxed) as u64;
        assert!(late_pushes <= PARTS, "a late reader: {late_pushes}, budget {budget}");
        assert_eq!(late.as_bytes(), one.seen, "budget {budget}");
        assert_eq!(one.seen, two.seen, "budget {budget}");
    }
}
