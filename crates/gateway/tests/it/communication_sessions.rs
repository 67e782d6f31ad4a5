//! Sessions: histories that grow, that clients bring, and that other servers hold; states; resources.

use std::collections::HashSet;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;
use trilogue_gateway::Options;
use trilogue_testkit::parts::principal;
use trilogue_testkit::{Client, until};

use crate::communication::{
    BASE, get, last_text, on_disk, outgoing, post, run, run_in, run_of, served, start, user_input,
    with,
};
use crate::rig::{LIMIT, Rig, text};

const SESSION: &str = "00000000-0000-4000-8000-000000000001";

async fn session(client: &Client, id: &str) -> Value {
    let reply = get(client, &format!("/sessions/{id}")).await;
    let session = reply.ok().unwrap();
    let alias = get(client, &format!("/session/{id}")).await.ok().unwrap();
    assert_eq!(alias, session);
    session
}

fn history(session: &Value) -> Vec<String> {
    let urls = session["history"].as_array().unwrap();
    urls.iter().map(|url| url.as_str().unwrap().to_owned()).collect()
}

async fn message(rig: &Rig, address: &str) -> Value {
    let path = address.strip_prefix(&format!("http://{}", rig.address)).unwrap();
    let reply = rig.alice().get(path).await.unwrap();
    assert_eq!(reply.headers["content-type"], "application/json");
    reply.ok().unwrap()
}

async fn texts(rig: &Rig, id: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for address in history(&session(&rig.alice(), id).await) {
        let message = message(rig, &address).await;
        texts.push(format!("{}: {}", text(&message, "/role"), text(&message, "/parts/0/content")));
    }
    texts
}

async fn with_session(client: &Client, agent: &str, content: &str, session: &Value) -> Value {
    let mut body = run_of(agent, content, "sync");
    body["session"] = session.clone();
    post(client, "/runs", &body).await.ok().unwrap()
}

fn outputs(run: &Value) -> Vec<&str> {
    run["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| text(message, "/parts/0/content"))
        .collect()
}

#[tokio::test]
async fn a_session_grows_with_every_run_that_completes() {
    for rig in [start().await, on_disk().await] {
        grows(rig).await;
    }
}

async fn grows(rig: Rig) {
    let client = rig.alice();
    let alone = run(&client, "echo", "alone").await;
    assert_eq!(
        texts(&rig, text(&alone, "/session_id")).await,
        ["user: alone", "agent/echo: alone"]
    );
    assert_eq!(get(&client, &format!("/sessions/{SESSION}")).await.code(), "not_found");
    let first = run_in(&client, SESSION, "echo", "one").await;
    assert_eq!(text(&first, "/session_id"), SESSION);
    run_in(&client, SESSION, "raiser", "lost").await;
    let second = run_in(&client, SESSION, "history", "two").await;
    assert_eq!(outputs(&second), ["one", "one", "two"]);
    assert_eq!(
        texts(&rig, SESSION).await,
        [
            "user: one",
            "agent/echo: one",
            "user: two",
            "agent/history: one",
            "agent/history: one",
            "agent/history: two",
        ]
    );
    let now = session(&client, SESSION).await;
    assert_eq!((text(&now, "/id"), &now["state"]), (SESSION, &Value::Null));
    for address in history(&now) {
        assert!(
            address.starts_with(&format!("http://{}{BASE}/resources/", rig.address)),
            "{address}"
        );
    }
    let output = message(&rig, &history(&now)[1]).await;
    assert_eq!(output, first["output"][0]);
}

#[tokio::test]
async fn a_session_of_any_uuid_form_is_one_session() {
    let (rig, client) = served().await;
    run_in(&client, &SESSION.replace('-', ""), "echo", "one").await;
    run_in(&client, &format!("urn:uuid:{SESSION}"), "echo", "two").await;
    assert_eq!(texts(&rig, SESSION).await.len(), 4);
}

#[tokio::test]
async fn five_runs_at_once_leave_ten_entries() {
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        let runs = (0..5).map(|number| {
            let client = client.clone();
            async move { run_in(&client, SESSION, "echo", &number.to_string()).await }
        });
        for run in join_all(runs).await {
            assert_eq!(text(&run, "/status"), "completed");
        }
        let texts = texts(&rig, SESSION).await;
        assert_eq!(texts.len(), 10);
        for pair in texts.chunks(2) {
            assert_eq!(pair[0].strip_prefix("user: "), pair[1].strip_prefix("agent/echo: "));
        }
    }
}

#[tokio::test]
async fn a_history_that_is_brought_back_goes_on_and_an_empty_one_erases() {
    let (rig, client) = served().await;
    run_in(&client, SESSION, "echo", "one").await;
    let known = session(&client, SESSION).await;
    let done = with_session(&client, "history", "two", &known).await;
    assert_eq!(outputs(&done), ["one", "one", "two"]);
    let longer = session(&client, SESSION).await;
    assert_eq!(history(&longer)[..2], history(&known)[..]);
    assert_eq!(history(&longer).len(), 6);
    // The older history replaces the longer one.
    let done = with_session(&client, "history", "three", &known).await;
    assert_eq!(outputs(&done), ["one", "one", "three"]);
    let empty = json!({"id": SESSION, "history": []});
    let done = with_session(&client, "history", "four", &empty).await;
    assert_eq!(outputs(&done), ["four"]);
    assert_eq!(texts(&rig, SESSION).await, ["user: four", "agent/history: four"]);
}

#[tokio::test]
async fn a_session_without_an_id_is_a_new_one() {
    let (_rig, client) = served().await;
    run_in(&client, SESSION, "echo", "one").await;
    let known = history(&session(&client, SESSION).await);
    let done = with_session(&client, "history", "two", &json!({"history": known})).await;
    assert_ne!(text(&done, "/session_id"), SESSION);
    assert_eq!(outputs(&done), ["one", "one", "two"]);
    // A message that another session refers to is the same message.
    let there = session(&client, text(&done, "/session_id")).await;
    assert_eq!(history(&there)[..2], known[..]);
}

#[tokio::test]
async fn a_run_that_is_refused_leaves_the_history_alone() {
    let (rig, client) = served().await;
    run_in(&client, SESSION, "echo", "one").await;
    let known = session(&client, SESSION).await;
    let mut config = run_of("setter", "x", "sync");
    config["config"] = json!({"temperature": "hot"});
    for (mut body, status) in [
        (run_of("nope", "x", "sync"), 404),
        (config, 422),
        (json!({"agent_name": "valuer", "input": user_input("no json"), "mode": "sync"}), 422),
        (json!({"agent_name": "echo", "input": [{"role": "system", "parts": []}]}), 422),
    ] {
        body["session"] = json!({"id": SESSION, "history": []});
        assert_eq!(post(&client, "/runs", &body).await.status, status, "{body}");
        assert_eq!(session(&client, SESSION).await, known);
    }
    let unknown = format!("http://{}{BASE}/resources/{SESSION}/{SESSION}", rig.address);
    for (history, state) in [
        (json!([unknown]), Value::Null),
        (
            json!([]),
            json!(format!("http://{}{BASE}/sessions/{SESSION}/state/{SESSION}", rig.address)),
        ),
    ] {
        let mut body = run_of("echo", "x", "sync");
        body["session"] = json!({"id": SESSION, "history": history, "state": state});
        let reply = post(&client, "/runs", &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"), "{body}");
        assert_eq!(session(&client, SESSION).await, known);
    }
}

#[tokio::test]
async fn a_request_that_is_repeated_replaces_the_history_once() {
    let (_rig, client) = served().await;
    let mut body = run_of("echo", "one", "sync");
    body["session"] = json!({"id": SESSION, "history": []});
    let send = async || {
        let headers = [("idempotency-key", "k")];
        let path = format!("{BASE}/runs");
        client.send(Method::POST, &path, &headers, body.to_string().into()).await.unwrap()
    };
    let first = send().await;
    assert_eq!(first.status, 200, "{}", first.json());
    let known = session(&client, SESSION).await;
    assert_eq!(send().await.body, first.body);
    assert_eq!(session(&client, SESSION).await, known);
    assert_eq!(history(&known).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_that_is_repeated_at_once_replaces_the_history_once_too() {
    let rig = on_disk().await;
    let client = rig.alice();
    for round in 0..20 {
        let mut body = run_of("echo", "one", "sync");
        let id = format!("00000000-0000-4000-8000-{round:012}");
        body["session"] = json!({"id": id, "history": []});
        let (body, key) = (body.to_string(), format!("k{round}"));
        let send = || {
            let (client, body, key) = (&client, body.clone(), key.clone());
            async move {
                let headers = [("idempotency-key", key.as_str())];
                client.send(Method::POST, &format!("{BASE}/runs"), &headers, body.into()).await
            }
        };
        let all = join_all((0..8).map(|_| send())).await;
        assert!(all.iter().all(|reply| reply.as_ref().is_ok_and(|reply| reply.status == 200)));
        assert_eq!(history(&session(&client, &id).await).len(), 2, "{round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_behind_a_request_that_is_repeated() {
    let (rig, client) = served().await;
    let mut body = run_of("sleeper", "x", "sync");
    body["session"] = json!({"id": SESSION, "history": []});
    let send = || {
        let (client, body) = (rig.alice(), body.to_string());
        tokio::spawn(async move {
            let headers = [("idempotency-key", "k")];
            client.send(Method::POST, &format!("{BASE}/runs"), &headers, body.into()).await
        })
    };
    let first = send();
    let listed = async || {
        let list = get(&client, "/runs").await.ok().unwrap();
        list["runs"][0]["run_id"].as_str().map(str::to_owned)
    };
    let id = until("the run to be there", LIMIT, listed).await.unwrap();
    let again = send();
    let mut other = run_of("echo", "x", "async");
    other["session"] = json!({"id": SESSION, "history": []});
    for _ in 0..50 {
        let reply = timeout(LIMIT, post(&client, "/runs", &other)).await.unwrap();
        assert_eq!(reply.status, 202, "{}", reply.json());
    }
    let reply = post(&client, &format!("/runs/{id}/cancel"), &Value::Null).await;
    assert_eq!(reply.status, 202, "{}", reply.json());
    for sent in [first, again] {
        let reply = timeout(LIMIT, sent).await.unwrap().unwrap().unwrap();
        assert_eq!(text(&reply.json(), "/run_id"), id);
    }
}

#[tokio::test]
async fn a_history_on_another_server_is_read_when_an_agent_asks() {
    let (here, there) = (outgoing().await, start_open().await);
    let client = here.alice();
    run_in(&there.alice(), SESSION, "echo", "over there").await;
    let known = session(&there.alice(), SESSION).await;
    let done = with_session(&client, "history", "here", &known).await;
    assert_eq!(outputs(&done), ["over there", "over there", "here"], "{done}");
    let moved = session(&client, SESSION).await;
    assert_eq!(history(&moved)[..2], history(&known)[..]);
    assert_eq!(history(&moved).len(), 6);
    // The session continues on this server.
    let done = run_in(&client, SESSION, "history", "again").await;
    assert_eq!(outputs(&done).len(), 7);
    // The session moves back to the first server, which reads the messages from this one.
    let mut back = moved.clone();
    back["history"] = json!(history(&moved)[..2]);
    let done = with_session(&there.alice(), "history", "back", &back).await;
    assert_eq!(outputs(&done), ["over there", "over there", "back"]);
}

/// A server that everyone may read, and that reaches no other server.
async fn start_open() -> Rig {
    let principal = principal("alpha", "alice");
    let access = trilogue_gateway::Access::Open(principal);
    with(Options { access, ..Options::default() }).await
}

#[tokio::test]
async fn an_address_that_cannot_be_read_fails_the_run_that_asks() {
    let (closed, open, there) = (start().await, outgoing().await, start_open().await);
    let address = |path: &str| format!("http://{}{path}", there.address);
    let ask = async |rig: &Rig, address: String| {
        let given = json!({"history": [address]});
        with_session(&rig.alice(), "history", "x", &given).await
    };
    let private = ask(&closed, address("/communication/resources/x")).await;
    assert_eq!(text(&private, "/status"), "failed");
    assert_eq!(text(&private, "/error/data/reason"), "egress_refused", "{private}");
    for path in [
        "/communication/resources/00000000-0000-4000-8000-000000000009",
        "/healthz",
        "/communication/agents",
    ] {
        let failed = ask(&open, address(path)).await;
        assert_eq!(text(&failed, "/error/data/reason"), "peer_unavailable", "{path} {failed}");
        assert!(text(&failed, "/error/message").contains("127.0.0.1"), "{failed}");
        assert!(!failed["error"].to_string().contains("ok\\n"), "{failed}");
    }
    // An agent that does not read the history does not fail.
    let given = json!({"history": [address("/healthz")]});
    assert_eq!(last_text(&with_session(&closed.alice(), "echo", "x", &given).await), "x");
}

#[tokio::test]
async fn a_state_is_shown_by_its_address_and_moves_with_the_session() {
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        assert_eq!(last_text(&run_in(&client, SESSION, "recaller", "x").await), "nothing");
        run_in(&client, SESSION, "stater", "this").await;
        let known = session(&client, SESSION).await;
        let address = text(&known, "/state").to_owned();
        assert!(
            address.starts_with(&format!("http://{}{BASE}/sessions/{SESSION}/state/", rig.address))
        );
        assert_eq!(message(&rig, &address).await, json!({"said": "this"}));
        let expected = r#"{"said":"this"}"#;
        assert_eq!(last_text(&run_in(&client, SESSION, "recaller", "x").await), expected);
        // The same session, brought back complete.
        let known = session(&client, SESSION).await;
        assert_eq!(last_text(&with_session(&client, "recaller", "x", &known).await), expected);
        // Another session with a different history and the state of this one.
        let given = json!({"history": [], "state": address});
        let done = with_session(&client, "recaller", "x", &given).await;
        assert_eq!(last_text(&done), expected);
        let there = session(&client, text(&done, "/session_id")).await;
        assert_eq!(message(&rig, text(&there, "/state")).await, json!({"said": "this"}));
    }
}

#[tokio::test]
async fn a_state_on_another_server_is_read_when_an_agent_asks() {
    let (here, there) = (outgoing().await, start_open().await);
    run_in(&there.alice(), SESSION, "stater", "far").await;
    let known = session(&there.alice(), SESSION).await;
    let done = with_session(&here.alice(), "recaller", "x", &known).await;
    assert_eq!(last_text(&done), r#"{"said":"far"}"#, "{done}");
    assert_eq!(session(&here.alice(), SESSION).await["state"], known["state"]);
    let text_state = json!({"history": [], "state": format!("http://{}/healthz", there.address)});
    let done = with_session(&here.alice(), "recaller", "x", &text_state).await;
    assert_eq!(last_text(&done), "\"ok\\n\"");
}

#[tokio::test]
async fn a_value_is_a_message_of_the_history_too() {
    let (rig, client) = served().await;
    let content = json!({"n": 1}).to_string();
    let mut body = json!({
        "agent_name": "valuer", "mode": "sync", "session_id": SESSION,
        "input": [{"role": "user", "parts": [{"content": content, "content_type": "application/json"}]}],
    });
    let done = post(&client, "/runs", &body).await.ok().unwrap();
    let output = &done["output"][0];
    assert_eq!(text(output, "/role"), "agent/valuer");
    let last = output["parts"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (text(last, "/content_type"), text(last, "/content")),
        ("application/json", content.as_str())
    );
    let known = session(&client, SESSION).await;
    let entries = history(&known);
    assert_eq!(message(&rig, entries.last().unwrap()).await, *output);
    // The session is recognised when a client brings it back.
    body["session_id"] = Value::Null;
    body["session"] = known.clone();
    post(&client, "/runs", &body).await.ok().unwrap();
    let longer = history(&session(&client, SESSION).await);
    assert_eq!(longer[..entries.len()], entries[..]);
    let heard = run_in(&client, SESSION, "history", "x").await;
    assert!(outputs(&heard).contains(&content.as_str()), "{heard}");
}

#[tokio::test]
async fn a_thread_of_our_own_face_is_a_session_where_its_id_is_a_uuid() {
    let (rig, client) = served().await;
    let body = json!({"agent": "echo", "input": "hi", "thread_id": SESSION, "create_thread": true});
    client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    assert_eq!(texts(&rig, SESSION).await, ["user: hi", "agent/echo: hi"]);
    let body = json!({"agent": "echo", "input": "hi", "thread_id": "t", "create_thread": true});
    let native = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let seen = get(&client, &format!("/runs/{}", text(&native, "/id"))).await.ok().unwrap();
    let shown = text(&seen, "/session_id");
    assert!(uuid::Uuid::parse_str(shown).is_ok_and(|id| id.get_version_num() == 5), "{shown}");
    // The thread is found by its own id, and by its UUID in this protocol.
    let known = session(&client, shown).await;
    assert_eq!((text(&known, "/id"), history(&known).len()), (shown, 2));
    assert_eq!(session(&client, "t").await, known);
    let listed = get(&client, "/runs?session_id=t").await.ok().unwrap();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    // Clients of this protocol can continue it in both of their ways.
    let done = run_in(&client, shown, "history", "more").await;
    assert_eq!(outputs(&done), ["hi", "hi", "more"]);
    let known = session(&client, shown).await;
    let done = with_session(&client, "echo", "again", &known).await;
    assert_eq!(text(&done, "/session_id"), shown);
    let thread = client.get("/api/v1/threads/t/messages").await.unwrap().ok().unwrap();
    assert_eq!(thread["items"].as_array().unwrap().len(), 8, "{thread}");
    // It can be answered, too.
    let body = json!({"agent": "awaiter", "input": "hi", "thread_id": "t", "id": "named-run"});
    let waits = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let run = text(&waits, "/id");
    trilogue_testkit::until("the question", LIMIT, async || {
        let run = get(&client, &format!("/runs/{run}")).await.json();
        (run["status"] == "awaiting").then_some(())
    })
    .await
    .unwrap();
    let answer = json!({"await_resume": {"type": "message", "message": user_input("yes")[0]}, "mode": "sync"});
    let answered = post(&client, &format!("/runs/{run}"), &answer).await.ok().unwrap();
    assert_eq!(text(&answered, "/status"), "completed", "{answered}");
    // An unknown UUID of the same kind is a new session, like every other UUID.
    let new = "6f1d3c52-9f0b-5d5e-8a77-21c40be693d1";
    assert_eq!(get(&client, &format!("/sessions/{new}")).await.status, 404);
    assert_eq!(text(&run_in(&client, new, "echo", "x").await, "/session_id"), new);
}

/// The ids that agents choose are unique only within a thread. An address names the thread and the message.
#[tokio::test]
async fn two_sessions_may_hold_a_message_of_the_same_id() {
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        let other = "00000000-0000-4000-8000-000000000002";
        run_in(&client, SESSION, "reuser", "first").await;
        run_in(&client, other, "reuser", "second").await;
        assert_eq!(texts(&rig, SESSION).await, ["user: first", "agent/reuser: first"]);
        assert_eq!(texts(&rig, other).await, ["user: second", "agent/reuser: second"]);
        let known = session(&client, other).await;
        assert_ne!(history(&known)[1], history(&session(&client, SESSION).await)[1]);
        // A run that continues it, in the same session or in a new one, gets its own messages.
        let done =
            with_session(&client, "history", "x", &json!({"history": known["history"]})).await;
        assert_eq!(outputs(&done), ["second", "second", "x"]);
        let done = with_session(&client, "history", "y", &known).await;
        assert_eq!(outputs(&done), ["second", "second", "y"]);
        // An id alone does not name a message.
        assert_eq!(get(&client, "/resources/m-1").await.status, 422);
        let mixed = format!(
            "/resources/{SESSION}/{}",
            text(&run_in(&client, other, "echo", "z").await, "/run_id")
        );
        assert_eq!(get(&client, &mixed).await.status, 404);
    }
}

#[tokio::test]
async fn addresses_are_absolute_by_what_the_client_or_the_operator_says() {
    let rig = start().await;
    let client = rig.alice();
    run_in(&client, SESSION, "echo", "x").await;
    let path = format!("{BASE}/sessions/{SESSION}");
    let port = rig.address.port();
    let host = format!("localhost:{port}");
    let headers = [("host", host.as_str())];
    let seen = client.send(Method::GET, &path, &headers, bytes::Bytes::new()).await.unwrap().json();
    assert!(text(&seen, "/history/0").starts_with(&format!("http://{host}{BASE}/resources/")));
    let public_url = Some("https://agents.example.com/x".to_owned());
    let rig = with(Options { public_url, ..Options::default() }).await;
    run_in(&rig.alice(), SESSION, "echo", "x").await;
    let known = session(&rig.alice(), SESSION).await;
    let begin = format!("https://agents.example.com/x{BASE}/resources/");
    assert!(text(&known, "/history/0").starts_with(&begin), "{known}");
    // The messages are recognised, so nothing is fetched.
    let done = with_session(&rig.alice(), "history", "y", &known).await;
    assert_eq!(outputs(&done), ["x", "x", "y"]);
}

#[tokio::test]
async fn what_belongs_to_another_tenant_cannot_be_brought_or_read() {
    let rig = start().await;
    rig.token("beta", "eve", trilogue_domain::Rights::all(), false).await;
    let (alice, eve) = (rig.alice(), rig.as_("beta", "eve"));
    run_in(&alice, SESSION, "stater", "secret").await;
    run_in(&alice, SESSION, "echo", "secret").await;
    let known = session(&alice, SESSION).await;
    assert_eq!(get(&eve, &format!("/sessions/{SESSION}")).await.status, 404);
    for (history, state) in
        [(known["history"].clone(), Value::Null), (json!([]), known["state"].clone())]
    {
        let mut body = run_of("history", "x", "sync");
        body["session"] = json!({"history": history, "state": state});
        let reply = post(&eve, "/runs", &body).await;
        assert_eq!((reply.status, reply.code().as_str()), (422, "invalid_input"));
    }
    // For another tenant, the same id is a different session.
    assert_eq!(last_text(&run_in(&eve, SESSION, "recaller", "x").await), "nothing");
    assert_eq!(session(&alice, SESSION).await, known);
}

/// Requests that come at one moment, to a thread that is new and to one that the server has loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_requests_at_one_moment_with_one_message_id_only_the_first_keeps_it() {
    const REQUESTS: usize = 16;
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        let thread = uuid::Uuid::new_v4().to_string();
        for id in ["new", "again"] {
            let input = user_input("hello");
            let first = json!({ "agent_name": "echo", "session_id": thread, "input": input });
            post(&client, "/runs", &first).await.ok().unwrap();
            let message = json!({
                "role": "user", "parts": [{ "content_type": "text/plain", "content": "x" }],
                "x_trilogue": { "message_id": id },
            });
            let body = json!({ "agent_name": "echo", "session_id": thread, "input": [message] });
            let requests = (0..REQUESTS).map(|_| post(&client, "/runs", &body));
            for reply in join_all(requests).await {
                let run = reply.ok().unwrap();
                assert_eq!(run["status"], "completed", "{run}");
            }
            let session = get(&client, &format!("/sessions/{thread}")).await.ok().unwrap();
            let history = session["history"].as_array().unwrap();
            let addresses: HashSet<&str> =
                history.iter().map(|address| address.as_str().unwrap()).collect();
            assert_eq!(addresses.len(), history.len(), "{session}");
            let kept = addresses.iter().filter(|address| address.ends_with(&format!("/{id}")));
            assert_eq!(kept.count(), 1, "{session}");
        }
        let session = get(&client, &format!("/sessions/{thread}")).await.ok().unwrap();
        // Each run has a message of the user and one of the agent.
        assert_eq!(session["history"].as_array().unwrap().len(), 4 * (REQUESTS + 1), "{session}");
    }
}

#[tokio::test]
async fn a_message_whose_id_is_taken_gets_a_new_one_on_every_protocol() {
    const ID: &str = "99999999-2222-4333-8444-555555555555";
    for rig in [start().await, on_disk().await] {
        let client = rig.alice();
        for face in ["communication", "native", "connect"] {
            let thread = uuid::Uuid::new_v4().to_string();
            if face == "connect" {
                let new = json!({ "thread_id": thread });
                client.post("/connect/threads", &new).await.unwrap().ok().unwrap();
            }
            for words in ["first", "second"] {
                let part = json!({ "content_type": "text/plain", "content": words });
                let (path, body) = match face {
                    "communication" => {
                        let message = json!({ "role": "user", "parts": [part], "x_trilogue": { "message_id": ID } });
                        let run = json!({ "agent_name": "echo", "session_id": thread, "input": [message] });
                        ("/communication/runs".to_owned(), run)
                    }
                    "native" => {
                        let message = json!({ "role": "user", "parts": [part], "id": ID });
                        let run = json!({
                            "agent": "echo", "thread_id": thread, "create_thread": true,
                            "mode": "wait", "input": [message],
                        });
                        ("/api/v1/runs".to_owned(), run)
                    }
                    _ => {
                        let message = json!({ "role": "user", "content": words, "id": ID });
                        let run = json!({ "agent_id": "echo", "input": { "messages": [message] } });
                        (format!("/connect/threads/{thread}/runs/wait"), run)
                    }
                };
                client.post(&path, &body).await.unwrap().ok().unwrap();
            }
            let session = get(&client, &format!("/sessions/{thread}")).await.ok().unwrap();
            let history = session["history"].as_array().unwrap();
            assert_eq!(history.len(), 4, "{face}: {session}");
            assert!(history[0].as_str().unwrap().ends_with(ID), "{face}: {session}");
            let mut found = Vec::new();
            for address in history {
                let (_, path) = address.as_str().unwrap().split_once("/communication").unwrap();
                let message = get(&client, path).await.ok().unwrap();
                found.push(text(&message, "/parts/0/content").to_owned());
            }
            assert_eq!(found, ["first", "first", "second", "second"], "{face}: {session}");
        }
        let message =
            json!({ "parts": [{ "content_type": "text/plain", "content": "x" }], "id": ID });
        let twins = json!({ "agent": "echo", "input": [message, message] });
        let refused = client.post("/api/v1/runs", &twins).await.unwrap();
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_request"));
        let refused = refused.json().to_string();
        assert!(refused.contains("input[1].id is the id of an earlier message"), "{refused}");
    }
}
