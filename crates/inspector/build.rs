//! Puts the files of the page into the library, each as it is and compressed, under one name that changes with any of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

const PAGE: &str = "src/page";
/// As many digits of the hash as tell two editions of the page apart.
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
        let mut bytes = fs::read(root.join(name))?;
        if name.ends_with(".js") {
            bytes = shorter(&String::from_utf8_lossy(&bytes)).into_bytes();
        }
        hash.update(name.as_bytes());
        hash.update(bytes.len().to_le_bytes());
        hash.update(&bytes);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&bytes)?;
        fs::write(out.join(format!("{place}.gz")), encoder.finish()?)?;
        let plain = out.join(format!("{place}.plain"));
        fs::write(&plain, &bytes)?;
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

/// Punctuation of JavaScript that needs no space beside it.
const PUNCTUATION: &str = ",;:{}()[]=?&|<>!";

/// A script without its comments and without the spaces and empty lines that it does not need. What remains of a line is a line, so that an error shows where it is.
fn shorter(script: &str) -> String {
    let mut all = String::with_capacity(script.len());
    let mut is_in_template = false;
    for line in script.split('\n') {
        let text = line.trim();
        let is_comment = text.starts_with("//")
            || text.starts_with("* ")
            || text == "*"
            || text == "*/"
            || (text.starts_with("/**") && (text == "/**" || text.ends_with("*/")));
        if is_in_template {
            all.push_str(line);
        } else if !is_comment {
            shorten_line(text, &mut all);
        }
        is_in_template ^= line.matches('`').count() % 2 == 1;
        if is_in_template || !all.ends_with('\n') {
            all.push('\n');
        }
    }
    all
}

/// Adds a line that begins outside of strings. From a regular expression or a template inside of a template on, it stays as it is.
fn shorten_line(line: &str, shorter: &mut String) {
    let begins = shorter.len();
    let mut rest = line;
    let mut is_space = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest.find("*/") else { break };
                rest = &rest[end + 2..];
                is_space = true;
                continue;
            }
            '`' => template_length(rest),
            '/' if rest.starts_with("/ ") => 1,
            '/' => rest.len(),
            '"' | '\'' => string_length(rest, first),
            _ => first.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        if piece.trim().is_empty() {
            is_space = true;
            continue;
        }
        let needs_none = PUNCTUATION.contains(first) || shorter.ends_with(is_punctuation);
        if is_space && !needs_none && shorter.len() > begins {
            shorter.push(' ');
        }
        is_space = false;
        shorter.push_str(piece);
    }
    shorter.push_str(rest);
}

fn is_punctuation(letter: char) -> bool {
    PUNCTUATION.contains(letter)
}

/// The bytes of the string with which a text begins, quotes included.
fn string_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (place, letter) in text.char_indices().skip(1) {
        if letter == quote && !is_escaped {
            return place + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// The bytes of the template with which a text begins; all of the text where another template is inside of it.
fn template_length(text: &str) -> usize {
    let Some(end) = text.match_indices('`').nth(1).map(|(end, _)| end + 1) else {
        return text.len();
    };
    let count = |brace: char| text[..end].matches(brace).count();
    if count('{') == count('}') { end } else { text.len() }
}

/// The files below a folder, by their names from the root, with `/` between segments.
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
