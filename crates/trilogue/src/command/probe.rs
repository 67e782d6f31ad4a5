//! Looks whether what a configuration names is there: programs, folders and addresses.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::net::TcpStream;
use trilogue::config::{Agent, Options};
use trilogue::find_program;
use trilogue_sandbox::control_group::{DelegatedGroup, GroupLimits};
use url::Url;

use crate::command::server_command::user_of;
use crate::terminal::{print, safe};

/// How long a name may take to resolve, and an address to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// The prefix of a hint below a finding.
const HINT: &str = "  hint";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Ok,
    /// Something that may be meant.
    Warning,
    /// Something that keeps the server or an agent from working.
    Problem,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct ProbeFinding {
    pub(crate) severity: Severity,
    pub(crate) subject: String,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
}

// === impl ProbeFinding ===

impl ProbeFinding {
    pub(crate) fn ok(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, subject: subject.into(), detail: detail.into(), hint: None }
    }

    pub(crate) fn warning(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::ok(subject, detail) }
    }

    pub(crate) fn problem(subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { severity: Severity::Problem, ..Self::ok(subject, detail) }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A line for people, and one for the hint.
    pub(crate) fn render(&self) -> String {
        let word = match self.severity {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        };
        let line = format!("{word}: {}: {}\n", safe::line(&self.subject), safe::line(&self.detail));
        match &self.hint {
            Some(hint) => format!("{line}{HINT}: {}\n", safe::line(hint)),
            None => line,
        }
    }

    pub(crate) fn note(&self) {
        print::aside(&self.render());
    }
}

/// Looks for everything that the agents of a configuration need.
pub(crate) async fn agents(options: &Options) -> Vec<ProbeFinding> {
    let mut found = Vec::new();
    for (name, agent) in &options.agents {
        if let Some(program) = agent.command.0.first() {
            found.push(command(name, agent, program));
        }
        if let Some(program) = agent.wrap_with.0.first() {
            let path = std::env::var("PATH").ok();
            found.push(program_at(format!("agents.{name}.wrap_with"), program, path.as_deref()));
        }
        found.extend(missing_paths(name, agent));
        // A folder with {thread} is created for each thread.
        if let Some(cwd) = agent.cwd.as_ref().filter(|cwd| !cwd.contains('{'))
            && !Path::new(cwd).is_dir()
        {
            let detail = format!("the folder {cwd} does not exist: the first start creates it");
            found.push(ProbeFinding::warning(format!("agents.{name}.cwd"), detail));
        }
        if let (Some(url), true) = (&agent.url, agent.command.0.is_empty()) {
            let hint =
                "start the agent's server; this server serves the agent as soon as it answers";
            found.push(address(format!("agents.{name}.url"), url, hint).await);
        }
    }
    found
}

/// Looks whether a server can apply the limits of its agents: the one that runs as this process, or one that is started as this command is.
pub(crate) fn limits(options: &Options, server: Option<u32>) -> Vec<ProbeFinding> {
    let process = server.unwrap_or_else(std::process::id);
    let group = DelegatedGroup::of_process(process);
    let found = options.agents.iter().filter_map(|(name, agent)| {
        let limits = Some(agent.limits.to_group()).filter(GroupLimits::is_any)?;
        let missing = match &group {
            Ok(group) => group.check(&limits).err()?,
            Err(missing) => missing.clone(),
        };
        let detail = match server {
            Some(_) => format!("not all are in force: {missing}"),
            None => format!("a server that is started here cannot apply all of them: {missing}"),
        };
        let subject = format!("agents.{name}.limits");
        Some(ProbeFinding::warning(subject, detail).hint(missing.hint))
    });
    found.collect()
}

/// Looks for the variables of secrets. They may be set only where the server starts.
pub(crate) fn secrets(options: &Options) -> Vec<ProbeFinding> {
    let store = &options.store;
    let blobs = store.blobs.as_ref();
    let variables = [
        ("store.password_env", store.password_env.as_ref()),
        ("store.blobs.secret_env", blobs.and_then(|blobs| blobs.secret_env.as_ref())),
        ("cluster.nats_env", options.cluster.nats_env.as_ref()),
    ];
    let named = variables.into_iter().filter_map(|(key, name)| Some((key, name?)));
    let missing = named.filter(|(_, name)| std::env::var_os(name).is_none());
    let found = missing.map(|(key, name)| {
        ProbeFinding::warning(key, format!("the variable '{name}' is not set here"))
            .hint("set it where the server starts: without it, the server does not start")
    });
    found.collect()
}

/// Looks whether notifications about questions can be sent.
pub(crate) async fn notify(options: &Options) -> Option<ProbeFinding> {
    if let Some(program) = options.notify.command.0.first() {
        let path = std::env::var("PATH").ok();
        return Some(program_at("notify.command", program, path.as_deref()));
    }
    let url = Url::parse(options.notify.url.as_deref()?).ok()?;
    let (host, port) = (url.host_str()?, url.port_or_known_default()?);
    let host = host.trim_matches(['[', ']']).to_owned();
    let policy = options.egress.to_policy();
    let subject = "notify.url";
    let found = tokio::time::timeout(CONNECT_LIMIT, tokio::net::lookup_host((&*host, port))).await;
    let Ok(Ok(addresses)) = found else {
        let detail = format!("the name {host} cannot be resolved now");
        return Some(ProbeFinding::warning(subject, detail).hint("check the name and the network"));
    };
    let refused =
        addresses.map(|address| address.ip()).find(|ip| policy.check(&host, *ip).is_err());
    Some(match refused {
        None => ProbeFinding::ok(subject, format!("the server may send to {host}")),
        Some(ip) => {
            let detail = format!("no notification is sent: {host} is {ip}, a private address");
            ProbeFinding::problem(subject, detail).hint(format!("add \"{ip}\" to egress.allow"))
        }
    })
}

/// Looks who uses the listen addresses of a configuration.
pub(crate) fn listeners(options: &Options) -> Vec<ProbeFinding> {
    let addresses = options.server.listen.0.iter().filter(|address| address.port() != 0);
    let users = addresses.filter_map(|address| Some((address, user_of(*address)?)));
    let found = users.map(|(address, user)| {
        let detail = format!("the address {address} is in use by {user}");
        ProbeFinding::warning("server.listen", detail)
            .hint("stop that program, or choose another address with server.listen or --listen")
    });
    found.collect()
}

/// The paths of its sandbox that are not there.
fn missing_paths(name: &str, agent: &Agent) -> Vec<ProbeFinding> {
    let is_missing = |path: &&String| !agent.whole_path(path).exists();
    let all = [("read_paths", &agent.read_paths), ("write_paths", &agent.write_paths)];
    let missing = all.iter().flat_map(|(key, paths)| {
        let missing = paths.0.iter().filter(is_missing);
        missing.map(move |path| {
            let detail = format!("{path} does not exist: a start of the agent leaves it out");
            ProbeFinding::warning(format!("agents.{name}.{key}"), detail).hint(
                "create it, or write its whole path; variables and patterns have no meaning here",
            )
        })
    });
    missing.collect()
}

fn command(name: &str, agent: &Agent, program: &str) -> ProbeFinding {
    let subject = format!("agents.{name}.command");
    let path = agent.env.get("PATH").map(|path| path.0.clone());
    let path = path.or_else(|| std::env::var("PATH").ok());
    program_at(subject, program, path.as_deref())
}

fn program_at(subject: impl Into<String>, program: &str, path: Option<&str>) -> ProbeFinding {
    let here = std::env::current_dir().unwrap_or_default();
    match find_program(program, &here, path).filter(|found| found.is_file()) {
        Some(found) => ProbeFinding::ok(subject, format!("{program} is {}", found.display())),
        None => ProbeFinding::problem(subject, format!("the program '{program}' is not found"))
            .hint("install it, or write its full path; a service often has a shorter PATH than your shell"),
    }
}

/// Looks whether the other servers of a cluster can reach the address that they are given.
pub(crate) fn cluster(options: &Options) -> Option<ProbeFinding> {
    let url = Url::parse(options.cluster.address.as_deref()?).ok()?;
    let is_of_network = !options.server.listen.0.iter().all(|address| address.ip().is_loopback());
    if url.scheme() != "http" || is_loopback(&url) || is_of_network {
        return None;
    }
    let detail = format!("no other server reaches {url}: this one listens on its machine only");
    Some(
        ProbeFinding::warning("cluster.address", detail).hint(
            "set server.listen to an address of the network, unless a proxy passes requests on",
        ),
    )
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Looks whether something accepts connections at the address of a URL.
pub(crate) async fn address(subject: String, url: &str, how_to_fix: &'static str) -> ProbeFinding {
    let parsed = Url::parse(url).ok();
    let host =
        parsed.as_ref().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
    let Some((host, port)) = host else {
        return ProbeFinding::problem(subject, "it names no host");
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    let resolved = async {
        let all: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), port)).await?.collect();
        TcpStream::connect(all.as_slice()).await
    };
    match tokio::time::timeout(CONNECT_LIMIT, resolved).await {
        Ok(Ok(_)) => ProbeFinding::ok(subject, format!("{host}:{port} accepts connections")),
        Ok(Err(error)) => {
            ProbeFinding::warning(subject, format!("{host}:{port} cannot be reached: {error}"))
                .hint(how_to_fix)
        }
        Err(_) => {
            let detail = format!("{host}:{port} does not answer within {CONNECT_LIMIT:?}");
            ProbeFinding::warning(subject, detail).hint(how_to_fix)
        }
    }
}
