//! The limits of the domain, each with its unit.
//!
//! Limits that an operator may change are defaults of an `Options` elsewhere. Limits that persisted data depends on are constants here.

use std::time::Duration;

/// The maximum length of an id, in bytes.
pub const MAX_ID_BYTES: usize = 256;
/// The maximum length of an agent name, in bytes.
pub const MAX_AGENT_NAME_BYTES: usize = 63;
/// The maximum number of parts of one message.
pub const MAX_PARTS_PER_MESSAGE: usize = 1_024;
/// The maximum number of messages in one run's input.
pub const MAX_MESSAGES_PER_INPUT: usize = 256;
/// The maximum nesting of accepted JSON, in levels.
pub const MAX_JSON_DEPTH: usize = 64;
/// The maximum number of events in one frame.
pub const MAX_FRAME_EVENTS: usize = 256;
/// The maximum size of one frame's records, in bytes.
pub const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The maximum size of an event, in bytes of its persisted record. Events with a peer's original have [`MAX_ORIGINAL_BYTES`].
pub const MAX_EVENT_BYTES: usize = 1024 * 1024;
/// The maximum size of an event with a peer's original, and of a question, in bytes of the persisted record: a peer's line of 16 MiB plus our header.
pub const MAX_ORIGINAL_BYTES: usize = 16 * 1024 * 1024 + 64 * 1024;
/// The maximum size of the frames of one append, in bytes. One frame with a single event larger than [`MAX_EVENT_BYTES`] is not counted.
pub const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// The size above which content is stored as a blob, in bytes.
pub const INLINE_CONTENT_BYTES: usize = 64 * 1024;
/// The maximum size of a blob, in bytes.
pub const MAX_BLOB_BYTES: usize = 32 * 1024 * 1024;
/// The default maximum size of a request body, in bytes.
pub const DEFAULT_MAX_BODY_BYTES: usize = 32 * 1024 * 1024;
/// The maximum number of top-level scalars of one metadata object that become search rows.
pub const MAX_SEARCH_KEYS: usize = 64;
/// The maximum number of candidates that a search checks against the conditions without an index.
pub const MAX_SEARCH_CANDIDATES: usize = 10_000;
/// The minimum length of an abbreviated id, in characters. Shorter input may be a typing mistake.
pub const MIN_SHORT_ID_CHARS: usize = 4;
/// The maximum number of ids, newest first, whose last group is compared with an abbreviation.
pub const MAX_SHORT_ID_CANDIDATES: usize = 100_000;
/// The maximum size of the metadata object of a thread or a run, in bytes.
pub const MAX_METADATA_BYTES: usize = 64 * 1024;
/// The maximum length of a title that an agent gives a thread, in characters, including the mark of a cut.
pub const MAX_TITLE_CHARS: usize = 200;
/// The default maximum size of one part's metadata, in bytes of its JSON.
pub const DEFAULT_MAX_PART_METADATA_BYTES: usize = 64 * 1024;
/// The maximum number of entries in a history from a client.
pub const MAX_GIVEN_ENTRIES: usize = 1_000;
/// The maximum length of the address of an entry or a state from a client, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 8 * 1024;
/// The maximum number of bytes that are fetched for the references of one thread.
pub const MAX_FETCHED_BYTES: usize = 32 * 1024 * 1024;
/// The maximum length of an error message or reason from an agent, in bytes. The rest is cut off.
pub const MAX_REASON_BYTES: usize = 4 * 1024;
/// The maximum number of pending interrupts of one run.
pub const MAX_PENDING_INTERRUPTS: usize = 64;
/// The maximum total size of the payloads of one run's pending interrupts, in bytes.
pub const MAX_PENDING_BYTES: usize = 32 * 1024 * 1024;
/// The maximum size of the additional members of an answer, for an asker that uses the same protocol, in bytes.
pub const MAX_ANSWER_EXTRA_BYTES: usize = 64 * 1024;
/// The maximum size of an answer with its additional members, in bytes of its event. The difference leaves room for longer ids.
pub const MAX_ANSWER_BYTES: usize = MAX_EVENT_BYTES - 4 * 1024;
/// The maximum size of the input or answer messages of a run in the log itself, in bytes. One append holds them together with its other events.
pub const MAX_SAID_BYTES: usize = 2 * 1024 * 1024 - 64 * 1024;
/// The maximum number of open messages of a run that are tracked. Further messages become known by id when they begin, not when they complete.
pub const MAX_OPEN_MESSAGES: usize = 1_024;
/// A page of interrupts ends after the item whose payload takes the total above this many bytes.
pub const MAX_PENDING_PAGE_BYTES: usize = 32 * 1024 * 1024;
/// The maximum size of one run's events that a copy of its thread takes over, in bytes.
pub const MAX_COPIED_RUN_BYTES: usize = 256 * 1024 * 1024;
/// The maximum number of runs that wait on one thread.
pub const MAX_QUEUED_RUNS_PER_THREAD: usize = 256;
/// The default maximum length of a chain of runs in which each called the next.
pub const DEFAULT_MAX_CALL_DEPTH: usize = 8;
/// The default maximum number of open child runs of one run.
pub const DEFAULT_MAX_CALLS_PER_RUN: usize = 16;
/// The default maximum number of scheduled runs of one principal that are not due.
pub const DEFAULT_MAX_SCHEDULED_PER_PRINCIPAL: usize = 10_000;
/// The default maximum number of runs of one principal that have not ended.
pub const DEFAULT_MAX_OPEN_RUNS_PER_PRINCIPAL: usize = 20_000;
/// The default maximum number of events that a turn of an agent at another server logs.
pub const DEFAULT_MAX_REMOTE_EVENTS: u64 = 1_000_000;
/// The default maximum number of bytes that a turn of an agent at another server logs.
pub const DEFAULT_MAX_REMOTE_BYTES: usize = 1024 * 1024 * 1024;
/// The maximum number of agents behind other servers that pass a request on, one to the next.
pub const MAX_HOPS: usize = 16;
/// A page of a list ends after the item that takes the total above this many bytes.
pub const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum number of rows in a page of a list.
pub const MAX_PAGE_ROWS: usize = 1_000;
/// The default number of rows in a page of a list.
pub const DEFAULT_PAGE_ROWS: usize = 100;
/// How long an interrupt that survives only in its process waits while no client that may answer is connected.
pub const DEFAULT_INTERRUPT_DEADLINE: Duration = Duration::from_secs(600);
/// The maximum wait of an interrupt with a deadline, even while a client that may answer is connected.
pub const DEFAULT_ATTENDED_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// How long an idempotency key is remembered.
pub const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The smallest number of an error that an agent declares. Smaller numbers belong to the protocol.
pub const FIRST_AGENT_ERROR: u32 = 10_000;
/// The maximum number of errors that an agent declares.
pub const MAX_AGENT_ERRORS: usize = 256;
/// The maximum length of a callback's address, in bytes.
pub const MAX_CALLBACK_URL_BYTES: usize = 64 * 1024;
/// The maximum size of a request that is stored with its run, in bytes.
pub const MAX_KEPT_REQUEST_BYTES: usize = 64 * 1024;
/// The maximum number of unused sign-in links.
pub const MAX_SIGN_IN_LINKS: usize = 1_000;
/// The maximum number of unused sign-in links of one token.
pub const MAX_SIGN_IN_LINKS_PER_TOKEN: usize = 20;
/// The maximum number of schema violations in one error.
pub const MAX_VIOLATIONS: usize = 16;
/// The maximum size of an instance's configuration, in bytes.
pub const MAX_CONFIGURATION_BYTES: usize = 256 * 1024;
/// The maximum time that a run may be scheduled ahead.
pub const MAX_SCHEDULE_AHEAD: Duration = Duration::from_secs(31_536_000);
