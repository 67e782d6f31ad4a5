//! The client of the Agent Communication Protocol over a scripted transport.

use std::sync::Arc;

use serde_json::{Value, json as value};
use trilogue_sdk::client::communication::{Client, Filter, NewRun, RunStream, Session};
use trilogue_sdk::client::{ClientError, Method, Options, Request, Transport, TransportError};
use trilogue_wire::agent_communication::{
    Event, EventKind, Message, MessagePart, RunStatus, Session as Descriptor, Uuid,
};

use crate::script::{Script, Scripted, events, events_of_a_minute, header, json, of_run};

const RUN: &str = "2a4496e1-b907-4b65-9cec-2ae5658024fe";
const SESSION: &str = "87cd7dc0-0000-4000-8000-000000000001";

type Answered = Result<Scripted, TransportError>;

fn client(script: &Arc<Script>) -> Client {
    Client::new(Arc::clone(script) as Arc<dyn Transport>, Options::at("/communication/"))
}

fn run_id() -> Uuid {
    RUN.parse().unwrap()
}

fn run(status: &str) -> String {
    format!(
        r#"{{"run_id":"{RUN}","agent_name":"echo","session_id":"{SESSION}","status":"{status}","await_request":null,"output":[],"error":null,"created_at":"2026-11-20T23:50:09.146119Z","finished_at":null}}"#
    )
}

fn of_the_run(kind: &str, status: &str) -> String {
    format!(r#"{{"type":"{kind}","run":{}}}"#, run(status))
}

fn created() -> String {
    of_the_run("run.created", "created")
}

fn in_progress() -> String {
    of_the_run("run.in-progress", "in-progress")
}

fn awaiting() -> String {
    of_the_run("run.awaiting", "awaiting")
}

fn completed() -> String {
    of_the_run("run.completed", "completed")
}

fn part(text: &str) -> String {
    format!(
        r#"{{"type":"message.part","part":{{"name":null,"content_type":"text/plain","content":"{text}","content_encoding":"plain","content_url":null,"metadata":null}}}}"#
    )
}

/// Renders events without ids.
fn bare(data: &[String]) -> String {
    data.iter().map(|json| format!("data: {json}\n\n")).collect()
}

/// Renders events with ids, starting at `first`.
fn numbered(first: usize, data: &[String]) -> String {
    (first..).zip(data).map(|(id, json)| format!("id: {id}\ndata: {json}\n\n")).collect()
}

fn list(data: &[String]) -> Answered {
    json(200, &format!(r#"{{"events":[{}]}}"#, data.join(",")))
}

fn refusal(status: u16, code: &str, data: &str) -> Answered {
    json(status, &format!(r#"{{"code":"{code}","message":"no","data":{data}}}"#))
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn paths(script: &Script) -> Vec<String> {
    let named = |request: Request| format!("{} {}", request.method.as_str(), request.path);
    script.requests().into_iter().map(named).collect()
}

async fn collect_events(stream: &mut RunStream) -> Result<Vec<String>, ClientError> {
    let mut told = Vec::new();
    while let Some(streamed) = stream.next().await? {
        let kind = streamed.event.kind().as_str();
        assert!(streamed.json.contains(kind), "{}", streamed.json);
        told.push(match streamed.event {
            Event::MessagePart { part } => part.content.unwrap(),
            _ => kind.to_owned(),
        });
    }
    Ok(told)
}

fn events_path() -> String {
    format!("GET /communication/runs/{RUN}/events")
}

#[tokio::test]
async fn every_call_asks_what_the_protocol_says() {
    let manifest = r#"{"name":"echo","description":"","metadata":{},"input_content_types":["*/*"],"output_content_types":["*/*"],"status":{"x":1}}"#;
    let agents = format!(r#"{{"agents":[{manifest}]}}"#);
    let script = Script::new(vec![
        json(200, "{}"),
        json(200, &agents),
        json(200, &agents),
        json(200, manifest),
        json(200, &run("completed")),
        json(202, &run("created")),
        json(200, &run("completed")),
        json(202, &run("in-progress")),
        json(202, &run("cancelling")),
        json(200, &run("cancelled")),
        list(&[created(), completed()]),
        json(200, &format!(r#"{{"runs":[{}],"next":"c"}}"#, run("failed"))),
        json(200, r#"{"role":"agent/echo","parts":[],"created_at":null,"completed_at":null}"#),
    ]);
    let client = client(&script);
    client.ping().await.unwrap();
    assert_eq!(client.agents().await.unwrap().agents[0].name, "echo");
    client.agents_page(2, 4).await.unwrap();
    client.agent("echo").await.unwrap();
    let session: Uuid = SESSION.parse().unwrap();
    let new = NewRun::new("echo", "hi").in_session(session).config(value!({ "a": 1 }));
    client.run_sync(new.idempotency_key("order-7")).await.unwrap();
    client.run_async(NewRun::new("echo", [MessagePart::text("hi")])).await.unwrap();
    client.resume_sync(run_id(), "Bob").await.unwrap();
    let answer = trilogue_sdk::client::communication::Resume::from(Message::user(Vec::new()));
    client.resume_async(run_id(), answer.for_interrupt("i-7")).await.unwrap();
    assert_eq!(client.cancel(run_id()).await.unwrap().status, RunStatus::Cancelling);
    client.run(run_id()).await.unwrap();
    assert_eq!(client.events(run_id()).await.unwrap().events.len(), 2);
    let filter = Filter {
        agent_name: Some("e".to_owned()),
        session_id: Some(session),
        status: Some(RunStatus::InProgress),
        after: Some("a&b".to_owned()),
        limit: Some(5),
    };
    assert_eq!(client.runs(&filter).await.unwrap().next.as_deref(), Some("c"));
    client.resource("6571659e").await.unwrap();
    let run = format!("/communication/runs/{RUN}");
    assert_eq!(
        paths(&script),
        [
            "GET /communication/ping".to_owned(),
            "GET /communication/agents".to_owned(),
            "GET /communication/agents?limit=2&offset=4".to_owned(),
            "GET /communication/agents/echo".to_owned(),
            "POST /communication/runs".to_owned(),
            "POST /communication/runs".to_owned(),
            format!("POST {run}"),
            format!("POST {run}"),
            format!("POST {run}/cancel"),
            format!("GET {run}"),
            format!("GET {run}/events"),
            format!(
                "GET /communication/runs?agent_name=e&session_id={SESSION}&status=in-progress&after=a%26b&limit=5"
            ),
            "GET /communication/resources/6571659e".to_owned(),
        ]
    );
    let requests = script.requests();
    let first = body(&requests[4]);
    assert_eq!(header(&requests[4], "content-type"), Some("application/json"));
    assert_eq!(header(&requests[4], "idempotency-key"), Some("order-7"));
    assert_eq!((&first["mode"], &first["session_id"]), (&value!("sync"), &value!(SESSION)));
    assert_eq!(first["config"], value!({ "a": 1 }));
    assert_eq!(first["input"][0]["parts"][0]["content"], "hi");
    assert_eq!(body(&requests[5])["mode"], "async");
    assert_eq!(header(&requests[5], "idempotency-key"), None);
    let answer = body(&requests[6]);
    assert_eq!(answer["mode"], "sync");
    assert_eq!(answer["await_resume"]["type"], "message");
    assert_eq!(answer["await_resume"]["message"]["parts"][0]["content"], "Bob");
    assert_eq!(header(&requests[7], "interrupt-id"), Some("i-7"));
    assert_eq!(body(&requests[7])["await_resume"]["message"]["parts"], value!([]));
    assert!(requests[8].body.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_ids_is_asked_for_what_was_missed() {
    let script = Script::new(vec![
        events(
            &format!(
                ": keep-alive\n{}id: 3\ndata: {{\"cut",
                numbered(1, &[created(), in_progress()])
            ),
            true,
        ),
        Err(TransportError::new("connection refused")),
        refusal(503, "server_error", r#"{"reason":"shutting_down","transient":true}"#),
        events(&numbered(3, &[part("a")]), false),
        events(&numbered(4, &[part("b"), completed()]), false),
    ]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    let told = collect_events(&mut stream).await.unwrap();
    assert_eq!(told, ["run.created", "run.in-progress", "a", "b", "run.completed"]);
    assert_eq!((stream.run(), stream.cursor()), (Some(run_id()), Some("5")));
    assert!(stream.next().await.unwrap().is_none());
    let requests = script.requests();
    assert_eq!(body(&requests[0])["mode"], "stream");
    assert_eq!(paths(&script)[1..], vec![events_path(); 4]);
    let cursors: Vec<_> = requests[1..].iter().map(|it| header(it, "last-event-id")).collect();
    assert_eq!(cursors, [Some("2"), Some("2"), Some("2"), Some("3")]);
    assert!(requests.iter().all(|it| header(it, "accept") == Some("text/event-stream")));
}

#[tokio::test(start_paused = true)]
async fn without_ids_the_list_is_read_until_the_run_has_ended() {
    let all = [created(), in_progress(), part("a"), part("b"), part("c"), completed()];
    let script = Script::new(vec![
        events(&format!("{}data: {{\"cut", bare(&all[..3])), true),
        list(&all[..3]),
        list(&all[..4]),
        Err(TransportError::new("connection reset")),
        list(&all[..4]),
        list(&all),
    ]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    let told = collect_events(&mut stream).await.unwrap();
    assert_eq!(told, ["run.created", "run.in-progress", "a", "b", "c", "run.completed"]);
    assert_eq!(stream.cursor(), None);
    assert_eq!(paths(&script)[1..], vec![events_path(); 5]);
}

#[tokio::test(start_paused = true)]
async fn what_a_stream_repeats_is_skipped() {
    // The stream broke before its first id, and the server repeats it from the beginning.
    let all = [created(), in_progress(), part("a"), completed()];
    let script = Script::new(vec![
        events(&bare(&all[..2]), true),
        events(&numbered(1, &all[..1]), true),
        events(&numbered(1, &all), false),
    ]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    let told = collect_events(&mut stream).await.unwrap();
    assert_eq!(told, ["run.created", "run.in-progress", "a", "run.completed"]);
}

#[tokio::test(start_paused = true)]
async fn an_awaiting_run_ends_the_stream_and_an_answer_goes_on_with_it() {
    let first = [created(), in_progress(), awaiting()];
    let second = [in_progress(), part("a"), completed()];
    for (torn, rest) in [
        (events(&bare(&second[..1]), true), list(&[&first[..], &second[..]].concat())),
        (events(&numbered(4, &second[..1]), true), events(&numbered(5, &second[1..]), false)),
    ] {
        let script = Script::new(vec![events(&bare(&first), false), torn, rest]);
        let mut stream = client(&script).run_stream(NewRun::new("awaiter", "")).await.unwrap();
        let kinds = collect_events(&mut stream).await.unwrap();
        assert_eq!(kinds, ["run.created", "run.in-progress", "run.awaiting"]);
        stream.resume("Bob").await.unwrap();
        assert_eq!(
            collect_events(&mut stream).await.unwrap(),
            ["run.in-progress", "a", "run.completed"]
        );
        let answer = &script.requests()[1];
        assert_eq!(answer.path, format!("/communication/runs/{RUN}"));
        assert_eq!(body(answer)["mode"], "stream");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_somebody_else_started_is_resumed_and_healed() {
    let before = [created(), in_progress(), awaiting()];
    let after = [in_progress(), part("a"), completed()];
    let script = Script::new(vec![
        list(&before),
        events("", true),
        list(&before),
        list(&[&before[..], &after[..]].concat()),
    ]);
    let mut stream = client(&script).resume_stream(run_id(), "Bob").await.unwrap();
    // The server has taken the answer but shows it only later.
    let told = collect_events(&mut stream).await.unwrap();
    assert_eq!(told, ["run.in-progress", "a", "run.completed"]);
}

#[tokio::test(start_paused = true)]
async fn following_passes_questions_that_were_answered_and_stops_at_an_open_one() {
    let all = [created(), awaiting(), in_progress(), part("a"), awaiting()];
    let script = Script::new(vec![events(&numbered(1, &all), false)]);
    let mut stream = client(&script).follow(run_id(), None);
    let kinds = collect_events(&mut stream).await.unwrap();
    assert_eq!(kinds, ["run.created", "run.awaiting", "run.in-progress", "a", "run.awaiting"]);

    let script = Script::new(vec![events(&numbered(3, &all[2..]), false)]);
    let mut stream = client(&script).follow(run_id(), Some("2"));
    assert_eq!(
        collect_events(&mut stream).await.unwrap(),
        ["run.in-progress", "a", "run.awaiting"]
    );
    assert_eq!(header(&script.requests()[0], "last-event-id"), Some("2"));

    // The stream breaks after a question: the client reads the run to check whether the question is still open.
    let script = Script::new(vec![
        events(&numbered(1, &all[..2]), true),
        json(200, &run("in-progress")),
        events(&numbered(3, &all[2..]), true),
        json(200, &run("awaiting")),
    ]);
    let mut stream = client(&script).follow(run_id(), None);
    assert_eq!(collect_events(&mut stream).await.unwrap(), kinds);

    let script = Script::new(vec![list(&all)]);
    let mut stream = client(&script).follow(run_id(), Some("2"));
    let error = stream.next().await.unwrap_err();
    assert!(error.to_string().contains("no event stream"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_somebody_else_answers_is_waited_for() {
    let all = [created(), in_progress(), awaiting(), in_progress(), completed()];
    for rest in [
        vec![list(&all[..3]), list(&all[..3]), list(&all)],
        vec![events(": keep-alive\n", true), events(&numbered(4, &all[3..]), false)],
    ] {
        let is_listed = rest.len() == 3;
        let first = if is_listed { bare(&all[..3]) } else { numbered(1, &all[..3]) };
        let script = Script::new(std::iter::once(events(&first, false)).chain(rest).collect());
        let mut stream = client(&script).run_stream(NewRun::new("awaiter", "")).await.unwrap();
        assert_eq!(collect_events(&mut stream).await.unwrap().last().unwrap(), "run.awaiting");
        stream.wait_on();
        assert_eq!(
            collect_events(&mut stream).await.unwrap(),
            ["run.in-progress", "run.completed"]
        );
        stream.wait_on();
        assert!(stream.next().await.unwrap().is_none(), "it has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_event_is_an_error_and_one_that_passes_is_a_break() {
    let failed = r#"{"type":"error","error":{"code":"server_error","message":"too slow","data":{"reason":"slow_reader","hint":"read faster"}}}"#;
    let script = Script::new(vec![events(&bare(&[created(), failed.to_owned()]), false)]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().event.kind(), EventKind::RunCreated);
    let error = stream.next().await.unwrap_err();
    assert_eq!((error.code(), error.hint()), (Some("slow_reader"), Some("read faster")));
    assert_eq!(error.to_string(), "too slow");
    assert!(stream.next().await.unwrap().is_none());

    let passes = r#"{"type":"error","error":{"code":"server_error","message":"bye","data":{"transient":true}}}"#;
    let script = Script::new(vec![
        events(&format!("{}data: {passes}\n\n", numbered(1, &[created()])), false),
        events(&numbered(2, &[completed()]), false),
    ]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["run.created", "run.completed"]);
    assert_eq!(header(&script.requests()[1], "last-event-id"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn a_new_run_whose_first_event_was_lost_is_found_by_its_id_or_key_or_not_at_all() {
    let whole = || events(&numbered(1, &[created(), completed()]), false);
    let script = Script::new(vec![of_run(events("data: {\"cut", true), RUN), whole()]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    assert_eq!(stream.run(), Some(run_id()));
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["run.created", "run.completed"]);
    assert_eq!(paths(&script)[1], events_path());

    let script = Script::new(vec![events("data: {\"cut", true), whole()]);
    let new = NewRun::new("echo", "hi").idempotency_key("k");
    let mut stream = client(&script).run_stream(new).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["run.created", "run.completed"]);
    let requests = script.requests();
    assert_eq!(requests[0], requests[1], "the server compares whole requests");

    // Without a key, sending the request again would run the agent twice.
    for torn in [true, false] {
        let script = Script::new(vec![events("data: {\"cut", torn), whole()]);
        let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
        stream.next().await.unwrap_err();
        assert_eq!(script.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stays_away_or_talks_nonsense_is_an_error() {
    let script = Script::new(vec![events(&numbered(1, &[created()]), true)]);
    let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
    stream.next().await.unwrap();
    assert!(matches!(stream.next().await, Err(ClientError::Transport(_))));
    let attempts = usize::try_from(Options::default().attempts).unwrap();
    assert_eq!(script.requests().len(), 1 + attempts);

    for (data, named) in [
        (r#"{"type":7,"run":{}}"#.to_owned(), "type"),
        (of_the_run("run.completed", "finished"), "finished"),
        ("[DONE]".to_owned(), ""),
    ] {
        let script = Script::new(vec![events(&bare(&[data]), false)]);
        let mut stream = client(&script).run_stream(NewRun::new("echo", "hi")).await.unwrap();
        let error = stream.next().await.unwrap_err();
        assert!(matches!(error, ClientError::Unexpected(_)), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn refusals_say_what_the_server_said() {
    let script = Script::new(vec![
        refusal(404, "not_found", "null"),
        refusal(403, "server_error", r#"{"reason":"run_ended"}"#),
        json(502, "<html>"),
        refusal(422, "invalid_input", r#"["no object"]"#),
    ]);
    let client = client(&script);
    let error = client.agent("nope").await.unwrap_err();
    assert_eq!((error.code(), error.is_transient()), (Some("not_found"), false));
    assert_eq!(client.cancel(run_id()).await.unwrap_err().code(), Some("run_ended"));
    let error = client.ping().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("502"), "{error}");
    assert!(matches!(error, ClientError::Refused(refusal) if refusal.is_foreign()));
    let error = client.run_stream(NewRun::new("echo", "hi")).await.unwrap_err();
    assert_eq!(error.code(), Some("invalid_input"));
}

fn descriptor(history: &[&str]) -> Answered {
    let session = value!({ "id": SESSION, "history": history, "state": null });
    json(200, &session.to_string())
}

fn session() -> Session {
    Session::continued(SESSION.parse().unwrap())
}

fn brought(script: &Script) -> Vec<Value> {
    let runs = script.requests().into_iter().filter(|request| request.method == Method::Post);
    runs.map(|request| {
        let body = body(&request);
        assert!(body["session_id"].is_null() || body["session"].is_null());
        if body["session"].is_null() { body["session_id"].clone() } else { body["session"].clone() }
    })
    .collect()
}

#[tokio::test]
async fn a_session_moves_with_its_history() {
    let done = || json(200, &run("completed"));
    let a = Script::new(vec![
        refusal(404, "not_found", "null"),
        done(),
        done(),
        descriptor(&["http://a/resources/1", "http://a/resources/2"]),
    ]);
    let b = Script::new(vec![
        done(),
        done(),
        descriptor(&["http://a/resources/1", "http://b/resources/3"]),
    ]);
    let back = Script::new(vec![done()]);
    let (on_a, on_b, on_back) = (client(&a), client(&b), client(&back));
    let mut session = session();
    let new = || NewRun::new("echo", "hi");
    session.run_sync(&on_a, new()).await.unwrap();
    session.run_async(&on_a, new()).await.unwrap();
    session.run_sync(&on_b, new()).await.unwrap();
    session.run_sync(&on_b.clone(), new()).await.unwrap();
    session.run_sync(&on_back, new()).await.unwrap();

    let path = format!("GET /communication/sessions/{SESSION}");
    let posted = "POST /communication/runs".to_owned();
    assert_eq!(paths(&a), [path.clone(), posted.clone(), posted.clone(), path.clone()]);
    assert_eq!(paths(&b), [posted.clone(), posted, path]);
    let fresh = value!({ "id": SESSION, "history": [], "state": null });
    assert_eq!(brought(&a), [fresh, value!(SESSION)]);
    let moved = ["http://a/resources/1", "http://a/resources/2"];
    let moved = value!({ "id": SESSION, "history": moved, "state": null });
    assert_eq!(brought(&b), [moved, value!(SESSION)]);
    let newest = ["http://a/resources/1", "http://b/resources/3"];
    assert_eq!(brought(&back)[0]["history"], value!(newest));
    assert_eq!(session.snapshot().history, newest);
}

#[tokio::test]
async fn a_session_that_a_server_knows_is_continued_and_one_it_lost_is_brought_again() {
    let done = || json(200, &run("completed"));
    let known = Script::new(vec![descriptor(&["http://a/resources/1"]), done()]);
    session().run_sync(&client(&known), NewRun::new("echo", "hi")).await.unwrap();
    assert_eq!(brought(&known), [value!(SESSION)]);

    // A session from another client, which this server does not know.
    let held = Descriptor {
        id: SESSION.parse().unwrap(),
        history: vec!["http://gone/resources/1".to_owned()],
        state: Some("http://gone/state".to_owned()),
    };
    let script = Script::new(vec![refusal(404, "not_found", "null"), done()]);
    let mut session = Session::from(held);
    session.run_sync(&client(&script), NewRun::new("echo", "hi")).await.unwrap();
    assert_eq!(brought(&script)[0]["history"], value!(["http://gone/resources/1"]));
    assert_eq!(brought(&script)[0]["state"], "http://gone/state");
    assert_eq!(session.id().to_string(), SESSION);
}

#[tokio::test]
async fn a_session_stays_where_it_is_when_a_run_elsewhere_is_refused_or_lost() {
    let done = || json(200, &run("completed"));
    let new = || NewRun::new("echo", "hi");
    let history = ["http://a/resources/1"];
    let a = Script::new(vec![
        refusal(404, "not_found", "null"),
        done(),
        descriptor(&history),
        descriptor(&history),
        descriptor(&history),
        done(),
    ]);
    let b = Script::new(vec![
        refusal(404, "not_found", "null"),
        Err(TransportError::new("connection reset")),
        refusal(404, "not_found", "null"),
    ]);
    let (on_a, on_b) = (client(&a), client(&b));
    let mut session = session();
    session.run_sync(&on_a, new()).await.unwrap();
    // The agent does not exist, so B has not stored the session.
    session.run_sync(&on_b, new()).await.unwrap_err();
    // The response is lost, so B may have stored the session.
    session.run_sync(&on_b, new()).await.unwrap_err();
    session.run_sync(&on_a, new()).await.unwrap();
    assert_eq!(brought(&b).len(), 2);
    assert!(brought(&b).iter().all(|brought| brought["history"] == value!(history)));
    let path = format!("GET /communication/sessions/{SESSION}");
    assert_eq!(paths(&b)[2], path, "who may have the newest version is asked first");
    assert_eq!(brought(&a)[1], value!(SESSION), "and A has the newest version after all");
}

#[tokio::test]
async fn a_session_whose_last_server_fails_is_not_continued_blindly() {
    let a = Script::new(vec![refusal(500, "server_error", "null")]);
    let error = session().run_sync(&client(&a), NewRun::new("echo", "hi")).await.unwrap_err();
    assert_eq!(error.code(), Some("server_error"));
    assert_eq!(a.requests().len(), 1);
}

#[tokio::test]
async fn the_text_of_a_run_and_of_its_stream_leaves_artifacts_out() {
    let artifact = part("file").replace(r#""name":null"#, r#""name":"a.txt""#);
    let output = [part("Hi"), artifact.clone(), part("!")]
        .map(|event| value!(event.parse::<Value>().unwrap()["part"]));
    let mut ended: Value = run("completed").parse().unwrap();
    ended["output"] = value!([{ "role": "agent", "parts": output }]);
    let stream = [created(), part("Hi"), artifact, part("!"), completed()];
    let script = Script::new(vec![json(200, &ended.to_string()), events(&bare(&stream), false)]);
    let client = client(&script);
    let run = client.run_sync(NewRun::new("echo", "Hi!")).await.unwrap();
    assert_eq!(run.text(), "Hi!");
    let mut stream = client.run_stream(NewRun::new("echo", "Hi!")).await.unwrap();
    let mut texts = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        texts.extend(event.text().map(str::to_owned));
    }
    assert_eq!(texts, ["Hi", "!"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_connection_after_an_event_gets_few_requests() {
    for torn in [false, true] {
        let connection = |first| events(&numbered(first, &[part("x")]), torn);
        let script = Script::new((1..1000).map(connection).collect());
        let mut stream = client(&script).follow(run_id(), None);
        let count = events_of_a_minute(async || stream.next().await.unwrap().is_some()).await;
        assert!((10..20).contains(&count), "{count} events");
        assert!((10..20).contains(&script.requests().len()), "{}", script.requests().len());
    }
}
