//! What each protocol says while the database of the store cannot be reached.

use std::time::Duration;

use serde_json::{Value, json};
use trilogue_testkit::services::Services;
use trilogue_testkit::{Folder, Server, ServerOptions, until};

use crate::echo;

/// How long the server may take to notice the outage without a request.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_database_has_the_code_of_each_protocol() {
    let services = Services::start().await.unwrap();
    let dir = Folder::new().unwrap();
    let options =
        ServerOptions { store: services.postgres().to_owned(), ..ServerOptions::default() };
    let server = Server::start(dir.path(), &options).await.unwrap();
    let client = server.client();
    echo(&client, "t", "before").await.ok().unwrap();
    // The database ends with its services.
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
