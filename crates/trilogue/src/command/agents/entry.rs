//! The settings of an agent, as text for a configuration file.

use trilogue::local::agent_catalog::{AgentCatalog, RegistryAgent, RegistryPackage};
use trilogue::local::checkout::Checkout;
use trilogue::local::known_agents::{FETCH_LIMIT, KnownAgent};
use trilogue_domain::AgentName;

/// The line about the folder of an agent for which the user sets none.
const NO_CWD: &str = "# cwd = \"work/{thread}\"  # a folder of its own for each thread; without it, the folder that its client names\n";

/// The settings of a command.
pub(crate) fn of_command(name: &AgentName, command: &[String], cwd: Option<&str>) -> String {
    let (key, command, cwd) = (key(name), list(command), folder(cwd));
    format!(
        "[agents.{key}]\nkind = \"agent-client\"\ncommand = {command}\n# inherit = [\"OPENAI_API_KEY\"]  # variables of the server that it gets\n{cwd}"
    )
}

/// The settings of a known agent, with its command in the search path.
pub(crate) fn of_known_agent(
    name: &AgentName,
    known: &KnownAgent,
    catalog: &AgentCatalog,
    cwd: Option<&str>,
) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let start = known.resolve(catalog, &Checkout::around_here(), &path);
    let mut text =
        format!("# {}. It asks before it changes anything: {}.\n", known.title, known.asks);
    for note in &known.notes {
        text.push_str(&format!("# Note: {note}.\n"));
    }
    text.push_str(&format!("[agents.{}]\nkind = \"agent-client\"\n", key(name)));
    text.push_str(&format!("description = {}\n", quoted(&known.title)));
    match &start {
        Some(start) if start.is_fetched => text.push_str(&format!(
            "# Faster: {}, then command = {}\ncommand = {}\nstart_timeout = \"{}s\"  # the first start fetches it\n",
            known.install,
            list(&known.command),
            list(&start.words),
            FETCH_LIMIT.as_secs(),
        )),
        Some(start) => text.push_str(&format!("command = {}\n", list(&start.words))),
        None => text.push_str(&format!(
            "# Not installed yet: {}\ncommand = {}\n",
            known.install,
            list(&known.command),
        )),
    }
    if !known.inherit.is_empty() {
        let inherit = list(&known.inherit);
        text.push_str(&format!(
            "inherit = {inherit}  # keys and settings, from the server's environment\n"
        ));
    }
    if !known.env.is_empty() {
        let pairs: Vec<_> = known.env.iter().map(pair).collect();
        text.push_str(&format!("env = {{ {} }}\n", pairs.join(", ")));
    }
    if !known.mode.is_empty() {
        text.push_str(&format!("mode = {}\n", list(&known.mode)));
    }
    text.push_str("# model = \"…\"  # by its id or name; `trilogue agents NAME` shows what there is after the first run\n");
    let methods: Vec<_> =
        known.key_methods.iter().map(|(key, method)| format!("\"{method}\" uses {key}")).collect();
    let keys = std::env::vars().collect();
    if let Some(method) = known.key_method(&keys) {
        text.push_str(&format!("auth_method = \"{method}\"  # {}\n", methods.join(", ")));
    } else if let Some(method) = known.key_methods.values().next() {
        text.push_str(&format!("# auth_method = \"{method}\"  # {}\n", methods.join(", ")));
    }
    text.push_str(&folder(cwd));
    text.push_str("# mcp_servers.NAME = { command = [\"…\"] }  # tools for every session\n");
    text
}

/// The settings of an agent of the registry that this program knows nothing else of. `None` if no package runner starts it.
pub(crate) fn of_registry_agent(
    name: &AgentName,
    agent: &RegistryAgent,
    cwd: Option<&str>,
) -> Option<String> {
    let package = agent.packages.first()?;
    let command = list(&RegistryPackage::command(package));
    let (title, limit) = (quoted(&agent.name), FETCH_LIMIT.as_secs());
    let env: Vec<_> = package.start.env.iter().map(pair).collect();
    let env = match env.is_empty() {
        true => String::new(),
        false => format!("env = {{ {} }}\n", env.join(", ")),
    };
    let (key, cwd) = (key(name), folder(cwd));
    Some(format!(
        "# From the registry of agents. It may change files without a question: set what makes it ask.\n[agents.{key}]\nkind = \"agent-client\"\ndescription = {title}\ncommand = {command}\nstart_in = \"empty\"\nstart_timeout = \"{limit}s\"  # the first start fetches it\n# inherit = [\"OPENAI_API_KEY\"]  # variables of the server that it gets\n{env}{cwd}"
    ))
}

fn pair((name, value): (&String, &String)) -> String {
    format!("{name} = {}", quoted(value))
}

fn folder(cwd: Option<&str>) -> String {
    cwd.map_or_else(|| NO_CWD.to_owned(), |cwd| format!("cwd = {}\n", quoted(cwd)))
}

/// The name as a key of the file.
fn key(name: &AgentName) -> String {
    let is_bare = !name.as_str().contains('.');
    if is_bare { name.as_str().to_owned() } else { quoted(name.as_str()) }
}

fn list(words: &[String]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
