use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use trilogue_wire::jsonrpc::{Code, ErrorObject};

use super::{
    Backpressure, CANCEL_REQUEST, CallFailure, Handler, IgnoredInput, Notification, Options, Peer,
    Request,
};

mod at_once;
mod giving_up;
mod odd_answers;
mod odd_lines;
mod same_id;

/// Long enough for every expected event.
const LONG: Duration = Duration::from_secs(20);

/// Answers `add`, keeps `wait`, drops `drop`, and forwards notifications.
#[derive(Debug)]
struct Adder {
    told: mpsc::UnboundedSender<String>,
    kept: Mutex<Vec<Request>>,
}

impl Handler for Adder {
    fn on_request(&self, request: Request) -> Backpressure {
        match request.method() {
            "add" => {
                let params = request.params().to_value();
                request.answer(async move {
                    let sum: i64 = params["of"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_i64)
                        .sum();
                    Ok(json!({ "sum": sum }))
                });
            }
            "wait" => request.answer(std::future::pending::<Result<Value, ErrorObject>>()),
            "keep" => self.kept.lock().unwrap().push(request),
            _ => drop(request),
        }
        Backpressure::Ready
    }

    fn on_notification(&self, notification: Notification) -> Backpressure {
        let told = format!("{} {}", notification.method, notification.params.as_str());
        drop(self.told.send(told));
        Backpressure::Ready
    }

    fn on_ignored(&self, input: IgnoredInput<'_>) -> Backpressure {
        let text = String::from_utf8_lossy(input.bytes);
        drop(self.told.send(format!("ignored {}: {text}", input.reason.word())));
        Backpressure::Ready
    }
}

struct Other {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
}

impl Other {
    async fn write(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    async fn read(&mut self) -> Value {
        let line = timeout(LONG, self.lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str(&line.unwrap()).unwrap()
    }
}

fn pair(options: Options) -> (Peer, Other, mpsc::UnboundedReceiver<String>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (read, write) = tokio::io::split(ours);
    let (told, heard) = mpsc::unbounded_channel();
    let handler = Arc::new(Adder { told, kept: Mutex::default() });
    let peer = Peer::start(read, write, handler, options);
    let (read, write) = tokio::io::split(theirs);
    (peer, Other { lines: BufReader::new(read).lines(), write }, heard)
}

#[tokio::test]
async fn calls_are_answered_by_id_in_any_order() {
    let (peer, mut other, _) = pair(Options::client());
    let (one, two) =
        (peer.begin("a", &json!({})).await.unwrap(), peer.begin("b", &()).await.unwrap());
    let (first, second) = (other.read().await, other.read().await);
    assert_eq!((&first["method"], &second["method"]), (&json!("a"), &json!("b")));
    assert_eq!(first["id"].to_string(), one.id().as_str());
    assert_eq!(second.get("params"), None);
    other
        .write(
            br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no","data":[1.0]}}
{"jsonrpc":"2.0","id":"zero","result":"no id of ours"}
{"jsonrpc":"2.0","id":0,"result": {"b" :1.50} }
"#,
        )
        .await;
    assert_eq!(timeout(LONG, one).await.unwrap().unwrap().as_str(), r#"{"b" :1.50}"#);
    let Err(CallFailure::Refused(error)) = timeout(LONG, two).await.unwrap() else {
        panic!("not refused")
    };
    assert_eq!((error.code, &*error.message), (Code::AUTH_REQUIRED, "no"));
    assert_eq!(peer.counters().unexpected, 1);
}

#[tokio::test]
async fn what_came_before_a_response_is_heard_before_it() {
    let (peer, mut other, mut heard) = pair(Options::client());
    let call = peer.begin("go", &json!({})).await.unwrap();
    other.read().await;
    let mut lines = String::new();
    for number in 0..500 {
        lines
            .push_str(&format!("{{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":[{number}]}}\n"));
    }
    lines.push_str("{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":null}\n");
    other.write(lines.as_bytes()).await;
    assert_eq!(timeout(LONG, call).await.unwrap().unwrap().as_str(), "null");
    for number in 0..500 {
        assert_eq!(heard.try_recv().unwrap(), format!("n [{number}]"));
    }
}

#[tokio::test]
async fn requests_are_answered_while_others_are_in_work() {
    let (_peer, mut other, _) = pair(Options::agent());
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"wait\"}\n").await;
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":18446744073709551615,\"method\":\"add\",\"params\":{\"of\":[1,2]}}\n").await;
    assert_eq!(
        other.read().await,
        json!({ "jsonrpc": "2.0", "id": u64::MAX, "result": { "sum": 3 } })
    );
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"forgotten\"}\n").await;
    let forgotten = other.read().await;
    assert_eq!((&forgotten["id"], &forgotten["error"]["code"]), (&Value::Null, &json!(-32603)));
    // A cancellation of other ids changes nothing.
    for id in ["\"x\"", "0", "\"w\""] {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{{\"requestId\":{id}}}}}\n"
        );
        other.write(line.as_bytes()).await;
    }
    let given_up = other.read().await;
    assert_eq!((&given_up["id"], &given_up["error"]["code"]), (&json!("w"), &json!(-32800)));
}

#[tokio::test]
async fn too_many_requests_are_refused() {
    let (peer, mut other, _) = pair(Options { max_requests: 2, ..Options::agent() });
    for id in 0..3 {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"keep\"}}\n");
        other.write(line.as_bytes()).await;
    }
    let refused = other.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32603)));
    assert_eq!(peer.counters().refused, 1);
}

#[tokio::test]
async fn too_large_requests_are_refused_together() {
    let (peer, mut other, _) = pair(Options { max_request_bytes: 100, ..Options::agent() });
    let text = "x".repeat(80);
    for id in 0..2 {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"keep\",\"params\":{{\"text\":\"{text}\"}}}}\n"
        );
        other.write(line.as_bytes()).await;
    }
    let refused = other.read().await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(1), &json!(-32603)));
    assert_eq!(peer.counters().refused, 1);
}

type Reply = Option<(&'static str, i64)>;

/// Invalid lines, and an agent's responses to them.
const BROKEN: &[(&[u8], Reply)] = &[
    (b"\n   \r\n", None),
    (b"npm warn something\n", Some(("null", -32700))),
    (b"{\"jsonrpc\":\n", Some(("null", -32700))),
    (b"{\"a\":\"\xff\"}\n", Some(("null", -32700))),
    (b"[]\n", Some(("null", -32600))),
    (b"5\n", Some(("null", -32600))),
    (b"{}\n", Some(("null", -32600))),
    (b"{\"id\":1,\"method\":\"add\"}\n", Some(("null", -32600))),
    (b"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"add\"}\n", Some(("null", -32600))),
    (
        b"{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"add\",\"params\":5}\n",
        Some(("\"p\"", -32602)),
    ),
    (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"result\":5}\n", Some(("null", -32600))),
    (b"{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":5}\n", None),
    (b"{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":5}\n", None),
];

#[tokio::test]
async fn broken_lines_are_answered_by_an_agent_and_the_connection_lives_on() {
    for (line, reply) in BROKEN {
        let (_peer, mut other, _) = pair(Options::agent());
        other.write(line).await;
        if let Some((id, code)) = reply {
            let answer = other.read().await;
            assert_eq!(
                (answer["id"].to_string().as_str(), &answer["error"]["code"]),
                (*id, &json!(code))
            );
        }
        other.write(b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"add\"}\r\n").await;
        assert_eq!(other.read().await["id"], 5, "{}", String::from_utf8_lossy(line));
    }
}

#[tokio::test]
async fn a_client_answers_no_line_that_names_no_request() {
    for (line, reply) in BROKEN {
        let (peer, mut other, _) = pair(Options::client());
        other.write(line).await;
        if let Some((id, _)) = reply.filter(|(id, _)| *id != "null") {
            assert_eq!(other.read().await["id"].to_string(), id);
        }
        other.write(b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"add\"}\n").await;
        assert_eq!(other.read().await["id"], 5);
        let tally = peer.counters();
        let met = tally.lines.blank + tally.lines.noise + tally.invalid + tally.unexpected;
        assert!(met > 0, "{tally:?}");
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_fails_alone() {
    let (peer, mut other, mut heard) = pair(Options { max_line_bytes: 1_000, ..Options::client() });
    let call = peer.begin("go", &json!({})).await.unwrap();
    other.read().await;
    let long = "x".repeat(5_000);
    for line in [
        format!("{{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":[\"{long}\"]}}\n"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"add\",\"params\":[\"{long}\"]}}\n"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":[\"{long}\"]}}\n"),
        "{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n".to_owned(),
    ] {
        other.write(line.as_bytes()).await;
    }
    let Err(CallFailure::Unreadable(why)) = timeout(LONG, call).await.unwrap() else {
        panic!("readable")
    };
    assert!(why.contains("longer than 1000 bytes"), "{why}");
    assert_eq!(other.read().await["id"], 9);
    assert_eq!(timeout(LONG, heard.recv()).await.unwrap().unwrap(), "n {}");
    assert_eq!(peer.counters().lines.oversize, 3);
}

/// Reports no room until the test gives it room.
#[derive(Debug)]
struct Slow {
    taken: mpsc::UnboundedSender<()>,
    room: Arc<tokio::sync::Semaphore>,
}

impl Handler for Slow {
    fn on_request(&self, _: Request) -> Backpressure {
        Backpressure::Ready
    }

    fn on_notification(&self, _: Notification) -> Backpressure {
        let (room, taken) = (Arc::clone(&self.room), self.taken.clone());
        Backpressure::Full(Box::pin(async move {
            room.acquire().await.unwrap().forget();
            taken.send(()).unwrap();
        }))
    }
}

#[tokio::test]
async fn reading_waits_for_room() {
    let (ours, theirs) = tokio::io::duplex(1_024);
    let (read, write) = tokio::io::split(ours);
    let (taken, mut took) = mpsc::unbounded_channel();
    let room = Arc::new(tokio::sync::Semaphore::new(0));
    let handler = Slow { taken, room: Arc::clone(&room) };
    let _peer = Peer::start(read, write, Arc::new(handler), Options::client());
    let (_read, mut write) = tokio::io::split(theirs);
    let line = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"n\",\"params\":[\"{}\"]}}\n",
        "x".repeat(100_000)
    );
    let writing = tokio::spawn(async move {
        for _ in 0..10 {
            write.write_all(line.as_bytes()).await.unwrap();
        }
        write
    });
    room.add_permits(3);
    for _ in 0..3 {
        timeout(LONG, took.recv()).await.unwrap().unwrap();
    }
    // The rest is ten times the limit between the two sides, so it is not taken before there is room.
    assert!(!writing.is_finished());
    room.add_permits(7);
    for _ in 0..7 {
        timeout(LONG, took.recv()).await.unwrap().unwrap();
    }
    timeout(LONG, writing).await.unwrap().unwrap();
}

#[tokio::test]
async fn writing_waits_for_room_and_stops_when_the_connection_ends() {
    let (peer, other, _) = pair(Options { max_outgoing_bytes: 10_000, ..Options::client() });
    let text = json!(["x".repeat(1_000)]);
    let mut writing = tokio::spawn({
        let peer = peer.clone();
        async move {
            let mut written = 0;
            while peer.notify("n", &text).await.is_ok() {
                written += 1;
            }
            written
        }
    });
    // The other side does not read: only the bytes that fit the pipe and the queue are written.
    timeout(Duration::from_millis(200), &mut writing).await.unwrap_err();
    drop(other);
    let written = timeout(LONG, writing).await.unwrap().unwrap();
    assert!((64..100).contains(&written), "{written}");
    timeout(LONG, peer.wait_for_end()).await.unwrap();
    assert_eq!(peer.call("a", &()).await, Err(CallFailure::Closed));
}

#[tokio::test]
async fn the_end_of_the_other_side_fails_calls_and_lets_answers_out() {
    let (peer, mut other, _) = pair(Options::agent());
    let call = peer.begin("a", &()).await.unwrap();
    other.read().await;
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":{\"of\":[4]}}").await;
    other.write.shutdown().await.unwrap();
    assert_eq!(timeout(LONG, call).await.unwrap(), Err(CallFailure::Closed));
    assert_eq!(other.read().await["result"]["sum"], 4);
    // Nothing is left to send.
    assert_eq!(timeout(LONG, other.lines.next_line()).await.unwrap().unwrap(), None);
}

#[tokio::test]
async fn a_call_that_nobody_waits_for_is_forgotten() {
    let (peer, mut other, mut heard) = pair(Options { max_calls: 1, ..Options::client() });
    let call = peer.begin("a", &()).await.unwrap();
    assert_eq!(peer.begin("b", &()).await.unwrap_err(), CallFailure::TooMany);
    call.cancel().unwrap();
    drop(call);
    assert!(peer.begin("c", &()).await.is_ok());
    assert_eq!(other.read().await["id"], 0);
    let cancelled = other.read().await;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("$/cancel_request"), &json!(0))
    );
    other.write(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n").await;
    timeout(LONG, heard.recv()).await.unwrap().unwrap();
    assert_eq!(peer.counters().unexpected, 1);
}

#[tokio::test]
async fn closing_writes_what_is_left_and_aborting_does_not_wait() {
    let (peer, mut other, _) = pair(Options::client());
    for number in 0..100 {
        peer.notify("n", &json!([number])).await.unwrap();
    }
    peer.close();
    assert_eq!(peer.notify("late", &()).await, Err(CallFailure::Closed));
    for number in 0..100 {
        assert_eq!(other.read().await["params"], json!([number]));
    }
    assert_eq!(timeout(LONG, other.lines.next_line()).await.unwrap().unwrap(), None);
    assert!(!peer.is_ended());
    peer.abort();
    timeout(LONG, peer.wait_for_end()).await.unwrap();
}
