//! One shell for all commands of a page: a variable that one command sets is there for the next.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use tempfile::TempDir;

use crate::harness::{BINARY, Home, ProgramOutput, until};
use crate::terminal::{Tty, display};

/// The number of rows of a terminal, enough for all output of one command.
const ROWS: usize = 200;

/// A shell in a home. A drop ends the processes that it started.
#[derive(Debug)]
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    /// The folder for the output and the exit codes of commands.
    results: TempDir,
    commands: usize,
}

/// A terminal for commands of a shell.
pub(crate) struct ShellTerminal {
    tty: Tty,
    /// Keeps the other end open between two commands, and marks the end of one command's output.
    theirs: File,
    columns: usize,
    commands: usize,
}

/// The cue of a question at the terminal, and the person's input there.
pub(crate) type Answer = (String, String);

// === impl Shell ===

impl Shell {
    /// A shell whose `python3` has the official client of this folder of `foreign`; `scripts/foreign` installs it.
    pub(crate) fn new(home: &Home, client: &str) -> Self {
        let mut shell = home.program("sh");
        // The pages name the folder that is used by default.
        shell.env_remove("XDG_STATE_HOME").env("TERM", "xterm");
        let own = Path::new(BINARY).parent().unwrap();
        let client = own.join("../foreign").join(client).join("bin");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.env("PATH", format!("{}:{}:{path}", client.display(), own.display()));
        let state = home.state();
        let default = home.work().join("../.local/state/trilogue");
        fs::create_dir_all(default.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&state, &default).unwrap();
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, input, results: TempDir::new().unwrap(), commands: 0 }
    }

    /// Runs a command on a terminal to its end; returns its exit code and its output there.
    pub(crate) fn run_on(
        &mut self,
        command: &str,
        terminal: &mut ShellTerminal,
        answers: &[Answer],
    ) -> (i32, String) {
        self.commands += 1;
        let [code, unfinished] = ["code", "unfinished"]
            .map(|what| self.results.path().join(format!("{what}.{}", self.commands)));
        let (c, u, tty) = (code.display(), unfinished.display(), terminal.tty.name());
        let script = format!("{{ {command}\n}} <{tty} >{tty} 2>&1\necho $? >{u}; mv {u} {c}\n");
        let begin = terminal.tty.seen().len();
        self.input.write_all(script.as_bytes()).unwrap();
        self.input.flush().unwrap();
        let (mut found, mut answers) = (begin, answers.iter());
        let mut next = answers.next();
        let ended = until(|| {
            let left = self.child.try_wait().unwrap();
            assert!(left.is_none(), "the shell was ended by: {command}");
            let seen = terminal.tty.seen();
            if let Some((cue, answer)) = next
                && let Some(place) = seen[found..].find(cue.as_str())
            {
                found += place + cue.len();
                terminal.tty.press(&format!("{answer}\r"));
                next = answers.next();
            }
            fs::read_to_string(&code).ok()
        });
        (ended.trim().parse().unwrap(), terminal.written_since(begin))
    }

    /// Runs a command to its end; its background processes keep running.
    pub(crate) fn run(&mut self, command: &str) -> ProgramOutput {
        self.commands += 1;
        let file = |what: &str| self.results.path().join(format!("{what}.{}", self.commands));
        let (out, err, code) = (file("out"), file("err"), file("code"));
        let unfinished = file("unfinished");
        let [o, e, c, u] = [&out, &err, &code, &unfinished].map(|path| path.display());
        let script = format!("{{ {command}\n}} >{o} 2>{e} </dev/null\necho $? >{u}; mv {u} {c}\n");
        self.input.write_all(script.as_bytes()).unwrap();
        self.input.flush().unwrap();
        let ended = until(|| {
            let left = self.child.try_wait().unwrap();
            assert!(left.is_none(), "the shell was ended by: {command}");
            fs::read_to_string(&code).ok()
        });
        let text = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        ProgramOutput { code: ended.trim().parse().unwrap(), out: text(out), err: text(err) }
    }
}

// === impl ShellTerminal ===

impl ShellTerminal {
    pub(crate) fn new(columns: usize) -> Self {
        let (tty, theirs) = Tty::open(columns, ROWS);
        Self { tty, theirs, columns, commands: 0 }
    }

    /// The output after this position, to its end: the last output may not have been read yet.
    fn written_since(&mut self, begin: usize) -> String {
        self.commands += 1;
        let end = format!("\u{1b}]2;end of command {}\u{7}", self.commands);
        self.theirs.write_all(end.as_bytes()).unwrap();
        until(|| {
            let seen = self.tty.seen();
            let place = seen[begin..].find(&end)?;
            Some(seen[begin..begin + place].to_owned())
        })
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// A person's view of the output.
    pub(crate) fn display(&self, written: &str) -> String {
        display(written, self.columns, ROWS)
    }

    /// The view on a terminal wide enough for all lines.
    pub(crate) fn display_unbroken(&self, written: &str) -> String {
        display(written, 20 * self.columns, ROWS)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A shell that has exited has no jobs left.
        let _ = self.input.write_all(b"kill $(jobs -p); exit\n");
        let _ = self.child.wait();
    }
}

/// Whether a command is incomplete at the end of this line: a quote is open, the line ends with `\`, or its document has not ended.
pub(crate) fn is_open(command: &str) -> bool {
    if command.lines().next().is_some_and(|line| line.contains("<<'EOF'")) {
        return command.lines().last() != Some("EOF");
    }
    let (mut quote, mut escaped) = (None, false);
    for letter in command.chars() {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), closing) if open == closing => quote = None,
            _ => {}
        }
    }
    quote.is_some() || escaped
}

#[test]
fn a_command_goes_on_until_it_is_complete() {
    for open in ["a \\", "a '{", "a '{\n  \"b\": 1", "a \"it's", "cat <<'EOF'\nx"] {
        assert!(is_open(open), "{open}");
    }
    for whole in ["a", "a '{\n}'", "a \"it's\"", "a \\\n b", "cat <<'EOF'\nx\nEOF", "a 'x\\'"] {
        assert!(!is_open(whole), "{whole}");
    }
}

#[test]
fn what_one_command_sets_the_next_has() {
    let home = Home::new();
    let mut shell = Shell::new(&home, "communication/python");
    assert_eq!(shell.run("name=$(printf 'a b')").code, 0);
    let ended = shell.run("cat <<'EOF'\nx\nEOF\nprintf '%s' \"$name\"; printf e >&2; false");
    assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (1, "x\na b", "e"));
    shell.run("sleep 600 &");
    drop(shell);
}
