//! What differs from a holder in a thread: the real tree of processes, signals, and the exit of the stage.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use trilogue_sandbox::holder::{FrameReader, HOLDER_VERSION, HolderFrame, ServerFrame};
use trilogue_sandbox::{
    HoldSettings, Layers, Network, ResourceLimits, SandboxPolicy, held_stage_words,
    layers_of_machine, stage_words,
};

mod lease;

/// How long a test waits for anything. Only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
const HOUR_MS: u64 = 3_600_000;
const TESTS: [(&str, fn()); 9] = [
    ("a_program_starts_without_blocked_signals", a_program_starts_without_blocked_signals),
    ("a_held_agent_survives_its_server", a_held_agent_survives_its_server),
    ("a_signal_ends_the_stage_as_its_agent", a_signal_ends_the_stage_as_its_agent),
    ("an_orphan_ends_with_all_its_processes", an_orphan_ends_with_all_its_processes),
    ("an_agent_in_namespaces_is_held", an_agent_in_namespaces_is_held),
    ("a_stage_without_a_socket_does_not_start", a_stage_without_a_socket_does_not_start),
    ("a_program_works_until_its_lease_is_over", lease::a_program_works_until_its_lease_is_over),
    (
        "processes_that_resume_each_other_do_not_work_on",
        lease::processes_that_resume_each_other_do_not_work_on,
    ),
    ("a_program_with_a_lease_ends_with_its_server", lease::a_program_ends_with_its_server),
];

struct StageProcess {
    folder: PathBuf,
    process: Child,
}

/// Runs the tests that the arguments select, as the harness of the language does. Its threads are why it is not used.
pub(crate) fn run_tests() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    if has("--ignored") {
        return;
    }
    let filters: Vec<_> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| {
        let matches = |filter: &&String| {
            if has("--exact") { name == **filter } else { name.contains(&***filter) }
        };
        filters.iter().copied().any(|filter| matches(&filter))
    };
    for (name, test) in TESTS {
        if has("--list") {
            print(&format!("{name}: test"));
        } else if filters.is_empty() || has("--format") || is_selected(name) {
            test();
            print(&format!("test {name} ... ok"));
        }
    }
}

#[expect(clippy::print_stdout, reason = "a runner of tests reads it")]
fn print(line: &str) {
    println!("{line}");
}

fn a_held_agent_survives_its_server() {
    let script = "read a; echo $a; (sleep 0.01; touch orphan) & read b; echo $b; exit 7";
    let mut stage = StageProcess::start("survives", script, Layers::default(), HOUR_MS);
    let (mut server, mut reader) = stage.attach();
    input(&mut server, "one\n");
    assert_eq!(take_output(&mut server, &mut reader, 4), "one\n");
    drop(server);
    wait_until(|| stage.folder.join("orphan").exists());
    let (mut server, mut reader) = stage.attach();
    input(&mut server, "two\n");
    let frames = take_all(&mut server, &mut reader);
    let output: Vec<u8> = frames.iter().flat_map(output_of).copied().collect();
    assert_eq!(String::from_utf8_lossy(&output), "one\ntwo\n");
    let end = output.len() as u64;
    assert!(frames.contains(&HolderFrame::OutputEnd { offset: end }));
    assert_eq!(frames.last(), Some(&HolderFrame::Exit { status: 7 << 8 }));
    assert_eq!(stage.wait().code(), Some(7));
}

/// Sends signals that the stage blocks for itself.
fn a_signal_ends_the_stage_as_its_agent() {
    for (name, signal) in [("HUP", 1), ("INT", 2), ("TERM", 15)] {
        let script = format!("kill -{name} $$");
        let mut stage = StageProcess::start("signal", &script, Layers::default(), HOUR_MS);
        let (mut server, mut reader) = stage.attach();
        let frames = take_all(&mut server, &mut reader);
        assert_eq!(frames.last(), Some(&HolderFrame::Exit { status: signal }));
        assert_eq!(stage.wait().signal(), Some(signal));
    }
}

/// A program that the stage becomes blocks no signal, also if nothing is held.
fn a_program_starts_without_blocked_signals() {
    let folder = create_folder("mask");
    for is_held in [true, false] {
        let mut policy = policy(&folder, Layers::default(), HOUR_MS);
        policy.hold = policy.hold.filter(|_| is_held);
        let socket = folder.join(format!("socket-{is_held}"));
        let mut command = command(&folder, &policy, &["grep", "SigBlk", "/proc/self/status"]);
        let mut output = Vec::new();
        if is_held {
            let listener = OwnedFd::from(UnixListener::bind(&socket).unwrap());
            let mut process = command.stdin(listener).spawn().unwrap();
            let (mut server, mut reader) = attach(&socket);
            let frames = take_all(&mut server, &mut reader);
            output.extend(frames.iter().flat_map(output_of));
            process.wait().unwrap();
        } else {
            output = command.output().unwrap().stdout;
        }
        assert_eq!(String::from_utf8_lossy(&output), "SigBlk:\t0000000000000000\n");
    }
    fs::remove_dir_all(folder).unwrap();
}

fn an_orphan_ends_with_all_its_processes() {
    let script = "setsid sleep 600 & echo $! >pids; echo $$ >>pids; mv pids done; sleep 600";
    let mut stage = StageProcess::start("orphan", script, Layers::default(), 500);
    let server = stage.attach();
    wait_until(|| stage.folder.join("done").exists());
    drop(server);
    let pids = fs::read_to_string(stage.folder.join("done")).unwrap();
    assert_eq!(stage.wait().code(), Some(1));
    for pid in pids.lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid} still runs");
    }
}

fn an_agent_in_namespaces_is_held() {
    let layers = layers_of_machine();
    if !layers.namespaces {
        return;
    }
    let mut stage =
        StageProcess::start("namespaces", "read a; echo $$ $a; exit 5", layers, HOUR_MS);
    let (mut server, _) = stage.attach();
    input(&mut server, "one\n");
    drop(server);
    let (mut server, mut reader) = stage.attach();
    let frames = take_all(&mut server, &mut reader);
    let output: Vec<u8> = frames.iter().flat_map(output_of).copied().collect();
    assert_eq!(String::from_utf8_lossy(&output), "2 one\n");
    assert_eq!(frames.last(), Some(&HolderFrame::Exit { status: 5 << 8 }));
    assert_eq!(stage.wait().code(), Some(5));
}

fn a_stage_without_a_socket_does_not_start() {
    let folder = create_folder("socket");
    let policy = policy(&folder, Layers::default(), HOUR_MS);
    let mut command = command(&folder, &policy, &["touch", "started"]);
    let status = command.stdin(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(i32::from(trilogue_sandbox::NOT_STARTED)));
    assert!(!folder.join("started").exists());
    fs::remove_dir_all(folder).unwrap();
}

// === impl StageProcess ===

impl StageProcess {
    fn start(name: &str, script: &str, layers: Layers, orphan_ms: u64) -> Self {
        let folder = create_folder(name);
        let listener = OwnedFd::from(UnixListener::bind(folder.join("socket")).unwrap());
        let policy = policy(&folder, layers, orphan_ms);
        let mut command = command(&folder, &policy, &["/bin/sh", "-c", script]);
        let process = command.stdin(listener).stdout(Stdio::null()).spawn().unwrap();
        Self { folder, process }
    }

    fn attach(&self) -> (UnixStream, FrameReader) {
        attach(&self.folder.join("socket"))
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the stage does not exit");
            sleep(Duration::from_millis(2));
        };
        fs::remove_dir_all(&self.folder).unwrap();
        status
    }
}

fn attach(socket: &Path) -> (UnixStream, FrameReader) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let attach = ServerFrame::Attach { version: HOLDER_VERSION, secret: secret() };
    stream.write_all(&attach.encode()).unwrap();
    let mut reader = FrameReader::new();
    let state = next_frame(&mut stream, &mut reader);
    assert!(matches!(state, Some(HolderFrame::State { kept_from: 0, .. })));
    (stream, reader)
}

fn create_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("held-{name}-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    folder
}

fn policy(folder: &Path, layers: Layers, orphan_ms: u64) -> SandboxPolicy {
    let paths = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/proc"];
    let temporary = folder.join("temporary");
    fs::create_dir_all(&temporary).unwrap();
    SandboxPolicy {
        layers,
        read: paths.map(PathBuf::from).to_vec(),
        write: vec![folder.to_owned()],
        links: Vec::new(),
        hidden: Vec::new(),
        home: None,
        temporary,
        network: Network::Open,
        limits: ResourceLimits::default(),
        group: None,
        hold: Some(HoldSettings { secret: secret(), buffer_bytes: 1 << 20, orphan_ms }),
        lease: None,
        broker: None,
    }
}

fn command(folder: &Path, policy: &SandboxPolicy, words: &[&str]) -> Command {
    let file = folder.join(format!("policy-{}", policy.hold.is_some()));
    policy.save(&file).unwrap();
    let stage = match policy.hold {
        Some(_) => held_stage_words(&file).to_vec(),
        None => stage_words(&file).to_vec(),
    };
    let (program, arguments) = stage.split_first().unwrap();
    let mut command = Command::new(program);
    let path = trilogue_sandbox::stage_variable("PATH");
    command.args(arguments).args(words).current_dir(folder).env(path, "/usr/bin:/bin");
    command
}

fn secret() -> String {
    "5a".repeat(32)
}

fn input(server: &mut UnixStream, text: &str) {
    let (label, bytes) = (String::new(), text.as_bytes().to_vec());
    server.write_all(&ServerFrame::Input { label, bytes }.encode()).unwrap();
}

/// Takes frames until the output has a length.
fn take_output(server: &mut UnixStream, reader: &mut FrameReader, length: usize) -> String {
    let mut output = Vec::new();
    while output.len() < length {
        output.extend(output_of(&next_frame(server, reader).expect("the connection is closed")));
    }
    String::from_utf8(output).unwrap()
}

/// Takes frames until the holder has closed the connection.
fn take_all(server: &mut UnixStream, reader: &mut FrameReader) -> Vec<HolderFrame> {
    std::iter::from_fn(|| next_frame(server, reader)).collect()
}

fn output_of(frame: &HolderFrame) -> &[u8] {
    if let HolderFrame::Output { bytes, .. } = frame { bytes } else { &[] }
}

fn next_frame(server: &mut UnixStream, reader: &mut FrameReader) -> Option<HolderFrame> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(frame) = reader.next_holder_frame().unwrap() {
            return Some(frame);
        }
        match server.read(&mut bytes).unwrap() {
            0 => return None,
            read => reader.push(&bytes[..read]),
        }
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "it takes too long");
        sleep(Duration::from_millis(2));
    }
}
