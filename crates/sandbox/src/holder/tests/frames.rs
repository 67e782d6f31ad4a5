//! Frames as bytes.

use crate::holder::{
    FrameReader, HolderFrame, InvalidFrame, MAX_LABEL_BYTES, MAX_LABELS, MAX_NOTE_BYTES,
    MAX_PAYLOAD_BYTES, ServerFrame,
};

fn server_frames() -> Vec<ServerFrame> {
    vec![
        ServerFrame::Attach { version: 1, secret: "ab".repeat(32) },
        ServerFrame::Attach { version: u16::MAX, secret: String::new() },
        ServerFrame::Input { label: "request 7 ü".to_owned(), bytes: b"{}\n".to_vec() },
        ServerFrame::Input { label: "l".repeat(MAX_LABEL_BYTES), bytes: Vec::new() },
        ServerFrame::Input { label: String::new(), bytes: vec![0xff; 200_000] },
        ServerFrame::EndInput,
        ServerFrame::Mark { offset: u64::MAX },
        ServerFrame::OrphanTime { ms: 600_000 },
        ServerFrame::TakeBroker { secret: "ab".repeat(32) },
        ServerFrame::Note(Vec::new()),
        ServerFrame::Note(vec![7; 1000]),
    ]
}

fn holder_frames() -> Vec<HolderFrame> {
    let labels = vec!["a".to_owned(), String::new(), "ü".repeat(MAX_LABEL_BYTES / 2)];
    vec![
        HolderFrame::State {
            version: 1,
            kept_from: 1 << 40,
            seen_to: 1 << 41,
            has_lost_labels: true,
            labels,
            note: b"note".to_vec(),
        },
        HolderFrame::State {
            version: 0,
            kept_from: 0,
            seen_to: 0,
            has_lost_labels: false,
            labels: Vec::new(),
            note: Vec::new(),
        },
        HolderFrame::Output { offset: 3, bytes: vec![1; 70_000] },
        HolderFrame::Output { offset: 3, bytes: Vec::new() },
        HolderFrame::Errors(b"failed".to_vec()),
        HolderFrame::OutputEnd { offset: 9 },
        HolderFrame::Exit { status: -1 },
    ]
}

#[test]
fn frames_survive_the_way_in_parts_of_every_size() {
    let sent = server_frames();
    let bytes: Vec<u8> = sent.iter().flat_map(ServerFrame::encode).collect();
    for size in [1, 2, 7, 100, 4096, 65_536, bytes.len()] {
        let mut reader = FrameReader::new();
        let mut received = Vec::new();
        for part in bytes.chunks(size) {
            reader.push(part);
            while let Some(frame) = reader.next_server_frame().unwrap() {
                received.push(frame);
            }
        }
        assert!(received == sent, "in parts of {size} bytes");
    }
    let sent = holder_frames();
    let mut reader = FrameReader::new();
    sent.iter().for_each(|frame| reader.push(&frame.encode()));
    for frame in sent {
        assert!(reader.next_holder_frame().unwrap() == Some(frame));
    }
    assert!(reader.next_holder_frame().unwrap().is_none());
}

#[test]
fn a_frame_cut_at_any_byte_is_incomplete() {
    for frame in holder_frames() {
        let bytes = frame.encode();
        let step = 1 + bytes.len() / 2000;
        for cut in (0..bytes.len()).step_by(step) {
            let mut reader = FrameReader::new();
            reader.push(&bytes[..cut]);
            assert!(reader.next_holder_frame().unwrap().is_none(), "cut at {cut}");
            reader.push(&bytes[cut..]);
            assert!(reader.next_holder_frame().unwrap().as_ref() == Some(&frame));
        }
    }
}

#[test]
fn a_shorter_payload_is_a_shorter_frame_or_invalid() {
    for frame in server_frames() {
        let bytes = frame.encode();
        let step = 1 + bytes.len() / 500;
        for length in (0..bytes.len() - 5).step_by(step) {
            let mut cut = vec![bytes[0]];
            cut.extend(u32::try_from(length).unwrap().to_le_bytes());
            cut.extend(&bytes[5..5 + length]);
            let mut reader = FrameReader::new();
            reader.push(&cut);
            match reader.next_server_frame() {
                Ok(read) => assert_eq!(read.unwrap().encode(), cut),
                Err(error) => assert_eq!(error, InvalidFrame::Payload(bytes[0])),
            }
        }
    }
}

#[test]
fn what_is_no_frame_stays_an_error() {
    let raw = |kind: u8, length: u32, payload: &[u8]| {
        [&[kind][..], &length.to_le_bytes(), payload].concat()
    };
    let too_large = u32::try_from(MAX_PAYLOAD_BYTES + 1).unwrap();
    let note = vec![0; MAX_NOTE_BYTES + 1];
    let label = ServerFrame::Input { label: "l".repeat(MAX_LABEL_BYTES + 1), bytes: Vec::new() };
    let cases = [
        // Before the length is there.
        (vec![0], InvalidFrame::UnknownKind(0)),
        // A frame of the other direction.
        (HolderFrame::Errors(Vec::new()).encode(), InvalidFrame::UnknownKind(131)),
        // Before the payload is there.
        (raw(2, too_large, &[]), InvalidFrame::TooLarge(too_large)),
        (raw(2, u32::MAX, &[]), InvalidFrame::TooLarge(u32::MAX)),
        (raw(1, 1, &[1]), InvalidFrame::Payload(1)),
        (raw(1, 3, &[1, 0, 0xff]), InvalidFrame::Payload(1)),
        (raw(2, 4, &[1, 0, 0, 0]), InvalidFrame::Payload(2)),
        (raw(2, 5, &[1, 0, 0, 0, 0xff]), InvalidFrame::Payload(2)),
        (label.encode(), InvalidFrame::Payload(2)),
        (raw(3, 1, &[0]), InvalidFrame::Payload(3)),
        (raw(4, 9, &[0; 9]), InvalidFrame::Payload(4)),
        (ServerFrame::Note(note).encode(), InvalidFrame::Payload(5)),
    ];
    for (bytes, expected) in cases {
        let mut reader = FrameReader::new();
        reader.push(&bytes);
        assert_eq!(reader.next_server_frame(), Err(expected));
        reader.push(&ServerFrame::EndInput.encode());
        assert_eq!(reader.next_server_frame(), Err(expected));
    }
}

#[test]
fn a_state_has_at_most_the_labels_that_a_holder_keeps() {
    let state = |count| {
        let labels = vec!["l".repeat(MAX_LABEL_BYTES); count];
        let state = HolderFrame::State {
            version: 1,
            kept_from: 0,
            seen_to: 0,
            has_lost_labels: false,
            labels,
            note: Vec::new(),
        };
        let mut reader = FrameReader::new();
        reader.push(&state.encode());
        reader.next_holder_frame()
    };
    assert!(state(MAX_LABELS).unwrap().is_some());
    assert_eq!(state(MAX_LABELS + 1), Err(InvalidFrame::Payload(129)));
}

#[test]
fn a_reader_can_have_a_smaller_limit() {
    let note = ServerFrame::Note(vec![0; 100]);
    let mut reader = FrameReader::with_limit(99);
    reader.push(&note.encode());
    assert_eq!(reader.next_server_frame(), Err(InvalidFrame::TooLarge(100)));
    let mut reader = FrameReader::with_limit(99);
    reader.push(&note.encode());
    reader.lift_limit();
    assert_eq!(reader.next_server_frame(), Ok(Some(note)));
}

#[test]
fn the_largest_input_is_one_frame() {
    let bytes = vec![1; 32 * 1024 * 1024];
    let input = ServerFrame::Input { label: "l".repeat(MAX_LABEL_BYTES), bytes };
    let mut reader = FrameReader::new();
    for part in input.encode().chunks(65_536) {
        assert!(reader.next_server_frame().unwrap().is_none());
        reader.push(part);
    }
    assert!(reader.next_server_frame().unwrap() == Some(input));
}

#[test]
fn a_secret_is_not_in_the_text_of_a_frame() {
    let attach = ServerFrame::Attach { version: 1, secret: "s3cret".to_owned() };
    assert_eq!(format!("{attach:?}"), "Attach { version: 1, .. }");
    let mut reader = FrameReader::new();
    reader.push(&attach.encode());
    assert!(!format!("{reader:?}").contains("115"));
}
