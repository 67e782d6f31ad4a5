//! Where the paths of a call lead.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use globset::GlobMatcher;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Subject;

/// How long it may take to look where paths lead: a file system that is far away may not answer at all.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);

/// The paths of a call.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The agent's folder, as it was given and where it really is.
    roots: Vec<PathBuf>,
    paths: Vec<Place>,
}

/// One path.
#[derive(Debug)]
struct Place {
    /// As it was written, made absolute where it is known where it begins, with what goes up resolved by its letters. `None` where it is no path.
    written: Option<PathBuf>,
    /// Whether it goes up, so that its letters do not say where it leads: what it goes up from may be a link.
    goes_up: bool,
    /// Where it leads, as far as it exists.
    real: Option<PathBuf>,
}

// === impl Places ===

impl Places {
    /// Looks where the paths of a call lead. This waits for the file system.
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let root = subject.root.filter(|root| root.is_absolute());
        Self::found(subject.paths.iter().copied(), root)
    }

    /// The same beside the tasks of the server. `None` where nobody can say.
    pub(super) async fn look(subject: &Subject<'_>) -> Option<Self> {
        if subject.paths.is_empty() {
            return Some(Self::default());
        }
        let paths: Vec<String> = subject.paths.iter().map(|&path| path.to_owned()).collect();
        let root = subject.root.filter(|root| root.is_absolute()).map(Path::to_owned);
        let found =
            spawn_blocking(move || Self::found(paths.iter().map(String::as_str), root.as_deref()));
        timeout(LOOKED_WITHIN, found).await.ok()?.ok()
    }

    fn found<'a>(paths: impl Iterator<Item = &'a str>, root: Option<&Path>) -> Self {
        let mut roots: Vec<_> = root.map(Path::to_owned).into_iter().collect();
        roots.extend(root.and_then(|root| root.canonicalize().ok()));
        roots.dedup();
        Self { roots, paths: paths.map(|written| Place::of(written, root)).collect() }
    }

    /// Whether there are paths, and every one of them fits, as it is written and where it leads.
    pub(super) fn all_fit(&self, pattern: &GlobMatcher, is_relative: bool) -> bool {
        !self.paths.is_empty()
            && self.paths.iter().all(|place| {
                let fits = |path: &PathBuf| self.fits(path, pattern, is_relative);
                let by_letter = place.goes_up || place.written.as_ref().is_some_and(fits);
                by_letter && place.real.as_ref().is_some_and(fits)
            })
    }

    /// Whether one of the paths fits, as it is written or where it leads.
    pub(super) fn any_fits(&self, pattern: &GlobMatcher, is_relative: bool) -> bool {
        self.paths.iter().any(|place| {
            let mut forms = place.written.iter().chain(&place.real);
            forms.any(|path| self.fits(path, pattern, is_relative))
        })
    }

    fn fits(&self, path: &Path, pattern: &GlobMatcher, is_relative: bool) -> bool {
        if !is_relative || path.is_relative() {
            return is_relative == path.is_relative() && pattern.is_match(path);
        }
        let below = self.roots.iter().find_map(|root| path.strip_prefix(root).ok());
        below.is_some_and(|below| pattern.is_match(below))
    }
}

// === impl Place ===

impl Place {
    fn of(written: &str, root: Option<&Path>) -> Self {
        let path = Path::new(written);
        let whole = match root {
            Some(root) => root.join(path),
            None => path.to_owned(),
        };
        if written.is_empty() || written.contains('\0') {
            return Self { written: None, goes_up: false, real: None };
        }
        let goes_up = whole.components().any(|part| part == Component::ParentDir);
        let folded = folded(&whole);
        // Where nobody knows where it begins, it can only be taken at its word.
        let taken = folded.clone().filter(|_| !goes_up);
        let real = if whole.is_absolute() { real(&whole) } else { taken };
        Self { written: folded, goes_up, real }
    }
}

/// A path without `.` and `..`, by its letters. `None` where it goes up from its beginning.
fn folded(path: &Path) -> Option<PathBuf> {
    let mut folded = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            // The root has nothing above it.
            Component::ParentDir if folded.parent().is_none() && folded.has_root() => {}
            Component::ParentDir => folded.pop().then_some(())?,
            part => folded.push(part),
        }
    }
    Some(folded)
}

/// Where a path leads: links followed as far as it exists, the rest as written. `None` where that cannot be told.
fn real(path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<OsString> = Vec::new();
    let mut there = path;
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                real.extend(rest.iter().rev());
                return Some(real);
            }
            // A link that leads nowhere yet may lead anywhere later.
            Err(_) if there.symlink_metadata().is_ok() => return None,
            Err(_) => {
                // A name that goes up behind one that does not exist leads nowhere: there is no file name then.
                rest.push(there.file_name()?.to_owned());
                there = there.parent()?;
            }
        }
    }
}
