use std::path::Path;

/// Whether a folder has the references and objects of a repository of git: every repository has these two entries, also inside of `.git`.
#[must_use]
pub fn is_git_repository(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && folder.join("objects").is_dir()
}
