//! `trilogue webhooks`: deliveries that the command receives, and those that a server gave up.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use trilogue::config::Secret;
use trilogue::server::callback_secret;

use crate::harness::{BINARY, Home, Server, finish, lasting_address, until};

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A listener that exits after a number of deliveries. Killed when dropped.
pub(crate) struct Listening {
    child: Child,
    pub(crate) address: String,
    /// Its output besides the deliveries, until it listened.
    said: String,
}

// === impl Listening ===

impl Listening {
    pub(crate) fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.program(BINARY);
        command.args(["webhooks", "listen"]).args(arguments);
        if !arguments.contains(&"--listen") {
            command.args(["--port", "0"]);
        }
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let line = lines.next().unwrap().unwrap();
            match line.strip_prefix("listening on http://") {
                Some(address) => break address.to_owned(),
                None => said.push_str(&line),
            }
        };
        Self { child, address, said }
    }

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
        send(&self.address, method, headers, body)
    }

    fn deliver(&self, id: &str, body: &str) -> u16 {
        self.deliver_at(now(), id, body)
    }

    fn deliver_at(&self, at: i64, id: &str, body: &str) -> u16 {
        let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
        self.deliver_signed(&key, at, id, body)
    }

    fn deliver_signed(&self, key: &[u8], at: i64, id: &str, body: &str) -> u16 {
        let signature = trilogue_gateway::callback::sign(key, id, at, body.as_bytes());
        let at = at.to_string();
        let headers = [
            ("webhook-id", id),
            ("webhook-timestamp", at.as_str()),
            ("webhook-signature", &signature),
        ];
        self.send("POST", &headers, body.as_bytes())
    }

    pub(crate) fn end(mut self) -> Vec<String> {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(self.child.wait().unwrap().success(), "{out}");
        out.lines().map(str::to_owned).collect()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request unchanged, and returns the status of the response.
pub(crate) fn send(address: &str, method: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut head = format!("{method} /hook?x=1 HTTP/1.1\r\nhost: {address}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("connection: close\r\ncontent-length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().parse().unwrap()
}

pub(crate) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    i64::try_from(now).unwrap()
}

#[test]
fn deliveries_are_verified_and_printed_one_a_line() {
    let home = Home::new();
    let listening = Listening::start(&home, &["--secret", SECRET, "--count", "6"]);
    let body = r#"{"run_id":"r","status":"success","event":"run.status","output":{"type":"result","values":{"message":"hi\u001b[2J"}}}"#;
    assert_eq!(listening.deliver("r.7", body), 204);
    assert_eq!(listening.deliver("r.7", body), 204);
    assert_eq!(
        listening.deliver("r.5", r#"{"run_id":"r","event":"run.custom","update":{"a":1}}"#),
        204
    );
    assert_eq!(listening.deliver_at(now() - 301, "r.8", body), 401);
    assert_eq!(listening.send("POST", &[], b"\xff\n"), 401);
    // A request that is not a delivery gets a response and is not printed.
    assert_eq!(listening.send("GET", &[], b""), 405);
    assert_eq!(listening.deliver("s.1", "not\nJSON"), 204);
    let lines = listening.end();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    assert_eq!(lines[0], r#"r.7  verified  /hook?x=1  run.status  r  success  "hi\u001b[2J""#);
    assert!(lines[1].starts_with("r.7  verified  repeated  "), "{}", lines[1]);
    assert_eq!(lines[2], r#"r.5  verified  out of order  /hook?x=1  run.custom  r  {"a":1}"#);
    assert!(lines[3].starts_with("r.8  REFUSED: "), "{}", lines[3]);
    assert!(lines[4].starts_with("-  REFUSED: "), "{}", lines[4]);
    assert_eq!(lines[5], r#"s.1  verified  /hook?x=1  "not\nJSON""#);
}

#[test]
fn as_json_each_delivery_is_whole() {
    let home = Home::new();
    let listening = Listening::start(&home, &["--secret", SECRET, "--count", "2", "--json"]);
    listening.deliver("r.7", r#"{"run_id":"r"}"#);
    listening.send("POST", &[("webhook-id", "x")], b"[]");
    let lines: Vec<Value> =
        listening.end().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["id"], &lines[0]["verdict"]), (&"r.7".into(), &"verified".into()));
    assert_eq!(
        (&lines[0]["path"], &lines[0]["body"]["run_id"]),
        (&"/hook?x=1".into(), &"r".into())
    );
    assert_eq!((&lines[1]["id"], &lines[1]["verdict"]), (&"x".into(), &"refused".into()));
}

#[test]
fn what_is_too_large_is_refused_and_the_listener_goes_on() {
    let home = Home::new();
    let listening = Listening::start(&home, &["--count", "1"]);
    assert!(listening.said.contains("nothing is verified"), "{}", listening.said);
    let mut stream = TcpStream::connect(&listening.address).unwrap();
    let head =
        format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 17 * 1024 * 1024);
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b' '; 1024 * 1024];
    // The listener may respond and close before everything is sent.
    let sent = (0..17).take_while(|_| stream.write_all(&piece).is_ok()).count();
    let mut answer = [0; 12];
    let read = stream.read_exact(&mut answer);
    assert!(sent < 17 || (read.is_ok() && answer.ends_with(b"413")), "{sent} {answer:?}");
    assert_eq!(listening.send("POST", &[], b"{}"), 204);
    assert_eq!(listening.end(), ["-  unverified  /hook?x=1  {}"]);
}

#[test]
fn a_listener_takes_what_this_users_server_signs_for_its_own_address_only() {
    let home = Home::new();
    fs::create_dir_all(home.state()).unwrap();
    let file = home.state().join("callback_secret");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    home.run(&["webhooks", "listen"]).complains(5, "chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let listening = Listening::start(&home, &["--count", "5"]);
    let secret: Secret = SECRET.parse().unwrap();
    let deliver = |url: &str| {
        let key = callback_secret::keys_of_owner(&secret, url).unwrap()[0];
        listening.deliver_signed(&key, now(), "a", "{}")
    };
    let address = &listening.address;
    let port = address.rsplit_once(':').unwrap().1;
    assert_eq!(deliver(&format!("http://{address}/hook")), 204);
    assert_eq!(deliver(&format!("http://localhost:{port}/hook?run=2")), 204);
    // A delivery that another receiver of the same user forwards, and one that the server's own secret signs.
    assert_eq!(deliver(&format!("http://{address}/other")), 401);
    assert_eq!(deliver("http://hooks.example.com/hook"), 401);
    assert_eq!(listening.deliver("a", "{}"), 401);
    assert_eq!(listening.end()[0], "a  verified  /hook?x=1  {}");
    home.run(&["webhooks", "listen", "--secret", "whsec_!"]).complains(2, "base64");
}

#[test]
fn a_server_tells_the_secret_of_an_address() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--allow-egress", "127.0.0.1"]);
    let address = lasting_address();
    let url = format!("http://{address}/hook");
    let secret = server.run(&["webhooks", "secret", &url]).expect(0).out;
    let other = server.run(&["webhooks", "secret", "http://127.0.0.1:9/"]).expect(0).out;
    assert_ne!(secret, other);
    server.run(&["webhooks", "secret", "hook"]).complains(2, "web address");
    let arguments = ["--secret", secret.trim(), "--listen", &address, "--count", "1"];
    let listening = Listening::start(&home, &arguments);
    run_with_callback(&server, &json!(url));
    let lines = listening.end();
    assert!(lines[0].contains("  verified  /hook  run.status"), "{lines:#?}");
}

pub(crate) fn run_with_callback(server: &Server, callback: &Value) -> Value {
    let body =
        json!({ "agent_id": "echo", "input": { "message": "call me" }, "callback": callback });
    let token = fs::read_to_string(server.token_file()).unwrap();
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-H", &format!("x-api-key: {}", token.trim()), "-d", &body.to_string()]);
    curl.arg(format!("{}/connect/runs", server.url()));
    finish(curl, "").expect(0).json()
}

#[test]
fn what_a_server_delivers_is_verified() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--allow-egress", "127.0.0.1"]);
    let listening = Listening::start(&home, &["--count", "2"]);
    let url = |path: &str| format!("http://{}/{path}", listening.address);
    let run = run_with_callback(&server, &json!(url("callme")));
    let run = run["run_id"].as_str().unwrap();
    let all = json!({ "url": url("second"), "events": ["status"] });
    let second = run_with_callback(&server, &all);
    let second = second["run_id"].as_str().unwrap();
    let lines = listening.end();
    let line = |path: &str| lines.iter().find(|line| line.contains(path)).unwrap();
    for (path, run) in [("/callme", run), ("/second", second)] {
        let end = format!("  verified  {path}  run.status  {run}  success  \"call me\"");
        assert!(line(path).ends_with(&end), "{lines:#?}");
    }
}

#[test]
fn what_a_server_gave_up_is_listed_and_delivered_again() {
    let home = Home::new();
    let agent = "[agents.echo]\nkind = \"builtin\"\n";
    home.write(
        "t.toml",
        &format!("{agent}[callbacks]\nattempts = 1\n[egress]\nallow = [\"127.0.0.1\"]\n"),
    );
    let arguments =
        ["serve", "--config", "t.toml", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let server = home.start(&arguments);
    server.run(&["webhooks", "list"]).complains(0, "no callback has failed");
    let address = lasting_address();
    let runs: Vec<_> =
        (0..3).map(|_| run_with_callback(&server, &json!(format!("http://{address}/x")))).collect();
    let ids = until(|| {
        let listed = server.run(&["webhooks", "list", "-q"]).expect(0).out;
        (listed.lines().count() == 3).then(|| listed.lines().map(str::to_owned).collect::<Vec<_>>())
    });
    let listed = server.run(&["webhooks", "list"]).expect(0);
    for run in &runs {
        assert!(listed.out.contains(run["run_id"].as_str().unwrap()), "{}", listed.out);
    }
    assert!(listed.err.contains("webhooks redeliver"), "{}", listed.err);
    let listening = Listening::start(&home, &["--listen", &address, "--count", "3"]);
    server.run(&["webhooks", "redeliver", &ids[0]]).expect(0);
    let again = server.run(&["webhooks", "redeliver", "--all", "--json"]).expect(0).json();
    assert_eq!(again["redelivered"].as_array().unwrap().len(), 2);
    let lines = listening.end();
    assert!(lines.iter().all(|line| line.contains("verified  /x  run.status")), "{lines:#?}");
    assert_eq!(server.run(&["webhooks", "list", "-q"]).expect(0).out, "");
    server.run(&["webhooks", "redeliver", &ids[0]]).expect(4);
    server.run(&["webhooks", "redeliver"]).expect(2);
}

#[test]
fn a_port_that_is_taken_is_told() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    home.run(&["webhooks", "listen", "--port", &port]).complains(7, "--port 0");
}

#[test]
fn a_listener_verifies_with_the_secrets_of_the_running_servers_configuration() {
    let home = Home::new();
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    // While a secret is replaced, the server signs with both.
    let config = format!(
        "[store]\nurl = \"memory:\"\n[callbacks]\nsecrets = [{other:?}, {SECRET:?}]\n\
         [egress]\nallow = \"127.0.0.1\"\n[agents.echo]\nkind = \"builtin\"\n"
    );
    home.write("mine.toml", &config);
    let server = home.start(&["serve", "--config", "mine.toml", "--listen", "127.0.0.1:0"]);
    let listening = Listening::start(&home, &["--count", "2"]);
    assert_eq!(listening.said, "");
    run_with_callback(&server, &json!(format!("http://{}/hook", listening.address)));
    // A sender without the secret is refused.
    assert_eq!(listening.deliver("a", "{}"), 401);
    let lines = listening.end();
    assert!(lines.iter().any(|line| line.contains("  verified  /hook  run.status")), "{lines:#?}");

    // Without a running server, the file is named.
    drop(server);
    let named = Listening::start(&home, &["--config", "mine.toml", "--count", "1"]);
    let secret: Secret = SECRET.parse().unwrap();
    let url = format!("http://{}/hook", named.address);
    let key = callback_secret::keys_of_owner(&secret, &url).unwrap()[0];
    assert_eq!(named.deliver_signed(&key, now(), "b", "{}"), 204);
}
