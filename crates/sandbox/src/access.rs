//! What a policy allows with a path.

use std::path::{Path, PathBuf};

use crate::SandboxPolicy;

/// The devices that every program may use.
pub(crate) const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];

/// What a program may do with a file or a folder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathAccess {
    None,
    Read,
    Write,
}

// === impl SandboxPolicy ===

impl SandboxPolicy {
    /// Returns what a program may do with this path, which has no links.
    #[must_use]
    pub fn access(&self, path: &Path) -> PathAccess {
        let devices = DEVICES.iter().any(|device| path.starts_with(device));
        if devices || path.starts_with(&self.temporary) {
            return PathAccess::Write;
        }
        let hidden = self.hidden.iter().filter(|hidden| path.starts_with(hidden));
        let innermost = hidden.max_by_key(|hidden| hidden.as_os_str().len());
        // A path that is granted below a hidden one is meant.
        let is_granted = |granted: &PathBuf| {
            path.starts_with(granted)
                && innermost.is_none_or(|hidden| granted != hidden && granted.starts_with(hidden))
        };
        match (self.write.iter().any(is_granted), self.read.iter().any(is_granted)) {
            (true, _) => PathAccess::Write,
            (false, true) => PathAccess::Read,
            (false, false) => PathAccess::None,
        }
    }

    /// Whether a program can see a link at this place, which has no links on the way.
    #[must_use]
    pub fn has_link(&self, place: &Path) -> bool {
        self.links.iter().any(|(link, _)| link == place) || self.access(place) > PathAccess::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layers, Network, ResourceLimits};

    #[test]
    fn a_policy_allows_its_paths_except_for_hidden_ones() {
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let policy = SandboxPolicy {
            layers: Layers::ALL,
            read: paths(&["/usr", "/srv", "/srv/state/shared"]),
            write: paths(&["/srv/work"]),
            links: vec![("/bin".into(), "usr/bin".into())],
            hidden: paths(&["/srv/state"]),
            home: None,
            temporary: "/tmp/own".into(),
            network: Network::Open,
            limits: ResourceLimits::default(),
            group: None,
            hold: None,
            lease: None,
            broker: None,
        };
        for (path, access) in [
            ("/usr/bin/env", PathAccess::Read),
            ("/srv/work/a", PathAccess::Write),
            ("/srv/workshop", PathAccess::Read),
            ("/srv/state/token", PathAccess::None),
            ("/srv/state/shared/a", PathAccess::Read),
            ("/tmp/own/a", PathAccess::Write),
            ("/tmp/other", PathAccess::None),
            ("/dev/pts/3", PathAccess::Write),
            ("/dev/sda", PathAccess::None),
        ] {
            assert_eq!(policy.access(Path::new(path)), access, "{path}");
        }
        assert!(policy.has_link(Path::new("/bin")) && policy.has_link(Path::new("/usr/x")));
        assert!(!policy.has_link(Path::new("/home/link")));
    }
}
