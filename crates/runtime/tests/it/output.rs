//! The rules and limits of an agent's output.

use std::sync::atomic::Ordering;

use trilogue_domain::{
    AgentName, Answer, Citation, Code, Input, InterruptKind, Json, Message, Outcome, Part,
    PartMetadata, Role, RunStatus,
};
use trilogue_runtime::{AnswerTo, Options, RunRequest, ThreadChoice};
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use crate::fixture::{TestServer, alice, interrupt, new_run, scope, until};

fn new_run_with_rules(text: &str, thread: ThreadChoice) -> RunRequest {
    RunRequest { rules: Some("plain".into()), ..new_run(text, thread) }
}

fn failure(run: &RunRow) -> Code {
    match &run.outcome {
        Some(Outcome::Failed(failure)) => Code::from_text(failure.code.as_str()).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn settle(server: &TestServer, new: RunRequest) -> RunRow {
    server.runtime.submit(&alice(), new).await.unwrap().settled.wait().await.unwrap()
}

/// Returns the types of the parts in the run's log, without its input.
async fn parts(server: &TestServer, run: &RunRow) -> Vec<String> {
    let mut transcript = trilogue_domain::Transcript::default();
    for event in server.events(run).await {
        transcript.push(&event);
    }
    let said = transcript.into_messages().into_iter().filter(|message| !message.role.is_user());
    let parts = said.flat_map(|message| message.parts);
    parts.map(|part| part.content_type.to_string()).collect()
}

#[tokio::test]
async fn what_breaks_the_rules_fails_the_run_and_is_not_logged() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = || ThreadChoice::Ephemeral;
        let run =
            settle(&server, new_run_with_rules("part:text/plain part:image/png", thread())).await;
        assert_eq!(failure(&run), Code::OutputInvalid);
        assert_eq!(parts(&server, &run).await, ["text/plain"]);
        // An agent that ignores the refusal continues.
        let ignoring = "ignore:image/png part:text/plain";
        let run = settle(&server, new_run_with_rules(ignoring, thread())).await;
        assert_eq!(run.status, RunStatus::Completed);
        assert_eq!(parts(&server, &run).await, ["text/plain"]);
        // Without rules every type is accepted.
        let run = settle(&server, new_run("part:image/png", thread())).await;
        assert_eq!(parts(&server, &run).await, ["image/png"]);
        assert_eq!(run.rules, None);
    }
}

#[tokio::test]
async fn a_question_is_output_too() {
    let server = TestServer::memory().await;
    for script in ["suspend-with:image/png", "ask-with:image/png"] {
        let run = settle(&server, new_run_with_rules(script, ThreadChoice::Ephemeral)).await;
        assert_eq!((run.status, failure(&run)), (RunStatus::Failed, Code::OutputInvalid));
    }
    let run =
        settle(&server, new_run_with_rules("suspend-with:text/plain", ThreadChoice::Ephemeral))
            .await;
    assert_eq!(run.status, RunStatus::Interrupted);
}

#[tokio::test]
async fn a_suspended_run_is_held_to_its_rules_after_a_restart() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let script = "part:text/plain suspend:part:text/plain+part:image/png";
    let run = settle(&server, new_run_with_rules(script, ThreadChoice::Existing(thread))).await;
    assert_eq!(run.status, RunStatus::Interrupted);
    let server = server.crash().await;
    let filter = InterruptFilter { pending: true, ..Default::default() };
    let pending = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows;
    let to = AnswerTo::Interrupt(pending[0].interrupt.id.clone());
    let answer = Answer::Json(Json::parse("5").unwrap());
    server.runtime.answer(&alice(), to, answer).await.unwrap();
    let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
    assert_eq!(run.rules.as_deref(), Some("plain"));
    assert_eq!(failure(&run), Code::OutputInvalid);
    assert_eq!(parts(&server, &run).await, ["text/plain"; 3], "one before, one of the answer, one");
}

#[tokio::test]
async fn a_run_with_rules_that_was_queued_before_a_restart_waits_for_the_checker() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let holder = new_run("commit forever", ThreadChoice::Existing(thread.clone()));
    server.runtime.submit(&alice(), holder).await.unwrap();
    let queued = new_run_with_rules("part:image/png", ThreadChoice::Existing(thread));
    let queued = server.runtime.submit(&alice(), queued).await.unwrap().run;
    let server = server.crash_bare().await;
    let has_turn = || async { server.stored(&queued).await.status == RunStatus::Running };
    until("the queued run has its turn", has_turn).await;
    assert_eq!(server.runtime.status().running, 0, "it is not at work yet");
    // These are many more reads of the store than the run needs to begin.
    for _ in 0..50 {
        assert_eq!(server.stored(&queued).await.status, RunStatus::Running);
    }
    assert_eq!(server.agent.turns.load(Ordering::SeqCst), 0, "its agent waits");
    server.hand_in();
    let run = server.runtime.wait_until_settled(&alice(), &queued.id).await.unwrap();
    assert_eq!(failure(&run), Code::OutputInvalid);
    assert_eq!(parts(&server, &run).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn rules_that_nobody_checks_are_refused() {
    let server = TestServer::bare().await;
    let new = new_run_with_rules("say:x", ThreadChoice::Ephemeral);
    let error = server.runtime.submit(&alice(), new).await.map(drop).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("'plain'"), "{error}");
}

#[tokio::test]
async fn metadata_has_a_limit_of_its_own() {
    let options = Options { max_part_metadata_bytes: 1_000, ..Options::default() };
    let server = TestServer::with(options).await;
    let run = settle(&server, new_run("metadata:800", ThreadChoice::Ephemeral)).await;
    assert_eq!(run.status, RunStatus::Completed);
    let run = settle(&server, new_run("metadata:1001", ThreadChoice::Ephemeral)).await;
    assert_eq!(failure(&run), Code::EventTooLarge);
    let Some(Outcome::Failed(failure)) = &run.outcome else { panic!("{run:?}") };
    assert!(failure.message.contains("1000 is the most"), "{failure:?}");

    let large = || {
        let citation = Citation { title: Some("x".repeat(1_001)), ..Citation::default() };
        Part::text("content").with_metadata(PartMetadata::Citation(citation))
    };
    let message = Message::new(Role::User, vec![Part::text("say:x"), large()], None);
    let new = RunRequest {
        input: Input::Messages(vec![message]),
        ..new_run("", ThreadChoice::Ephemeral)
    };
    let error = server.runtime.submit(&alice(), new).await.map(drop).unwrap_err();
    assert_eq!(error.code(), Code::EventTooLarge);
    assert!(error.message().contains("part 1"), "{error}");

    let thread = server.thread().await;
    let asked = RunRequest {
        agent: AgentName::parse("script").unwrap(),
        ..new_run("ask-message", ThreadChoice::Existing(thread))
    };
    let run = settle(&server, asked).await;
    let answer = Answer::Message(vec![large()]);
    let error = server.runtime.answer(&alice(), AnswerTo::Run(run.id), answer).await.unwrap_err();
    assert_eq!(error.code(), Code::EventTooLarge);
}

#[tokio::test]
async fn what_was_last_shown_is_told() {
    let server = TestServer::memory().await;
    let run = settle(&server, new_run("suspend:x", ThreadChoice::Ephemeral)).await;
    let (to, shown) = (alice().id, interrupt(InterruptKind::Form).id);
    assert_eq!(server.runtime.last_shown(&to, &run.id), None);
    server.runtime.record_shown_question(&to, &run.id, &shown);
    assert_eq!(server.runtime.last_shown(&to, &run.id), Some(shown));
    assert_eq!(server.runtime.last_shown(&crate::fixture::principal("bob").id, &run.id), None);
}
