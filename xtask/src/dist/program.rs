//! The binary: without its debug information, with what it links.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use elf::ElfBytes;
use elf::endian::AnyEndian;

use super::platform::{Os, Platform};

/// The sections that a released binary does without.
const DEBUG_SECTIONS: [&str; 2] = [".symtab", ".debug_info"];

/// A binary that runs on the platform.
#[derive(Debug)]
pub(super) struct Program {
    /// Where it is, to be run.
    path: PathBuf,
    pub(super) bytes: Vec<u8>,
    /// Each library that it links, with the newest version of its symbols that it needs, such as `GLIBC_2.34`.
    pub(super) libraries: BTreeMap<String, Option<String>>,
}

// === impl Program ===

impl Program {
    pub(super) fn read(path: &Path, platform: &Platform) -> Result<Self> {
        let path = path.canonicalize().with_context(|| format!("{}", path.display()))?;
        let mut bytes = fs::read(&path)?;
        let mut libraries = BTreeMap::new();
        if platform.os == Os::Linux {
            if has_debug_sections(&bytes)? {
                bytes = stripped(&path)?;
            }
            let file = ElfBytes::<AnyEndian>::minimal_parse(&bytes)?;
            ensure!(
                file.ehdr.e_machine == platform.arch.elf,
                "{} is not built for {}",
                path.display(),
                platform.target
            );
            libraries = linked(&file)?;
        }
        Ok(Self { path, bytes, libraries })
    }

    #[cfg(test)]
    pub(super) fn linking(libraries: BTreeMap<String, Option<String>>) -> Self {
        Self { path: PathBuf::new(), bytes: Vec::new(), libraries }
    }

    /// Returns the binary's output for these arguments. The binary must run on this machine.
    pub(super) fn output(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = Command::new(&self.path).args(arguments).output().with_context(|| {
            format!(
                "{} does not run here: make its packages on a machine of its platform",
                self.path.display()
            )
        })?;
        ensure!(
            output.status.success(),
            "{} {}: {}",
            self.path.display(),
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output.stdout)
    }

    /// The newest version of this library's symbols that the binary needs.
    pub(super) fn needs(&self, library: &str) -> Option<(u32, u32)> {
        let version = self.libraries.get(library)?.as_deref()?;
        let mut numbers = numbers(version).into_iter();
        Some((numbers.next()?, numbers.next()?))
    }

    /// The version of the GNU C library that the binary needs, if it links that.
    pub(super) fn glibc(&self) -> Option<(u32, u32)> {
        ["libc.so.6", "libm.so.6"].into_iter().filter_map(|library| self.needs(library)).max()
    }
}

fn has_debug_sections(bytes: &[u8]) -> Result<bool> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).context("the binary is no ELF file")?;
    for section in DEBUG_SECTIONS {
        if file.section_header_by_name(section)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The binary as binutils' `strip` leaves it.
fn stripped(path: &Path) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("trilogue");
    let status = Command::new("strip").arg("-o").arg(&out).arg(path).status();
    ensure!(
        status.context("strip could not be started: install binutils")?.success(),
        "strip failed"
    );
    Ok(fs::read(out)?)
}

/// The libraries that the loader brings, with the versions that symbols ask of them.
fn linked(file: &ElfBytes<'_, AnyEndian>) -> Result<BTreeMap<String, Option<String>>> {
    let mut libraries = BTreeMap::new();
    // A static binary has neither.
    let (Some(dynamic), Some((symbols, strings))) = (file.dynamic()?, file.dynamic_symbol_table()?)
    else {
        return Ok(libraries);
    };
    for entry in dynamic.iter().filter(|entry| entry.d_tag == elf::abi::DT_NEEDED) {
        let name = strings.get(usize::try_from(entry.d_val())?)?;
        libraries.insert(name.to_owned(), None);
    }
    let Some(versions) = file.symbol_version_table()? else { return Ok(libraries) };
    for index in 0..symbols.len() {
        let Some(needed) = versions.get_requirement(index)? else { continue };
        let Some(newest) = libraries.get_mut(needed.file) else {
            bail!("the symbols of {} are needed, which the binary does not link", needed.file);
        };
        if newest.as_deref().is_none_or(|newest| numbers(newest) < numbers(needed.name)) {
            *newest = Some(needed.name.to_owned());
        }
    }
    Ok(libraries)
}

/// The numbers of a symbol version such as `GLIBC_2.34`.
fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.split_once('_').map_or("", |(_, numbers)| numbers);
    numbers.split('.').map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(numbers("GLIBC_2.9") < numbers("GLIBC_2.34"));
        assert!(numbers("GLIBC_PRIVATE") < numbers("GLIBC_2.2.5"));
        assert_eq!(numbers("GCC_4.2.0"), [4, 2, 0]);
    }
}
