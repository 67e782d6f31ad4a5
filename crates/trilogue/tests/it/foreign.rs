//! A small third-party server of the Agent Communication Protocol: its events have no ids, it knows no tokens, and it responds from a script.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{BINARY, Home, ProgramOutput, finish};

pub(crate) const RUN: &str = "2a4496e1-b907-4b65-9cec-2ae5658024fe";
pub(crate) const SESSION: &str = "87cd7dc0-0000-4000-8000-000000000001";

/// A running server. It runs until the test ends.
#[derive(Debug)]
pub(crate) struct Foreign {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    /// Header fields; the names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    ends: Ends,
}

/// How a body ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    /// As HTTP requires.
    Well,
    /// In the middle.
    Torn,
    Never,
}

#[derive(Debug, Default)]
struct Shared {
    /// The next replies for each request line; the last one repeats.
    replies: Mutex<Vec<(String, VecDeque<Reply>)>>,
    requests: Mutex<Vec<Request>>,
}

// === impl Foreign ===

impl Foreign {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&serving);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        let foreign = Self { address, shared };
        foreign.on("GET /ping", [Reply::json(200, &json!({}))]);
        foreign
    }

    /// Sets the replies for requests with this line, in order; the last one repeats.
    pub(crate) fn on(&self, line: &str, replies: impl IntoIterator<Item = Reply>) {
        let mut known = self.shared.replies.lock().unwrap();
        known.retain(|(other, _)| other != line);
        known.push((line.to_owned(), replies.into_iter().collect()));
    }

    pub(crate) fn on_run(&self, replies: impl IntoIterator<Item = Reply>) {
        self.on("POST /runs", replies);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn command(&self, home: &Home, arguments: &[&str]) -> Command {
        let mut command = home.program(BINARY);
        command.args(arguments).args(["--url", &self.url()]);
        command
    }

    pub(crate) fn run(&self, home: &Home, arguments: &[&str]) -> ProgramOutput {
        finish(self.command(home, arguments), "")
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// The lines of all requests so far, without those that detect the protocol.
    pub(crate) fn lines(&self) -> Vec<String> {
        let asks = ["GET /ping", "GET /api/v1/caller"];
        let lines = self.requests().into_iter().map(|request| request.line);
        lines.filter(|line| !asks.contains(&line.as_str())).collect()
    }

    /// The body of the first request of this line.
    pub(crate) fn request_body(&self, line: &str) -> Value {
        let requests = self.requests();
        let request = requests.iter().find(|request| request.line == line).unwrap();
        serde_json::from_str(&request.body).unwrap()
    }
}

// === impl Shared ===

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let mut reader = BufReader::new(stream);
        let Some(request) = read(&mut reader) else { return };
        let reply = self.reply(&request.line);
        self.requests.lock().unwrap().push(request);
        let Reply { status, content_type, body, ends } = reply;
        // A length that the body never reaches makes the end of the connection an error.
        let missing = if ends == Ends::Well { 0 } else { 1 };
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len() + missing
        );
        let mut writer = stream;
        // A client may disconnect at any time.
        let _ = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(&body));
        if ends == Ends::Never {
            let _ = reader.read(&mut [0]);
        }
    }

    fn reply(&self, line: &str) -> Reply {
        let mut known = self.replies.lock().unwrap();
        let replies = known.iter_mut().find(|(other, _)| other == line).map(|(_, them)| them);
        let reply = replies.and_then(|replies| match replies.len() {
            0 | 1 => replies.front().cloned(),
            _ => replies.pop_front(),
        });
        reply.unwrap_or_else(|| Reply::refusal(404, "not_found", "Not Found"))
    }
}

fn read(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let line = line.rsplit_once(' ')?.0.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { line, headers, body: String::from_utf8(body).ok()? })
}

// === impl Reply ===

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        let body = body.to_string().into_bytes();
        Self { status, content_type: "application/json", body, ends: Ends::Well }
    }

    pub(crate) fn refusal(status: u16, code: &str, message: &str) -> Self {
        Self::json(status, &json!({ "code": code, "message": message, "data": null }))
    }

    pub(crate) fn stream(events: &[Value]) -> Self {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let content_type = "text/event-stream; charset=utf-8";
        Self { status: 200, content_type, body: body.into_bytes(), ends: Ends::Well }
    }

    /// The same reply, broken in the middle of a further event.
    pub(crate) fn torn(mut self) -> Self {
        self.body.extend_from_slice(b"data: {\"type\":\"mess");
        Self { ends: Ends::Torn, ..self }
    }

    /// The same reply, with the connection open until the client disconnects.
    pub(crate) fn open(self) -> Self {
        Self { ends: Ends::Never, ..self }
    }

    pub(crate) fn list(events: &[Value]) -> Self {
        Self::json(200, &json!({ "events": events }))
    }

    pub(crate) fn bytes(body: &[u8]) -> Self {
        let content_type = "application/octet-stream";
        Self { status: 200, content_type, body: body.to_vec(), ends: Ends::Well }
    }
}

pub(crate) fn run(status: &str, changed: &Value) -> Value {
    let mut run = json!({
        "run_id": RUN, "agent_name": "echo", "session_id": SESSION, "status": status,
        "await_request": null, "output": [], "error": null,
        "created_at": "2026-11-20T23:50:09.146119Z", "finished_at": null,
    });
    for (name, value) in changed.as_object().into_iter().flatten() {
        run[name] = value.clone();
    }
    run
}

pub(crate) fn now(status: &str) -> Value {
    json!({ "type": format!("run.{status}"), "run": run(status, &Value::Null) })
}

/// The event of a run that waits for a message and asks with these parts; without parts, the run asks no question.
pub(crate) fn awaiting(parts: &Value) -> Value {
    let message =
        json!({ "role": "user", "parts": parts, "created_at": null, "completed_at": null });
    let request = json!({ "await_request": { "type": "message", "message": message } });
    json!({ "type": "run.awaiting", "run": run("awaiting", &request) })
}

pub(crate) fn start_events() -> Vec<Value> {
    vec![now("created"), now("in-progress")]
}

pub(crate) fn message(kind: &str) -> Value {
    let message = json!({ "role": "user", "parts": [], "created_at": null, "completed_at": null });
    json!({ "type": format!("message.{kind}"), "message": message })
}

pub(crate) fn part(members: &Value) -> Value {
    let mut part = json!({
        "name": null, "content_type": "text/plain", "content": null,
        "content_encoding": "plain", "content_url": null, "metadata": null,
    });
    for (name, value) in members.as_object().into_iter().flatten() {
        part[name] = value.clone();
    }
    json!({ "type": "message.part", "part": part })
}

pub(crate) fn message_events(text: &str) -> Vec<Value> {
    vec![message("created"), part(&json!({ "content": text })), message("completed")]
}
