//! Traces the system calls of a child, which runs under `strace` and without a sandbox.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// The traced system calls. Those with `?` do not exist on every processor.
const CALLS: &str =
    "trace=%file,?fork,?vfork,clone,?clone3,fchdir,socket,bind,connect,sendto,sendmsg,sendmmsg";
/// The file name extension of policies.
const POLICY: &str = "policy";
/// The file name extension of system calls.
const CALLS_FILE: &str = "calls";

/// How a child is traced.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChildTrace {
    /// The path of `strace`.
    pub program: PathBuf,
    /// A private folder for the policies that children would have, and for their system calls.
    pub folder: PathBuf,
}

/// The files about one command of a child.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TraceFiles {
    /// What its sandbox would allow.
    pub policy: PathBuf,
    /// The output of `strace`.
    pub calls: PathBuf,
}

// === impl ChildTrace ===

impl ChildTrace {
    pub(super) fn policy_path(&self, instance: Uuid) -> PathBuf {
        self.folder.join(format!("{instance}.{POLICY}"))
    }

    /// Returns the words that come before the command of a child with this policy. Each start has a file of its own.
    pub(super) fn words(&self, policy: &Path) -> Vec<OsString> {
        self.words_into(&policy.with_extension(format!("{}.{CALLS_FILE}", Uuid::new_v4())))
    }

    /// The same, with the calls in this file.
    #[must_use]
    pub fn words_into(&self, calls: &Path) -> Vec<OsString> {
        // The seccomp filter keeps untraced calls fast. `-s 0` leaves out the data of calls; paths stay whole.
        let options = ["-f", "-q", "-y", "--seccomp-bpf", "-s", "0", "-e", "signal=none", "-e"];
        let program = self.program.clone().into_os_string();
        let options = options.into_iter().chain([CALLS, "-o"]).map(OsString::from);
        [program].into_iter().chain(options).chain([calls.into(), "--".into()]).collect()
    }

    /// Returns the files of all children so far. Blocks on the file system.
    pub fn files(&self) -> std::io::Result<Vec<TraceFiles>> {
        let mut all = Vec::new();
        for entry in self.folder.read_dir()? {
            let calls = entry?.path();
            let Some(name) = calls.file_name().and_then(|name| name.to_str()) else { continue };
            let Some((instance, _)) = name.split_once('.') else { continue };
            if name.ends_with(CALLS_FILE) {
                let policy = calls.with_file_name(format!("{instance}.{POLICY}"));
                all.push(TraceFiles { policy, calls });
            }
        }
        all.sort();
        Ok(all)
    }
}
