use std::path::PathBuf;
use std::time::Duration;

use trilogue_backends::agent_client as backend;
use trilogue_backends::child::{GroupLimits, Network};
use trilogue_backends::permission::{Subject, Verdict};
use trilogue_backends::workspace;
use trilogue_domain::{TenantId, ThreadId, ThreadKey};

use super::*;
use crate::local::private_paths::of_state;
use crate::server::agents::build_agents;
use crate::server::descriptor::Descriptors;

const MINIMAL: &str = "kind = \"agent-client\"\ncommand = [\"some-agent\", \"--acp\"]\n";

fn agent(settings: &str) -> (AgentName, config::Agent) {
    let text = format!("[agents.coder]\n{settings}");
    let options = config::parse(Path::new("t.toml"), &text).unwrap().options;
    (AgentName::parse("coder").unwrap(), options.agents["coder"].clone())
}

fn launched(settings: &str) -> Result<Launch> {
    let (name, agent) = agent(settings);
    // Not that of the test: what builds it can put folders of this repository in there.
    launch((&name, &agent), "/usr/bin:/bin", (&of_state(), &SharedNetwork::default()))
}

/// The agent's own cache of packages.
fn cache() -> PathBuf {
    Path::new(&std::env::var_os("HOME").unwrap()).join(AGENT_CACHES).join("coder")
}

/// The variables that name it.
fn cache_variables() -> Vec<(String, String)> {
    CACHE_VARIABLES
        .map(|(name, folder)| (name.to_owned(), cache().join(folder).display().to_string()))
        .to_vec()
}

/// The launch of an agent with a command and no other setting.
fn least() -> Launch {
    Launch {
        env: cache_variables(),
        outlive: true,
        sandbox: Sandbox { mode: SandboxMode::Auto, state: vec![cache()], ..Sandbox::default() },
        roots: vec![std::env::current_dir().unwrap()],
        private: of_state(),
        grants: Grants { private: of_state(), ..Grants::default() },
        ..Launch::of(["some-agent", "--acp"])
    }
}

fn refusal_text(settings: &str) -> String {
    let text = format!("[agents.coder]\n{settings}");
    let options = config::parse(Path::new("t.toml"), &text).unwrap().options;
    let error = build_agents(&options, &Descriptors::new()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidRequest);
    format!("{} | {}", error.message(), error.hint_text().unwrap_or_default())
}

#[test]
fn the_least_is_a_command_and_the_rest_is_the_default() {
    assert_eq!(launched(MINIMAL).unwrap(), least());
    let (name, agent) = agent(MINIMAL);
    let built =
        build(&name, &agent, None, (&Arc::default(), &of_state(), &SharedNetwork::default()))
            .unwrap();
    let card = trilogue_runtime::Backend::card(&built);
    assert_eq!(
        (card.name.as_str(), card.input == trilogue_domain::InputKind::Chat),
        ("coder", true)
    );
    assert!(rules(&name, &agent).unwrap().is_empty());
}

#[test]
fn a_program_without_a_folder_is_found_once_and_outside_of_the_working_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for bin in ["work/bin", "tools"] {
        std::fs::create_dir_all(at(bin)).unwrap();
    }
    let launched = |path: &str| {
        let (work, path) = (at("work").display().to_string(), path.to_owned());
        launched(&format!(
            "kind = \"agent-client\"\ncommand = [\"coder\"]\ncwd = \"{work}/{{thread}}\"\nenv = {{ PATH = \"{path}\" }}\n"
        ))
    };
    let (inside, outside) =
        (at("work/bin").display().to_string(), at("tools").display().to_string());
    let path = format!(".:bin:{inside}:{outside}");
    // What is not there yet can be installed later, but not in the working folder.
    let later = launched(&path).unwrap();
    assert_eq!(
        (&later.command[0], &later.env[0]),
        (&"coder".to_owned(), &("PATH".to_owned(), outside))
    );
    std::fs::write(at("work/bin/coder"), "").unwrap();
    let refused = launched(&path).unwrap_err();
    assert!(refused.message().contains("only the agent's working folder has"), "{refused}");
    std::fs::write(at("tools/coder"), "").unwrap();
    assert_eq!(launched(&path).unwrap().command, [at("tools/coder").display().to_string()]);
    assert_eq!(launched(&inside).unwrap_err().code(), Code::InvalidRequest);
}

#[test]
fn every_setting_arrives() {
    let settings = format!(
        "{MINIMAL}description = \"writes code\"\ncwd = \"work/{{thread}}\"\nworktree = \"repo\"\n\
        inherit = [\"SSH_AUTH_SOCK\"]\nprocesses = \"shared\"\nmax_processes = 3\nmax_sessions = 4\nidle_stop = \"0s\"\n\
        idle_children = true\nbackground_quiet = \"7s\"\nanswer_settle = \"0s\"\nclient_wait = \"8s\"\n\
        start_timeout = \"5s\"\nopen_timeout = \"6s\"\nmax_line = \"1 MiB\"\nfiles = \"write\"\n\
        terminals = true\nclient_tools = \"forward\"\nauth_method = \"key\"\nhold = true\n\
        on_rewind = \"prime\"\nassign_message_ids = false\nsend_message_id = false\nclient_meta = \"drop\"\n\
        citations = \"meta\"\nsandbox = \"require:files\"\nread_paths = [\"/srv/models\", \"~/models\"]\n\
        write_paths = \"/srv/cache\"\nnetwork = \"none\"\nlimits = {{ memory = \"1 GiB\", cpu = 1.5 }}\nwrap_with = [\"nice\", \"-n\", \"5\"]\n\
        env = {{ HOME = \"/srv/home\", npm_config_cache = \"/srv/npm\" }}\n"
    );
    // This test has no stage of a sandbox, so nothing can be required or closed.
    assert!(launched(&settings).unwrap_err().message().contains("`agents.coder.sandbox`"));
    let settings = settings.replace("require:files", "auto");
    assert!(launched(&settings).unwrap_err().message().contains("`agents.coder.network`"));
    let settings = settings.replace("network = \"none\"", "network = \"open\"");
    let launch = launched(&settings).unwrap();
    let thread = ThreadId::parse("t").unwrap();
    let tenant = TenantId::parse("default").unwrap();
    let work = std::path::absolute(PathBuf::from("work")).unwrap();
    let folder = launch.folders.as_ref().unwrap().path(&tenant, &thread, ThreadKey(1));
    assert_eq!(folder.parent(), Some(&*work));
    assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("t-"), "{folder:?}");
    let expected = Launch {
        folders: launch.folders.clone(),
        // Threads share its process.
        outlive: false,
        env: [
            ("HOME", "/srv/home"),
            ("npm_config_cache", "/srv/npm"),
            ("XDG_CACHE_HOME", "/srv/home/.cache/trilogue/agents/coder/"),
            ("CARGO_HOME", "/srv/home/.cache/trilogue/agents/coder/cargo"),
            ("GOMODCACHE", "/srv/home/.cache/trilogue/agents/coder/go"),
            ("GRADLE_USER_HOME", "/srv/home/.cache/trilogue/agents/coder/gradle"),
            ("UV_TOOL_DIR", "/srv/home/.cache/trilogue/agents/coder/uv"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec(),
        sandbox: Sandbox {
            mode: SandboxMode::Auto,
            read: vec!["/srv/models".into(), "/srv/home/models".into()],
            write: vec!["/srv/cache".into()],
            programs: Vec::new(),
            repository: Some(std::env::current_dir().unwrap().join("repo")),
            state: vec!["/srv/home/.cache/trilogue/agents/coder".into()],
            network: Network::Open,
            limits: GroupLimits {
                memory_bytes: Some(1 << 30),
                cpu_percent: Some(150),
                ..GroupLimits::NONE
            },
            wrap_with: ["nice", "-n", "5"].map(str::to_owned).to_vec(),
            trace: None,
        },
        inherit: vec!["SSH_AUTH_SOCK".to_owned()],
        processes: backend::Processes::Shared,
        max_processes: 3,
        max_sessions: 4,
        idle_stop: None,
        children_count: true,
        background_quiet: Duration::from_secs(7),
        answer_settle: Duration::ZERO,
        client_wait: Duration::from_secs(8),
        start_timeout: Duration::from_secs(5),
        open_timeout: Duration::from_secs(6),
        max_line_bytes: 1024 * 1024,
        grants: Grants {
            files: workspace::Files::Write,
            terminals: true,
            private: of_state(),
            ..Grants::default()
        },
        client_tools: backend::ClientTools::Forward,
        auth_method: Some("key".to_owned()),
        hold: true,
        on_rewind: backend::OnRewind::Prime,
        assign_message_ids: false,
        send_message_id: false,
        client_meta: backend::ClientMeta::Drop,
        citations: backend::PromptCitations::Meta,
        ..least()
    };
    assert_eq!(launch, expected);
    let (name, agent) = agent(&settings);
    let built =
        build(&name, &agent, None, (&Arc::default(), &of_state(), &SharedNetwork::default()))
            .unwrap();
    assert_eq!(trilogue_runtime::Backend::card(&built).description, "writes code");
}

#[test]
fn what_cannot_work_names_its_setting_and_the_fix() {
    let with = |setting: &str| refusal_text(&format!("{MINIMAL}{setting}\n"));
    for (said, parts) in [
        (refusal_text("kind = \"agent-client\"\n"), ["`agents.coder.command`", "\"acp\""]),
        (
            refusal_text("kind = \"agent-client\"\ncommand = \"no-such agent --acp\"\n"),
            ["in one text", "command = [\"no-such\", \"agent\", \"--acp\"]"],
        ),
        (
            with("builtin = \"echo\""),
            ["`agents.coder.builtin` is for agents of kind \"builtin\"", ""],
        ),
        (
            refusal_text("kind = \"builtin\"\nbuiltin = \"echo\"\nterminals = true\n"),
            ["`agents.coder.terminals` is for agents of kind \"agent-client\"", "remove"],
        ),
        (with("cwd = \"work/{id}\""), ["`agents.coder.cwd`", "work/{thread}"]),
        (with("worktree = \"repo\""), ["`agents.coder.worktree`", "set cwd"]),
        (with("cwd = \"work\"\nworktree = \"repo\""), ["`agents.coder.worktree`", "{thread}"]),
        (with("max_processes = 0"), ["`agents.coder.max_processes`", "at least 1"]),
        (with("max_sessions = 0"), ["`agents.coder.max_sessions`", "at least 1"]),
        (with("max_line = \"1KiB\""), ["`agents.coder.max_line`", "64KiB"]),
        (with("limits = { memory = \"1MiB\" }"), ["`agents.coder.limits`", "at least 16MiB"]),
        (with("limits = { processes = 1 }"), ["`agents.coder.limits`", "at least 8"]),
        (
            with("sandbox = \"off\"\nlimits = { cpu = 1 }"),
            ["`agents.coder.limits`: an agent without a sandbox", "sandbox = \"auto\""],
        ),
        (with("env = { \"A=B\" = \"x\" }"), ["`agents.coder.env`", "A=B"]),
        (with("inherit = [\"TRILOGUE_TOKEN\"]"), ["`agents.coder.inherit`", "`env`"]),
    ] {
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
}

#[test]
fn an_agent_behind_a_server_has_an_address_in_place_of_a_command() {
    const FAR: &str = "kind = \"agent-client\"\nurl = \"wss://far.example/acp?key=hidden\"\n";
    let launch = launched(&format!(
        "{FAR}remote_cwd = \"/srv/work\"\nroots = \"/srv\"\nclient_tools = \"forward\"\n"
    ));
    let launch = launch.unwrap();
    let remote = launch.remote.unwrap();
    assert_eq!(remote.url.to_string(), "wss://far.example/acp");
    assert_eq!(remote.cwd.as_deref(), Some(Path::new("/srv/work")));
    assert_eq!(launch.roots, [PathBuf::from("/srv")]);
    // Folders of this machine mean nothing there.
    assert!(launched(FAR).unwrap().roots.is_empty());
    let with = |setting: &str| refusal_text(&format!("{FAR}{setting}\n"));
    let at = |url: &str| refusal_text(&format!("kind = \"agent-client\"\nurl = \"{url}\"\n"));
    for (said, parts) in [
        (with("command = [\"x\"]"), ["`agents.coder.command` is for a program", "one of the two"]),
        (with("terminals = true"), ["`agents.coder.terminals` is for a program", ""]),
        (with("remote_cwd = \"work\""), ["`agents.coder.remote_cwd`", "not an absolute path"]),
        (with("roots = \"work\""), ["`agents.coder.roots`", "not an absolute path"]),
        (with("ca_file = \"/none.pem\""), ["`agents.coder.ca_file`", "cannot be read"]),
        (with("token_env = \"NO_SUCH_VARIABLE\""), ["`agents.coder.token_env`", "not set"]),
        (at("ftp://far.example"), ["`agents.coder.url`", "ws://"]),
        (at("wss://me:secret@far.example"), ["`agents.coder.url`", "credentials"]),
    ] {
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn rules_are_read_and_say_what_is_wrong() {
    let rule = |rest: &str| format!("{MINIMAL}[[agents.coder.permissions]]\n{rest}\n");
    let (name, agent) = agent(&format!(
        "{}{}",
        rule(
            "name = \"reads\"\nkind = [\"read\", \"search\"]\npath = \"src/**\"\ndecision = \"allow\""
        ),
        "[[agents.coder.permissions]]\nkind = \"execute\"\ntool = \"rm*\"\ndecision = \"deny\"\n",
    ));
    let rules = rules(&name, &agent).unwrap();
    let root = Some(Path::new("/none/ws"));
    let decide = |kind, tool, path: Option<&'static str>| {
        let paths = path.into_iter().collect();
        let subject = Subject { kind: Some(kind), tool, paths, root, ..Subject::default() };
        rules.decide(&subject).map(|(name, verdict)| (name.to_owned(), verdict))
    };
    assert_eq!(decide("read", None, Some("src/a")), Some(("reads".to_owned(), Verdict::Allow)));
    assert_eq!(decide("read", None, Some("a")), None);
    assert_eq!(decide("execute", Some("rmdir"), None), Some(("rule 2".to_owned(), Verdict::Deny)));
    for (rest, why) in [
        ("kind = \"raed\"\ndecision = \"allow\"", "did you mean `read`?"),
        ("kind = []\ndecision = \"allow\"", "never match"),
        ("path = \"a/../b\"\ndecision = \"allow\"", "`path` of the rule 'rule 1'"),
        ("tool = \"[\"\ndecision = \"allow\"", "is not a pattern"),
    ] {
        let said = refusal_text(&rule(rest));
        assert!(said.contains("`agents.coder.permissions`") && said.contains(why), "{said}");
    }
    // An agent of this process has kinds of its own.
    let own = "kind = \"builtin\"\nbuiltin = \"echo\"\n[[agents.coder.permissions]]\nkind = \"publish\"\ndecision = \"deny\"\n";
    let options = config::parse(Path::new("t.toml"), &format!("[agents.coder]\n{own}")).unwrap();
    assert_eq!(build_agents(&options.options, &Descriptors::new()).unwrap().len(), 1);
}
