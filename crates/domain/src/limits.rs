//! The limits of the vocabulary, each with its unit.
//!
//! Those that an operator may change are defaults of an `Options` elsewhere; those that persisted data depends on are constants here.

use std::time::Duration;

/// The longest id, in bytes.
pub const MAX_ID_BYTES: usize = 256;
/// The longest agent name, in bytes.
pub const MAX_AGENT_NAME_BYTES: usize = 63;
/// The most parts of one message.
pub const MAX_PARTS_PER_MESSAGE: usize = 1_024;
/// The most messages in one run's input.
pub const MAX_MESSAGES_PER_INPUT: usize = 256;
/// The deepest nesting of JSON that we accept, in levels.
pub const MAX_JSON_DEPTH: usize = 64;
/// The most events of one frame.
pub const MAX_FRAME_EVENTS: usize = 256;
/// The most bytes of one frame's records.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The largest event, in bytes of its persisted record; [`MAX_ORIGINAL_BYTES`] for those that carry what a peer sent.
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// The largest event that carries what a peer sent as it came, and the largest question, in bytes of the persisted record: a peer's line of 16 MiB, and our head of it.
pub const MAX_ORIGINAL_BYTES: usize = 16 * 1024 * 1024 + 64 * 1024;
/// The most bytes of the frames of one append, beside one frame of a single event that is larger than [`MAX_EVENT_BYTES`].
pub const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Content above this many bytes is stored as a blob.
pub const INLINE_CONTENT_BYTES: usize = 64 * 1024;
/// The largest blob, in bytes.
pub const MAX_BLOB_BYTES: usize = 32 * 1024 * 1024;
/// The default largest request body, in bytes.
pub const DEFAULT_MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// The most top-level scalars of one metadata object that become search rows.
pub const MAX_SEARCH_KEYS: usize = 64;
/// The most candidates a residual search condition looks at.
pub const MAX_SEARCH_CANDIDATES: usize = 10_000;
/// The shortest abbreviation of an id, in characters: a slip of the hand means nothing.
pub const MIN_SHORT_ID_CHARS: usize = 4;
/// The most ids, the newest by their time, among which an abbreviation is looked for by their last group.
pub const MAX_SHORT_ID_CANDIDATES: usize = 100_000;
/// The largest metadata object of a thread or a run, in bytes.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;
/// The longest title that an agent gives a thread, in characters, the sign that it was cut among them.
pub const MAX_TITLE_CHARS: usize = 200;
/// The largest metadata of one part by default, in bytes of its JSON.
pub const DEFAULT_MAX_PART_METADATA_BYTES: usize = 64 * 1024;
/// The most entries of a history that a client brings.
pub const MAX_GIVEN_ENTRIES: usize = 1_000;
/// The longest address of an entry or a state that a client brings, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 8 * 1024;
/// The most bytes that are fetched for the references of one thread.
pub const MAX_FETCHED_BYTES: usize = 32 * 1024 * 1024;
/// The longest message of an error or reason that an agent gives, in bytes; the rest is cut off.
pub const MAX_REASON_BYTES: usize = 4 * 1024;
/// The most interrupts of one run that are pending at once.
pub const MAX_PENDING_INTERRUPTS: usize = 64;
/// The most bytes that the pending interrupts of one run ask with, in bytes of their payloads.
pub const MAX_PENDING_BYTES: usize = 32 * 1024 * 1024;
/// The most bytes that an answer to an interrupt carries beyond itself, for whoever asked in the same protocol.
pub const MAX_ANSWER_EXTRA_BYTES: usize = 64 * 1024;
/// The largest answer to an interrupt with what it carries beyond itself, in bytes of its event, whose ids may be longer by the rest.
pub const MAX_ANSWER_BYTES: usize = MAX_EVENT_BYTES - 4 * 1024;
/// The most bytes that the messages which a run is given, or answered with, take of the log itself: an append holds them beside what else is in it.
pub const MAX_SAID_BYTES: usize = 2 * 1024 * 1024 - 64 * 1024;
/// The most messages of a run that are remembered as begun and not complete; another is known by its id from its beginning on.
pub const MAX_OPEN_MESSAGES: usize = 1_024;
/// A page of interrupts ends behind the one with which their payloads pass this many bytes.
pub const MAX_PENDING_PAGE_BYTES: usize = 32 * 1024 * 1024;
/// The most bytes of one run's events that a copy of its thread takes over.
pub const MAX_COPIED_RUN_BYTES: usize = 256 * 1024 * 1024;
/// The most runs that wait on one thread for its turn.
pub const MAX_QUEUED_RUNS_PER_THREAD: usize = 256;
/// The most runs of a chain in which each called the next, by default.
pub const DEFAULT_MAX_CALL_DEPTH: usize = 8;
/// The most child runs of one run that have not ended, by default.
pub const DEFAULT_MAX_CALLS_PER_RUN: usize = 16;
/// The most runs of one principal that are scheduled and not due, by default.
pub const DEFAULT_MAX_SCHEDULED_PER_PRINCIPAL: usize = 10_000;
/// The most events that a turn of an agent at another server logs, by default.
pub const DEFAULT_MAX_REMOTE_EVENTS: u64 = 1_000_000;
/// The most bytes that a turn of an agent at another server logs, by default.
pub const DEFAULT_MAX_REMOTE_BYTES: usize = 1024 * 1024 * 1024;
/// The most agents behind other servers that pass a request on, one to the next.
pub const MAX_HOPS: usize = 16;
/// A page of a listing ends behind the item with which it passes this many bytes.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The longest page of a listing, in rows.
pub const MAX_PAGE_ROWS: usize = 1_000;
/// The default page of a listing, in rows.
pub const DEFAULT_PAGE_ROWS: usize = 100;
/// How long an interrupt that survives only in its process waits while nobody who may answer is connected.
pub const DEFAULT_INTERRUPT_DEADLINE: Duration = Duration::from_secs(600);
/// How long an interrupt with a deadline waits at most, also while somebody who may answer is connected.
pub const DEFAULT_ATTENDED_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// How long an idempotency key is remembered.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The smallest number of an error that an agent declares; smaller ones are the protocol's.
pub const FIRST_AGENT_ERROR: u32 = 10_000;
/// The most errors that an agent declares.
pub const MAX_AGENT_ERRORS: usize = 256;
/// The longest address of a callback, in bytes.
pub const MAX_CALLBACK_URL_BYTES: usize = 64 * 1024;
/// The largest request that is kept beside its run, in bytes.
pub const MAX_KEPT_REQUEST_BYTES: usize = 64 * 1024;
/// The most links for signing in a browser that wait to be used.
pub const MAX_SIGN_IN_LINKS: usize = 1_000;
/// The most violations of a schema that one error names.
pub const MAX_VIOLATIONS: usize = 16;
/// The largest configuration of an instance, in bytes.
pub const MAX_CONFIGURATION_BYTES: usize = 256 * 1024;
/// The longest that a run may be scheduled ahead.
pub const MAX_SCHEDULE_AHEAD: Duration = Duration::from_secs(31_536_000);
