//! The licences of the crates in the binary, which ask to go where it goes.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};

use super::graph::Graph;

/// How the names of files with licences and notices begin, in small letters.
const NAMES: [&str; 5] = ["licence", "license", "copying", "notice", "copyright"];
const RULE: &str =
    "================================================================================";

/// Every text with the crates that have it, and first the crates with their licences.
pub(super) fn render(graph: &Graph) -> Result<String> {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let of_others = graph.crates().filter(|it| it.is_linked && it.checksum.is_some());
    for member in of_others {
        let name = format!("{} {}", member.name, member.version);
        let licence = member.licence.as_deref().unwrap_or("see its text below");
        list.push_str(&format!("{name}: {licence}\n"));
        let folder = fs::read_dir(&member.folder)
            .with_context(|| format!("{}: run `cargo fetch --locked`", member.folder.display()))?;
        for file in folder {
            let file = file?;
            let lower = file.file_name().to_string_lossy().to_lowercase();
            if NAMES.iter().any(|begin| lower.starts_with(begin)) && file.file_type()?.is_file() {
                let text = fs::read(file.path())?;
                let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
                let crates = texts.entry(text.trim().to_owned()).or_default();
                if crates.last() != Some(&name) {
                    crates.push(name.clone());
                }
            }
        }
    }
    let mut out = format!("The crates in this binary, and their licences:\n\n{list}");
    for (text, crates) in texts {
        out.push_str(&format!("\n{RULE}\n{}\n\n{text}\n", crates.join(", ")));
    }
    Ok(out)
}
