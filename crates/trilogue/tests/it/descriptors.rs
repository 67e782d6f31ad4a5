//! A server whose file descriptors are few, or gone.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

use crate::harness::{BINARY, Home, Server, until};

/// Gives the limits of open files of a program that is started.
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

/// The metrics, over a connection that ends with them.
fn metrics(server: &Server, mut stream: TcpStream) -> String {
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let headers = format!("authorization: Bearer {}\r\nconnection: close\r\n", token.trim());
    let mut answer = ask(&mut stream, "/metrics", &headers);
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn connections_leave_descriptors_to_the_servers_own_work() {
    let home = Home::new();
    let server = home.start_as(limited(64, 256), &["demo", "--listen", "127.0.0.1:0"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(files.split_whitespace().nth(3), Some("256"), "the soft limit is raised: {files}");
    // More than the hard limit has.
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
    let mut kept = TcpStream::connect(&server.address).unwrap();
    assert!(ask(&mut kept, "/readyz", "").starts_with("HTTP/1.1 200"));
    let pid = rustix::process::Pid::from_raw(server.pid().cast_signed());
    let limit = |current| prlimit(pid, Resource::Nofile, current).unwrap();
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = limit(Rlimit { current: Some(0), maximum });
    assert!(ask(&mut kept, "/readyz", "").starts_with("HTTP/1.1 503"));
    assert!(ask(&mut kept, "/healthz", "").starts_with("HTTP/1.1 200"), "the process lives");
    let metrics_then = metrics(&server, kept);
    assert!(metrics_then.contains("\ntrilogue_ready 0\n"), "{metrics_then}");
    let waiting: Vec<_> = (0..20).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    until(|| home.log().contains("could not be accepted").then_some(()));
    // Long enough for many more attempts.
    std::thread::sleep(Duration::from_secs(1));
    limit(before);
    drop(waiting);
    let mut again = TcpStream::connect(&server.address).unwrap();
    assert!(ask(&mut again, "/readyz", "").starts_with("HTTP/1.1 200"));
    let log = home.log();
    assert_eq!(log.matches("could not be accepted").count(), 1, "{log}");
    let metrics = metrics(&server, TcpStream::connect(&server.address).unwrap());
    let failures = metrics
        .lines()
        .find_map(|line| line.strip_prefix("trilogue_http_accept_failures_total "))
        .unwrap_or_else(|| panic!("{metrics}"));
    assert!(failures.parse::<u64>().unwrap() > 1, "{failures}");
    server.run(&["run", "echo", "let me in"]).expect(0);
}
