//! Turns that continue while the program of their server is replaced.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::lives::{Lives, check_equal, events_of, processes};
use crate::harness::{BINARY, Home};

/// What happens to the file of the program while its server runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upgrade {
    /// Another version is renamed over it, as package managers do.
    Replaced,
    /// It is removed, and the other version has another path.
    Removed,
}

fn installed(home: &Home) -> PathBuf {
    let path = home.work().join("trilogue");
    fs::copy(BINARY, &path).unwrap();
    path
}

/// Another version of the program at this path: its bytes differ.
fn install_another(path: &Path) {
    let new = path.with_extension("new");
    fs::copy(BINARY, &new).unwrap();
    File::options().append(true).open(&new).unwrap().write_all(b"another version").unwrap();
    fs::rename(&new, path).unwrap();
}

// === impl Upgrade ===

impl Upgrade {
    fn carry_out(self, lives: &mut Lives) {
        match self {
            Self::Replaced => install_another(&lives.program),
            Self::Removed => {
                fs::remove_file(&lives.program).unwrap();
                lives.program = lives.file("trilogue-2");
                install_another(&lives.program);
            }
        }
    }
}

/// The instructions of a turn that uses files and commands of the server before, during and after the upgrade.
fn instructions(lives: &Lives) -> Vec<String> {
    let uses = |name: &str| {
        let file = lives.file("folder").join(name).display().to_string();
        [
            format!("say:{name}"),
            format!("write:{file}:text of {name}"),
            format!("read:{file}"),
            format!("term:echo command of {name}"),
            "tool".to_owned(),
            "chunks:20".to_owned(),
        ]
    };
    let wait = |name: &str| [format!("wait:{}", lives.file(name).display())];
    let parts =
        [&uses("one")[..], &wait("first"), &uses("two"), &wait("second"), &uses("three")].concat();
    [parts, vec!["say:four".to_owned()]].concat()
}

#[test]
fn a_turn_continues_while_the_program_is_replaced_or_removed() {
    let expected = {
        let lives = Lives::start();
        ["first", "second"].iter().for_each(|name| fs::write(lives.file(name), "").unwrap());
        let run = lives.complete(&instructions(&lives));
        events_of(&lives, &run)
    };
    let cases = [
        (Upgrade::Replaced, Signal::TERM),
        (Upgrade::Replaced, Signal::KILL),
        (Upgrade::Removed, Signal::TERM),
        (Upgrade::Removed, Signal::KILL),
    ];
    for (upgrade, signal) in cases {
        let what = format!("{upgrade:?}, {signal:?}");
        let mut lives = Lives::with_program("", installed);
        let run = lives.run(&instructions(&lives));
        lives.wait_for("one");
        upgrade.carry_out(&mut lives);
        // The server of before can still start agents.
        lives.server().run(&["run", "coder", "say:other", "--thread", "u"]).expect(0);
        lives.end(signal);
        assert!(processes(&lives) > 0, "{what}: the agent works on");
        fs::write(lives.file("first"), "").unwrap();
        lives.begin();
        let program = format!("/proc/{}/exe", lives.server().pid());
        assert_eq!(fs::read_link(program).unwrap(), lives.program, "{what}");
        lives.wait_for("two");
        fs::write(lives.file("second"), "").unwrap();
        let ended = lives.wait_for_end(&run);
        assert_eq!(ended["status"], "completed", "{what}: {ended}");
        check_equal(&events_of(&lives, &run), &expected, &what);
        let file = fs::read_to_string(lives.file("folder/three")).unwrap();
        assert_eq!(file, "text of three", "{what}");
        // The agent is asked again in the same process.
        lives.complete(&["say:again".to_owned(), "term:echo again".to_owned()]);
        let heard = fs::read_to_string(lives.file("heard")).unwrap();
        assert_eq!(heard.matches("\"initialize\"").count(), 2, "{what}: {heard}");
    }
}

/// The wrapper starts the stage by a name of the program, and that name has to mean the program that runs.
#[test]
fn an_agent_with_a_wrapper_starts_after_the_program_was_replaced_or_removed() {
    for upgrade in [Upgrade::Replaced, Upgrade::Removed] {
        let mut lives = Lives::with_program("wrap_with = [\"env\"]\n", installed);
        upgrade.carry_out(&mut lives);
        lives.complete(&["say:one".to_owned(), "term:echo two".to_owned()]);
    }
}
