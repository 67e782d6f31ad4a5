//! Starting: errors are reported, and failed starts are not retried for ever.

use std::time::Duration;

use trilogue_backends::agent_client::{Launch, Processes};
use trilogue_domain::{Principal, PrincipalId, RunStatus};

use super::rig::{Rig, alice, caller, caller_as, json};
use crate::harness::failure;

/// Makes runs sign in by this method.
fn by_key(launch: &mut Launch) {
    launch.auth_method = Some("key".to_owned());
}

#[tokio::test]
async fn after_a_logout_nobody_signs_in_but_a_client() {
    let rig = Rig::with(&["--auth", "key"], by_key).await;
    let first = rig.thread().await;
    assert_eq!(rig.run(&first, "say:in").await.status, RunStatus::Completed);
    let (caller, sessions) = (caller("{}"), rig.sessions());
    sessions.call(None, &caller, "logout", json("{}")).await.unwrap();
    let second = rig.thread().await;
    assert_eq!(rig.run(&second, "say:out").await.status, RunStatus::Failed);
    let params = json(r#"{"methodId":"key"}"#);
    sessions.call(None, &caller, "authenticate", params).await.unwrap();
    assert_eq!(rig.run(&second, "say:in").await.status, RunStatus::Completed);
    rig.end().await;
}

#[tokio::test]
async fn a_logout_concerns_the_principal_that_asks_for_it_and_no_other() {
    for processes in [Processes::Thread, Processes::Shared] {
        let set = |launch: &mut Launch| {
            by_key(launch);
            launch.processes = processes;
        };
        let mut rig = Rig::with(&["--auth", "key"], set).await;
        let alices = rig.thread().await;
        let run = rig.run(&alices, "pid").await;
        let alices_process = rig.reply_text(&run).await;
        let bob = Principal { id: PrincipalId::parse("bob").unwrap(), ..alice() };
        let alice = std::mem::replace(&mut rig.by, bob.clone());
        let bobs = rig.thread().await;
        let run = rig.run(&bobs, "pid").await;
        let bobs_process = rig.reply_text(&run).await;
        assert_ne!(alices_process, bobs_process, "principals share no process");
        let run = rig.run(&alices, "pid").await;
        assert_eq!(rig.reply_text(&run).await, alices_process, "but in a thread that both use");
        rig.sessions().call(None, &caller_as(&bob), "logout", json("{}")).await.unwrap();
        let another = rig.thread().await;
        assert_eq!(rig.run(&another, "say:out").await.status, RunStatus::Failed);
        rig.by = alice;
        // Her process is still signed in, and so is each new one.
        let run = rig.run(&alices, "pid").await;
        assert_eq!(rig.reply_text(&run).await, alices_process, "{:?}", run.outcome);
        let another = rig.thread().await;
        assert_eq!(rig.run(&another, "say:in").await.status, RunStatus::Completed);
        rig.sessions().call(None, &caller("{}"), "logout", json("{}")).await.unwrap();
        assert_eq!(rig.run(&alices, "say:out").await.status, RunStatus::Failed);
        rig.end().await;
    }
}

#[tokio::test]
async fn an_agent_that_asks_for_it_is_authenticated_with() {
    let rig = Rig::with(&["--auth", "terminal:login", "--auth", "key"], by_key).await;
    let thread = rig.thread().await;
    assert_eq!(rig.run(&thread, "say:hi").await.status, RunStatus::Completed);
    rig.end().await;

    // The agent stays signed out until a method is chosen, because a method may need a person.
    let rig = Rig::new(&["--auth", "key"]).await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "say:hi").await;
    let why = failure(&run);
    assert!(why.message.contains("wants you to sign in"), "{why:?}");
    let data = why.data.as_ref().unwrap().to_value();
    assert!(data["hint"].as_str().unwrap().contains("trilogue agents login"), "{data}");
    rig.end().await;

    // A client chooses for itself, unless the way is configured.
    let mut rig = Rig::new(&["--auth", "key"]).await;
    let thread = rig.thread().await;
    let (context, client) = (rig.context(&thread).await, caller("{}"));
    let opening = json(r#"{"cwd":"/tmp","mcpServers":[]}"#);
    let refused = rig.sessions().open(&context, &client, opening.clone()).await.unwrap_err();
    assert_eq!(refused.code, -32000);
    let params = json(r#"{"methodId":"key"}"#);
    rig.sessions().call(None, &client, "authenticate", params).await.unwrap();
    assert!(rig.sessions().open(&context, &client, opening.clone()).await.is_ok());
    // The sign-in is that of this principal.
    let bob = Principal { id: PrincipalId::parse("bob").unwrap(), ..alice() };
    rig.by = bob.clone();
    let context = rig.context(&rig.thread().await).await;
    let refused = rig.sessions().open(&context, &caller_as(&bob), opening).await.unwrap_err();
    assert_eq!(refused.code, -32000);
    rig.end().await;

    let rig = Rig::new(&["--auth", "terminal:login"]).await;
    let thread = rig.thread().await;
    let run = rig.run(&thread, "say:hi").await;
    assert!(failure(&run).message.contains("Authentication required"), "{:?}", run.outcome);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_dies_at_its_start_says_why_and_is_left_alone_after_a_while() {
    let mut rig = Rig::new(&["--die-at-start", "3"]).await;
    for _ in 0..5 {
        let run = rig.run(&rig.thread, "x").await;
        let why = failure(&run);
        assert_eq!((&*why.code, why.transient), ("peer_unavailable", false));
        assert!(why.message.contains("exited with status 3 during startup"), "{}", why.message);
        assert!(why.message.contains("told to die at its start"), "{}", why.message);
    }
    let run = rig.run(&rig.thread, "x").await;
    let why = failure(&run);
    assert!(why.message.contains("failed 5 times within 60 seconds"), "{}", why.message);
    assert!(why.message.contains("told to die at its start"), "{}", why.message);
    assert!(rig.sessions().greet(&caller("{}")).await.is_err());
    // Another principal is not told of these failures, and the agent is started for it.
    rig.by = Principal { id: PrincipalId::parse("bob").unwrap(), ..rig.by.clone() };
    let run = rig.run(&rig.thread().await, "x").await;
    let why = failure(&run);
    assert!(why.message.contains("exited with status 3 during startup"), "{}", why.message);
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_does_not_answer_or_speaks_another_version_is_not_waited_for() {
    for (flags, said) in [
        (["--start-when", "/no/such/file"], "did not answer within 0 s"),
        (["--protocol", "2"], "speaks version 2"),
        (["--protocol", "0"], "speaks version 0"),
    ] {
        let rig = Rig::with(&flags, |launch| {
            let is_slow = launch.command.contains(&"--start-when".to_owned());
            launch.start_timeout = Duration::from_millis(if is_slow { 300 } else { 30_000 });
        })
        .await;
        let run = rig.run(&rig.thread, "x").await;
        assert!(failure(&run).message.contains(said), "{:?}", run.outcome);
        rig.end().await;
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let rig = Rig::with(&[], |launch| launch.command = vec!["/no/such/agent".to_owned()]).await;
    let run = rig.run(&rig.thread, "x").await;
    let why = failure(&run);
    assert!(why.message.contains("'/no/such/agent' cannot be started"), "{}", why.message);
    let hint = why.data.as_ref().map(trilogue_domain::Json::as_str).unwrap_or_default();
    assert!(hint.contains("on the PATH"), "{why:?}");
    rig.end().await;
}

#[tokio::test]
async fn an_agent_gets_what_it_is_given_and_nothing_of_ours() {
    let rig = Rig::with(&[], |launch| {
        launch.env = vec![("GIVEN".to_owned(), "this".to_owned())];
        launch.inherit = vec!["CARGO_MANIFEST_DIR".to_owned()];
    })
    .await;
    let told = rig.reply_to("env:GIVEN\nenv:CARGO_MANIFEST_DIR\nenv:CARGO_PKG_NAME\nenv:PATH\nenv:TRILOGUE_AGENT_INSTANCE\ncwd").await;
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines[0], "this");
    assert_eq!(lines[1], env!("CARGO_MANIFEST_DIR"));
    assert_eq!(lines[2], "(not set)");
    assert_ne!(lines[3], "(not set)");
    assert!(uuid::Uuid::parse_str(lines[4]).is_ok());
    assert_eq!(lines[5], rig.folder.path().canonicalize().unwrap().display().to_string());
    rig.end().await;
}
