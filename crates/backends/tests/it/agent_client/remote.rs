//! Agents behind a server: the scripted agent behind a WebSocket.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::watch;
use trilogue_backends::agent_client::{ClientTools, Launch, Processes, RemoteAgent};
use trilogue_domain::event::StateEvent;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Body, Code, RequestSource, RunStatus};
use trilogue_runtime::{RunRequest, ThreadChoice};
use trilogue_sdk::agent_client::network::{AcceptOptions, AgentUrl, Connection, accept};
use trilogue_store::rows::RunRow;

use super::asking::Editor;
use super::rig::{Rig, alice, caller, editor, json, program, settle, until, until_async};
use crate::harness::{failure, new_run, user_input};

/// A server that starts the scripted agent for each connection.
struct AgentServer {
    url: String,
    opened: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    /// Each change cuts all connections.
    cuts: watch::Sender<u64>,
}

impl AgentServer {
    async fn start(flags: &[&str]) -> Self {
        Self::with_token(flags, None).await
    }

    async fn with_token(flags: &[&str], token: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/acp?key=hidden", listener.local_addr().unwrap());
        let flags: Vec<_> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let options = AcceptOptions { token: token.map(str::to_owned), ..AcceptOptions::default() };
        let (opened, closed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let cuts = watch::Sender::new(0);
        let (begun, ended, cut) = (Arc::clone(&opened), Arc::clone(&closed), cuts.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(connection) = accept(stream, &options).await else { continue };
                begun.fetch_add(1, Ordering::SeqCst);
                let (ended, serving) =
                    (Arc::clone(&ended), serve(connection, flags.clone(), cut.subscribe()));
                tokio::spawn(async move {
                    serving.await;
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { url, opened, closed, cuts }
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn connection_count(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    fn closed_count(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    fn remote(&self) -> RemoteAgent {
        RemoteAgent { url: AgentUrl::parse(&self.url).unwrap(), cwd: Some("/far/away".into()) }
    }

    async fn rig(&self, change: impl FnOnce(&mut Launch)) -> Rig {
        Rig::with(&[], |launch| {
            (launch.command, launch.cwd) = (Vec::new(), None);
            launch.remote = Some(self.remote());
            change(launch);
        })
        .await
    }
}

async fn serve(mut connection: Connection, flags: Vec<String>, mut cuts: watch::Receiver<u64>) {
    let mut child = Command::new(program())
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    tokio::select! {
        _ = tokio::io::copy(&mut connection.read, &mut input) => {}
        _ = tokio::io::copy(&mut output, &mut connection.write) => {}
        _ = cuts.changed() => connection.end.abort(),
    }
}

/// Waits until the agent has said something in this run.
async fn until_begun(rig: &Rig, run: &RunRow) {
    until_async("the turn has begun", async || !rig.reply_text(run).await.is_empty()).await;
}

fn failure_of(run: &RunRow) -> (String, String) {
    let failure = failure(run);
    (failure.code, failure.message)
}

#[tokio::test]
async fn an_agent_behind_a_websocket_works_where_the_settings_say() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|_| {}).await;
    let run = rig.run(&rig.thread, "say:hello").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "hello"));
    let opening = rig.run(&rig.thread, "session").await;
    assert!(rig.reply_text(&opening).await.contains("\"cwd\":\"/far/away\""));
    // No process of this machine, and one connection for both runs.
    assert_eq!((rig.children.count(), server.connection_count()), (0, 1));
    rig.end().await;
}

#[tokio::test]
async fn a_question_of_an_agent_behind_a_websocket_is_answered_and_its_turn_cancelled() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|_| {}).await;
    let run = rig.run(&rig.thread, "permission:edit:/a").await;
    assert_eq!(run.status, RunStatus::Interrupted);
    let interrupt = rig.pending(&run).await;
    let allow = interrupt.options.iter().find(|it| it.effect == Effect::Allow && !it.always);
    let run = rig.answer(&run, Answer::Option(allow.unwrap().id.clone())).await;
    assert_eq!(rig.reply_text(&run).await, "permission: once");
    let run = rig.begin(&rig.thread, "say:begun\nslow").await.run;
    until_begun(&rig, &run).await;
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    assert_eq!(server.connection_count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_lost_connection_ends_the_run_and_the_next_one_loads_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().display().to_string();
    let server = AgentServer::start(&["--load", "--store", &store]).await;
    let rig = server.rig(|_| {}).await;
    rig.run(&rig.thread, "say:first").await;
    let lost = rig.begin(&rig.thread, "say:begun\nslow").await.run;
    until_begun(&rig, &lost).await;
    server.cut();
    let lost = rig.wait_until_settled(&lost).await;
    let (code, message) = failure_of(&lost);
    assert_eq!(
        (lost.status, code),
        (RunStatus::Failed, Code::AgentLost.as_str().to_owned()),
        "{message}"
    );
    assert!(message.contains("is not connected any more"), "{message}");
    // The query of the address can hold a secret.
    assert!(!message.contains("hidden"), "{message}");
    let run = rig.run(&rig.thread, "say:again\nsession").await;
    assert_eq!((run.status, server.connection_count()), (RunStatus::Completed, 2));
    let text = rig.reply_text(&run).await;
    assert!(text.contains("again") && text.contains("sessionId"), "{text}");
    assert!(rig.custom(&run, "session_restarted").await.is_empty());
    rig.end().await;
}

#[tokio::test]
async fn an_agent_that_cannot_load_gets_the_conversation_after_a_loss() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|_| {}).await;
    rig.run(&rig.thread, "say:first").await;
    server.cut();
    until_async("the loss is noticed", async || {
        let run = rig.run(&rig.thread, "say:second\nprompt").await;
        run.status == RunStatus::Completed && server.connection_count() == 2
    })
    .await;
    let log = rig.log(&rig.thread).await;
    let restarted = |event: &trilogue_domain::Event| match &event.body {
        Body::State(StateEvent::Custom { kind, .. }) => kind == "session_restarted",
        _ => false,
    };
    assert_eq!(log.iter().filter(|event| restarted(event)).count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_opened_again_when_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().display().to_string();
    let server = AgentServer::start(&["--load", "--store", &store]).await;
    let rig = server.rig(|launch| launch.idle_stop = Some(Duration::from_millis(50))).await;
    rig.run(&rig.thread, "say:first").await;
    until("the connection is closed", || server.closed_count() == 1).await;
    let run = rig.run(&rig.thread, "say:second").await;
    assert_eq!((run.status, server.connection_count()), (RunStatus::Completed, 2));
    rig.end().await;
}

#[tokio::test]
async fn threads_share_one_connection_if_the_settings_say_so() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|launch| launch.processes = Processes::Shared).await;
    for _ in 0..3 {
        assert_eq!(rig.reply_to("say:hello").await, "hello");
    }
    assert_eq!(server.connection_count(), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_client_names_a_folder_of_the_agent_s_machine_if_the_settings_name_none() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|launch| launch.remote.as_mut().unwrap().cwd = None).await;
    let context = rig.context(&rig.thread).await;
    let params = json(r#"{"cwd":"/on/its/machine","mcpServers":[]}"#);
    rig.sessions().open(&context, &caller("{}"), params).await.unwrap();
    let opening = rig.run(&rig.thread, "session").await;
    assert!(rig.reply_text(&opening).await.contains("\"cwd\":\"/on/its/machine\""));
    let thread = rig.thread().await;
    let opening = rig.run(&thread, "session").await;
    assert!(rig.reply_text(&opening).await.contains("\"cwd\":\"/\""));
    rig.end().await;
}

#[tokio::test]
async fn a_request_over_the_network_chooses_only_folders_of_the_roots() {
    let server = AgentServer::start(&[]).await;
    let with_roots = |launch: &mut Launch| {
        launch.remote.as_mut().unwrap().cwd = None;
        launch.roots = vec!["/srv".into()];
    };
    let rig = server.rig(with_roots).await;
    let submit = async |folder: &str| {
        let thread = ThreadChoice::Existing(rig.thread().await);
        let run = RunRequest {
            config: Some(json(&format!("{{\"cwd\":\"{folder}\"}}"))),
            source: RequestSource::Network,
            ..new_run("scripted", thread, user_input("session"))
        };
        rig.runtime.submit(&rig.by, run).await
    };
    for folder in ["/etc", "/srv/../etc", "/srvx", "/"] {
        assert_eq!(submit(folder).await.unwrap_err().code(), Code::Forbidden, "{folder}");
    }
    let run = settle(submit("/srv/here").await.unwrap()).await;
    assert!(rig.reply_text(&run).await.contains("\"cwd\":\"/srv/here\""));
    rig.end().await;
}

#[tokio::test]
async fn files_of_the_editor_are_forwarded_to_an_agent_behind_a_server() {
    let client = Arc::new(Editor(editor(r#"{"fs":{"readTextFile":true}}"#), alice()));
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|launch| launch.client_tools = ClientTools::Forward).await;
    let row = rig.store.thread(&rig.by.scope(), &rig.thread).await.unwrap().unwrap();
    let attached = rig.runtime.attach(&row, client);
    attached.take_control();
    assert_eq!(
        {
            let run = rig.run(&rig.thread, "read:/a/b").await;
            rig.reply_text(&run).await
        },
        r#"read: {"content":"/a/b"}"#
    );
    drop(attached);
    rig.end().await;
}

#[tokio::test]
async fn a_server_that_refuses_or_is_not_there_fails_the_run_with_the_reason() {
    let server = AgentServer::with_token(&[], Some("right")).await;
    let rig = server.rig(|_| {}).await;
    let run = rig.run(&rig.thread, "say:hello").await;
    let (code, message) = failure_of(&run);
    assert_eq!(code, Code::PeerUnavailable.as_str());
    assert!(message.contains("refused the connection with status 401"), "{message}");
    rig.end().await;
    let with = |token: &str| {
        let url = AgentUrl::parse(&server.url).unwrap().token(token);
        Some(RemoteAgent { url, cwd: None })
    };
    let rig = server.rig(|launch| launch.remote = with("right")).await;
    assert_eq!(rig.reply_to("say:hello").await, "hello");
    rig.end().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = format!("ws://{}/", listener.local_addr().unwrap());
    drop(listener);
    let url = AgentUrl::parse(&free).unwrap();
    let rig = server.rig(|launch| launch.remote = Some(RemoteAgent { url, cwd: None })).await;
    let run = rig.run(&rig.thread, "say:hello").await;
    let (code, message) = failure_of(&run);
    assert_eq!(code, Code::PeerUnavailable.as_str());
    assert!(message.contains("Connection refused"), "{message}");
    rig.end().await;
}

#[tokio::test]
async fn a_close_of_the_server_ends_its_connections() {
    let server = AgentServer::start(&[]).await;
    let rig = server.rig(|_| {}).await;
    rig.run(&rig.thread, "say:hello").await;
    rig.children.close().await;
    until("the connection is closed", || server.closed_count() == 1).await;
    let run = rig.run(&rig.thread, "say:hello").await;
    assert_eq!(failure_of(&run).0, Code::ShuttingDown.as_str());
}
