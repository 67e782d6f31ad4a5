//! Text that reaches the terminal.

use crate::harness::demo;

/// Attacks that an agent may repeat: clipboard, title, screen, C1, direction, overwriting.
const ATTACK: &str =
    "safe\u{1b}]52;c;cm0gLXJmIH4K\u{7}\u{1b}]0;t\u{1b}\\\u{1b}[2J\u{9b}31m\u{202e}x\rover\u{8}end";

fn has_controls(text: &str) -> bool {
    text.chars().any(|c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c))
}

#[test]
fn control_sequences_of_an_agent_reach_no_terminal() {
    let (_home, server) = demo();
    let ended = server.run_with(&["run", "echo", "-", "--thread", "t"], ATTACK).expect(0);
    assert!(ended.out.contains("safe") && ended.out.contains("over"), "{ended:?}");
    assert!(!has_controls(&ended.out) && !has_controls(&ended.err), "{ended:?}");
    let run = server.run(&["runs", "-q", "--thread", "t"]).expect(0).out;
    for arguments in [
        vec!["threads", "show", "t"],
        vec!["tail", "t"],
        vec!["runs", "show", run.trim()],
        vec!["run", "\u{1b}[2Jnobody", "x"],
        vec!["tail", "\u{1b}]52;c;AA\u{7}"],
        vec!["approve", "\u{1b}[2J"],
    ] {
        let ended = server.run(&arguments);
        assert!(!has_controls(&ended.out) && !has_controls(&ended.err), "{arguments:?} {ended:?}");
    }
    let raw = server.run_with(&["run", "echo", "-", "--raw"], ATTACK).expect(0);
    assert!(raw.out.contains("\u{1b}]52;c;"), "{raw:?}");
}

#[test]
fn citations_are_numbered_notes_and_steps_stand_beside() {
    let (_home, server) = demo();
    let question = ["run", "researcher", "How do bees find their way?"];
    let ended = server.run(&question).expect(0);
    assert!(ended.out.contains("[1]"), "{}", ended.out);
    let notes: Vec<_> = ended.out.lines().filter(|line| line.starts_with("[1] ")).collect();
    assert_eq!(notes.len(), 1, "{}", ended.out);
    assert!(notes[0].contains("http"), "{}", notes[0]);
    assert!(ended.err.contains("step: ") || ended.err.contains("tool: "), "{}", ended.err);
    let quiet = server.run(&[&question[..], &["--no-metadata"]].concat()).expect(0);
    assert!(!quiet.err.contains("step: ") && !quiet.err.contains("tool: "), "{}", quiet.err);
    assert!(!ended.err.contains('\u{1b}'), "no colour into a pipe");
}

/// The printed lines, without the marks of notes and their list.
fn without_notes(printed: &str) -> Vec<String> {
    let marks: Vec<_> = (1..10).map(|number| format!("[{number}]")).collect();
    let is_note = |line: &str| marks.iter().any(|mark| line.starts_with(&format!("{mark} ")));
    let lines = printed.lines().filter(|line| !line.is_empty() && !is_note(line));
    lines
        .map(|line| marks.iter().fold(line.to_owned(), |line, mark| line.replace(mark, "")))
        .collect()
}

#[test]
fn without_metadata_an_answer_reads_the_same() {
    let (_home, server) = demo();
    for (agent, question) in
        [("echo", "Bees dance."), ("mailcomposer", "Hello"), ("researcher", "honey bees")]
    {
        let whole = server.run(&["run", agent, question]).expect(0);
        let bare = server.run(&["run", agent, question, "--no-metadata"]).expect(0);
        assert!(!bare.out.contains("[1]"), "{}", bare.out);
        let lines: Vec<_> = bare.out.lines().map(str::to_owned).collect();
        assert_eq!(lines, without_notes(&whole.out), "{agent}");
        let asides: Vec<_> = bare.err.lines().filter(|line| !line.starts_with("hint: ")).collect();
        assert_eq!(asides, Vec::<&str>::new(), "{agent}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let (home, server) = demo();
    let mut shell = home.program("sh");
    shell.env("TRILOGUE_URL", server.url());
    shell.args(["-c", "trilogue run researcher 'bees?' --json | head -n 1"]);
    let ended = crate::harness::finish(shell, "");
    assert_eq!(ended.out.lines().count(), 1, "{ended:?}");
    assert!(!ended.err.contains("panicked") && !ended.err.contains("error"), "{ended:?}");
}
