//! Files of a package, and archives of them that are the same wherever they are made.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::Result;
use flate2::write::DeflateEncoder;
use flate2::{Compression, GzBuilder};
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};

/// The bits of a mode that say that it is a file's. pip looks for them.
const REGULAR_FILE: u32 = 0o100_000;

/// A file of a package.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PackageFile {
    /// Below the root of the package.
    pub(super) path: String,
    pub(super) contents: Vec<u8>,
    pub(super) is_program: bool,
}

// === impl PackageFile ===

impl PackageFile {
    pub(super) fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), contents: contents.into(), is_program: false }
    }

    pub(super) fn program(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Self {
        Self { is_program: true, ..Self::new(path, contents) }
    }

    /// The same file below this folder.
    pub(super) fn below(mut self, folder: &str) -> Self {
        self.path.insert_str(0, folder);
        self
    }

    fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }
}

/// A compressed tar of these files, sorted, with the folders above them. Root owns everything.
pub(super) fn tar_gz(mut files: Vec<PackageFile>, seconds: u64) -> Result<Vec<u8>> {
    files.sort();
    // The head of the compressed file names neither a file nor a time.
    let encoder = GzBuilder::new().write(Vec::new(), Compression::default());
    let mut tar = tar::Builder::new(encoder);
    let header = |mode: u32, size: usize| -> Result<tar::Header> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(seconds);
        header.set_size(size.try_into()?);
        Ok(header)
    };
    let mut folders = BTreeSet::new();
    for file in &files {
        for (end, _) in file.path.match_indices('/') {
            let folder = &file.path[..=end];
            if folders.insert(folder) {
                let mut header = header(0o755, 0)?;
                header.set_entry_type(tar::EntryType::Directory);
                tar.append_data(&mut header, folder, [].as_slice())?;
            }
        }
        let mut header = header(file.mode(), file.contents.len())?;
        tar.append_data(&mut header, &file.path, &*file.contents)?;
    }
    Ok(tar.into_inner()?.finish()?)
}

/// A zip of these files, in their order.
pub(super) fn zip(files: &[PackageFile], seconds: u64) -> Result<Vec<u8>> {
    let time = UtcDateTime::from_unix(seconds.try_into()?);
    let mut zip = ZipArchiveWriter::new(Vec::new());
    for file in files {
        let new = zip
            .new_file(&file.path)
            .compression_method(CompressionMethod::DEFLATE)
            .last_modified(time)
            .unix_permissions(REGULAR_FILE | file.mode());
        let (mut entry, config) = new.start()?;
        let encoder = DeflateEncoder::new(&mut entry, Compression::default());
        let mut data = config.wrap(encoder);
        data.write_all(&file.contents)?;
        let (encoder, output) = data.finish()?;
        encoder.finish()?;
        entry.finish(output)?;
    }
    Ok(zip.finish()?)
}
