//! Computes the state of a folder after a power cut, from the journal of changes that the fault library wrote.
//!
//! A change is durable once its file was synchronised after it; a change of a name is durable once the folder was. Every other change may be lost independently, and the last write may be torn.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::seed::Seed;

/// The unit in which a disk writes atomically.
const SECTOR_BYTES: u64 = 512;
/// The length of a record's head, before its names and its data.
const HEAD_BYTES: usize = 40;
/// Files that a start creates again: the index of the write-ahead log is shared memory, and the reserve only holds disk space.
const REBUILT: [&str; 2] = ["-shm", ".reserve"];

/// The files of a folder, with their numbers.
#[derive(Clone, Default, Debug)]
pub struct DiskImage {
    names: BTreeMap<String, u64>,
    contents: BTreeMap<u64, Vec<u8>>,
}

/// A folder's initial state, and the changes since.
#[derive(Debug)]
pub struct DiskJournal {
    start: DiskImage,
    changes: Vec<DiskChange>,
    /// Where the record of each change ends, in bytes of the journal.
    ends: Vec<u64>,
}

/// Which of the changes that were not synchronised a power cut loses.
#[derive(Clone, Debug)]
pub enum PowerLoss {
    /// No change: only the process ended.
    Nothing,
    Everything,
    /// Each write with a probability of one half, and one write is torn; of the changes of names, all after a random one.
    Some(Seed),
}

#[derive(Clone, Debug)]
enum DiskChange {
    Name(NameChange),
    Content { file: u64, change: ContentChange },
    Synchronise(u64),
    SynchroniseFolder,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create { name: String, file: u64 },
    Rename { from: String, to: String },
    Remove(String),
}

#[derive(Clone, Debug)]
enum ContentChange {
    Write { at: u64, bytes: Vec<u8> },
    Resize(u64),
}

/// The durable state of a disk, and the changes since the last synchronisation.
struct Disk {
    durable: DiskImage,
    names: Vec<NameChange>,
    contents: BTreeMap<u64, Vec<ContentChange>>,
}

/// Reads the parts of a record from its bytes; `None` if they end too early.
struct RecordReader<'b>(&'b [u8]);

// === impl DiskJournal ===

impl DiskJournal {
    /// Skips an incomplete last record: the process ended before it made that change.
    pub(crate) fn read(start: DiskImage, bytes: &[u8]) -> Result<Self> {
        let mut reader = RecordReader(bytes);
        let (mut changes, mut ends) = (Vec::new(), Vec::new());
        while let Some(change) = reader.change()? {
            changes.push(change);
            ends.push((bytes.len() - reader.0.len()) as u64);
        }
        Ok(Self { start, changes, ends })
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The number of changes that had been made when the journal had this length.
    pub fn changes_before(&self, bytes: u64) -> usize {
        self.ends.partition_point(|end| *end <= bytes)
    }

    /// The folder after a power cut that follows the first `changes` changes.
    pub fn image(&self, changes: usize, loss: PowerLoss) -> DiskImage {
        let mut disk =
            Disk { durable: self.start.clone(), names: Vec::new(), contents: BTreeMap::new() };
        for change in &self.changes[..changes.min(self.changes.len())] {
            disk.change(change);
        }
        disk.cut(loss)
    }
}

// === impl Disk ===

impl Disk {
    fn change(&mut self, change: &DiskChange) {
        match change {
            DiskChange::Name(change) => {
                if let NameChange::Create { file, .. } = change {
                    // The system reuses the number of a removed file for a new one.
                    self.durable.contents.insert(*file, Vec::new());
                    self.contents.remove(file);
                }
                self.names.push(change.clone());
            }
            DiskChange::Content { file, change } => {
                self.contents.entry(*file).or_default().push(change.clone());
            }
            DiskChange::Synchronise(file) => {
                for change in self.contents.remove(file).unwrap_or_default() {
                    self.durable.change_content(*file, &change);
                }
            }
            DiskChange::SynchroniseFolder => {
                for change in self.names.drain(..) {
                    self.durable.change_name(change);
                }
            }
        }
    }

    fn cut(mut self, loss: PowerLoss) -> DiskImage {
        let mut seed = match loss {
            PowerLoss::Everything => return self.durable,
            PowerLoss::Nothing => None,
            PowerLoss::Some(seed) => Some(seed),
        };
        // A file system persists changes of names in order.
        let kept = match &mut seed {
            Some(seed) => seed.below(self.names.len() as u64 + 1) as usize,
            None => self.names.len(),
        };
        for change in self.names.drain(..kept) {
            self.durable.change_name(change);
        }
        for (file, changes) in std::mem::take(&mut self.contents) {
            let count = changes.len() as u64;
            let torn = seed.as_mut().map(|seed| seed.below(count));
            for (index, change) in (0..).zip(&changes) {
                let Some(seed) = &mut seed else {
                    self.durable.change_content(file, change);
                    continue;
                };
                if torn == Some(index) {
                    self.durable.change_content(file, &change.torn(seed));
                } else if seed.below(2) == 0 {
                    self.durable.change_content(file, change);
                }
            }
        }
        self.durable
    }
}

// === impl ContentChange ===

impl ContentChange {
    /// The first part of the change, in whole sectors.
    fn torn(&self, seed: &mut Seed) -> Self {
        match self {
            Self::Write { at, bytes } => {
                let sectors = (bytes.len() as u64).div_ceil(SECTOR_BYTES);
                let until = (at / SECTOR_BYTES + seed.below(sectors + 1)) * SECTOR_BYTES;
                let kept = usize::try_from(until.saturating_sub(*at)).unwrap_or(usize::MAX);
                Self::Write { at: *at, bytes: bytes[..kept.min(bytes.len())].to_vec() }
            }
            Self::Resize(length) => Self::Resize(*length),
        }
    }
}

// === impl DiskImage ===

impl DiskImage {
    pub fn read(folder: &Path) -> Result<Self> {
        let mut image = Self::default();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let info = entry.metadata()?;
            let name = entry.file_name().into_string().ok().context("a name is not text")?;
            ensure!(info.is_file(), "{name} is not a file, and the journal holds only files");
            image.contents.insert(info.ino(), fs::read(entry.path())?);
            image.names.insert(name, info.ino());
        }
        Ok(image)
    }

    /// Gives the folder exactly these files. Removes all others.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        for (name, bytes) in self.files() {
            fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }

    /// The files that have content, by name.
    pub fn files(&self) -> BTreeMap<&str, &[u8]> {
        let has_content = |name: &str| !REBUILT.iter().any(|end| name.ends_with(end));
        let named = self.names.iter().filter(|(name, _)| has_content(name));
        named.map(|(name, file)| (name.as_str(), self.contents[file].as_slice())).collect()
    }

    fn change_name(&mut self, change: NameChange) {
        match change {
            NameChange::Create { name, file } => {
                self.names.insert(name, file);
            }
            NameChange::Rename { from, to } => {
                if let Some(file) = self.names.remove(&from) {
                    self.names.insert(to, file);
                }
            }
            NameChange::Remove(name) => {
                self.names.remove(&name);
            }
        }
    }

    fn change_content(&mut self, file: u64, change: &ContentChange) {
        let content = self.contents.entry(file).or_default();
        match change {
            ContentChange::Write { at, bytes } => {
                let at = *at as usize;
                let end = at + bytes.len();
                if !bytes.is_empty() {
                    content.resize(content.len().max(end), 0);
                    content[at..end].copy_from_slice(bytes);
                }
            }
            ContentChange::Resize(length) => content.resize(*length as usize, 0),
        }
    }
}

// === impl RecordReader ===

impl RecordReader<'_> {
    fn change(&mut self) -> Result<Option<DiskChange>> {
        let before = self.0;
        let Some(head) = self.take(HEAD_BYTES) else { return Ok(None) };
        let mut head = RecordReader(head);
        let (kind, first, second, _) = (head.u32(), head.u32(), head.u32(), head.u32());
        let (file, at, length) = (head.u64(), head.u64(), head.u64());
        let data = if kind == 2 { length } else { 0 };
        let names = (self.take(first as usize), self.take(second as usize));
        let (Some(first), Some(second)) = names else { return self.end_before(before) };
        let Some(bytes) = self.take(data as usize) else { return self.end_before(before) };
        let (first, second) = (name(first)?, name(second)?);
        let content = |change| DiskChange::Content { file, change };
        Ok(Some(match kind {
            1 => DiskChange::Name(NameChange::Create { name: first, file }),
            2 => content(ContentChange::Write { at, bytes: bytes.to_vec() }),
            3 => content(ContentChange::Resize(at)),
            4 => DiskChange::Name(NameChange::Rename { from: first, to: second }),
            5 => DiskChange::Name(NameChange::Remove(first)),
            6 => DiskChange::Synchronise(file),
            7 => DiskChange::SynchroniseFolder,
            _ => bail!("the journal has a change of the unknown kind {kind}"),
        }))
    }
}

impl<'b> RecordReader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn end_before<T>(&mut self, rest: &'b [u8]) -> Result<Option<T>> {
        self.0 = rest;
        Ok(None)
    }

    fn u32(&mut self) -> u32 {
        self.take(4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    fn u64(&mut self) -> u64 {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
}

fn name(bytes: &[u8]) -> Result<String> {
    let name = String::from_utf8(bytes.to_vec()).context("a name is not text")?;
    ensure!(!name.contains('/'), "{name} lies deeper than the journal goes");
    Ok(name)
}
