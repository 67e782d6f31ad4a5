use std::fs;
use std::path::{Path, PathBuf};

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
    let pointer = fs::read_to_string(worktree.join(".git")).unwrap_or_default();
    let own = pointer.strip_prefix("gitdir:").map(|path| PathBuf::from(path.trim()));
    // The agent may have written the file, so only a folder of this repository counts.
    let name = own.as_deref().and_then(Path::file_name).map(PathBuf::from);
    all.extend(name.map(|name| (common.join("worktrees").join(name), true)));
    all
}

/// Returns the folder with the settings, references and objects of a repository.
pub(super) fn common_folder(repository: &Path) -> PathBuf {
    let inside = repository.join(".git");
    if inside.is_dir() { inside } else { repository.to_owned() }
}
