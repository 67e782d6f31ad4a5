//! What the command prints: a table of the configuration, with comments.

use std::path::{Path, PathBuf};

use serde::Serialize;
use trilogue::config::{Agent, NetworkSetting};

use super::rules::{MAX_PATHS, SandboxRules};
use crate::terminal::exit::Result;
use crate::terminal::{print, safe};

/// The rules of an agent: those that it has, and those that it needs too.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct RuleReport {
    agent: String,
    /// Whether the run completed.
    is_complete: bool,
    /// Whether the run needed no path and no network beyond the sandbox.
    is_enough: bool,
    read_paths: Vec<String>,
    write_paths: Vec<String>,
    /// Another value for the setting.
    network: Option<NetworkSetting>,
    /// The addresses and ports that it sent to.
    peers: Vec<String>,
    /// What it used and no rule gives it.
    refused: Vec<RefusedPath>,
    /// Whether a list has more than is shown.
    is_cut: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct RefusedPath {
    path: String,
    reason: String,
}

// === impl RuleReport ===

impl RuleReport {
    /// Makes the report on a run. One that did not complete does not show that no network is needed.
    pub(super) fn new(name: &str, agent: &Agent, rules: SandboxRules, is_complete: bool) -> Self {
        let has_rules = !rules.read_paths.is_empty() || !rules.write_paths.is_empty();
        let network = match (&agent.network, rules.uses_network) {
            (NetworkSetting::Open, false) if is_complete => Some(NetworkSetting::None),
            (NetworkSetting::None, true) => Some(NetworkSetting::Open),
            _ => None,
        };
        let lengths = [
            rules.read_paths.len(),
            rules.write_paths.len(),
            rules.peers.len(),
            rules.refused.len(),
        ];
        let home = agent.home();
        let named = |set: &[String], needed: Vec<PathBuf>| {
            let mut all = set.to_vec();
            for path in needed.iter().take(MAX_PATHS) {
                let name = below_home(path, home.as_deref());
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            all
        };
        let has_refused = !rules.refused.is_empty();
        let refused = rules.refused.into_iter().take(MAX_PATHS);
        let refused = refused.map(|(path, reason)| {
            let path = safe::visible(&path.display().to_string());
            RefusedPath { path, reason }
        });
        Self {
            agent: name.to_owned(),
            is_complete,
            is_enough: !has_rules && !has_refused && network != Some(NetworkSetting::Open),
            read_paths: named(&agent.read_paths.0, rules.read_paths.into_iter().collect()),
            write_paths: named(&agent.write_paths.0, rules.write_paths.into_iter().collect()),
            network,
            peers: rules.peers.into_iter().take(MAX_PATHS).collect(),
            refused: refused.collect(),
            is_cut: lengths.iter().any(|length| *length > MAX_PATHS),
        }
    }

    pub(super) fn print(&self, json: bool) -> Result {
        if self.is_cut {
            print::note(&format!("lists are cut after {MAX_PATHS} entries"));
        }
        if json {
            return print::json(self);
        }
        print::out(&self.to_toml())?;
        let name = safe::visible(&self.agent);
        match (self.is_enough, self.is_complete) {
            (true, false) => {}
            (true, true) => {
                print::note(&format!("the sandbox of '{name}' is enough for this prompt"));
            }
            (false, _) => print::hint(&format!(
                "read these lines, put them into [agents.{name}] in place of the lines with the same names, and start the server again"
            )),
        }
        Ok(())
    }

    /// The table, with what a person should know as comments.
    fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut settings = String::new();
        for (key, paths) in [("read_paths", &self.read_paths), ("write_paths", &self.write_paths)] {
            if !paths.is_empty() && !self.is_enough {
                settings.push_str(&format!("{key} = {}\n", list(paths)));
            }
        }
        if let Some(network) = &self.network {
            settings.push_str(&format!("network = \"{network}\"\n"));
        }
        if !settings.is_empty() {
            text.push_str(&format!("[agents.{}]\n{settings}", safe::visible(&self.agent)));
        }
        if !self.peers.is_empty() {
            text.push_str("# It connected to:\n");
            self.peers
                .iter()
                .for_each(|peer| text.push_str(&format!("#   {}\n", safe::line(peer))));
        }
        if !self.refused.is_empty() {
            text.push_str("# No rule gives it:\n");
            for RefusedPath { path, reason } in &self.refused {
                text.push_str(&format!("#   {path}: {}\n", safe::line(reason)));
            }
        }
        text
    }
}

/// A list of texts, one a line if there are several.
fn list(texts: &[String]) -> String {
    let quoted: Vec<_> =
        texts.iter().map(|text| toml::Value::from(text.as_str()).to_string()).collect();
    match &quoted[..] {
        [one] => format!("[{one}]"),
        all => format!("[\n    {},\n]", all.join(",\n    ")),
    }
}

/// Writes a path as the configuration does: `~/` is the home folder.
fn below_home(path: &Path, home: Option<&Path>) -> String {
    let real = home.and_then(|home| home.canonicalize().ok());
    let homes = home.into_iter().chain(real.as_deref());
    let below = homes.filter_map(|home| path.strip_prefix(home).ok()).next();
    match below.filter(|below| !below.as_os_str().is_empty()) {
        Some(below) => format!("~/{}", below.display()),
        None => path.display().to_string(),
    }
}
