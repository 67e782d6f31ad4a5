//! The example agent and the example client of the Agent Client Protocol: directly connected, and with Trilogue between them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::connect_editor::OnDemand;
use crate::harness::{BINARY, Home, ProgramOutput, finish};

/// The path of an example, built with the tests' settings, so that a build of all tests already has it.
pub(crate) fn example(name: &'static str) -> PathBuf {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let me = std::env::current_exe().unwrap();
    let profile = me.ancestors().nth(2).unwrap();
    let built = BUILT.get_or_init(|| {
        if trilogue_testkit::is_built(profile) {
            return Ok(());
        }
        let mut command = trilogue_testkit::cargo();
        command
            .args(["build", "--quiet", "--workspace", "--exclude", "trilogue-bench"])
            .args(["--example", "agent_client_agent", "--example", "agent_client_client"])
            .args(["--example", "scripted_agent", "--example", "linter"])
            .args(["--example", "callback_receiver", "--target-dir"])
            .arg(profile.parent().unwrap())
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
        if profile.ends_with("release") {
            command.arg("--release");
        }
        let output = command.output().map_err(|error| error.to_string())?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(complaint)
    });
    built.clone().unwrap();
    profile.join("examples").join(name)
}

fn prompt(home: &Home, arguments: &[&str], agent: &[&str]) -> ProgramOutput {
    let mut command = home.program(example("agent_client_client"));
    command.args(arguments).arg("--").args(agent);
    finish(command, "")
}

fn ids<'a>(shown: &'a str, who: &str) -> Vec<&'a str> {
    let begin = format!("[{who} ");
    shown
        .lines()
        .filter_map(|line| line.strip_prefix(&begin)?.split_once(']').map(|(id, _)| id))
        .collect()
}

/// Checks the ids, blocks and permissions that the example shows, with or without a program between its two sides.
fn shows_ids_blocks_and_permissions(home: &Home, agent: &[&str]) {
    let notes = home.write("notes.md", "some notes\n");
    let kept = home.work().join("kept.txt");

    let rejected = prompt(home, &["Keep this", "--attach", "notes.md"], agent).expect(0);
    let shown = &rejected.out;
    let [first, second] = ids(shown, "agent")[..] else { panic!("{shown}") };
    assert!(first != second && uuid::Uuid::parse_str(first).is_ok(), "{shown}");
    let given = format!(
        "I was given the words “Keep this”, the file file://{} (11 bytes).",
        notes.canonicalize().unwrap().display()
    );
    assert!(shown.contains(&given), "{shown}");
    assert!(shown.contains("permission for Keep it in a file (edit)"), "{shown}");
    assert!(shown.contains("answered: Do not"), "{shown}");
    assert!(shown.contains("tool: failed") && shown.contains("I did not keep it."), "{shown}");
    assert!(!shown.contains("Nobody but the model"), "{shown}");
    let (_, known) = shown.rsplit_once("end_turn; the agent knows the prompt as ").unwrap();
    assert_eq!(uuid::Uuid::parse_str(known.trim()).unwrap().get_version_num(), 4);
    assert!(!kept.exists());

    let everything = prompt(home, &["Keep this", "--all", "--load"], agent).expect(0).out;
    assert!(everything.contains("Nobody but the model needs this."), "{everything}");
    let (before, again) = everything.split_once("loaded again:").unwrap();
    let (_, known) = before.rsplit_once("the prompt as ").unwrap();
    assert!(again.contains(&format!("(the message {} is known)", known.trim())), "{everything}");
    assert_eq!(ids(before, "agent"), ids(again, "agent"), "{everything}");
}

#[test]
fn the_two_examples_speak_with_each_other() {
    let home = Home::new();
    let agent = example("agent_client_agent");
    let agent = [agent.to_str().unwrap()];
    shows_ids_blocks_and_permissions(&home, &agent);

    let allowed = prompt(&home, &["Keep this", "--allow"], &agent).expect(0).out;
    assert!(
        allowed.contains("answered: Keep it") && allowed.contains("tool: completed"),
        "{allowed}"
    );
    assert!(allowed.contains("I kept it."), "{allowed}");
    let kept = std::fs::read_to_string(home.work().join("kept.txt")).unwrap();
    assert_eq!(kept, "the words “Keep this”");
}

#[test]
fn the_same_is_shown_with_wrap_in_between() {
    let home = Home::new();
    let _server = OnDemand::of(&home, "");
    let agent = example("agent_client_agent");
    shows_ids_blocks_and_permissions(&home, &[BINARY, "wrap", "--", agent.to_str().unwrap()]);
}

#[test]
fn the_same_is_shown_with_connect_in_between() {
    let home = Home::new();
    let agent = example("agent_client_agent");
    let settings = format!(
        "[agents.keeper]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        agent.to_str().unwrap()
    );
    let _server = OnDemand::of(&home, &settings);
    shows_ids_blocks_and_permissions(&home, &[BINARY, "connect", "keeper"]);
}
