//! The receivers of signed callbacks in `examples/callbacks` accept a server's deliveries, and nothing else.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::agent_client_examples::example;
use crate::harness::{Home, lasting_address};
use crate::webhooks::{SECRET, now, run_with_callback, send};

/// A receiver, started like its documentation says. Killed when dropped.
struct Receiver {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    Python,
    JavaScript,
    Rust,
}

// === impl Language ===

impl Language {
    const ALL: [Self; 3] = [Self::Python, Self::JavaScript, Self::Rust];

    fn command(self, home: &Home) -> Command {
        let file = |name: &str| {
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/callbacks").join(name)
        };
        let (program, script) = match self {
            Self::Python => ("python3", Some(file("receiver.py"))),
            Self::JavaScript => ("node", Some(file("receiver.mjs"))),
            Self::Rust => return home.program(example("callback_receiver")),
        };
        let mut command = home.program(program);
        command.args(script);
        command
    }
}

// === impl Receiver ===

impl Receiver {
    fn start(language: Language, home: &Home, address: &str, secrets: &str) -> Self {
        let mut command = language.command(home);
        command.arg(address.rsplit_once(':').unwrap().1).env("CALLBACK_SECRET", secrets);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "listening", "{language:?}");
        Self { child, lines }
    }

    /// The next callback that it accepted.
    fn next_callback(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_receiver_takes_what_a_server_delivers() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0", "--allow-egress", "127.0.0.1"]);
    for language in Language::ALL {
        let address = lasting_address();
        let url = format!("http://{address}/hook");
        let secret = server.run(&["webhooks", "secret", &url]).expect(0).out;
        let mut receiver = Receiver::start(language, &home, &address, secret.trim());
        let run = run_with_callback(&server, &json!(url));
        let taken = receiver.next_callback();
        let body: Value = serde_json::from_str(taken["body"].as_str().unwrap()).unwrap();
        assert_eq!(body["run_id"], run["run_id"], "{language:?}: {taken}");
        assert_eq!(body["delivery_id"], taken["id"], "{language:?}: {taken}");
    }
}

#[test]
fn each_receiver_refuses_what_is_forged_old_changed_or_too_large() {
    let home = Home::new();
    let other = format!("whsec_{}", STANDARD.encode([7; 32]));
    for language in Language::ALL {
        let address = lasting_address();
        let mut receiver = Receiver::start(language, &home, &address, &format!("{other} {SECRET}"));
        let body = "{\"text\":\"Grüße\"}";
        let key = |secret: &str| STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let deliver = |secret: &[u8], age: i64, id: &str, sent: &str| {
            let at = now() - age;
            let signature = trilogue_gateway::callback::sign(secret, id, at, body.as_bytes());
            let at = at.to_string();
            let headers = [
                ("webhook-id", id),
                ("webhook-timestamp", at.as_str()),
                ("webhook-signature", &signature),
            ];
            send(&address, "POST", &headers, sent.as_bytes())
        };
        let own = key(SECRET);
        for (case, status) in [
            ("another key", deliver(&[9; 24], 0, "a", body)),
            ("an old one", deliver(&own, 301, "a", body)),
            ("one of the future", deliver(&own, -302, "a", body)),
            ("another body", deliver(&own, 0, "a", "{\"text\":\"changed\"}")),
            ("no signature", send(&address, "POST", &[("webhook-id", "a")], body.as_bytes())),
            ("nothing", send(&address, "POST", &[], b"")),
        ] {
            assert_eq!(status, 401, "{language:?}: {case}");
        }
        // A header of another delivery, and signatures that are not base64 or have another version.
        let now = now().to_string();
        let signed = trilogue_gateway::callback::sign(&own, "a", now.parse().unwrap(), b"x");
        for (id, signature) in
            [("b", signed.clone()), ("a", signed.replace("v1,", "v1a,")), ("a", "v1,§".to_owned())]
        {
            let headers = [
                ("webhook-id", id),
                ("webhook-timestamp", &now),
                ("webhook-signature", &signature),
            ];
            assert_eq!(send(&address, "POST", &headers, b"x"), 401, "{language:?}: {signature}");
        }
        assert!(send(&address, "GET", &[], b"") >= 400, "{language:?}");
        assert_eq!(announce(&address, 17 * 1024 * 1024), 413, "{language:?}");
        // Both secrets are valid, and a repeated attempt is processed once.
        for (secret, id) in [(SECRET, "d.1"), (SECRET, "d.1"), (&other, "d.2")] {
            assert_eq!(deliver(&key(secret), 0, id, body), 204, "{language:?}: {id}");
        }
        for id in ["d.1", "d.2"] {
            assert_eq!(receiver.next_callback(), json!({ "id": id, "body": body }), "{language:?}");
        }
    }
}

#[test]
fn a_receiver_without_a_secret_does_not_start() {
    let home = Home::new();
    for language in Language::ALL {
        let mut command = language.command(&home);
        command.arg("0").stderr(Stdio::piped());
        let output = command.output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{language:?}");
        assert!(complaint.contains("CALLBACK_SECRET"), "{language:?}: {complaint}");
    }
}

/// The status of a request that announces a body of this size and sends none.
fn announce(address: &str, bytes: usize) -> u16 {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("POST /hook HTTP/1.1\r\nhost: {address}\r\ncontent-length: {bytes}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut status = [0; 12];
    if stream.read_exact(&mut status).is_err() {
        return 0;
    }
    String::from_utf8_lossy(&status[9..]).parse().unwrap()
}
