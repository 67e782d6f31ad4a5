//! Threads: metadata, state, branches, copies, erasure.

use trilogue_domain::event::{MessageEvent, RunEvent};
use trilogue_domain::{Body, Code, Json, MessageId, RunStatus, ThreadId};
use trilogue_runtime::{NewThread, ThreadChoice, ThreadPatch};
use trilogue_store::rows::{Page, RunFilter};

use crate::fixture::{House, alice, new_run, scope};

fn json(text: &'static str) -> Json {
    Json::parse(text).unwrap()
}

#[tokio::test]
async fn metadata_is_merged_and_state_is_a_new_checkpoint() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let patch = ThreadPatch {
            metadata: Some(json(r#"{"a":1}"#)),
            values: Some(json(r#"{"n":1}"#)),
            ..ThreadPatch::default()
        };
        let row = house.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
        assert_eq!(row.metadata.to_value(), serde_json::json!({"a": 1}));
        let run = house.run("state", ThreadChoice::Existing(thread.clone())).await;
        assert_eq!(house.said(&run).await, r#"{"n":1}"#);
        house.run(r#"set:{"n":2}"#, ThreadChoice::Existing(thread.clone())).await;
        let run = house.run("state", ThreadChoice::Existing(thread)).await;
        assert_eq!(house.said(&run).await, r#"{"n":2}"#);
    }
}

#[tokio::test]
async fn a_branch_forgets_what_lies_behind_it() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        house.run("say:one", ThreadChoice::Existing(thread.clone())).await;
        let path = house.store.path(&scope(), &thread, None, 10).await.unwrap();
        house.run("say:two", ThreadChoice::Existing(thread.clone())).await;
        let patch = ThreadPatch { from: Some(path[0].id.clone()), ..Default::default() };
        house.runtime.patch_thread(&alice(), &thread, patch).await.unwrap();
        let run = house.run("history", ThreadChoice::Existing(thread)).await;
        assert_eq!(house.said(&run).await, "say:one|one");
    }
}

#[tokio::test]
async fn a_copy_holds_content_and_outlives_its_source() {
    for house in [House::memory().await, House::sqlite().await] {
        house.run(r#"say:one set:{"n":1}"#, ThreadChoice::Existing(house.main.clone())).await;
        house.run("bytes:100000 say:two", ThreadChoice::Existing(house.main.clone())).await;
        let copy =
            house.runtime.copy_thread(&alice(), &house.main, NewThread::default()).await.unwrap();
        house.runtime.erase_thread(&alice(), &house.main).await.unwrap();
        let run = house.run("history state", ThreadChoice::Existing(copy.id)).await;
        let said = house.said(&run).await;
        assert!(
            said.contains("one") && said.contains("two") && said.ends_with(r#"{"n":1}"#),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_copy_ends_at_a_message() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let on = || ThreadChoice::Existing(thread.clone());
        house.run("say:zero", on()).await;
        let run = house.run(r#"set:{"n":1} say:one set:{"n":2} custom:1 say:two"#, on()).await;
        house.run("say:three", on()).await;
        let copied = async |until: &MessageId| {
            house.runtime.copy_thread_until(&alice(), &thread, until, NewThread::default()).await
        };
        let messages: Vec<_> = house
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
            let runs = house.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
            assert_eq!(runs.len(), 2);
            let last = house.events(&runs[0]).await;
            assert!(last.last().unwrap().body.is_run_end(), "{last:?}");
            assert_eq!(runs[0].last_run_number, last.len() as u64);
            assert_eq!(runs[0].status, RunStatus::Completed);
            assert!(last.iter().any(|event| event.body == Body::Run(RunEvent::Started)));
            let row = house.store.message_in(copy.key, message).await.unwrap().unwrap();
            assert_eq!((row.run, row.thread), (runs[0].key, copy.key));
            let source = house.store.message(&scope(), &run.thread_id, message).await.unwrap();
            assert_eq!(source.unwrap().run, run.key);
            let next = house.run("history state", ThreadChoice::Existing(copy.id.clone())).await;
            let told = house.said(&next).await;
            let begin =
                format!("say:zero|zero|{}", r#"set:{"n":1} say:one set:{"n":2} custom:1 say:two"#);
            assert_eq!(told, format!("{begin}{said}{state}"));
        }
        let error = copied(&MessageId::generate()).await.unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        let failed = house.run("say:x fail:x", on()).await;
        let beside = house.events(&failed).await.into_iter().find_map(|event| match event.body {
            Body::Message(MessageEvent::Completed { message }) => Some(message),
            _ => None,
        });
        assert_eq!(copied(&beside.unwrap()).await.unwrap_err().code(), Code::NotFound);
    }
}

#[tokio::test]
async fn a_copy_knows_its_messages() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let run = house.run("say:one", ThreadChoice::Existing(thread.clone())).await;
        let copy =
            house.runtime.copy_thread(&alice(), &thread, NewThread::default()).await.unwrap();
        house.runtime.erase_thread(&alice(), &thread).await.unwrap();
        let filter = RunFilter { thread: Some(copy.id.clone()), ..RunFilter::default() };
        let runs = house.store.runs(&scope(), &filter, &Page::default()).await.unwrap().rows;
        assert_ne!(runs[0].key, run.key);
        let mut count = 0;
        for event in house.events(&runs[0]).await {
            let Body::Message(MessageEvent::Completed { message }) = event.body else { continue };
            let row = house.store.message_in(copy.key, &message).await.unwrap().unwrap();
            assert_eq!((row.run, row.role.is_user()), (runs[0].key, count == 0));
            assert!(row.position <= event.number, "{row:?}");
            let found = house.store.message(&scope(), &copy.id, &message).await.unwrap();
            assert_eq!(found, Some(row));
            count += 1;
        }
        assert_eq!(count, 2);
    }
}

#[tokio::test]
async fn erasing_stops_what_runs_and_leaves_nothing() {
    for house in [House::memory().await, House::sqlite().await] {
        let thread = house.thread().await;
        let at_work = house
            .runtime
            .submit(&alice(), new_run("say:x forever", ThreadChoice::Existing(thread.clone())))
            .await
            .unwrap();
        house.runtime.erase_thread(&alice(), &thread).await.unwrap();
        assert!(house.store.thread(&scope(), &thread).await.unwrap().is_none());
        assert!(house.store.run(&scope(), &at_work.run.id).await.unwrap().is_none());
        assert!(at_work.settled.wait().await.is_err());
        let gone = house
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
    for house in [House::memory().await, House::sqlite().await] {
        for _ in 0..20 {
            let thread = house.thread().await;
            let by = alice();
            let (erased, submitted) = tokio::join!(
                house.runtime.erase_thread(&by, &thread),
                house.runtime.submit(&by, new_run("say:x", ThreadChoice::Existing(thread.clone()))),
            );
            erased.unwrap();
            // A run accepted before the erasure was erased with the thread; a later one is refused.
            if let Err(error) = submitted {
                assert_eq!(error.code(), Code::ThreadNotFound);
            }
            assert!(house.store.thread(&scope(), &thread).await.unwrap().is_none());
        }
    }
}

#[tokio::test]
async fn who_waits_for_a_run_of_a_thread_that_is_removed_learns_that() {
    for house in [House::memory().await, House::sqlite().await] {
        let on_it = ThreadChoice::Existing(house.main.clone());
        let submitted = house.submit(new_run("forever", on_it)).await;
        house.runtime.erase_thread(&alice(), &house.main).await.unwrap();
        let error = submitted.settled.wait().await.unwrap_err();
        assert_eq!(error.code(), Code::ThreadNotFound, "{error}");
    }
}

#[tokio::test]
async fn two_that_ensure_one_thread_share_it() {
    for house in [House::memory().await, House::sqlite().await] {
        let ensure = || {
            ThreadChoice::Ensure(NewThread {
                id: Some(ThreadId::parse("shared").unwrap()),
                metadata: None,
            })
        };
        let (one, two) = tokio::join!(house.run("say:1", ensure()), house.run("say:2", ensure()));
        assert_eq!((one.status, two.status), (RunStatus::Completed, RunStatus::Completed));
        assert_eq!(one.thread, two.thread);
    }
}

#[tokio::test]
async fn a_removed_run_leaves_its_place_empty() {
    let house = House::memory().await;
    let thread = house.thread().await;
    let first = house.run("say:one", ThreadChoice::Existing(thread.clone())).await;
    house.run("say:two", ThreadChoice::Existing(thread.clone())).await;
    house.runtime.remove_run(&alice(), &first.id).await.unwrap();
    let run = house.run("history", ThreadChoice::Existing(thread)).await;
    assert_eq!(house.said(&run).await, "say:two|two");
}
