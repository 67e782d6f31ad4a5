//! The server as a library, with agents of another program.

use std::net::SocketAddr;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use trilogue::config::{List, Socket};
use trilogue::sdk::Effect;
use trilogue::sdk::prelude::*;
use trilogue::{Agents, App, Listeners, Options};

use crate::harness::{Home, pid, until};

async fn shout(turn: Turn, context: Context) -> Result<(), AgentError> {
    context.text(turn.text().to_uppercase()).await
}

async fn fails(_: Turn, _: Context) -> Result<(), AgentError> {
    Err(AgentError::agent_failed("no \u{1b}[2Jluck\u{202e}"))
}

async fn deaf(_: Turn, _: Context) -> Result<(), AgentError> {
    std::future::pending().await
}

async fn asks(_: Turn, context: Context) -> Result<(), AgentError> {
    let question = Question::permission("May I run this?\u{1b}[1A")
        .payload(serde_json::json!({"command": "rm\u{202e} -rf \\n /tmp/x"}))
        .option_always("always", "Always", Effect::Allow)
        .option("once", "Just\u{1b}[2J once", Effect::Allow)
        .option("no", "No", Effect::Reject);
    let decision = context.ask_permission(question).await?;
    let chosen = decision.option.unwrap_or_default();
    let word = match decision.allowed {
        true => context.ask_message("Which word?").await?,
        false => vec![Part::text("nothing")],
    };
    let word: String = word.iter().filter_map(Part::as_text).collect();
    context.text(format!("{chosen}: {word}")).await
}

fn options() -> Options {
    let mut options = Options::in_memory();
    options.server.listen = List(vec![SocketAddr::from(([127, 0, 0, 1], 0))]);
    options.server.no_auth = true;
    // Prevents programs of the user who runs the tests from finding this server instead of their own.
    options.server.socket = Socket::Off;
    options.server.shutdown_deadline = trilogue::config::Span::seconds(0);
    options
}

/// Serves the agents above, calls `use_it` with the server's address, and stops.
async fn with_server(use_it: impl FnOnce(Home, String) + Send + 'static) -> trilogue::Report {
    let options = options();
    let listeners = Listeners::bind(&options.server).await.unwrap();
    let agents = Agents::new()
        .with(agent_fn("shout", "Says it louder.", shout))
        .with(agent_fn("fails", "Fails.", fails))
        .with(agent_fn("deaf", "Does not hear that it should stop.", deaf))
        .with(agent_fn("asks", "Asks for a permission, then for a word.", asks));
    let app = App::build(&options, agents, listeners).await.unwrap();
    let url = format!("http://{}", app.addresses()[0]);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(app.run(async move { drop(stopped.await) }));
    tokio::task::spawn_blocking(move || use_it(Home::new(), url)).await.unwrap();
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_serves_its_own_agents_until_it_says_stop() {
    let report = with_server(|home, url| {
        let ended = home.run(&["run", "shout", "hello", "--url", &url]).expect(0);
        assert_eq!(ended.out, "HELLO\n");
        home.run(&["run", "echo", "hello", "--url", &url]).expect(4);
    })
    .await;
    assert_eq!(report, trilogue::Report::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_says_why_and_writes_nothing_that_a_terminal_obeys() {
    with_server(|home, url| {
        let ended = home.run(&["run", "fails", "x", "--url", &url]).expect(1);
        assert_eq!(ended.out, "");
        assert_eq!(ended.err, "error: the run failed: no luck\\u{202e} (agent_failed)\n");
    })
    .await;
}

fn decided(home: &Home, url: &str, answer: &[&str]) -> String {
    let asked = home.run(&["run", "asks", "x", "--url", url]).expect(3);
    // The subject of a decision is shown literally: nothing is moved, hidden or rewritten.
    assert!(asked.err.contains(r"| command: rm\u{202e} -rf \n /tmp/x"), "{}", asked.err);
    assert!(
        asked.err.contains(r"2  allows this call | Just\u{1b}[2J once (once)"),
        "{}",
        asked.err
    );
    assert!(
        asked.err.contains("1  allows this and later calls | Always (always)"),
        "{}",
        asked.err
    );
    assert!(!asked.err.contains('\u{1b}'), "{}", asked.err);
    let pending = || home.run(&["inbox", "-q", "--url", url]).out.trim().to_owned();
    let first = pending();
    let approve = ["approve", first.as_str(), "--url", url];
    home.run(&[&approve[..], answer].concat()).expect(0);
    let run = home.run(&["runs", "-q", "--limit", "1", "--url", url]).expect(0).out;
    let show = || home.run(&["runs", "show", run.trim(), "--json", "--url", url]).expect(0).json();
    let second = until(|| {
        let (run, next) = (show(), pending());
        let over = run["status"] == "completed";
        (over || (!next.is_empty() && next != first)).then_some(next)
    });
    if !second.is_empty() {
        home.run(&["approve", &second, "--yes", "--url", url])
            .complains(2, "hint: pass --message TEXT");
        home.run(&["approve", &second, "--message", "plum", "--url", url]).expect(0);
    }
    home.run(&["tail", run.trim(), "--follow", "--url", url]).expect(0);
    show()["output"][0]["parts"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_decided_by_effect_or_by_option() {
    with_server(|home, url| {
        assert_eq!(decided(&home, &url, &["--yes"]), "once: plum");
        // By id, by name, and by number.
        for option in ["always", "Always", "1"] {
            assert_eq!(decided(&home, &url, &["--option", option]), "always: plum");
        }
        assert_eq!(decided(&home, &url, &["--reject"]), "no: nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_ctrl_c_leaves_at_once() {
    let report = with_server(|home, url| {
        let mut command = home.program(crate::harness::BINARY);
        command.args(["run", "deaf", "x", "--thread", "t", "--json", "--url", &url]);
        let (out, err) = (home.work().join("out"), home.work().join("err"));
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).unwrap());
        command.stderr(std::fs::File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        // Once an event is printed, the command handles the signal; the server knows the run even earlier.
        let printed = || std::fs::read_to_string(&out).unwrap().contains("run.started");
        until(|| printed().then_some(()));
        kill_process(pid(&child), Signal::INT).unwrap();
        until(|| {
            let runs = home.run(&["runs", "-q", "--status", "cancelling", "--url", &url]);
            (!runs.out.is_empty()).then_some(())
        });
        let said = std::fs::read_to_string(&err).unwrap();
        assert!(said.contains("press Ctrl-C again"), "{said}");
        assert!(child.try_wait().unwrap().is_none());
        kill_process(pid(&child), Signal::INT).unwrap();
        assert_eq!(until(|| child.try_wait().unwrap()).code(), Some(130));
    })
    .await;
    assert_eq!(report.waiting, []);
}

#[tokio::test]
async fn two_agents_of_one_name_are_refused() {
    let options = options();
    let listeners = Listeners::bind(&options.server).await.unwrap();
    let agents = Agents::new().with(agent_fn("shout", "Says it louder.", shout)).with(agent_fn(
        "shout",
        "Says it louder.",
        shout,
    ));
    let error = App::build(&options, agents, listeners).await.unwrap_err();
    assert!(error.message().contains("'shout'"), "{error}");
}

#[tokio::test]
async fn what_would_expose_the_server_is_refused_here_too() {
    let mut options = options();
    options.server.listen = List(vec![SocketAddr::from(([0, 0, 0, 0], 0))]);
    let error =
        trilogue::serve(agent_fn("shout", "Says it louder.", shout), options).await.unwrap_err();
    assert!(error.hint_text().unwrap().contains("no_auth"), "{error:?}");
}
