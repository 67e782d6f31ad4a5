//! The README's main example, pasted into an interactive shell unchanged.

use crate::docs;
use crate::harness::{Server, demo};
use crate::terminal::Screen;

const PROMPT: &str = "shell> ";
/// The marks that a terminal puts around pasted text if the shell requested that.
const PASTE: [&str; 2] = ["\u{1b}[200~", "\u{1b}[201~"];
/// The result of the editor's turn, a text that the typed commands do not contain.
const ANSWER: &str = "\"stopReason\":\"end_turn\"";

/// The commands of the example, for this server.
fn example(server: &Server) -> Vec<String> {
    let commands = docs::commands("README.md").into_iter();
    let commands = commands.skip_while(|command| !command.starts_with("mkfifo "));
    let token = server.token_file();
    let here = |command: String| {
        command
            .replace("~/.local/state/trilogue/tokens/127.0.0.1-7878", token.to_str().unwrap())
            .replace("127.0.0.1:7878", &server.address)
    };
    let mut example: Vec<_> = Vec::new();
    for command in commands.map(here) {
        let is_last = command.starts_with("exec 3>&-");
        example.push(command);
        if is_last {
            return example;
        }
    }
    panic!("the README has no such example: {example:?}");
}

/// Plays the example in a new shell, and expects the answer and the shell's prompt.
fn play(paste: impl FnOnce(&mut Screen, &[String])) {
    let (home, server) = demo();
    let example = example(&server);
    let mut shell = home.program("setsid");
    shell.args(["--ctty", "bash", "--noprofile", "--norc", "-i"]);
    shell.env("PS1", PROMPT).env("TRILOGUE_URL", server.url());
    let mut screen = Screen::start(shell);
    screen.wait_for(PROMPT);
    paste(&mut screen, &example);
    screen.press("echo all $((40 + 2)) commands ran\r");
    screen.wait_for("all 42 commands ran");
    // A slow paste has already read past both.
    for output in [ANSWER, "\"method\":\"$/cancel_request\""] {
        assert!(screen.seen().contains(output), "{}", screen.seen());
    }
    screen.press("exit\r");
}

#[test]
fn the_main_example_works_when_it_is_pasted_at_once() {
    for [before, after] in [["", ""], PASTE] {
        play(|screen, example| {
            screen.press(&format!("{before}{}\r{after}", example.join("\r")));
            screen.press("\r");
        });
    }
}

#[test]
fn the_main_example_works_when_it_is_pasted_slowly() {
    play(|screen, example| {
        let (last, rest) = example.split_last().unwrap();
        for command in rest {
            screen.press(&format!("{}\r", command.replace('\n', "\r")));
            screen.wait_for(PROMPT);
        }
        screen.press(&format!("{last}\r"));
    });
}
