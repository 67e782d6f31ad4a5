//! The frames between a server and a holder: a byte for the kind, the length of the payload as a little-endian `u32`, and the payload.
//!
//! Encoding and decoding do no input or output, so both sides share them. Both sides keep to the limits: a frame beyond them is an [`InvalidFrame`] for the receiver.

use std::error::Error;
use std::fmt;

/// The version of the frames. A server only uses a holder of its own version.
pub const HOLDER_VERSION: u16 = 1;
/// The largest payload of a frame, in bytes: an input of 32 MiB with its label.
pub const MAX_PAYLOAD_BYTES: usize = 32 * 1024 * 1024 + 1024;
/// The longest label of an input, in bytes.
pub const MAX_LABEL_BYTES: usize = 128;
/// The number of labels that a holder keeps.
pub const MAX_LABELS: usize = 32_768;
/// The largest note, in bytes.
pub const MAX_NOTE_BYTES: usize = 4 * 1024 * 1024;
/// The longest secret, in bytes.
pub const MAX_SECRET_BYTES: usize = 256;

/// The kind and the length of a payload.
pub(super) const HEADER_BYTES: usize = 5;
const ATTACH: u8 = 1;
const INPUT: u8 = 2;
const END_INPUT: u8 = 3;
const MARK: u8 = 4;
const NOTE: u8 = 5;
const ORPHAN_TIME: u8 = 6;
const TAKE_BROKER: u8 = 7;
const STATE: u8 = 129;
const OUTPUT: u8 = 130;
const ERRORS: u8 = 131;
const OUTPUT_END: u8 = 132;
const EXIT: u8 = 133;

/// A frame from a server to a holder.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerFrame {
    /// Proves that the server may use the holder. The first frame of a connection. A holder of another version answers with its own in an empty state, and closes the connection.
    Attach { version: u16, secret: String },
    /// Writes bytes to the agent's standard input, and adds a label to those that the holder keeps. An empty label is not kept.
    Input { label: String, bytes: Vec<u8> },
    /// Closes the agent's standard input after what was written to it.
    EndInput,
    /// Drops the output before an offset, and all labels: no later server needs them.
    Mark { offset: u64 },
    /// Replaces the note, which the holder keeps for the next server.
    Note(Vec<u8>),
    /// Sets how long the agent works without a server, in milliseconds.
    OrphanTime { ms: u64 },
    /// Asks for the listener of the broker. The only frame of a connection of its own, which replaces no attached server. The holder answers with a
    /// [`PassedListener`](crate::broker::PassedListener) if it has one, and closes the connection, as one does that does not know this frame.
    TakeBroker { secret: String },
}

/// A frame from a holder to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HolderFrame {
    /// What the holder keeps: the answer to [`ServerFrame::Attach`]. The output follows from `kept_from`. Earlier servers may have got the output before `seen_to`.
    State {
        version: u16,
        kept_from: u64,
        seen_to: u64,
        /// Whether there were more labels than a holder keeps, so that the turn cannot be continued.
        has_lost_labels: bool,
        labels: Vec<String>,
        note: Vec<u8>,
    },
    /// A part of the agent's standard output. The offset counts from its first byte.
    Output { offset: u64, bytes: Vec<u8> },
    /// A part of the agent's standard error.
    Errors(Vec<u8>),
    /// The agent's standard output has ended at this offset.
    OutputEnd { offset: u64 },
    /// The agent has exited, with a status as `waitpid` returns it. The last frame.
    Exit { status: i32 },
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidFrame {
    /// The receiver knows no such kind.
    UnknownKind(u8),
    /// The payload has this number of bytes, which is above the limit.
    TooLarge(u32),
    /// The payload does not fit the kind.
    Payload(u8),
}

/// The frames of one direction.
pub(super) trait Decode: Sized {
    const KINDS: &[u8];

    /// Returns the frame, or `None` if the payload does not fit the kind.
    fn decode(kind: u8, payload: Vec<u8>) -> Option<Self>;
}

/// The part of a payload that is not decoded yet.
struct Fields<'a>(&'a [u8]);

// === impl ServerFrame ===

impl ServerFrame {
    /// Returns the bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Attach { version, secret } => {
                frame(ATTACH, &[&version.to_le_bytes(), secret.as_bytes()])
            }
            Self::Input { label, bytes } => {
                frame(INPUT, &[&length(label.len()), label.as_bytes(), bytes])
            }
            Self::EndInput => frame(END_INPUT, &[]),
            Self::Mark { offset } => frame(MARK, &[&offset.to_le_bytes()]),
            Self::Note(note) => frame(NOTE, &[note]),
            Self::OrphanTime { ms } => frame(ORPHAN_TIME, &[&ms.to_le_bytes()]),
            Self::TakeBroker { secret } => frame(TAKE_BROKER, &[secret.as_bytes()]),
        }
    }
}

impl Decode for ServerFrame {
    const KINDS: &[u8] = &[ATTACH, INPUT, END_INPUT, MARK, NOTE, ORPHAN_TIME, TAKE_BROKER];

    fn decode(kind: u8, mut payload: Vec<u8>) -> Option<Self> {
        let mut fields = Fields(&payload);
        let frame = match kind {
            ATTACH => {
                let version = u16::from_le_bytes(fields.array()?);
                Self::Attach { version, secret: fields.rest_as_text(MAX_SECRET_BYTES)? }
            }
            INPUT => {
                let label = fields.label()?;
                let start = payload.len() - fields.0.len();
                // The payload itself becomes the input, which can be large.
                payload.drain(..start);
                return Some(Self::Input { label, bytes: payload });
            }
            END_INPUT => Self::EndInput,
            MARK => Self::Mark { offset: u64::from_le_bytes(fields.array()?) },
            NOTE => Self::Note(fields.rest(MAX_NOTE_BYTES)?),
            ORPHAN_TIME => Self::OrphanTime { ms: u64::from_le_bytes(fields.array()?) },
            TAKE_BROKER => Self::TakeBroker { secret: fields.rest_as_text(MAX_SECRET_BYTES)? },
            _ => return None,
        };
        fields.0.is_empty().then_some(frame)
    }
}

impl fmt::Debug for ServerFrame {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attach { version, .. } => {
                f.debug_struct("Attach").field("version", version).finish_non_exhaustive()
            }
            Self::Input { label, bytes } => {
                f.debug_struct("Input").field("label", label).field("bytes", bytes).finish()
            }
            Self::EndInput => f.write_str("EndInput"),
            Self::Mark { offset } => f.debug_struct("Mark").field("offset", offset).finish(),
            Self::Note(note) => f.debug_tuple("Note").field(note).finish(),
            Self::OrphanTime { ms } => f.debug_struct("OrphanTime").field("ms", ms).finish(),
            Self::TakeBroker { .. } => f.write_str("TakeBroker"),
        }
    }
}

// === impl HolderFrame ===

impl HolderFrame {
    /// Returns the bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::State { version, kept_from, seen_to, has_lost_labels, labels, note } => {
                let mut list = Vec::new();
                for label in labels {
                    list.extend(length(label.len()));
                    list.extend(label.as_bytes());
                }
                let version = version.to_le_bytes();
                let [kept_from, seen_to] = [kept_from, seen_to].map(|offset| offset.to_le_bytes());
                frame(
                    STATE,
                    &[
                        &version,
                        &kept_from,
                        &seen_to,
                        &[u8::from(*has_lost_labels)],
                        &length(labels.len()),
                        &list,
                        note,
                    ],
                )
            }
            Self::Output { offset, bytes } => frame(OUTPUT, &[&offset.to_le_bytes(), bytes]),
            Self::Errors(bytes) => frame(ERRORS, &[bytes]),
            Self::OutputEnd { offset } => frame(OUTPUT_END, &[&offset.to_le_bytes()]),
            Self::Exit { status } => frame(EXIT, &[&status.to_le_bytes()]),
        }
    }
}

impl Decode for HolderFrame {
    const KINDS: &[u8] = &[STATE, OUTPUT, ERRORS, OUTPUT_END, EXIT];

    fn decode(kind: u8, payload: Vec<u8>) -> Option<Self> {
        let mut fields = Fields(&payload);
        let frame = match kind {
            STATE => {
                let version = u16::from_le_bytes(fields.array()?);
                let kept_from = u64::from_le_bytes(fields.array()?);
                let seen_to = u64::from_le_bytes(fields.array()?);
                let [has_lost_labels] = fields.array()?;
                let has_lost_labels = has_lost_labels != 0;
                let count = fields.length(MAX_LABELS)?;
                let labels = (0..count).map(|_| fields.label()).collect::<Option<_>>()?;
                let note = fields.rest(MAX_NOTE_BYTES)?;
                Self::State { version, kept_from, seen_to, has_lost_labels, labels, note }
            }
            OUTPUT => {
                let offset = u64::from_le_bytes(fields.array()?);
                Self::Output { offset, bytes: fields.rest(MAX_PAYLOAD_BYTES)? }
            }
            ERRORS => Self::Errors(fields.rest(MAX_PAYLOAD_BYTES)?),
            OUTPUT_END => Self::OutputEnd { offset: u64::from_le_bytes(fields.array()?) },
            EXIT => Self::Exit { status: i32::from_le_bytes(fields.array()?) },
            _ => return None,
        };
        fields.0.is_empty().then_some(frame)
    }
}

fn frame(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let payload = fields.iter().map(|field| field.len()).sum();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + payload);
    bytes.push(kind);
    bytes.extend(length(payload));
    fields.iter().for_each(|field| bytes.extend(*field));
    bytes
}

/// Encodes a length. One beyond the range of the field is also beyond every limit, so the receiver refuses it.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

// === impl Fields ===

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn length(&mut self, max: usize) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok().filter(|length| *length <= max)
    }

    fn label(&mut self) -> Option<String> {
        let length = self.length(MAX_LABEL_BYTES)?;
        let (label, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(str::from_utf8(label).ok()?.to_owned())
    }

    fn rest(&mut self, max_bytes: usize) -> Option<Vec<u8>> {
        let rest = std::mem::take(&mut self.0);
        (rest.len() <= max_bytes).then(|| rest.to_vec())
    }

    fn rest_as_text(&mut self, max_bytes: usize) -> Option<String> {
        String::from_utf8(self.rest(max_bytes)?).ok()
    }
}

// === impl InvalidFrame ===

impl Error for InvalidFrame {}

impl fmt::Display for InvalidFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "unknown kind of frame: {kind}"),
            Self::TooLarge(bytes) => write!(f, "frame too large: {bytes} bytes"),
            Self::Payload(kind) => write!(f, "invalid payload of a frame of kind {kind}"),
        }
    }
}
