//! Limits of resources, and the capabilities of root.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::ResourceLimits;

/// The capabilities that a program of root keeps: those about files, which Landlock limits.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// The capabilities with which the inner stage mounts, and then drops all.
const OF_INNER_STAGE: CapabilitySet = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETPCAP);

/// Sets the limits of this process and of what it starts.
pub(crate) fn limit(limits: &ResourceLimits) -> io::Result<()> {
    let most = |resource, most| -> io::Result<()> {
        // Never more than this process may set.
        let hard = getrlimit(resource).maximum;
        let most = hard.map_or(most, |hard| hard.min(most));
        let soft = getrlimit(resource).current.map_or(most, |soft| soft.min(most));
        Ok(setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(most) })?)
    };
    most(Resource::Core, 0)?;
    most(Resource::Fsize, limits.max_file_bytes)?;
    most(Resource::Nofile, limits.max_open_files)?;
    most(Resource::Nproc, tasks_of_user().saturating_add(limits.max_tasks))
}

/// Keeps this process, and what it starts, from gaining rights by other programs, and takes the rights of root that it does not need.
pub(crate) fn drop_rights() -> io::Result<()> {
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        match remove_capability_from_bounding_set(capability) {
            // Not root, or a capability that this kernel does not know.
            Ok(()) | Err(Errno::PERM | Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let kept = capabilities(None)?.permitted.intersection(KEPT);
    let sets =
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

/// Lets the inner stage keep, when it starts, the rights that this process has in its new namespace: a program of another user than root has none by itself.
pub(crate) fn keep_for_inner_stage() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted.intersection(OF_INNER_STAGE);
    set_capabilities(None, sets)?;
    for capability in sets.inheritable.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}

/// Returns how many processes and threads this user has.
fn tasks_of_user() -> u64 {
    let own = getuid().as_raw().to_string();
    let count = |status: String| {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next().map(str::to_owned)
        };
        let is_own = field("Uid:")? == own;
        is_own.then(|| field("Threads:")?.parse::<u64>().ok())?
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let statuses = processes.filter_map(|it| fs::read_to_string(it.path().join("status")).ok());
    statuses.filter_map(count).sum()
}
