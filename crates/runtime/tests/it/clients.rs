//! Clients that take calls of agents: which one is called, and what happens when it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Semaphore;
use trilogue_domain::{Json, Principal, RequestSource, ThreadId};
use trilogue_runtime::{AttachGuard, CONTROLLER_GONE, CallError, Client, ClientProfile, Submitted};

use crate::fixture::{TestServer, alice, scope, until};
use crate::keeper::{keeps, with_keeper};

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
    pub(crate) fn with_name(name: &'static str) -> Arc<Self> {
        let profile = ClientProfile {
            dialect: "editing".into(),
            version: 1,
            capabilities: Json::empty_object(),
            info: Some(Json::from_value(&serde_json::json!(name))),
            source: RequestSource::LocalSocket,
        };
        let answers = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { profile, principal: alice(), calls: AtomicUsize::new(0), answers })
    }

    /// Returns a client that does not answer until the test permits it.
    fn slow(name: &'static str) -> Arc<Self> {
        let editor = Self::with_name(name);
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
            "leave" => Err(CallError::not_connected()),
            _ => Ok(self.profile.info.clone().unwrap()),
        }
    }

    async fn notify(&self, _method: &str, _params: Json) {}
}

async fn attach(server: &TestServer, thread: &ThreadId, editor: &Arc<Editor>) -> AttachGuard {
    let row = server.store.thread(&scope(), thread).await.unwrap().unwrap();
    server.runtime.attach(&row, editor.clone())
}

async fn run_script(server: &TestServer, thread: &ThreadId, script: &str) -> String {
    let submitted = server.submit(keeps(thread, script)).await;
    wait_for_output(server, submitted).await
}

async fn wait_for_output(server: &TestServer, submitted: Submitted) -> String {
    let run = submitted.settled.wait().await.unwrap();
    server.output_text(&run).await
}

#[tokio::test]
async fn the_client_that_takes_control_is_asked() {
    let (server, _) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    assert_eq!(run_script(&server, &thread, "client").await, "none");
    assert_eq!(
        run_script(&server, &thread, "call:x").await,
        CallError::not_connected().to_string(),
        "at once"
    );
    let (one, two) = (Editor::with_name("one"), Editor::with_name("two"));
    let first = attach(&server, &thread, &one).await;
    let second = attach(&server, &thread, &two).await;
    assert!(first.is_in_control() && !second.is_in_control());
    assert_eq!(run_script(&server, &thread, "client call:x").await, r#""one""one""#);
    second.take_control();
    assert!(!first.is_in_control() && second.is_in_control());
    assert_eq!(
        run_script(&server, &thread, "client call:x call:refuse").await,
        r#""two""two"no (-1)"#
    );
    assert_eq!((one.calls(), two.calls()), (1, 2));
    let elsewhere = server.thread().await;
    assert_eq!(run_script(&server, &elsewhere, "client").await, "none");
}

#[tokio::test]
async fn whoever_attaches_while_the_controller_is_gone_becomes_it() {
    let (server, _) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    let (one, two, three) =
        (Editor::with_name("one"), Editor::with_name("two"), Editor::with_name("three"));
    let first = attach(&server, &thread, &one).await;
    let second = attach(&server, &thread, &two).await;
    drop(first);
    assert_eq!(run_script(&server, &thread, "client").await, "none", "a reader does not inherit");
    assert!(!second.is_in_control());
    let third = attach(&server, &thread, &three).await;
    assert!(third.is_in_control());
    assert_eq!(run_script(&server, &thread, "call:x").await, r#""three""#);
    drop(second);
    assert!(third.is_in_control());
}

#[tokio::test]
async fn a_call_waits_for_a_client_that_comes_back() {
    let (server, keeper) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    let (one, two) = (Editor::slow("one"), Editor::with_name("two"));
    let first = attach(&server, &thread, &one).await;
    // The first client leaves in the middle of the call.
    let submitted = server.submit(keeps(&thread, "call:x gate call:y")).await;
    until("it was asked", || async { one.calls() == 1 }).await;
    drop(first);
    let second = attach(&server, &thread, &two).await;
    until("the next is asked", || async { two.calls() == 1 }).await;
    // The second client leaves before the call.
    drop(second);
    keeper.gate.add_permits(1);
    let back = attach(&server, &thread, &two).await;
    assert_eq!(wait_for_output(&server, submitted).await, r#""two""two""#);
    drop(back);
}

#[tokio::test]
async fn a_client_that_says_it_is_gone_is_not_asked_again_and_again() {
    let (server, _) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    let (one, two) = (Editor::with_name("one"), Editor::with_name("two"));
    let first = attach(&server, &thread, &one).await;
    let submitted = server.submit(keeps(&thread, "call:leave")).await;
    until("it was asked", || async { one.calls() == 1 }).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(one.calls(), 1);
    let second = attach(&server, &thread, &two).await;
    tokio::time::pause();
    second.take_control();
    // The second client leaves too, and no other comes.
    until("the next is asked", || async { two.calls() == 1 }).await;
    drop((first, second));
    let began = tokio::time::Instant::now();
    assert_eq!(wait_for_output(&server, submitted).await, CallError::not_connected().to_string());
    let waited = began.elapsed();
    assert!(waited >= CONTROLLER_GONE && waited < CONTROLLER_GONE * 2, "{waited:?}");
}

#[tokio::test]
async fn a_controller_that_is_gone_for_long_is_not_waited_for() {
    let (server, _) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    drop(attach(&server, &thread, &Editor::with_name("one")).await);
    tokio::time::pause();
    tokio::time::advance(CONTROLLER_GONE).await;
    let began = tokio::time::Instant::now();
    assert_eq!(
        run_script(&server, &thread, "call:x").await,
        CallError::not_connected().to_string()
    );
    assert!(began.elapsed() < CONTROLLER_GONE / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn many_threads_that_clients_have_left_are_forgotten() {
    let (server, _) = with_keeper(TestServer::memory().await).await;
    let thread = server.thread().await;
    let editor = Editor::with_name("one");
    let mut row = server.store.thread(&scope(), &thread).await.unwrap().unwrap();
    let stays = server.runtime.attach(&row, editor.clone());
    let controller = row.key;
    tokio::time::pause();
    for _ in 0..3 {
        for _ in 0..5_000 {
            row.key.0 += 1;
            drop(server.runtime.attach(&row, editor.clone()));
        }
        tokio::time::advance(CONTROLLER_GONE).await;
    }
    row.key = controller;
    assert!(stays.is_in_control());
    let again = server.runtime.attach(&row, editor);
    drop(stays);
    assert!(!again.is_in_control());
    server.runtime.erase_thread(&alice(), &thread).await.unwrap();
}
