//! A server with few file descriptors, or none left.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::harness::{BINARY, Home, Server, until};

/// The maximum number of metric reads while the server cannot accept connections.
const LOOKS: usize = 50;

/// A command that starts a program with these limits of open files.
fn limited(soft: u32, hard: u32) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, BINARY]);
    command
}

fn ask(stream: &mut TcpStream, path: &str, headers: &str) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Reads the metrics over a connection that ends with the response.
fn metrics(server: &Server, mut stream: TcpStream) -> String {
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let headers = format!("authorization: Bearer {}\r\nconnection: close\r\n", token.trim());
    let mut answer = ask(&mut stream, "/metrics", &headers);
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn accept_failures(metrics: &str) -> u64 {
    let name = "trilogue_http_accept_failures_total ";
    let count = metrics.lines().find_map(|line| line.strip_prefix(name));
    count.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn connections_leave_descriptors_to_the_servers_own_work() {
    let home = Home::new();
    let server = home.start_as(limited(64, 256), &["demo", "--listen", "127.0.0.1:0"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("256"), "the soft limit is raised: {files}");
    // More connections than the hard limit.
    let connect = |_| TcpStream::connect(&server.address).unwrap();
    let idle: Vec<_> = (0..300).map(connect).collect();
    server.run(&["run", "echo", "let me in"]).expect(0);
    let copy = home.work().join("copy.db");
    server.run(&["backup", copy.to_str().unwrap()]).expect(0);
    assert!(copy.is_file());
    assert!(!home.log().contains("could not be accepted"), "{}", home.log());
    drop(idle);
}

#[test]
fn a_server_without_descriptors_is_not_ready_and_complains_once() {
    let home = Home::new();
    let server = home.start(&["demo", "--listen", "127.0.0.1:0"]);
    // Connections from before the limit, one for each read of the metrics.
    let mut kept: Vec<_> =
        (0..LOOKS).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    for stream in &mut kept {
        assert!(ask(stream, "/readyz", "").starts_with("HTTP/1.1 200"));
    }
    let mut first = kept.remove(0);
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed());
    let limit = |current| prlimit(pid, Resource::Nofile, current).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = limit(Rlimit { current: Some(0), maximum });
    assert!(ask(&mut first, "/readyz", "").starts_with("HTTP/1.1 503"));
    assert!(ask(&mut first, "/healthz", "").starts_with("HTTP/1.1 200"), "the process lives");
    let metrics_then = metrics(&server, first);
    assert!(metrics_then.contains("\ntrilogue_ready 0\n"), "{metrics_then}");
    let waiting: Vec<_> = (0..20).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    until(|| home.log().contains("could not be accepted").then_some(()));
    // Several attempts fail, and the log has one line.
    until(|| {
        let metrics = metrics(&server, kept.pop().expect("failures are counted"));
        (accept_failures(&metrics) > 1).then_some(())
    });
    limit(before);
    drop(waiting);
    let mut again = TcpStream::connect(&server.address).unwrap();
    assert!(ask(&mut again, "/readyz", "").starts_with("HTTP/1.1 200"));
    let log = home.log();
    assert_eq!(log.matches("could not be accepted").count(), 1, "{log}");
    server.run(&["run", "echo", "let me in"]).expect(0);
}
