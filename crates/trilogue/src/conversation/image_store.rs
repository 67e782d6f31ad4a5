//! The images that a terminal could not draw: with the other state, for this user only, and not for ever.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use trilogue::local::token_file;

use crate::terminal::exit::{CliError, Result};
use crate::terminal::save::Folder;

/// How many images are kept, the newest ones.
const MAX_IMAGES: usize = 200;
/// How long an image is kept.
const MAX_IMAGE_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Opens the folder for one more image, and removes those that are too old or too many.
pub(super) fn open() -> Result<Folder> {
    let failed = |error: std::io::Error| {
        CliError::failure(format!("cannot create a folder for images: {error}"))
    };
    let path = token_file::state_dir().map_err(failed)?.join("images");
    token_file::make_private_dir(&path).map_err(failed)?;
    prune(&path, SystemTime::now());
    // A file is named after its content: the same image replaces itself.
    Folder::open(&path, true)
}

/// Removes old images. The next image retries a removal that fails.
fn prune(folder: &Path, now: SystemTime) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let dated = files.filter_map(|file| {
        let found = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((found.modified().ok()?, file.path()))
    });
    let mut images: Vec<_> = dated.collect();
    images.sort_by(|one, other| other.cmp(one));
    for (place, (modified, path)) in images.into_iter().enumerate() {
        let age = now.duration_since(modified).unwrap_or_default();
        // One more is about to come.
        if place + 1 >= MAX_IMAGES || age > MAX_IMAGE_AGE {
            // An image that stays is removed the next time.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_images_go_and_so_do_too_many() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let day = Duration::from_secs(24 * 60 * 60);
        let save = |name: &str, age: Duration| {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            file.set_modified(now - age).unwrap();
        };
        save("old.png", 31 * day);
        for number in 0..MAX_IMAGES {
            save(&format!("{number}.png"), Duration::from_secs(number as u64));
        }
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.path().join("link.png")).unwrap();
        prune(folder.path(), now);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
        // The link was not created by this program, so it does not count.
        assert_eq!(left.len(), MAX_IMAGES);
        assert!(!folder.path().join("old.png").exists() && folder.path().join("0.png").exists());
        assert!(!folder.path().join(format!("{}.png", MAX_IMAGES - 1)).exists());
    }
}
