//! A peer's data is kept unchanged, up to the size of its line.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use trilogue_domain::error::Result;
use trilogue_domain::event::{MessageEvent, Original, StateEvent};
use trilogue_domain::{
    AgentCard, Answer, Body, Code, Failure, InterruptKind, Json, MessageId, RunStatus, limits,
};
use trilogue_runtime::{
    AnswerTo, Backend, EmitError, Ending, Input, NewThread, Rewind, RunContext, RunRequest,
    Runtime, ThreadChoice, Turn,
};
use trilogue_store::Range;
use trilogue_store::rows::{InterruptFilter, Page, RunRow};

use crate::fixture::{Scripted, TestServer, alice, interrupt, new_run, scope, until};

const MIB: usize = 1024 * 1024;

/// An agent in a separate process with large output and questions: `say:` and `ask:` with a number of bytes.
#[derive(Debug)]
struct Loud(Scripted);

fn original(bytes: usize) -> Original {
    let text = "x".repeat(bytes);
    let bytes = Bytes::from(format!("{{\"text\":\"{text}\"}}"));
    Original { dialect: "test".into(), version: 1, bytes }
}

fn payload(bytes: usize) -> Json {
    Json::from_value(&serde_json::json!({ "diff": "y".repeat(bytes) }))
}

#[async_trait]
impl Backend for Loud {
    fn card(&self) -> &AgentCard {
        &self.0.card
    }

    fn is_native(&self) -> bool {
        false
    }

    fn rewind(&self) -> Rewind {
        Rewind::Free
    }

    fn check_config(&self, _: &Json) -> Result<()> {
        Ok(())
    }

    async fn run(&self, turn: Turn, context: RunContext) -> Result<Ending, Failure> {
        let Turn::Start { input: Input::Messages(messages) } = turn else {
            return Ok(Ending::Completed);
        };
        let text = messages.last().unwrap().text();
        for word in text.split_whitespace() {
            let (verb, rest) = word.split_once(':').unwrap();
            let told = match verb {
                "say" => {
                    let original = original(rest.parse().unwrap());
                    context.emit(Body::Opaque, Some(original)).await
                }
                "text" => {
                    let (message, text) =
                        (MessageId::generate(), "z".repeat(rest.parse().unwrap()));
                    let delta = MessageEvent::Delta { message, text: text.into() };
                    context.emit(Body::Message(delta), None).await
                }
                _ => {
                    let mut question = interrupt(InterruptKind::Form);
                    question.payload = payload(rest.parse().unwrap());
                    context.ask(question).await.map(drop)
                }
            };
            match told {
                Ok(()) | Err(EmitError::Stopped) => {}
                Err(EmitError::Refused(error)) => {
                    let kind = format!("refused {}", error.code().as_str());
                    let body = StateEvent::Custom { kind, data: Json::null() };
                    context.emit(Body::State(body), None).await.unwrap();
                }
            }
        }
        Ok(Ending::Completed)
    }
}

async fn servers() -> [TestServer; 2] {
    let houses = [TestServer::memory().await, TestServer::sqlite().await];
    for server in &houses {
        hand_in(&server.runtime);
    }
    houses
}

fn hand_in(runtime: &Runtime) {
    runtime.register(Arc::new(Loud(Scripted::new("loud", false)))).unwrap();
}

async fn does(server: &TestServer, thread: ThreadChoice, text: &str) -> RunRow {
    let agent = trilogue_domain::AgentName::parse("loud").unwrap();
    let submitted = server.submit(RunRequest { agent, ..new_run(text, thread) }).await;
    submitted.settled.wait().await.unwrap()
}

/// Returns the run's events after its beginning: their originals' sizes, or their names.
async fn output_summary(server: &TestServer, run: &RunRow) -> Vec<String> {
    let name = |event: &trilogue_domain::Event| match (&event.original, &event.body) {
        (Some(original), _) => {
            assert!(
                original.bytes.starts_with(b"{\"text\":\"x") && original.bytes.ends_with(b"x\"}")
            );
            (original.bytes.len() - 11).to_string()
        }
        (None, Body::State(StateEvent::Custom { kind, .. })) => kind.clone(),
        (None, body) => body.name().to_owned(),
    };
    let events = server.events(run).await;
    let begun = events.iter().position(|event| event.body.name() == "run.started").unwrap();
    events[begun + 1..].iter().map(name).collect()
}

#[tokio::test]
async fn a_large_original_is_an_event_as_any_other_and_stays_over_a_restart() {
    for server in servers().await {
        let thread = server.thread().await;
        let choice = ThreadChoice::Existing(thread.clone());
        let large = 10 * MIB;
        let script = format!("say:7 say:{large} say:8 say:{large} say:{large} say:9");
        let run = does(&server, choice, &script).await;
        assert_eq!(run.status, RunStatus::Completed);
        let expected = ["7", "10485760", "8", "10485760", "10485760", "9", "run.ended"];
        assert_eq!(output_summary(&server, &run).await, expected);
        // Even if the log is read in small pieces, a large event comes as one piece.
        let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
        let (mut after, mut pieces) = (0, Vec::new());
        loop {
            let range = Range { run: Some(run.key), after, max_bytes: 1_024 };
            let frames = server.store.frames(row.key, range).await.unwrap();
            let Some(last) = frames.last() else { break };
            after = last.last_run();
            pieces.push(frames.iter().map(|frame| frame.bytes().len()).sum::<usize>());
        }
        assert!(pieces.iter().all(|bytes| *bytes < 11 * MIB), "{pieces:?}");
        let copy =
            server.runtime.copy_thread(&alice(), &thread, NewThread::default()).await.unwrap();
        let filter = trilogue_store::rows::RunFilter {
            thread: Some(copy.id.clone()),
            ..trilogue_store::rows::RunFilter::default()
        };
        let copied = server.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
        assert_eq!(output_summary(&server, &copied[0]).await, expected);
        server.runtime.erase_thread(&alice(), &thread).await.unwrap();
        assert_eq!(output_summary(&server, &copied[0]).await, expected);
    }
    let server = TestServer::sqlite().await;
    hand_in(&server.runtime);
    let run = does(&server, ThreadChoice::Existing(server.thread().await), "say:10485760").await;
    let server = server.crash().await;
    assert_eq!(output_summary(&server, &run).await, ["10485760", "run.ended"]);
}

#[tokio::test]
async fn what_is_larger_is_refused_and_nothing_else_is_lost() {
    for server in servers().await {
        let most = limits::MAX_ORIGINAL_BYTES - 256;
        let (above, text) = (limits::MAX_ORIGINAL_BYTES, limits::MAX_EVENT_BYTES);
        let script = format!("say:1 say:{above} say:2 say:{most} text:{text} ask:{above} say:3");
        let run = does(&server, ThreadChoice::Existing(server.thread().await), &script).await;
        assert_eq!(run.status, RunStatus::Completed);
        let (most, refused) = (most.to_string(), "refused event_too_large");
        let expected = ["1", refused, "2", &most, refused, refused, "3", "run.ended"];
        assert_eq!(output_summary(&server, &run).await, expected);
    }
}

#[tokio::test]
async fn a_large_question_is_asked_and_answered_and_only_so_many_wait() {
    for server in servers().await {
        let thread = ThreadChoice::Existing(server.thread().await);
        let run = does(&server, thread, "say:2000000 ask:5242880 say:3").await;
        assert_eq!(run.status, RunStatus::Interrupted);
        let filter = InterruptFilter {
            run: Some(run.id.clone()),
            pending: true,
            ..InterruptFilter::default()
        };
        let pending = async || {
            server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows
        };
        until("the question is stored", async || !pending().await.is_empty()).await;
        let row = pending().await.remove(0);
        assert_eq!(row.interrupt.payload, payload(5 * MIB));
        let answer = Answer::Json(Json::null());
        let to = AnswerTo::Interrupt(row.interrupt.id);
        server.runtime.answer(&alice(), to, answer).await.unwrap();
        let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
        let told = output_summary(&server, &run).await;
        let names = told.iter().map(String::as_str).filter(|name| !name.starts_with("run.resumed"));
        let expected = ["2000000", "interrupt.raised", "interrupt.resolved", "3", "run.ended"];
        assert!(names.eq(expected), "{told:?}");
    }
}

#[tokio::test]
async fn notes_of_large_originals_stand_beside_a_run_at_work() {
    for server in servers().await {
        let row = server.store.thread(&scope(), &server.main).await.unwrap().unwrap();
        let agent = trilogue_domain::AgentName::parse("loud").unwrap();
        let context = server.runtime.thread_context(&row, &agent);
        let run = does(&server, ThreadChoice::Existing(server.main.clone()), "ask:10 say:5").await;
        let noted = futures_of(&context).await;
        assert_eq!(noted, [None, None, Some(Code::EventTooLarge), None]);
        assert_eq!(run.status, RunStatus::Interrupted);
    }
}

async fn futures_of(context: &trilogue_runtime::ThreadContext) -> Vec<Option<Code>> {
    let sizes = [3 * MIB, 10 * MIB, limits::MAX_ORIGINAL_BYTES, 12 * MIB];
    let notes = sizes.map(|bytes| async move {
        let noted = context.append_event(Body::Opaque, Some(original(bytes))).await;
        noted.err().map(|error| error.code())
    });
    let [a, b, c, d] = notes;
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    vec![a, b, c, d]
}
