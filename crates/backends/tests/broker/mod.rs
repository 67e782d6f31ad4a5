//! Runs each test in each place: with namespaces, with namespaces of a user without rights, and without namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

mod agent;
mod restart;
mod rules;

/// How long a test waits for anything. Only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// A user without rights, and not the one of other tests.
const USER: u32 = 65532;
/// The argument of this program as the server that a test kills.
const SERVER: &str = "--server";
/// The argument of this program in its place.
const INSIDE: &str = "--inside";
const TESTS: [(&str, Test); 4] = [
    ("an_agent_reaches_the_broker_only", rules::an_agent_reaches_the_broker_only),
    ("a_command_reaches_the_broker_of_its_agent", rules::a_command_reaches_the_broker_of_its_agent),
    ("an_agent_without_a_sandbox_is_refused", rules::an_agent_without_a_sandbox_is_refused),
    ("a_listener_outlives_its_server", restart::a_listener_outlives_its_server),
];
const PLACES: [(&str, Place); 3] = [
    ("namespaces", Place::Namespaces),
    ("namespaces_of_a_user", Place::UserNamespaces),
    ("layers", Place::Layers),
];

type Test = fn(Place);

/// Where a test runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// On this machine as it is.
    Namespaces,
    /// As a user without rights.
    UserNamespaces,
    /// On a machine without namespaces for users.
    Layers,
}

/// Runs the tests that the arguments select, as the harness of the language does. Its threads are why it is not used.
pub(crate) fn run_tests() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    match &arguments[..] {
        [server, folder] if server == SERVER => {
            return restart::serve_until_killed(folder.as_ref());
        }
        [inside, name] if inside == INSIDE => return run(name, true),
        _ if has("--ignored") => return,
        _ => {}
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| {
        let matches = |filter: &&String| {
            if has("--exact") { name == **filter } else { name.contains(&***filter) }
        };
        filters.iter().copied().any(|filter| matches(&filter))
    };
    for (test, _) in TESTS {
        for (place, _) in PLACES {
            let name = format!("{test}::{place}");
            if has("--list") {
                print(&format!("{name}: test"));
            } else if filters.is_empty() || has("--format") || is_selected(&name) {
                run(&name, false);
                print(&format!("test {name} ... ok"));
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "a runner of tests reads it")]
fn print(line: &str) {
    println!("{line}");
}

/// Runs a test in its place, which may take another process.
fn run(name: &str, is_inside: bool) {
    let (test, place) = name.split_once("::").unwrap();
    let run = TESTS.iter().find(|(known, _)| *known == test).unwrap().1;
    let place = PLACES.iter().find(|(known, _)| *known == place).unwrap().1;
    match place.launcher().filter(|_| !is_inside) {
        None => run(place),
        Some(launcher) => {
            // The user of the test may not reach the original.
            let folder = TempDir::new_in("/var/tmp").unwrap();
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            let program = folder.path().join("broker");
            fs::copy("/proc/self/exe", &program).unwrap();
            let line = format!("{launcher} {} {INSIDE} {name}", program.display());
            let status = Command::new("/bin/sh").args(["-c", &line]).current_dir("/").status();
            assert!(status.unwrap().success(), "{name}");
        }
    }
}

// === impl Place ===

impl Place {
    /// The words that start a program in this place, as a line for a shell. `None` if this process is there.
    fn launcher(self) -> Option<String> {
        match self {
            Self::Namespaces => None,
            Self::UserNamespaces => rustix::process::geteuid().is_root().then(|| {
                format!("exec setpriv --reuid={USER} --regid={USER} --clear-groups")
            }),
            Self::Layers => Some(
                "exec unshare --user --map-root-user /bin/sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$@\"'"
                    .to_owned(),
            ),
        }
    }

    /// The error of a connection to another port.
    fn other_port_error(self) -> &'static str {
        if self.has_namespaces() { "ECONNREFUSED\n" } else { "EACCES\n" }
    }

    /// Whether agents have a network of their own here.
    fn has_namespaces(self) -> bool {
        self != Self::Layers
    }
}
