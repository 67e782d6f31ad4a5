//! Servers that share a PostgreSQL store and notify each other over NATS: a change on one of them takes effect on all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use trilogue_domain::{InterruptId, PrincipalId, Rights, RunId};
use trilogue_gateway::Options;
use trilogue_store::NodeOptions;
use trilogue_testkit::client::{Reply, Stream};
use trilogue_testkit::port::reserve_address;
use trilogue_testkit::services::{new_schema, service};
use trilogue_testkit::until;

use crate::page_sessions::{code, sign_in};
use crate::rig::{LIMIT, NoOriginals, Rig, Setup, text};

const CHANGES: &str = "/api/v1/changes";
/// Longer than any test: a node that learns of a change sooner was notified of it.
const NEVER: Duration = Duration::from_secs(3_600);
/// Longer than a notification from another node takes, even if the first one is lost.
const DEADLINE: Duration = Duration::from_secs(3);

/// Starts a node with the store in this schema.
async fn node(schema: &str, name: &str, news: Option<String>, setup: Setup) -> Rig {
    let address = reserve_address().unwrap();
    node_at(schema, name, (address, address), news, setup).await
}

/// Starts a node that listens at the first address and tells the others the second one.
async fn node_at(
    schema: &str,
    name: &str,
    (address, told): (SocketAddr, SocketAddr),
    news: Option<String>,
    setup: Setup,
) -> Rig {
    let node = NodeOptions {
        news,
        poll: Duration::from_millis(100),
        ..NodeOptions::new(name.to_owned(), format!("http://{told}"))
    };
    let server = service("TRILOGUE_POSTGRES").unwrap();
    let url = format!("{server}?options=-csearch_path%3D{schema}");
    let options = trilogue_store::Options {
        node: Some(node),
        ..trilogue_store::Options::new(Arc::new(NoOriginals))
    };
    let store = trilogue_store::open(&url, options).await.unwrap();
    let options = Options {
        has_nodes: true,
        node_name: name.to_owned(),
        token_recheck: NEVER,
        ..setup.options
    };
    let (shared_store, listen) = (Some(store), Some(address));
    Rig::of(Setup { options, shared_store, listen, ..setup }).await
}

/// Two nodes that receive each other's notifications.
pub(crate) async fn two_nodes(setup: impl Fn() -> Setup) -> (Rig, Rig) {
    let (_, schema) = new_schema("nodes").await.unwrap();
    let nats = || Some(service("TRILOGUE_NATS").unwrap());
    let a = node(&schema, "a", nats(), setup()).await;
    let b = node(&schema, "b", nats(), setup()).await;
    a.token("alpha", "alice", Rights::all(), false).await;
    hears(&a, &b).await;
    hears(&b, &a).await;
    (a, b)
}

/// Waits until one node lists a change of the other: notifications are lost before both are connected.
async fn hears(one: &Rig, other: &Rig) {
    let mut stream = one.alice().stream(CHANGES, None).await.unwrap();
    let changing = async {
        loop {
            other.alice().post("/api/v1/threads", &json!({})).await.unwrap().ok().unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = changing => {}
        _ = change(&mut stream, "thread") => {}
    }
}

/// The next change of this kind.
async fn change(stream: &mut Stream, kind: &str) -> Value {
    let changed = async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            let change: Value = serde_json::from_str(&event.data).unwrap();
            if change["kind"] == kind {
                return change;
            }
        }
    };
    tokio::time::timeout(LIMIT, changed).await.unwrap()
}

async fn run_of(rig: &Rig, id: &str) -> Value {
    rig.alice().get(&format!("/api/v1/runs/{id}")).await.unwrap().ok().unwrap()
}

#[tokio::test]
async fn the_list_of_changes_has_those_of_all_nodes() {
    let (a, b) = two_nodes(Setup::default).await;
    let mut stream = b.alice().stream(CHANGES, None).await.unwrap();
    let run = a.run_on("asked", "ask").await;
    let created = change(&mut stream, "run").await;
    assert_eq!((&created["run_id"], &created["agent"]), (&run["id"], &json!("puppet")));
    let asked = change(&mut stream, "interrupt").await;
    assert_eq!(asked["interrupt_id"], run["interrupts"][0]["id"]);
    // The answer goes to a node that does not own the run.
    let path = format!("/api/v1/interrupts/{}/answer", text(&asked, "/interrupt_id"));
    b.alice().post(&path, &json!({ "option": "yes" })).await.unwrap().ok().unwrap();
    assert_eq!(change(&mut stream, "interrupt").await["pending"], false);
    while change(&mut stream, "run").await["status"] != "completed" {}
}

#[tokio::test]
async fn a_node_that_hears_no_others_says_so_in_its_list_of_changes() {
    let (_, schema) = new_schema("nodes").await.unwrap();
    let rig = node(&schema, "a", None, Setup::default()).await;
    rig.token("alpha", "alice", Rights::all(), false).await;
    let mut stream = rig.alice().stream(CHANGES, None).await.unwrap();
    let missed = tokio::time::timeout(LIMIT, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(missed.event.as_deref(), Some("missed"));
}

#[tokio::test]
async fn an_answer_without_an_id_is_for_the_question_that_any_node_showed_last() {
    let (a, b) = two_nodes(Setup::default).await;
    let run = a.run_on("asks", "ask 2").await;
    let id = text(&run, "/id");
    let first = text(&run, "/interrupts/0/id").to_owned();
    assert_eq!(run_of(&b, id).await["interrupts"][0]["id"], *first, "both have shown it");
    let path = format!("/api/v1/interrupts/{first}/answer");
    a.alice().post(&path, &json!({ "option": "yes" })).await.unwrap().ok().unwrap();
    let second = async || {
        let shown = run_of(&a, id).await["interrupts"][0]["id"].clone();
        Some(shown.as_str()?.to_owned()).filter(|shown| *shown != first)
    };
    let second = until("the second question", LIMIT, second).await.unwrap();
    let second = InterruptId::parse(&second).unwrap();
    let (alice, run_id) = (PrincipalId::parse("alice").unwrap(), RunId::parse(id).unwrap());
    let heard = async || (b.runtime.last_shown(&alice, &run_id)? == second).then_some(());
    until("the other node hears what was shown", LIMIT, heard).await.unwrap();
    let path = format!("/connect/threads/asks/runs/{id}");
    let answered = b.alice().post(&path, &json!({ "option_id": "yes" })).await.unwrap();
    assert_eq!(answered.status, 200, "{}", answered.json());
    let done = async || (run_of(&a, id).await["status"] == "completed").then_some(());
    until("the end of the run", LIMIT, done).await.unwrap();
}

#[tokio::test]
async fn a_client_of_any_node_keeps_a_question_open() {
    let setup = || Setup { interrupt_deadline: Some(DEADLINE), ..Setup::default() };
    let (a, b) = two_nodes(setup).await;
    a.alice().post("/api/v1/threads", &json!({ "id": "read" })).await.unwrap().ok().unwrap();
    let stream = b.alice().stream("/api/v1/threads/read/events", None).await.unwrap();
    let attended = a.run_on("read", "ask").await;
    let alone = a.run_on("alone", "ask").await;
    let status = async |run: &Value| run_of(&a, text(run, "/id")).await["status"].clone();
    // The agent continues without the permission.
    let ended = async || (status(&alone).await != "interrupted").then_some(());
    until("the end of the question that nobody sees", LIMIT, ended).await.unwrap();
    assert_eq!(status(&attended).await, "interrupted", "somebody may answer");
    drop(stream);
    let ended = async || (status(&attended).await != "interrupted").then_some(());
    until("the end of the other one", LIMIT, ended).await.unwrap();
}

#[tokio::test]
async fn a_link_for_signing_in_works_on_any_node_and_once() {
    let setup = || Options { inspector: Some(String::new()), ..Options::default() }.into();
    let (a, b) = two_nodes(setup).await;
    let code = code(&a, "alpha", "alice").await;
    let signed_in = sign_in(&b, &code).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.json());
    for rig in [&a, &b] {
        assert_eq!(sign_in(rig, &code).await.code(), "unauthenticated");
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_all_nodes_that_hear_of_it() {
    let (a, b) = two_nodes(Setup::default).await;
    let made = json!({"label": "short", "principal": "alice", "rights": ["read"]});
    let made = a.alice().post("/api/v1/tokens", &made).await.unwrap().ok().unwrap();
    let there = b.stranger().with_token(text(&made, "/secret"));
    assert_eq!(there.get("/api/v1/threads").await.unwrap().status, 200);

    a.revoke(&format!("/api/v1/tokens/{}", text(&made, "/token/id"))).await;
    // Without a notification, the node would accept the token for longer than the test.
    let refused = async || {
        let status = there.get("/api/v1/threads").await.unwrap().status;
        (status == 401).then_some(())
    };
    until("the token to be forgotten", LIMIT, refused).await.unwrap();
}

/// Has `b` ask a question, and checks that `a` cannot send the answer on. Returns the run and the refusal.
async fn refused_answer(a: &Rig, b: &Rig) -> (Value, Reply) {
    a.token("alpha", "alice", Rights::all(), false).await;
    let run = b.run_on("there", "ask").await;
    let path = format!("/api/v1/interrupts/{}/answer", text(&run, "/interrupts/0/id"));
    let refused = a.alice().post(&path, &json!({ "option": "yes" })).await.unwrap();
    assert_eq!(refused.code(), "peer_unavailable", "{}", refused.json());
    (run, refused)
}

#[tokio::test]
async fn a_node_at_whose_address_another_one_answers_gets_no_request() {
    let (_, schema) = new_schema("nodes").await.unwrap();
    let at = || reserve_address().unwrap();
    let (first, second) = (at(), at());
    let a = node_at(&schema, "a", (first, first), None, Setup::default()).await;
    // Like two machines whose nodes both say `localhost`: the address of b leads a to itself.
    let b = node_at(&schema, "b", (second, first), None, Setup::default()).await;
    let (run, refused) = refused_answer(&a, &b).await;
    let message = refused.json()["detail"].to_string();
    assert!(message.contains("where the node 'b' should be, another node answered"), "{message}");
    // The right node answers to its name, and the same node refuses a request for another one.
    for (name, status, answered) in [("b", 200, "b"), ("a", 503, "?")] {
        let headers = [("trilogue-node", name)];
        let response = b
            .alice()
            .send(http::Method::GET, "/api/v1/threads", &headers, Bytes::new())
            .await
            .unwrap();
        let said = response.headers["trilogue-node"].to_str().unwrap();
        assert_eq!((response.status, said), (status, answered), "{}", response.json());
    }
    assert_eq!(run_of(&b, text(&run, "/id")).await["status"], "interrupted");
}

#[tokio::test]
async fn a_program_that_numbers_its_responses_counts_as_no_node() {
    let (_, schema) = new_schema("nodes").await.unwrap();
    let a = node(&schema, "a", None, Setup::default()).await;
    // Many proxies and servers give each response an `x-request-id`.
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (listen, told) = (reserve_address().unwrap(), other.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = other.accept().await {
            let _ = stream.read(&mut [0; 4_096]).await;
            let answer = b"HTTP/1.1 200 OK\r\nx-request-id: 1\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
        }
    });
    let b = node_at(&schema, "b", (listen, told), None, Setup::default()).await;
    refused_answer(&a, &b).await;
}

#[tokio::test]
async fn searches_of_one_principal_leave_connections_to_the_store_to_others() {
    const SEARCHES: usize = 24;
    const MOST: i64 = 3;
    let (database, schema) = new_schema("nodes").await.unwrap();
    let rig = node(&schema, "a", None, Setup::default()).await;
    for principal in ["alice", "bob"] {
        rig.token("alpha", principal, Rights::all(), false).await;
    }
    let (alice, bob) = (rig.alice(), rig.as_("alpha", "bob"));
    alice.get("/api/v1/tokens").await.unwrap().ok().unwrap();
    let body = json!({});
    for (path, table) in [
        ("/connect/threads/search", "threads"),
        ("/connect/runs/search", "runs"),
        ("/api/v1/threads", "threads"),
        ("/api/v1/runs", "runs"),
    ] {
        // While another program holds the table, a search keeps its connection.
        let lock = format!("BEGIN; LOCK TABLE {schema}.{table} IN ACCESS EXCLUSIVE MODE");
        database.batch_execute(&lock).await.unwrap();
        let waiting = format!(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{schema}.{table}'::regclass"
        );
        let waiting = async || database.query_one(&waiting, &[]).await.unwrap().get::<_, i64>(0);
        let search = async || match path.ends_with("search") {
            true => alice.post(path, &body).await,
            false => alice.get(path).await,
        };
        let searches = futures_util::future::join_all((0..SEARCHES).map(|_| search()));
        let others = async {
            let begun = async || (waiting().await >= MOST).then_some(());
            until("the searches", LIMIT, begun).await.unwrap();
            for _ in 0..SEARCHES {
                let read = bob.get("/api/v1/tokens");
                let read = tokio::time::timeout(LIMIT, read).await;
                let read = read.unwrap_or_else(|_| panic!("{path}")).unwrap();
                assert_eq!(read.status, 200, "{}", read.json());
            }
            // The server's own work may wait for the table too.
            let most = MOST + 2;
            assert!(waiting().await <= most, "{path}");
            database.batch_execute("ROLLBACK").await.unwrap();
        };
        let (found, ()) = tokio::join!(searches, others);
        assert!(found.into_iter().all(|found| found.unwrap().status == 200), "{path}");
    }
}
