use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The most that is read of a file of git that names a path, in bytes: more than the longest path of the system.
const MAX_POINTER_BYTES: u64 = 8 * 1024;

/// Returns what an agent in a worktree uses of its repository, and whether it changes that. It cannot change settings and hooks: the server runs git there, too. Blocks on the file system.
pub(crate) fn paths_of_worktree(repository: &Path, worktree: &Path) -> Vec<(PathBuf, bool)> {
    let Ok(common) = common_folder(repository).canonicalize() else { return Vec::new() };
    let mut all = vec![(common.clone(), false)];
    // A missing folder of logs could not be created.
    for name in ["objects", "refs", "logs"] {
        let folder = common.join(name);
        // It is there in most repositories; git says what it misses.
        drop(fs::create_dir(&folder));
        all.push((folder, true));
    }
    all.extend(entry_of_worktree(&common, worktree).map(|entry| (entry, true)));
    all
}

/// Returns the folder of a repository with the index and the head of a worktree.
///
/// Its agent may have changed the file in the worktree that names it, so the entry must name the worktree too: agents of other worktrees have the other entries.
fn entry_of_worktree(common: &Path, worktree: &Path) -> Option<PathBuf> {
    let pointer = worktree.join(".git");
    let text = read_pointer(&pointer)?;
    let named = PathBuf::from(text.strip_prefix("gitdir:")?.trim());
    let entry = common.join("worktrees").join(named.file_name()?);
    let back = read_pointer(&entry.join("gitdir"))?;
    // It may be relative to the entry.
    let is_own = entry.join(back.trim()).canonicalize().ok()? == pointer.canonicalize().ok()?;
    is_own.then_some(entry)
}

/// Reads a file with a path, in place of which an agent may have put anything.
fn read_pointer(file: &Path) -> Option<String> {
    let mut text = String::new();
    let opened = file.is_file().then(|| File::open(file).ok()).flatten()?;
    opened.take(MAX_POINTER_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the folder with the settings, references and objects of a repository.
pub(super) fn common_folder(repository: &Path) -> PathBuf {
    let inside = repository.join(".git");
    if inside.is_dir() { inside } else { repository.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs git in a folder.
    fn git(folder: &Path, arguments: &[&str]) {
        let mut command = std::process::Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@example.org"]).args(arguments);
        let run = command.current_dir(folder).output().unwrap();
        assert!(run.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&run.stderr));
    }

    #[test]
    fn the_entry_of_another_worktree_is_not_for_an_agent_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("repository")).unwrap();
        let add = |name| git(&at("repository"), &["worktree", "add", "-q", name]);
        git(&at("repository"), &["init", "-q"]);
        git(&at("repository"), &["commit", "-q", "--allow-empty", "-m", "first"]);
        add("../one");
        add("../two");
        let written = |worktree: &str| -> Vec<_> {
            let all = paths_of_worktree(&at("repository"), &at(worktree));
            all.into_iter().filter_map(|(path, is_written)| is_written.then_some(path)).collect()
        };
        let common = at("repository/.git").canonicalize().unwrap();
        let shared = ["objects", "refs", "logs"].map(|name| common.join(name)).to_vec();
        let with = |name| [&shared[..], &[common.join("worktrees").join(name)]].concat();
        assert_eq!((written("one"), written("two")), (with("one"), with("two")));
        // A relative path, as newer versions of git write it.
        fs::write(common.join("worktrees/one/gitdir"), "../../../../one/.git\n").unwrap();
        assert_eq!(written("one"), with("one"));
        fs::copy(at("two/.git"), at("one/.git")).unwrap();
        assert_eq!((written("one"), written("two")), (shared.clone(), with("two")));
        fs::remove_file(at("one/.git")).unwrap();
        assert_eq!(written("one"), shared);
    }
}
