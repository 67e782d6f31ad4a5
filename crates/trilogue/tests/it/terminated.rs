//! `run` and `chat` that get SIGTERM: they cancel their run and leave nothing running.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::agent_client_examples::example;
use crate::connect_editor::OnDemand;
use crate::harness::{BINARY, Home, Server, pid, until};
use crate::known_agents::Programs;
use crate::terminal::Screen;

/// The documented exit code of a command that was interrupted.
const INTERRUPTED: Option<i32> = Some(130);

fn serve(home: &Home) -> Server {
    let agent = example("scripted_agent");
    let config = format!(
        "[store]\nurl = \"memory:\"\n\n[agents.slow]\nkind = \"agent-client\"\ncommand = [{:?}]\n",
        agent.to_str().unwrap()
    );
    let config = home.write("trilogue.toml", &config);
    home.start(&["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits until the child prints this line.
fn wait_for_line(child: &mut Child, wanted: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == wanted), "'{wanted}' was not printed");
}

fn end(child: &mut Child) -> Option<i32> {
    until(|| child.try_wait().unwrap()).code()
}

/// The statuses of the runs on a thread, newest first. A thread without a run may not exist yet.
fn statuses(server: &Server, thread: &str) -> Vec<String> {
    let listed = server.run(&["runs", "--thread", thread, "--json"]);
    if listed.code == 4 {
        return Vec::new();
    }
    let runs = listed.expect(0).json();
    let runs = runs["items"].as_array().unwrap().iter();
    runs.map(|run| run["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_terminated_command_cancels_its_run() {
    let home = Home::new();
    let server = serve(&home);
    for (thread, arguments) in [
        ("run", &["run", "slow", "-", "--thread", "run"][..]),
        ("chat", &["chat", "slow", "--thread", "chat"]),
    ] {
        let mut child = spawn(server.command(arguments));
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"slow:600000\n").unwrap();
        // A chat would end with its input.
        let _input = (thread == "chat").then_some(input);
        until(|| statuses(&server, thread).contains(&"running".to_owned()).then_some(()));
        kill_process(pid(&child), Signal::TERM).unwrap();
        assert_eq!(end(&mut child), INTERRUPTED, "{thread}");
        assert_eq!(statuses(&server, thread), ["cancelled"], "{thread}");
    }
}

#[test]
fn a_terminated_chat_ends_between_its_turns() {
    let home = Home::new();
    let server = serve(&home);
    // With a pipe as its input, before the first turn and after one.
    for turns in [0, 1] {
        let mut child = spawn(server.command(&["chat", "slow", "--thread", "piped"]));
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(notes.any(|line| line.unwrap().starts_with("thread: ")));
        if turns > 0 {
            child.stdin.as_mut().unwrap().write_all(b"say:hello\n").unwrap();
            wait_for_line(&mut child, "hello");
            until(|| statuses(&server, "piped").iter().all(|it| it == "completed").then_some(()));
        }
        kill_process(pid(&child), Signal::TERM).unwrap();
        assert_eq!(end(&mut child), INTERRUPTED, "after {turns} turns");
    }
    // With a person at the terminal, who would get the next prompt after Ctrl-C.
    let mut screen = Screen::start(server.command(&["chat", "slow", "--thread", "typed"]));
    screen.answer("> ", "say:hello\r");
    screen.wait_for("hello");
    screen.wait_for("> ");
    screen.signal(Signal::TERM);
    assert_eq!(screen.end().0, INTERRUPTED);
    let mut screen = Screen::start(server.command(&["chat", "slow", "--thread", "working"]));
    screen.answer("> ", "slow\r");
    until(|| statuses(&server, "working").contains(&"running".to_owned()).then_some(()));
    screen.signal(Signal::TERM);
    let (code, seen) = screen.end();
    assert_eq!(code, INTERRUPTED, "{seen}");
    assert_eq!(statuses(&server, "working"), ["cancelled"]);
}

/// The agent does not answer `initialize` until a file exists, so its run is still starting.
#[test]
fn a_command_that_is_terminated_while_its_server_or_agent_starts_leaves_no_run() {
    for action in ["run", "chat"] {
        let programs = Programs::new();
        let demand = OnDemand::unconfigured(&programs.home);
        let (gate, agent) = (programs.home.work().join("gate"), programs.home.work().join("pid"));
        let flags = format!("--start-when {} --pid-file {}", gate.display(), agent.display());
        programs.add("goose", &flags);
        let mut child = spawn(programs.command(&[action, "goose", "--thread", "t"]));
        child.stdin.as_mut().unwrap().write_all(b"say:hello\n").unwrap();
        if action == "run" {
            drop(child.stdin.take());
        }
        // The agent's process runs: the server has the run, and the command waits for the agent.
        let agent = until(|| std::fs::read_to_string(&agent).ok()?.parse().ok());
        kill_process(pid(&child), Signal::TERM).unwrap();
        assert_eq!(end(&mut child), INTERRUPTED, "{action}");
        let mut runs = programs.home.program(BINARY);
        runs.env("TRILOGUE_URL", demand.url()).args(["runs", "--thread", "t", "--json"]);
        let runs = crate::harness::finish(runs, "").expect(0).json();
        let runs = runs["items"].as_array().unwrap();
        assert!(runs.iter().all(|run| run["status"] == "cancelled"), "{runs:?}");
        // The server ends an agent that has no work and does not start.
        demand.signal(Signal::TERM);
        let agent = Pid::from_raw(agent).unwrap();
        until(|| test_kill_process(agent).is_err().then_some(()));
    }
}

#[test]
fn a_command_that_is_terminated_before_its_server_answers_ends_at_once() {
    for action in [&["run", "slow", "hi"][..], &["chat", "slow"]] {
        // It accepts connections, and answers nothing.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let home = Home::new();
        let mut command = home.program(BINARY);
        command.args(action).args(["--url", &format!("http://{}", silent.local_addr().unwrap())]);
        let mut child = spawn(command);
        drop(silent.accept().unwrap());
        let connection = silent.accept();
        kill_process(pid(&child), Signal::TERM).unwrap();
        assert_eq!(end(&mut child), INTERRUPTED, "{action:?}");
        drop(connection);
    }
}
