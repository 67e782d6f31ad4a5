//! Which connections come from a child or from what it started.

#![cfg(target_os = "linux")]

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use trilogue_backends::child::{Children, StartedChild};

use super::child::{start, until};

const NOBODY: u32 = 65_534;
/// The bytes of a control message with one descriptor.
const SPACE: usize = rustix::cmsg_space!(ScmRights(1));
const PROTECTED: &str = "child_peers::a_child_that_protects_itself_is_known_by_its_connection";

const IN_FLIGHT: &str =
    "child_peers::a_connection_in_flight_counts_as_an_agents_at_a_server_without_agents";
/// The port to which the program of that test connects.
const PORT: &str = "CONNECT_PORT";
/// The file with the command of a program that the administrator lets in, in the folder of the test that another user runs.
const VISIT: &str = "visit";
/// Set if the administrator does so.
const HAS_DAEMON: &str = "TEST_HAS_DAEMON";

/// A script that connects and stays connected.
fn connect(port: u16) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read -u 3 line")
}

/// A program whose second thread connects and stays connected, with descriptors of its own. The first thread ends with this line.
fn connect_in_thread(port: u16, last_line: &str) -> String {
    format!(
        "import ctypes, socket, threading\n\
         kernel = ctypes.CDLL(None)\n\
         def hold():\n    \
             kernel.unshare(0x400)  # CLONE_FILES\n    \
             socket.create_connection(('127.0.0.1', {port})).recv(1)\n\
         threading.Thread(target=hold).start()\n\
         {last_line}"
    )
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

/// Whether the next connection comes from a child.
fn is_next_of_child(listener: &TcpListener, children: &Children) -> (bool, TcpStream) {
    let (stream, peer) = listener.accept().unwrap();
    (children.find_peer(peer, stream.local_addr().unwrap()).is_of_agent, stream)
}

#[tokio::test]
async fn a_child_that_becomes_another_user_is_known_by_its_connection() {
    let folder = TempDir::new().unwrap();
    let children = Children::open(None).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = connect(port_of(&listener));
    // Only an administrator becomes another user.
    let user = format!("--reuid={NOBODY}");
    let command = match rustix::process::geteuid().is_root() {
        true => vec!["setpriv", &user, "--clear-groups", "/bin/bash", "-c", &script],
        false => vec!["/bin/bash", "-c", &script],
    };
    let started = start(&children, &command, folder.path()).await;
    assert!(is_next_of_child(&listener, &children).0);
    let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(!is_next_of_child(&listener, &children).0, "its user's own program");
    drop(own);
    started.child.kill().await;
}

/// A shell that cannot be read, so that the system protects its processes too.
fn protected_shell(folder: &Path) -> PathBuf {
    let shell = folder.join("protected");
    std::fs::copy("/bin/bash", &shell).unwrap();
    std::fs::set_permissions(&shell, PermissionsExt::from_mode(0o111)).unwrap();
    shell
}

#[tokio::test]
async fn a_child_that_protects_itself_is_known_by_its_connection() {
    let folder = TempDir::new().unwrap();
    if rustix::process::geteuid().is_root() {
        // Nothing is protected from an administrator: run this test as another user.
        chown(folder.path(), Some(NOBODY), None).unwrap();
        let program = folder.path().join("it");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new("setpriv");
        command.args([&format!("--reuid={NOBODY}"), "--clear-groups"]).arg(&program);
        command
            .args(["--exact", PROTECTED, "--nocapture"])
            .env("TMPDIR", folder.path())
            .env(HAS_DAEMON, "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(folder.path());
        let mut test = command.spawn().unwrap();
        // A daemon lets the other user in: its program runs in a session of the administrator.
        let visit = folder.path().join(VISIT);
        until("the program to let in", || visit.exists() || test.try_wait().unwrap().is_some())
            .await;
        let line = std::fs::read_to_string(visit).unwrap_or_default();
        let line = format!("setpriv --reuid={NOBODY} --clear-groups {line}; true");
        let mut daemon = Command::new("setsid");
        let mut daemon = daemon.args(["/bin/bash", "-c", &line]).spawn().unwrap();
        let output = test.wait_with_output().unwrap();
        daemon.wait().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
        return;
    }
    let children = Children::open(None).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let shell = protected_shell(folder.path());
    let script = connect(port_of(&listener));
    let shell = shell.display();
    // A protected program in a session of its user, beside an agent.
    let quiet = start(&children, &["sleep", "1000"], folder.path()).await;
    let mut own = Command::new("setsid");
    own.args(["/bin/bash", "-c", &format!("{shell} -c '{script}'; true")]);
    let mut own = own.spawn().unwrap();
    let (is_of_child, stream) = is_next_of_child(&listener, &children);
    assert!(!is_of_child, "a program of its user");
    drop(stream);
    own.wait().unwrap();
    let visit = folder.path().parent().unwrap().join(VISIT);
    std::fs::write(visit.with_extension("new"), format!("{shell} -c '{script}'")).unwrap();
    if std::env::var_os(HAS_DAEMON).is_some() {
        std::fs::rename(visit.with_extension("new"), &visit).unwrap();
        let (is_of_child, stream) = is_next_of_child(&listener, &children);
        assert!(!is_of_child, "a program that a daemon has let in");
        drop(stream);
    }
    // A protected program of its user could hold what is in flight.
    let mut own = Command::new("setsid");
    own.args(["/bin/bash", "-c", &format!("{shell} -c 'read line'; true")]).stdin(Stdio::piped());
    let mut own = own.spawn().unwrap();
    let (stream, held, holder) = connection_in_flight(&children, folder.path()).await;
    assert!(children.find_peer(held.0, held.1).is_of_agent, "in flight beside it");
    holder.child.kill().await;
    drop(stream);
    // So could it what only one thread of a child holds.
    for last_line in ["", "kernel.pthread_exit(None)"] {
        let script = connect_in_thread(port_of(&listener), last_line);
        let holder = start(&children, &["python3", "-c", &script], folder.path()).await;
        let (stream, peer) = listener.accept().unwrap();
        let server = stream.local_addr().unwrap();
        assert!(children.find_peer(peer, server).is_of_agent, "its first thread: {last_line}");
        holder.child.kill().await;
    }
    drop(own.stdin.take());
    own.wait().unwrap();
    quiet.child.kill().await;
    for (number, before) in ["", "setsid"].into_iter().enumerate() {
        let ended = folder.path().join(format!("ended-{number}"));
        // Its parent has ended.
        let line = format!(
            "({before} {shell} -c '{script}' &); echo > {}; exec sleep 1000",
            ended.display()
        );
        let started = start(&children, &["/bin/bash", "-c", &line], folder.path()).await;
        until("its parent ends", || ended.exists()).await;
        assert!(is_next_of_child(&listener, &children).0, "{before}");
        started.child.kill().await;
    }
}

/// Connects, and keeps the connection only in the queue of another socket.
fn hold_in_flight(port: u16) {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (one, _other) = UnixStream::pair().unwrap();
    let (fds, mut space) = ([stream.as_fd()], [MaybeUninit::uninit(); SPACE]);
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(&one, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
    drop(stream);
    std::io::stdout().write_all(b"in flight\n").unwrap();
    // Until the test ends it.
    let mut ended = String::new();
    std::io::stdin().read_line(&mut ended).unwrap();
}

#[tokio::test]
async fn a_connection_in_flight_counts_as_an_agents_at_a_server_without_agents() {
    if let Ok(port) = std::env::var(PORT) {
        return hold_in_flight(port.parse().unwrap());
    }
    let folder = TempDir::new().unwrap();
    let (children, others) =
        (Children::open(None).await.unwrap(), Children::open(None).await.unwrap());
    let (stream, held, holder) = connection_in_flight(&children, folder.path()).await;
    for server in [&children, &others] {
        assert!(server.find_peer(held.0, held.1).is_of_agent, "no process holds it");
    }
    holder.child.kill().await;
    drop(stream);
}

/// A connection of a child that no process holds, with the addresses of both ends, and the child.
async fn connection_in_flight(
    children: &Children,
    folder: &Path,
) -> (TcpStream, (SocketAddr, SocketAddr), StartedChild) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("{PORT}={}", port_of(&listener));
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let command = ["/usr/bin/env", &port, program, "--exact", IN_FLIGHT, "--nocapture"];
    let mut started = start(children, &command, folder).await;
    let (stream, peer) = listener.accept().unwrap();
    let server = stream.local_addr().unwrap();
    let mut lines = BufReader::new(&mut started.output).lines();
    while !lines.next_line().await.unwrap().unwrap().ends_with("in flight") {}
    (stream, (peer, server), started)
}
