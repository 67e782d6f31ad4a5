mod golden;

use proptest::prelude::*;
use trilogue_domain::event::{Body, MessageEvent, Original, RunEvent, StateEvent, ToolEvent};
use trilogue_domain::{Content, MessageId, Part, limits};

use super::*;
use crate::record::samples;
use crate::record::{Draft, FORMAT_VERSION, NoOriginals, OUTLINED_VERSION};

const THREAD: ThreadKey = ThreadKey(7);
const RUN: Option<RunKey> = Some(RunKey(9));

/// A dialect whose originals are the text of a delta. Originals with a leading `!` belong to another dialect.
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

fn tool_call(message: Option<MessageId>) -> Body {
    Body::Tool(ToolEvent::Started {
        call: "c-1".to_owned(),
        tool: "t".to_owned(),
        title: "T".to_owned(),
        input: Some(samples::json("{}")),
        message,
    })
}

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
fn what_is_read_back_at_once_is_what_would_be_decoded() {
    let mut draft = Draft::read_back();
    for (micros, body) in (1_700_000_000_000_000..).zip(samples::bodies()) {
        // Text that arrives in several pieces is stored as one event.
        draft.push(at(micros), &body, None).unwrap();
    }
    let mut joined = Draft::read_back();
    joined.push(at(1), &delta("m", "once"), None).unwrap();
    joined.join(draft);
    for run in [RUN, None] {
        for frame in joined.clone().seal(THREAD, run, 11, 3, &reader()) {
            assert_eq!(frame.events().unwrap(), frame.undecoded().events().unwrap());
        }
    }
    let mut grown = Draft::read_back();
    for text in ["one", " text"] {
        grown.push(at(1), &delta("m", text), None).unwrap();
    }
    let [frame] = &grown.seal(THREAD, None, 1, 0, &reader())[..] else { panic!("one frame") };
    assert_eq!(frame.events().unwrap().len(), 1);
    assert_eq!(frame.events().unwrap(), frame.undecoded().events().unwrap());
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

/// A dialect that reads every original as the start of a tool call.
#[derive(Debug)]
struct Calls;

impl ReadOriginal for Calls {
    fn read(&self, _original: &Original) -> Result<Body> {
        Ok(tool_call(None))
    }
}

/// A dialect that reads every original as the content of a tool call.
#[derive(Debug)]
struct Contents;

impl ReadOriginal for Contents {
    fn read(&self, _original: &Original) -> Result<Body> {
        Ok(contents([Content::Text("small".into()), Content::Text("large".into())]))
    }
}

fn contents(contents: [Content; 2]) -> Body {
    let content = contents.into_iter().map(|content| Part::new("text/plain", content)).collect();
    Body::Tool(ToolEvent::Updated { call: "c".to_owned(), content })
}

#[test]
fn an_original_keeps_its_content_beside_the_blobs_of_its_event() {
    let reader: Arc<dyn ReadOriginal> = Arc::new(Contents);
    let original = Original { dialect: "d".into(), version: 1, bytes: Bytes::from_static(b"{}") };
    let outlined = contents([Content::Text("small".into()), Content::Blob(samples::blob())]);
    let mut draft = Draft::default();
    draft.push(at(1), &outlined, Some(&original)).unwrap();
    assert_eq!(draft.blobs(), [samples::blob()], "the run owns the blob");
    let mut joined = Draft::default();
    joined.push(at(1), &delta("m", "x"), None).unwrap();
    joined.join(draft);
    let frame = joined.seal(THREAD, RUN, 1, 1, &reader).remove(0);
    // Older programs must not read such a frame, and read all others.
    assert_eq!(frame.bytes()[0], OUTLINED_VERSION);
    assert_eq!(full_frame().bytes()[0], FORMAT_VERSION);
    let read = stored(&frame, frame.bytes().clone()).unwrap();
    let read = Frame { reader: Arc::clone(&reader), ..read };
    let event = &read.events().unwrap()[1];
    assert_eq!((&event.body, event.original.as_ref()), (&outlined, Some(&original)));
    let raw = read.raw().unwrap().nth(1).unwrap().unwrap();
    let raw = raw.original.unwrap();
    assert_eq!((raw.call, raw.bytes), (Some("c"), original.bytes));
}

#[test]
fn the_head_of_an_original_keeps_the_message_of_a_tool_call() {
    let calls: Arc<dyn ReadOriginal> = Arc::new(Calls);
    let original = Original { dialect: "d".into(), version: 1, bytes: Bytes::from_static(b"{}") };
    let bodies = [tool_call(Some(samples::message_id("m"))), tool_call(None)];
    let mut draft = Draft::default();
    for body in &bodies {
        draft.push(at(1), body, Some(&original)).unwrap();
    }
    let frame = draft.seal(THREAD, RUN, 1, 1, &calls).remove(0);
    let read: Vec<_> = frame.events().unwrap().iter().map(|event| event.body.clone()).collect();
    assert_eq!(read, bodies);
}

#[test]
fn a_frame_gives_its_records_without_reading_what_originals_say() {
    /// A dialect that must not be called.
    #[derive(Debug)]
    struct Unread;

    impl ReadOriginal for Unread {
        fn read(&self, original: &Original) -> Result<Body> {
            panic!("{original:?} was read");
        }
    }

    let unread: Arc<dyn ReadOriginal> = Arc::new(Unread);
    let original = |bytes: &'static [u8]| Original {
        dialect: "shout".into(),
        version: 2,
        bytes: Bytes::from_static(bytes),
    };
    let mut draft = Draft::default();
    draft.push(at(1), &delta("m", "x"), Some(&original(b"one"))).unwrap();
    draft.push(at(2), &delta("m", "plain"), None).unwrap();
    draft.push(at(3), &tool_call(Some(samples::message_id("m"))), Some(&original(b""))).unwrap();
    draft.push(at(4), &Body::Opaque, Some(&original(b"four"))).unwrap();
    let frame = draft.seal(THREAD, RUN, 7, 3, &unread).remove(0);
    let records: Vec<_> = frame.raw().unwrap().map(std::result::Result::unwrap).collect();
    let numbers: Vec<_> =
        records.iter().map(|one| (one.number, one.run_number, one.at.as_micros())).collect();
    assert_eq!(numbers, [(7, 3, 1), (8, 4, 2), (9, 5, 3), (10, 6, 4)]);
    let raw = |message, call, bytes: &'static [u8]| RawOriginal {
        dialect: "shout",
        version: 2,
        message,
        call,
        bytes: Bytes::from_static(bytes),
    };
    let originals: Vec<_> = records.iter().map(|record| record.original.clone()).collect();
    let expected = [
        Some(raw(Some("m"), None, b"one")),
        None,
        Some(raw(Some("m"), Some("c-1"), b"")),
        Some(raw(None, None, b"four")),
    ];
    assert_eq!(originals, expected);
    let event = records[1].event().unwrap();
    assert_eq!((event.number, event.run_number, event.run), (8, 4, RUN));
    assert_eq!(event.body, delta("m", "plain"));
}

#[test]
fn raw_records_end_at_damage() {
    let frame = full_frame();
    let records = checked(FORMAT_VERSION, &frame, &[1, 0, 0, 0, 2, 9, 0, 0, 0]);
    let damaged = stored(&frame, records).unwrap();
    let records: Vec<_> = damaged.raw().unwrap().collect();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].as_ref().unwrap_err().code(), Code::ThreadQuarantined);
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
    for version in [0, OUTLINED_VERSION + 1] {
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

    /// Changes records and then fixes the checksum: no read may panic.
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
            let raw = read.raw().into_iter().flatten();
            for record in raw.flatten() {
                let _ = record.event();
            }
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
