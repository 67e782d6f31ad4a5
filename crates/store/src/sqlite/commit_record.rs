//! The newest acknowledged commits, in a file next to the database. The next start compares them with what the write-ahead log gave back.
//!
//! An entry is written after its commit is durable and before any caller learns of the commit. It is never synchronised.
//! So after a power cut the file has older entries than the database, which prove nothing; after a kill it has the newest one.
//! With `buffered`, the file can outlive the commits that it names. The boot id of the system tells such entries apart.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use trilogue_domain::ThreadKey;

use super::commit_position::CommitPosition;
use super::file::sibling_path;
use super::log_scan::{self, LogSalts};
use crate::port::{Batch, Change};

/// Suffix of the store's name.
pub(super) const SUFFIX: &str = ".commits";
const MAGIC: [u8; 4] = *b"TLC1";
/// The size in bytes of an entry, and of the note of moved pages before the entries.
const SLOT_BYTES: usize = 256;
/// The number of entries before the oldest is overwritten.
const ENTRIES: usize = 2_048;
/// The most bytes of a thread's names in an entry. Longer names are left out.
const MAX_NAME_BYTES: usize = 160;

/// The id that the running system got at its start.
pub(super) type BootId = [u8; 16];

/// A thread in an acknowledged commit, or a commit without a thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CommitEntry<'a> {
    /// Counts entries.
    pub(super) sequence: u64,
    /// Counts commits.
    pub(super) commit: u64,
    pub(super) position: CommitPosition,
    /// The log that has the commit, and the log's pages after it.
    pub(super) salts: LogSalts,
    pub(super) pages: u32,
    pub(super) change: Option<ThreadChange<'a>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ThreadChange<'a> {
    pub(super) thread: ThreadKey,
    /// The last number of its log.
    pub(super) last: u64,
    pub(super) is_removal: bool,
    /// Present if the commit wrote the row of a listed thread.
    pub(super) names: Option<ThreadNames<'a>>,
}

/// The names that are needed to list a thread whose rows are lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ThreadNames<'a> {
    pub(super) tenant: Cow<'a, str>,
    pub(super) id: Cow<'a, str>,
    pub(super) owner: Cow<'a, str>,
}

/// The entries that a start finds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RecordedCommits {
    /// In the order of writing.
    pub(super) entries: Vec<CommitEntry<'static>>,
    /// A log, and how many of its pages are known to be in the database.
    pub(super) moved: Option<(LogSalts, u32)>,
}

/// The file, which the writer and the checkpointer share.
#[derive(Debug)]
pub(super) struct RecordFile {
    /// `None` if it could not be created, for example because the disk is full.
    file: Option<File>,
    log: PathBuf,
    boot: BootId,
}

/// The writer's side of the record.
#[derive(Debug)]
pub(super) struct CommitRecord {
    file: Arc<RecordFile>,
    /// The log's file, once it exists.
    log: Option<File>,
    sequence: u64,
    commit: u64,
    is_durable: bool,
    has_failed: bool,
    /// The thread whose names are in each entry.
    named: Vec<Option<ThreadKey>>,
    buffer: Vec<u8>,
}

/// Reads the record of a store. If the file is missing or unreadable, the record is empty.
pub(super) fn read(path: &Path, boot: BootId) -> RecordedCommits {
    let bytes = match std::fs::read(sibling_path(path, SUFFIX)) {
        Ok(bytes) => bytes,
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::warn!(%error, "the record of acknowledged commits cannot be read");
            }
            return RecordedCommits::default();
        }
    };
    let mut slots = bytes.chunks_exact(SLOT_BYTES);
    let moved = slots.next().and_then(|slot| decode_moved(slot, boot));
    let mut entries: Vec<_> = slots.filter_map(|slot| decode(slot, boot)).collect();
    // The file is a ring: its order is not that of writing.
    entries.sort_unstable_by_key(|entry: &CommitEntry<'_>| entry.sequence);
    RecordedCommits { entries, moved }
}

/// Removes the record of a store that another store replaces.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(sibling_path(path, SUFFIX)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The boot id of the system. Zeros if the system has none.
pub(super) fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

// === impl RecordFile ===

impl RecordFile {
    pub(super) fn open(path: &Path, boot: BootId) -> Self {
        let file = try_open(&sibling_path(path, SUFFIX)).inspect_err(|error| {
            tracing::warn!(%error, "no record of acknowledged commits is kept: a damaged log may lose some unnoticed");
        });
        Self { file: file.ok(), log: sibling_path(path, "-wal"), boot }
    }

    /// The current salts of the log.
    pub(super) fn log_salts(&self) -> Option<LogSalts> {
        log_scan::salts(&File::open(&self.log).ok()?)
    }

    /// Notes how many pages of a log are in the database. `before` has the salts from before the pages were moved.
    pub(super) fn note_moved(&self, before: Option<LogSalts>, pages: u32) {
        // A log that started meanwhile has other salts.
        let (Some(file), Some(salts)) = (&self.file, before) else { return };
        if self.log_salts() != before {
            return;
        }
        let mut slot = Slot::default();
        slot.put(&self.boot);
        slot.put(&salts);
        slot.put(&pages.to_le_bytes());
        if let Err(error) = file.write_all_at(&slot.sealed(), 0) {
            tracing::debug!(%error, "moved pages were not noted");
        }
    }
}

fn try_open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file =
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let bytes = (SLOT_BYTES * (1 + ENTRIES)) as u64;
    let length = file.metadata()?.len();
    if length < bytes {
        // Writes zeros instead of only setting the length: a commit then never waits for the allocation of blocks.
        let zeros = vec![0; usize::try_from(bytes - length).unwrap_or_default()];
        file.write_all_at(&zeros, length)?;
    }
    Ok(file)
}

// === impl CommitRecord ===

impl CommitRecord {
    /// Continues after the entries that a start found.
    pub(super) fn new(file: Arc<RecordFile>, found: &RecordedCommits, is_durable: bool) -> Self {
        let mut named = vec![None; ENTRIES];
        // A removal after this start must also blank the names that the last life wrote.
        for entry in &found.entries {
            let thread = entry.change.as_ref().filter(|change| change.names.is_some());
            if let Some(slot) = named.get_mut(index_of(entry.sequence)) {
                *slot = thread.map(|change| change.thread);
            }
        }
        let last = found.entries.last();
        Self {
            file,
            log: None,
            sequence: last.map_or(0, |entry| entry.sequence),
            commit: last.map_or(0, |entry| entry.commit),
            is_durable,
            has_failed: false,
            named,
            buffer: Vec::new(),
        }
    }

    /// Records a durable commit with the threads that it changed. `pages` is the number of the log's pages after it.
    pub(super) fn note<'a>(
        &mut self,
        position: CommitPosition,
        pages: usize,
        changes: impl Iterator<Item = ThreadChange<'a>>,
    ) {
        if self.file.file.is_none() {
            return;
        }
        self.commit += 1;
        let salts = self.salts();
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        let mut changes = changes.peekable();
        let mut first = self.sequence + 1;
        self.buffer.clear();
        loop {
            let change = changes.next();
            // Before the entry is written: a kill in between must not leave the names of a removed thread.
            if let Some(change) = change.as_ref().filter(|change| change.is_removal) {
                self.forget(change.thread);
            }
            self.sequence += 1;
            let named = change.as_ref().filter(|change| change.names.is_some());
            if let Some(slot) = self.named.get_mut(index_of(self.sequence)) {
                *slot = named.map(|change| change.thread);
            }
            let (sequence, commit) = (self.sequence, self.commit);
            let entry = CommitEntry { sequence, commit, position, salts, pages, change };
            let slot = encode(&entry, self.is_durable, self.file.boot);
            self.buffer.extend_from_slice(&slot);
            // The next slot is at the start of the file, and one write cannot wrap around.
            if index_of(self.sequence) + 1 == ENTRIES {
                self.write_out(first);
                first = self.sequence + 1;
            }
            if changes.peek().is_none() {
                break;
            }
        }
        self.write_out(first);
    }

    /// Blanks the names of a thread that is removed.
    fn forget(&mut self, thread: ThreadKey) {
        while let Some(index) = self.named.iter().position(|named| *named == Some(thread)) {
            if let Some(slot) = self.named.get_mut(index) {
                *slot = None;
            }
            self.write(&[0; SLOT_BYTES], offset_of(index));
        }
    }

    fn write_out(&mut self, first: u64) {
        if self.buffer.is_empty() {
            return;
        }
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer, offset_of(index_of(first)));
        self.buffer = buffer;
        self.buffer.clear();
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        let Some(file) = &self.file.file else { return };
        // A record that is behind the database claims nothing wrong.
        if let Err(error) = file.write_all_at(bytes, offset)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(%error, "an acknowledged commit was not recorded");
        }
    }

    fn salts(&mut self) -> LogSalts {
        if self.log.is_none() {
            // An entry without salts claims nothing about the log, and the next commit tries again.
            self.log = File::open(&self.file.log).ok();
        }
        self.log.as_ref().and_then(log_scan::salts).unwrap_or_default()
    }
}

fn index_of(sequence: u64) -> usize {
    usize::try_from(sequence % ENTRIES as u64).unwrap_or_default()
}

fn offset_of(index: usize) -> u64 {
    (SLOT_BYTES * (1 + index)) as u64
}

// === the form of an entry ===

/// Bytes to be written, after space for the mark and the checksum.
struct Slot {
    bytes: [u8; SLOT_BYTES],
    next: usize,
}

impl Default for Slot {
    fn default() -> Self {
        Self { bytes: [0; SLOT_BYTES], next: 8 }
    }
}

impl Slot {
    fn put(&mut self, value: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.next..self.next + value.len()) {
            room.copy_from_slice(value);
        }
        self.next += value.len();
    }

    fn sealed(mut self) -> [u8; SLOT_BYTES] {
        let sum = crc32c::crc32c(self.bytes.get(8..).unwrap_or_default());
        self.next = 0;
        self.put(&MAGIC);
        self.put(&sum.to_le_bytes());
        self.bytes
    }
}

/// The bytes of a slot with a valid mark and checksum.
struct SlotReader<'a>(&'a [u8]);

impl<'a> SlotReader<'a> {
    fn new(slot: &'a [u8]) -> Option<Self> {
        let (mark, rest) = slot.split_first_chunk::<4>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let is_whole = *mark == MAGIC && u32::from_le_bytes(*sum) == crc32c::crc32c(rest);
        is_whole.then_some(Self(rest))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*value)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self, length: u8) -> Option<Cow<'static, str>> {
        let (text, rest) = self.0.split_at_checked(usize::from(length))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok().map(Cow::Owned)
    }
}

fn encode(entry: &CommitEntry<'_>, is_durable: bool, boot: BootId) -> [u8; SLOT_BYTES] {
    let mut slot = Slot::default();
    slot.put(&boot);
    slot.put(&entry.salts);
    slot.put(&entry.pages.to_le_bytes());
    for number in
        [entry.sequence, entry.commit, entry.position.counted, entry.position.frame.cast_unsigned()]
    {
        slot.put(&number.to_le_bytes());
    }
    let change = entry.change.as_ref();
    slot.put(&[u8::from(is_durable), u8::from(change.is_some_and(|change| change.is_removal))]);
    slot.put(&change.map_or(0, |change| change.thread.0).to_le_bytes());
    slot.put(&change.map_or(0, |change| change.last).to_le_bytes());
    let names = change.and_then(|change| change.names.as_ref());
    let texts = names.map_or([""; 3], |names| [names.tenant.as_ref(), &names.id, &names.owner]);
    for text in texts {
        slot.put(&[u8::try_from(text.len()).unwrap_or(0)]);
    }
    texts.iter().for_each(|text| slot.put(text.as_bytes()));
    slot.sealed()
}

/// Decodes a slot. `None` if it is empty or damaged, or if it proves nothing because the system restarted without making its commit durable.
fn decode(slot: &[u8], boot: BootId) -> Option<CommitEntry<'static>> {
    let mut slot = SlotReader::new(slot)?;
    let its_boot: BootId = slot.take()?;
    let salts = slot.take()?;
    let pages = u32::from_le_bytes(slot.take()?);
    let (sequence, commit) = (slot.u64()?, slot.u64()?);
    let position = CommitPosition { counted: slot.u64()?, frame: slot.u64()?.cast_signed() };
    let [is_durable, is_removal] = slot.take()?;
    let (thread, last) = (slot.u64()?.cast_signed(), slot.u64()?);
    let [tenant, id, owner] = slot.take()?;
    let names =
        ThreadNames { tenant: slot.text(tenant)?, id: slot.text(id)?, owner: slot.text(owner)? };
    let names = (!names.id.is_empty()).then_some(names);
    let change =
        ThreadChange { thread: ThreadKey(thread), last, is_removal: is_removal == 1, names };
    let change = (thread != 0).then_some(change);
    (is_durable == 1 || is_same_boot(its_boot, boot)).then_some(CommitEntry {
        sequence,
        commit,
        position,
        salts,
        pages,
        change,
    })
}

fn decode_moved(slot: &[u8], boot: BootId) -> Option<(LogSalts, u32)> {
    let mut slot = SlotReader::new(slot)?;
    // After a restart of the system, pages that were moved may not have been synchronised.
    if !is_same_boot(slot.take()?, boot) {
        return None;
    }
    Some((slot.take()?, u32::from_le_bytes(slot.take()?)))
}

fn is_same_boot(one: BootId, other: BootId) -> bool {
    one == other && one != BootId::default()
}

// === impl ThreadChange ===

impl<'a> ThreadChange<'a> {
    pub(super) fn of_batch(batch: &'a Batch) -> Self {
        let row = batch.changes.iter().rev().find_map(|change| match change {
            Change::Thread(row) if !row.ephemeral => Some(row),
            _ => None,
        });
        let names = row.and_then(|row| {
            ThreadNames::new(row.tenant.as_str(), row.id.as_str(), row.owner.as_str())
        });
        Self { thread: batch.thread, last: batch.last(), is_removal: false, names }
    }

    pub(super) fn removal(thread: ThreadKey) -> Self {
        Self { thread, last: 0, is_removal: true, names: None }
    }
}

// === impl ThreadNames ===

impl<'a> ThreadNames<'a> {
    /// `None` if they do not fit into an entry.
    fn new(tenant: &'a str, id: &'a str, owner: &'a str) -> Option<Self> {
        let fits = tenant.len() + id.len() + owner.len() <= MAX_NAME_BYTES;
        let [tenant, id, owner] = [tenant, id, owner].map(Cow::Borrowed);
        fits.then_some(Self { tenant, id, owner })
    }
}
