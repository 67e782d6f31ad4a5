//! A stage that suspends its program while the program has no lease.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use trilogue_sandbox::{LeaseFile, SandboxPolicy, layers_of_machine};

use super::{HOUR_MS, command, create_folder, policy, wait_until};

/// Two processes that write until their folder is removed. The second one has a session of its own, and has lost its parent.
const WRITERS: &str = "(setsid sh -c 'while echo x >>second; do sleep 0.005; done' &)
while echo x >>first; do sleep 0.005; done";
/// The looks in which nothing changes.
const CALM_LOOKS: u32 = 50;
const HOUR: Duration = Duration::from_millis(HOUR_MS);

pub(super) fn a_program_works_until_its_lease_is_over() {
    for has_layers in [false, true] {
        let (folder, leases, policy, lease) =
            start_folder(&format!("lease-{has_layers}"), has_layers);
        let mut stage = command(&folder, &policy, &["/bin/sh", "-c", WRITERS]).spawn().unwrap();
        wait_for_more(&folder);
        // A lease that is extended, and one that was extended too late.
        lease.extend(LeaseFile::now() + HOUR).unwrap();
        wait_for_more(&folder);
        lease.extend(LeaseFile::now()).unwrap();
        wait_for_calm(&folder);
        let before = sizes(&folder);
        // One that cannot be read is over too.
        fs::write(leases.join("lease"), "soon").unwrap();
        wait_for_calm(&folder);
        assert_eq!(sizes(&folder), before);
        lease.extend(LeaseFile::now() + HOUR).unwrap();
        wait_for_more(&folder);
        lease.extend(Duration::ZERO).unwrap();
        wait_for_calm(&folder);
        lease.end().unwrap();
        wait_for_more(&folder);
        // The writers make new files until their folder is gone.
        wait_until(|| fs::remove_dir_all(&folder).is_ok());
        stage.wait().unwrap();
        fs::remove_dir_all(leases).unwrap();
    }
}

/// Processes that resume each other without a pause.
const RESUMING: &str = r#"
import os, signal, time
for _ in range(6):
    if os.fork() == 0:
        while os.path.exists("first"):
            os.killpg(0, signal.SIGCONT)
        os._exit(0)
while True:
    with open("first", "r+") as file: file.seek(0, 2); file.write("x")
    os.killpg(0, signal.SIGCONT)
"#;

pub(super) fn processes_that_resume_each_other_do_not_work_on() {
    for has_layers in [false, true] {
        let (folder, leases, policy, lease) =
            start_folder(&format!("resume-{has_layers}"), has_layers);
        fs::write(folder.join("first"), "").unwrap();
        lease.extend(LeaseFile::now() + HOUR).unwrap();
        let program = ["/usr/bin/python3", "-c", RESUMING];
        let mut stage = command(&folder, &policy, &program).spawn().unwrap();
        let size = || fs::metadata(folder.join("first")).map_or(0, |it| it.len());
        let before = Cell::new(0);
        wait_until(|| size() > 0);
        lease.extend(Duration::ZERO).unwrap();
        // They stand still, or the stage has ended them.
        wait_for_looks(|| {
            let now = size();
            before.replace(now) == now
        });
        lease.extend(LeaseFile::now() + HOUR).unwrap();
        wait_until(|| fs::remove_dir_all(&folder).is_ok());
        stage.wait().unwrap();
        fs::remove_dir_all(leases).unwrap();
    }
}

pub(super) fn a_program_ends_with_its_server() {
    for has_layers in [false, true] {
        let (folder, leases, policy, lease) =
            start_folder(&format!("server-{has_layers}"), has_layers);
        lease.extend(LeaseFile::now() + HOUR).unwrap();
        let stage = command(&folder, &policy, &["/bin/sh", "-c", WRITERS]);
        // The shell is the server of the stage.
        let mut server = Command::new("/bin/sh");
        server.args(["-c", "\"$@\" & read end", "server"]).arg(std::env::current_exe().unwrap());
        server.args(stage.get_args()).current_dir(&folder);
        for (name, value) in stage.get_envs() {
            server.env(name, value.unwrap());
        }
        let mut server = server.stdin(Stdio::piped()).spawn().unwrap();
        wait_for_more(&folder);
        // Also one that is suspended ends.
        lease.extend(Duration::ZERO).unwrap();
        wait_until(|| is_suspended(&folder));
        server.kill().unwrap();
        server.wait().unwrap();
        wait_until(|| states(&folder).is_empty());
        fs::remove_dir_all(&folder).unwrap();
        fs::remove_dir_all(leases).unwrap();
    }
}

fn start_folder(name: &str, has_layers: bool) -> (PathBuf, PathBuf, SandboxPolicy, LeaseFile) {
    let folder = create_folder(name);
    let layers = if has_layers { layers_of_machine() } else { trilogue_sandbox::Layers::default() };
    let mut policy = policy(&folder, layers, HOUR_MS);
    // The program does not see it.
    let leases = create_folder(&format!("{name}-leases"));
    let lease = LeaseFile::new(leases.join("lease"));
    (policy.hold, policy.lease) = (None, Some(lease.clone()));
    (folder, leases, policy, lease)
}

fn sizes(folder: &Path) -> [u64; 2] {
    ["first", "second"].map(|name| fs::metadata(folder.join(name)).map_or(0, |it| it.len()))
}

/// Waits until both processes have written more.
fn wait_for_more(folder: &Path) {
    let before = sizes(folder);
    wait_until(|| sizes(folder).iter().zip(before).all(|(now, before)| *now > before));
}

/// Waits until no process of the program works. For a moment, one that is about to stop looks as if it waited for another.
fn wait_for_calm(folder: &Path) {
    wait_for_looks(|| is_suspended(folder));
}

/// Waits until a condition has held for some looks in a row.
fn wait_for_looks(condition: impl Fn() -> bool) {
    let looks = Cell::new(0);
    wait_until(|| {
        looks.set(if condition() { looks.get() + 1 } else { 0 });
        looks.get() == CALM_LOOKS
    });
}

/// Whether no process of the program works. One that waits for a stopped child in the kernel (`D`) is not stopped itself.
fn is_suspended(folder: &Path) -> bool {
    let states = states(folder);
    states.len() >= 2 && states.iter().all(|state| state == "T" || state == "D")
}

/// The states of the program's processes, without those of the stage and of the shell that plays the server.
fn states(folder: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let of_program = all.filter(|process| {
        let words = fs::read(process.join("cmdline")).unwrap_or_default();
        let is_writer = words.starts_with(b"/bin/sh\0-c\0(") || words.starts_with(b"sh\0-c\0while");
        is_writer && fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder)
    });
    let state = |process: PathBuf| {
        let text = fs::read_to_string(process.join("stat")).ok()?;
        Some(text.rsplit_once(')')?.1.split_whitespace().next()?.to_owned())
    };
    of_program.filter_map(state).collect()
}
