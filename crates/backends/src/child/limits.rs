//! The limits of a child, and its control group.

use std::io;
use std::path::PathBuf;

use trilogue_sandbox::control_group::{MissingGroup, ProgramGroup, delegated_group};
use uuid::Uuid;

use super::InvalidSetting;
use super::sandbox::{Sandbox, SandboxMode};

/// The least memory in which an agent starts, in bytes.
const MIN_MEMORY_BYTES: u64 = 16 * 1024 * 1024;
/// The fewest processes and threads with which an agent starts: two are of its sandbox.
const MIN_PROCESSES: u64 = 8;

/// The most processes and threads that Linux can have.
const MAX_PROCESSES: u64 = 4_194_304;

/// Returns the folder of the control group that a child of this server can have.
pub(super) fn group_folder(instance: Uuid) -> Option<PathBuf> {
    delegated_group().ok().map(|group| group.folder_of(&instance.to_string()))
}

/// Moves this server into a leaf of the control group that is delegated to it.
pub(super) fn enter_leaf() {
    if let Ok(Err(error)) = delegated_group().map(|group| group.enter_leaf()) {
        tracing::warn!(%error, "the server stays in its control group: its agents can have no limits");
    }
}

/// Kills what is left in the groups of children, and removes them. Returns whether all are gone.
pub(super) async fn end_groups(folders: Vec<PathBuf>) -> bool {
    let ended = tokio::task::spawn_blocking(move || {
        let groups = folders.into_iter().map(ProgramGroup::at);
        groups.filter(|group| !group.end()).count() == 0
    });
    let is_ended = ended.await.unwrap_or(false);
    if !is_ended {
        tracing::warn!("the control group of an agent could not be removed");
    }
    is_ended
}

// === impl Sandbox ===

impl Sandbox {
    /// Returns why this server cannot apply all limits. `None` if it can, or if none are set.
    #[must_use]
    pub fn missing_limit(&self) -> Option<MissingGroup> {
        if !self.limits.is_any() {
            return None;
        }
        match delegated_group() {
            Ok(group) => group.check(&self.limits).err(),
            Err(missing) => Some(missing.clone()),
        }
    }

    /// Whether limits are set, and this server can apply all of them.
    pub(super) fn has_limits(&self) -> bool {
        self.limits.is_any() && self.missing_limit().is_none()
    }

    /// Checks that the limits have a meaning, and that this server can apply those that are required.
    pub(super) fn check_limits(&self) -> Result<(), InvalidSetting> {
        let invalid = |why: String, hint: &str| {
            Err(InvalidSetting { key: "limits", why, hint: hint.to_owned() })
        };
        if self.limits.is_any() && self.mode == SandboxMode::Off {
            let hint = "set sandbox = \"auto\", or use `wrap_with`";
            return invalid("an agent without a sandbox can have none".to_owned(), hint);
        }
        if self.limits.memory_bytes.is_some_and(|bytes| bytes < MIN_MEMORY_BYTES) {
            let hint = "set `memory` to at least 16MiB";
            return invalid("the agent could never start with so little memory".to_owned(), hint);
        }
        if self.limits.processes.is_some_and(|count| count < MIN_PROCESSES) {
            let hint = "set `processes` to at least 8; threads count too";
            return invalid("the agent could never start with so few processes".to_owned(), hint);
        }
        if self.limits.processes.is_some_and(|count| count > MAX_PROCESSES) {
            let hint = "set `processes` to at most 4194304, or remove it";
            return invalid("no machine has so many processes".to_owned(), hint);
        }
        match self.missing_limit().filter(|_| self.mode == SandboxMode::RequireAll) {
            Some(missing) => invalid(format!("they cannot be applied: {missing}"), missing.hint),
            None => Ok(()),
        }
    }

    /// Creates the control group of a child. `None` if there can be none. Blocks on the system.
    ///
    /// Fails if limits are required that cannot be applied.
    pub(super) fn create_group(&self, instance: Uuid) -> io::Result<Option<ProgramGroup>> {
        let Ok(delegated) = delegated_group() else { return Ok(None) };
        // A wrapper can be in a group from which its stage may not enter another one.
        if !self.wrap_with.is_empty() && !self.limits.is_any() {
            return Ok(None);
        }
        // Also without all limits, everything that is in a group is found at the end.
        match delegated.create(&instance.to_string(), &delegated.available(&self.limits)) {
            Ok(group) => Ok(Some(group)),
            Err(error) if self.limits.is_any() && self.mode == SandboxMode::RequireAll => {
                let why = format!("its `limits` cannot be applied: {error}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            Err(error) => {
                tracing::warn!(%error, "an agent has no control group, and no `limits`");
                Ok(None)
            }
        }
    }
}
