//! Keys that people write because other programs have them, and what they mean here.

/// Keys that mean something else here.
struct UsualKey {
    /// The section: a key that only it has.
    section: &'static str,
    written: &'static [&'static str],
    hint: &'static str,
}

/// A key that only the agents' section has.
const AGENT: &str = "idle_stop";
/// A key that only the server's section has.
const SERVER: &str = "listen";
/// A key that only the store's section has.
const STORE: &str = "tail_cache";
/// A key that only the log's section has.
const LOG: &str = "level";
/// A section that only the whole file has.
const ROOT: &str = "egress";

const USUAL: &[UsualKey] = &[
    UsualKey {
        section: AGENT,
        written: &["args", "arguments", "argv"],
        hint: "write the arguments behind the program: command = [\"some-agent\", \"acp\"]",
    },
    UsualKey {
        section: AGENT,
        written: &["cmd", "exec", "program", "binary", "path", "executable", "script"],
        hint: "name the program and its arguments: command = [\"some-agent\", \"acp\"]",
    },
    UsualKey { section: AGENT, written: &["type", "protocol", "transport"], hint: KINDS },
    UsualKey {
        section: AGENT,
        written: &["environment", "environ", "vars", "variables", "api_key", "key"],
        hint: "set variables with env, or name those that the agent inherits from the server: inherit = [\"SOME_API_KEY\"]",
    },
    UsualKey {
        section: AGENT,
        written: &["workdir", "working_dir", "working_directory", "directory", "dir", "folder"],
        hint: "name the working directory: cwd = \"/path/to/project\"",
    },
    UsualKey {
        section: AGENT,
        written: &["timeout"],
        hint: "limit a start with start_timeout, and the opening of a session with open_timeout",
    },
    UsualKey {
        section: AGENT,
        written: &["token", "auth", "bearer"],
        hint: "name a variable or a file that holds the token: token_env = \"SOME_TOKEN\" or token_file = \"/path/to/token\"",
    },
    UsualKey {
        section: SERVER,
        written: &["port", "host", "bind", "address", "addr", "ip", "interface"],
        hint: "name address and port: listen = \"127.0.0.1:7878\"",
    },
    UsualKey {
        section: SERVER,
        written: &["tls", "ssl", "https", "cert", "certificate", "key"],
        hint: "the server speaks plain HTTP: put a TLS proxy in front, and name its address: trusted_proxies = [\"127.0.0.1\"]",
    },
    UsualKey { section: SERVER, written: &["token", "tokens", "auth", "api_key"], hint: TOKENS },
    UsualKey {
        section: SERVER,
        written: &["cors", "origins", "cors_origins"],
        hint: "name the origins of pages that may call: allowed_origins = [\"https://app.example.com\"]",
    },
    UsualKey {
        section: SERVER,
        written: &["hosts", "hostname", "domain"],
        hint: "name further host names: allowed_hosts = [\"my.example.com\"]",
    },
    UsualKey {
        section: STORE,
        written: &["path", "file", "database", "db", "dir", "type", "kind", "engine", "backend"],
        hint: "name the store: url = \"sqlite:PATH\" or url = \"memory:\"",
    },
    UsualKey {
        section: LOG,
        written: &["file", "path", "output", "dir"],
        hint: "the log goes to standard error, which your shell or service can redirect",
    },
    UsualKey { section: LOG, written: &["json", "type"], hint: "set format = \"json\"" },
    UsualKey { section: LOG, written: &["verbosity", "verbose", "debug"], hint: LEVELS },
    UsualKey {
        section: ROOT,
        written: &["listen", "port", "host", "bind", "address"],
        hint: "name address and port in [server]: listen = \"127.0.0.1:7878\"",
    },
    UsualKey {
        section: ROOT,
        written: &["auth", "authentication", "token", "tokens", "security"],
        hint: TOKENS,
    },
    UsualKey {
        section: ROOT,
        written: &["database", "db", "storage", "sqlite"],
        hint: "name the store in [store]: url = \"sqlite:PATH\"",
    },
    UsualKey {
        section: ROOT,
        written: &["protocols", "routes", "paths", "communication", "connect"],
        hint: "name the path of a protocol: [[mounts]] with protocol = \"communication\" and prefix = \"/\"",
    },
    UsualKey { section: ROOT, written: &["limits"], hint: "the limits are in [server.limits]" },
    UsualKey {
        section: ROOT,
        written: &["permissions"],
        hint: "each agent has its own rules: [[agents.NAME.permissions]]",
    },
];

const TOKENS: &str = "make a token with `trilogue token create --label NAME`; tokens are not part of the configuration";
const LEVELS: &str = "set level = \"debug\", or to error, warn, info or trace";
/// What the kinds of agents are.
pub(super) const KINDS: &str = "say what the agent is: kind = \"agent-client\" for a command that speaks the Agent Client Protocol, \"agent-communication\" or \"agent-connect\" for agents behind a server of the Agent Communication Protocol or the Agent Connect Protocol, or \"builtin\" for a sample agent of this program";
/// What stands in place of a list of agents.
pub(super) const AGENT_TABLES: &str =
    "write one table for each agent: [agents.NAME] with its `kind`";
const PROTOCOLS: &str = "set protocol = \"communication\" or \"connect\"";

/// Returns the key to write instead, if the section has these keys.
pub(super) fn usual_key(written: &str, keys: &[&str]) -> Option<&'static str> {
    let fits =
        |usual: &&UsualKey| keys.contains(&usual.section) && usual.written.contains(&written);
    USUAL.iter().find(fits).map(|usual| usual.hint)
}

/// Returns the alternative to a key that a section lacks.
pub(super) fn missing_key(key: &str) -> Option<&'static str> {
    match key {
        "kind" => Some(KINDS),
        "protocol" => Some(PROTOCOLS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{AgentKind, parse};
    use super::*;

    fn advice(text: &str) -> String {
        parse(Path::new("t.toml"), text).unwrap_err().hint.unwrap_or_default()
    }

    #[test]
    fn each_usual_key_is_unknown_where_it_is_explained() {
        for usual in USUAL {
            for written in usual.written {
                let text = match usual.section {
                    AGENT => format!("[agents.x]\nkind = \"agent-client\"\n{written} = 1\n"),
                    SERVER => format!("[server]\n{written} = 1\n"),
                    STORE => format!("[store]\n{written} = 1\n"),
                    LOG => format!("[log]\n{written} = 1\n"),
                    _ => format!("{written} = 1\n"),
                };
                assert_eq!(advice(&text), usual.hint, "{text}");
            }
        }
    }

    #[test]
    fn the_hint_names_every_kind_of_agent() {
        assert_eq!(advice("[agents.x]\ncommand = \"x\"\n"), KINDS);
        assert_eq!(advice("[agents.x]\nkind = \"acp\"\n"), KINDS);
        use AgentKind::{AgentClient, AgentCommunication, AgentConnect, Builtin};
        for kind in [Builtin, AgentClient, AgentCommunication, AgentConnect] {
            let name = serde_json::to_string(&kind).unwrap();
            assert!(KINDS.contains(&name), "{name}");
        }
        assert_eq!(advice("[[mounts]]\nprefix = \"/\"\n"), PROTOCOLS);
        assert_eq!(advice("[[agents]]\nname = \"x\"\n"), AGENT_TABLES);
        assert_eq!(advice("agents = [\"echo\"]\n"), AGENT_TABLES);
    }

    #[test]
    fn a_key_of_another_section_names_it() {
        assert_eq!(advice("[server]\nlevel = \"info\"\n"), "`level` belongs to [log]");
        assert_eq!(advice("[runtime]\nno_auth = true\n"), "`no_auth` belongs to [server]");
    }
}
