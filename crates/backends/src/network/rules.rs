//! The hosts that people have allowed to agents: in one thread, or always.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use trilogue_domain::{ThreadId, lock};

/// The most rules that are kept. The oldest makes room for a new one.
const MAX_RULES: usize = 1_000;
/// A longer file is not read, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// The version of the file.
const VERSION: u32 = 1;

/// The rules of all agents of a server. With a folder they are in a file there, which people may edit: each look-up reads it again.
#[derive(Debug, Default)]
pub struct NetworkRules {
    file: Option<PathBuf>,
    /// The rules without a file. The lock also keeps changes of the file apart.
    kept: Mutex<Vec<NetworkRule>>,
}

/// A host that a person has allowed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRule {
    /// The name of the agent.
    pub agent: String,
    /// The name or the address of the host, as it was asked for.
    pub host: String,
    pub port: u16,
    /// The only thread in which it is allowed. `None`: in every thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The principal that has allowed it.
    pub by: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    version: u32,
    #[serde(default)]
    rules: Vec<NetworkRule>,
}

// === impl NetworkRules ===

impl NetworkRules {
    /// Opens the rules in a state folder of the server. Without one they are forgotten with the server.
    #[must_use]
    pub fn open(state: Option<&Path>) -> Self {
        Self { file: state.map(|state| state.join("network-rules.json")), kept: Mutex::default() }
    }

    /// Whether rules stay when the server stops.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.file.is_some()
    }

    /// Returns who has allowed a host to an agent in a thread. Blocks on the file system.
    ///
    /// # Errors
    /// The file cannot be read, or is not valid. Nothing is allowed then.
    pub fn find(
        &self,
        agent: &str,
        thread: Option<&ThreadId>,
        (host, port): (&str, u16),
    ) -> io::Result<Option<String>> {
        let thread = thread.map(ThreadId::as_str);
        let fits = |rule: &&NetworkRule| {
            let is_in_thread = rule.thread.is_none() || rule.thread.as_deref() == thread;
            rule.agent == agent && rule.host == host && rule.port == port && is_in_thread
        };
        let kept = lock(&self.kept);
        let rules = self.read(&kept)?;
        Ok(rules.iter().find(fits).map(|rule| rule.by.clone()))
    }

    /// Returns all rules, oldest first. Blocks on the file system.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub fn all(&self) -> io::Result<Vec<NetworkRule>> {
        self.read(&lock(&self.kept))
    }

    /// Adds a rule. Blocks on the file system.
    ///
    /// # Errors
    /// The file cannot be written, or was not valid: it stays as it is.
    pub fn add(&self, rule: NetworkRule) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        let mut rules = self.read(&kept)?;
        rules.retain(|known| {
            (&known.agent, &known.host, known.port, &known.thread)
                != (&rule.agent, &rule.host, rule.port, &rule.thread)
        });
        rules.push(rule);
        let excess = rules.len().saturating_sub(MAX_RULES);
        rules.drain(..excess);
        self.write(&mut kept, rules)
    }

    /// Removes the rules of an agent about a host, or all of the agent. Returns how many there were. Blocks on the file system.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn remove(&self, agent: &str, host: Option<&str>) -> io::Result<usize> {
        let mut kept = lock(&self.kept);
        let mut rules = self.read(&kept)?;
        let before = rules.len();
        rules.retain(|rule| rule.agent != agent || host.is_some_and(|host| rule.host != host));
        let removed = before - rules.len();
        if removed > 0 {
            self.write(&mut kept, rules)?;
        }
        Ok(removed)
    }

    fn read(&self, kept: &[NetworkRule]) -> io::Result<Vec<NetworkRule>> {
        let Some(file) = &self.file else { return Ok(kept.to_vec()) };
        let length = match fs::metadata(file) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        if length > MAX_FILE_BYTES {
            return Err(invalid(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        let read: RuleFile =
            serde_json::from_slice(&fs::read(file)?).map_err(|error| invalid(error.to_string()))?;
        if read.version != VERSION {
            return Err(invalid(format!("it is of version {}, not {VERSION}", read.version)));
        }
        Ok(read.rules)
    }

    fn write(&self, kept: &mut Vec<NetworkRule>, rules: Vec<NetworkRule>) -> io::Result<()> {
        let Some(file) = &self.file else {
            *kept = rules;
            return Ok(());
        };
        let text = serde_json::to_vec_pretty(&RuleFile { version: VERSION, rules })
            .map_err(io::Error::other)?;
        // A rename, so that a reader and a crash find the old or the new rules.
        let new = file.with_extension("new");
        let mut written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        written.write_all(&text)?;
        written.sync_all()?;
        fs::rename(&new, file)
    }
}

impl PartialEq for NetworkRules {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file
    }
}

impl Eq for NetworkRules {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(agent: &str, host: &str, thread: Option<&str>) -> NetworkRule {
        let thread = thread.map(str::to_owned);
        let (agent, host, by) = (agent.to_owned(), host.to_owned(), "ada".to_owned());
        NetworkRule { agent, host, port: 443, thread, by }
    }

    #[test]
    fn a_rule_holds_for_its_agent_and_thread_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let rules = NetworkRules::open(Some(folder.path()));
        let thread = ThreadId::parse("thread-one").unwrap();
        let find = |rules: &NetworkRules, agent, host| {
            rules.find(agent, Some(&thread), (host, 443)).unwrap()
        };
        assert_eq!(find(&rules, "coder", "example.com"), None);
        rules.add(rule("coder", "example.com", None)).unwrap();
        rules.add(rule("coder", "in.example.com", Some("thread-one"))).unwrap();
        rules.add(rule("coder", "other.example.com", Some("thread-two"))).unwrap();
        let again = NetworkRules::open(Some(folder.path()));
        for (agent, host, by) in [
            ("coder", "example.com", Some("ada")),
            ("coder", "in.example.com", Some("ada")),
            ("coder", "other.example.com", None),
            ("writer", "example.com", None),
        ] {
            assert_eq!(find(&again, agent, host).as_deref(), by, "{agent} {host}");
        }
        assert_eq!(again.find("coder", None, ("example.com", 80)).unwrap(), None);
        assert_eq!(again.remove("coder", Some("example.com")).unwrap(), 1);
        assert_eq!(find(&rules, "coder", "example.com"), None);
        assert_eq!(again.remove("coder", None).unwrap(), 2);
        assert_eq!(rules.all().unwrap(), []);
    }

    #[test]
    fn rules_are_bounded_and_a_damaged_file_allows_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let rules = NetworkRules::open(Some(folder.path()));
        for number in 0..=MAX_RULES {
            rules.add(rule("coder", &format!("{number}.example.com"), None)).unwrap();
        }
        let all = rules.all().unwrap();
        assert_eq!((all.len(), &*all[0].host), (MAX_RULES, "1.example.com"));
        let file = folder.path().join("network-rules.json");
        for text in ["", "{}", "{\"version\":2,\"rules\":[]}"] {
            fs::write(&file, text).unwrap();
            assert!(rules.find("coder", None, ("5.example.com", 443)).is_err(), "{text}");
            assert!(rules.add(rule("coder", "example.com", None)).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn without_a_folder_rules_last_as_long_as_the_server() {
        let rules = NetworkRules::open(None);
        rules.add(rule("coder", "example.com", None)).unwrap();
        assert!(!rules.are_kept());
        assert_eq!(
            rules.find("coder", None, ("example.com", 443)).unwrap().as_deref(),
            Some("ada")
        );
    }
}
