//! Commands with a person at the terminal, for which a pseudo-terminal stands in.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::approval::start_waiting_run;
use crate::cli_protocols::MAIL;
use crate::harness::{demo, until};

/// The cues at which a person types the decision about a mail, and its reason.
pub(crate) const DECISION: &str = "yes, no or later: ";
pub(crate) const REASON: &str = "answer (Enter leaves it out): ";

/// A pseudo-terminal: its output so far, and the keys.
pub(crate) struct Tty {
    name: String,
    keys: File,
    seen: Arc<Mutex<Vec<u8>>>,
    columns: usize,
    rows: usize,
    /// Ends once all processes have closed the other end.
    reading: Option<JoinHandle<()>>,
}

pub(crate) struct Screen {
    child: Child,
    tty: Tty,
    /// The end of the last text that [`Screen::wait_for`] found, in bytes.
    found: usize,
}

// === impl Tty ===

impl Tty {
    /// Opens a terminal of this size, and returns its other end too.
    pub(crate) fn open(columns: usize, rows: usize) -> (Self, File) {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        tcsetwinsize(&ours, winsize(columns, rows)).unwrap();
        let theirs = File::options().read(true).write(true).open(&name).unwrap();
        let keys = File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&seen);
        let reading = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails once all processes have closed the other end.
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                writes.lock().unwrap().extend_from_slice(&piece[..length]);
            }
        });
        (Self { name, keys, seen, columns, rows, reading: Some(reading) }, theirs)
    }

    /// The device's path.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// All output, including control sequences.
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

// === impl Screen ===

impl Screen {
    /// A screen without a known size.
    pub(crate) fn start(command: Command) -> Self {
        Self::sized(command, 0, 0)
    }

    /// A screen on a terminal of this many columns.
    pub(crate) fn of_columns(command: Command, columns: u16) -> Self {
        Self::sized(command, columns.into(), 24)
    }

    /// A screen of this many columns and rows.
    pub(crate) fn sized(command: Command, columns: usize, rows: usize) -> Self {
        Self::open(command, columns, rows, "xterm")
    }

    /// A screen on a terminal of this type.
    pub(crate) fn on(command: Command, name: &str) -> Self {
        Self::open(command, 0, 0, name)
    }

    fn open(mut command: Command, columns: usize, rows: usize, terminal: &str) -> Self {
        let (tty, theirs) = Tty::open(columns, rows);
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let child = command.env("TERM", terminal).spawn().unwrap();
        // The command holds the other end open until it is dropped; then the child is its last holder.
        drop(command);
        Self { child, tty, found: 0 }
    }

    /// All output, including control sequences.
    pub(crate) fn seen(&self) -> String {
        self.tty.seen()
    }

    /// The person's view, including the lines that have scrolled away.
    pub(crate) fn display(&self) -> String {
        display(&self.seen(), self.tty.columns, self.tty.rows)
    }

    /// Waits until the person sees this.
    pub(crate) fn wait_to_see(&mut self, text: &str) {
        until(|| {
            let ended = self.end_status();
            let display = self.display();
            if display.contains(text) {
                return Some(());
            }
            assert!(ended.is_none(), "ended with {ended:?} without '{text}':\n{display}");
            None
        });
    }

    /// Waits for a text after the last one that was found.
    pub(crate) fn wait_for(&mut self, text: &str) {
        until(|| {
            let ended = self.end_status();
            let seen = self.seen();
            if let Some(place) = seen[self.found..].find(text) {
                self.found += place + text.len();
                return Some(());
            }
            assert!(ended.is_none(), "ended with {ended:?} without '{text}':\n{seen}");
            None
        });
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.tty.press(keys);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a cue and types an answer there.
    pub(crate) fn answer(&mut self, cue: &str, keys: &str) {
        self.wait_for(cue);
        self.press(keys);
    }

    /// The screen of a program that must exit successfully.
    pub(crate) fn end_well(self) -> String {
        let (code, seen) = self.end();
        assert_eq!(code, Some(0), "{seen}");
        seen
    }

    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let code = self.wait_for_end();
        (code, self.seen())
    }

    /// The person's view at the end, and the exit code.
    pub(crate) fn end_display(mut self) -> (Option<i32>, String) {
        let code = self.wait_for_end();
        (code, self.display())
    }

    fn wait_for_end(&mut self) -> Option<i32> {
        until(|| self.end_status()).code()
    }

    /// Returns how the command has ended, with all of its output read.
    fn end_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().unwrap()?;
        self.tty.reading.take().into_iter().for_each(|reading| reading.join().unwrap());
        Some(status)
    }
}

fn winsize(columns: usize, rows: usize) -> Winsize {
    let (ws_col, ws_row) = (columns.try_into().unwrap(), rows.try_into().unwrap());
    Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 }
}

/// A terminal's view of this output, line by line and without trailing spaces.
pub(crate) fn display(seen: &str, columns: usize, rows: usize) -> String {
    let (columns, rows) = if columns == 0 { (80, 24) } else { (columns, rows) };
    let mut terminal = avt::Terminal::with_scrollback(columns, rows, None).unwrap();
    terminal.feed(seen);
    let lines = terminal.screen().all_lines().map(|line| line.text().trim_end().to_owned());
    let lines: Vec<String> = lines.collect();
    format!("{}\n", lines.join("\n").trim_end())
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
    }
}

#[test]
fn approve_asks_where_somebody_can_be_asked() {
    let (_home, server) = demo();
    let (_, interrupt) = start_waiting_run(&server);
    let mut screen = Screen::start(server.command(&["approve", &interrupt]));
    screen.wait_for("the agent mailcomposer asks (mail_send_approval):");
    screen.wait_for("| Approval Decision");
    screen.answer(DECISION, "y\r");
    screen.wait_for("| Approval Reason");
    screen.answer(REASON, "\r");
    screen.end_well();
    assert_eq!(server.run(&["inbox", "-q"]).expect(0).out, "");
}

#[test]
fn an_answer_has_styles_unless_there_is_to_be_no_color() {
    let (_home, server) = demo();
    let arguments = ["run", "researcher", "honey bees"];
    let seen = Screen::start(server.command(&arguments)).end_well();
    assert!(seen.contains("\u{1b}[2m"), "steps are dimmed: {seen}");
    let mut plain = server.command(&arguments);
    plain.env("NO_COLOR", "1");
    let seen = Screen::start(plain).end_well();
    assert!(!seen.contains("\u{1b}[2m") && !seen.contains("\u{1b}[0m"), "{seen}");
    for dumb in [["--plain", ""], ["", "dumb"]] {
        let mut plain = server.command(&arguments);
        plain.args(dumb.first().filter(|option| !option.is_empty()));
        plain.env("NO_COLOR", "1");
        let screen = match dumb {
            ["", terminal] => Screen::on(plain, terminal),
            _ => Screen::start(plain),
        };
        let seen = screen.end_well();
        assert!(!seen.contains('\u{1b}') && seen.contains(" chapters.[1] A survey"), "{seen}");
    }
    let (code, seen) = Screen::start(server.command(&["run", "echo", "x", "--raw"])).end();
    assert_eq!(code, Some(2), "{seen}");
}

#[test]
fn a_conversation_goes_line_by_line() {
    let (_home, server) = demo();
    let mut screen = Screen::start(server.command(&["chat", "echo", "--thread", "c"]));
    screen.wait_for("> ");
    screen.press("first words\r");
    // Once as typed, once as the agent's answer.
    until(|| (screen.display().matches("first words").count() == 2).then_some(()));
    screen.press("/quit\r");
    screen.end_well();
}

#[test]
fn ctrl_c_asks_the_agent_to_stop_then_leaves_and_is_never_ignored() {
    let (_home, server) = demo();
    let mut screen = Screen::start(server.command(&["chat", "mailcomposer"]));
    screen.wait_for("/help shows what you can type");
    screen.answer("> ", "/help\r");
    screen.wait_for("Ctrl-C   ask the agent to stop");
    screen.answer("> ", &format!("{MAIL}\r"));
    // In a question the key cancels the run; the conversation continues.
    screen.answer(DECISION, "\u{3}");
    screen.wait_for("cancelling the run");
    screen.wait_for("> ");
    // Without a run, the key exits, also after an earlier run.
    screen.signal(Signal::INT);
    let (code, seen) = screen.end();
    assert_eq!(code, Some(130), "{seen}");
}

#[test]
fn hidden_characters_are_shown_as_codes() {
    let (_home, server) = demo();
    let text = "pay\u{200b}pal \u{202e}txt.exe\u{202c} \u{85}";
    let run = ["run", "echo", text, "--thread", "t"];
    let seen = Screen::start(server.command(&run)).end_well();
    assert!(seen.contains(r"pay\u{200b}pal \u{202e}txt.exe\u{202c} \u{85}"), "{seen}");
    let seen = Screen::start(server.command(&["tail", "t", "--json"])).end_well();
    let code = r"pay\u200bpal \u202etxt.exe\u202c \u0085";
    assert!(seen.contains(code) && !seen.contains('\u{202e}'), "{seen}");
    let values = seen.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(
        values.into_iter().any(|it| it.to_string().contains(text)),
        "it means the same: {seen}"
    );
    let seen = Screen::start(server.command(&["threads", "export", "t"])).end_well();
    assert!(seen.contains(code) && !seen.contains('\u{202e}'), "{seen}");
    // Into a pipe, JSON is written as the server sent it.
    assert!(server.run(&["tail", "t", "--json"]).expect(0).out.contains(text));
}
