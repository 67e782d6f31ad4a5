//! The folder of a process's own control group.

use std::path::{Path, PathBuf};

/// Returns the folder of a group, from the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`. `None` if no mount shows it.
pub(super) fn own_folder(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = Path::new(groups.lines().find_map(|line| line.strip_prefix("0::"))?);
    // A later mount covers an earlier one.
    mounts.lines().rev().find_map(|line| folder_in(line, group))
}

/// Returns the folder of a group in a mount, which may show a part of the hierarchy only.
fn folder_in(mount: &str, group: &Path) -> Option<PathBuf> {
    let (place, kind) = mount.split_once(" - ")?;
    if kind.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = place.split(' ').skip(3);
    let (root, folder) = (unescape(fields.next()?), unescape(fields.next()?));
    // A group outside of the namespace begins with `/..`, and has no folder here.
    let is_outside = |path: &Path| path.iter().any(|part| part == "..");
    if is_outside(group) || is_outside(Path::new(&root)) {
        return None;
    }
    Some(Path::new(&folder).join(group.strip_prefix(&root).ok()?))
}

/// Replaces the codes of blanks in a path of the list of mounts.
pub(crate) fn unescape(path: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.iter().fold(path.to_owned(), |path, (code, text)| path.replace(code, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_in_the_mount_that_shows_it() {
        let unified = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let hybrid = "32 31 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n";
        let part = "41 31 0:38 /a/b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        for (groups, mounts, folder) in [
            (
                "0::/system.slice/t.service\n",
                unified,
                Some("/sys/fs/cgroup/system.slice/t.service"),
            ),
            ("4:memory:/x\n0::/y\n", hybrid, Some("/sys/fs/cgroup/uni fied/y")),
            ("0::/a/b/c\n", part, Some("/sys/fs/cgroup/c")),
            ("0::/a\n", part, None),
            ("0::/../x\n", unified, None),
            ("4:memory:/x\n", hybrid, None),
            ("0::/x\n", "", None),
        ] {
            assert_eq!(own_folder(groups, mounts), folder.map(PathBuf::from), "{groups}");
        }
    }
}
