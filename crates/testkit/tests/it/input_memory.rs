//! Requests of every shape take memory in proportion to their size.

use http::Method;
use trilogue_testkit::{Folder, Server, ServerOptions};

use crate::long_thread::{forget_peak, memory};

const MIB: usize = 1024 * 1024;
const BODY_BYTES: usize = 4 * MIB;
/// The memory limit for a body, in multiples of its size.
const MAX_FACTOR: usize = 8;
/// The memory that the server may need at the same time for other work, in KiB.
const SLACK: u64 = 16 * 1024;

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

/// The request bodies of each protocol that hold this value.
fn bodies(value: &str) -> [(&'static str, String); 5] {
    [
        ("/api/v1/runs", format!("{{\"agent\":\"echo\",\"mode\":\"wait\",\"input\":{value}}}")),
        ("/api/v1/threads", format!("{{\"metadata\":{{\"a\":{value}}}}}")),
        (
            "/communication/runs",
            format!("{{\"agent_name\":\"echo\",\"mode\":\"sync\",\"input\":{value}}}"),
        ),
        ("/connect/runs", format!("{{\"agent_id\":\"echo\",\"input\":{value}}}")),
        ("/connect/threads", format!("{{\"metadata\":{{\"a\":{value}}}}}")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_every_shape_take_memory_in_proportion_to_their_size() {
    let dir = Folder::new().unwrap();
    let server = Server::start(dir.path(), &ServerOptions::default()).await.unwrap();
    let client = server.client();
    let headers = [("content-type", "application/json")];
    // Fills the caches of the store and of the allocator first.
    for (path, body) in bodies("\"hello\"") {
        client.send(Method::POST, path, &headers, body.into()).await.unwrap();
    }
    let most = (MAX_FACTOR * BODY_BYTES / 1024) as u64 + SLACK;
    let mut failures = Vec::new();
    for (shape, value) in shapes(BODY_BYTES) {
        for (path, body) in bodies(&value) {
            forget_peak(&server);
            // The log and the caches have separate limits for data of earlier requests.
            let before = memory(&server, "VmRSS");
            let size = body.len();
            let reply = client.send(Method::POST, path, &headers, body.into()).await.unwrap();
            let more = memory(&server, "VmHWM").saturating_sub(before);
            eprintln!(
                "{shape}, {path}: {} {}, {size} bytes, {more} KiB",
                reply.status,
                reply.code()
            );
            if more > most || reply.status >= 500 {
                failures.push(format!("{shape}, {path}: {}, {more} KiB", reply.status));
            }
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}
