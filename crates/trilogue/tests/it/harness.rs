//! A state folder, servers in it, and commands that use them.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_trilogue");
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Home {
    dir: Arc<TempDir>,
}

#[derive(Debug)]
pub(crate) struct Server {
    home: Home,
    child: Child,
    pub(crate) address: String,
}

#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A home with a running demo server.
pub(crate) fn demo() -> (Home, Server) {
    let home = Home::new();
    let server = home.demo();
    (home, server)
}

// === impl Home ===

impl Home {
    pub(crate) fn new() -> Self {
        let dir = Arc::new(TempDir::new().unwrap());
        fs::create_dir(dir.path().join("work")).unwrap();
        Self { dir }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.dir.path().join("state/trilogue")
    }

    /// The record by which programs find the server. `None` without one.
    pub(crate) fn server_record(&self) -> Option<Value> {
        let text = fs::read_to_string(self.state().join("server.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        self.prepared(Command::new(program))
    }

    fn prepared(&self, mut command: Command) -> Command {
        let binaries = Path::new(BINARY).parent().unwrap();
        let path = std::env::join_paths(
            [binaries.to_owned()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", path.unwrap())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.dir.path().join("state"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramOutput {
        self.run_with(arguments, "")
    }

    /// As [`Self::run`], with this standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> ProgramOutput {
        let mut command = self.program(BINARY);
        command.args(arguments);
        finish(command, input)
    }

    pub(crate) fn demo(&self) -> Server {
        self.start(&["demo", "--listen", "127.0.0.1:0"])
    }

    /// Starts a server and waits until it is ready. Its arguments must make it listen on a given port or on any free one.
    pub(crate) fn start(&self, arguments: &[&str]) -> Server {
        self.try_start(arguments).unwrap_or_else(|ended| panic!("{ended}"))
    }

    /// The same for a server that may end before it is ready. Then it returns how it ended, and the log.
    pub(crate) fn try_start(&self, arguments: &[&str]) -> Result<Server, String> {
        self.try_start_as(Command::new(BINARY), arguments)
    }

    /// Starts a server through a command that takes the arguments and then becomes the server.
    pub(crate) fn start_as(&self, command: Command, arguments: &[&str]) -> Server {
        self.try_start_as(command, arguments).unwrap_or_else(|ended| panic!("{ended}"))
    }

    pub(crate) fn try_start_as(
        &self,
        command: Command,
        arguments: &[&str],
    ) -> Result<Server, String> {
        let ports = self.dir.path().join("ports");
        let log = self.dir.path().join("server.log");
        // A previous server's file would be mistaken for this server's.
        let _ = fs::remove_file(&ports);
        let mut command = self.prepared(command);
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        command
            .args(arguments)
            .arg("--port-file")
            .arg(&ports)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let mut child = command.spawn().unwrap();
        let address = until(|| {
            if let Some(status) = child.try_wait().unwrap() {
                let log = fs::read_to_string(&log).unwrap();
                return Some(Err(format!("the server ended with {status}:\n{log}")));
            }
            fs::read_to_string(&ports).ok().map(Ok)
        })?;
        let address = address.lines().next().unwrap().to_owned();
        Ok(Server { home: self.clone(), child, address })
    }

    /// The log of all servers of this home.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("server.log")).unwrap_or_default()
    }
}

/// The audit lines of this event in a log of JSON lines.
pub(crate) fn audits(log: &str, event: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audits = lines.filter(|line| line["target"] == "trilogue_audit");
    audits.filter(|line| line["audit"] == event).collect()
}

// === impl Server ===

impl Server {
    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramOutput {
        self.run_with(arguments, "")
    }

    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> ProgramOutput {
        finish(self.command(arguments), input)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.program(BINARY);
        command.env("TRILOGUE_URL", self.url()).args(arguments);
        command
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.home.state().join("tokens").join(self.address.replace(':', "-"))
    }

    pub(crate) fn stop(mut self, signal: Signal) -> ExitStatus {
        kill_process(pid(&self.child), signal).unwrap();
        until(|| self.child.try_wait().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

// === impl ProgramOutput ===

impl ProgramOutput {
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "\n-- out:\n{}\n-- err:\n{}", self.out, self.err);
        self
    }

    /// Asserts that it exited with this code and printed this text to standard error.
    pub(crate) fn complains(self, code: i32, text: &str) {
        let ended = self.expect(code);
        assert!(ended.err.contains(text), "{}", ended.err);
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }
}

pub(crate) fn finish(mut command: Command, input: &str) -> ProgramOutput {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = pid(&child);
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // A command may close its input without reading it.
    thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let (done, ended) = mpsc::channel();
    thread::spawn(move || drop(done.send(child.wait_with_output())));
    let Ok(output) = ended.recv_timeout(LIMIT) else {
        let _ = kill_process(pid, Signal::KILL);
        let seen = ended.recv_timeout(LIMIT);
        panic!("the command did not end: {command:?}: {seen:?}");
    };
    let output = output.unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Calls `look` until it returns a value, up to the time limit.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LIMIT, "waited {LIMIT:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A free address that stays free for a server's restart.
pub(crate) fn lasting_address() -> String {
    trilogue_testkit::reserve_address().unwrap().to_string()
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}
