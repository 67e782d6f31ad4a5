//! The bytes of frames.

use trilogue_domain::event::InterruptEvent;
use trilogue_domain::{Citation, Part, PartMetadata, Times};

use super::*;

/// Records of one frame: when, what, and what a peer sent.
type Records = Vec<(i64, Body, Option<Original>)>;

fn original(dialect: &str, bytes: &'static [u8], version: u32) -> Option<Original> {
    Some(Original { dialect: dialect.into(), version, bytes: Bytes::from_static(bytes) })
}

fn texts_and_an_original() -> Records {
    vec![
        (1_000_000, Body::Run(RunEvent::Started), None),
        (1_000_001, delta("m", "hi"), None),
        (-1, Body::Opaque, original("d", b"{}", 1)),
    ]
}

fn a_message_with_times_and_a_citation() -> Records {
    let message = samples::message_id("m");
    let times = Times { created_at: Some(at(1)), completed_at: None };
    let started = MessageEvent::Started {
        message: message.clone(),
        role: trilogue_domain::Role::User,
        times: Some(times),
    };
    let citation = Citation { start_index: Some(-2), end_index: Some(7), ..Citation::default() };
    let part = Part::annotation(PartMetadata::Citation(citation));
    let part = MessageEvent::Part { message, part };
    vec![(2, Body::Message(started), None), (2, Body::Message(part), None)]
}

fn an_output() -> Records {
    vec![(2, Body::State(StateEvent::Output(samples::json("{\"n\":1}"))), None)]
}

fn tool_calls_of_a_message() -> Records {
    let call = tool_call(Some(samples::message_id("m")));
    vec![(2, call.clone(), None), (2, call, original("shout", b"hi", 2))]
}

fn answers() -> Records {
    let resolved = samples::resolutions().into_iter().take(2).map(|resolution| {
        let interrupt = samples::interrupt_id("i");
        Body::Interrupt(InterruptEvent::Resolved { interrupt, resolution })
    });
    resolved.map(|body| (2, body, None)).collect()
}

/// A failure here means that the format changed: give it a new version and keep the decoder of this one.
#[test]
fn the_bytes_of_a_frame_are_these() {
    for (records, first, first_run, expected) in [
        (
            texts_and_an_original(),
            300,
            2,
            "010e0112ac0202020400000080897a110800000082897a21016d6869080000000100000164017b7ddf3b9313",
        ),
        (
            a_message_with_times_and_a_citation(),
            1,
            1,
            "010e0112010101090000000420016d0001010200240000000422016d0a746578742f706c61696e0000010001feffffffffffffffff01010700000000a4a67d5e",
        ),
        (an_output(), 1, 1, "010e01120100010a0000000453077b226e223a317dc02d5ed8"),
        (
            tool_calls_of_a_message(),
            1,
            1,
            "010e011201010111000000043003632d310174015401027b7d01016d1200000004000403632d31016d0573686f7574026869bee8fb2a",
        ),
        (
            answers(),
            1,
            1,
            "010e011201010110000000044101690001700001790430306666001d000000044101690001700001790430306666010c7b22776879223a312e35307da1816372",
        ),
    ] {
        let mut draft = Draft::default();
        for (micros, body, original) in &records {
            draft.push(at(*micros), body, original.as_ref()).unwrap();
        }
        let frame = draft.seal(THREAD, RUN, first, first_run, &reader()).remove(0);
        assert_eq!(hex(&frame), expected);
    }
}
