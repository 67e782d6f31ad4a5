//! Checks that the decoded lines do not depend on how the bytes were split, that the messages recovered from a line are in it, and that a peer controls neither how much memory is held nor
//! whether reading continues.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trilogue_wire::jsonrpc::{Counts, Decoder, Frame, LinePiece, RecoveredLine, recover};

/// The longest line, in bytes: short, so that lines that are too long come up often.
const MAX_LINE_BYTES: usize = 64;

fuzz_target!(|input: &[u8]| {
    // The first byte says where the rest is split.
    let Some((&step, bytes)) = input.split_first() else { return };
    let (whole, counts) = frames(bytes, bytes.len().max(1));
    let (split, split_counts) = frames(bytes, usize::from(step).max(1));
    assert_eq!(whole, split, "the same bytes, split otherwise");
    assert_eq!(counts.lines, split_counts.lines);
    assert_eq!(counts.noise, split_counts.noise);
    assert_eq!(counts.oversize, split_counts.oversize);
    for frame in &whole {
        match frame {
            Frame::Line(line) | Frame::Noise(line) => {
                assert!(line.len() <= MAX_LINE_BYTES, "a line of {} bytes", line.len());
                assert!(!line.contains(&b'\n'));
                check_recovery(line, recover(line));
            }
            Frame::Oversize(oversize) => assert_eq!(oversize.limit, MAX_LINE_BYTES),
        }
    }
});

/// Checks that the pieces of a line are in it, in order, and that each message can be read.
fn check_recovery(line: &[u8], recovered: Option<RecoveredLine>) {
    let Some(recovered) = recovered else { return };
    assert_eq!(recovered.is_repaired, std::str::from_utf8(line).is_err());
    let text = String::from_utf8_lossy(line);
    let mut rest = &*text;
    for piece in &recovered.pieces {
        let (LinePiece::Message(bytes) | LinePiece::Noise(bytes)) = piece;
        let piece = std::str::from_utf8(bytes).expect("a piece is UTF-8");
        let at = rest.find(piece).expect("a piece is in the line");
        assert!(rest[..at].trim_ascii().is_empty(), "only blanks are left out");
        rest = &rest[at + piece.len()..];
    }
    assert!(recovered.pieces.iter().any(|it| matches!(it, LinePiece::Message(_))));
}

/// Everything that comes out of bytes that arrive in pieces of this size.
fn frames(bytes: &[u8], step: usize) -> (Vec<Frame>, Counts) {
    let mut decoder = Decoder::new(MAX_LINE_BYTES);
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        decoder.push(piece);
        while let Some(frame) = decoder.next() {
            frames.push(frame);
        }
        assert!(decoder.held_bytes() <= MAX_LINE_BYTES + 1, "{} bytes held", decoder.held_bytes());
    }
    frames.extend(decoder.finish());
    (frames, decoder.counts())
}
