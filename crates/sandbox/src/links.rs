use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The most links on the way to a path.
const MAX_LINKS: usize = 40;

/// A path without links, and how it was reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResolvedPath {
    pub path: PathBuf,
    /// The links on the way, each with its target. The place of a link is without links.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// Resolves the links of an absolute path. `None` if it does not exist or has too many.
///
/// It blocks on the file system.
#[must_use]
pub fn resolve_links(path: &Path) -> Option<ResolvedPath> {
    let mut links = Vec::new();
    let parts = |path: &Path| -> Vec<_> {
        path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
    };
    let mut rest = parts(path);
    let mut real = PathBuf::new();
    while let Some(part) = rest.pop() {
        if part == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&part);
        let Ok(target) = fs::read_link(&next) else {
            real = next;
            continue;
        };
        if links.len() >= MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            real = PathBuf::new();
        }
        rest.extend(parts(&target));
        links.push((next, target));
    }
    (path.is_absolute() && real.symlink_metadata().is_ok())
        .then_some(ResolvedPath { path: real, links })
}

impl ResolvedPath {
    /// Returns a link on the way that lies in one of these folders, where an agent chooses where it leads.
    #[must_use]
    pub fn link_in(&self, folders: &[PathBuf]) -> Option<&Path> {
        let mut links = self.links.iter().map(|(link, _)| link.as_path());
        links.find(|link| folders.iter().any(|folder| link.starts_with(folder)))
    }
}

/// Opens a path that has no link on the way, without reading it: a link that has replaced a part of it leads elsewhere.
#[cfg(target_os = "linux")]
pub(crate) fn open(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

#[cfg(target_os = "linux")]
pub(crate) fn is_folder(opened: &std::os::fd::OwnedFd) -> bool {
    let found = rustix::fs::fstat(opened);
    found.is_ok_and(|found| rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_names_the_links_on_its_way() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("trilogue-links-{}", std::process::id()));
        fs::create_dir_all(folder.join("one/two"))?;
        let folder = folder.canonicalize()?;
        symlink("one", folder.join("short"))?;
        symlink(folder.join("short/two"), folder.join("long"))?;
        let found = resolve_links(&folder.join("long/../two")).unwrap();
        assert_eq!(found.path, folder.join("one/two"));
        let links =
            [(folder.join("long"), folder.join("short/two")), (folder.join("short"), "one".into())];
        assert_eq!(found.links, links);
        symlink("round", folder.join("round"))?;
        assert_eq!(resolve_links(&folder.join("round")), None);
        assert_eq!(resolve_links(&folder.join("missing")), None);
        fs::remove_dir_all(&folder)
    }
}
