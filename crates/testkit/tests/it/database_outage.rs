//! The responses of each protocol while the store's database cannot be reached.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use trilogue_testkit::services::connect;
use trilogue_testkit::{
    DatabaseStop, Folder, Link, Replication, Server, ServerOptions, Services, until,
};

use crate::client_official::{hosted, scripted};
use crate::cluster_outage::{create, follow, working};
use crate::kill_rounds::{announced_seed, stop};
use crate::{echo, events};

/// The time limit for the server to notice the outage without a request.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);
/// How long no server is the primary, in milliseconds: at least, and at most.
const FAILOVER_MS: (u64, u64) = (2_000, 4_000);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_database_has_the_code_of_each_protocol() {
    let services = Services::start().await.unwrap();
    let dir = Folder::new().unwrap();
    let options =
        ServerOptions { store: services.postgres().to_owned(), ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let client = server.client();
    echo(&client, "t", "before").await.ok().unwrap();
    // Stopping the services ends the database.
    drop(services);

    let input = json!([{ "role": "user", "parts": [{ "content": "x" }] }]);
    let requests = [
        ("/api/v1/runs", None, "/code", "store_unavailable"),
        ("/api/v1/threads/t/events", None, "/code", "store_unavailable"),
        ("/communication/runs", None, "/data/reason", "store_unavailable"),
        (
            "/communication/runs",
            Some(json!({ "agent_name": "echo", "input": input })),
            "/data/reason",
            "store_unavailable",
        ),
        ("/connect/threads/search", Some(json!({})), "/code", "overloaded"),
        (
            "/connect/runs/wait",
            Some(json!({ "agent_id": "echo", "input": { "message": "x" } })),
            "/code",
            "overloaded",
        ),
    ];
    for (path, body, place, code) in requests {
        let reply = match &body {
            Some(body) => client.post(path, body).await.unwrap(),
            None => client.get(path).await.unwrap(),
        };
        let said = reply.json().pointer(place).and_then(Value::as_str).map(str::to_owned);
        assert_eq!((reply.status, said.as_deref()), (503, Some(code)), "{path}: {reply:?}");
        assert!(reply.headers.contains_key("retry-after"), "{path}: {reply:?}");
        if path.starts_with("/communication") {
            assert_eq!(reply.json()["code"], "server_error", "{path}: {reply:?}");
        }
    }
    until("the server to be not ready", NOTICE_LIMIT, || async {
        let reply = client.get("/readyz").await.ok()?;
        (reply.body == "not ready: store_unavailable\n" && reply.status == 503).then_some(())
    })
    .await
    .unwrap();
}

/// A server without a cluster gives no signs of life. The primary stands still: statements that were sent to it never get an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_loses_no_run_when_a_replica_takes_the_place_of_the_primary() {
    let services = Services::start_replicated(Replication::Synchronous).await.unwrap();
    let (dir, sessions) = (Folder::new().unwrap(), Folder::new().unwrap());
    let agent = scripted(&sessions.path().join("sessions"), &[]).await;
    let options = ServerOptions {
        store: services.postgres().to_owned(),
        settings: hosted(&[("scripted", agent)]),
        ..ServerOptions::default()
    };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let (least, most) = FAILOVER_MS;
    let time = Duration::from_millis(least + announced_seed().below(most - least));
    let asking = "say:one\nslow:400\npermission\nsay:two".to_owned();
    let work = [("scripted", working(time)), ("scripted", asking), ("researcher", "x".to_owned())];
    let mut runs = JoinSet::new();
    for (index, (agent, input)) in work.into_iter().enumerate() {
        let client = server.client();
        let run = create(&client, agent, &format!("t{index}"), &input).await.unwrap();
        runs.spawn(async move { follow(&client, &run, index == 1).await });
    }
    services.fail_over(DatabaseStop::Pause, time).await.unwrap();
    while let Some(ended) = runs.join_next().await {
        ended.unwrap().unwrap();
    }
    stop(server).await;
}

/// What was acknowledged and is gone is not replaced by other events with the same numbers, whether or not the server has started again since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_whose_newest_events_a_replica_lacks_is_closed_until_it_is_erased() {
    let services = Services::start_replicated(Replication::Asynchronous).await.unwrap();
    let dir = Folder::new().unwrap();
    let options =
        ServerOptions { store: services.postgres().to_owned(), ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let client = server.client();
    for thread in ["t", "u"] {
        echo(&client, thread, "kept").await.ok().unwrap();
    }
    services.detach().await.unwrap();
    echo(&client, "t", "lost").await.ok().unwrap();
    let page = client.get("/api/v1/threads/t/events?limit=1000").await.unwrap().ok().unwrap();
    let items = page["items"].as_array().unwrap();
    let position = items.last().unwrap()["id"].as_str().unwrap().to_owned();
    services.fail_over(DatabaseStop::Immediate, Duration::ZERO).await.unwrap();

    echo(&client, "u", "goes on").await.ok().unwrap();
    let refused = echo(&client, "t", "more").await;
    assert_eq!(refused.code(), "thread_quarantined", "{refused:?}");
    let body = String::from_utf8_lossy(&refused.body).into_owned();
    assert!(body.contains("the database had acknowledged events up to"), "{body}");
    let log = server.home().log_end();
    assert!(log.contains("the new primary lacks changes that the old one acknowledged"), "{log}");
    let (home, _) = server.stop().await.unwrap();

    let server = home.start().await.unwrap();
    let client = server.client();
    let store = async || client.get("/api/v1/status").await.unwrap().ok().unwrap()["store"].clone();
    assert_eq!(store().await["lost_commits"], 1);
    let path = format!("/api/v1/threads/t/events?after={position}");
    let beyond = client.get(&path).await.unwrap();
    assert_eq!(beyond.code(), "invalid_cursor", "{beyond:?}");
    let refused = echo(&client, "t", "more").await;
    assert_eq!(refused.code(), "thread_quarantined", "{refused:?}");
    assert_eq!(store().await["quarantined"], 1);
    let erased = client.send(Method::DELETE, "/api/v1/threads/t", &[], Bytes::new()).await.unwrap();
    assert!(erased.status < 300, "{erased:?}");
    assert_eq!(store().await["lost_commits"], 0);
    echo(&client, "t", "anew").await.ok().unwrap();
    stop(server).await;
}

/// The server that was promoted last is the primary, even if the one before takes writes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_was_replaced_gets_nothing_when_it_comes_back() {
    let services = Services::start_replicated(Replication::Synchronous).await.unwrap();
    let old = services.hosts().unwrap()[0];
    let link = Link::to(old).await.unwrap();
    let dir = Folder::new().unwrap();
    let options = ServerOptions {
        store: format!("postgres://trilogue@{}/postgres", link.address()),
        store_settings: "retry_for = \"500ms\"".to_owned(),
        ..ServerOptions::default()
    };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let client = server.client();
    echo(&client, "t", "one").await.ok().unwrap();
    // The old one runs on.
    let new = services.promote().await.unwrap();
    let database = connect(&format!("postgres://trilogue@{old}/postgres")).await.unwrap();
    let frames = async || {
        let row = database.query_one("SELECT count(*) FROM frames", &[]).await.unwrap();
        row.get::<_, i64>(0)
    };
    let before = frames().await;
    let succeeds = async |text: &str| {
        until("a run to succeed", NOTICE_LIMIT, || async {
            echo(&client, "t", text).await.ok().ok()
        })
        .await
        .unwrap();
    };
    link.redirect(new);
    succeeds("two").await;
    link.redirect(old);
    until("the server to refuse the old primary", NOTICE_LIMIT, || async {
        let reply = echo(&client, "t", "lost").await;
        let body = String::from_utf8_lossy(&reply.body).into_owned();
        let says = body.contains("a server that was the primary before answers");
        (reply.code() == "store_unavailable" && says).then_some(())
    })
    .await
    .unwrap();
    link.redirect(new);
    succeeds("three").await;
    assert_eq!(frames().await, before, "the old primary was written to");
    let text = serde_json::to_string(&events(&client, "t").await.unwrap()).unwrap();
    for word in ["one", "two", "three"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    assert!(!text.contains("thread_quarantined"), "{text}");
    stop(server).await;
}
