//! Known agents, started by name in a folder with files of a stranger. Stand-ins for the agents and the package runners look for
//! files like the real ones do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use trilogue::local::agent_catalog::AgentCatalog;
use trilogue::local::known_agents::{self, KnownAgent};

use crate::agent_client_examples::example;
use crate::connect_editor::{Editor, OnDemand};
use crate::harness::{BINARY, Home, ProgramOutput, finish};

/// The project settings that package runners, version managers and agents read.
const SETTINGS: [(&str, &str); 11] = [
    (".npmrc", "registry=http://127.0.0.1:1/\nscript-shell=./sh\n"),
    (".env", "GEMINI_API_KEY=theirs\n"),
    (".envrc", "export PATH=.:$PATH\n"),
    ("mise.toml", "[env]\nPATH = \".\"\n"),
    (".tool-versions", "nodejs path:.\n"),
    ("pyproject.toml", "[tool.uv]\nindex-url = \"http://127.0.0.1:1/\"\n"),
    ("uv.toml", "index-url = \"http://127.0.0.1:1/\"\n"),
    (".python-version", "./python\n"),
    ("package.json", "{\"scripts\":{\"preinstall\":\"./sh\"},\"bin\":\"./sh\"}\n"),
    ("bunfig.toml", "preload = [\"./sh\"]\n"),
    ("fastagent.config.yaml", "mcp: { servers: { x: { command: ./sh } } }\n"),
];
/// Programs that agents and runners start by name, besides the agents themselves. `interpreter` runs the stand-ins.
const PROGRAMS: [&str; 9] =
    ["npx", "npm", "uvx", "uv", "node", "python", "sh", "git", "interpreter"];

/// A home with stand-ins, and a stranger's checkout in it.
struct HostileCheckout {
    home: Home,
    known: &'static KnownAgent,
}

/// How an agent is installed on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Installed {
    AsProgram,
    /// Its package runner has to download it.
    NotYet,
}

// === impl HostileCheckout ===

impl HostileCheckout {
    fn of(known: &'static KnownAgent, installed: Installed) -> Self {
        let trap = Self { home: Home::new(), known };
        let stand_ins = trap.root().join("programs");
        let agent = example("scripted_agent");
        let record = trap.record().display().to_string();
        // Records everything that a file can influence: which program reads it, from which folder.
        let script = format!(
            "#!/bin/sh\n{{ printf 'program=%s\\n' \"$0\"; printf 'cwd=%s\\n' \"$(pwd)\"; printf 'pwd=%s\\n' \"$PWD\"; printf 'path=%s\\n' \"$PATH\"; printf 'loads=%s\\n' \"$NODE_OPTIONS$npm_config_script_shell\"; printf 'arg=%s\\n' \"$@\"; }} >> '{record}'\n"
        );
        write_program(&stand_ins.join("interpreter"), &format!("{script}. \"$@\"\n"));
        let look_up = look_up(&record, trap.program());
        let file = match installed {
            Installed::AsProgram => trap.program(),
            Installed::NotYet => known.package.as_ref().unwrap().runner.program(),
        };
        let look_up = if known.in_folder { String::new() } else { look_up };
        let text = format!("#!/usr/bin/env interpreter\n{look_up}exec '{}'\n", agent.display());
        write_program(&stand_ins.join(file), &text);
        trap.set();
        trap
    }

    /// Writes the checkout: settings of every kind, and programs that leave a mark when they run.
    fn set(&self) {
        let checkout = self.home.work();
        for (name, text) in SETTINGS {
            fs::write(checkout.join(name), text).unwrap();
        }
        fs::create_dir_all(checkout.join(".git")).unwrap();
        fs::create_dir_all(checkout.join("inner")).unwrap();
        let mut names = PROGRAMS.to_vec();
        names.push(self.program());
        names.extend(
            self.known.login.iter().filter_map(|it| it.command.first()).map(String::as_str),
        );
        let mark = format!("#!/bin/sh\necho \"$0\" >> '{}'\nexit 1\n", self.marks().display());
        for folder in [".", "bin", "node_modules/.bin", ".venv/bin"] {
            for name in &names {
                write_program(&checkout.join(folder).join(name), &mark);
            }
        }
        if let Some(package) = self.known.pinned(AgentCatalog::built_in()) {
            let folder = checkout.join("node_modules").join(&package.name);
            write_program(&folder.join("start"), &mark);
            let text = format!(
                "{{\"name\":\"{}\",\"version\":\"{}\",\"bin\":{{\"{}\":\"start\"}}}}",
                package.name,
                package.version,
                self.program()
            );
            fs::write(folder.join("package.json"), text).unwrap();
        }
    }

    fn root(&self) -> PathBuf {
        self.home.work().canonicalize().unwrap().parent().unwrap().to_owned()
    }

    fn program(&self) -> &'static str {
        &self.known.command[0]
    }

    fn record(&self) -> PathBuf {
        self.root().join("record")
    }

    fn marks(&self) -> PathBuf {
        self.root().join("marks")
    }

    /// A command in a folder of the checkout, with a search path whose first entries are in the checkout.
    fn command(&self, folder: &str, arguments: &[&str]) -> Command {
        let mut command = self.home.program(BINARY);
        let machine = machine_path(&command);
        let (root, checkout) = (self.root(), self.home.work());
        let checkout = checkout.display();
        let path = format!(
            ".::bin:{checkout}/node_modules/.bin:{checkout}/.venv/bin:{checkout}:{}/programs:{machine}",
            root.display()
        );
        command.env("PATH", path).env("PWD", self.home.work().join(folder));
        command.env("NODE_OPTIONS", format!("--require={checkout}/trap.js"));
        command.env("npm_config_script_shell", format!("{checkout}/sh"));
        command.current_dir(self.home.work().join(folder)).args(arguments);
        command
    }

    fn run(&self, folder: &str, arguments: &[&str]) -> ProgramOutput {
        finish(self.command(folder, arguments), "")
    }

    /// Asserts that nothing of the checkout was executed and that no program read its settings. Returns the record.
    fn is_untouched(&self, case: &str) -> String {
        let marks = fs::read_to_string(self.marks()).unwrap_or_default();
        assert_eq!(marks, "", "{case}: programs of the checkout were executed");
        let record = fs::read_to_string(self.record()).unwrap_or_default();
        let read: Vec<_> = record.lines().filter(|line| line.starts_with("read=")).collect();
        let checkout = self.home.work().canonicalize().unwrap();
        let foreign = read.iter().find(|line| line.contains(checkout.to_str().unwrap()));
        assert_eq!(foreign, None, "{case}: settings of the checkout were read");
        let loads = values(&record, "loads");
        assert!(loads.iter().all(|load| load.is_empty()), "{case}: {loads:?}");
        record
    }
}

/// The search path of a command, without this machine's agents, which would be used instead of the stand-ins.
fn machine_path(command: &Command) -> String {
    let path = command.get_envs().find(|(name, _)| *name == "PATH").unwrap().1.unwrap();
    let folders = std::env::split_paths(path).filter(|folder| {
        let mut all = known_agents::all().values();
        !all.any(|known| folder.join(&known.command[0]).exists())
    });
    std::env::join_paths(folders).unwrap().into_string().unwrap()
}

/// Shell code in which runners and agents look for settings and programs of the project, in their folder and its parents.
fn look_up(record: &str, program: &str) -> String {
    let names: Vec<_> = SETTINGS.iter().map(|(name, _)| *name).collect();
    format!(
        "d=$(pwd)\nwhile [ -n \"$d\" ]; do\n  for n in {}; do [ -e \"$d/$n\" ] && echo \"read=$d/$n\" >> '{record}'; done\n  for p in \"$d/node_modules/.bin/{program}\" \"$d/.venv/bin/python\"; do [ -x \"$p\" ] && exec \"$p\"; done\n  d=${{d%/*}}\ndone\n",
        names.join(" ")
    )
}

fn write_program(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap();
}

/// The values of a name in a record.
fn values<'a>(record: &'a str, name: &str) -> Vec<&'a str> {
    record.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

#[test]
fn a_known_agent_takes_no_program_and_no_settings_from_a_checkout() {
    for (name, known) in known_agents::all() {
        for installed in [Installed::AsProgram, Installed::NotYet] {
            if installed == Installed::NotYet && known.package.is_none() {
                continue;
            }
            // In the checkout itself, and in a folder below it.
            let folder = if installed == Installed::AsProgram { "." } else { "inner" };
            let case = format!("{name}, {installed:?}, {folder}");
            let trap = HostileCheckout::of(known, installed);
            let _demand = OnDemand::unconfigured(&trap.home);
            let ran = trap.run(folder, &["run", name, "session"]);
            let record = trap.is_untouched(&case);
            let here = trap.home.work().join(folder).canonicalize().unwrap();
            let start = trap.home.state().join("start").canonicalize().unwrap_or_default();
            let wanted = if known.in_folder { &here } else { &start };
            for name in ["cwd", "pwd"] {
                let folders = values(&record, name);
                assert_eq!(folders, [wanted.to_str().unwrap()], "{case}: {ran:?}\n{record}");
            }
            // The agent's search path does not contain the checkout either.
            let work = trap.home.work().display().to_string();
            let path = values(&record, "path")[0];
            assert!(
                path.split(':').all(|it| it.starts_with('/') && !it.starts_with(&work)),
                "{path}"
            );
            // The started command is printed, with its whole path and its exact version.
            let programs = trap.root().join("programs");
            let shown = format!("starting {}: {}/", known.title, programs.display());
            assert!(unwrapped(&ran.err).contains(&unwrapped(&shown)), "{case}: {}", ran.err);
            if installed == Installed::NotYet {
                let version = known.newest(AgentCatalog::built_in()).unwrap();
                let exact = |arg: &&str| {
                    arg.ends_with(&format!("@{version}")) || arg.ends_with(&format!("=={version}"))
                };
                assert!(values(&record, "arg").iter().any(exact), "{case}: {record}");
            }
            if known.mode.is_empty() {
                // The protocol names the agent's folder.
                assert_eq!(ran.code, 0, "{case}: {ran:?}");
                let session: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
                assert_eq!(session["cwd"], here.to_str().unwrap(), "{case}");
            }
        }
    }
}

/// A text without a terminal's line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn an_editor_and_a_configuration_start_a_known_agent_apart_from_a_checkout() {
    let known = known_agents::find("gemini").unwrap();
    for installed in [Installed::AsProgram, Installed::NotYet] {
        let trap = HostileCheckout::of(known, installed);
        let _demand = OnDemand::of(&trap.home, "");
        let mut editor = Editor::of(trap.command(".", &["wrap", "gemini"]));
        let params = serde_json::json!({ "protocolVersion": 1, "clientCapabilities": {} });
        editor.ask("initialize", params);
        editor.session();
        trap.is_untouched("wrap");
        drop(editor);
        trap.run(".", &["stop"]).expect(0);
        trap.run(".", &["agents", "add", "gemini"]).expect(0);
        let ran = trap.run(".", &["run", "gemini", "session"]).expect(0);
        let record = trap.is_untouched("configured");
        let here = trap.home.work().canonicalize().unwrap();
        assert!(ran.out.contains(here.to_str().unwrap()), "{ran:?}");
        let start = trap.home.state().join("start").canonicalize().unwrap();
        assert!(values(&record, "cwd").iter().all(|it| Path::new(it) == start), "{record}");
    }
}

#[test]
fn a_sign_in_and_the_doctor_run_nothing_of_a_checkout() {
    for (name, known) in known_agents::all() {
        let trap = HostileCheckout::of(known, Installed::AsProgram);
        let _demand = OnDemand::unconfigured(&trap.home);
        let login = known.login.as_ref().and_then(|login| login.command.first());
        if let Some(program) = login.filter(|program| *program != trap.program()) {
            let text = "#!/usr/bin/env interpreter\nexit 0\n";
            write_program(&trap.root().join("programs").join(program), text);
        }
        trap.run(".", &["agents", "login", name]);
        let record = trap.is_untouched(&format!("agents login {name}"));
        assert!(!values(&record, "cwd").is_empty(), "{name}: nothing was started");
        trap.run(".", &["doctor"]);
        trap.is_untouched(&format!("doctor, {name}"));
    }
}

/// A registry without packages. It reports each request.
fn empty_registry() -> (String, mpsc::Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let (told, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if told.send(()).is_err() {
                return;
            }
            let mut head = [0; 4096];
            // A client that disconnects early needs no response.
            let _ = std::io::Read::read(&mut stream, &mut head);
            let _ = std::io::Write::write_all(
                &mut stream,
                b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
            );
        }
    });
    (address, requests)
}

#[test]
fn the_real_npx_asks_the_registry_of_its_user_and_not_that_of_a_checkout() {
    let known = known_agents::find("gemini").unwrap();
    let trap = HostileCheckout::of(known, Installed::NotYet);
    let _demand = OnDemand::unconfigured(&trap.home);
    // Of the checkout, only npm's settings are left.
    fs::remove_dir_all(trap.home.work().join("node_modules")).unwrap();
    let (users, at_users) = empty_registry();
    let (theirs, at_theirs) = empty_registry();
    let npmrc = |registry: &str| format!("registry={registry}\nfetch-retries=0\naudit=false\n");
    fs::write(trap.root().join(".npmrc"), npmrc(&users)).unwrap();
    let scoped = format!("{}@google:registry={theirs}\n", npmrc(&theirs));
    fs::write(trap.home.work().join(".npmrc"), scoped).unwrap();
    let mut command = trap.command(".", &["run", "gemini", "hi"]);
    let path = machine_path(&trap.home.program(BINARY));
    command.env("PATH", path);
    finish(command, "");
    assert!(at_users.try_recv().is_ok(), "npx asked no registry");
    assert!(at_theirs.try_recv().is_err(), "npx asked the registry of the checkout");
}
