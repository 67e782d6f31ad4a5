//! The sandbox of a child: what it may use, and the layers that it gets.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trilogue_sandbox::broker::NetworkNamespace;
use trilogue_sandbox::control_group::{GroupLimits, ProgramGroup};
use trilogue_sandbox::{
    BrokerSettings, HoldSettings, Layers, LeaseFile, Network, ResourceLimits, SandboxPolicy,
    command_stage_words, held_stage_words, layers_of_machine, resolve_links, stage_variable,
    stage_words, usual_paths,
};
use uuid::Uuid;

use super::leases::ChildLeases;
use super::program::{is_command_line, words_hint};
use super::{ChildTrace, InvalidSetting};
use crate::workspace::{PrivatePaths, paths_of_worktree};

/// The name of the variable with a child's folder for temporary files.
const TEMPORARY: &str = "TMPDIR";

/// How a child is kept from what it does not need.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sandbox {
    pub mode: SandboxMode,
    /// The files and folders that it may read and execute, beside its program and those of the system.
    pub read: Vec<PathBuf>,
    /// The files and folders that it may change, beside its working folders.
    pub write: Vec<PathBuf>,
    /// The folders that it may change and that are created when it starts.
    pub state: Vec<PathBuf>,
    pub network: Network,
    pub limits: GroupLimits,
    /// A program with arguments, outside of the sandbox, that starts the command in its own way. Empty: none.
    pub wrap_with: Vec<String>,
    /// Commands of other programs that it starts, which it may read as its own.
    pub programs: Vec<Vec<String>>,
    /// The git repository to which its worktrees belong.
    pub repository: Option<PathBuf>,
    /// Traces the child without any layer. Its policy is saved for comparison only.
    pub trace: Option<ChildTrace>,
}

/// Which layers of a sandbox a child gets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum SandboxMode {
    /// None.
    #[default]
    #[serde(rename = "off")]
    Off,
    /// Those that the machine has.
    #[serde(rename = "auto")]
    Auto,
    /// Those that the machine has, and at least the one for files.
    #[serde(rename = "require:files")]
    RequireFiles,
    /// All.
    #[serde(rename = "require:all")]
    RequireAll,
}

/// What a child in a sandbox works with.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    pub sandbox: &'a Sandbox,
    /// The folders in which it works.
    pub folders: &'a [PathBuf],
    /// The server's own files and folders.
    pub private: &'a PrivatePaths,
}

/// What programs say, in small letters, when the system refuses something, or hides it.
const REFUSALS: [&str; 14] = [
    "permission denied",
    "not permitted",
    "read-only file system",
    "no such file",
    "nonexistent",
    "cannot find module",
    "device or resource busy",
    "could not resolve host",
    "network is unreachable",
    "eacces",
    "eperm",
    "erofs",
    "enoent",
    "ebusy",
];

/// A hint for the user of an agent that may have failed because of its sandbox.
const SANDBOX_HINT: &str = "the agent runs in a sandbox, in which files that it may not use are refused or missing; add what it needs to `read_paths` or `write_paths` of the agent";

/// Returns a hint for the user of an agent with these layers, if its output names a refusal of the system.
pub(crate) fn sandbox_hint(layers: Layers, output: &str) -> Option<&'static str> {
    let lower = output.to_lowercase();
    let is_refused = REFUSALS.iter().any(|word| lower.contains(word));
    (layers.is_any() && is_refused).then_some(SANDBOX_HINT)
}

/// A policy that was saved for the stages of a child and of its commands, with the folder for the temporary files of the child and its control group. Dropping it removes them.
#[derive(Debug)]
pub struct SavedPolicy {
    layers: Layers,
    temporary: PathBuf,
    /// The file of the policy, beside the folder. It stays if the program is traced.
    file: PathBuf,
    /// The leases under which the child works, in a cluster.
    leases: Option<ChildLeases>,
    trace: Option<ChildTrace>,
    /// The control group of the child.
    group: Option<ProgramGroup>,
    /// The network of the child, which its commands join.
    network: OnceLock<NetworkNamespace>,
    /// Whether another server uses it.
    is_left: AtomicBool,
}

/// The words that start a program, and the variables of the first of them.
#[derive(Debug)]
pub(crate) struct ProgramStart {
    pub(crate) words: Vec<OsString>,
    pub(crate) variables: Vec<(String, String)>,
}

/// What the stage of a child does beside its sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct StagePlan {
    /// How it holds the child while no server is connected, if it does.
    pub(super) hold: Option<HoldSettings>,
    /// The lease under which it lets the child work, if there is one.
    pub(super) lease: Option<LeaseFile>,
    /// How the child reaches the broker, if it does.
    pub(super) broker: Option<BrokerSettings>,
}

/// The paths of a policy, without links.
#[derive(Default)]
struct PolicyPaths {
    read: BTreeSet<PathBuf>,
    write: BTreeSet<PathBuf>,
    links: BTreeMap<PathBuf, PathBuf>,
}

// === impl Sandbox ===

impl Sandbox {
    /// Returns the layers that a child gets on this machine.
    #[must_use]
    pub fn layers(&self) -> Layers {
        match self.mode {
            SandboxMode::Off => Layers::NONE,
            _ if self.trace.is_some() => Layers::NONE,
            _ => Layers { limits: self.has_limits(), ..layers_of_machine() },
        }
    }

    /// Whether a child has a policy: to apply it, or to compare with it.
    pub(super) fn has_policy(&self) -> bool {
        self.trace.is_some() || self.layers().is_any()
    }

    /// Checks that this machine has the required layers, and that no path is one of the server.
    pub fn check(&self, private: &PrivatePaths) -> Result<(), InvalidSetting> {
        let has = self.layers();
        let required = match self.mode {
            SandboxMode::Off | SandboxMode::Auto => Layers::NONE,
            SandboxMode::RequireFiles => Layers { files: true, ..Layers::NONE },
            SandboxMode::RequireAll => Layers::ALL,
        };
        if let Some((layer, hint)) = has.missing(required) {
            let why = format!("this machine does not have the layer '{layer}'; it has: {has}");
            return Err(InvalidSetting { key: "sandbox", why, hint: hint.to_owned() });
        }
        self.check_limits()?;
        if !self.network.is_enforced_by(has) && self.trace.is_none() {
            let (why, hint) = match (self.mode, self.network) {
                (SandboxMode::Off, _) => {
                    ("an agent without a sandbox uses the network", "set sandbox = \"auto\"")
                }
                (_, Network::Broker) => (
                    "nothing on this machine limits where the agent connects to",
                    "use a machine with the layer 'namespaces', or with the layers 'files' and 'system calls' and Linux 6.7 or newer",
                ),
                _ => (
                    "nothing on this machine keeps the agent from the network",
                    "use a machine with the layer 'system calls', or remove the setting",
                ),
            };
            return Err(InvalidSetting {
                key: "network",
                why: why.to_owned(),
                hint: hint.to_owned(),
            });
        }
        let is_wrong = |first: &&String| first.is_empty() || is_command_line(first);
        if let Some(first) = self.wrap_with.first().filter(is_wrong) {
            let key = "wrap_with";
            let why = "it must name a program, with each argument by itself".to_owned();
            return Err(InvalidSetting { key, why, hint: words_hint(key, first) });
        }
        let private = private.resolve();
        for (key, paths) in [("read_paths", &self.read), ("write_paths", &self.write)] {
            if let Some(path) = paths.iter().find(|path| path.parent().is_none()) {
                let why = format!("'{}' is everything on this machine", path.display());
                return Err(InvalidSetting { key, why, hint: "name the folders in it".to_owned() });
            }
            let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
            if let Some(path) = paths.iter().find(|path| private.contains(&real(path))) {
                let why = format!("'{}' belongs to the server itself", path.display());
                let hint = "no agent gets the server's own files: remove it".to_owned();
                return Err(InvalidSetting { key, why, hint });
            }
        }
        Ok(())
    }
}

// === impl Confinement ===

impl Confinement<'static> {
    /// Without a sandbox.
    pub const NONE: Self = Self {
        sandbox: &Sandbox {
            mode: SandboxMode::Off,
            read: Vec::new(),
            write: Vec::new(),
            state: Vec::new(),
            network: Network::Open,
            limits: GroupLimits::NONE,
            wrap_with: Vec::new(),
            programs: Vec::new(),
            repository: None,
            trace: None,
        },
        folders: &[],
        private: &PrivatePaths::NONE,
    };
}

impl Confinement<'_> {
    /// Saves the policy of a program to this file, with a folder for its temporary files. `None` if it gets no layer. Blocks on the file system.
    ///
    /// Fails if a required layer could not keep it from the server's own files.
    pub(super) fn save_policy(
        &self,
        (instance, file, plan): (Uuid, Option<PathBuf>, StagePlan),
        (command, env, start): (&[String], &[(String, String)], &Path),
    ) -> io::Result<Option<SavedPolicy>> {
        let layers = self.sandbox.layers();
        if !self.sandbox.has_policy() {
            return Ok(None);
        }
        let trace = self.sandbox.trace.clone();
        let is_strict = self.sandbox.mode != SandboxMode::Auto;
        let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if self.folders.iter().any(|folder| folder.parent().is_none()) {
            let why = "an agent that works in '/' can have no sandbox; set `cwd` of the agent";
            let is_open = self.sandbox.network != Network::Broker;
            if is_strict || trace.is_some() || !is_open {
                return refuse(why.to_owned());
            }
            tracing::warn!("{why}");
            return Ok(None);
        }
        for folder in &self.sandbox.state {
            // Without it the agent says what it misses.
            if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(folder) {
                tracing::warn!(%error, folder = %folder.display(), "a folder of an agent could not be created");
            }
        }
        let hidden = self.private.existing();
        let paths = self.paths(command, env, start);
        let is_written = |path: &&PathBuf| paths.write.iter().any(|it| path.starts_with(it));
        if let Some(path) = hidden.iter().find(is_written) {
            let why = format!(
                "the server's own '{}' is in a folder that the agent may change; set `cwd` of the agent to another folder",
                path.display()
            );
            if is_strict {
                return refuse(why);
            }
            tracing::warn!("{why}");
        }
        let home = env.iter().find(|(name, _)| name == "HOME").map(|(_, home)| PathBuf::from(home));
        let group = if trace.is_some() { None } else { self.sandbox.create_group(instance)? };
        let layers = Layers { limits: layers.limits && group.is_some(), ..layers };
        let lease = plan.lease.clone();
        let saved = SavedPolicy::create((instance, file), layers, (lease, trace, group))?;
        let policy = SandboxPolicy {
            layers,
            read: paths.read.into_iter().collect(),
            write: paths.write.into_iter().collect(),
            links: paths.links.into_iter().collect(),
            hidden: hidden.into_iter().chain(secrets_of_root()).collect(),
            home: home.and_then(|home| home.canonicalize().ok()),
            temporary: saved.temporary.canonicalize()?,
            network: self.sandbox.network,
            limits: ResourceLimits::default(),
            group: saved.group.as_ref().map(|group| group.folder().to_owned()),
            hold: plan.hold,
            lease: plan.lease,
            broker: plan.broker,
        };
        policy.save(&saved.file)?;
        Ok(Some(saved))
    }

    fn paths(&self, command: &[String], env: &[(String, String)], start: &Path) -> PolicyPaths {
        let Sandbox { read, write, state, network, programs, repository, .. } = self.sandbox;
        let mut paths = PolicyPaths::default();
        let own = self.folders.iter().map(PathBuf::as_path);
        // The folders of a session were checked when it was opened.
        own.clone().for_each(|folder| paths.add_write(folder, &[]));
        let named = own.clone().chain(write.iter().chain(state).map(PathBuf::as_path));
        let written: Vec<_> = named.filter_map(|path| path.canonicalize().ok()).collect();
        write.iter().chain(state).for_each(|path| paths.add_write(path, &written));
        let of_git = repository.iter().flat_map(|repository| {
            own.clone().flat_map(move |folder| paths_of_worktree(repository, folder))
        });
        for (path, is_written) in of_git {
            if is_written {
                paths.add_write(&path, &written);
            } else {
                paths.add_read(&path, &written);
            }
        }
        let of_programs =
            programs.iter().flat_map(|command| usual_paths(command, &[], Network::None, &written));
        let usual = usual_paths(command, env, *network, &written);
        let all = usual.iter().chain(read).cloned().chain(of_programs).chain([start.to_owned()]);
        all.for_each(|path| paths.add_read(&path, &written));
        paths
    }
}

/// Files with secrets that an agent of root could read among the settings of the system.
fn secrets_of_root() -> impl Iterator<Item = PathBuf> {
    let all = ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers"];
    let is_root = rustix::process::geteuid().is_root();
    all.into_iter().map(PathBuf::from).filter(move |path| is_root && path.exists())
}

// === impl PolicyPaths ===

impl PolicyPaths {
    fn add_read(&mut self, path: &Path, written: &[PathBuf]) {
        let path = self.resolve(path, written);
        self.read.extend(path);
    }

    fn add_write(&mut self, path: &Path, written: &[PathBuf]) {
        let path = self.resolve(path, written);
        self.write.extend(path);
    }

    /// Resolves a path. `None` if it does not exist, or if a link on the way is in a folder that agents change: an agent chooses where it leads.
    fn resolve(&mut self, path: &Path, written: &[PathBuf]) -> Option<PathBuf> {
        let resolved = resolve_links(path)?;
        if let Some(link) = resolved.link_in(written) {
            tracing::debug!(path = %path.display(), link = %link.display(), "a link in a folder of an agent does not count for its sandbox");
            return None;
        }
        self.links.extend(resolved.links);
        Some(resolved.path)
    }
}

// === impl SavedPolicy ===

impl SavedPolicy {
    /// Creates the folder of a child, for this user only.
    fn create(
        (instance, file): (Uuid, Option<PathBuf>),
        layers: Layers,
        (lease, trace, group): (Option<LeaseFile>, Option<ChildTrace>, Option<ProgramGroup>),
    ) -> io::Result<Self> {
        let temporary = temporary_folder(instance);
        let file = trace.as_ref().map(|trace| trace.policy_path(instance)).or(file);
        // Without a state folder this is the only place.
        let file = file.unwrap_or_else(|| temporary.with_extension("policy"));
        let leases = lease.map(ChildLeases::new);
        let (network, is_left) = (OnceLock::new(), AtomicBool::new(false));
        let saved = Self { layers, temporary, file, leases, trace, group, network, is_left };
        DirBuilder::new().mode(0o700).create(&saved.temporary)?;
        Ok(saved)
    }

    /// Takes over the policy of a child that another server has started, with its control group. Its file moves here from one of these places.
    pub(super) fn adopt(
        instance: Uuid,
        from: &[PathBuf],
        file: PathBuf,
        (layers, group): (Layers, Option<PathBuf>),
    ) -> io::Result<Self> {
        if !from.iter().any(|from| fs::rename(from, &file).is_ok()) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its policy is gone"));
        }
        let temporary = temporary_folder(instance);
        // Each start of a service can have a `/tmp` of its own. The commands of the agent need the folder.
        DirBuilder::new().recursive(true).mode(0o700).create(&temporary)?;
        let group = group.map(ProgramGroup::at);
        let (network, is_left) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Self { layers, temporary, file, leases: None, trace: None, group, network, is_left })
    }

    /// Returns the leases under which the child works, if its stage looks at them.
    pub(super) fn leases(&self) -> Option<&ChildLeases> {
        self.leases.as_ref()
    }

    /// Sets the network of the child, once.
    pub(super) fn set_network(&self, network: NetworkNamespace) {
        // A second one would be the same.
        drop(self.network.set(network));
    }

    /// Removes them. Blocks on the file system.
    pub(super) fn remove(&self) {
        remove_folder(&self.temporary);
        if self.trace.is_none()
            && let Err(error) = fs::remove_file(&self.file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, file = %self.file.display(), "the policy of an agent could not be removed");
        }
        self.leases.iter().for_each(ChildLeases::remove);
        // With processes in it, it stays, and the next server removes it.
        let _ = self.group.as_ref().map(ProgramGroup::remove);
    }

    /// Leaves them to another server.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub(crate) fn layers(&self) -> Layers {
        self.layers
    }

    pub(super) fn is_traced(&self) -> bool {
        self.trace.is_some()
    }

    pub(super) fn group(&self) -> Option<&ProgramGroup> {
        self.group.as_ref()
    }

    /// Returns the words that come before the command of the child, and the variables that its stage gets.
    pub(super) fn stage(&self, env: &[(String, String)], markers: &[&str]) -> ProgramStart {
        if let Some(trace) = &self.trace {
            return ProgramStart { words: trace.words(&self.file), variables: env.to_vec() };
        }
        self.stage_of(stage_words(&self.file).to_vec(), env, markers)
    }

    /// The same for a command that the child runs through the server. In the network of the child, if that has one of its own with a way to the broker.
    pub(crate) fn command_stage(&self, env: &[(String, String)], markers: &[&str]) -> ProgramStart {
        if self.trace.is_some() {
            return self.stage(env, markers);
        }
        self.stage_of(command_stage_words(&self.file, self.network.get()), env, markers)
    }

    /// The same for a stage that holds the child.
    pub(super) fn held_stage(&self, env: &[(String, String)], markers: &[&str]) -> ProgramStart {
        self.stage_of(held_stage_words(&self.file).to_vec(), env, markers)
    }

    fn stage_of(
        &self,
        words: Vec<OsString>,
        env: &[(String, String)],
        markers: &[&str],
    ) -> ProgramStart {
        let of_program = env.iter().map(|(name, value)| (stage_variable(name), value.clone()));
        // The processes are found by these.
        let of_stage = env.iter().filter(|(name, _)| markers.contains(&&**name)).cloned();
        ProgramStart { words, variables: of_program.chain(of_stage).collect() }
    }

    /// Returns the variable that names the folder.
    pub(super) fn variable(&self) -> (String, String) {
        (TEMPORARY.to_owned(), self.temporary.display().to_string())
    }
}

impl PartialEq for SavedPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Eq for SavedPolicy {}

impl Drop for SavedPolicy {
    fn drop(&mut self) {
        if !self.is_left.load(Ordering::Acquire) {
            self.remove();
        }
    }
}

/// Removes the temporary files that a previous server has left of a child.
pub(super) fn remove_left(instance: Uuid) {
    remove_folder(&temporary_folder(instance));
}

/// The socket over which the listener of a broker is passed, without a state folder.
pub(super) fn temporary_broker_socket(instance: Uuid) -> PathBuf {
    temporary_folder(instance).with_extension("broker")
}

fn temporary_folder(instance: Uuid) -> PathBuf {
    std::env::temp_dir().join(format!("trilogue-agent-{instance}"))
}

fn remove_folder(folder: &Path) {
    let mut removed = fs::remove_dir_all(folder);
    if removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
        open_folders(folder);
        removed = fs::remove_dir_all(folder);
    }
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, folder = %folder.display(), "an agent's temporary files could not be removed");
    }
}

/// Lets this user remove what is in the folders of a program that has closed them.
fn open_folders(folder: &Path) {
    // A folder that is gone or of another user stays as it is.
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.for_each(|entry| open_folders(&entry.path()));
}
