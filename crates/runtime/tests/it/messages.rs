//! Messages and their ids: messages that answer, and incomplete messages.

use serde_json::json;
use trilogue_domain::event::{Body, InterruptEvent, MessageEvent, RunEvent};
use trilogue_domain::{
    Answer, Code, InterruptId, Json, Message, MessageId, Part, Role, RunStatus, ThreadId,
};
use trilogue_runtime::{AnswerTo, NewThread, ThreadChoice, ThreadPatch};
use trilogue_store::rows::{InterruptFilter, MessageRow, Page, RunFilter, RunRow};

use crate::fixture::{TestServer, alice, on, scope, until};

fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn words(name: &str, text: &str) -> Message {
    let parts = vec![Part::text(text)];
    Message { id: id(name), role: Role::User, parts, created_at: None, completed_at: None }
}

async fn find_message(server: &TestServer, thread: &ThreadId, message: &str) -> Option<MessageRow> {
    let thread = server.store.thread(&scope(), thread).await.unwrap().unwrap();
    server.store.message_in(thread.key, &id(message)).await.unwrap()
}

async fn pending_interrupt(server: &TestServer, run: &RunRow) -> InterruptId {
    let filter = InterruptFilter { run: Some(run.id.clone()), pending: true, ..Default::default() };
    let rows = server.store.interrupts(&scope(), &filter, &Page::default()).await.unwrap().rows;
    rows[0].interrupt.id.clone()
}

async fn answer(
    server: &TestServer,
    interrupt: &InterruptId,
    said: Message,
) -> trilogue_domain::Result<()> {
    let answer = Answer::Json(Json::parse("\"yes\"").unwrap());
    let to = AnswerTo::Interrupt(interrupt.clone());
    server.runtime.answer_with_message(&alice(), to, answer, said, None).await.map(drop)
}

async fn servers() -> [TestServer; 2] {
    [TestServer::memory().await, TestServer::sqlite().await]
}

#[tokio::test]
async fn words_that_answer_are_a_message_of_the_thread() {
    for server in servers().await {
        let on = || ThreadChoice::Existing(server.main.clone());
        server.run("say:zero", on()).await;
        let run = server.run("suspend:history+say:later", on()).await;
        let interrupt = pending_interrupt(&server, &run).await;
        answer(&server, &interrupt, words("mine", "yes it is")).await.unwrap();
        let run = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        // The agent got the answer, and no message of this run as history.
        assert_eq!(server.output_text(&run).await, "\"yes\"say:zero|zerolater");
        let events = server.events(&run).await;
        let place = |is: &dyn Fn(&Body) -> bool| events.iter().position(|it| is(&it.body)).unwrap();
        let mine = id("mine");
        let began = place(
            &|body| matches!(body, Body::Message(MessageEvent::Started { message, .. }) if *message == mine),
        );
        let resolved =
            place(&|body| matches!(body, Body::Interrupt(InterruptEvent::Resolved { .. })));
        let resumed = place(&|body| matches!(body, Body::Run(RunEvent::Resumed)));
        assert!(began < resolved && resolved < resumed, "{events:?}");
        let row = find_message(&server, &server.main, "mine").await.unwrap();
        assert_eq!((row.run, &row.role), (run.key, &Role::User));
        assert!(row.position <= events[began].number, "{row:?}");
        // A late answer leaves no message.
        let late = answer(&server, &interrupt, words("late", "no")).await.unwrap_err();
        assert_eq!(late.code(), Code::InterruptResolved);
        assert_eq!(find_message(&server, &server.main, "late").await, None);
        let next = server.run("history", on()).await;
        let path = "say:zero|zero|suspend:history+say:later|yes it is|\"yes\"|say:zero|zero|later";
        assert_eq!(server.output_text(&next).await, path);
        // A copy that ends with this message has it as its last one, and finds it by id.
        let by = alice();
        let copy = server.runtime.copy_thread_until(&by, &server.main, &mine, NewThread::default());
        let copy = copy.await.unwrap();
        assert!(find_message(&server, &copy.id, "mine").await.is_some());
        let next = server.run("history", ThreadChoice::Existing(copy.id.clone())).await;
        assert_eq!(
            server.output_text(&next).await,
            "say:zero|zero|suspend:history+say:later|yes it is"
        );
    }
}

#[tokio::test]
async fn words_that_are_refused_as_an_input_answer_nothing() {
    let server = TestServer::memory().await;
    let run = server.run("suspend:say:later", ThreadChoice::Existing(server.thread().await)).await;
    let interrupt = pending_interrupt(&server, &run).await;
    let parts = trilogue_domain::limits::MAX_PARTS_PER_MESSAGE + 1;
    let many = Message { parts: vec![Part::text("x"); parts], ..words("many", "") };
    let error = answer(&server, &interrupt, many).await.unwrap_err();
    assert_eq!(error.code(), Code::TooManyParts);
    assert_eq!(pending_interrupt(&server, &run).await, interrupt);
}

#[tokio::test]
async fn a_message_that_was_being_said_when_its_run_was_lost_is_known() {
    let server = TestServer::sqlite().await;
    let mut runs = Vec::new();
    for (script, message) in [
        ("say:x begin:running commit forever", "running"),
        ("begin:asking ask", "asking"),
        ("begin:stopping commit forever", "stopping"),
    ] {
        let thread = server.thread().await;
        let run = server.submit(on(&thread, script)).await.run;
        until("the message is logged", || async {
            let events = server.events(&run).await;
            events.iter().any(|event| {
                matches!(&event.body, Body::Message(MessageEvent::Delta { text, .. }) if &**text == "half")
            })
        })
        .await;
        assert_eq!(find_message(&server, &thread, message).await, None);
        runs.push((thread, run, message));
    }
    server.runtime.cancel(&alice(), &runs[2].1.id).await.unwrap();
    let server = server.crash().await;
    for (thread, run, message) in runs {
        let ended = server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert!(ended.status.is_terminal(), "{message}: {ended:?}");
        let row = find_message(&server, &thread, message).await.unwrap();
        assert_eq!((row.run, row.role), (run.key, Role::Agent), "{message}");
    }
}

#[tokio::test]
async fn a_message_that_is_open_when_its_run_ends_is_known() {
    for server in servers().await {
        for (script, status) in [
            ("begin:open fail:x", RunStatus::Failed),
            ("begin:open commit fail:x", RunStatus::Failed),
            ("begin:open say:x", RunStatus::Completed),
            ("begin:open/theirs say:x", RunStatus::Completed),
            ("begin:open/theirs commit panic", RunStatus::Failed),
        ] {
            let thread = server.thread().await;
            let run = server.run(script, ThreadChoice::Existing(thread.clone())).await;
            assert_eq!(run.status, status, "{script}");
            let row = find_message(&server, &thread, "open").await.unwrap();
            assert_eq!(row.run, run.key, "{script}");
            if script.contains("theirs") {
                assert_eq!(find_message(&server, &thread, "theirs").await, Some(row), "{script}");
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_is_open_while_its_run_waits_is_known_when_that_is_cancelled() {
    for crashes in [false, true] {
        let mut server = TestServer::sqlite().await;
        let thread = server.thread().await;
        let choice = ThreadChoice::Existing(thread.clone());
        let run = server.run("begin:open suspend:say:x", choice).await;
        assert_eq!(run.status, RunStatus::Interrupted);
        // Finding it does not read the run's log.
        let row = find_message(&server, &thread, "open").await.unwrap();
        assert_eq!(row.run, run.key, "{crashes}");
        if crashes {
            server = server.crash().await;
        }
        server.runtime.cancel(&alice(), &run.id).await.unwrap();
        server.runtime.wait_until_settled(&alice(), &run.id).await.unwrap();
        assert_eq!(find_message(&server, &thread, "open").await.unwrap().run, run.key, "{crashes}");
    }
}

#[tokio::test]
async fn a_copy_may_end_with_a_message_that_was_not_said_to_its_end() {
    for server in servers().await {
        let thread = server.thread().await;
        server.run("say:one begin:open", ThreadChoice::Existing(thread.clone())).await;
        let by = alice();
        let whole = server.runtime.copy_thread(&by, &thread, NewThread::default()).await.unwrap();
        let open = id("open");
        let cut = server.runtime.copy_thread_until(&by, &thread, &open, NewThread::default());
        for copy in [whole, cut.await.unwrap()] {
            let filter = RunFilter { thread: Some(copy.id.clone()), ..RunFilter::default() };
            let runs = server.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
            let events = server.events(&runs[0]).await;
            let ends = events.iter().filter(|event| event.body.is_run_end()).count();
            assert_eq!((ends, events.len() as u64), (1, runs[0].last_run_number));
            let row = find_message(&server, &copy.id, "open").await.unwrap();
            let began = events.iter().find(|event| {
                matches!(&event.body, Body::Message(MessageEvent::Started { message, .. }) if *message == open)
            });
            assert_eq!((row.run, row.position), (runs[0].key, began.unwrap().number));
            let next = server.run("history", ThreadChoice::Existing(copy.id.clone())).await;
            assert_eq!(server.output_text(&next).await, "say:one begin:open|one|half");
        }
    }
}

#[tokio::test]
async fn what_an_agent_calls_its_thread_stands_in_the_metadata() {
    let mut server = TestServer::sqlite().await;
    let thread = server.thread().await;
    let choice = || ThreadChoice::Existing(thread.clone());
    let metadata = async |server: &TestServer| {
        server.store.thread(&scope(), &thread).await.unwrap().unwrap().metadata.to_value()
    };
    server.run("title:first title:second\u{7}", choice()).await;
    assert_eq!(metadata(&server).await, json!({ "trilogue.agent_title": "second" }));
    server = server.crash().await;
    assert_eq!(metadata(&server).await, json!({ "trilogue.agent_title": "second" }));
    let patch = ThreadPatch {
        metadata: Some(Json::from_value(&json!({ "trilogue.title": "mine" }))),
        ..ThreadPatch::default()
    };
    server.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
    server.run("title:third fail:x", choice()).await;
    let both = json!({ "trilogue.title": "mine", "trilogue.agent_title": "third" });
    assert_eq!(metadata(&server).await, both);
    let long = "x".repeat(1_000);
    server.run(&format!("title:{long}"), choice()).await;
    let kept = format!("{}…", "x".repeat(trilogue_domain::limits::MAX_TITLE_CHARS - 1));
    assert_eq!(metadata(&server).await["trilogue.agent_title"], kept);
    server.run("title:null", choice()).await;
    assert_eq!(metadata(&server).await, json!({ "trilogue.title": "mine" }));
    // The same outside of runs.
    let row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let agent = server.agent.card.name.clone();
    let context = server.runtime.thread_context(&row, &agent);
    let body = || Body::Message(MessageEvent::Thought { message: None, text: "hm".into() });
    context.append_title_event(body(), None, Some(" outside\n")).await.unwrap();
    assert_eq!(metadata(&server).await["trilogue.agent_title"], "outside");
    context.append_title_event(body(), None, None).await.unwrap();
    assert_eq!(metadata(&server).await, json!({ "trilogue.title": "mine" }));
}
