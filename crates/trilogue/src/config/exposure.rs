//! Checks that the server is not exposed by accident.

use std::net::SocketAddr;

use trilogue_backends::permission::{Verdict, is_unattended};
use trilogue_egress::Cidr;
use url::Url;

use super::cluster::is_local;
use super::list::Item;
use super::{Agent, Options, Permission};

/// A combination of settings that would expose the server.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExposureError {
    message: String,
    /// The fix.
    pub hint: String,
}

/// Refuses settings with which strangers could reach the server without a token, or tokens would travel unencrypted.
///
/// # Errors
/// [`ExposureError`], with the fix as its hint.
pub fn check(options: &Options) -> Result<(), ExposureError> {
    let server = &options.server;
    let Some(public) = server.listen.0.iter().find(|address| !address.ip().is_loopback()) else {
        return Ok(());
    };
    if server.no_auth {
        return Err(ExposureError {
            message: format!(
                "the listener {public} is open to other machines, and `server.no_auth` would let anybody on them run agents"
            ),
            hint: format!(
                "remove `no_auth` (the command line uses its token by itself), or set server.listen = \"{}\"",
                SocketAddr::from(([127, 0, 0, 1], public.port()))
            ),
        });
    }
    if server.trusted_proxies.0.is_empty() && !server.dangerously_plain_http {
        return Err(ExposureError {
            message: format!(
                "the listener {public} is open to other machines, and without TLS everybody on the way can read its tokens"
            ),
            hint: "put a TLS proxy in front and name its address in `server.trusted_proxies`, or accept the risk with `server.dangerously_plain_http = true`".to_owned(),
        });
    }
    Ok(())
}

/// The keys of active settings that weaken a default protection. `status` shows them.
#[must_use]
pub fn overrides(options: &Options) -> Vec<String> {
    let server = &options.server;
    let mut keys = Vec::new();
    if server.no_auth {
        keys.push("server.no_auth".to_owned());
    }
    if server.dangerously_plain_http {
        keys.push("server.dangerously_plain_http".to_owned());
    }
    if options.cluster.dangerously_plain_nats {
        keys.push("cluster.dangerously_plain_nats".to_owned());
    }
    if options.cluster.dangerously_plain_http {
        keys.push("cluster.dangerously_plain_http".to_owned());
    }
    for block in server.trusted_proxies.0.iter().filter(|block| block.is_wide()) {
        keys.push(format!("server.trusted_proxies = \"{block}\""));
    }
    if server.public_agents {
        keys.push("server.public_agents".to_owned());
    }
    if options.store.durability == super::Durability::Buffered {
        keys.push("store.durability = \"buffered\"".to_owned());
    }
    if trilogue_store::is_unencrypted(&options.store.url) {
        // The URL itself may hold a password.
        keys.push("store.url with sslmode=disable".to_owned());
    }
    // A URL may hold a password, so none is shown.
    if options.store.blobs.as_ref().is_some_and(|blobs| is_plain_elsewhere(&blobs.url)) {
        keys.push("store.blobs.url with http".to_owned());
    }
    if options.telemetry.otlp.endpoint.as_deref().is_some_and(is_plain_elsewhere) {
        keys.push("telemetry.otlp.endpoint with http".to_owned());
    }
    for (name, agent) in &options.agents {
        if agent.url.as_deref().is_some_and(is_plain_elsewhere) {
            let scheme = agent.url.as_deref().and_then(|url| url.split(':').next());
            keys.push(format!("agents.{name}.url with {}", scheme.unwrap_or_default()));
        }
    }
    for (name, agent) in &options.agents {
        let schemes = agent.authentication.as_ref();
        if schemes.is_some_and(|schemes| schemes.0.contains(&super::Scheme::None)) {
            keys.push(format!("agents.{name}.authentication = \"none\""));
        }
    }
    for (name, agent) in &options.agents {
        let starts_apart = crate::local::known_agents::of_command(&agent.command.0)
            .is_some_and(|known| !known.in_folder);
        if starts_apart && agent.start_in == Some(super::StartIn::Session) {
            keys.push(format!("agents.{name}.start_in = \"session\""));
        }
    }
    for (name, agent) in &options.agents {
        keys.extend(ends_questions(agent).map(|setting| format!("agents.{name}.{setting}")));
    }
    if !options.egress.allow.0.is_empty() {
        keys.push("egress.allow".to_owned());
    }
    if !options.network.allow_addresses.0.is_empty() {
        keys.push("network.allow_addresses".to_owned());
    }
    keys
}

/// Whether what is sent to this address leaves the machine in clear text.
fn is_plain_elsewhere(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "ws") && !is_local(&url))
}

/// The settings that keep an agent from asking: rules that allow every call, and modes and options that are known for it.
fn ends_questions(agent: &Agent) -> impl Iterator<Item = String> {
    let rules = agent.permissions.iter().filter(|rule| allows_everything(rule));
    let rules = rules.map(|_| "permissions: a rule allows every call".to_owned());
    let is_known =
        |setting: &str, value: &str| is_unattended(&[setting], &[value], &agent.unattended.0);
    let modes = agent.mode.0.iter().filter(move |mode| is_known("mode", mode));
    let modes = modes.map(|mode| format!("mode = \"{}\"", mode.escape_debug()));
    let options = agent.options.iter().filter(move |(name, value)| {
        is_known(name, &value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    });
    let options = options.map(|(name, value)| format!("options.{} = {value}", name.escape_debug()));
    rules.take(1).chain(modes).chain(options)
}

fn allows_everything(rule: &Permission) -> bool {
    let is_any_tool = rule.tool.as_deref().is_none_or(|tool| tool.chars().all(|it| it == '*'));
    let is_any_path = matches!(rule.path.as_deref(), None | Some("/**"));
    rule.decision == Verdict::Allow && rule.kind.is_none() && is_any_tool && is_any_path
}

impl Item for Cidr {
    const EXPECTED: &'static str = "an IP address or a block such as \"10.0.0.0/8\"";
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn verdict(text: &str) -> Result<(), ExposureError> {
        check(&super::super::parse(Path::new("t.toml"), text).unwrap().options)
    }

    fn overrides_of(text: &str) -> Vec<String> {
        overrides(&super::super::parse(Path::new("t.toml"), text).unwrap().options)
    }

    /// The list in SECURITY.md, in its order.
    #[test]
    fn every_setting_that_weakens_a_defence_is_an_override() {
        let far = "kind = \"agent-communication\"\nurl = \"http://far.example:8000\"\n";
        let blobs = "[store.blobs]\nregion = \"r\"\nurl";
        for (text, override_key) in [
            ("[server]\ndangerously_plain_http = true\n", "server.dangerously_plain_http"),
            ("[cluster]\ndangerously_plain_nats = true\n", "cluster.dangerously_plain_nats"),
            ("[cluster]\ndangerously_plain_http = true\n", "cluster.dangerously_plain_http"),
            ("[server]\nno_auth = true\n", "server.no_auth"),
            ("[server]\npublic_agents = true\n", "server.public_agents"),
            (
                "[server]\ntrusted_proxies = \"0.0.0.0/0\"\n",
                "server.trusted_proxies = \"0.0.0.0/0\"",
            ),
            ("[egress]\nallow = [\"10.0.0.0/8\"]\n", "egress.allow"),
            (
                "[agents.a]\nkind = \"builtin\"\nbuiltin = \"echo\"\nauthentication = [\"none\"]\n",
                "agents.a.authentication = \"none\"",
            ),
            (
                "[agents.a]\nkind = \"agent-client\"\ncommand = [\"gemini\", \"--acp\"]\nstart_in = \"session\"\n",
                "agents.a.start_in = \"session\"",
            ),
            ("[store]\ndurability = \"buffered\"\n", "store.durability = \"buffered\""),
            (
                "[store]\nurl = \"postgres://me@db.example.com/db?sslmode=disable\"\n",
                "store.url with sslmode=disable",
            ),
            (
                "[store]\nurl = \"postgres://me@localhost/db?hostaddr=192.0.2.2&sslmode=disable\"\n",
                "store.url with sslmode=disable",
            ),
            (
                &format!("{blobs} = \"http://203.0.113.5:9000/bucket\"\n"),
                "store.blobs.url with http",
            ),
            (&format!("[agents.a]\n{far}name = \"x\"\n"), "agents.a.url with http"),
            (
                "[agents.a]\nkind = \"agent-client\"\nurl = \"ws://far.example/acp\"\n",
                "agents.a.url with ws",
            ),
            (
                "[telemetry.otlp]\nendpoint = \"http://[2001:db8::1]:4318\"\n",
                "telemetry.otlp.endpoint with http",
            ),
        ] {
            assert_eq!(overrides_of(text), [override_key], "{text}");
        }
        for safe in [
            "",
            &format!("{blobs} = \"https://s3.example.com/bucket\"\n"),
            &format!("{blobs} = \"http://127.0.0.1:9000/bucket\"\n"),
            "[telemetry.otlp]\nendpoint = \"http://localhost:4318\"\n",
            "[agents.a]\nkind = \"agent-communication\"\nurl = \"http://[::1]:8000\"\nname = \"x\"\n",
        ] {
            assert!(overrides_of(safe).is_empty(), "{safe}");
        }
    }

    #[test]
    fn proxies_that_are_everybody_are_an_override() {
        let shown = |blocks: &str| overrides_of(&format!("[server]\ntrusted_proxies = {blocks}\n"));
        for block in ["0.0.0.0/0", "::/0", "128.0.0.0/1", "2000::/3"] {
            let said = format!("server.trusted_proxies = \"{block}\"");
            assert_eq!(shown(&format!("[\"10.0.0.1\", \"{block}\"]")), [said]);
        }
        assert!(shown("[\"10.0.0.0/8\", \"fd00::/16\", \"192.0.2.1\"]").is_empty());
    }

    #[test]
    fn a_database_on_another_machine_without_encryption_is_an_override() {
        let shown = |url: &str| overrides_of(&format!("[store]\nurl = \"{url}\"\n"));
        let url = "postgres://me:secret@db.example.com/db";
        assert_eq!(shown(&format!("{url}?sslmode=disable")), ["store.url with sslmode=disable"]);
        for safe in [url, "postgres://me@localhost/db?sslmode=disable", "sqlite:a.db"] {
            assert!(shown(safe).is_empty(), "{safe}");
        }
    }

    #[test]
    fn a_known_agent_that_starts_in_its_folder_is_an_override() {
        let shown =
            |agent: &str| overrides_of(&format!("[agents.a]\nkind = \"agent-client\"\n{agent}"));
        let session = "start_in = \"session\"\n";
        for command in ["[\"gemini\", \"--acp\"]", "[\"npx\", \"-y\", \"@google/gemini-cli\"]"] {
            let command = format!("command = {command}\n");
            assert!(shown(&command).is_empty());
            assert_eq!(shown(&(command + session)), ["agents.a.start_in = \"session\""]);
        }
        // Others start there anyway.
        assert!(shown(&format!("command = [\"my-agent\"]\n{session}")).is_empty());
        assert!(shown(&format!("command = [\"goose\", \"acp\"]\n{session}")).is_empty());
    }

    #[test]
    fn settings_that_end_all_questions_are_overrides() {
        let shown = |agent: &str| {
            let text =
                format!("[agents.a]\nkind = \"agent-client\"\ncommand = [\"my-agent\"]\n{agent}");
            overrides(&super::super::parse(Path::new("t.toml"), &text).unwrap().options)
        };
        let rule = |members: &str| format!("[[agents.a.permissions]]\n{members}\n");
        let every = ["agents.a.permissions: a rule allows every call"];
        assert_eq!(shown(&rule("decision = \"allow\"")), every);
        assert_eq!(shown(&rule("decision = \"allow\"\ntool = \"*\"\npath = \"/**\"")), every);
        for narrow in [
            "decision = \"ask\"",
            "decision = \"allow\"\nkind = \"read\"",
            "decision = \"allow\"\ntool = \"fs_*\"",
            "decision = \"allow\"\npath = \"notes/**\"",
        ] {
            assert!(shown(&rule(narrow)).is_empty(), "{narrow}");
        }
        assert_eq!(shown("mode = \"yolo\"\n"), ["agents.a.mode = \"yolo\""]);
        assert_eq!(
            shown("mode = [\"plan\", \"quiet\"]\nunattended = [\"quiet\"]\n"),
            ["agents.a.mode = \"quiet\""]
        );
        assert_eq!(
            shown("options = { approval_policy = \"never\", effort = \"high\" }\n"),
            ["agents.a.options.approval_policy = \"never\""]
        );
        assert!(shown("mode = \"plan\"\n").is_empty());
    }

    #[test]
    fn loopback_needs_nothing() {
        assert_eq!(verdict(""), Ok(()));
        assert_eq!(verdict("[server]\nlisten = \"127.8.9.1:0\"\nno_auth = true\n"), Ok(()));
    }

    #[test]
    fn trusted_proxies_are_who_may_connect_unless_everybody_may() {
        use trilogue_gateway::{Exposure, Proxies};
        let exposure = |text: &str| {
            let options = super::super::parse(Path::new("t.toml"), text).unwrap().options;
            let (tenant, id) = crate::server::first_token::owner().unwrap();
            let rights = trilogue_domain::Rights::all();
            let owner = trilogue_domain::Principal { tenant, id, rights, own: false };
            options.server.to_options(owner, Vec::new()).exposure
        };
        let proxied = "[server]\nlisten = \"0.0.0.0:1\"\ntrusted_proxies = \"10.0.0.0/8\"\n";
        let blocks = vec!["10.0.0.0/8".parse().unwrap()];
        let behind = Exposure::BehindProxy(Proxies { blocks, loopback: true });
        assert_eq!(exposure(proxied), behind);
        let open = format!("{proxied}dangerously_plain_http = true\n");
        assert_eq!(exposure(&open), Exposure::DangerouslyPublic);
        assert_eq!(exposure(""), Exposure::Loopback);
    }

    #[test]
    fn beyond_loopback_needs_authentication_and_a_proxy() {
        for address in ["0.0.0.0:1", "[::]:1", "192.168.1.5:1", "[2001:db8::1]:1"] {
            let open = format!("[server]\nlisten = [\"127.0.0.1:1\", \"{address}\"]\n");
            let error = verdict(&open).unwrap_err();
            assert!(error.to_string().contains(address), "{error}");
            assert!(error.hint.contains("trusted_proxies"), "{}", error.hint);
            let error = verdict(&format!("{open}no_auth = true\ntrusted_proxies = \"10.0.0.1\"\n"));
            assert!(error.unwrap_err().hint.contains("remove `no_auth`"));
            assert_eq!(verdict(&format!("{open}trusted_proxies = \"10.0.0.0/8\"\n")), Ok(()));
            assert_eq!(verdict(&format!("{open}dangerously_plain_http = true\n")), Ok(()));
        }
    }
}
