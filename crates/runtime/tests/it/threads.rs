//! Threads: metadata, state, branches, copies, erasure.

use trilogue_domain::{Code, Json, RunStatus, ThreadId};
use trilogue_runtime::{NewThread, ThreadChoice, ThreadPatch};

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
        let thread = house.thread().await;
        house.run(r#"say:one set:{"n":1}"#, ThreadChoice::Existing(thread.clone())).await;
        house.run("bytes:100000 say:two", ThreadChoice::Existing(thread.clone())).await;
        let copy =
            house.runtime.copy_thread(&alice(), &thread, NewThread::default()).await.unwrap();
        house.runtime.erase_thread(&alice(), &thread).await.unwrap();
        let run = house.run("history state", ThreadChoice::Existing(copy.id)).await;
        let said = house.said(&run).await;
        assert!(
            said.contains("one") && said.contains("two") && said.ends_with(r#"{"n":1}"#),
            "{said}"
        );
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
            // Accepted before the erasure it was erased with the thread; after it, it is refused.
            if let Err(error) = submitted {
                assert_eq!(error.code(), Code::ThreadNotFound);
            }
            assert!(house.store.thread(&scope(), &thread).await.unwrap().is_none());
        }
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
