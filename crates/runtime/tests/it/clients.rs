//! Clients that take calls of agents: which one is called, and what happens when it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use trilogue_domain::{Json, Principal, ThreadId};
use trilogue_runtime::{Attached, CONTROLLER_GONE, CallError, Client, ClientProfile, Submitted};

use crate::fixture::{House, alice, scope, until};
use crate::keeper::{furnished, keeps};

/// A client that answers with its name.
#[derive(Debug)]
pub(crate) struct Editor {
    profile: ClientProfile,
    calls: AtomicUsize,
    /// Each call waits for a permit of this semaphore.
    answers: Semaphore,
    principal: Principal,
}

impl Editor {
    pub(crate) fn named(name: &'static str) -> Arc<Self> {
        let profile = ClientProfile {
            dialect: "editing".into(),
            version: 1,
            capabilities: Json::empty_object(),
            info: Some(Json::from_value(&serde_json::json!(name))),
        };
        let answers = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { profile, principal: alice(), calls: AtomicUsize::new(0), answers })
    }

    /// Returns a client that does not answer until the test permits it.
    fn slow(name: &'static str) -> Arc<Self> {
        let editor = Self::named(name);
        editor.answers.forget_permits(Semaphore::MAX_PERMITS);
        editor
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Client for Editor {
    fn profile(&self) -> &ClientProfile {
        &self.profile
    }

    fn principal(&self) -> &Principal {
        &self.principal
    }

    async fn call(&self, method: &str, _params: Json) -> Result<Json, CallError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.answers.acquire().await.unwrap().forget();
        match method {
            "refuse" => Err(CallError::new(-1, "no")),
            "leave" => Err(CallError::gone()),
            _ => Ok(self.profile.info.clone().unwrap()),
        }
    }

    async fn notify(&self, _method: &str, _params: Json) {}
}

async fn attach(house: &House, thread: &ThreadId, editor: &Arc<Editor>) -> Attached {
    let row = house.store.thread(&scope(), thread).await.unwrap().unwrap();
    house.runtime.attach(&row, editor.clone())
}

async fn said(house: &House, thread: &ThreadId, script: &str) -> String {
    let submitted = house.submit(keeps(thread, script)).await;
    ended(house, submitted).await
}

async fn ended(house: &House, submitted: Submitted) -> String {
    let run = submitted.settled.wait().await.unwrap();
    house.said(&run).await
}

#[tokio::test]
async fn the_client_that_takes_control_is_asked() {
    let (house, _) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    assert_eq!(said(&house, &thread, "client").await, "none");
    assert_eq!(said(&house, &thread, "call:x").await, CallError::gone().to_string(), "at once");
    let (one, two) = (Editor::named("one"), Editor::named("two"));
    let first = attach(&house, &thread, &one).await;
    let second = attach(&house, &thread, &two).await;
    assert!(first.is_in_control() && !second.is_in_control());
    assert_eq!(said(&house, &thread, "client call:x").await, r#""one""one""#);
    second.take_control();
    assert!(!first.is_in_control() && second.is_in_control());
    assert_eq!(said(&house, &thread, "client call:x call:refuse").await, r#""two""two"no (-1)"#);
    assert_eq!((one.calls(), two.calls()), (1, 2));
    let elsewhere = house.thread().await;
    assert_eq!(said(&house, &elsewhere, "client").await, "none");
}

#[tokio::test]
async fn whoever_attaches_while_the_controller_is_gone_becomes_it() {
    let (house, _) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    let (one, two, three) = (Editor::named("one"), Editor::named("two"), Editor::named("three"));
    let first = attach(&house, &thread, &one).await;
    let second = attach(&house, &thread, &two).await;
    drop(first);
    assert_eq!(said(&house, &thread, "client").await, "none", "a reader does not inherit");
    assert!(!second.is_in_control());
    let third = attach(&house, &thread, &three).await;
    assert!(third.is_in_control());
    assert_eq!(said(&house, &thread, "call:x").await, r#""three""#);
    drop(second);
    assert!(third.is_in_control());
}

#[tokio::test]
async fn a_call_waits_for_a_client_that_comes_back() {
    let (house, keeper) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    let (one, two) = (Editor::slow("one"), Editor::named("two"));
    let first = attach(&house, &thread, &one).await;
    // The first client leaves in the middle of the call.
    let submitted = house.submit(keeps(&thread, "call:x gate call:y")).await;
    until("it was asked", || async { one.calls() == 1 }).await;
    drop(first);
    let second = attach(&house, &thread, &two).await;
    until("the next is asked", || async { two.calls() == 1 }).await;
    // The second client leaves before the call.
    drop(second);
    keeper.gate.add_permits(1);
    let back = attach(&house, &thread, &two).await;
    assert_eq!(ended(&house, submitted).await, r#""two""two""#);
    drop(back);
}

#[tokio::test]
async fn a_client_that_says_it_is_gone_is_not_asked_again_and_again() {
    let (house, _) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    let (one, two) = (Editor::named("one"), Editor::named("two"));
    let first = attach(&house, &thread, &one).await;
    let submitted = house.submit(keeps(&thread, "call:leave")).await;
    until("it was asked", || async { one.calls() == 1 }).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(one.calls(), 1);
    let second = attach(&house, &thread, &two).await;
    tokio::time::pause();
    second.take_control();
    // The second client leaves too, and no other comes.
    until("the next is asked", || async { two.calls() == 1 }).await;
    drop((first, second));
    let began = tokio::time::Instant::now();
    assert_eq!(ended(&house, submitted).await, CallError::gone().to_string());
    let waited = began.elapsed();
    assert!(waited >= CONTROLLER_GONE && waited < CONTROLLER_GONE * 2, "{waited:?}");
}

#[tokio::test]
async fn a_controller_that_is_gone_for_long_is_not_waited_for() {
    let (house, _) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    drop(attach(&house, &thread, &Editor::named("one")).await);
    tokio::time::pause();
    tokio::time::advance(CONTROLLER_GONE).await;
    let began = tokio::time::Instant::now();
    assert_eq!(said(&house, &thread, "call:x").await, CallError::gone().to_string());
    assert!(began.elapsed() < CONTROLLER_GONE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn many_threads_that_clients_have_left_are_forgotten() {
    let (house, _) = furnished(House::memory().await).await;
    let thread = house.thread().await;
    let editor = Editor::named("one");
    let mut row = house.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let stays = house.runtime.attach(&row, editor.clone());
    let controller = row.key;
    tokio::time::pause();
    for _ in 0..3 {
        for _ in 0..5_000 {
            row.key.0 += 1;
            drop(house.runtime.attach(&row, editor.clone()));
        }
        tokio::time::advance(CONTROLLER_GONE).await;
    }
    row.key = controller;
    assert!(stays.is_in_control());
    let again = house.runtime.attach(&row, editor);
    drop(stays);
    assert!(!again.is_in_control());
    house.runtime.erase_thread(&alice(), &thread).await.unwrap();
}
