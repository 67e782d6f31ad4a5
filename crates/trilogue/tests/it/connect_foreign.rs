//! `trilogue run` against another project's server of the Agent Connect Protocol, with the gaps of the reference server.

use std::io::Read as _;
use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::foreign::{Foreign, Reply};
use crate::harness::{Home, pid};
use crate::terminal::Screen;

const AGENT: &str = "3f1e2549-5799-4321-91ae-2a4881d55526";
const RUN: &str = "35acf935-0000-4000-8000-000000000001";

fn server() -> Foreign {
    let server = Foreign::start();
    let metadata = json!({ "ref": { "name": "org.agntcy.probe", "version": "0.1.0", "url": null }, "description": "A probe" });
    let agent = json!({ "agent_id": AGENT, "metadata": metadata });
    let specs = json!({
        "capabilities": { "threads": true, "interrupts": true, "callbacks": false, "streaming": { "values": true, "custom": true } },
        "input": { "type": "object", "properties": { "message": { "type": "string" } }, "required": ["message"] },
        "output": {}, "config": {}, "custom_streaming_update": null, "thread_state": null,
        "interrupts": [{
            "interrupt_type": "approval",
            "interrupt_payload": {},
            "resume_payload": { "type": "object", "properties": { "answer": { "type": "string", "title": "Your word" } }, "required": ["answer"] },
        }],
    });
    let unknown = || detail(404, "Not Found");
    server.on("GET /ping", [unknown()]);
    server.on("GET /api/v1/caller", [unknown()]);
    server
        .on("GET /agents/org.agntcy.probe", [detail(404, "Agent \"org.agntcy.probe\" not found")]);
    server.on("POST /agents/search", [Reply::json(200, &json!([agent]))]);
    let descriptor = json!({ "metadata": metadata, "specs": specs });
    server.on(&format!("GET /agents/{AGENT}/descriptor"), [Reply::json(200, &descriptor)]);
    server
}

fn detail(status: u16, text: &str) -> Reply {
    Reply::json(status, &json!({ "detail": text }))
}

fn no_modes() -> Reply {
    Reply::json(422, &json!({ "detail": [{ "loc": ["body", "stream_mode"], "msg": "bad" }] }))
}

fn run(status: &str) -> Value {
    json!({
        "run_id": RUN, "thread_id": null, "agent_id": AGENT, "status": status, "creation": {},
        "created_at": "2026-11-20T23:53:06.156959", "updated_at": "2026-11-20T23:53:06.156959",
    })
}

fn values(message: &str) -> Value {
    json!({ "type": "values", "run_id": RUN, "status": "pending", "values": { "message": message } })
}

fn waited(status: &str, output: &Value) -> Reply {
    Reply::json(200, &json!({ "run": run(status), "output": output }))
}

fn done(message: &str) -> Reply {
    waited("success", &json!({ "type": "result", "values": { "message": message, "log": [] } }))
}

fn on_run(server: &Foreign, end: &str, replies: impl IntoIterator<Item = Reply>) {
    server.on(&format!("GET /runs/{RUN}{end}"), replies);
}

#[test]
fn a_stream_without_modes_and_without_an_end_is_shown_whole() {
    let (home, server) = (Home::new(), server());
    let grows = Reply::stream(&[values("Gr"), values("Grüße"), values("Grüße")]);
    server.on("POST /runs/stream", [no_modes(), grows]);
    on_run(&server, "", [Reply::json(200, &run("success"))]);
    on_run(&server, "/wait", [done("Grüße.")]);
    let arguments = ["run", "org.agntcy.probe", "Hello", "--token", "sekret"];
    let ended = server.run(&home, &arguments).expect(0);
    assert_eq!(ended.out, "Grüße\n");
    let requests = server.requests();
    let created: Vec<Value> = requests
        .iter()
        .filter(|request| request.line == "POST /runs/stream")
        .map(|request| serde_json::from_str(&request.body).unwrap())
        .collect();
    assert_eq!(created[0]["stream_mode"], json!(["values", "custom"]));
    assert_eq!(created[1].get("stream_mode"), None);
    assert_eq!(created[1]["input"], json!({ "message": "Hello" }));
    assert_eq!(created[1]["agent_id"], AGENT);
    let keyed = |request: &crate::foreign::Request| {
        let has = |name: &str| request.headers.iter().any(|(header, _)| header == name);
        has("x-api-key") && !has("authorization")
    };
    assert!(requests.iter().filter(|request| request.line.contains("/runs")).all(keyed));
}

#[test]
fn a_value_without_words_is_shown_at_the_end() {
    let (home, server) = (Home::new(), server());
    server.on("POST /runs/stream", [Reply::stream(&[values("half")]).torn()]);
    on_run(&server, "/stream", [Reply::stream(&[])]);
    on_run(&server, "", [Reply::json(200, &run("error"))]);
    let error =
        json!({ "type": "error", "run_id": RUN, "errcode": 1, "description": "boom\u{1b}[2J" });
    on_run(&server, "/wait", [waited("error", &error)]);
    let ended = server.run(&home, &["run", "org.agntcy.probe", "Hello"]).expect(1);
    assert_eq!(ended.out, "half\n");
    assert!(ended.err.contains("the stream broke"), "{}", ended.err);
    assert!(ended.err.contains("the run failed: boom (error 1)"), "{}", ended.err);
}

#[test]
fn a_question_is_asked_by_the_descriptor_and_answered_as_it_is() {
    let (home, server) = (Home::new(), server());
    let asks =
        json!({ "type": "interrupt", "interrupt": { "approval": { "question": "proceed?" } } });
    // Such a server cannot stream on threads, so the client waits for the run.
    server.on("POST /threads", [Reply::json(200, &thread())]);
    server.on("POST /threads/t/runs/stream", [detail(500, "Not implemented")]);
    server.on("POST /threads/t/runs/wait", [waited("interrupted", &asks)]);
    let at = format!("POST /threads/t/runs/{RUN}");
    server.on(&at, [Reply::json(200, &run("pending"))]);
    let stream = format!("GET /threads/t/runs/{RUN}/stream");
    server.on(&stream, [detail(500, "Not implemented")]);
    server.on(&format!("GET /threads/t/runs/{RUN}/wait"), [done("went on")]);
    let arguments = ["run", "org.agntcy.probe", "Hello", "--thread", "t"];
    let mut screen = Screen::start(server.command(&home, &arguments));
    screen.wait_for("proceed?");
    screen.wait_for("| Your word");
    screen.answer("answer: ", "yes\r");
    let seen = screen.end_well();
    assert!(seen.contains("went on"), "{seen}");
    assert_eq!(server.request_body(&at), json!({ "answer": "yes" }));
    let made = server.request_body("POST /threads");
    assert_eq!((&made["metadata"], &made["if_exists"]), (&json!({}), &json!("do_nothing")));
}

fn thread() -> Value {
    json!({
        "thread_id": "t", "metadata": {}, "status": "idle", "values": null, "messages": null,
        "created_at": "2026-11-20T23:53:06.156959", "updated_at": "2026-11-20T23:53:06.156959",
    })
}

#[test]
fn what_such_a_server_refuses_is_told_in_its_words() {
    let (home, server) = (Home::new(), server());
    server.on("POST /runs/stream", [detail(422, ": 5 is not of type 'string'")]);
    server.run(&home, &["run", "org.agntcy.probe", "Hello"]).complains(2, "not of type");
    server.on("POST /agents/search", [Reply::json(200, &json!([]))]);
    server.run(&home, &["run", "org.agntcy.probe", "Hello"]).complains(4, "org.agntcy.probe");
    server.on("POST /agents/search", [detail(401, "Invalid API Key")]);
    server.on("GET /agents/org.agntcy.probe", [detail(401, "Invalid API Key")]);
    server.run(&home, &["run", "org.agntcy.probe", "Hello"]).complains(5, "Invalid API Key");
    // With a token, the client also tries the other way to send it.
    let arguments = ["run", "org.agntcy.probe", "Hello", "--token", "x"];
    server.run(&home, &arguments).expect(5);
    let sent = server.requests();
    let bearer = sent.iter().any(|it| {
        it.line == "GET /agents/org.agntcy.probe"
            && it.headers.iter().any(|(name, value)| name == "authorization" && value == "Bearer x")
    });
    assert!(bearer);
}

#[test]
fn agents_that_a_server_does_not_list_are_told() {
    let (home, server) = (Home::new(), server());
    let refused = "At least one of 'name' or 'version' must be provided";
    server.on("POST /agents/search", [Reply::json(200, &json!([])), detail(422, refused)]);
    server.run(&home, &["agents"]).complains(2, "must be provided");
}

#[test]
fn ctrl_c_where_nothing_can_be_cancelled_leaves() {
    let (home, server) = (Home::new(), server());
    server.on("POST /runs/stream", [Reply::stream(&[values("on and on")]).open()]);
    server.on(&format!("POST /runs/{RUN}/cancel"), [detail(500, "Not implemented")]);
    let mut running = server.command(&home, &["run", "org.agntcy.probe", "Hello", "--json"]);
    running.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = running.spawn().unwrap();
    // Once an event is printed, the command handles the signal.
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
    kill_process(pid(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let err = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{err}");
    assert!(err.contains("cannot cancel"), "{err}");
}
