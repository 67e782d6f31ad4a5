use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::broker::NetworkNamespace;
use crate::{Layers, LeaseFile};

/// The argument of an outer stage that holds its program.
pub(crate) const HELD: &str = "--held";
/// The argument of an outer stage whose program is a further one of its policy. The files of the namespaces that it joins follow, if there are any.
pub(crate) const COMMAND: &str = "--command";
/// The argument before the file of a namespace of the network, and that of its namespace of users.
pub(crate) const JOIN: &str = "--join";
/// The prefix of the variables by which a stage gets those of its program.
const VARIABLE_PREFIX: &str = "TRILOGUE_STAGE_";

/// What a program in a sandbox may do. The server decides it alone: neither the program's words nor its variables add anything.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxPolicy {
    /// The layers that are applied. The stage fails if one cannot be.
    pub layers: Layers,
    /// The files and folders that it may read and execute, without links. Missing ones are left out, and those that have become links.
    pub read: Vec<PathBuf>,
    /// The files and folders that it may change too, without links.
    pub write: Vec<PathBuf>,
    /// The links by which it may know these paths, each with its target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// The files and folders of the server, which it may not see even inside of those of `read`.
    pub hidden: Vec<PathBuf>,
    /// The home folder, of which it sees only what it may use.
    pub home: Option<PathBuf>,
    /// Its own folder for temporary files, which exists.
    pub temporary: PathBuf,
    pub network: Network,
    pub limits: ResourceLimits,
    /// The folder of its [control group](crate::control_group), which the outer stage enters first.
    #[serde(default)]
    pub group: Option<PathBuf>,
    /// How the stage of [`held_stage_words`] holds the program while no server is attached. Other stages give a program the pipes of the server, with which it ends.
    #[serde(default)]
    pub hold: Option<HoldSettings>,
    /// The [lease](crate::LeaseFile) under which the stage lets the program work, if it has one. A stage that holds its program has none.
    #[serde(default)]
    pub lease: Option<LeaseFile>,
    /// How the program reaches the broker, with [`Network::Broker`].
    #[serde(default)]
    pub broker: Option<BrokerSettings>,
}

/// What a program may reach over the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Everything that the server's machine reaches.
    #[default]
    Open,
    /// Nothing: it can open no socket of the internet protocols.
    None,
    /// The port of the broker only, over TCP.
    ///
    /// With namespaces, the program has a network of its own, in which nothing else listens but what it starts itself. Without them, it cannot bind a port, but two ways stay open. The
    /// kernel compares ports and no addresses, so the program reaches this port of other machines too. And it can listen without a bind, on a port that the system chooses.
    Broker,
}

/// How a program reaches the broker, a proxy in the server, and how the listener of the broker is passed.
///
/// With namespaces, the outer stage listens in the network of the program, and sends the listener to the server. Without them, the server listens, and sends its listener to an outer stage
/// that holds the program.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSettings {
    /// The port of `127.0.0.1` at which the broker listens.
    pub port: u16,
    /// What the stage proves itself by: 64 hexadecimal digits.
    pub secret: String,
    /// The socket of the server over which the listener is passed. It is there until that is done. `None` if nothing is passed.
    pub socket: Option<PathBuf>,
}

/// Limits of resources.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// The number of processes and threads that its user may have more than when it starts. The system does not apply it to root.
    pub max_tasks: u64,
    /// The number of open files of each process.
    pub max_open_files: u64,
    /// The size of a file, in bytes.
    pub max_file_bytes: u64,
}

/// How an outer stage holds its program. Its standard input is then a socket that listens for servers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldSettings {
    /// What a server proves itself by: 64 hexadecimal digits.
    pub secret: String,
    /// The output that it keeps at most, in bytes.
    pub buffer_bytes: u64,
    /// How long the program works without a server, in milliseconds, until a server sets another time.
    pub orphan_ms: u64,
}

// === impl SandboxPolicy ===

impl SandboxPolicy {
    /// Writes the policy to a new file, for this user only. The stage reads it from there: everyone can see the words of a process.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)
    }

    /// Reads a saved policy.
    pub fn load(path: &Path) -> io::Result<Self> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
    }
}

/// Returns the words that start a program under a saved policy: they come before its command. Without a stage in this program, which then has no [layer](crate::layers_of_machine) either, the start fails.
#[must_use]
pub fn stage_words(policy: &Path) -> [OsString; 3] {
    [crate::SELF.into(), crate::STAGE_COMMAND.into(), policy.into()]
}

/// Returns the words that start a program as [`stage_words`] do, and hold it. The standard input of the stage is a socket that listens for servers.
#[must_use]
pub fn held_stage_words(policy: &Path) -> [OsString; 4] {
    [crate::SELF.into(), crate::STAGE_COMMAND.into(), HELD.into(), policy.into()]
}

/// Returns the words that start a further program under the policy of one that runs. Its stage passes no listener. With the network of that program, it joins this network.
#[must_use]
pub fn command_stage_words(policy: &Path, network: Option<&NetworkNamespace>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![crate::SELF.into(), crate::STAGE_COMMAND.into()];
    words.push(COMMAND.into());
    if let Some(network) = network {
        let [network, users] = network.paths().map(OsString::from);
        words.extend([JOIN.into(), network, users]);
    }
    words.push(policy.into());
    words
}

/// Returns the name under which a stage gets a variable of its program: what the loader of programs reads, such as `LD_PRELOAD`, must not change the stage, which is outside of the sandbox.
#[must_use]
pub fn stage_variable(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{name}")
}

/// Returns the name of a program's variable that a stage got. `None` for a variable of the stage itself.
#[cfg(target_os = "linux")]
pub(crate) fn program_variable(name: &std::ffi::OsStr) -> Option<&std::ffi::OsStr> {
    use std::os::unix::ffi::OsStrExt as _;
    let name = name.as_bytes().strip_prefix(VARIABLE_PREFIX.as_bytes())?;
    Some(std::ffi::OsStr::from_bytes(name))
}

// === impl BrokerSettings ===

impl fmt::Debug for BrokerSettings {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = f.debug_struct("BrokerSettings");
        settings.field("port", &self.port).field("socket", &self.socket).finish_non_exhaustive()
    }
}

// === impl HoldSettings ===

impl fmt::Debug for HoldSettings {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = f.debug_struct("HoldSettings");
        settings.field("buffer_bytes", &self.buffer_bytes).field("orphan_ms", &self.orphan_ms);
        settings.finish_non_exhaustive()
    }
}

// === impl ResourceLimits ===

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { max_tasks: 4096, max_open_files: 65_536, max_file_bytes: 64 * 1024 * 1024 * 1024 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next server starts commands under the policy of an agent that outlived an earlier one.
    #[test]
    fn a_policy_of_an_earlier_server_is_read() {
        for (text, network) in [("open", Network::Open), ("none", Network::None)] {
            let policy = format!(
                r#"{{"layers":{{"files":true,"calls":true,"namespaces":false}},"read":[],"write":[],"links":[],"hidden":[],"home":null,"temporary":"/tmp/own","network":"{text}","limits":{{"max_tasks":1,"max_open_files":2,"max_file_bytes":3}}}}"#
            );
            let policy: SandboxPolicy = serde_json::from_str(&policy).unwrap();
            assert_eq!((policy.network, policy.broker), (network, None));
        }
    }
}
