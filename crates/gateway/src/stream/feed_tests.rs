//! A view with state and two wire events for each log event, over a real log.

use trilogue_domain::event::StateEvent;
use trilogue_domain::{Body, Json, PrincipalId, TenantId, ThreadId, Timestamp};
use trilogue_store::memory::MemoryStore;
use trilogue_store::record::NoOriginals;
use trilogue_store::{Append as _, Batch, Change, Draft};

use super::*;

/// Shows each event as its number and as how many came before it.
#[derive(Clone, Copy, Debug, Default)]
struct Counting {
    before: u64,
}

impl View for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn begin(&self) -> Box<dyn Fold> {
        Box::<Self>::default()
    }

    fn is_stateless(&self) -> bool {
        false
    }
}

impl Fold for Counting {
    fn push(&mut self, _: &Event, place: &Place<'_>, out: &mut Out) {
        out.push(format!("is {}", place.number).into_bytes());
        out.push(format!("before {}", self.before).into_bytes());
        self.before += 1;
    }

    fn fork(&self) -> Box<dyn Fold> {
        Box::new(*self)
    }
}

/// A thread with this many frames of three events each.
async fn log(store: &MemoryStore, frames: u64) -> ThreadRow {
    let at = Timestamp::from_micros(1);
    let row = ThreadRow {
        key: store.next_thread_key(),
        id: ThreadId::parse("t").unwrap(),
        tenant: TenantId::parse("a").unwrap(),
        owner: PrincipalId::parse("p").unwrap(),
        metadata: Json::empty_object(),
        created_at: at,
        updated_at: at,
        head: None,
        owner_node: String::new(),
        epoch: 1,
        ephemeral: false,
    };
    for frame in 0..frames {
        let mut draft = Draft::default();
        for _ in 0..3 {
            let body = Body::State(StateEvent::Values(Json::null()));
            draft.push(at, &body, None).unwrap();
        }
        let reader: Arc<dyn trilogue_domain::port::ReadOriginal> = Arc::new(NoOriginals);
        let batch = Batch {
            thread: row.key,
            epoch: 1,
            expected_last: frame * 3,
            frames: draft.seal(row.key, None, frame * 3 + 1, 0, &reader),
            changes: if frame == 0 { vec![Change::Thread(row.clone())] } else { Vec::new() },
            blobs: Vec::new(),
            vital: false,
        };
        store.append(batch).await.unwrap();
    }
    row
}

/// Everything that follows a position.
async fn follow(feed: &Feed, read: &Arc<dyn Read>, mut cursor: Cursor) -> String {
    let mut bytes = Vec::new();
    loop {
        let chunk = match feed.rendered(cursor) {
            Some(chunk) => chunk,
            None => match feed.advance(read, cursor).await.unwrap() {
                Some((chunk, _)) => chunk,
                None => return String::from_utf8(bytes).unwrap(),
            },
        };
        bytes.extend_from_slice(&chunk.after(cursor));
        cursor = Cursor::after(chunk.last);
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
        let kept = shared.open(&read, row.clone(), None, Arc::new(Counting::default()));
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
            let fresh = fresh.open(&read, row.clone(), None, Arc::new(Counting::default()));
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
    let one = feeds.open(&read, row.clone(), None, view());
    let two = feeds.open(&read, row.clone(), None, view());
    assert!(Arc::ptr_eq(&one, &two));
    let (_, rendered) = one.advance(&read, Cursor::START).await.unwrap().unwrap();
    let (_, again) = two.advance(&read, Cursor::START).await.unwrap().unwrap();
    assert_eq!((rendered, again), (4, 0));
    assert!(feeds.budget.held.load(Ordering::Relaxed) > 0);
    drop((one, two));
    assert_eq!(feeds.budget.held.load(Ordering::Relaxed), 0);
}
