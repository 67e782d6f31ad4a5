//! Adds the files of the page to the library, each plain and compressed. The name of the edition changes with every file.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

const PAGE: &str = "src/page";
/// The number of hash digits that distinguishes two editions of the page.
const EDITION_DIGITS: usize = 16;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={PAGE}");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join(PAGE);
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut files = Vec::new();
    collect(&root, &root, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    let mut table = String::from("pub(crate) const FILES: &[File] = &[\n");
    for (place, name) in files.iter().enumerate() {
        let bytes = fs::read(root.join(name))?;
        hash.update(name.as_bytes());
        hash.update(bytes.len().to_le_bytes());
        hash.update(&bytes);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        fs::write(out.join(format!("{place}.gz")), encoder.finish()?)?;
        let plain = root.join(name);
        let row = writeln!(
            table,
            "    File {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{place}.gz\")) }},"
        );
        row.map_err(io::Error::other)?;
    }
    let mut edition = String::new();
    for byte in hash.finalize() {
        write!(edition, "{byte:02x}").map_err(io::Error::other)?;
    }
    edition.truncate(EDITION_DIGITS);
    let edition = format!("];\n\npub(crate) const EDITION: &str = {edition:?};\n");
    fs::write(out.join("files.rs"), table + &edition)
}

/// Adds the files below a folder to `files`. Names are relative to the root, with `/` between segments.
fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root).map_err(io::Error::other)?;
        let segments: Vec<_> = name.iter().map(|it| it.to_string_lossy()).collect();
        files.push(segments.join("/"));
    }
    Ok(())
}
