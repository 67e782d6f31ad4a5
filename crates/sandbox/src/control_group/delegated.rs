//! The control group in which this process may make groups.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{GroupLimits, KILL, PROCESSES, ProgramGroup, SUBTREE_CONTROL, paths};

/// The leaf of the server in a delegated group.
const SERVER: &str = "server";
/// The leaves below a delegated group in which a service manager starts a process: the programs' groups are beside them.
const LEAVES: [&str; 2] = [SERVER, ".control"];
/// What the names of programs' groups begin with.
const PROGRAM_PREFIX: &str = "agent-";
/// What brings a delegated group.
const DELEGATE_HINT: &str = "start the server as a service of systemd 254 or newer, with `Delegate=cpu memory pids` and `DelegateSubgroup=server`, and without `ProtectControlGroups=`, as in deploy/trilogue.service";

/// A group that was delegated to this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelegatedGroup {
    folder: PathBuf,
    /// Whether this process is in the group itself, and not in a leaf of it.
    is_inside: bool,
}

/// Why a program can have no group, or no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingGroup {
    why: String,
    pub hint: &'static str,
}

/// Returns the group in which this process may make groups for its programs. The first call reads files of the system.
///
/// # Errors
/// No group is delegated, or this program has no stage that enters one.
pub fn delegated_group() -> Result<&'static DelegatedGroup, &'static MissingGroup> {
    static GROUP: OnceLock<Result<DelegatedGroup, MissingGroup>> = OnceLock::new();
    GROUP.get_or_init(|| DelegatedGroup::of_process(std::process::id())).as_ref()
}

// === impl DelegatedGroup ===

impl DelegatedGroup {
    /// Returns the group in which a process of this user may make groups.
    ///
    /// # Errors
    /// No group is delegated, or this program has no stage that enters one.
    pub fn of_process(process: u32) -> Result<Self, MissingGroup> {
        if !crate::has_stage() {
            let hint = "call `run_stage` of trilogue-sandbox first in `main`, on Linux";
            return Err(MissingGroup::new("this program has no stage for its agents", hint));
        }
        let read = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
        let read = |name: &str| read(name).unwrap_or_default();
        let own = paths::own_folder(&read("cgroup"), &read("mountinfo"));
        let own = own.ok_or_else(|| {
            let hint = "use a system with control groups of version 2, such as a current one with systemd; in a container, mount them for writing";
            MissingGroup::new("this process sees no control group of version 2 for itself", hint)
        })?;
        Self::of(&own, process)
    }

    /// Returns the group in which a process may make groups, from its own group.
    fn of(own: &Path, process: u32) -> Result<Self, MissingGroup> {
        let missing = |why: &str| {
            let why = format!("the server's control group '{}' {why}", own.display());
            Err(MissingGroup::new(why, DELEGATE_HINT))
        };
        let is_leaf = LEAVES.iter().any(|leaf| own.ends_with(leaf));
        let folder = own.parent().filter(|_| is_leaf).unwrap_or(own);
        if !folder.join(SUBTREE_CONTROL).exists() {
            return missing("has no group above it");
        }
        if !folder.join(KILL).exists() {
            return missing("is the topmost one, or of a kernel before Linux 5.14");
        }
        // A process enters a group if it may change the list of the group above both.
        if ![PROCESSES, SUBTREE_CONTROL].iter().all(|name| may_write(&folder.join(name))) {
            return missing("is not delegated to the server");
        }
        let processes = fs::read_to_string(folder.join(PROCESSES)).unwrap_or_default();
        let mut processes = processes.lines().map(|pid| pid.parse() == Ok(process));
        if processes.any(|is_own| !is_own) {
            return missing("has other processes in it");
        }
        Ok(Self { folder: folder.to_owned(), is_inside: !is_leaf })
    }

    /// Moves this process into a leaf of the group, if it is in none: a group with processes passes no controllers on. Call it in a server, before it starts a process.
    pub fn enter_leaf(&self) -> io::Result<()> {
        if !self.is_inside {
            return Ok(());
        }
        let leaf = self.folder.join(SERVER);
        match fs::create_dir(&leaf) {
            // A previous server has made it.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        write_existing(&leaf.join(PROCESSES), "0")
    }

    /// Returns those of the limits that a program in this group can have.
    #[must_use]
    pub fn available(&self, limits: &GroupLimits) -> GroupLimits {
        let can = |limit: GroupLimits| self.check(&limit).is_ok();
        let GroupLimits { memory_bytes, processes, cpu_percent } = *limits;
        GroupLimits {
            memory_bytes: memory_bytes
                .filter(|_| can(GroupLimits { memory_bytes, ..GroupLimits::NONE })),
            processes: processes.filter(|_| can(GroupLimits { processes, ..GroupLimits::NONE })),
            cpu_percent: cpu_percent
                .filter(|_| can(GroupLimits { cpu_percent, ..GroupLimits::NONE })),
        }
    }

    /// Checks that a program in this group can have these limits.
    ///
    /// # Errors
    /// A controller is missing.
    pub fn check(&self, limits: &GroupLimits) -> Result<(), MissingGroup> {
        let has = fs::read_to_string(self.folder.join("cgroup.controllers")).unwrap_or_default();
        let mut needed = limits.controllers();
        match needed.find(|name| !has.split_whitespace().any(|it| it == *name)) {
            None => Ok(()),
            Some(name) => {
                let group = self.folder.display();
                let why = format!("the control group '{group}' has no controller '{name}'");
                let hint = "name it in `Delegate=` of the service; a system that uses it by version 1 must start with `systemd.unified_cgroup_hierarchy=1` on the command line of its kernel";
                Err(MissingGroup::new(why, hint))
            }
        }
    }

    /// Returns the folder of a program's group.
    #[must_use]
    pub fn folder_of(&self, program: &str) -> PathBuf {
        self.folder.join(format!("{PROGRAM_PREFIX}{program}"))
    }

    /// Creates the group of a program.
    pub fn create(&self, program: &str, limits: &GroupLimits) -> io::Result<ProgramGroup> {
        let controllers: Vec<_> = limits.controllers().map(|name| format!("+{name}")).collect();
        if !controllers.is_empty() {
            write_existing(&self.folder.join(SUBTREE_CONTROL), &controllers.join(" "))?;
        }
        ProgramGroup::create(self.folder_of(program), limits)
    }
}

// === impl MissingGroup ===

impl MissingGroup {
    fn new(why: impl Into<String>, hint: &'static str) -> Self {
        Self { why: why.into(), hint }
    }
}

/// Writes what is missing.
impl fmt::Display for MissingGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Writes a file of the kernel, which takes one write. Creates none.
pub(super) fn write_existing(path: &Path, text: &str) -> io::Result<()> {
    let written = OpenOptions::new().write(true).open(path);
    written.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| {
        io::Error::new(error.kind(), format!("'{}' cannot be written: {error}", path.display()))
    })
}

/// Whether this process may write a file. Nothing is written.
fn may_write(path: &Path) -> bool {
    OpenOptions::new().write(true).open(path).is_ok()
}
