//! The streams of the Agent Connect Protocol: breaks, repeated events, and servers that end streams in unusual ways.

use std::sync::Arc;

use trilogue_sdk::client::connect::{
    Client, NewRun, Resume, RunAt, RunStatus, RunStream, StreamMode, StreamPayload,
};
use trilogue_sdk::client::{ClientError, Options, Transport, TransportError};

use crate::connect::{Answered, RUN, body, client, paths, run, waited};
use crate::script::{Script, events, events_of_a_minute, header, json, of_run};

fn values(status: &str, message: &str) -> String {
    format!(
        r#"{{"type": "values", "run_id": "{RUN}", "status": "{status}", "values": {{"message": "{message}"}}}}"#
    )
}

fn asks(question: &str) -> String {
    format!(
        r#"{{"type":"interrupt","run_id":"{RUN}","status":"interrupted","interrupt":{{"approval":{{"q":"{question}"}}}}}}"#
    )
}

fn fails() -> String {
    format!(
        r#"{{"type":"error","run_id":"{RUN}","status":"error","errcode":0,"description":"boom"}}"#
    )
}

fn update(number: u32) -> String {
    format!(r#"{{"type":"custom","status":"pending","update":{{"n":{number}}}}}"#)
}

fn question_without_id() -> String {
    format!("data: {}\n\n", asks("?"))
}

fn sse(of: &[(&str, String)]) -> String {
    let one =
        |(id, data): &(&str, String)| format!("id: {id}\nevent: agent_event\ndata: {data}\n\n");
    of.iter().map(one).collect()
}

/// Reads a stream to its end and returns its events in short form.
async fn collect_events(stream: &mut RunStream) -> Result<Vec<String>, ClientError> {
    let mut told = Vec::new();
    while let Some(streamed) = stream.next().await? {
        let read: StreamPayload = serde_json::from_str(&streamed.json).unwrap();
        assert_eq!(read, streamed.event);
        let status = streamed.event.status();
        told.push(match streamed.event {
            StreamPayload::Values(update) => {
                format!("{status} {}", update.values.to_value()["message"].as_str().unwrap())
            }
            StreamPayload::Custom(update) => update.update.as_str().to_owned(),
            StreamPayload::Interrupt(update) => update.asked.interrupt.as_str().to_owned(),
            StreamPayload::Error(update) => format!("{status} {}", update.error.description),
        });
    }
    Ok(told)
}

fn success() -> Answered {
    waited("success", r#"{"type":"result","values":{"message":"done"}}"#)
}

fn new() -> NewRun {
    NewRun::new("echo", "hi")
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_asked_for_what_was_missed() {
    let script = Script::new(vec![
        events(
            &format!(
                ": ping\n{}id: 3\ndata: {{\"cut",
                sse(&[("1.1", values("pending", "a")), ("2", update(2))])
            ),
            true,
        ),
        Err(TransportError::new("connection refused")),
        json(503, ""),
        events(&format!(": ping\n{}", sse(&[("3.2", values("pending", "ab"))])), true),
        events(&sse(&[("4", update(4)), ("5", values("success", "abc"))]), false),
    ]);
    let new = new().streaming([StreamMode::Values, StreamMode::Custom]);
    let mut stream = client(&script).run_stream(new).await.unwrap();
    let told = collect_events(&mut stream).await.unwrap();
    assert_eq!(told, ["pending a", r#"{"n":2}"#, "pending ab", r#"{"n":4}"#, "success abc"]);
    assert_eq!((stream.run(), stream.cursor()), (Some(RunAt::from(RUN)), Some("5")));
    assert!(stream.next().await.unwrap().is_none());
    assert_eq!(paths(&script)[0], "POST /runs/stream");
    assert_eq!(paths(&script)[1..], vec![format!("GET /runs/{RUN}/stream"); 4]);
    let requests = script.requests();
    assert_eq!(body(&requests[0])["on_disconnect"], "continue", "a break must not cancel it");
    let cursors: Vec<_> = requests[1..].iter().map(|it| header(it, "last-event-id")).collect();
    assert_eq!(cursors, [Some("2"), Some("2"), Some("2"), Some("3.2")]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_only_a_header_named_is_found_again() {
    let script = Script::new(vec![
        of_run(events(": ping\n", true), RUN),
        events(&sse(&[("1", values("success", "x"))]), false),
    ]);
    let mut stream = client(&script).run_stream(new().on_thread("t")).await.unwrap();
    assert_eq!(stream.run(), Some(RunAt::on_thread("t", RUN)));
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success x"]);
    let asked = &script.requests()[1];
    assert_eq!(paths(&script)[1], format!("GET /threads/t/runs/{RUN}/stream"));
    assert_eq!(header(asked, "last-event-id"), Some("0"), "everything that there is");
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_key_is_asked_for_again_and_one_without_is_lost() {
    let script =
        Script::new(vec![events("", true), events(&sse(&[("1", values("success", "x"))]), false)]);
    let mut stream = client(&script).run_stream(new().idempotency_key("k")).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success x"]);
    assert_eq!(paths(&script), ["POST /runs/stream"; 2]);
    let script = Script::new(vec![events("", true)]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    let error = collect_events(&mut stream).await.unwrap_err();
    assert_eq!(error.to_string(), "the connection was reset");
}

#[tokio::test(start_paused = true)]
async fn what_a_server_repeats_is_given_once_and_ids_may_start_again() {
    let first = [("1", values("pending", "a")), ("2", update(2))];
    let again = [&first[..], &[("3", update(3))]].concat();
    let anew = [("1", values("pending", "abc")), ("2", values("success", "abcd"))];
    let script = Script::new(vec![
        events(&sse(&first), true),
        events(&sse(&again), true),
        events(&sse(&anew), false),
    ]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    let told = collect_events(&mut stream).await.unwrap();
    let all = ["pending a", r#"{"n":2}"#, r#"{"n":3}"#, "pending abc", "success abcd"];
    assert_eq!(told, all);
}

/// Events that are skipped because they were received before.
#[tokio::test(start_paused = true)]
async fn a_server_that_repeats_its_events_without_end_is_given_up() {
    let once = sse(&[("1", values("pending", "a")), ("2", update(2))]);
    let script = Script::new(vec![events(&once.repeat(2 * 4096 / once.len()), true)]);
    let options = Options { max_unused_stream_bytes: 4096, ..Options::at("/connect/") };
    let client = Client::new(Arc::clone(&script) as Arc<dyn Transport>, options);
    let mut stream = client.run_stream(new()).await.unwrap();
    let error = collect_events(&mut stream).await.unwrap_err();
    assert!(error.to_string().contains("4096 bytes of comments and skipped events"), "{error}");
}

/// Each connection brings an event. If it ends cleanly, the client also reads the run's status.
#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_connection_after_an_event_gets_few_requests() {
    for torn in [false, true] {
        let connection = |number: u32| {
            let stream = events(&sse(&[(&number.to_string(), update(number))]), torn);
            [Some(stream), (!torn).then(|| json(200, &run("pending")))]
        };
        let script = Script::new((1..1000).flat_map(connection).flatten().collect());
        let mut stream = client(&script).join(RUN, None);
        let count = events_of_a_minute(async || stream.next().await.unwrap().is_some()).await;
        assert!((10..20).contains(&count), "{count} events");
        let most = if torn { 20 } else { 40 };
        assert!(script.requests().len() < most, "{}", script.requests().len());
    }
}

/// A run that repeats its question while its status says that it works is looked at with growing delays.
#[tokio::test(start_paused = true)]
async fn a_server_that_repeats_its_question_without_end_gets_few_requests() {
    let script = Script::new((0..1000).map(|_| events(&question_without_id(), false)).collect());
    let mut stream = client(&script).join(RUN, None);
    let count = events_of_a_minute(async || {
        let is_asked = stream.next().await.unwrap().is_some();
        stream.wait_on();
        is_asked
    });
    let count = count.await;
    assert!((10..20).contains(&count), "{count} events");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_swallows_an_id_costs_no_event() {
    let one = |id: &str, text: &str| format!("id: {id}\ndata: {}\n\n", values("pending", text));
    let script = Script::new(vec![
        events(&format!("{}:{}::{}", one("1", "a"), one("2", "a"), one("3", "b")), true),
        events(&format!("data: {}\n\n", values("success", "b")), false),
    ]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert_eq!(
        collect_events(&mut stream).await.unwrap(),
        ["pending a", "pending a", "pending b", "success b"]
    );
    assert_eq!(header(&script.requests()[1], "last-event-id"), Some("3"));
    assert_eq!(stream.cursor(), Some("3"), "the last one has no id");
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_last_event_is_given_one() {
    let asked = r#"{"type":"interrupt","interrupt":{"approval":{"q":"?"}}}"#;
    let failed = format!(r#"{{"type":"error","run_id":"{RUN}","errcode":1,"description":"boom"}}"#);
    for (status, output, last) in [
        ("success", r#"{"type":"result","values":{"message":"done"}}"#, "success done"),
        ("interrupted", asked, r#"{"approval":{"q":"?"}}"#),
        ("error", &failed, "error boom"),
        ("timeout", &failed, "timeout boom"),
    ] {
        let script = Script::new(vec![
            events(&sse(&[("1", values("pending", "a"))]), false),
            json(200, &run(status)),
            waited(status, output),
        ]);
        let mut stream = client(&script).run_stream(new()).await.unwrap();
        assert_eq!(collect_events(&mut stream).await.unwrap(), ["pending a", last]);
        assert_eq!(
            paths(&script)[1..],
            [format!("GET /runs/{RUN}"), format!("GET /runs/{RUN}/wait")]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_never_ends_is_left_behind_its_error() {
    let text = sse(&[("1", fails()), ("1", fails()), ("2", fails())]);
    let script = Script::new(vec![events(&format!("{text}::::"), true)]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["error boom"]);
    assert_eq!(script.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stays_silent_is_asked_about() {
    let script = Script::new(vec![
        events(
            &format!("{}{}", sse(&[("1", values("pending", "a"))]), ": ping\n".repeat(40)),
            true,
        ),
        json(200, &run("pending")),
        json(200, &run("success")),
        success(),
    ]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["pending a", "success done"]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_streams_nothing_is_waited_for() {
    let nothing = || events("", false);
    let pending = || json(200, &run("pending"));
    let script = Script::new(vec![nothing(), pending(), nothing(), pending(), success()]);
    let mut stream = client(&script).join(RUN, None);
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success done"]);
    // The same holds for a server without streams.
    let missing = || json(500, r#"{"detail":"Not implemented"}"#);
    let script = Script::new(vec![missing(), success(), missing(), success()]);
    let on_thread = client(&script).run_stream(new().on_thread("t")).await;
    assert_eq!(collect_events(&mut on_thread.unwrap()).await.unwrap(), ["success done"]);
    let mut joined = client(&script).join(RunAt::on_thread("t", RUN), Some("7"));
    assert_eq!(collect_events(&mut joined).await.unwrap(), ["success done"]);
    let at = format!("/threads/t/runs/{RUN}");
    let asked = [
        "POST /threads/t/runs/stream".to_owned(),
        "POST /threads/t/runs/wait".to_owned(),
        format!("GET {at}/stream"),
        format!("GET {at}/wait"),
    ];
    assert_eq!(paths(&script), asked);
    assert_eq!(header(&script.requests()[2], "last-event-id"), Some("7"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stream_is_waited_for_unless_a_mode_was_asked_for() {
    let refused = || {
        let code = r#"{"code":"stream_mode_not_supported","errcode":4227,"description":"no"}"#;
        json(422, code)
    };
    let script = Script::new(vec![refused(), success(), refused()]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success done"]);
    let asked = new().streaming([StreamMode::Custom]);
    let error = client(&script).run_stream(asked).await.unwrap_err();
    assert_eq!(error.code(), Some("stream_mode_not_supported"));
    assert_eq!(paths(&script), ["POST /runs/stream", "POST /runs/wait", "POST /runs/stream"]);
}

#[tokio::test(start_paused = true)]
async fn a_question_ends_the_stream_and_an_answer_goes_on_with_it() {
    let script = Script::new(vec![
        events(&sse(&[("1", values("pending", "a")), ("2", asks("one"))]), false),
        json(422, r#"{"code":"resume_schema_violation","errcode":4223,"description":"no"}"#),
        json(200, &run("pending")),
        events(&sse(&[("3", asks("two"))]), false),
        json(200, &run("pending")),
        events(&sse(&[("4", values("success", "b"))]), false),
    ]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert_eq!(
        collect_events(&mut stream).await.unwrap(),
        ["pending a", r#"{"approval":{"q":"one"}}"#]
    );
    stream.resume(Resume::new(serde_json::json!(0))).await.unwrap_err();
    assert!(stream.next().await.unwrap().is_none(), "a refused answer changes nothing");
    stream.resume(Resume::new(serde_json::json!(1))).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), [r#"{"approval":{"q":"two"}}"#]);
    stream.resume(Resume::new(serde_json::json!(2))).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success b"]);
    assert_eq!(header(&script.requests()[3], "last-event-id"), Some("2"));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_somebody_else_answers_is_waited_behind() {
    let still = || events(&sse(&[("2", asks("one"))]), false);
    let script = Script::new(vec![
        still(),
        still(),
        json(200, &run("interrupted")),
        still(),
        json(200, &run("interrupted")),
        events(&sse(&[("3", values("success", "b"))]), false),
    ]);
    let mut stream = client(&script).join(RUN, None);
    assert_eq!(collect_events(&mut stream).await.unwrap(), [r#"{"approval":{"q":"one"}}"#]);
    stream.wait_on();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success b"]);
    stream.wait_on();
    assert!(stream.next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_answered_run_is_streamed_from_then_on() {
    let script = Script::new(vec![
        json(200, &run("pending")),
        events(&sse(&[("8", values("success", "b"))]), false),
    ]);
    let answer = Resume::new(serde_json::json!({ "ok": true }));
    let mut stream = client(&script).resume_stream(RUN, answer).await.unwrap();
    assert_eq!(collect_events(&mut stream).await.unwrap(), ["success b"]);
    assert_eq!(header(&script.requests()[1], "last-event-id"), None);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded_and_a_run_that_is_gone_is_told() {
    let mut lost = vec![events(&sse(&[("1", values("pending", "a"))]), true)];
    lost.extend((0..20).map(|_| Err(TransportError::new("connection refused"))));
    let script = Script::new(lost);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    let error = collect_events(&mut stream).await.unwrap_err();
    assert_eq!(error.to_string(), "connection refused");
    assert_eq!(script.requests().len(), 1 + 10);

    let script = Script::new(vec![
        events(&sse(&[("1", values("pending", "a"))]), true),
        json(404, r#"{"code":"run_not_found","errcode":4043,"description":"run not found"}"#),
    ]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    let error = collect_events(&mut stream).await.unwrap_err();
    assert_eq!(error.code(), Some("run_not_found"));

    let script = Script::new(vec![json(200, "{}")]);
    let error = client(&script).run_stream(new()).await.unwrap_err();
    assert!(error.to_string().contains("no event stream"), "{error}");
    let odd = r#"{"type":"values","run_id":"r","status":"running","values":{}}"#.to_owned();
    let script = Script::new(vec![events(&sse(&[("1", odd)]), false)]);
    let mut stream = client(&script).run_stream(new()).await.unwrap();
    assert!(matches!(stream.next().await, Err(ClientError::Unexpected(_))));
    assert_eq!(RunStatus::ALL.len(), 5, "the protocol has no other words for it");
}

#[tokio::test]
async fn the_text_of_a_result_is_its_messages_or_else_its_message() {
    let messages = r#""values":{"message":"b"},"messages":[{"role":"assistant","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}]"#;
    let without = r#""values":{"count":1}"#;
    let script = Script::new(vec![
        json(200, &waited_body(messages)),
        json(200, &waited_body(r#""values":{"message":"done"}"#)),
        json(200, &waited_body(without)),
        events(&sse(&[("1", values("pending", "a")), ("2", values("success", "ab"))]), false),
    ]);
    let client = client(&script);
    for text in ["ab", "done", ""] {
        assert_eq!(client.run_and_wait(new()).await.unwrap().text(), text);
    }
    let mut stream = client.run_stream(new()).await.unwrap();
    let mut texts = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        texts.extend(event.text());
    }
    assert_eq!(texts, ["a", "ab"]);
}

fn waited_body(result: &str) -> String {
    format!(r#"{{"run":{},"output":{{"type":"result",{result}}}}}"#, run("success"))
}
