//! Events with a peer's original: larger than others, and each alone in its frame.

use bytes::Bytes;
use trilogue_domain::event::{InterruptEvent, Original};
use trilogue_domain::{Body, Code, Json, RunKey, limits};
use trilogue_store::rows::InterruptFilter;
use trilogue_store::{Change, Draft, Range};

use crate::harness::{Log, World, alice, code, contract, now, page, reader, thought};

contract!(
    a_large_event_has_a_frame_of_its_own_and_is_read_as_any_other,
    a_batch_has_one_large_frame_beside_its_bytes,
    a_page_of_questions_ends_behind_so_many_bytes,
);

const MIB: usize = 1024 * 1024;

fn original(bytes: usize) -> Original {
    Original { dialect: "test".into(), version: 1, bytes: Bytes::from(vec![b'x'; bytes]) }
}

/// Numbers events after the end of a log, and puts them into a batch.
fn sealed(log: &mut Log, draft: Draft) -> trilogue_store::Batch {
    let last = log.last;
    let mut batch = log.step().batch;
    batch.frames = draft.seal(batch.thread, None, last + 1, 0, &reader());
    batch
}

fn draft(sizes: &[usize]) -> Draft {
    let mut draft = Draft::default();
    for size in sizes {
        draft.push(now(), &Body::Opaque, Some(&original(*size))).unwrap();
    }
    draft
}

async fn a_large_event_has_a_frame_of_its_own_and_is_read_as_any_other(world: World) {
    let mut log = world.thread("t").await;
    let sizes = [10, 900_000, 16 * MIB, 20, 30];
    let batch = sealed(&mut log, draft(&sizes));
    let lengths: Vec<_> =
        batch.frames.iter().map(|frame| frame.last() - frame.first() + 1).collect();
    assert_eq!(lengths, [2, 1, 2]);
    assert_eq!(
        batch.frames.iter().map(|it| it.is_large()).collect::<Vec<_>>(),
        [false, true, false]
    );
    let last = batch.frames.last().unwrap().last();
    log.store.append(batch).await.unwrap();
    assert_eq!(last, 5);
    let (mut after, mut read) = (0, Vec::new());
    loop {
        let range = Range { run: None, after, max_bytes: 0 };
        let frames = log.store.frames(log.row.key, range).await.unwrap();
        let Some(frame) = frames.first() else { break };
        assert_eq!(frames.len(), 1, "one frame passes any bound");
        for event in frame.events().unwrap() {
            read.push(event.original.as_ref().unwrap().bytes.len());
        }
        after = frame.last();
    }
    assert_eq!(read, sizes);
}

async fn a_batch_has_one_large_frame_beside_its_bytes(world: World) {
    let mut log = world.thread("t").await;
    for (sizes, fits) in [
        (vec![MIB - 64; 3], true),
        (vec![MIB - 64; 5], false),
        (vec![MIB - 64, 16 * MIB, MIB - 64, MIB - 64], true),
        (vec![2 * MIB, 10, 2 * MIB], false),
        (vec![16 * MIB, MIB - 64, MIB - 64, MIB - 64, MIB - 64, MIB - 64], false),
    ] {
        let batch = sealed(&mut log, draft(&sizes));
        let last = batch.frames.last().unwrap().last();
        let appended = log.store.append(batch).await;
        assert_eq!(appended.is_ok(), fits, "{sizes:?}");
        match appended {
            Ok(()) => log.last = last,
            Err(error) => assert_eq!(error.code(), Code::Internal),
        }
    }
    let range = Range { run: None, after: 0, max_bytes: usize::MAX };
    let frames = log.store.frames(log.row.key, range).await.unwrap();
    assert_eq!(frames.last().unwrap().last(), 7, "what was refused left nothing");
}

async fn a_page_of_questions_ends_behind_so_many_bytes(world: World) {
    let mut log = world.thread("t").await;
    let run = log.start("r").await;
    let sizes = [10, 20 * MIB, 20 * MIB, 12 * MIB + 1, 20];
    for (number, size) in sizes.iter().enumerate() {
        let mut row = log.interrupt(&format!("i{number}"), &run);
        row.interrupt.payload = Json::from_value(&"y".repeat(*size).into());
        log.write([Change::Interrupt(Box::new(row))]).await;
    }
    for (limit, expected) in [
        (9, &[&["i4", "i3", "i2"][..], &["i1", "i0"]][..]),
        (2, &[&["i4", "i3"], &["i2", "i1"], &["i0"]]),
    ] {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let filter = InterruptFilter::default();
            let listing =
                log.store.interrupts(&alice(), &filter, &page(limit, after)).await.unwrap();
            let ids = listing.rows.iter().map(|row| row.interrupt.id.to_string());
            pages.push(ids.collect::<Vec<_>>());
            after = listing.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(pages, expected, "{limit}");
    }
}

#[test]
fn only_what_a_peer_sent_and_what_is_asked_may_be_large() {
    let mut draft = Draft::default();
    let most = limits::MAX_ORIGINAL_BYTES - 64;
    draft.push(now(), &thought("a"), None).unwrap();
    let above = original(limits::MAX_ORIGINAL_BYTES);
    assert_eq!(code(draft.push(now(), &Body::Opaque, Some(&above))), Code::EventTooLarge);
    let text = "x".repeat(limits::MAX_EVENT_BYTES);
    assert_eq!(code(draft.push(now(), &thought(&text), None)), Code::EventTooLarge);
    draft.push(now(), &Body::Opaque, Some(&original(most))).unwrap();
    assert!(draft.is_full(), "nothing comes behind a large event");
    let mut asked = Draft::default();
    let mut question = crate::rows::question("i");
    question.payload = Json::from_value(&text.into());
    let raised = |question| Body::Interrupt(InterruptEvent::Raised(Box::new(question)));
    asked.push(now(), &raised(question.clone()), None).unwrap();
    question.payload = Json::from_value(&"x".repeat(limits::MAX_ORIGINAL_BYTES).into());
    assert_eq!(code(asked.push(now(), &raised(question), None)), Code::EventTooLarge);
    let frames = draft.seal(trilogue_domain::ThreadKey(1), Some(RunKey(1)), 1, 1, &reader());
    assert_eq!(frames.len(), 2);
}
