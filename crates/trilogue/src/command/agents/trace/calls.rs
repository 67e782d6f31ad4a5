//! What the processes of an agent did, out of the output of `strace -f -y`.
//!
//! Lines of several processes are mixed. A call that another line interrupts is in two parts. The first lines of a process can come before the
//! line that names its parent, whose folder it starts in: they wait for it.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Read as _};
use std::path::PathBuf;
use std::rc::Rc;

use super::line::{CallOutcome, SystemCall, descriptor_path, quoted_path};

/// The longest line, in bytes: a call with two of the longest paths, each byte as an escape.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most lines that wait for the parent of their process.
const MAX_WAITING: usize = 100_000;

/// Something that a process did.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum TracedUse {
    Path(PathUse),
    /// It opened a socket of the internet protocols.
    InternetSocket,
    /// It sent something to an address and port, or connected.
    Peer(String),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct PathUse {
    pub(super) path: PathBuf,
    pub(super) kind: PathUseKind,
    /// Whether the system refused it.
    pub(super) is_refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PathUseKind {
    /// It was opened for reading, executed, or connected to.
    Read,
    /// Its content or its attributes were changed.
    Change,
    /// It was opened for writing, and made if it did not exist.
    Open,
    /// It was made.
    Create,
    /// It was renamed or removed.
    Replace,
}

/// Reads the lines.
pub(super) struct CallReader<F> {
    processes: HashMap<u32, TracedProcess>,
    waiting: VecDeque<(u32, String)>,
    on_use: F,
    /// Lines that are too long, or that wait for a parent behind too many others.
    pub(super) skipped: usize,
}

struct TracedProcess {
    /// The folder in which it works, which its threads share. `None` until it is known.
    folder: Rc<RefCell<Option<PathBuf>>>,
    /// The first part of a call.
    unfinished: Option<String>,
}

/// The kind of a call's use of paths, and for each path the places of its folder and of itself among the arguments.
type PathCall = (PathUseKind, &'static [(Option<usize>, usize)]);

/// Returns how a call uses paths. `None` for one that only looks at them.
fn path_call(name: &str) -> Option<PathCall> {
    const FIRST: &[(Option<usize>, usize)] = &[(None, 0)];
    const IN_FIRST: &[(Option<usize>, usize)] = &[(Some(0), 1)];
    let found: PathCall = match name {
        "open" | "execve" => (PathUseKind::Read, FIRST),
        "openat" | "openat2" | "execveat" => (PathUseKind::Read, IN_FIRST),
        "creat" => (PathUseKind::Open, FIRST),
        "truncate" | "chmod" | "chown" | "lchown" | "utime" | "utimes" | "setxattr"
        | "lsetxattr" | "removexattr" | "lremovexattr" => (PathUseKind::Change, FIRST),
        "fchmodat" | "fchmodat2" | "fchownat" | "futimesat" | "utimensat" => {
            (PathUseKind::Change, IN_FIRST)
        }
        "mkdir" | "mknod" => (PathUseKind::Create, FIRST),
        "mkdirat" | "mknodat" => (PathUseKind::Create, IN_FIRST),
        "symlink" => (PathUseKind::Create, &[(None, 1)]),
        "symlinkat" => (PathUseKind::Create, &[(Some(1), 2)]),
        "rmdir" | "unlink" => (PathUseKind::Replace, FIRST),
        "unlinkat" => (PathUseKind::Replace, IN_FIRST),
        "rename" | "link" => (PathUseKind::Replace, &[(None, 0), (None, 1)]),
        "renameat" | "renameat2" | "linkat" => {
            (PathUseKind::Replace, &[(Some(0), 1), (Some(2), 3)])
        }
        _ => return None,
    };
    Some(found)
}

/// Returns how a file is opened, by the flags of the call. `None` if only its place is.
fn opened_kind(flags: &str) -> Option<PathUseKind> {
    let has = |flag: &str| flags.contains(flag);
    match () {
        () if has("O_PATH") => None,
        // The argument is the folder.
        () if has("O_TMPFILE") => Some(PathUseKind::Change),
        () if has("O_CREAT") => Some(PathUseKind::Open),
        () if has("O_WRONLY") || has("O_RDWR") || has("O_TRUNC") => Some(PathUseKind::Change),
        () => Some(PathUseKind::Read),
    }
}

// === impl CallReader ===

impl<F: FnMut(TracedUse)> CallReader<F> {
    /// Gives this what the processes of a file did. Returns the number of skipped lines.
    pub(super) fn read(mut lines: impl BufRead, on_use: F) -> io::Result<usize> {
        let (processes, waiting) = (HashMap::new(), VecDeque::new());
        let mut reader = Self { processes, waiting, on_use, skipped: 0 };
        let mut line = Vec::new();
        loop {
            line.clear();
            (&mut lines).take(MAX_LINE_BYTES as u64).read_until(b'\n', &mut line)?;
            match line.last() {
                None => break,
                Some(b'\n') => reader.line(&String::from_utf8_lossy(&line)),
                // The last line of a process that was killed.
                Some(_) if line.len() < MAX_LINE_BYTES => break,
                Some(_) => {
                    reader.skipped += 1;
                    lines.skip_until(b'\n')?;
                }
            }
        }
        // Their parents are not in the file.
        while let Some((id, line)) = reader.waiting.pop_front() {
            reader.add(id, Rc::default());
            reader.line_of(id, &line);
        }
        Ok(reader.skipped)
    }

    fn line(&mut self, line: &str) {
        let Some((id, text)) = line.trim_end().split_once(' ') else { return };
        let Ok(id) = id.parse() else { return };
        let text = text.trim_start();
        if self.processes.is_empty() && self.waiting.is_empty() {
            self.add(id, Rc::default());
        }
        if self.processes.contains_key(&id) {
            self.line_of(id, text);
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back((id, text.to_owned()));
        } else {
            self.skipped += 1;
        }
    }

    fn add(&mut self, id: u32, folder: Rc<RefCell<Option<PathBuf>>>) {
        self.processes.entry(id).or_insert(TracedProcess { folder, unfinished: None });
    }

    fn line_of(&mut self, id: u32, text: &str) {
        if let Some((_, thread)) = text.split_once("+++ superseded by execve in pid ") {
            // The thread continues under the id of its process.
            let thread = thread.split(' ').next().and_then(|id| id.parse().ok());
            let thread = thread.and_then(|id: u32| self.processes.remove(&id));
            self.processes.extend(thread.map(|thread| (id, thread)));
        } else if text.starts_with("+++") {
            self.processes.remove(&id);
        } else if let Some(first) = text.strip_suffix("<unfinished ...>") {
            if let Some(process) = self.processes.get_mut(&id) {
                process.unfinished = Some(first.to_owned());
            }
        } else if let Some((_, second)) =
            text.strip_prefix("<... ").and_then(|text| text.split_once(" resumed>"))
        {
            let process = self.processes.get_mut(&id);
            if let Some(first) = process.and_then(|process| process.unfinished.take()) {
                self.call(id, &format!("{first}{second}"));
            }
        } else {
            self.call(id, text);
        }
    }

    fn call(&mut self, id: u32, text: &str) {
        let Some(call) = SystemCall::parse(text) else { return };
        let outcome = call.outcome();
        match call.name {
            "fork" | "vfork" | "clone" | "clone3" => return self.on_fork(id, &call, text),
            "socket" if outcome == CallOutcome::Done && call.argument(0).starts_with("AF_INET") => {
                (self.on_use)(TracedUse::InternetSocket);
            }
            "connect" | "bind" | "sendto" | "sendmsg" | "sendmmsg" => {
                return self.on_address(id, &call, text);
            }
            "chdir" | "fchdir" if outcome == CallOutcome::Done => {
                let moved = match call.name {
                    "chdir" => self.path(id, None, call.argument(0)),
                    _ => descriptor_path(call.argument(0)),
                };
                self.set_folder(id, moved);
            }
            _ => {}
        }
        let Some((kind, places)) = path_call(call.name) else { return };
        let kind = match call.name {
            "open" => opened_kind(call.argument(1)),
            "openat" | "openat2" => opened_kind(call.argument(2)),
            _ => Some(kind),
        };
        for (folder, path) in places {
            let path =
                self.path(id, folder.map(|place| call.argument(place)), call.argument(*path));
            if let (Some(path), Some(kind), true) = (path, kind, outcome != CallOutcome::Failed) {
                let is_refused = outcome == CallOutcome::Refused;
                (self.on_use)(TracedUse::Path(PathUse { path, kind, is_refused }));
            }
        }
    }

    /// A new process starts in the folder of its parent. A thread shares it.
    fn on_fork(&mut self, id: u32, call: &SystemCall<'_>, text: &str) {
        let Some(child) = call.returned_id().filter(|_| call.outcome() == CallOutcome::Done) else {
            return;
        };
        let Some(parent) = self.processes.get(&id) else { return };
        let folder = match text.contains("CLONE_FS") {
            true => Rc::clone(&parent.folder),
            false => Rc::new(RefCell::new(parent.folder.borrow().clone())),
        };
        self.add(child, folder);
        let (own, others): (VecDeque<_>, _) =
            self.waiting.drain(..).partition(|(id, _)| *id == child);
        self.waiting = others;
        own.iter().for_each(|(id, line)| self.line_of(*id, line));
    }

    fn on_address(&mut self, id: u32, call: &SystemCall<'_>, text: &str) {
        let is_done = call.outcome() == CallOutcome::Done;
        if let Some((_, name)) = text.split_once("sun_path=").filter(|_| is_done)
            && let Some(path) = self.path(id, None, name)
        {
            let kind = if call.name == "bind" { PathUseKind::Create } else { PathUseKind::Read };
            (self.on_use)(TracedUse::Path(PathUse { path, kind, is_refused: false }));
        }
        if call.name == "bind" {
            return;
        }
        for address in text.split("sa_family=").skip(1) {
            if let Some(peer) = internet_address(address) {
                (self.on_use)(TracedUse::Peer(peer));
            }
        }
    }

    /// Returns the whole path of an argument, in the folder of another or in that of the process.
    fn path(&mut self, id: u32, folder: Option<&str>, argument: &str) -> Option<PathBuf> {
        let of_folder = folder.and_then(descriptor_path);
        if folder.is_some_and(|folder| folder.starts_with("AT_FDCWD")) && of_folder.is_some() {
            self.set_folder(id, of_folder.clone());
        }
        match quoted_path(argument) {
            Some(path) if path.is_absolute() => Some(path),
            Some(path) if !path.as_os_str().is_empty() => {
                let own = || self.processes.get(&id)?.folder.borrow().clone();
                Some(of_folder.or_else(own)?.join(path))
            }
            // The descriptor itself is meant.
            Some(_) => of_folder,
            None if argument == "NULL" => of_folder,
            None => None,
        }
    }

    fn set_folder(&self, id: u32, folder: Option<PathBuf>) {
        if let (Some(process), Some(_)) = (self.processes.get(&id), &folder) {
            *process.folder.borrow_mut() = folder;
        }
    }
}

/// Reads an address of the internet protocols behind `sa_family=`. Without a port, nothing is sent.
fn internet_address(text: &str) -> Option<String> {
    let between = |start: &str, end: char| Some(text.split_once(start)?.1.split_once(end)?.0);
    let port = between("port=htons(", ')').filter(|port| *port != "0")?;
    match text {
        _ if text.starts_with("AF_INET6") => {
            let address = between("inet_pton(AF_INET6, \"", '"')?;
            Some(format!("[{address}]:{port}"))
        }
        _ if text.starts_with("AF_INET") => {
            Some(format!("{}:{port}", between("inet_addr(\"", '"')?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
