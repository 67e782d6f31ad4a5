use proptest::prelude::*;
use trilogue_domain::event::{Body, MessageEvent, Original, RunEvent, StateEvent};
use trilogue_domain::{Citation, MessageId, Part, PartMetadata, Times, limits};

use super::*;
use crate::record::samples;
use crate::record::{Draft, NoOriginals};

const THREAD: ThreadKey = ThreadKey(7);
const RUN: Option<RunKey> = Some(RunKey(9));

/// A dialect whose originals are the text of a delta; anything that begins with `!` is not its own.
#[derive(Debug)]
struct Shout;

impl ReadOriginal for Shout {
    fn read(&self, original: &Original) -> Result<Body> {
        let text = std::str::from_utf8(&original.bytes).unwrap_or("!");
        if text.starts_with('!') {
            return Err(Error::new(Code::InvalidRequest, "these bytes are not a shout"));
        }
        let message = MessageId::parse("peer").unwrap();
        Ok(Body::Message(MessageEvent::Delta { message, text: text.to_uppercase().into() }))
    }
}

fn reader() -> Arc<dyn ReadOriginal> {
    Arc::new(NoOriginals)
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn hex(frame: &Frame) -> String {
    frame.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn delta(message: &str, text: &str) -> Body {
    Body::Message(MessageEvent::Delta { message: samples::message_id(message), text: text.into() })
}

fn stored(frame: &Frame, bytes: Bytes) -> Result<Frame> {
    let reader = Arc::clone(&frame.reader);
    let Header { thread, run, first, last, first_run } = frame.header;
    Frame::from_stored(thread, run, first, last, first_run, bytes, &reader)
}

/// One frame with a record of every kind.
fn full_frame() -> Arc<Frame> {
    let mut draft = Draft::default();
    for (micros, body) in (1_700_000_000_000_000..).zip(samples::bodies()) {
        draft.push(at(micros), &body, None).unwrap();
    }
    draft.seal(THREAD, RUN, 11, 3, &reader()).remove(0)
}

#[test]
fn every_body_reads_back_with_its_numbers() {
    let frame = full_frame();
    let read = stored(&frame, frame.bytes().clone()).unwrap();
    let bodies = samples::bodies();
    assert_eq!((read.first(), read.last()), (11, 10 + bodies.len() as u64));
    assert_eq!((read.first_run(), read.last_run()), (3, 2 + bodies.len() as u64));
    for (index, (event, body)) in read.events().unwrap().iter().zip(&bodies).enumerate() {
        let index = u64::try_from(index).unwrap();
        assert_eq!(event.body, *body);
        assert_eq!((event.number, event.run_number, event.run), (11 + index, 3 + index, RUN));
        assert_eq!(event.at, at(1_700_000_000_000_000 + index.cast_signed()));
        assert_eq!(event.original, None);
    }
    assert_eq!(read.events().unwrap().len(), bodies.len());
}

#[test]
fn an_original_is_stored_alone_and_read_back_under_our_id() {
    let shout: Arc<dyn ReadOriginal> = Arc::new(Shout);
    let original = |bytes: &'static str| Original {
        dialect: "shout".into(),
        version: 2,
        bytes: Bytes::from_static(bytes.as_bytes()),
    };
    let mut draft = Draft::default();
    draft.push(at(1), &delta("ours", "NOT STORED"), Some(&original("hi"))).unwrap();
    draft.push(at(2), &Body::Opaque, Some(&original("!what"))).unwrap();
    draft.push(at(3), &delta("ours", "plain"), None).unwrap();
    draft.push(at(4), &delta("ours", "later"), Some(&original("later"))).unwrap();
    let frame = draft.seal(THREAD, None, 1, 0, &shout).remove(0);
    assert!(!frame.bytes().windows(10).any(|bytes| bytes == b"NOT STORED"));
    assert_eq!((frame.first_run(), frame.last_run()), (0, 0));
    let events = frame.events().unwrap();
    assert_eq!(events.len(), 4, "an event with an original is never merged");
    assert_eq!(events[0].body, delta("ours", "HI"));
    assert_eq!(events[0].original, Some(original("hi")));
    assert_eq!(events[1].body, Body::Opaque);
    assert_eq!(events[1].original, Some(original("!what")));
    assert_eq!(events[2].body, delta("ours", "plain"));
    assert!(events.iter().all(|event| event.run.is_none() && event.run_number == 0));
}

#[test]
fn deltas_of_one_message_merge_until_they_are_large() {
    let mut draft = Draft::default();
    for text in ["a", "b", "c"] {
        draft.push(at(1), &delta("m", text), None).unwrap();
    }
    draft.push(at(2), &delta("n", "d"), None).unwrap();
    draft.push(at(3), &delta("m", "e"), None).unwrap();
    draft.push(at(4), &Body::Run(RunEvent::Started), None).unwrap();
    draft.push(at(5), &delta("m", "f"), None).unwrap();
    assert_eq!(draft.len(), 5);
    let mut behind = Draft::default();
    behind.push(at(6), &delta("m", "g"), None).unwrap();
    draft.join(behind);
    draft.push(at(7), &delta("m", "h"), None).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    let bodies: Vec<_> = frame.events().unwrap().iter().map(|event| event.body.clone()).collect();
    let expected = [
        delta("m", "abc"),
        delta("n", "d"),
        delta("m", "e"),
        Body::Run(RunEvent::Started),
        delta("m", "f"),
        delta("m", "gh"),
    ];
    assert_eq!(bodies, expected);

    let mut draft = Draft::default();
    let chunk = "x".repeat(1024);
    for _ in 0..65 {
        draft.push(at(1), &delta("m", &chunk), None).unwrap();
    }
    assert_eq!(draft.len(), 2, "64 KiB is the most that one record grows to");
}

#[test]
fn an_event_above_the_limit_leaves_the_draft_as_it_was() {
    let mut draft = Draft::default();
    draft.push(at(1), &delta("m", "a"), None).unwrap();
    let large = "x".repeat(limits::MAX_EVENT_BYTES);
    let error = draft.push(at(2), &delta("m", &large), None).unwrap_err();
    assert_eq!(error.code(), Code::EventTooLarge);
    let message = samples::message_id("m");
    let mut part = trilogue_domain::Part::new("x", trilogue_domain::Content::Blob(samples::blob()));
    part.name = Some(large.as_str().into());
    let part = Body::Message(MessageEvent::Part { message, part });
    assert_eq!(draft.push(at(2), &part, None).unwrap_err().code(), Code::EventTooLarge);
    assert_eq!(draft.blobs(), []);
    draft.push(at(3), &delta("m", "b"), None).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(frame.events().unwrap().len(), 1);
    assert_eq!(frame.events().unwrap()[0].body, delta("m", "ab"));
}

#[test]
fn a_draft_is_full_at_its_limits_and_names_its_blobs() {
    let mut draft = Draft::default();
    assert!(draft.is_empty() && !draft.is_full());
    for _ in 0..limits::MAX_FRAME_EVENTS {
        assert!(!draft.is_full());
        draft.push(at(1), &Body::Run(RunEvent::Started), None).unwrap();
    }
    assert!(draft.is_full());

    let mut draft = Draft::default();
    draft.push(at(1), &delta("m", &"x".repeat(limits::MAX_EVENT_BYTES - 64)), None).unwrap();
    draft.push(at(1), &delta("n", &"x".repeat(64)), None).unwrap();
    assert!(draft.is_full());

    let mut draft = Draft::default();
    for body in samples::bodies() {
        draft.push(at(1), &body, None).unwrap();
    }
    assert_eq!(draft.blobs(), [samples::blob()]);
}

#[test]
fn joined_drafts_are_cut_at_the_limits_without_gaps() {
    let started = Body::Run(RunEvent::Started);
    let mut draft = Draft::default();
    for _ in 0..3 {
        let mut other = Draft::default();
        for _ in 0..200 {
            other.push(at(1), &started, None).unwrap();
        }
        draft.join(other);
    }
    let large = delta("m", &"x".repeat(limits::MAX_EVENT_BYTES / 2));
    for _ in 0..3 {
        draft.push(at(1), &large, None).unwrap();
    }
    let count = draft.len() as u64;
    let frames = draft.seal(THREAD, RUN, 5, 2, &reader());
    let (mut next, mut next_run) = (5, 2);
    for frame in &frames {
        assert_eq!((frame.first(), frame.first_run()), (next, next_run));
        let events = frame.events().unwrap();
        assert!(events.len() <= limits::MAX_FRAME_EVENTS);
        assert!(frame.bytes().len() <= limits::MAX_FRAME_BYTES + 4 * events.len() + 64);
        (next, next_run) = (frame.last() + 1, frame.last_run() + 1);
    }
    assert_eq!(next - 5, count);
    assert_eq!(frames.len(), 5);
    assert!(Draft::default().seal(THREAD, RUN, 1, 1, &reader()).is_empty());
}

/// A failure here means that the format changed: give it a new version and keep the decoder of this one.
#[test]
fn the_bytes_of_a_frame_are_these() {
    let mut draft = Draft::default();
    draft.push(at(1_000_000), &Body::Run(RunEvent::Started), None).unwrap();
    draft.push(at(1_000_001), &delta("m", "hi"), None).unwrap();
    let original = Original { dialect: "d".into(), version: 1, bytes: Bytes::from_static(b"{}") };
    draft.push(at(-1), &Body::Opaque, Some(&original)).unwrap();
    let frame = draft.seal(THREAD, RUN, 300, 2, &reader()).remove(0);
    assert_eq!(
        hex(&frame),
        "030e0112ac0202020400000080897a110800000082897a21016d6869080000000100000164017b7d7867ffad"
    );
}

/// What version 2 writes as version 1 did not.
#[test]
fn the_bytes_of_what_version_2_brought_are_these() {
    let mut draft = Draft::default();
    let message = samples::message_id("m");
    let times = Times { created_at: Some(at(1)), completed_at: None };
    let started = MessageEvent::Started {
        message: message.clone(),
        role: trilogue_domain::Role::User,
        times: Some(times),
    };
    draft.push(at(2), &Body::Message(started), None).unwrap();
    let citation = Citation { start_index: Some(-2), end_index: Some(7), ..Citation::default() };
    let part = Part::annotation(PartMetadata::Citation(citation));
    draft.push(at(2), &Body::Message(MessageEvent::Part { message, part }), None).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(
        hex(&frame),
        "030e0112010101080000000425016d00010200240000000422016d0a746578742f706c61696e0000010001feffffffffffffffff01010700000000b14a6644"
    );
}

/// What version 3 writes as version 2 did not.
#[test]
fn the_bytes_of_what_version_3_brought_are_these() {
    let mut draft = Draft::default();
    let output = StateEvent::Output(samples::json("{\"n\":1}"));
    draft.push(at(2), &Body::State(output), None).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(hex(&frame), "030e01120100010a0000000453077b226e223a317d1ad64ac2");
}

/// The bytes are what version 2 wrote, and stay.
#[test]
fn frames_of_version_2_are_read() {
    let frame = written(
        "020e0112010101080000000425016d00010200240000000422016d0a746578742f706c61696e0000010001feffffffffffffffff0101070000000005c72770",
        (1, 2, 1),
    );
    let message = samples::message_id("m");
    let role = trilogue_domain::Role::User;
    let times = Some(Times { created_at: Some(at(1)), completed_at: None });
    let started = MessageEvent::Started { message: message.clone(), role, times };
    let citation = Citation { start_index: Some(-2), end_index: Some(7), ..Citation::default() };
    let part = Part::annotation(PartMetadata::Citation(citation));
    let bodies: Vec<_> = frame.events().unwrap().iter().map(|event| event.body.clone()).collect();
    assert_eq!(bodies, [started, MessageEvent::Part { message, part }].map(Body::Message));
}

/// A frame of these bytes with these numbers: the first, the last, and the first of its run.
fn written(hex: &str, (first, last, first_run): (u64, u64, u64)) -> Frame {
    let digits = hex.as_bytes().chunks_exact(2);
    let bytes: Vec<u8> = digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    Frame::from_stored(THREAD, RUN, first, last, first_run, bytes.into(), &reader()).unwrap()
}

/// The bytes are what version 1 wrote, and stay.
#[test]
fn frames_of_version_1_are_read() {
    let frame = written(
        "010e0112ac0202020400000080897a110800000082897a21016d6869080000000100000164017b7ddf3b9313",
        (300, 302, 2),
    );
    let events = frame.events().unwrap();
    let bodies: Vec<_> = events.iter().map(|event| event.body.clone()).collect();
    assert_eq!(bodies, [Body::Run(RunEvent::Started), delta("m", "hi"), Body::Opaque]);
    assert_eq!(events[1].at, at(1_000_001));
    assert_eq!((events[2].number, events[2].run_number), (302, 4));
    assert_eq!(events[2].original.as_ref().map(|original| &*original.dialect), Some("d"));

    let frame = written(
        "010e0112010101050000000420016d001d0000000422016d0a746578742f706c61696e0000010001ac0201ad0200000000526ecb84",
        (1, 2, 1),
    );
    let message = samples::message_id("m");
    let role = trilogue_domain::Role::User;
    let started = MessageEvent::Started { message: message.clone(), role, times: None };
    let citation = Citation { start_index: Some(300), end_index: Some(301), ..Citation::default() };
    let part = Part::annotation(PartMetadata::Citation(citation));
    let bodies: Vec<_> = frame.events().unwrap().iter().map(|event| event.body.clone()).collect();
    assert_eq!(bodies, [started, MessageEvent::Part { message, part }].map(Body::Message));
}

#[test]
fn a_frame_in_another_place_is_noticed() {
    let frame = full_frame();
    let bytes = || frame.bytes().clone();
    let (first, last) = (frame.first(), frame.last());
    let reader = reader();
    let read = |thread, run, first, last, first_run| {
        Frame::from_stored(thread, run, first, last, first_run, bytes(), &reader)
            .map_err(|error| error.code())
            .map(|_| ())
    };
    assert_eq!(read(THREAD, RUN, first, last, 3), Ok(()));
    let wrong = Err(Code::ThreadQuarantined);
    assert_eq!(read(ThreadKey(8), RUN, first, last, 3), wrong);
    assert_eq!(read(THREAD, Some(RunKey(1)), first, last, 3), wrong);
    assert_eq!(read(THREAD, None, first, last, 0), wrong);
    assert_eq!(read(THREAD, RUN, first + 1, last + 1, 3), wrong);
    assert_eq!(read(THREAD, RUN, first, last + 1, 3), wrong);
    assert_eq!(read(THREAD, RUN, first, last, 4), wrong);
}

#[test]
fn every_flipped_bit_and_every_truncation_is_noticed() {
    let frame = full_frame();
    let bytes = frame.bytes();
    for length in 0..bytes.len() {
        assert!(stored(&frame, bytes.slice(..length)).is_err(), "cut at {length}");
    }
    for index in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.to_vec();
            flipped[index] ^= 1 << bit;
            let error = stored(&frame, flipped.into()).unwrap_err();
            assert_eq!(error.code(), Code::ThreadQuarantined, "bit {bit} of byte {index}");
        }
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(stored(&frame, longer.into()).is_err());
}

/// Bytes with a version, the header of `full_frame` and a checksum that matches.
fn checked(version: u8, frame: &Frame, records: &[u8]) -> Bytes {
    let mut out = vec![version];
    frame.header.put(&mut out);
    out.extend_from_slice(records);
    put_checksum(&mut out);
    out.into()
}

#[test]
fn another_version_is_refused() {
    let frame = full_frame();
    for version in [0, FORMAT_VERSION + 1] {
        let error = stored(&frame, checked(version, &frame, b"")).unwrap_err();
        assert_eq!(error.code(), Code::ThreadQuarantined);
    }
}

proptest! {
    #[test]
    fn the_decoder_never_panics(records in proptest::collection::vec(any::<u8>(), 0..512)) {
        let frame = full_frame();
        let _ = stored(&frame, Bytes::from(records.clone()));
        let read = stored(&frame, checked(FORMAT_VERSION, &frame, &records)).unwrap();
        prop_assert!(read.events().is_err(), "random bytes are not {} events", frame.last());
    }

    /// Damage behind a checksum that matches: whatever is read, nothing panics.
    #[test]
    fn the_decoder_survives_changed_records(index in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let frame = full_frame();
        let mut bytes = frame.bytes().to_vec();
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        let index = index.index(bytes.len());
        bytes[index] = byte;
        put_checksum(&mut bytes);
        if let Ok(read) = stored(&frame, bytes.into()) {
            let _ = read.events();
        }
    }

    #[test]
    fn text_reads_back_however_it_was_cut(texts in proptest::collection::vec(".{0,40}", 0..40)) {
        let mut draft = Draft::default();
        for text in &texts {
            draft.push(at(1), &delta("m", text), None).unwrap();
        }
        let mut read = String::new();
        for frame in draft.seal(THREAD, RUN, 1, 1, &reader()) {
            for event in frame.events().unwrap() {
                let Body::Message(MessageEvent::Delta { text, .. }) = &event.body else {
                    panic!("{event:?}");
                };
                read.push_str(text);
            }
        }
        prop_assert_eq!(read, texts.concat());
    }
}
