//! The rules that an agent needs: what it used, less what its sandbox allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use trilogue_sandbox::{PathAccess, SandboxPolicy, is_too_much, resolve_links};

use super::calls::{PathUse, PathUseKind, TracedUse};
use crate::terminal::safe;

/// The most different things that an agent uses and that are compared.
pub(super) const MAX_USES: usize = 50_000;
/// The most paths of one list.
pub(super) const MAX_PATHS: usize = 200;
/// The number of paths in one folder from which the folder replaces them.
const MIN_GROUPED: usize = 3;
/// Folders with keys, below the home folder.
const KEY_FOLDERS: [&str; 5] = [".ssh", ".gnupg", ".aws", ".kube", ".docker"];
/// Where nothing can be granted.
const OF_KERNEL: [&str; 2] = ["/proc", "/sys"];
/// What leads each process to its own streams.
const OF_STREAMS: [&str; 4] = ["/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// What the processes of an agent used.
#[derive(Debug, Default)]
pub(super) struct TracedUses {
    all: BTreeSet<TracedUse>,
    /// Whether there was more than [`MAX_USES`].
    pub(super) is_cut: bool,
}

/// What is known beside the policy.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) started: SystemTime,
    /// The folders of other agents and sessions, each with what it is.
    pub(super) workspaces: Vec<(PathBuf, String)>,
}

/// What an agent needs beyond its sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(super) struct SandboxRules {
    pub(super) read_paths: BTreeSet<PathBuf>,
    pub(super) write_paths: BTreeSet<PathBuf>,
    /// Whether it opened a socket of the internet protocols.
    pub(super) uses_network: bool,
    /// The addresses and ports that it sent to.
    pub(super) peers: BTreeSet<String>,
    /// Paths that no rule gives it, each with the reason.
    pub(super) refused: BTreeMap<PathBuf, String>,
}

/// What a use of a path asks for.
enum PathNeed {
    Nothing,
    Read(PathBuf),
    Write(PathBuf),
    Refused(PathBuf, String),
}

// === impl TracedUses ===

impl TracedUses {
    pub(super) fn add(&mut self, found: TracedUse) {
        if self.all.len() < MAX_USES {
            self.all.insert(found);
        } else {
            self.is_cut |= !self.all.contains(&found);
        }
    }
}

// === impl SandboxRules ===

impl SandboxRules {
    /// Adds what was used under this policy. Blocks on the file system.
    pub(super) fn add(&mut self, uses: &TracedUses, policy: &SandboxPolicy, around: &Surroundings) {
        for found in &uses.all {
            match found {
                TracedUse::InternetSocket => self.uses_network = true,
                TracedUse::Peer(peer) => drop(self.peers.insert(peer.clone())),
                TracedUse::Path(found) => match need(found, policy, around) {
                    PathNeed::Nothing => {}
                    PathNeed::Read(path) | PathNeed::Write(path) if !is_plain(&path) => {
                        let why = "its name is not UTF-8, or has hidden characters".to_owned();
                        self.refused.insert(path, why);
                    }
                    PathNeed::Read(path) => drop(self.read_paths.insert(path)),
                    PathNeed::Write(path) => drop(self.write_paths.insert(path)),
                    PathNeed::Refused(path, why) => drop(self.refused.insert(path, why)),
                },
            }
        }
    }

    /// Names folders in place of many paths in them, and leaves out what another path includes.
    pub(super) fn group(&mut self, home: Option<&Path>) {
        self.write_paths = group_paths(std::mem::take(&mut self.write_paths), home);
        let mut read = std::mem::take(&mut self.read_paths);
        read.retain(|path| !is_within(path, &self.write_paths));
        self.read_paths = group_paths(read, home);
        self.read_paths.retain(|path| !is_within(path, &self.write_paths));
    }
}

/// Whether a rule can have this name, and a person can read it.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| safe::visible(text) == text)
}

fn is_within(path: &Path, folders: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|folder| folders.contains(folder))
}

fn group_paths(mut paths: BTreeSet<PathBuf>, home: Option<&Path>) -> BTreeSet<PathBuf> {
    loop {
        let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for folder in paths.iter().filter_map(|path| path.parent()) {
            *folders.entry(folder.to_owned()).or_default() += 1;
        }
        folders.retain(|folder, count| *count >= MIN_GROUPED && can_group(folder, home));
        let is_done = folders.keys().all(|folder| paths.contains(folder));
        paths.extend(folders.into_keys());
        let all = paths.clone();
        paths.retain(|path| !path.ancestors().skip(1).any(|folder| all.contains(folder)));
        if is_done {
            return paths;
        }
    }
}

/// Whether a folder may stand for what is in it: not one of the root, such as `/srv`, and none that has too much.
fn can_group(folder: &Path, home: Option<&Path>) -> bool {
    folder.components().count() > 2 && !is_too_much(folder, home) && !has_keys(folder, home)
}

/// Whether a folder has keys, of which an agent gets those that it uses only.
fn has_keys(folder: &Path, home: Option<&Path>) -> bool {
    let below = home.and_then(|home| folder.strip_prefix(home).ok());
    below.is_some_and(|below| KEY_FOLDERS.iter().any(|name| below.starts_with(name)))
}

/// Compares a use of a path with the policy.
fn need(found: &PathUse, policy: &SandboxPolicy, around: &Surroundings) -> PathNeed {
    let kind = match found.kind {
        // The file existed before, so its folder does not change.
        PathUseKind::Open if !is_new(&found.path, around.started) => PathUseKind::Change,
        PathUseKind::Open => PathUseKind::Create,
        kind => kind,
    };
    let home = policy.home.as_deref();
    let is_entry = matches!(kind, PathUseKind::Create | PathUseKind::Replace);
    let Some((real, named)) = resolve(&found.path, is_entry, policy) else {
        return PathNeed::Nothing;
    };
    let wanted = if kind == PathUseKind::Read { PathAccess::Read } else { PathAccess::Write };
    let folder = real.parent().unwrap_or(&real);
    let has_all = match kind {
        PathUseKind::Replace => policy.access(folder) >= wanted,
        _ => policy.access(&real) >= wanted,
    };
    let is_stream = OF_STREAMS.iter().any(|it| found.path.starts_with(it))
        || (real.starts_with("/proc") && real.components().any(|part| part.as_os_str() == "fd"));
    if is_stream || (has_all && named == real) {
        return PathNeed::Nothing;
    }
    if let Some(why) = refusal(found, &real, policy, around) {
        return PathNeed::Refused(real, why);
    }
    if !is_entry {
        return match (wanted, is_too_much(&real, home)) {
            (_, true) => PathNeed::Refused(
                real,
                "it has too much in it: name the folders in it that the agent needs".to_owned(),
            ),
            (PathAccess::Write, false) => PathNeed::Write(named),
            (_, false) => PathNeed::Read(named),
        };
    }
    if !is_too_much(folder, home) && !has_keys(folder, home) {
        return PathNeed::Write(named.parent().unwrap_or(&named).to_owned());
    }
    match kind {
        PathUseKind::Create if real.exists() => PathNeed::Write(named),
        // It is gone, or only a change of the folder could replace it.
        _ => PathNeed::Refused(
            real.clone(),
            format!(
                "'{}' has too much in it to be changed as a whole: let the agent use another folder, or `TMPDIR`, which it has",
                folder.display()
            ),
        ),
    }
}

/// Why no rule gives an agent this path.
fn refusal(
    found: &PathUse,
    real: &Path,
    policy: &SandboxPolicy,
    around: &Surroundings,
) -> Option<String> {
    if found.is_refused {
        return Some("the system refuses it to your user, also without a sandbox".to_owned());
    }
    if policy.hidden.iter().any(|hidden| real.starts_with(hidden)) {
        return Some("it belongs to the server, or has passwords of the system".to_owned());
    }
    if OF_KERNEL.iter().any(|folder| real.starts_with(folder)) {
        return Some("it belongs to the kernel".to_owned());
    }
    let workspace = around.workspaces.iter().find(|(folder, _)| real.starts_with(folder));
    workspace.map(|(_, what)| what.clone())
}

/// Returns a path without links, and the path to name in a rule. `None` if it does not exist any more.
fn resolve(path: &Path, is_entry: bool, policy: &SandboxPolicy) -> Option<(PathBuf, PathBuf)> {
    if OF_KERNEL.iter().any(|folder| path.starts_with(folder)) {
        // Its links depend on the process that reads them.
        return Some((path.to_owned(), path.to_owned()));
    }
    let (real, links) = match (is_entry, path.parent(), path.file_name()) {
        // The entry itself is meant, also if it is a link or is gone.
        (true, Some(folder), Some(name)) => {
            let folder = resolve_links(folder)?;
            (folder.path.join(name), folder.links)
        }
        _ => {
            let found = resolve_links(path)?;
            (found.path, found.links)
        }
    };
    let goes_up = path.components().any(|part| part == Component::ParentDir);
    // A link in a folder that the agent changes gives it nothing: the target has to be named.
    let is_of_agent = |link: &Path| policy.access(link) == PathAccess::Write;
    let is_unseen = links.iter().any(|(link, _)| !policy.has_link(link));
    let is_name = is_unseen && !goes_up && !links.iter().any(|(link, _)| is_of_agent(link));
    let named = if is_name { path.components().collect() } else { real.clone() };
    Some((real, named))
}

/// Whether a file was created after this time, or no longer exists.
fn is_new(path: &Path, since: SystemTime) -> bool {
    let Ok(found) = fs::metadata(path) else { return true };
    // Some file systems keep no creation time.
    found.created().map_or(true, |created| created >= since)
}

#[cfg(test)]
mod tests;
