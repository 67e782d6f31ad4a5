//! What a hosted agent can do to its machine without a sandbox, and in one with and without namespaces: each attempt is made in all three.
//!
//! The server runs as an unprivileged user, because limits and file modes do not apply to root. The results make `docs/reference/sandbox-attempts.md`. `TRILOGUE_BLESS=1` writes it again.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use trilogue_testkit::{Client, Home, Server, ServerOptions};

use crate::run_of;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/sandbox-attempts.md");
const AGENT: &str = include_str!("attempts.py");
/// The one of the system: the test's user may not read those of others.
const PYTHON: &str = "/usr/bin/python3";
/// A user without rights, and not the one of other tests.
const USER: u32 = 65533;
/// The words that take all rights of root in a namespace from a program.
const WITHOUT_RIGHTS: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
/// What [`AGENT`] writes where it should not.
const MARK: &str = "an escape";
/// The fewest attempts that fail without namespaces.
const FEWEST_BLOCKED: usize = 60;
/// The most attempts that succeed with namespaces: on memory, the disk, and the settings of a repository that the agent may change.
const MAX_ESCAPES: usize = 3;
/// The system calls of the attempts that have no function in Python.
const CALLS: [(&str, i64); 14] = [
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    ("clone", libc::SYS_clone),
    ("clone3", libc::SYS_clone3),
    ("add_key", libc::SYS_add_key),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
];

/// Where the agent runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In no sandbox.
    Open,
    /// In a sandbox of a machine without namespaces for users.
    Layers,
    /// In a sandbox of this machine.
    Namespaces,
}

/// A server with its user's folders, and another program of that user.
struct Machine {
    place: Place,
    dir: TempDir,
    server: Server,
    targets: Value,
    victim: Child,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_stops_what_an_agent_could_do_without_it() {
    let places = [Place::Open, Place::Layers, Place::Namespaces];
    let results = join_all(places.map(|place| async move {
        let machine = Machine::start(place).await;
        machine.results().await
    }));
    let results = results.await;
    let [open, layers, namespaces] = &results[..] else { panic!("three places") };
    let escapes = |results: &[(String, Option<String>)]| {
        results.iter().filter(|(_, blocked)| blocked.is_none()).count()
    };
    let all = open.len();
    eprintln!(
        "{all} attempts: {} succeed, {} without namespaces, {} with",
        escapes(open),
        escapes(layers),
        escapes(namespaces)
    );
    assert!(all >= 60, "{all} attempts");
    // An attempt that never succeeds shows nothing.
    assert!(escapes(open) * 4 >= all * 3, "{open:#?}");
    assert!(all - escapes(layers) >= FEWEST_BLOCKED, "{layers:#?}");
    assert!(escapes(namespaces) <= MAX_ESCAPES, "{namespaces:#?}");
    let page = page(open, layers, namespaces);
    if std::env::var_os("TRILOGUE_BLESS").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    let kept = fs::read_to_string(PAGE).unwrap_or_default();
    assert_eq!(page, kept, "run the test with TRILOGUE_BLESS=1 if the page is right: {results:#?}");
}

/// Without a layer that it needs, a server does not start, and says what brings the layer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_layer_that_is_missing_keeps_the_server_from_starting() {
    let dir = user_dir();
    let settings = |mode: &str| {
        format!(
            "[agents.attempts]\nkind = \"agent-client\"\ncommand = [\"/bin/true\"]\nsandbox = \"{mode}\"\n"
        )
    };
    for (mode, starts) in [("require:all", false), ("require:files", true), ("auto", true)] {
        let own = dir.path().join(mode.replace(':', "-"));
        fs::create_dir(&own).unwrap();
        let options = ServerOptions {
            settings: settings(mode),
            binary: Some(launcher(&own, Place::Layers).await),
            ..ServerOptions::default()
        };
        let home = Home::new(&own, &options).unwrap();
        give(&own);
        match home.start().await {
            Ok(_) => assert!(starts, "{mode}"),
            Err(error) => {
                let error = format!("{error:#}");
                assert!(!starts, "{mode}: {error}");
                assert!(error.contains("does not have the layer 'namespaces'"), "{error}");
                assert!(error.contains("max_user_namespaces"), "{error}");
            }
        }
    }
}

fn page(
    open: &[(String, Option<String>)],
    layers: &[(String, Option<String>)],
    namespaces: &[(String, Option<String>)],
) -> String {
    let mut text = "\
<!-- Generated by the test `sandbox` with TRILOGUE_BLESS=1. Do not edit. -->

# Attempts to leave the sandbox

Find out what a hosted agent can do to the machine of its server. A test makes each attempt without a sandbox, in a sandbox without namespaces, and in one with them.
The server runs as a user without rights, and the agent may not use the network (`network = \"none\"`).

| attempt | without a sandbox | files and system calls | and namespaces |
|---|---|---|---|
"
    .to_owned();
    let word = |blocked: &Option<String>| if blocked.is_some() { "fails" } else { "**succeeds**" };
    for (((title, open), (_, layers)), (_, namespaces)) in open.iter().zip(layers).zip(namespaces) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} |",
            word(open),
            word(layers),
            word(namespaces)
        );
    }
    text.push_str("\nMemory and the disk are limited by the operator: [Sandbox](../sandbox.md#what-the-operator-adds).\n");
    text
}

/// A folder that the test's user reaches, and that no sandbox replaces, as `/tmp` is.
fn user_dir() -> TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Gives a folder to the test's user.
fn give(folder: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    chown(folder, Some(USER), Some(USER)).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { give(&path) } else { chown(&path, Some(USER), Some(USER)).unwrap() }
    }
}

/// The words that run a program as the test's user.
fn as_user() -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let (user, group) = (format!("--reuid={USER}"), format!("--regid={USER}"));
    ["setpriv", &user, &group, "--clear-groups"].map(str::to_owned).to_vec()
}

/// Writes a program that starts the server as the test's user, on a machine as the place needs it.
async fn launcher(dir: &Path, place: Place) -> PathBuf {
    let home = Home::new(dir, &ServerOptions::default()).unwrap();
    let program = home.command_line(&[]).await.unwrap().pop().unwrap();
    // The test's user may not reach the original.
    let copy = dir.join("trilogue");
    fs::copy(program, &copy).unwrap();
    let user = as_user().join(" ");
    let machine = match place {
        Place::Layers => format!(
            "unshare --user --map-root-user /bin/sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec {} \"$0\" \"$@\"'",
            WITHOUT_RIGHTS.join(" ")
        ),
        Place::Open | Place::Namespaces => String::new(),
    };
    let launcher = dir.join("launcher");
    let script = format!("#!/bin/sh\nexec {user} {machine} {:?} \"$@\"\n", copy.display());
    fs::write(&launcher, script).unwrap();
    fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
    launcher
}

// === impl Machine ===

impl Machine {
    async fn start(place: Place) -> Self {
        let dir = user_dir();
        let root = dir.path().canonicalize().unwrap();
        let folder = |name: &str| root.join(name);
        for name in [
            "server",
            "agent",
            "home/.ssh",
            "home/.aws",
            "home/.local/bin",
            "home/.config/systemd/user",
            "other",
            "work/.git/hooks",
            "work/.git/objects",
        ] {
            fs::create_dir_all(folder(name)).unwrap();
        }
        for (name, text) in [
            ("agent/attempts.py", AGENT),
            ("home/.ssh/id_ed25519", "the secret"),
            ("home/.aws/credentials", "the secret"),
            ("home/.bashrc", "true"),
            ("other/notes.txt", "the secret"),
            ("work/.git/HEAD", "ref: refs/heads/main\n"),
            ("work/.git/config", "[core]\n"),
        ] {
            fs::write(folder(name), text).unwrap();
        }
        let sandbox = match place {
            Place::Open => "sandbox = \"off\"\n",
            Place::Layers => "sandbox = \"require:files\"\nnetwork = \"none\"\n",
            Place::Namespaces => "sandbox = \"require:all\"\nnetwork = \"none\"\n",
        };
        let settings = format!(
            "[agents.attempts]\nkind = \"agent-client\"\ncommand = {}\ncwd = {}\nterminals = true\nfiles = \"write\"\n{sandbox}",
            json!([PYTHON, folder("agent/attempts.py")]),
            json!(folder("work"))
        );
        let options = ServerOptions {
            settings,
            environment: vec![("HOME".to_owned(), folder("home"))],
            binary: Some(launcher(&folder("server"), place).await),
            ..ServerOptions::default()
        };
        let home = Home::new(&folder("server"), &options).unwrap();
        give(&root);
        let server = home.start().await.unwrap();
        let (victim, mut targets) = start_victim(place, &root, server.pid().unwrap()).await;
        let state = folder("server/state/trilogue");
        let token = fs::read_dir(state.join("tokens")).unwrap().next().unwrap().unwrap().path();
        let calls: Value =
            CALLS.iter().map(|(name, call)| ((*name).to_owned(), json!(call))).collect();
        let more = json!({
            "server": server.pid(), "token_file": token, "state": state, "calls": calls,
            "database": folder("server/store/trilogue.db"),
            "settings": folder("server/trilogue.toml"),
            "home": folder("home"), "other": folder("other"), "repository": folder("work"),
            "token": server.token(), "url": format!("http://{}", server.home().address()),
        });
        targets.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Self { place, dir, server, targets, victim }
    }

    /// Makes every attempt. The reason is that of one that failed.
    async fn results(self) -> Vec<(String, Option<String>)> {
        let client = self.server.client();
        let titles: Vec<String> = serde_json::from_str(&run(&client, "list\n{}").await).unwrap();
        assert_eq!(titles.iter().collect::<HashSet<_>>().len(), titles.len());
        let (mut results, mut locks) = (Vec::new(), Vec::new());
        for title in titles {
            let text = run(&client, &format!("{title}\n{}", self.targets)).await;
            let blocked = match text.split_once(' ') {
                _ if text == "escaped" => None,
                Some(("blocked:", why)) => Some(why.to_owned()),
                Some(("lock", path)) => {
                    locks.push((results.len(), PathBuf::from(path)));
                    None
                }
                Some(("begins", path)) => {
                    let path = Path::new(path);
                    let start = path.file_name().unwrap().to_string_lossy().into_owned();
                    let mut files = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
                    let is_there =
                        files.any(|file| file.file_name().to_string_lossy().starts_with(&start));
                    (!is_there).then(|| "nothing is there outside".to_owned())
                }
                // A path: what it wrote there can be in a folder of the sandbox only.
                _ => {
                    let written = fs::read_to_string(&text).unwrap_or_default();
                    (!written.contains(MARK)).then(|| "nothing is there outside".to_owned())
                }
            };
            results.push((title, blocked));
        }
        // It cleans up when its input ends.
        let mut victim = self.victim;
        drop(victim.stdin.take());
        victim.wait().await.unwrap();
        let (_, status) = self.server.stop().await.unwrap();
        assert!(status.success(), "{:?}: {status}", self.place);
        for (place, path) in locks {
            // Held while its process runs.
            if File::open(&path).unwrap().try_lock().is_ok() {
                results[place].1 = Some("it ended with the server".to_owned());
            }
        }
        drop(self.dir);
        results
    }
}

/// Starts another program of the test's user. Returns what the attempts know about it.
async fn start_victim(place: Place, root: &Path, server: u32) -> (Child, Value) {
    let name = root.file_name().unwrap().to_string_lossy().into_owned();
    let temporary = format!("/tmp/trilogue-victim-{name}");
    let shared = format!("/dev/shm/trilogue-victim-{name}");
    let abstract_name = format!("trilogue-victim-{name}");
    // In the namespace of the server, or that alone would keep the agent from it, and as it without rights there.
    let namespace = format!("--user=/proc/{server}/ns/user");
    let enter = ["nsenter", &namespace, "--preserve-credentials"].map(str::to_owned);
    let enter = enter.into_iter().chain(WITHOUT_RIGHTS.map(str::to_owned));
    let mut words = as_user();
    words.extend(enter.filter(|_| place == Place::Layers));
    let script = root.join("agent/attempts.py").display().to_string();
    let home = root.join("home").display().to_string();
    words.extend([PYTHON.to_owned(), script, "victim".to_owned(), home]);
    words.extend([temporary.clone(), shared.clone(), abstract_name.clone()]);
    // One of its arguments is a secret.
    words.push("the secret".to_owned());
    let (program, arguments) = words.split_first().unwrap();
    let mut victim = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let mut targets: Value = serde_json::from_str(&line).unwrap();
    for (key, value) in [("temporary", temporary), ("shared", shared), ("abstract", abstract_name)]
    {
        targets[key] = json!(value);
    }
    (victim, targets)
}

/// Runs the agent to the end of a turn, and returns its text.
async fn run(client: &Client, input: &str) -> String {
    let request = run_of("attempts", "t", &json!(input), "wait");
    let run = client.post("/api/v1/runs", &request).await.unwrap().ok().unwrap();
    assert_eq!(run["status"], "completed", "{run}");
    let parts = run["output"].as_array().into_iter().flatten();
    let parts = parts.flat_map(|message| message["parts"].as_array().into_iter().flatten());
    parts.filter_map(|part| part["content"].as_str()).collect()
}
