//! The paths of a call, as written and with links resolved.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use globset::GlobMatcher;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Subject;

/// How long the resolution of paths may take: a remote file system may not respond at all.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct CallPaths {
    /// The agent's working directory, as given and without links.
    roots: Vec<PathBuf>,
    paths: Vec<CallPath>,
    /// Texts that may be paths.
    mentions: Vec<CallPath>,
}

#[derive(Debug)]
struct CallPath {
    /// As written, absolute if the working directory is known, without `.` and `..`. `None` if it is not a path.
    written: Option<PathBuf>,
    /// Whether it has a `..`, which may follow a link. Then only `real` counts.
    goes_up: bool,
    /// With links resolved, up to the part that exists.
    real: Option<PathBuf>,
}

// === impl CallPaths ===

impl CallPaths {
    /// Resolves the paths of a call. It blocks on the file system.
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let root = subject.root.filter(|root| root.is_absolute());
        let (paths, mentions) = (subject.paths.iter().copied(), subject.mentions.iter().copied());
        Self::from_texts(paths, mentions, root)
    }

    /// The same without blocking the task. `None` if it takes too long.
    pub(super) async fn resolve(subject: &Subject<'_>) -> Option<Self> {
        if subject.paths.is_empty() && subject.mentions.is_empty() {
            return Some(Self::default());
        }
        let owned = |texts: &[&str]| texts.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let (paths, mentions) = (owned(&subject.paths), owned(&subject.mentions));
        let root = subject.root.filter(|root| root.is_absolute()).map(Path::to_owned);
        let found = spawn_blocking(move || {
            let (paths, mentions) = (paths.iter(), mentions.iter());
            Self::from_texts(
                paths.map(String::as_str),
                mentions.map(String::as_str),
                root.as_deref(),
            )
        });
        timeout(RESOLVE_TIMEOUT, found).await.ok()?.ok()
    }

    fn from_texts<'a>(
        paths: impl Iterator<Item = &'a str>,
        mentions: impl Iterator<Item = &'a str>,
        root: Option<&Path>,
    ) -> Self {
        let mut roots: Vec<_> = root.map(Path::to_owned).into_iter().collect();
        roots.extend(root.and_then(|root| root.canonicalize().ok()));
        roots.dedup();
        let paths = paths.map(|written| CallPath::of(written, root)).collect();
        let mentions = mentions.map(|written| CallPath::of(written, root)).collect();
        Self { roots, paths, mentions }
    }

    /// Whether there are paths, and all match, as written and resolved.
    pub(super) fn all_match(&self, pattern: &GlobMatcher, is_relative: bool) -> bool {
        !self.paths.is_empty()
            && self.paths.iter().all(|path| {
                let matches = |path: &PathBuf| self.matches(path, pattern, is_relative);
                let as_written = path.goes_up || path.written.as_ref().is_some_and(matches);
                as_written && path.real.as_ref().is_some_and(matches)
            })
    }

    /// Whether one of the paths, or of the texts that may be paths, matches as written or resolved.
    pub(super) fn any_matches(&self, pattern: &GlobMatcher, is_relative: bool) -> bool {
        self.paths.iter().chain(&self.mentions).any(|path| {
            let mut forms = path.written.iter().chain(&path.real);
            forms.any(|path| self.matches(path, pattern, is_relative))
        })
    }

    fn matches(&self, path: &Path, pattern: &GlobMatcher, is_relative: bool) -> bool {
        if !is_relative || path.is_relative() {
            return is_relative == path.is_relative() && pattern.is_match(path);
        }
        let below = self.roots.iter().find_map(|root| path.strip_prefix(root).ok());
        below.is_some_and(|below| pattern.is_match(below))
    }
}

// === impl CallPath ===

impl CallPath {
    fn of(written: &str, root: Option<&Path>) -> Self {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?));
        let in_home = written.strip_prefix("~/").and_then(|below| Some(home()?.join(below)));
        let path = in_home.as_deref().unwrap_or(Path::new(written));
        let whole = match root {
            Some(root) => root.join(path),
            None => path.to_owned(),
        };
        if written.is_empty() || written.contains('\0') {
            return Self { written: None, goes_up: false, real: None };
        }
        let goes_up = whole.components().any(|part| part == Component::ParentDir);
        let folded = folded(&whole);
        // Without a working directory, only the written path is known.
        let as_given = folded.clone().filter(|_| !goes_up);
        let real = if whole.is_absolute() { real(&whole) } else { as_given };
        Self { written: folded, goes_up, real }
    }
}

/// A path without `.` and `..`. `None` if it goes up from its beginning.
fn folded(path: &Path) -> Option<PathBuf> {
    let mut folded = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            // The root has no parent.
            Component::ParentDir if folded.parent().is_none() && folded.has_root() => {}
            Component::ParentDir => folded.pop().then_some(())?,
            part => folded.push(part),
        }
    }
    Some(folded)
}

/// The path with links resolved, up to the part that exists. `None` for a dangling link, and for a `..` after a name that does not exist.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    let mut rest: Vec<OsString> = Vec::new();
    let mut there = path;
    loop {
        match there.canonicalize() {
            Ok(mut real) => {
                real.extend(rest.iter().rev());
                return Some(real);
            }
            // A dangling link may lead anywhere later.
            Err(_) if there.symlink_metadata().is_ok() => return None,
            Err(_) => {
                // `..` has no file name.
                rest.push(there.file_name()?.to_owned());
                there = there.parent()?;
            }
        }
    }
}
