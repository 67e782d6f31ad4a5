//! Input of every shape takes memory in proportion to its size: requests, lines of hosted agents, and responses of other servers.

use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::client::Reply;
use trilogue_testkit::payload_server::PayloadServer;
use trilogue_testkit::{Client, Folder, Server, ServerOptions};

use crate::bridge::bridge_settings;
use crate::long_thread::{forget_peak, memory};

const MIB: usize = 1024 * 1024;
const BODY_BYTES: usize = 4 * MIB;
/// The memory limit for a body, in multiples of its size. A text takes up to nine times its size: as a line, as an event, in the store's pages and its log, in the tail cache and in the response. JSON whose values are kept one by one takes more than twenty times.
const MAX_FACTOR: usize = 10;
/// How often an input is measured that took too much: the first times, the server may have had work left of an earlier one.
const MAX_ATTEMPTS: usize = 3;
/// The memory that the server may need at the same time for other work, in KiB.
const SLACK: u64 = 16 * 1024;
/// The memory that an input may need, in KiB.
const MOST: u64 = (MAX_FACTOR * BODY_BYTES / 1024) as u64 + SLACK;
/// The memory that a server may keep of each earlier input of the same shape, in KiB: prompt and output stay in memory until their thread is idle. More counts for the
/// next input, so that memory which the allocator keeps hides nothing.
const MAX_KEPT_OF_EACH: u64 = (4 * BODY_BYTES / 1024) as u64;
/// Makes the allocator give memory back when it is freed: large blocks at once, and the end of the heap above 128 KiB.
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_ARENA_MAX", "1"),
    ("MALLOC_MMAP_THRESHOLD_", "131072"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
];
/// An agent that answers a prompt with the file `lines`, in which `ID` is the number of the prompt.
const AGENT: &str = r#"while read -r line; do
[[ $line =~ \"id\":([0-9]+) ]] || continue
id=${BASH_REMATCH[1]}
case $line in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":1,"agentCapabilities":{}}}' ;;
*'"session/new"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"sessionId":"s"}}' ;;
*'"session/prompt"'*) sed "s/\"ID\"/$id/" lines ;;
esac
done
"#;

/// A server whose memory is measured. Each shape has one of its own.
struct MeasuredServer {
    server: Server,
    client: Client,
    /// The most memory that counts as used before the next input, in KiB.
    used: u64,
    _folder: Folder,
}

// === impl MeasuredServer ===

impl MeasuredServer {
    /// Starts a server, and does `warm_up` on it, which fills the caches of the store.
    async fn start(settings: &str, warm_up: impl AsyncFn(&Client)) -> Self {
        let folder = Folder::new().unwrap();
        let environment =
            ALLOCATOR.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        let options = ServerOptions {
            settings: settings.to_owned(),
            environment: environment.collect(),
            ..ServerOptions::default()
        };
        let server = Server::start(folder.path(), &options).await.unwrap();
        let client = server.client();
        warm_up(&client).await;
        let used = memory(&server, "VmRSS");
        Self { server, client, used, _folder: folder }
    }

    /// Sends a request. Returns the response, and how much memory the server took for it, in KiB. A request that took more than `most` is sent again, up to [`MAX_ATTEMPTS`] times in all.
    async fn measured(
        &mut self,
        method: Method,
        path: &str,
        body: String,
        most: impl Fn(&Reply) -> u64,
    ) -> (Reply, u64) {
        let mut attempts = 1;
        loop {
            let (reply, more) = self.measured_once(method.clone(), path, body.clone()).await;
            if more <= most(&reply) || attempts == MAX_ATTEMPTS {
                return (reply, more);
            }
            attempts += 1;
        }
    }

    async fn measured_once(&mut self, method: Method, path: &str, body: String) -> (Reply, u64) {
        let headers = [("content-type", "application/json")];
        let before = memory(&self.server, "VmRSS").min(self.used);
        self.used += MAX_KEPT_OF_EACH;
        forget_peak(&self.server);
        let reply = self.client.send(method, path, &headers, body.into()).await.unwrap();
        (reply, memory(&self.server, "VmHWM").saturating_sub(before))
    }
}

/// Whether a shape is measured in a place, both by their numbers: each shape in every second place, and each place with every second shape. `TRILOGUE_ALL_SHAPES` measures all.
fn is_measured(shape: usize, place: usize) -> bool {
    (shape + place).is_multiple_of(2) || std::env::var_os("TRILOGUE_ALL_SHAPES").is_some()
}

/// JSON of about this size that repeats a piece, in a list or as members.
fn shapes(bytes: usize) -> Vec<(&'static str, String)> {
    let list = |piece: &str| format!("[{}]", vec![piece; bytes / (piece.len() + 1)].join(","));
    let members = |value: &str| {
        let one = format!("\"{:08}\":{value}", 0);
        let members = (0..bytes / (one.len() + 1)).map(|key| format!("\"{key:08}\":{value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    let nested = format!("{}{}", "[".repeat(60), "]".repeat(60));
    vec![
        // Numbers that are nearly refused as too complex at this size.
        ("short numbers", list("123456")),
        ("empty objects", list("{}")),
        ("empty lists", list("[]")),
        ("objects of one member", list("{\"a\":1}")),
        ("digits", list("0")),
        ("long numbers", list("123456789.123456789e-7")),
        ("a very long number", format!("[{}]", "7".repeat(bytes))),
        ("empty strings", list("\"\"")),
        ("nested lists", list(&nested)),
        ("nested without end", "[".repeat(bytes)),
        ("many keys", members("0")),
        ("many keys of objects", members("{\"b\":{}}")),
        ("escapes", format!("\"{}\"", "\\u0041".repeat(bytes / 6))),
        ("line ends", format!("\"{}\"", "\\n".repeat(bytes / 2))),
        ("one long text", format!("\"{}\"", "x".repeat(bytes))),
        ("messages", list("{\"role\":\"user\",\"parts\":[{\"content\":\"a\"}]}")),
    ]
}

/// The request bodies of each protocol that hold this value. A run is awaited, or its work would count for the next request.
fn bodies(value: &str) -> [(&'static str, String); 7] {
    let configured = |config: &str| {
        format!(
            "{{\"agent_id\":\"echo\",\"input\":{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}]}},\"config\":{config}}}"
        )
    };
    [
        ("/api/v1/runs", format!("{{\"agent\":\"echo\",\"mode\":\"wait\",\"input\":{value}}}")),
        ("/api/v1/threads", format!("{{\"metadata\":{{\"a\":{value}}}}}")),
        (
            "/communication/runs",
            format!("{{\"agent_name\":\"echo\",\"mode\":\"sync\",\"input\":{value}}}"),
        ),
        ("/connect/runs/wait", format!("{{\"agent_id\":\"echo\",\"input\":{value}}}")),
        ("/connect/threads", format!("{{\"metadata\":{{\"a\":{value}}}}}")),
        ("/connect/runs/wait", configured(&format!("{{\"a\":{value}}}"))),
        ("/connect/runs/wait", configured(&format!("{{\"configurable\":{{\"a\":{value}}}}}"))),
    ]
}

/// The lines of a hosted agent's turn that hold this value, with the end of the turn.
fn lines(value: &str) -> [(&'static str, String); 7] {
    let update = |update: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{{\"sessionId\":\"s\",\"update\":{update}}}}}\n"
        )
    };
    let chunk = |content: &str| {
        update(&format!("{{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{content}}}"))
    };
    let end = |more: &str| {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"ID\",\"result\":{{\"stopReason\":\"end_turn\"{more}}}}}\n"
        )
    };
    let ended = |lines: String| lines + &end("");
    [
        ("text", ended(chunk(&format!("{{\"type\":\"text\",\"text\":{value}}}")))),
        (
            "text's metadata",
            ended(chunk(&format!(
                "{{\"type\":\"text\",\"text\":\"x\",\"_meta\":{{\"a\":{value}}}}}"
            ))),
        ),
        (
            "tool call",
            ended(update(&format!(
                "{{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"t\",\"title\":\"t\",\"rawInput\":{value}}}"
            ))),
        ),
        (
            "unknown notification",
            ended(format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"_x/y\",\"params\":{{\"a\":{value}}}}}\n"
            )),
        ),
        (
            "request",
            ended(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"r\",\"method\":\"fs/read_text_file\",\"params\":{{\"sessionId\":\"s\",\"path\":\"/x\",\"_meta\":{{\"a\":{value}}}}}}}\n"
            )),
        ),
        (
            "permission request",
            ended(format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"session/request_permission\",\"params\":{{\"sessionId\":\"s\",\"toolCall\":{{\"toolCallId\":\"t\",\"title\":\"t\",\"rawInput\":{value}}},\"options\":[{{\"optionId\":\"o\",\"name\":\"o\",\"kind\":\"allow_once\"}}]}}}}\n"
            )),
        ),
        // An invalid line answers nothing, so a valid answer follows.
        ("result", ended(end(&format!(",\"_meta\":{{\"a\":{value}}}")))),
    ]
}

/// The events of a run at another server that hold this value.
fn far_events(value: &str) -> [(&'static str, String); 4] {
    let part = |members: &str| {
        format!(
            "{{\"type\":\"message.part\",\"part\":{{\"content_type\":\"text/plain\",{members}}}}}"
        )
    };
    [
        ("content", part(&format!("\"content\":{value}"))),
        ("metadata", part(&format!("\"content\":\"x\",\"metadata\":{value}"))),
        ("generic", format!("{{\"type\":\"generic\",\"generic\":{value}}}")),
        ("unknown", format!("{{\"type\":\"x.y\",\"a\":{value}}}")),
    ]
}

/// Runs an agent, and notes in `failures` if that took too much memory for its output of this size, or if the run did not end.
async fn run_within(
    server: &mut MeasuredServer,
    agent: &str,
    (what, bytes): (&str, usize),
    failures: &mut Vec<String>,
) -> String {
    let body = json!({ "agent": agent, "mode": "wait", "input": "x" }).to_string();
    let (reply, more) = server.measured(Method::POST, "/api/v1/runs", body, |_| MOST).await;
    let run = reply.json();
    let status = run["status"].as_str().unwrap_or_default().to_owned();
    let reason = run.pointer("/outcome/error/code").cloned().unwrap_or_default();
    eprintln!("{agent}, {what}: {status} {reason}, {bytes} bytes, {more} KiB");
    // A permission request waits for an answer.
    let has_ended = matches!(&*status, "completed" | "failed" | "interrupted");
    if more > MOST || !has_ended {
        failures.push(format!("{agent}, {what}: {} {status}, {more} KiB", reply.status));
    }
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_of_an_agent_of_every_shape_take_memory_in_proportion_to_their_size() {
    let cwd = Folder::new().unwrap();
    let program = cwd.path().join("agent.sh");
    std::fs::write(&program, AGENT).unwrap();
    // A rule that does not apply still reads the call.
    let settings = format!(
        "[agents.hosted]\nkind = \"agent-client\"\ncommand = [\"/bin/bash\", {program:?}]\ncwd = {:?}\n[[agents.hosted.permissions]]\ntool = \"other\"\ndecision = \"deny\"\n",
        cwd.path()
    );
    let file = cwd.path().join("lines");
    let start = async || {
        MeasuredServer::start(&settings, async |client| {
            for (place, lines) in lines("\"hello\"") {
                std::fs::write(&file, lines).unwrap();
                let body = json!({ "agent": "hosted", "mode": "wait", "input": "x" });
                let run = client.post("/api/v1/runs", &body).await.unwrap().json();
                let is_asked = place == "permission request";
                let expected = if is_asked { "interrupted" } else { "completed" };
                assert_eq!(run["status"], expected, "{run}");
            }
        })
        .await
    };
    let mut failures = Vec::new();
    for (number, (shape, value)) in shapes(BODY_BYTES).into_iter().enumerate() {
        let mut server = start().await;
        let places = lines(&value).into_iter().enumerate();
        for (_, (place, lines)) in places.filter(|(place, _)| is_measured(number, *place)) {
            let what = format!("{shape}, {place}");
            std::fs::write(&file, &lines).unwrap();
            run_within(&mut server, "hosted", (&what, lines.len()), &mut failures).await;
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_of_another_server_of_every_shape_take_memory_in_proportion_to_their_size() {
    let far = PayloadServer::start().await.unwrap();
    let settings = bridge_settings("agent-communication", &far.url(), &["any"]);
    let mut failures = Vec::new();
    for (number, (shape, value)) in shapes(BODY_BYTES).into_iter().enumerate() {
        let mut server = MeasuredServer::start(&settings, async |client| {
            for (_, event) in far_events("\"hello\"") {
                far.answer_with_event(&event);
                let body = json!({ "agent": "far_any", "mode": "wait", "input": "x" });
                client.post("/api/v1/runs", &body).await.unwrap();
            }
        })
        .await;
        let places = far_events(&value).into_iter().enumerate();
        for (_, (place, event)) in places.filter(|(place, _)| is_measured(number, *place)) {
            far.answer_with_event(&event);
            let what = format!("{shape}, {place}");
            run_within(&mut server, "far_any", (&what, event.len()), &mut failures).await;
        }
        // The first item of the list stands for the event that the stream has had.
        far.answer_with_list(&value.replacen('[', "[0,", 1));
        let what = format!("{shape}, list of events");
        run_within(&mut server, "far_any", (&what, value.len()), &mut failures).await;
        far.refuse_with(&value);
        let what = format!("{shape}, refusal");
        run_within(&mut server, "far_any", (&what, value.len()), &mut failures).await;
    }
    assert_eq!(failures, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_every_shape_take_memory_in_proportion_to_their_size() {
    let mut failures = Vec::new();
    for (number, (shape, value)) in shapes(BODY_BYTES).into_iter().enumerate() {
        let mut server = MeasuredServer::start("", async |client| {
            let headers = [("content-type", "application/json")];
            for (path, body) in bodies("\"hello\"") {
                client.send(Method::POST, path, &headers, body.into()).await.unwrap();
            }
        })
        .await;
        let places = bodies(&value).into_iter().enumerate();
        for (_, (path, body)) in places.filter(|(place, _)| is_measured(number, *place)) {
            let size = body.len();
            let (reply, more) = server.measured(Method::POST, path, body, most_with).await;
            eprintln!(
                "{shape}, {path}: {} {}, {size} bytes, {more} KiB",
                reply.status,
                reply.code()
            );
            if more > most_with(&reply) || reply.status >= 500 {
                failures.push(format!("{shape}, {path}: {}, {more} KiB", reply.status));
            }
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// The memory that an input with this response may need, in KiB. A response has a limit of its own. It is rendered from the output, and those of the Agent Connect
/// Protocol repeat that up to seven times.
fn most_with(reply: &Reply) -> u64 {
    MOST + 3 * (reply.body.len() / 1024) as u64
}

/// JSON in a string: its values are parsed when the text is taken for a block or a question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_in_a_string_takes_memory_in_proportion_to_its_size() {
    let far = PayloadServer::start().await.unwrap();
    let settings = bridge_settings("agent-communication", &far.url(), &["any"]);
    let start = async || {
        MeasuredServer::start(&settings, async |client| {
            let body = json!({ "agent": "echo", "mode": "wait", "input": "x" });
            client.post("/api/v1/runs", &body).await.unwrap();
        })
        .await
    };
    let values = vec!["{\"a\":0}"; BODY_BYTES / 8].join(",");
    let block = format!("{{\"type\":\"x\",\"a\":[{values}]}}");
    let question = format!(
        "{{\"interrupt_id\":\"i\",\"kind\":\"form\",\"options\":[],\"payload\":[{values}]}}"
    );
    let mut failures = Vec::new();

    let mut server = start().await;
    let thread = server.client.post("/connect/threads", &json!({})).await.unwrap().json();
    let thread = thread["thread_id"].as_str().unwrap().to_owned();
    let part = json!({ "content_type": "application/json", "content": block, "trilogue": { "block": true } });
    let run = json!({
        "agent_name": "echo", "mode": "sync", "session_id": thread,
        "input": [{ "role": "user", "parts": [part] }],
    });
    let state = format!("/connect/threads/{thread}/state");
    measure(&mut server, Method::POST, "/communication/runs", run.to_string(), &mut failures).await;
    measure(&mut server, Method::GET, &state, String::new(), &mut failures).await;

    let mut server = start().await;
    let parts = json!([
        { "content_type": "text/plain", "content": "q?" },
        { "content_type": "application/json", "content": question },
    ]);
    let message = json!({ "role": "agent", "parts": parts, "x_trilogue": { "interrupt_id": "i" } });
    let waiting = json!({
        "run_id": "01890a5d-ac96-774b-bcce-b302099a8057", "agent_name": "any",
        "status": "awaiting", "output": [], "created_at": "2026-01-01T00:00:00Z",
        "await_request": { "type": "message", "message": message },
    });
    far.answer_with_event(&json!({ "type": "run.awaiting", "run": waiting }).to_string());
    let run = json!({ "agent": "far_any", "mode": "wait", "input": "x" }).to_string();
    let run = measure(&mut server, Method::POST, "/api/v1/runs", run, &mut failures).await;
    assert_eq!(run["status"], "interrupted", "{run:.500}");
    for face in ["/communication/runs", "/connect/runs", "/api/v1/runs"] {
        let path = format!("{face}/{}", run["id"].as_str().unwrap());
        measure(&mut server, Method::GET, &path, String::new(), &mut failures).await;
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// Sends a request, and notes in `failures` if it failed or took too much memory.
async fn measure(
    server: &mut MeasuredServer,
    method: Method,
    path: &str,
    body: String,
    failures: &mut Vec<String>,
) -> Value {
    let (what, body_len) = (format!("{method} {path}"), body.len());
    // What is read is in memory already, in the log and as an open question. What is written comes there.
    let kept = |reply: &Reply| match body_len {
        0 => MOST,
        _ => 3 * (reply.body.len() / 1024) as u64,
    };
    let most = |reply: &Reply| kept(reply) + most_with(reply);
    let (reply, more) = server.measured(method, path, body, most).await;
    eprintln!("{what}: {}, {} bytes, {more} KiB", reply.status, reply.body.len());
    if more > most(&reply) || reply.status >= 300 {
        failures.push(format!("{what}: {} {}, {more} KiB", reply.status, reply.code()));
    }
    reply.json()
}
