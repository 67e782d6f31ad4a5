//! Answers, messages and incomplete messages, at their limits and beyond.

use trilogue_domain::event::{Body, InterruptEvent, MessageEvent};
use trilogue_domain::limits::{MAX_ANSWER_BYTES, MAX_ANSWER_EXTRA_BYTES, MAX_OPEN_MESSAGES};
use trilogue_domain::{
    Answer, Code, Content, InterruptId, Json, Message, MessageId, Part, Role, RunStatus, ThreadId,
};
use trilogue_runtime::{AnswerTo, Input, Options, ThreadChoice, ThreadPatch};
use trilogue_store::rows::{InterruptFilter, MessageRow, Page, RunRow};

use crate::fixture::{TestServer, alice, on, scope, until};

async fn find_message(server: &TestServer, thread: &ThreadId, message: &str) -> Option<MessageRow> {
    let thread = server.store.thread(&scope(), thread).await.unwrap().unwrap();
    server.store.message_in(thread.key, &MessageId::parse(message).unwrap()).await.unwrap()
}

async fn pending_interrupt(server: &TestServer, run: &RunRow) -> Option<InterruptId> {
    let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, ..Default::default() };
    let rows = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows;
    rows.first().map(|row| row.interrupt.id.clone())
}

fn json(bytes: usize) -> Json {
    Json::from_value(&"x".repeat(bytes).into())
}

fn large_message(id: &str, parts: usize, bytes: usize) -> Message {
    Message {
        id: MessageId::parse(id).unwrap(),
        ..Message::new(Role::User, vec![Part::text("x".repeat(bytes)); parts], None)
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_logged_is_refused_and_the_question_stays() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let run =
            server.run("suspend:say:later", ThreadChoice::Existing(server.main.clone())).await;
        let interrupt = pending_interrupt(&server, &run).await.unwrap();
        let to = || AnswerTo::Interrupt(interrupt.clone());
        let (by, runtime) = (alice(), &server.runtime);
        let large = || Answer::Json(json(MAX_ANSWER_BYTES));
        let most = || Answer::Json(json(MAX_ANSWER_BYTES - 1024));
        let extra = || Some(json(MAX_ANSWER_EXTRA_BYTES - 1024));
        let refused = [
            runtime.answer(&by, to(), large()).await.unwrap_err(),
            runtime.answer(&by, AnswerTo::Run(run.id.clone()), large()).await.unwrap_err(),
            runtime.answer_with(&by, to(), most(), extra()).await.unwrap_err(),
            runtime
                .answer_with_message(&by, to(), large(), large_message("mine", 1, 1), None)
                .await
                .unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.code(), Code::EventTooLarge, "{error:?}");
            assert!(error.message().contains(&MAX_ANSWER_BYTES.to_string()), "{error:?}");
        }
        assert_eq!(pending_interrupt(&server, &run).await, Some(interrupt.clone()));
        assert_eq!(find_message(&server, &server.main, "mine").await, None);
        runtime.answer(&by, to(), most()).await.unwrap();
        assert_eq!(
            runtime.wait_until_settled(&by, &run.id).await.unwrap().status,
            RunStatus::Completed
        );
        let events = server.events(&run).await;
        let resolved = events
            .iter()
            .any(|event| matches!(event.body, Body::Interrupt(InterruptEvent::Resolved { .. })));
        assert!(resolved);
    }
}

#[tokio::test]
async fn many_parts_that_are_small_each_are_taken_and_those_that_stay_too_large_are_refused() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let mut new = on(&server.main, "suspend:say:later");
        let Input::Messages(messages) = &mut new.input else { unreachable!() };
        messages.insert(0, large_message("given", 75, 60 * 1024));
        let run = server.submit(new).await.settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Interrupted);
        let to = AnswerTo::Interrupt(pending_interrupt(&server, &run).await.unwrap());
        let answer = || Answer::Json(json(MAX_ANSWER_BYTES - 1024));
        let small = large_message("small", 1_000, 3 * 1024);
        let error =
            server.runtime.answer_with_message(&alice(), to.clone(), answer(), small, None).await;
        assert_eq!(error.unwrap_err().code(), Code::BodyTooLarge);
        let words = large_message("words", 75, 60 * 1024);
        server.runtime.answer_with_message(&alice(), to, answer(), words, None).await.unwrap();
        let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
        assert!(find_message(&server, &server.main, "words").await.is_some());
        let mut new = on(&server.main, "say:x");
        new.input = Input::Messages(vec![large_message("many", 1_000, 3 * 1024)]);
        assert_eq!(server.refusal_code(new).await, Code::BodyTooLarge);
        // The first messages stay in the log, and all content is complete.
        let row = server.store.thread(&scope(), &server.main).await.unwrap().unwrap();
        let (mut inline, mut beside) = (0, 0);
        for event in server.events(&run).await {
            let Body::Message(MessageEvent::Part { part, .. }) = event.body else { continue };
            let Content::Blob(blob) = part.content else {
                inline += 1;
                continue;
            };
            beside += 1;
            let bytes = server.store.blob(row.key, &blob).await.unwrap().unwrap();
            assert!(bytes.len() == 60 * 1024 && bytes.iter().all(|byte| *byte == b'x'));
        }
        // The counts include the script of the run.
        assert_eq!((inline, beside), (2 * 17 + 1, 2 * 58));
    }
}

#[tokio::test]
async fn a_message_beyond_those_that_may_be_open_is_known_from_its_beginning_on() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let words: Vec<_> = (0..MAX_OPEN_MESSAGES + 2).map(|it| format!("begin:m{it}")).collect();
        let script = format!("{} commit forever", words.join(" "));
        let run = server.submit(on(&server.main, &script)).await.run;
        let last = format!("m{}", MAX_OPEN_MESSAGES + 1);
        until("the last message is known", || async {
            find_message(&server, &server.main, &last).await.is_some()
        })
        .await;
        assert_eq!(find_message(&server, &server.main, "m3").await, None);
        server.runtime.cancel(&alice(), &run.id).await.unwrap();
        server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert_eq!(find_message(&server, &server.main, "m3").await.unwrap().run, run.key);
    }
}

#[tokio::test]
async fn the_other_id_of_a_message_that_was_being_said_survives_a_crash() {
    let server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let run = server.submit(on(&thread, "begin:open/theirs commit forever")).await.run;
    until("its other id is known", || async {
        find_message(&server, &thread, "theirs").await.is_some()
    })
    .await;
    let server = server.crash().await;
    let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
    assert_eq!(run.status, RunStatus::Failed);
    let row = find_message(&server, &thread, "theirs").await.unwrap();
    assert_eq!((row.id.as_str(), row.run), ("open", run.key));
}

#[tokio::test]
async fn requests_that_are_larger_than_the_room_of_an_owner_are_handled_one_by_one() {
    let options = Options { max_command_bytes_per_thread: 4 * 1024, ..Options::default() };
    for server in [TestServer::with(options.clone()).await, TestServer::sqlite_with(options).await]
    {
        let asking =
            server.submit(on(&server.main, "ask say:done")).await.settled.wait().await.unwrap();
        assert_eq!(asking.status, RunStatus::Interrupted);
        let patches = (0..40).map(|number| {
            let values = Some(json(6 * 1024 + number));
            let patch = ThreadPatch { values, ..ThreadPatch::default() };
            let (runtime, thread) = (server.runtime.clone(), server.main.clone());
            tokio::spawn(async move { runtime.patch_thread(&alice(), &thread, patch).await })
        });
        let patches: Vec<_> = patches.collect();
        let answer = Answer::Json(json(100 * 1024));
        server.runtime.answer(&alice(), AnswerTo::Run(asking.id.clone()), answer).await.unwrap();
        for patch in patches {
            patch.await.unwrap().unwrap();
        }
        let run = server.runtime.wait_until_settled(&alice(), &asking.id).await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
        let mut large = on(&server.main, "say:later");
        let Input::Messages(messages) = &mut large.input else { unreachable!() };
        messages.insert(0, large_message("given", 4, 60 * 1024));
        let run = server.submit(large).await.settled.wait().await.unwrap();
        assert_eq!(run.status, RunStatus::Completed);
    }
}
