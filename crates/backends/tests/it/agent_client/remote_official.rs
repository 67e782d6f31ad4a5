//! Agents behind the servers of the official SDKs.

use std::time::Duration;

use trilogue_backends::agent_client::{Launch, Processes, RemoteAgent};
use trilogue_domain::event::StateEvent;
use trilogue_domain::interrupt::Effect;
use trilogue_domain::{Answer, Body, RunStatus};
use trilogue_sdk::agent_client::network::AgentUrl;
use trilogue_testkit::{Official, OfficialServer};

use super::rig::{Rig, until_async};

async fn rig_of(server: &OfficialServer, scheme: &str, change: impl FnOnce(&mut Launch)) -> Rig {
    let url = AgentUrl::parse(&server.url(scheme)).unwrap();
    Rig::with(&[], |launch| {
        (launch.command, launch.cwd) = (Vec::new(), None);
        launch.remote = Some(RemoteAgent { url, cwd: Some("/work".into()) });
        change(launch);
    })
    .await
}

/// Two turns, a question, and a cancelled turn.
async fn converse(server: &OfficialServer, scheme: &str) {
    let rig = rig_of(server, scheme, |_| {}).await;
    for text in ["hello", "again"] {
        let run = rig.run(&rig.thread, &format!("say:{text}")).await;
        assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, text));
    }
    let run = rig.run(&rig.thread, "permission").await;
    assert_eq!(run.status, RunStatus::Interrupted);
    let interrupt = rig.pending(&run).await;
    let allow = interrupt.options.iter().find(|it| it.effect == Effect::Allow && !it.always);
    let run = rig.answer(&run, Answer::Option(allow.unwrap().id.clone())).await;
    assert_eq!(rig.reply_text(&run).await, "allowed once");
    let run = rig.begin(&rig.thread, "slow").await.run;
    until_async("the turn has begun", async || !rig.reply_text(&run).await.is_empty()).await;
    assert_eq!(rig.cancel(&run).await.status, RunStatus::Cancelled);
    rig.end().await;
}

/// Two threads over one connection.
async fn share(server: &OfficialServer, scheme: &str) {
    let rig = rig_of(server, scheme, |launch| launch.processes = Processes::Shared).await;
    let (one, two) = (rig.thread().await, rig.thread().await);
    let begun = (rig.begin(&one, "permission").await, rig.begin(&two, "say:two").await);
    let second = rig.wait_until_settled(&begun.1.run).await;
    assert_eq!(rig.reply_text(&second).await, "two");
    let first = rig.wait_until_settled(&begun.0.run).await;
    assert_eq!(first.status, RunStatus::Interrupted);
    rig.cancel(&first).await;
    rig.end().await;
}

/// A session that is loaded over another connection.
async fn load(server: &OfficialServer, scheme: &str) {
    let rig =
        rig_of(server, scheme, |launch| launch.idle_stop = Some(Duration::from_millis(20))).await;
    rig.run(&rig.thread, "say:first").await;
    until_async("the connection is closed", async || {
        let log = rig.log(&rig.thread).await;
        log.iter().any(|event| matches!(&event.body, Body::State(StateEvent::Custom { kind, .. }) if kind == "agent_stopped"))
    })
    .await;
    let run = rig.run(&rig.thread, "say:second").await;
    assert_eq!((run.status, &*rig.reply_text(&run).await), (RunStatus::Completed, "second"));
    assert!(rig.custom(&run, "session_restarted").await.is_empty());
    rig.end().await;
}

#[tokio::test]
async fn an_agent_behind_the_rust_server_works_over_both_transports() {
    let server = OfficialServer::start(Official::Rust).await.unwrap();
    for scheme in ["ws", "http"] {
        converse(&server, scheme).await;
        share(&server, scheme).await;
        load(&server, scheme).await;
    }
}

#[tokio::test]
async fn an_agent_behind_the_typescript_server_works_over_both_transports() {
    let server = OfficialServer::start(Official::TypeScript).await.unwrap();
    for scheme in ["ws", "http"] {
        converse(&server, scheme).await;
        share(&server, scheme).await;
        load(&server, scheme).await;
    }
}

#[tokio::test]
async fn an_agent_behind_the_python_server_works_over_both_transports() {
    let server = OfficialServer::start(Official::Python).await.unwrap();
    for scheme in ["ws", "http"] {
        converse(&server, scheme).await;
        share(&server, scheme).await;
    }
    // Over HTTP this server knows no session that was loaded.
    load(&server, "ws").await;
}
