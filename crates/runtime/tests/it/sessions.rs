//! Agents that keep sessions of their own: notes outside of runs, bindings, other ids, erasure.

use std::sync::Arc;

use bytes::Bytes;
use trilogue_domain::event::{MessageEvent, Original, StateEvent};
use trilogue_domain::{Body, Code, Event, Json, MessageId, Part, RunStatus, ThreadId, limits};
use trilogue_runtime::{Client, NewThread, ThreadChoice, ThreadContext, ThreadPatch};
use trilogue_store::Range;
use trilogue_store::rows::ThreadRow;

use crate::clients::Editor;
use crate::fixture::{TestServer, alice, new_run, on, scope, until};
use crate::keeper::{Keeper, keeps, with_keeper};

async fn row(server: &TestServer, thread: &ThreadId) -> ThreadRow {
    server.store.thread(&scope(), thread).await.unwrap().unwrap()
}

async fn context(server: &TestServer, keeper: &Keeper, thread: &ThreadId) -> ThreadContext {
    let name = &trilogue_runtime::Backend::card(keeper).name;
    server.runtime.thread_context(&row(server, thread).await, name)
}

async fn log(server: &TestServer, thread: &ThreadId) -> Vec<Event> {
    let range = Range { run: None, after: 0, max_bytes: usize::MAX };
    let frames = server.store.frames(row(server, thread).await.key, range).await.unwrap();
    frames.iter().flat_map(|frame| frame.events().unwrap().to_vec()).collect()
}

fn custom(kind: &str) -> Body {
    Body::State(StateEvent::Custom { kind: kind.to_owned(), data: Json::null() })
}

async fn servers() -> [(TestServer, Arc<Keeper>); 2] {
    [with_keeper(TestServer::memory().await).await, with_keeper(TestServer::sqlite().await).await]
}

#[tokio::test]
async fn a_note_belongs_to_the_thread_and_stands_behind_what_the_run_has_emitted() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        let context = context(&server, &keeper, &thread).await;
        context.append_event(custom("before"), None).await.unwrap();
        let submitted = server.submit(keeps(&thread, "say:one gate say:two")).await;
        until("it has spoken", || async { server.output_text(&submitted.run).await == "one" })
            .await;
        let original = Original { dialect: "d".into(), version: 1, bytes: Bytes::from("{}") };
        context.append_event(Body::Opaque, Some(original.clone())).await.unwrap();
        // The note is durable when the call returns.
        let noted = log(&server, &thread).await.pop().unwrap();
        assert_eq!((noted.original, noted.run, noted.run_number), (Some(original), None, 0));
        keeper.gate.add_permits(1);
        let run = submitted.settled.wait().await.unwrap();
        context.append_event(custom("behind"), None).await.unwrap();
        let names: Vec<_> = log(&server, &thread)
            .await
            .iter()
            .map(|event| (event.run.is_some(), event.body.name()))
            .collect();
        let notes: Vec<_> = names.iter().enumerate().filter(|(_, name)| !name.0).collect();
        assert_eq!(names.len(), 4 + server.events(&run).await.len(), "{names:?}");
        assert_eq!(notes.len(), 4, "created and three notes: {names:?}");
        assert_eq!(notes[2].1.1, "opaque");
        assert_eq!(names[notes[2].0 - 1].1, "message.completed");
        assert_eq!(names[notes[2].0 + 1].1, "message.started");
        assert_eq!(names.last().unwrap().1, "state.custom");
        let numbers: Vec<_> = server.events(&run).await.iter().map(|one| one.run_number).collect();
        assert!(numbers.iter().copied().eq(1..=numbers.len() as u64), "{numbers:?}");
    }
}

#[tokio::test]
async fn a_note_that_does_not_fit_is_refused_and_large_content_is_stored_beside_the_log() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        let context = context(&server, &keeper, &thread).await;
        let message = MessageId::generate();
        let part = Part::bytes("application/octet-stream", vec![7; 100_000]);
        context
            .append_event(Body::Message(MessageEvent::Part { message, part }), None)
            .await
            .unwrap();
        let Body::Message(MessageEvent::Part { part, .. }) =
            log(&server, &thread).await.pop().unwrap().body
        else {
            panic!("the part was not logged");
        };
        let trilogue_domain::Content::Blob(blob) = part.content else { panic!("{part:?}") };
        assert_eq!(blob.length, 100_000);
        let bytes = Bytes::from(vec![b' '; limits::MAX_ORIGINAL_BYTES]);
        let original = Original { dialect: "d".into(), version: 1, bytes };
        let error = context.append_event(Body::Opaque, Some(original)).await.unwrap_err();
        assert_eq!(error.code(), Code::EventTooLarge);
        server.runtime.erase_thread(&alice(), &thread).await.unwrap();
        let error = context.append_event(custom("late"), None).await.unwrap_err();
        assert_eq!(error.code(), Code::ThreadNotFound);
    }
}

#[tokio::test]
async fn a_thread_that_was_bound_outside_of_runs_is_told_everything_it_missed() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        server.submit(on(&thread, "say:x")).await.settled.wait().await.unwrap();
        let context = context(&server, &keeper, &thread).await;
        assert_eq!(context.binding().await.unwrap(), None);
        let sessions = server.runtime.backend(context.agent()).unwrap().sessions().unwrap();
        let client: Arc<dyn Client> = Editor::with_name("editor");
        let params = Json::parse(r#"{"remote":"s1"}"#).unwrap();
        sessions.open(&context, &client, params.clone()).await.unwrap();
        assert_eq!(context.binding().await.unwrap().unwrap().remote, "s1");
        let said = async |script: &str| {
            let run = server.submit(keeps(&thread, script)).await.settled.wait().await.unwrap();
            assert_eq!(run.status, RunStatus::Completed);
            server.output_text(&run).await
        };
        assert_eq!(said("standing").await, "s1 missed 2");
        assert_eq!(said("standing").await, "s1 missed 0");
        server.submit(on(&thread, "say:y")).await.settled.wait().await.unwrap();
        // After it is opened again, the session still knows what it knew.
        sessions.open(&context, &client, params).await.unwrap();
        assert_eq!(said("standing").await, "s1 missed 2");
        context.bind("s2", Json::empty_object()).await.unwrap();
        assert_eq!(said("standing").await, "s2 missed 10");
    }
}

#[tokio::test]
async fn a_binding_that_is_made_while_a_run_is_at_work_stays() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        let context = context(&server, &keeper, &thread).await;
        let submitted = server.submit(keeps(&thread, "bind:s1 gate say:x commit")).await;
        until("it is bound", || async { context.binding().await.unwrap().is_some() }).await;
        context.bind("s2", Json::empty_object()).await.unwrap();
        keeper.gate.add_permits(1);
        submitted.settled.wait().await.unwrap();
        let binding = context.binding().await.unwrap().unwrap();
        assert_eq!(binding.remote, "s2");
        assert_eq!(binding.last_seen, row(&server, &thread).await.head);
    }
}

#[tokio::test]
async fn binding_a_thread_again_takes_nothing_back_of_what_its_agent_was_told() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        let context = context(&server, &keeper, &thread).await;
        context.bind("s1", Json::empty_object()).await.unwrap();
        for number in 0..20 {
            let submitted = server.submit(keeps(&thread, "standing gate say:x")).await;
            // While the run ends, a client opens the session again.
            let bound = async {
                for _ in 0..=number % 5 {
                    tokio::task::yield_now().await;
                }
                context.bind("s1", Json::empty_object()).await
            };
            keeper.gate.add_permits(1);
            let (run, bound) = tokio::join!(submitted.settled.wait(), bound);
            bound.unwrap();
            assert_eq!(run.unwrap().status, RunStatus::Completed);
            let binding = context.binding().await.unwrap().unwrap();
            assert_eq!(binding.last_seen, row(&server, &thread).await.head, "{number}");
        }
    }
}

#[tokio::test]
async fn a_session_that_a_run_bound_knows_nothing_until_a_run_of_it_has_completed() {
    for (server, _) in servers().await {
        let thread = server.thread().await;
        server.submit(on(&thread, "say:x")).await.settled.wait().await.unwrap();
        let said = async |script: &str| {
            let run = server.submit(keeps(&thread, script)).await.settled.wait().await.unwrap();
            (run.status, server.output_text(&run).await)
        };
        assert_eq!(said("bind:s1 fail").await.0, RunStatus::Failed);
        assert_eq!(said("standing").await.1, "s1 missed 2");
        assert_eq!(said("standing").await.1, "s1 missed 0");
        // The same session again, in a run that also fails.
        assert_eq!(said("bind:s1 fail").await.0, RunStatus::Failed);
        assert_eq!(said("standing").await.1, "s1 missed 0");
    }
}

#[tokio::test]
async fn an_agent_that_can_be_primed_lets_the_head_go_back() {
    for (server, _) in servers().await {
        let thread = server.thread().await;
        let said = async |script: &str| {
            let run = server.submit(keeps(&thread, script)).await.settled.wait().await.unwrap();
            server.output_text(&run).await
        };
        assert_eq!(said("standing bind:s1").await, "unbound");
        let path = server.store.path(&scope(), &thread, None, 10).await.unwrap();
        assert_eq!(said("standing").await, "s1 missed 0");
        let patch = ThreadPatch { from: Some(path[0].id.clone()), ..ThreadPatch::default() };
        server.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
        assert_eq!(said("standing bind:s2").await, "s1 rewound");
        assert_eq!(said("standing").await, "s2 missed 0");
    }
}

#[tokio::test]
async fn a_message_is_found_by_the_id_that_its_agent_knows_it_by() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        let new = keeps(&thread, "alias:theirs say:x gate");
        let trilogue_runtime::Input::Messages(messages) = &new.input else { panic!("{new:?}") };
        let prompt = messages[0].id.clone();
        let submitted = server.submit(new).await;
        let theirs = MessageId::parse("theirs").unwrap();
        let thread_row = row(&server, &thread).await;
        let found = async || server.store.message_in(thread_row.key, &theirs).await.unwrap();
        until("it is stored with what follows", || async { found().await.is_some() }).await;
        keeper.gate.add_permits(1);
        submitted.settled.wait().await.unwrap();
        let found = found().await.unwrap();
        assert_eq!((&found.id, found.alias.as_ref()), (&prompt, Some(&theirs)));
        // A copy that ends with this message knows both ids too.
        let by = alice();
        let copied = server.runtime.copy_thread_until(&by, &thread, &theirs, NewThread::default());
        let copy = copied.await.unwrap();
        let there = server.store.message_in(copy.key, &theirs).await.unwrap().unwrap();
        assert_eq!((&there.id, there.thread), (&prompt, copy.key));
    }
}

#[tokio::test]
async fn what_an_agent_kept_for_a_thread_goes_when_the_thread_is_erased() {
    for (server, keeper) in servers().await {
        let thread = server.thread().await;
        server.submit(keeps(&thread, "bind:s1")).await.settled.wait().await.unwrap();
        keeper.may_forget.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
        let runtime = server.runtime.clone();
        let id = thread.clone();
        let erasing = tokio::spawn(async move { runtime.erase_thread(&alice(), &id).await });
        until("it is durable first", || async {
            server.store.thread(&scope(), &thread).await.unwrap().is_none()
        })
        .await;
        assert!(!erasing.is_finished() && keeper.forgotten.lock().unwrap().is_empty());
        keeper.may_forget.add_permits(1);
        erasing.await.unwrap().unwrap();
        assert_eq!(*keeper.forgotten.lock().unwrap(), [thread]);
    }
}

#[tokio::test]
async fn a_thread_that_goes_with_its_run_is_forgotten_too() {
    for (server, keeper) in servers().await {
        let new = new_run("say:x", ThreadChoice::Ephemeral);
        let run = server.submit(new).await.settled.wait().await.unwrap();
        server.runtime.remove_run(&alice(), &run.id).await.unwrap();
        assert_eq!(*keeper.forgotten.lock().unwrap(), [run.thread_id]);
    }
}
