//! Threads: metadata, state, branches, copies, erasure.

use trilogue_domain::event::{MessageEvent, RunEvent};
use trilogue_domain::{Body, Code, Json, MessageId, RunStatus, ThreadId};
use trilogue_runtime::{NewThread, ThreadChoice, ThreadPatch};
use trilogue_store::rows::{Page, RunFilter};

use crate::fixture::{TestServer, alice, new_run, scope};

fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

#[tokio::test]
async fn metadata_is_merged_and_state_is_a_new_checkpoint() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let patch = ThreadPatch {
            metadata: Some(json(r#"{"a":1}"#)),
            values: Some(json(r#"{"n":1}"#)),
            ..ThreadPatch::default()
        };
        let row = server.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
        assert_eq!(row.metadata.to_value(), serde_json::json!({"a": 1}));
        let run = server.run("state", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(server.output_text(&run).await, r#"{"n":1}"#);
        server.run(r#"set:{"n":2}"#, ThreadChoice::Existing(thread.clone())).await;
        let run = server.run("state", ThreadChoice::Existing(thread)).await;
        assert_eq!(server.output_text(&run).await, r#"{"n":2}"#);
    }
}

#[tokio::test]
async fn a_branch_forgets_what_lies_behind_it() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        server.run("say:one", ThreadChoice::Existing(thread.clone())).await;
        let path = server.store.path(&scope(), &thread, None, 10).await.unwrap();
        server.run("say:two", ThreadChoice::Existing(thread.clone())).await;
        let patch = ThreadPatch { from: Some(path[0].id.clone()), ..Default::default() };
        server.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
        let run = server.run("history", ThreadChoice::Existing(thread)).await;
        assert_eq!(server.output_text(&run).await, "say:one|one");
    }
}

#[tokio::test]
async fn a_copy_holds_content_and_outlives_its_source() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        server.run(r#"say:one set:{"n":1}"#, ThreadChoice::Existing(server.main.clone())).await;
        server.run("bytes:100000 say:two", ThreadChoice::Existing(server.main.clone())).await;
        let copy =
            server.runtime.copy_thread(&alice(), &server.main, NewThread::default()).await.unwrap();
        server.runtime.erase_thread(&alice(), &server.main).await.unwrap();
        let run = server.run("history state", ThreadChoice::Existing(copy.id)).await;
        let said = server.output_text(&run).await;
        assert!(
            said.contains("one") && said.contains("two") && said.ends_with(r#"{"n":1}"#),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_copy_ends_at_a_message() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let on = || ThreadChoice::Existing(thread.clone());
        server.run("say:zero", on()).await;
        let run = server.run(r#"set:{"n":1} say:one set:{"n":2} custom:1 say:two"#, on()).await;
        server.run("say:three", on()).await;
        let copied = async |until: &MessageId| {
            server.runtime.copy_thread_until(&alice(), &thread, until, NewThread::default()).await
        };
        let messages: Vec<_> = server
            .events(&run)
            .await
            .into_iter()
            .filter_map(|event| match event.body {
                Body::Message(MessageEvent::Completed { message }) => Some(message),
                _ => None,
            })
            .collect();
        let expected = [("", "none"), ("|one", r#"{"n":1}"#), ("|one|two", r#"{"n":2}"#)];
        for (message, (said, state)) in messages.iter().zip(expected) {
            let copy = copied(message).await.unwrap();
            let filter = RunFilter { thread: Some(copy.id.clone()), ..RunFilter::default() };
            let runs = server.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
            assert_eq!(runs.len(), 2);
            let last = server.events(&runs[0]).await;
            assert!(last.last().unwrap().body.is_run_end(), "{last:?}");
            assert_eq!(runs[0].last_run_number, last.len() as u64);
            assert_eq!(runs[0].status, RunStatus::Completed);
            assert!(last.iter().any(|event| event.body == Body::Run(RunEvent::Started)));
            let row = server.store.message_in(copy.key, message).await.unwrap().unwrap();
            assert_eq!((row.run, row.thread), (runs[0].key, copy.key));
            let source = server.store.message(&scope(), &run.thread_id, message).await.unwrap();
            assert_eq!(source.unwrap().run, run.key);
            let next = server.run("history state", ThreadChoice::Existing(copy.id.clone())).await;
            let told = server.output_text(&next).await;
            let begin =
                format!("say:zero|zero|{}", r#"set:{"n":1} say:one set:{"n":2} custom:1 say:two"#);
            assert_eq!(told, format!("{begin}{said}{state}"));
        }
        let error = copied(&MessageId::generate()).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let failed = server.run("say:x fail:x", on()).await;
        let beside = server.events(&failed).await.into_iter().find_map(|event| match event.body {
            Body::Message(MessageEvent::Completed { message }) => Some(message),
            _ => None,
        });
        assert_eq!(copied(&beside.unwrap()).await.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test]
async fn a_copy_knows_its_messages() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let run = server.run("say:one", ThreadChoice::Existing(thread.clone())).await;
        let copy =
            server.runtime.copy_thread(&alice(), &thread, NewThread::default()).await.unwrap();
        server.runtime.erase_thread(&alice(), &thread).await.unwrap();
        let filter = RunFilter { thread: Some(copy.id.clone()), ..RunFilter::default() };
        let runs = server.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
        assert_ne!(runs[0].key, run.key);
        let mut count = 0;
        for event in server.events(&runs[0]).await {
            let Body::Message(MessageEvent::Completed { message }) = event.body else { continue };
            let row = server.store.message_in(copy.key, &message).await.unwrap().unwrap();
            assert_eq!((row.run, row.role.is_user()), (runs[0].key, count == 0));
            assert!(row.position <= event.number, "{row:?}");
            let found = server.store.message(&scope(), &copy.id, &message).await.unwrap();
            assert_eq!(found, Some(row));
            count += 1;
        }
        assert_eq!(count, 2);
    }
}

#[tokio::test]
async fn erasing_stops_what_runs_and_leaves_nothing() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let thread = server.thread().await;
        let at_work = server
            .runtime
            .submit(&alice(), new_run("say:x forever", ThreadChoice::Existing(thread.clone())))
            .await
            .unwrap();
        server.runtime.erase_thread(&alice(), &thread).await.unwrap();
        assert!(server.store.thread(&scope(), &thread).await.unwrap().is_none());
        assert!(server.store.run(&scope(), &at_work.run.id).await.unwrap().is_none());
        assert!(at_work.settled.wait().await.is_err());
        let gone = server
            .runtime
            .submit(&alice(), new_run("say:x", ThreadChoice::Existing(thread)))
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(gone.code(), Code::ThreadNotFound);
    }
}

#[tokio::test]
async fn what_comes_with_an_erasure_is_refused_and_never_acknowledged_and_lost() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        for _ in 0..20 {
            let thread = server.thread().await;
            let by = alice();
            let (erased, submitted) = tokio::join!(
                server.runtime.erase_thread(&by, &thread),
                server
                    .runtime
                    .submit(&by, new_run("say:x", ThreadChoice::Existing(thread.clone()))),
            );
            erased.unwrap();
            // A run accepted before the erasure was erased with the thread; a later one is refused.
            if let Err(error) = submitted {
                assert_eq!(error.code(), Code::ThreadNotFound);
            }
            assert!(server.store.thread(&scope(), &thread).await.unwrap().is_none());
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_run_of_a_thread_that_is_removed_learns_that() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let on_it = ThreadChoice::Existing(server.main.clone());
        let submitted = server.submit(new_run("forever", on_it)).await;
        server.runtime.erase_thread(&alice(), &server.main).await.unwrap();
        let error = submitted.settled.wait().await.unwrap_err();
        assert_eq!(error.code(), Code::ThreadNotFound, "{error}");
    }
}

#[tokio::test]
async fn two_that_ensure_one_thread_share_it() {
    for server in [TestServer::memory().await, TestServer::sqlite().await] {
        let ensure = || {
            ThreadChoice::Ensure(NewThread {
                id: Some(ThreadId::parse("shared").unwrap()),
                metadata: None,
                ..NewThread::default()
            })
        };
        let (one, two) = tokio::join!(server.run("say:1", ensure()), server.run("say:2", ensure()));
        assert_eq!((one.status, two.status), (RunStatus::Completed, RunStatus::Completed));
        assert_eq!(one.thread, two.thread);
    }
}

#[tokio::test]
async fn a_removed_run_leaves_its_place_empty() {
    let server = TestServer::memory().await;
    let thread = server.thread().await;
    let first = server.run("say:one", ThreadChoice::Existing(thread.clone())).await;
    server.run("say:two", ThreadChoice::Existing(thread.clone())).await;
    server.runtime.remove_run(&alice(), &first.id).await.unwrap();
    let run = server.run("history", ThreadChoice::Existing(thread)).await;
    assert_eq!(server.output_text(&run).await, "say:two|two");
}
