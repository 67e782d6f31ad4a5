//! The format of the Agent Client Protocol's official registry of agents, `registry.json`.
//!
//! The registry decides which programs are fetched and started, so a document is accepted whole or not at all.

use indexmap::IndexMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trilogue_domain::error::Result;
use trilogue_domain::{AgentName, Code, Error};
use url::Url;

use crate::local::known_agents::PackageRunner;

/// The first number of the versions of the format that this program reads.
const FORMAT: &str = "1";
/// The most agents of a registry.
const MAX_AGENTS: usize = 2_000;
/// The longest description, address or argument, in bytes.
const MAX_TEXT_BYTES: usize = 4 * 1024;
/// The longest name or version, in bytes.
const MAX_NAME_BYTES: usize = 214;
/// The most arguments, and the most variables, of one distribution.
const MAX_WORDS: usize = 64;
/// How much of a text an error shows, in characters.
const SHOWN_CHARS: usize = 60;
/// The digits of a SHA-256 digest in hexadecimal form.
const DIGEST_DIGITS: usize = 64;

/// An agent of the registry. Every text is checked: none has control characters.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RegistryAgent {
    /// Its id in the registry: lower-case letters, digits and `-`.
    pub id: String,
    /// The name that its makers give it.
    pub name: String,
    /// The version of its newest release.
    pub version: String,
    /// What it is, in one line.
    pub description: String,
    /// The address of its icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// Where package runners get it.
    pub packages: Vec<RegistryPackage>,
    /// Archives with its program, by platform, such as `linux-x86_64`.
    pub binaries: IndexMap<String, RegistryBinary>,
}

/// A package in one exact version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RegistryPackage {
    /// The program that fetches it.
    pub runner: PackageRunner,
    /// Its name in the runner's registry.
    pub name: String,
    /// The exact version.
    pub version: String,
    /// The program of the package, if it has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How it is started.
    #[serde(flatten)]
    pub start: StartWords,
}

/// An archive with an agent's program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RegistryBinary {
    /// Where to download it.
    pub archive: String,
    /// The SHA-256 digest of the archive, if the registry has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The program in the archive: a relative path that stays below the archive's folder.
    pub program: String,
    /// How it is started.
    #[serde(flatten)]
    pub start: StartWords,
}

/// How a program is started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct StartWords {
    /// The words after the program.
    pub arguments: Vec<String>,
    /// The variables that it is started with.
    pub env: IndexMap<String, String>,
}

/// A registry as it is written. Unknown members are for newer readers.
#[derive(Deserialize)]
pub(super) struct Document {
    version: String,
    /// The day of the facts; only our own table has it.
    #[serde(default)]
    pub(super) date: String,
    agents: Vec<Value>,
}

#[derive(Deserialize)]
struct WrittenAgent {
    id: String,
    name: String,
    version: String,
    description: String,
    icon: Option<String>,
    distribution: Value,
}

#[derive(Deserialize)]
struct WrittenDistribution {
    npx: Option<Value>,
    uvx: Option<Value>,
    #[serde(default)]
    binary: IndexMap<String, Value>,
}

#[derive(Deserialize)]
struct WrittenPackage {
    package: String,
    cmd: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: IndexMap<String, String>,
}

#[derive(Deserialize)]
struct WrittenBinary {
    archive: String,
    sha256: Option<String>,
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: IndexMap<String, String>,
}

// === impl Document ===

impl Document {
    /// Checks every member.
    ///
    /// # Errors
    /// `peer_unavailable` with the place of the first member that is not accepted.
    pub(super) fn into_agents(self) -> Result<Vec<RegistryAgent>> {
        if self.version.split('.').next() != Some(FORMAT) {
            let message = format!(
                "it has the format {}, and this program reads the formats {FORMAT}.x",
                quoted(&self.version)
            );
            return Err(Error::new(Code::PeerUnavailable, message)
                .hint("install a newer version of trilogue"));
        }
        let count = self.agents.len();
        if count > MAX_AGENTS {
            return Err(refusal("agents", &format!("{count} agents, at most {MAX_AGENTS} fit")));
        }
        let mut agents: Vec<RegistryAgent> = Vec::with_capacity(count);
        for (at, agent) in self.agents.into_iter().enumerate() {
            let place = match agent.get("id").and_then(Value::as_str) {
                Some(id) => format!("agents[{at}] ({})", id.escape_debug()),
                None => format!("agents[{at}]"),
            };
            let agent = read::<WrittenAgent>(&place, agent)?.check(&format!("agents[{at}]"))?;
            if agents.iter().any(|other| other.id == agent.id) {
                let why = format!("{} is there twice", quoted(&agent.id));
                return Err(refusal(&format!("agents[{at}].id"), &why));
            }
            agents.push(agent);
        }
        Ok(agents)
    }
}

// === impl WrittenAgent ===

impl WrittenAgent {
    fn check(self, at: &str) -> Result<RegistryAgent> {
        let Self { id, name, version, description, icon, distribution } = self;
        let starts_well = id.starts_with(|c: char| c.is_ascii_lowercase());
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if !starts_well || !id.chars().all(is_plain) || AgentName::parse(&id).is_err() {
            let why = format!("{} is not an id of lower-case letters, digits and '-'", quoted(&id));
            return Err(refusal(&format!("{at}.id"), &why));
        }
        let at = format!("{at} ({id})");
        check_text(&format!("{at}.name"), &name, MAX_NAME_BYTES)?;
        check_version(&format!("{at}.version"), &version)?;
        // A description may have several lines; it is shown on one.
        let description = description.replace(['\n', '\r', '\t'], " ");
        check_text(&format!("{at}.description"), &description, MAX_TEXT_BYTES)?;
        if let Some(icon) = &icon {
            check_text(&format!("{at}.icon"), icon, MAX_TEXT_BYTES)?;
        }
        let at = format!("{at}.distribution");
        let WrittenDistribution { npx, uvx, binary } = read(&at, distribution)?;
        let written = [(PackageRunner::Npx, npx), (PackageRunner::Uvx, uvx)];
        let mut packages = Vec::new();
        for (runner, package) in written {
            if let Some(package) = package {
                let at = format!("{at}.{}", runner.program());
                packages.push(read::<WrittenPackage>(&at, package)?.check(&at, runner, &version)?);
            }
        }
        let mut binaries = IndexMap::new();
        for (platform, written) in binary {
            check_text(&format!("{at}.binary"), &platform, MAX_NAME_BYTES)?;
            let at = format!("{at}.binary.{platform}");
            binaries.insert(platform, read::<WrittenBinary>(&at, written)?.check(&at)?);
        }
        Ok(RegistryAgent { id, name, version, description, icon, packages, binaries })
    }
}

// === impl WrittenPackage ===

impl WrittenPackage {
    /// Splits the package into its name and its exact version; without one, it has the agent's.
    fn check(self, at: &str, runner: PackageRunner, version: &str) -> Result<RegistryPackage> {
        let place = format!("{at}.package");
        let text = self.package.as_str();
        let (name, own) = match runner {
            // The first character of a scoped name is an '@' too.
            PackageRunner::Npx => match text.char_indices().rev().find(|(_, c)| *c == '@') {
                Some((index, _)) if index > 0 => text.split_at(index),
                _ => (text, ""),
            },
            PackageRunner::Uvx => {
                text.split_at(text.find(['@', '=', '<', '>', '~', '!']).unwrap_or(text.len()))
            }
        };
        let own = own.strip_prefix("==").or_else(|| own.strip_prefix('@')).unwrap_or(own);
        let is_name = match runner {
            PackageRunner::Npx => is_npm_name(name),
            PackageRunner::Uvx => is_python_name(name),
        };
        if !is_name || name.len() > MAX_NAME_BYTES {
            let why = format!("{} is not the name of a package", quoted(name));
            return Err(refusal(&place, &why));
        }
        let version = if own.is_empty() { version } else { own };
        check_version(&place, version)?;
        let program = self.cmd;
        if let Some(program) = &program
            && (program.starts_with('-') || !is_plain_word(program))
        {
            let why = format!("{} is not the name of a program", quoted(program));
            return Err(refusal(&format!("{at}.cmd"), &why));
        }
        let start = start_words(at, self.args, self.env)?;
        let (name, version) = (name.to_owned(), version.to_owned());
        Ok(RegistryPackage { runner, name, version, program, start })
    }
}

// === impl WrittenBinary ===

impl WrittenBinary {
    fn check(self, at: &str) -> Result<RegistryBinary> {
        let place = format!("{at}.archive");
        check_text(&place, &self.archive, MAX_TEXT_BYTES)?;
        let is_https =
            Url::parse(&self.archive).is_ok_and(|url| url.scheme() == "https" && url.has_host());
        if !is_https {
            let why = format!("{} does not begin with https://", quoted(&self.archive));
            return Err(refusal(&place, &why));
        }
        if let Some(digest) = &self.sha256
            && (digest.len() != DIGEST_DIGITS || !digest.chars().all(|c| c.is_ascii_hexdigit()))
        {
            let why = format!("{} is not {DIGEST_DIGITS} hexadecimal digits", quoted(digest));
            return Err(refusal(&format!("{at}.sha256"), &why));
        }
        let place = format!("{at}.cmd");
        check_text(&place, &self.cmd, MAX_TEXT_BYTES)?;
        if !stays_below(&self.cmd) {
            let why = format!("{} leaves the folder of the archive", quoted(&self.cmd));
            return Err(refusal(&place, &why));
        }
        let sha256 = self.sha256.map(|digest| digest.to_ascii_lowercase());
        let start = start_words(at, self.args, self.env)?;
        Ok(RegistryBinary { archive: self.archive, sha256, program: self.cmd, start })
    }
}

fn start_words(
    at: &str,
    arguments: Vec<String>,
    env: IndexMap<String, String>,
) -> Result<StartWords> {
    if arguments.len() > MAX_WORDS {
        let why = format!("{} arguments, at most {MAX_WORDS} fit", arguments.len());
        return Err(refusal(&format!("{at}.args"), &why));
    }
    if env.len() > MAX_WORDS {
        let why = format!("{} variables, at most {MAX_WORDS} fit", env.len());
        return Err(refusal(&format!("{at}.env"), &why));
    }
    for argument in &arguments {
        check_text(&format!("{at}.args"), argument, MAX_TEXT_BYTES)?;
    }
    for (name, value) in &env {
        let place = format!("{at}.env");
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || name.len() > MAX_NAME_BYTES {
            return Err(refusal(&place, &format!("{} is not a variable", quoted(name))));
        }
        check_text(&place, value, MAX_TEXT_BYTES)?;
    }
    Ok(StartWords { arguments, env })
}

/// Whether it is a name in npm's registry: no address, folder or option.
fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => {
            scoped.split_once('/').is_some_and(|(scope, name)| is_word(scope) && is_word(name))
        }
        None => is_word(name),
    }
}

/// Whether it is a name in PyPI, with extras or without.
fn is_python_name(name: &str) -> bool {
    let (name, extras) = name.split_once('[').unwrap_or((name, "]"));
    let extras = extras.strip_suffix(']');
    is_word(name) && extras.is_some_and(|names| names.split(',').all(is_plain_word))
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && is_plain_word(text)
}

fn is_plain_word(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && text.len() <= MAX_NAME_BYTES
}

/// Whether a path of any platform stays in the folder where it begins.
fn stays_below(path: &str) -> bool {
    let is_absolute = path.starts_with(['/', '\\']) || path.contains(':');
    !path.is_empty() && !is_absolute && !path.split(['/', '\\']).any(|part| part == "..")
}

/// An exact version: a range would let others choose what is started.
fn check_version(at: &str, version: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
    let starts_well = version.starts_with(|c: char| c.is_ascii_digit());
    if starts_well && version.len() <= MAX_NAME_BYTES && version.chars().all(is_plain) {
        return Ok(());
    }
    Err(refusal(at, &format!("{} is not an exact version", quoted(version))))
}

fn check_text(at: &str, text: &str, most: usize) -> Result<()> {
    if text.len() > most {
        return Err(refusal(at, &format!("{} bytes, at most {most} fit", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(refusal(at, &format!("{} has control characters", quoted(text))));
    }
    Ok(())
}

/// Reads a member. The error names its place.
fn read<T: DeserializeOwned>(at: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| refusal(at, &error.to_string()))
}

fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("'{}'", shown.escape_debug())
}

fn refusal(at: &str, why: &str) -> Error {
    Error::new(Code::PeerUnavailable, format!("{at}: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> Result<Vec<RegistryAgent>> {
        serde_json::from_value::<Document>(document).unwrap().into_agents()
    }

    fn agent(distribution: &Value) -> Value {
        json!({"id": "a", "name": "A", "version": "1.2.3", "description": "d", "distribution": distribution})
    }

    fn read_one(agent: &Value) -> Result<RegistryAgent> {
        read(json!({"version": "1.0.0", "agents": [agent]})).map(|mut agents| agents.remove(0))
    }

    #[test]
    fn each_form_of_a_distribution_is_pinned_to_a_version() {
        let found = read_one(&agent(&json!({
            "npx": {"package": "@scope/name@2.0.0-rc.1", "args": ["--acp"], "env": {"A_B": "1"}},
            "uvx": {"package": "name[acp]==1.2.4", "cmd": "name-acp"},
            "binary": {"windows-x86_64": {"archive": "https://x.example/a.zip", "cmd": "./bin\\a.exe", "sha256": "AB".repeat(32)}},
            "carrier-pigeon": {"loft": 1},
        })))
        .unwrap();
        let [npx, uvx] = found.packages.as_slice() else { panic!("{found:?}") };
        assert_eq!((npx.name.as_str(), npx.version.as_str()), ("@scope/name", "2.0.0-rc.1"));
        assert_eq!(
            (&npx.start.arguments[..], &npx.start.env["A_B"][..]),
            (&["--acp".to_owned()][..], "1")
        );
        assert_eq!((uvx.name.as_str(), uvx.version.as_str()), ("name[acp]", "1.2.4"));
        assert_eq!(uvx.program.as_deref(), Some("name-acp"));
        assert_eq!(found.binaries["windows-x86_64"].sha256, Some("ab".repeat(32)));
        // A package without a version has the agent's.
        for (kind, package, name) in [("npx", "@s/n", "@s/n"), ("npx", "n", "n"), ("uvx", "n", "n")]
        {
            let found = read_one(&agent(&json!({ kind: {"package": package} }))).unwrap();
            let package = &found.packages[0];
            assert_eq!((package.name.as_str(), package.version.as_str()), (name, "1.2.3"));
        }
    }

    #[test]
    fn what_would_start_something_else_is_refused_by_its_place() {
        let binary = |archive: &str, cmd: &str| {
            agent(&json!({"binary": {"linux-x86_64": {"archive": archive, "cmd": cmd}}}))
        };
        let npx = |package: &str| agent(&json!({"npx": {"package": package}}));
        let uvx = |package: &str| agent(&json!({"uvx": {"package": package}}));
        let https = "https://x.example/a.tgz";
        for (agent, place) in [
            (binary(https, "../a"), "agents[0] (a).distribution.binary.linux-x86_64.cmd: "),
            (binary(https, "x/..\\..\\a"), "linux-x86_64.cmd: "),
            (binary(https, "/bin/sh"), "linux-x86_64.cmd: "),
            (binary(https, "C:\\a.exe"), "linux-x86_64.cmd: "),
            (binary(https, ""), "linux-x86_64.cmd: "),
            (binary("http://x.example/a.tgz", "a"), "linux-x86_64.archive: "),
            (binary("file:///a.tgz", "a"), "linux-x86_64.archive: "),
            (npx("https://x.example/a.tgz"), "npx.package: "),
            (npx("file:../a"), "npx.package: "),
            (npx("github/a"), "npx.package: "),
            (npx("--eval"), "npx.package: "),
            (npx("a@latest"), "npx.package: "),
            (npx("a@^1.0.0"), "npx.package: "),
            (npx("a@npm:b@1.0.0"), "npx.package: "),
            (uvx("a>=1.0"), "uvx.package: "),
            (uvx("a @ https://x.example/a.whl"), "uvx.package: "),
            (uvx("a==1.0; b"), "uvx.package: "),
            (agent(&json!({"npx": {"package": "a", "cmd": "--c"}})), "npx.cmd: "),
            (agent(&json!({"npx": {"package": "a", "env": {"A=B": "c"}}})), "npx.env: "),
            (agent(&json!({"npx": {"package": "a", "args": ["a\u{0}b"]}})), "npx.args: "),
            (agent(&json!({"npx": {"package": "a", "args": vec!["x"; 65]}})), "npx.args: "),
        ] {
            let error = read_one(&agent).expect_err(&agent.to_string());
            assert!(error.message().contains(place), "{agent}: {}", error.message());
        }
        let digest = json!({"archive": https, "cmd": "a", "sha256": "abc"});
        let error = read_one(&agent(&json!({"binary": {"linux-x86_64": digest}}))).unwrap_err();
        assert!(error.message().contains("sha256: 'abc' is not 64"), "{}", error.message());
    }

    #[test]
    fn texts_and_counts_have_limits_and_no_control_characters() {
        let with = |member: &str, value: Value| {
            let mut agent = agent(&json!({}));
            agent[member] = value;
            read_one(&agent)
        };
        for (member, value) in [
            ("id", json!("A")),
            ("id", json!("../a")),
            ("id", json!("")),
            ("id", json!("a".repeat(1_000))),
            ("name", json!("\u{1b}[31mA")),
            ("name", json!("a".repeat(MAX_NAME_BYTES + 1))),
            ("version", json!("latest")),
            ("version", json!("1.0\u{1b}]0;x\u{7}")),
            ("description", json!("\u{9b}31m")),
            ("description", json!("a".repeat(MAX_TEXT_BYTES + 1))),
            ("icon", json!("\u{7}")),
        ] {
            let error = with(member, value.clone()).expect_err(&value.to_string());
            let text = error.message();
            assert!(text.contains(&format!(".{member}: ")), "{text}");
            assert!(!text.chars().any(char::is_control) && text.len() < 400, "{text}");
        }
        assert_eq!(with("description", json!("one\ntwo")).unwrap().description, "one two");
        let twice =
            read(json!({"version": "1.0.0", "agents": [agent(&json!({})), agent(&json!({}))]}));
        assert!(twice.unwrap_err().message().contains("is there twice"));
        let error = read(json!({"version": "2.0.0", "agents": []})).unwrap_err();
        assert_eq!(
            error.message(),
            "it has the format '2.0.0', and this program reads the formats 1.x"
        );
    }
}
