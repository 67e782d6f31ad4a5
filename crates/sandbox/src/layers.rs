use std::fmt;

use serde::{Deserialize, Serialize};

const FILES: &str = "files";
const CALLS: &str = "system calls";
const NAMESPACES: &str = "namespaces";
const LIMITS: &str = "limits";

/// The layers of a sandbox that a machine has, or that a program runs in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    /// Landlock: files, and signals and abstract sockets where the kernel can.
    pub files: bool,
    /// seccomp: system calls.
    pub calls: bool,
    /// Namespaces of users, mounts, processes and messages.
    pub namespaces: bool,
    /// A control group with the limits that the program has. No machine has it for all programs.
    #[serde(default)]
    pub limits: bool,
}

// === impl Layers ===

impl Layers {
    pub const NONE: Self = Self { files: false, calls: false, namespaces: false, limits: false };
    /// All that a machine can have.
    pub const ALL: Self = Self { files: true, calls: true, namespaces: true, limits: false };

    /// Whether a program in these layers has any sandbox.
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.files || self.calls || self.namespaces || self.limits
    }

    /// Returns the first of these layers that is not here, and what brings it. `None` if all are here.
    #[must_use]
    pub const fn missing(self, required: Self) -> Option<(&'static str, &'static str)> {
        if required.files && !self.files {
            return Some((
                FILES,
                "use a kernel from 5.13 with `landlock` among its security modules (`lsm=` on its command line)",
            ));
        }
        if required.calls && !self.calls {
            return Some((CALLS, "use a kernel with seccomp filters, on x86-64 or ARM64"));
        }
        if required.namespaces && !self.namespaces {
            return Some((
                NAMESPACES,
                "let this user create user namespaces: set `user.max_user_namespaces` above 0, and on Ubuntu `kernel.apparmor_restrict_unprivileged_userns` to 0; in a container, let it mount `/proc`",
            ));
        }
        None
    }

    /// Returns the names of the layers, in the order in which users know them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.files, FILES),
            (self.calls, CALLS),
            (self.namespaces, NAMESPACES),
            (self.limits, LIMITS),
        ];
        all.into_iter().filter_map(|(has, name)| has.then_some(name))
    }
}

/// Writes the names, such as `files, system calls`, or `none`.
impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        if names.is_empty() { f.write_str("none") } else { f.write_str(&names.join(", ")) }
    }
}
