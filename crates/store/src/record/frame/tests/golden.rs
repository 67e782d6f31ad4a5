//! The bytes of frames, of this version and of those before.

use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Citation, Part, PartMetadata, Times};

use super::*;

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
        "040e0112ac0202020400000080897a110800000082897a21016d6869080000000100000164017b7d4be167b7"
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
        "040e0112010101080000000425016d00010200240000000422016d0a746578742f706c61696e0000010001feffffffffffffffff01010700000000bdeaa2c9"
    );
}

/// What version 3 writes as version 2 did not.
#[test]
fn the_bytes_of_what_version_3_brought_are_these() {
    let mut draft = Draft::default();
    let output = StateEvent::Output(samples::json("{\"n\":1}"));
    draft.push(at(2), &Body::State(output), None).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(hex(&frame), "040e01120100010a0000000453077b226e223a317d99a77de1");
}

/// What version 4 writes as version 3 did not.
#[test]
fn the_bytes_of_what_version_4_brought_are_these() {
    let mut draft = Draft::default();
    let message = Some(samples::message_id("m"));
    let call = tool_call(message);
    draft.push(at(2), &call, None).unwrap();
    let original =
        Original { dialect: "shout".into(), version: 2, bytes: Bytes::from_static(b"hi") };
    draft.push(at(2), &call, Some(&original)).unwrap();
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(
        hex(&frame),
        "040e011201010111000000043003632d310174015401027b7d01016d1200000004000403632d31016d0573686f7574026869c05cc042"
    );
}

/// Likewise of answers: those that carry nothing beyond themselves are what they were.
#[test]
fn the_bytes_of_answers_are_these() {
    let mut draft = Draft::default();
    let interrupt = samples::interrupt_id("i");
    for resolution in &samples::resolutions()[..2] {
        let (interrupt, resolution) = (interrupt.clone(), resolution.clone());
        let resolved = InterruptEvent::Resolved { interrupt, resolution };
        draft.push(at(2), &Body::Interrupt(resolved), None).unwrap();
    }
    let frame = draft.seal(THREAD, RUN, 1, 1, &reader()).remove(0);
    assert_eq!(
        hex(&frame),
        "040e01120101010f0000000441016900017000017904303066661c0000000441016904017000017904303066660c7b22776879223a312e35307da74f2fee"
    );
}

/// The bytes are what version 3 wrote, and stay.
#[test]
fn frames_of_version_3_are_read() {
    let frame = written("030e01120100010e000000043003632d310174015401027b7dd3fc1da8", (1, 1, 1));
    assert_eq!(frame.events().unwrap()[0].body, tool_call(None));
    let frame = written("030e01120100010a0000000453077b226e223a317d1ad64ac2", (1, 1, 1));
    let output = StateEvent::Output(samples::json("{\"n\":1}"));
    assert_eq!(frame.events().unwrap()[0].body, Body::State(output));
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
