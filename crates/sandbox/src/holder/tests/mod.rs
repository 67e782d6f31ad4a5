//! A holder in a thread, with a shell as its agent, and a server that speaks over a real socket.

use std::io::{ErrorKind, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, waitpid,
};

use super::agent::AgentPipes;
use super::run::{AgentTree, run};
use super::{FrameReader, HOLDER_VERSION, HolderFrame, ServerFrame};
use crate::HoldSettings;
use crate::broker::PassedListener;

mod attach;
mod frames;
mod session;

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// How long a test waits for anything. Only a failing test takes so long.
const PATIENCE: Duration = Duration::from_secs(30);
const MIB: u64 = 1024 * 1024;

/// A holder that runs.
struct RunningHolder {
    address: std::path::PathBuf,
    folder: std::path::PathBuf,
    agent: Pid,
    thread: JoinHandle<std::io::Result<Option<ExitStatus>>>,
}

/// One child of this test. Unlike the real tree, it leaves the children of other tests alone.
struct TestTree {
    agent: Child,
    exit: OwnedFd,
    /// Keeps the replacement of `exit` silent.
    writer: Option<PipeWriter>,
}

/// A server that is attached.
struct TestServer {
    stream: UnixStream,
    reader: FrameReader,
    /// The output so far, from `output_from`.
    output: Vec<u8>,
    output_from: u64,
    seen_to: u64,
    has_lost_labels: bool,
    errors: Vec<u8>,
    labels: Vec<String>,
    note: Vec<u8>,
    output_end: Option<u64>,
    exit: Option<i32>,
}

// === impl RunningHolder ===

impl RunningHolder {
    fn start(script: &str, buffer_bytes: u64, orphan_ms: u64) -> Self {
        Self::start_with(script, (buffer_bytes, orphan_ms), None)
    }

    fn start_with(
        script: &str,
        (buffer_bytes, orphan_ms): (u64, u64),
        broker: Option<PassedListener>,
    ) -> Self {
        use std::os::unix::process::CommandExt as _;
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holder-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let address = folder.join("socket");
        let listener = UnixListener::bind(&address).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(&folder).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = shell.spawn().unwrap();
        let pid = Pid::from_child(&agent);
        let pipes = AgentPipes {
            input: agent.stdin.take().unwrap().into(),
            output: agent.stdout.take().unwrap().into(),
            errors: agent.stderr.take().unwrap().into(),
        };
        let settings = HoldSettings { secret: SECRET.to_owned(), buffer_bytes, orphan_ms };
        let thread = std::thread::spawn(move || {
            let exit = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            let mut tree = TestTree { agent, exit, writer: None };
            let outcome = run(listener, pipes, &mut tree, (&settings, broker));
            tree.end().unwrap();
            outcome
        });
        Self { address, folder, agent: pid, thread }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn attach(&self) -> TestServer {
        let mut stream = self.connect();
        let secret = SECRET.to_owned();
        let attach = ServerFrame::Attach { version: HOLDER_VERSION, secret };
        stream.write_all(&attach.encode()).unwrap();
        let (output, errors, labels, note) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let reader = FrameReader::new();
        let (output_from, seen_to, output_end, exit) = (0, 0, None, None);
        let mut server = TestServer {
            stream,
            reader,
            output,
            output_from,
            seen_to,
            has_lost_labels: false,
            errors,
            labels,
            note,
            output_end,
            exit,
        };
        let Some(HolderFrame::State { version, kept_from, seen_to, has_lost_labels, labels, note }) =
            server.next()
        else {
            panic!("the first frame is not the state");
        };
        assert_eq!(version, HOLDER_VERSION);
        (server.output_from, server.seen_to) = (kept_from, seen_to);
        server.has_lost_labels = has_lost_labels;
        (server.labels, server.note) = (labels, note);
        server
    }

    /// Waits until the agent has made a file.
    fn wait_for_file(&self, name: &str) {
        wait_until(|| self.folder.join(name).exists());
    }

    fn join(self) -> Option<ExitStatus> {
        wait_until(|| self.thread.is_finished());
        let outcome = self.thread.join().unwrap().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
        outcome
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

// === impl TestTree ===

impl AsFd for TestTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.exit.as_fd()
    }
}

impl AgentTree for TestTree {
    fn reap(&mut self) -> std::io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(&self.agent);
        let Some((_, status)) = waitpid(Some(pid), WaitOptions::NOHANG)? else { return Ok(None) };
        // A descriptor that stays readable would keep the loop busy.
        let (silent, writer) = std::io::pipe()?;
        self.exit = silent.into();
        self.writer = Some(writer);
        Ok(Some(ExitStatus::from_raw(status.as_raw())))
    }

    fn end(&mut self) -> std::io::Result<()> {
        let pid = Pid::from_child(&self.agent);
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = waitpid(Some(pid), WaitOptions::empty());
        Ok(())
    }
}

// === impl TestServer ===

impl TestServer {
    fn send(&mut self, frame: &ServerFrame) {
        self.stream.write_all(&frame.encode()).unwrap();
    }

    fn input(&mut self, label: &str, text: &str) {
        let (label, bytes) = (label.to_owned(), text.as_bytes().to_vec());
        self.send(&ServerFrame::Input { label, bytes });
    }

    /// Returns the next frame, or `None` if the holder has closed the connection.
    fn next(&mut self) -> Option<HolderFrame> {
        next_frame(&mut self.stream, &mut self.reader)
    }

    /// Takes frames until a condition is true.
    fn take_until(&mut self, condition: impl Fn(&Self) -> bool) {
        while !condition(self) {
            match self.next().expect("the holder has closed the connection") {
                HolderFrame::State { .. } => panic!("a second state"),
                HolderFrame::Output { offset, bytes } => {
                    assert_eq!(offset, self.end());
                    assert_eq!(self.output_end, None);
                    self.output.extend(bytes);
                }
                HolderFrame::Errors(bytes) => self.errors.extend(bytes),
                HolderFrame::OutputEnd { offset } => {
                    assert_eq!(offset, self.end());
                    self.output_end = Some(offset);
                }
                HolderFrame::Exit { status } => self.exit = Some(status),
            }
        }
    }

    fn take_output(&mut self, text: &str) {
        self.take_until(|server| server.output.len() >= text.len());
        assert_eq!(String::from_utf8_lossy(&self.output), text);
    }

    fn take_exit(&mut self) -> i32 {
        self.take_until(|server| server.exit.is_some());
        assert!(self.output_end.is_some());
        self.exit.unwrap()
    }

    /// The offset of the end of the output so far.
    fn end(&self) -> u64 {
        self.output_from + self.output.len() as u64
    }
}

fn next_frame(stream: &mut UnixStream, reader: &mut FrameReader) -> Option<HolderFrame> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(frame) = reader.next_holder_frame().unwrap() {
            return Some(frame);
        }
        match stream.read(&mut bytes) {
            Ok(0) => return None,
            Ok(read) => reader.push(&bytes[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("{error}"),
        }
    }
}
