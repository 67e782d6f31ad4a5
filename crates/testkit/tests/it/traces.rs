//! Runs as traces, in a collector that uses the official definitions.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use trilogue_testkit::foreign::ForeignServer;
use trilogue_testkit::official::scripted_agent;
use trilogue_testkit::{Client, Folder, Server, reserve_address, until};

use crate::bridge::start_with;
use crate::kill_rounds::stop;

const LIMIT: Duration = Duration::from_secs(30);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const MAIL: &str = "Write to ada@example.com saying that the meeting moves to Friday";

fn telemetry(url: &str, service: &str, more: &str) -> String {
    format!("\n[telemetry.otlp]\nendpoint = \"{url}\"\nservice_name = \"{service}\"\n{more}\n")
}

async fn traced(dir: &Folder, collector: &ForeignServer, settings: &str) -> Server {
    let settings = format!("{settings}{}", telemetry(&collector.url(), "tested", ""));
    start_with(dir, settings).await
}

async fn run(client: &Client, agent: &str, input: &str, flags: &str) -> Value {
    let body = json!({ "agent": agent, "input": input, "mode": "wait" }).to_string();
    let parent = format!("00-{TRACE}-{CALLER}-{flags}");
    let headers = [("traceparent", parent.as_str())];
    let sent = client.send(Method::POST, "/api/v1/runs", &headers, Bytes::from(body)).await;
    sent.unwrap().ok().unwrap()
}

async fn spans(collector: &ForeignServer) -> Vec<Value> {
    let spans = collector.client().get("/spans").await.unwrap().ok().unwrap();
    spans.as_array().unwrap().clone()
}

/// Waits for the run's own span, and returns all spans.
async fn spans_of(collector: &ForeignServer, run: &str) -> Vec<Value> {
    let look = || async move {
        let spans = spans(collector).await;
        let is_of_run = |span: &Value| span["attributes"]["trilogue.run.id"] == run;
        spans.iter().any(is_of_run).then_some(spans)
    };
    until("the collector to get the run", LIMIT, look).await.unwrap()
}

fn find_span<'a>(spans: &'a [Value], name: &str) -> &'a Value {
    let found = spans.iter().find(|span| span["name"] == name);
    found.unwrap_or_else(|| panic!("no span {name} in {spans:#?}"))
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}

async fn metrics(client: &Client) -> String {
    let reply = client.get("/metrics").await.unwrap();
    String::from_utf8_lossy(&reply.body).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_continues_the_trace_of_its_caller_and_tells_nothing_of_what_is_said() {
    let dir = Folder::new().unwrap();
    let collector = ForeignServer::collector().await.unwrap();
    let file = dir.path().join("key");
    fs::write(&file, "Bearer of-the-file\n").unwrap();
    let more = format!("header_files = {{ authorization = {file:?} }}");
    let server = start_with(&dir, telemetry(&collector.url(), "tested", &more)).await;
    let ended = run(&server.client(), "echo", "open sesame", "01").await;
    let (id, thread) = (text(&ended, "id"), text(&ended, "thread_id"));
    let spans = spans_of(&collector, id).await;
    let span = find_span(&spans, "invoke_agent echo");
    assert_eq!((text(span, "trace"), text(span, "parent")), (TRACE, CALLER));
    assert_eq!((text(span, "kind"), &span["flags"]), ("SPAN_KIND_SERVER", &json!(0x301)));
    let expected = json!({
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "echo",
        "gen_ai.conversation.id": thread,
        "trilogue.run.id": id,
        "trilogue.tenant": "default",
        "trilogue.run.outcome": "completed",
        "trilogue.run.events": span["attributes"]["trilogue.run.events"],
    });
    assert_eq!(span["attributes"], expected);
    assert_eq!(span["status"]["code"], "STATUS_CODE_UNSET");
    assert!(span["start"].as_u64() <= span["end"].as_u64(), "{span}");
    assert_eq!(span["resource"]["service.name"], "tested");
    let queue = find_span(&spans, "queue");
    assert_eq!((text(queue, "trace"), &queue["parent"]), (TRACE, &span["span"]));
    assert!(!json!(spans).to_string().contains("sesame"), "{spans:?}");
    let requests = collector.client().get("/requests").await.unwrap().ok().unwrap();
    assert_eq!(requests[0]["authorization"], "Bearer of-the-file");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hop_to_another_server_is_one_trace() {
    let (here, there) = (Folder::new().unwrap(), Folder::new().unwrap());
    let collector = ForeignServer::collector().await.unwrap();
    let far = start_with(&there, telemetry(&collector.url(), "far", "")).await;
    let token = here.path().join("token");
    fs::write(&token, far.token()).unwrap();
    let address = far.home().address();
    let agents: String = [("communication", "name"), ("connect", "agent")]
        .map(|(protocol, key)| {
            format!(
                "[agents.far_{protocol}]\nkind = \"agent-{protocol}\"\nurl = \"http://{address}/{protocol}\"\n{key} = \"echo\"\ntoken_file = {token:?}\n"
            )
        })
        .concat();
    let server = traced(&here, &collector, &agents).await;
    for (n, agent) in ["far_communication", "far_connect"].into_iter().enumerate() {
        let ended = run(&server.client(), agent, "x", "01").await;
        let spans = spans_of(&collector, text(&ended, "id")).await;
        let span = find_span(&spans, &format!("invoke_agent {agent}"));
        assert_eq!((text(span, "trace"), text(span, "parent")), (TRACE, CALLER));
        let below = || async {
            let all = self::spans(&collector).await;
            let of_far = all.into_iter().filter(|span| span["resource"]["service.name"] == "far");
            let runs: Vec<_> = of_far.filter(|span| span["name"] == "invoke_agent echo").collect();
            (runs.len() > n).then_some(runs)
        };
        let below = until("the other server's span", LIMIT, below).await.unwrap();
        assert_eq!((text(&below[n], "trace"), &below[n]["parent"]), (TRACE, &span["span"]));
    }
    stop(server).await;
    stop(far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_has_a_span_that_outlives_a_killed_server() {
    let dir = Folder::new().unwrap();
    let collector = ForeignServer::collector().await.unwrap();
    let server = traced(&dir, &collector, "").await;
    let waiting = run(&server.client(), "mailcomposer", MAIL, "01").await;
    let id = text(&waiting, "id");
    let server = server.kill().await.unwrap().start().await.unwrap();
    let client = server.client();
    let inbox = client.get("/api/v1/interrupts?pending=true").await.unwrap().ok().unwrap();
    let question = text(&inbox["items"][0], "id").to_owned();
    let path = format!("/api/v1/interrupts/{question}/answer");
    let answer = json!({ "value": { "approved": true } });
    client.post(&path, &answer).await.unwrap().ok().unwrap();
    let spans = spans_of(&collector, id).await;
    let run = find_span(&spans, "invoke_agent mailcomposer");
    let asked = spans.iter().find(|span| text(span, "name").starts_with("await_answer "));
    let asked = asked.unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!((&asked["parent"], text(asked, "trace")), (&run["span"], TRACE));
    assert_eq!(text(run, "parent"), CALLER);
    assert_eq!(asked["attributes"]["trilogue.question.id"], question.as_str());
    assert_eq!(asked["attributes"]["trilogue.question.how"], "answered");
    assert!(run["start"].as_u64() < asked["start"].as_u64(), "{spans:?}");
    assert!(asked["start"].as_u64() < asked["end"].as_u64(), "{spans:?}");
    assert!(asked["end"].as_u64() <= run["end"].as_u64(), "{spans:?}");
    assert!(!json!(spans).to_string().contains("ada@"), "{spans:?}");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_calls_and_failures_are_told() {
    let dir = Folder::new().unwrap();
    let collector = ForeignServer::collector().await.unwrap();
    let program = scripted_agent().await.unwrap();
    let settings = format!(
        "[agents.scripted]\nkind = \"agent-client\"\ncommand = [{program:?}]\ncwd = {:?}\n\n[agents.broken]\nkind = \"agent-client\"\ncommand = [\"false\"]\n",
        dir.path()
    );
    let server = traced(&dir, &collector, &settings).await;
    let client = server.client();
    let ended = run(&client, "scripted", "tool", "01").await;
    let spans = spans_of(&collector, text(&ended, "id")).await;
    let tool = spans.iter().find(|span| text(span, "name").starts_with("execute_tool "));
    let tool = tool.unwrap_or_else(|| panic!("{spans:#?}"));
    assert_eq!(tool["parent"], find_span(&spans, "invoke_agent scripted")["span"]);
    assert_eq!(tool["attributes"]["gen_ai.operation.name"], "execute_tool");
    assert!(tool["attributes"]["gen_ai.tool.call.id"].is_string(), "{tool}");
    // A title can contain content.
    assert!(!json!(spans).to_string().contains("Write much"), "{spans:?}");
    let failed = run(&client, "broken", "x", "01").await;
    let spans = spans_of(&collector, text(&failed, "id")).await;
    let span = find_span(&spans, "invoke_agent broken");
    let status = json!({ "code": "STATUS_CODE_ERROR", "message": "peer_unavailable" });
    assert_eq!(span["status"], status);
    assert_eq!(span["attributes"]["error.type"], "peer_unavailable");
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_caller_does_not_sample_is_not_sent_and_a_busy_collector_is_asked_again() {
    let dir = Folder::new().unwrap();
    let collector = ForeignServer::collector().await.unwrap();
    let server = traced(&dir, &collector, "").await;
    let client = server.client();
    let unsampled = run(&client, "echo", "x", "00").await;
    collector.client().post("/refuse/503/1", &json!({})).await.unwrap();
    let sampled = run(&client, "echo", "x", "01").await;
    let spans = spans_of(&collector, text(&sampled, "id")).await;
    assert!(!json!(spans).to_string().contains(text(&unsampled, "id")), "{spans:?}");
    let requests = collector.client().get("/requests").await.unwrap().ok().unwrap();
    assert_eq!(requests.as_array().unwrap().len(), 2, "{requests}");
    // A trace that begins in this server.
    let body = json!({ "agent": "echo", "input": "x", "mode": "wait" });
    let own = client.post("/api/v1/runs", &body).await.unwrap().ok().unwrap();
    let spans = spans_of(&collector, text(&own, "id")).await;
    let is_own = |span: &&Value| span["attributes"]["trilogue.run.id"] == own["id"];
    let span = spans.iter().find(is_own).unwrap();
    assert_eq!(text(span, "parent"), "");
    assert_ne!(text(span, "trace"), TRACE);
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_down_delays_no_run_and_what_is_lost_is_counted() {
    let dir = Folder::new().unwrap();
    // No server listens there.
    let url = format!("http://{}", reserve_address().unwrap());
    let server = start_with(&dir, telemetry(&url, "tested", "queue = 1")).await;
    let client = server.client();
    for _ in 0..20 {
        let ended = run(&client, "echo", "x", "01").await;
        assert_eq!(ended["status"], "completed", "{ended}");
    }
    let dropped = || async {
        let metrics = metrics(&client).await;
        let is_counted = |reason: &str| {
            let series = format!("trilogue_otlp_dropped_total{{reason=\"{reason}\"}} ");
            let value = metrics.lines().find_map(|line| line.strip_prefix(series.as_str()));
            value.is_some_and(|value| value != "0")
        };
        (is_counted("queue_full") && is_counted("collector")).then_some(())
    };
    until("the lost runs to be counted", LIMIT, dropped).await.unwrap();
    let log = fs::read_to_string(server.home().dir().join("server.log")).unwrap();
    assert_eq!(log.matches("the collector takes none").count(), 1, "{log}");
    assert_eq!(log.matches("does not keep up").count(), 1, "{log}");
    stop(server).await;
}
