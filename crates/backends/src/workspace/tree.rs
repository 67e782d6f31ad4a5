//! The processes of a command, wherever they went.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The variable by which the processes of one command are known.
pub(super) const MARKER: &str = "TRILOGUE_TERMINAL";
/// How often they are looked for: one that is found may just have started another.
const MAX_ROUNDS: usize = 100;
/// How long it takes to look again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Ends what is left of a command: all processes with its marker, a variable and its value.
pub(super) async fn end(group: Pid, marker: &str) {
    let marker = marker.to_owned();
    // Where it fails the server is stopping, and the processes go with those of the agent.
    let _ = tokio::task::spawn_blocking(move || {
        if !Path::new("/proc/self/environ").exists() {
            // Nobody can tell who belongs to it but the system by its group.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            return;
        }
        for _ in 0..MAX_ROUNDS {
            if end_marked(&marker) == 0 {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        tracing::warn!("a command of an agent keeps starting processes");
    })
    .await;
}

/// Ends each process that has this variable now, and says how many there were.
fn end_marked(marker: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter_map(Pid::from_raw).filter(|pid| end_one(*pid, marker) == Some(())).count()
}

/// Pins the process before looking at it, so that what is ended is what was looked at.
fn end_one(pid: Pid, marker: &str) -> Option<()> {
    let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
    has(&path, marker)?;
    let pinned = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    has(&path, marker)?;
    pidfd_send_signal(&pinned, Signal::KILL).ok()
}

fn has(path: &str, marker: &str) -> Option<()> {
    let environment = std::fs::read(path).ok()?;
    environment.split(|byte| *byte == 0).any(|it| it == marker.as_bytes()).then_some(())
}
