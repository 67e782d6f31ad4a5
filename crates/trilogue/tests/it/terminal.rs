//! Commands with somebody at the terminal: a pseudo-terminal stands in for the screen and the keys.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::approval::waiting;
use crate::harness::{demo, until};

/// Where a person types the decision about a mail, and the reason of it.
pub(crate) const DECISION: &str = "yes, no or later: ";
pub(crate) const REASON: &str = "answer (Enter leaves it out): ";

pub(crate) struct Screen {
    child: Child,
    keys: File,
    seen: Arc<Mutex<String>>,
    /// Up to where [`Screen::wait_for`] has found what it waited for, in bytes.
    found: usize,
    /// Ends when the child has closed its end.
    reading: Option<JoinHandle<()>>,
}

// === impl Screen ===

impl Screen {
    pub(crate) fn start(command: Command) -> Self {
        Self::sized(command, None)
    }

    /// The same on a terminal of so many columns.
    pub(crate) fn of_columns(command: Command, columns: u16) -> Self {
        Self::sized(
            command,
            Some(Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }),
        )
    }

    fn sized(mut command: Command, size: Option<Winsize>) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        size.into_iter().for_each(|size| tcsetwinsize(&ours, size).unwrap());
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = File::options().read(true).write(true).open(name).unwrap();
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let child = command.env("TERM", "xterm").spawn().unwrap();
        // The other end is open in the command until it is dropped; then its last holder is the child.
        drop(command);
        let keys = File::from(ours);
        let mut screen = keys.try_clone().unwrap();
        let seen = Arc::new(Mutex::new(String::new()));
        let writes = Arc::clone(&seen);
        let reading = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Reading fails when the child has closed its end.
            while let Ok(length @ 1..) = screen.read(&mut piece) {
                let text = String::from_utf8_lossy(&piece[..length]).into_owned();
                writes.lock().unwrap().push_str(&text);
            }
        });
        Self { child, keys, seen, found: 0, reading: Some(reading) }
    }

    pub(crate) fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    /// Waits for a text behind the one that it waited for before.
    pub(crate) fn wait_for(&mut self, text: &str) {
        until(|| {
            let seen = self.seen();
            if let Some(place) = seen[self.found..].find(text) {
                self.found += place + text.len();
                return Some(());
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?} without '{text}':\n{}", self.seen());
            None
        });
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a cue and answers there.
    pub(crate) fn answer(&mut self, cue: &str, keys: &str) {
        self.wait_for(cue);
        self.press(keys);
    }

    /// What was on the screen of a program that ended well.
    pub(crate) fn end_well(self) -> String {
        let (code, seen) = self.end();
        assert_eq!(code, Some(0), "{seen}");
        seen
    }

    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = until(|| self.child.try_wait().unwrap());
        // What it wrote last may not have been read yet.
        self.reading.take().into_iter().for_each(|reading| reading.join().unwrap());
        (status.code(), self.seen())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
    }
}

#[test]
fn approve_asks_where_somebody_can_be_asked() {
    let (_home, server) = demo();
    let (_, interrupt) = waiting(&server);
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
fn an_answer_streams_with_its_notes_and_obeys_no_color() {
    let (_home, server) = demo();
    let arguments = ["run", "researcher", "honey bees"];
    let (code, seen) = Screen::start(server.command(&arguments)).end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains(" chapters.[1] A survey"), "{seen}");
    assert!(seen.contains("\u{1b}[2m"), "steps are dimmed: {seen}");
    let mut plain = server.command(&arguments);
    plain.env("NO_COLOR", "1");
    let (code, seen) = Screen::start(plain).end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains('\u{1b}'), "{seen}");
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
    until(|| (screen.seen().matches("first words").count() == 2).then_some(()));
    screen.press("/quit\r");
    screen.end_well();
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
    // In a pipe, JSON comes as the server wrote it.
    assert!(server.run(&["tail", "t", "--json"]).expect(0).out.contains(text));
}
